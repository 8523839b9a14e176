//! What a node's templates may see: the execution's input and what earlier nodes produced.
//!
//! Invariants
//! - A scope is built from stored values only, so every attempt at a node sees the same values in any process.
//!
//! Not here: parsing templates (`kernel::expression::template`), loading the stored values (`store::run`).

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use kernel::expression::{NodeScope, Scope};
use kernel::ids::{ExecutionId, WorkspaceId};
use kernel::run::failure::Failure;
use kernel::run::node;
use serde_json::{Value, json};
use store::queue::claim::Begun;

use crate::versions::LoadedVersion;

/// What is known about an execution before any of its nodes has ended.
#[derive(Debug)]
pub struct ExecutionStart<'a> {
    pub execution: ExecutionId,
    pub workspace: WorkspaceId,
    pub created_at: Timestamp,
    pub workflow: Option<&'a str>,
    /// The constants of its definition.
    pub vars: &'a Value,
    pub input: Value,
    pub trigger: Value,
}

/// The scope of a run before any of its nodes has ended.
pub fn scope(begun: &Begun, version: &LoadedVersion) -> Scope {
    at_start(ExecutionStart {
        execution: begun.execution,
        workspace: begun.workspace,
        created_at: begun.created_at,
        workflow: version.definition.name.as_deref(),
        vars: &version.definition.vars,
        input: begun.input.clone(),
        trigger: begun.trigger.clone(),
    })
}

/// The scope before any node has ended, for code that shows an execution without running it.
pub fn at_start(start: ExecutionStart<'_>) -> Scope {
    Scope {
        inputs: Arc::new(start.input),
        nodes: BTreeMap::new(),
        trigger: Arc::new(start.trigger),
        execution: json!({
            "id": start.execution,
            "created_at": start.created_at.to_string(),
            "workflow": start.workflow,
        }),
        workspace: json!({ "id": start.workspace }),
        vars: Arc::new(start.vars.clone()),
        ..Scope::default()
    }
}

/// A node that has ended, as other nodes see it.
pub fn seen(status: node::Status, output: Value, error: Option<&Failure>) -> NodeScope {
    let error = error.and_then(|error| serde_json::to_value(error).ok()).unwrap_or_default();
    NodeScope { status: status.name().to_owned(), output: Arc::new(output), error: Arc::new(error) }
}
