//! What a node's templates may see: the execution's input and what earlier nodes produced.
//!
//! Invariants
//! - A scope is made from stored values only, so whoever performs a node, and however often, sees the same.
//!
//! Not here: reading templates (`kernel::template`), loading what is stored (`store::run`).

use std::collections::BTreeMap;
use std::sync::Arc;

use kernel::expression::{NodeScope, Scope};
use kernel::failure::Failure;
use kernel::node;
use serde_json::{Value, json};
use store::admission::Begun;

use crate::versions::Version;

/// What a run's nodes see before any of them ended.
pub fn scope(begun: &Begun, version: &Version) -> Scope {
    Scope {
        inputs: Arc::new(begun.input.clone()),
        nodes: BTreeMap::new(),
        trigger: Arc::new(begun.trigger.clone()),
        execution: json!({
            "id": begun.execution,
            "created_at": begun.created_at.to_string(),
            "workflow": version.definition.name,
        }),
        workspace: json!({ "id": begun.workspace }),
        secrets: None,
    }
}

/// A node that ended, as others see it.
pub fn seen(status: node::Status, output: Value, error: Option<&Failure>) -> NodeScope {
    let error = error.and_then(|error| serde_json::to_value(error).ok()).unwrap_or_default();
    NodeScope { status: status.name().to_owned(), output: Arc::new(output), error: Arc::new(error) }
}
