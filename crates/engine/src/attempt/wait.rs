//! Waits and tasks: the row that is stored for a node that waits, and the result that an answer gives the node.
//!
//! Invariants
//! - Only the store decides whether a wait was answered or has expired, never this process's clock.
//!
//! Not here: storing waits and answers (`store::wait`), what an answer means (`kernel::kind`).

use std::time::Duration;

use kernel::definition::Node;
use kernel::kind::{task, wait_for_event};
use kernel::run::failure::{Class, Failure};
use serde_json::Value;
use store::queue::claim::Begun;
use store::wait::{NewWait, WaitKey, WaitKind, WaitState};

use crate::nodes::{NodeOutput, Work};

/// The kind of a node's wait, with what is needed to read its answer.
#[derive(Clone, Debug)]
pub enum WaitConfig {
    Answer(wait_for_event::Config),
    Task,
}

impl WaitConfig {
    /// The result of a wait for its node. None while the wait is open.
    pub fn result(self, state: WaitState) -> Option<Result<NodeOutput, Failure>> {
        let result = match (self, state) {
            (_, WaitState::Open { .. }) => return None,
            (WaitConfig::Answer(config), WaitState::Answered(answer)) => {
                answer.result.map(|data| config.answered(data, &answer.by, answer.at))
            }
            (WaitConfig::Answer(config), WaitState::Expired) => config.expired(),
            (WaitConfig::Task, WaitState::Answered(answer)) => answer.result,
            (WaitConfig::Task, WaitState::Expired) => Err(task::expired()),
        };
        Some(result.map(NodeOutput::new))
    }

    /// The result of a wait that is known to be over.
    pub fn over(self, state: WaitState) -> Result<NodeOutput, Failure> {
        self.result(state)
            .unwrap_or_else(|| Err(Failure::bug("the answer of a wait was read while the wait is still open")))
    }
}

/// The row to store for a node that waits, and the kind of its wait.
pub fn wait(
    work: Work,
    spec: &Node,
    input: &Value,
    begun: &Begun,
    (iteration, attempt): (i32, u32),
) -> Result<(NewWait, WaitConfig), Failure> {
    let (kind, input, awaited) = match work {
        Work::Wait(config) => {
            let kind = WaitKind::Wait { event: config.event.clone(), matches: config.matches.clone() };
            (kind, input.clone(), WaitConfig::Answer(config))
        }
        Work::Task(config) if config.activity.is_some() => {
            let message =
                "the task names a Temporal activity, which the embedded engine cannot run; name a queue instead";
            return Err(Failure::new(Class::ValidationError, message));
        }
        Work::Task(config) => {
            (WaitKind::Task { queue: config.queue, lease: config.lease }, config.input, WaitConfig::Task)
        }
        _ => return Err(Failure::bug("this node kind has no wait")),
    };
    let key = WaitKey { execution: begun.execution, node: spec.key.clone(), iteration };
    let expires_in = spec.timeout_ms.map(Duration::from_millis);
    Ok((NewWait { key, workspace: begun.workspace, attempt, kind, input, expires_in }, awaited))
}
