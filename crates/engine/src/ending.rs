//! How an execution ends: its outcome, its outputs, or why it failed.
//!
//! Invariants
//! - Every engine ends an execution by this, so the same rows come to the same end.
//!
//! Not here: which outcome it is (`kernel::run`), storing it (`store::run`), how engines count it (`counted`).

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

use crate::versions::Version;
use crate::{compute, nodes};

/// The end that an outcome means. `failure` tells why a node failed. Outputs that may take long are computed apart, in
/// the workspace's turn.
pub async fn end(
    outcome: &Outcome,
    workspace: WorkspaceId,
    version: &Version,
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
            failed(
                failure(node).unwrap_or_else(|| Failure::new(Class::ExecutionError, "the node failed").at(key.clone())),
            )
        }
        Outcome::Canceled => plain(execution::Status::Canceled),
        Outcome::TimedOut => {
            let error = Failure::new(Class::DeadlinePassed, "the execution ran longer than it may");
            End { error: Some(error), ..plain(execution::Status::TimedOut) }
        }
        Outcome::Stalled => {
            failed(Failure::new(Class::Stalled, "the graph stopped with unsettled nodes: a fault of Forebay's"))
        }
    }
}

/// An execution that failed for this reason.
pub fn failed(reason: Failure) -> End {
    End { outcome: execution::Status::Failed, output: None, error: Some(reason) }
}

/// An execution that was ended by force.
pub fn terminated() -> End {
    End { outcome: execution::Status::Canceled, output: None, error: Some(store::queue::control::terminated()) }
}

/// Why a run ends whose engine panicked.
pub fn broke_off() -> Failure {
    Failure::new(Class::Stalled, "the run broke off unexpectedly: a fault of Forebay's")
}

async fn outputs(workspace: WorkspaceId, version: &Version, scope: &Scope) -> Result<Option<Value>, Failure> {
    let outputs = &version.definition.outputs;
    if outputs.is_null() {
        return Ok(None);
    }
    if !nodes::texts(outputs) {
        return resolve(outputs, scope).map(Some);
    }
    let (outputs, scope) = (outputs.clone(), scope.clone());
    compute::run(workspace, move || resolve(&outputs, &scope)).await.map(Some)
}

fn resolve(outputs: &Value, scope: &Scope) -> Result<Value, Failure> {
    let unreadable = |_| Failure::new(Class::ValidationError, "outputs cannot be read");
    Ok(Template::parse(outputs).map_err(unreadable)?.resolve(scope)?)
}

/// Counts an end once it is stored.
pub fn counted(outcome: execution::Status, class: Option<Class>) {
    ::metrics::counter!(metrics::RUNS_ENDED.name, "outcome" => outcome.name()).increment(1);
    if matches!(outcome, execution::Status::Failed | execution::Status::TimedOut) {
        let reason = class.map_or("UNKNOWN", Class::name);
        ::metrics::counter!(metrics::FAILED.name, "reason" => reason).increment(1);
    }
}
