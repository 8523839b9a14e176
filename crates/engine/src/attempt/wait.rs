//! Waits for somebody outside: what is asked for a node, and what an answer makes of it.
//!
//! Invariants
//! - Whether it was answered or its time is up is the store's to say, never a clock's of ours.
//!
//! Not here: keeping waits and answers (`store::wait`), what an answer means (`kernel::kind`).

use std::time::Duration;

use kernel::definition::Node;
use kernel::kind::{task, wait_for_event};
use kernel::run::failure::{Class, Failure};
use serde_json::Value;
use store::queue::claim::Begun;
use store::wait::{Ask, Place, Standing, What};

use crate::nodes::{Done, Work};

/// What a node waits for, until it is answered.
#[derive(Clone, Debug)]
pub enum Awaited {
    Answer(wait_for_event::Config),
    Task,
}

impl Awaited {
    /// What a wait that is over makes of its node; none if it is open.
    pub fn result(self, standing: Standing) -> Option<Result<Done, Failure>> {
        let result = match (self, standing) {
            (_, Standing::Open { .. }) => return None,
            (Awaited::Answer(config), Standing::Answered(answer)) => {
                answer.result.map(|data| config.answered(data, &answer.by, answer.at))
            }
            (Awaited::Answer(config), Standing::Expired) => config.expired(),
            (Awaited::Task, Standing::Answered(answer)) => answer.result,
            (Awaited::Task, Standing::Expired) => Err(task::expired()),
        };
        Some(result.map(Done::plain))
    }

    /// The same for a wait that is known to be over.
    pub fn over(self, standing: Standing) -> Result<Done, Failure> {
        let open = || Err(Failure::new(Class::ExecutionError, "an open wait was taken for answered"));
        self.result(standing).unwrap_or_else(open)
    }
}

/// What is stored for a node that waits, and what it waits for.
pub fn wait(
    work: Work,
    spec: &Node,
    input: &Value,
    begun: &Begun,
    (iteration, attempt): (i32, u32),
) -> Result<(Ask, Awaited), Failure> {
    let (what, input, awaited) = match work {
        Work::Wait(config) => {
            let what = What::Wait { event: config.event.clone(), matches: config.matches.clone() };
            (what, input.clone(), Awaited::Answer(config))
        }
        Work::Task(config) if config.activity.is_some() => {
            let message = "an activity is served by Temporal workers: this engine has none, name a queue";
            return Err(Failure::new(Class::ValidationError, message));
        }
        Work::Task(config) => (What::Task { queue: config.queue, lease: config.lease }, config.input, Awaited::Task),
        _ => return Err(Failure::new(Class::ExecutionError, "this kind of node waits for nobody")),
    };
    let place = Place { execution: begun.execution, node: spec.key.clone(), iteration };
    let expires_in = spec.timeout_ms.map(Duration::from_millis);
    Ok((Ask { place, workspace: begun.workspace, attempt, what, input, expires_in }, awaited))
}
