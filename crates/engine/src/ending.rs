//! How an execution ends: its outcome, its outputs, or why it failed.
//!
//! Invariants
//! - Both engines use this code, so the same rows lead to the same end.
//!
//! Not here: which outcome a run has (`kernel::run`), storing the end (`store::run`).

use kernel::definition::plan::NodeIx;
use kernel::execution;
use kernel::expression::Scope;
use kernel::expression::template::Template;
use kernel::ids::WorkspaceId;
use kernel::run::Outcome;
use kernel::run::failure::{Class, Failure};
use kernel::signals::metrics;
use serde_json::Value;
use store::run::End;

use crate::versions::LoadedVersion;
use crate::{compute, nodes};

/// Builds the end for an outcome. `failure` returns why a node failed. Outputs that may take long to compute wait for
/// the workspace's turn and are computed on a separate thread.
pub async fn end(
    outcome: &Outcome,
    workspace: WorkspaceId,
    version: &LoadedVersion,
    scope: &Scope,
    failure: impl FnOnce(NodeIx) -> Option<Failure>,
) -> End {
    let plain = |outcome| End { outcome, output: None, error: None };
    match *outcome {
        Outcome::Completed => match outputs(workspace, version, scope).await {
            Ok(output) => End { outcome: execution::Status::Completed, output, error: None },
            Err(failure) => failed(failure),
        },
        Outcome::Failed { node } => {
            let key = &version.plan.node(node).key;
            let no_reason = || Failure::new(Class::ExecutionError, "the node failed; no reason was stored");
            failed(failure(node).unwrap_or_else(|| no_reason().at(key.clone())))
        }
        Outcome::Canceled => plain(execution::Status::Canceled),
        Outcome::TimedOut => {
            let error = Failure::new(Class::DeadlinePassed, "the execution passed its deadline");
            End { error: Some(error), ..plain(execution::Status::TimedOut) }
        }
        Outcome::Stalled => {
            let message = "the run stopped with unfinished nodes: a bug in Forebay, please report it";
            failed(Failure::new(Class::Stalled, message))
        }
    }
}

/// The end of an execution whose outputs the database refused.
pub fn unstorable() -> End {
    failed(Failure::unstorable_outputs())
}

/// The end of an execution that failed for this reason.
pub fn failed(reason: Failure) -> End {
    End { outcome: execution::Status::Failed, output: None, error: Some(reason) }
}

/// The end of an execution that was terminated.
pub fn terminated() -> End {
    End { outcome: execution::Status::Canceled, output: None, error: Some(store::queue::control::terminated()) }
}

/// The failure of a run whose engine panicked.
pub fn broke_off() -> Failure {
    Failure::new(Class::Stalled, "the run stopped unexpectedly: a bug in Forebay, please report it")
}

async fn outputs(workspace: WorkspaceId, version: &LoadedVersion, scope: &Scope) -> Result<Option<Value>, Failure> {
    let outputs = &version.definition.outputs;
    if outputs.is_null() {
        return Ok(None);
    }
    if !nodes::has_long_expression(outputs) {
        return resolve(outputs, scope).map(Some);
    }
    let (outputs, scope) = (outputs.clone(), scope.clone());
    compute::run(workspace, move || resolve(&outputs, &scope)).await.map(Some)
}

fn resolve(outputs: &Value, scope: &Scope) -> Result<Value, Failure> {
    let message = "the templates in the workflow's outputs cannot be parsed; correct them";
    let unreadable = |_| Failure::new(Class::ValidationError, message);
    Ok(Template::parse(outputs).map_err(unreadable)?.resolve(scope)?)
}

/// Counts an end in the metrics. Call this only after the end is stored.
pub fn counted(outcome: execution::Status, class: Option<Class>) {
    ::metrics::counter!(metrics::RUNS_ENDED.name, "outcome" => outcome.name()).increment(1);
    if matches!(outcome, execution::Status::Failed | execution::Status::TimedOut) {
        let reason = class.map_or("UNKNOWN", Class::name);
        ::metrics::counter!(metrics::FAILED.name, "reason" => reason).increment(1);
    }
}
