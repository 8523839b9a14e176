//! WORKFLOW: runs another definition of the workspace, as a child in the same slot.
//!
//! Invariants
//! - Which version it is, is settled when the child is made, and never after.
//! - A child that did not complete fails its node with the child's own class.
//! - What is not known of a child is not known of its node: a person is asked before it is performed again.
//!
//! Not here: making the child (`store::run::child`), running it (the engines).

use serde_json::{Value, json};

use super::registry::Spec;
use super::schema::{any, late, object};
use crate::definition::Manner;
use crate::definition::fields::{Fields, Problem};
use crate::execution;
use crate::execution::generation;
use crate::ids::{ExecutionId, NodeKey};
use crate::run::failure::{Class, Failure};

/// How deep children may have children.
pub const MAX_DEPTH: i32 = 8;
/// The most executions below one root.
pub const MAX_DESCENDANTS: i32 = 20_000;

/// What to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The definition's name.
    pub workflow: String,
    /// Its version; the published one if not said.
    pub version: Option<u32>,
    pub input: Option<Value>,
    /// A start of its own, through the queue, that nobody waits for.
    pub detached: bool,
}

/// What the execution that a node makes is told of why it runs.
pub fn trigger(parent: ExecutionId, node: &NodeKey, iteration: i32, generation: u32) -> Value {
    let mut trigger = json!({ "type": "workflow", "execution_id": parent, "node": node, "iteration": iteration });
    if generation > 0 {
        trigger[generation::IN_TRIGGER] = json!(generation);
    }
    trigger
}

const FIELDS: &[&str] = &["workflow", "version", "input", "detached"];

/// What the kind says of itself.
pub(super) const SPEC: Spec = Spec {
    retry: |profiles| profiles.work.once(),
    ..Spec::new("WORKFLOW", Manner::Spawns, "Runs another workflow, as a child in the same slot.", schema, check)
};

/// What `with` must look like.
pub fn schema() -> Value {
    object(
        &["workflow"],
        &[
            (
                "workflow",
                late(
                    "The name of a workflow of the same workspace.",
                    json!({ "type": "string", "minLength": 1, "maxLength": 128 }),
                ),
            ),
            ("version", late("Its version; the published one if absent.", json!({ "type": "integer", "minimum": 1 }))),
            ("input", any("What it starts with.")),
            (
                "detached",
                late(
                    "A start of its own through the queue, which is not waited for; false if absent.",
                    json!({ "type": "boolean" }),
                ),
            ),
        ],
    )
}

pub fn check(with: &Value) -> Vec<Problem> {
    super::check_with(with, FIELDS, read)
}

pub fn prepare(input: Value) -> Result<Config, Failure> {
    super::prepare_with(&input, FIELDS, read)
}

fn read(fields: &mut Fields<'_, '_>) -> Option<Config> {
    fields.require("workflow");
    let workflow = fields.text("workflow");
    if workflow.is_some_and(|name| name.trim().is_empty() || name.len() > 128) {
        fields.wrong("workflow", "must be the name of a workflow");
    }
    let version = fields.integer("version", 1..=u64::from(u32::MAX)).and_then(|number| u32::try_from(number).ok());
    let detached = fields.boolean("detached").unwrap_or(false);
    let input = fields.get("input").cloned();
    Some(Config { workflow: workflow?.to_owned(), version, input, detached })
}

/// What a child that came to its end makes of its node. `unknown`: of one of its nodes it is not known whether it took
/// effect, whatever else ended the child.
pub fn ended(
    child: ExecutionId,
    outcome: execution::Status,
    output: Option<Value>,
    error: Option<Failure>,
    unknown: bool,
) -> Result<Value, Failure> {
    if outcome == execution::Status::Completed {
        return Ok(json!({ "execution_id": child, "status": outcome.name(), "output": output }));
    }
    let (class, why) = match (outcome, error) {
        (execution::Status::TimedOut, _) => (Class::Timeout, "it ran longer than it may".to_owned()),
        (execution::Status::Canceled, _) => (Class::ControlFlowError, "it was canceled".to_owned()),
        (_, Some(error)) => (error.class, error.message),
        (_, None) => (Class::ExecutionError, "it failed".to_owned()),
    };
    let message = format!("child {child} ended {}: {why}", outcome.name());
    if unknown && class != Class::ResultUnknown {
        let unknown = Failure::unknown().message;
        return Err(Failure::new(Class::ResultUnknown, format!("{message}; of a node below, {unknown}")));
    }
    Err(Failure::new(class, message))
}

/// Was a child ended by the stop of its parent, which is no failure of its node? `stopped`: the parent is being
/// stopped.
pub fn was_stopped(stopped: bool, outcome: execution::Status, unknown: bool) -> bool {
    stopped && outcome != execution::Status::Completed && !unknown
}

/// What a node completes with whose child is on its own.
pub fn detached(child: ExecutionId) -> Value {
    json!({ "execution_id": child })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_of_a_child_is_not_known_of_its_node_whatever_ended_the_child() {
        let class = |outcome, error: Option<Class>, unknown| {
            let error = error.map(|class| Failure::new(class, "no"));
            ended(ExecutionId(uuid::Uuid::nil()), outcome, None, error, unknown).map_err(|failure| failure.class)
        };
        use execution::Status::{Canceled, Completed, Failed, TimedOut};
        assert_eq!(class(Failed, Some(Class::ResultUnknown), true), Err(Class::ResultUnknown));
        assert_eq!(class(Failed, Some(Class::HttpServerError), true), Err(Class::ResultUnknown));
        assert_eq!(class(Canceled, None, true), Err(Class::ResultUnknown));
        assert_eq!(class(TimedOut, Some(Class::DeadlinePassed), true), Err(Class::ResultUnknown));
        assert_eq!(class(Failed, Some(Class::HttpServerError), false), Err(Class::HttpServerError));
        assert_eq!(class(Canceled, None, false), Err(Class::ControlFlowError));
        assert!(class(Completed, None, false).is_ok());
    }
}
