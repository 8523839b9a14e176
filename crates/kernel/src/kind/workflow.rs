//! WORKFLOW: runs another definition of the workspace, as a child in the same slot.
//!
//! Invariants
//! - The version of a child is fixed when the child is created.
//! - If a child does not complete, the WORKFLOW node fails with the class of the child's failure.
//! - If a node of a child ends UNKNOWN and the child does not complete, the WORKFLOW node ends UNKNOWN too. A person
//!   must resolve it before a rerun.
//!
//! Not here: creating the child (`store::run::child`), running it (the engines).

use serde_json::{Value, json};

use super::registry::Spec;
use super::schema::{any, boolean, late, line, object};
use crate::definition::Manner;
use crate::definition::fields::Fields;
use crate::execution;
use crate::execution::generation;
use crate::ids::{ExecutionId, NodeKey};
use crate::run::failure::{Class, Failure};

/// How many levels of children an execution may have.
pub const MAX_DEPTH: i32 = 8;
/// The most executions in the tree below one root execution.
pub const MAX_DESCENDANTS: i32 = 20_000;

/// The workflow to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The definition's name.
    pub workflow: String,
    /// The version to run; `None` stands for the published version.
    pub version: Option<u32>,
    pub input: Option<Value>,
    /// The workflow is started through the queue, and the node does not wait for its end.
    pub detached: bool,
}

/// Does a node with this configuration start an execution without waiting for its end? Such an execution is no child.
pub fn is_detached(with: &Value) -> bool {
    with["detached"] == true
}

/// The trigger of an execution that a node starts.
pub fn trigger(parent: ExecutionId, node: &NodeKey, iteration: i32, generation: u32) -> Value {
    let mut trigger = json!({ "type": "workflow", "execution_id": parent, "node": node, "iteration": iteration });
    if generation > 0 {
        trigger[generation::IN_TRIGGER] = json!(generation);
    }
    trigger
}

pub(super) const FIELDS: &[&str] = &["workflow", "version", "input", "detached"];

/// The description of this kind.
pub(super) const SPEC: Spec = Spec {
    retry: |profiles| profiles.work.once(),
    ..Spec::new("WORKFLOW", Manner::Spawns, "Runs another workflow, as a child in the same slot.")
};

/// JSON Schema of `with`.
pub fn schema() -> Value {
    object(
        &["workflow"],
        &[
            late("workflow", "The name of a workflow of the same workspace.", line(128)),
            late("version", "Its version; the published one if absent.", json!({ "type": "integer", "minimum": 1 })),
            any("input", "The input of the workflow."),
            late(
                "detached",
                "Starts the workflow through the queue and does not wait for its end; false if absent.",
                boolean(),
            ),
        ],
    )
}

pub(super) fn read(fields: &mut Fields<'_, '_>) -> Option<Config> {
    fields.require("workflow");
    let workflow = fields.text("workflow");
    if workflow.is_some_and(|name| name.trim().is_empty() || name.len() > 128) {
        fields.wrong("workflow", "must be the name of a workflow");
    }
    let version = fields.count("version", u32::MAX);
    let detached = fields.boolean("detached").unwrap_or(false);
    let input = fields.get("input").cloned();
    Some(Config { workflow: workflow?.to_owned(), version, input, detached })
}

/// The result of a node whose child ended. `unknown` means that a node of the child ended UNKNOWN, even if something
/// else ended the child.
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
        (execution::Status::TimedOut, _) => (Class::Timeout, "it ran past its deadline".to_owned()),
        (execution::Status::Canceled, _) => (Class::ControlFlowError, "it was canceled".to_owned()),
        (_, Some(error)) => (error.class, error.message),
        (_, None) => (Class::ExecutionError, "it failed".to_owned()),
    };
    let message = format!("child {child} ended {}: {why}", outcome.name());
    if unknown && class != Class::ResultUnknown {
        let unknown = Failure::unknown().message;
        return Err(Failure::new(
            Class::ResultUnknown,
            format!("{message}; a node of the child is UNKNOWN: {unknown}"),
        ));
    }
    Err(Failure::new(class, message))
}

/// Did a child end because its parent is being stopped (`stopped`)? Then the node of the child did not fail.
pub fn was_stopped(stopped: bool, outcome: execution::Status, unknown: bool) -> bool {
    stopped && outcome != execution::Status::Completed && !unknown
}

/// The output of a node that started a detached execution.
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
