//! What crosses the wire of a tree: an execution, and those that its nodes made.

use jiff::Timestamp;
use kernel::execution;
use kernel::ids::{DefinitionId, ExecutionId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

/// `GET /api/v1/workflow/executions/{id}/tree`: the root first, then the others in the order in which they were made.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tree {
    pub root_execution_id: ExecutionId,
    pub items: Vec<TreeItem>,
    /// There are more than are shown.
    pub more: bool,
}

/// One execution of a tree.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TreeItem {
    pub execution_id: ExecutionId,
    /// The execution whose node made it; the root has none.
    pub parent_execution_id: Option<ExecutionId>,
    pub node: Option<String>,
    /// Of a loop: which of its items, from 1.
    pub iteration: Option<i32>,
    pub attempt: Option<u32>,
    pub depth: i16,
    pub workflow_definition_id: DefinitionId,
    pub workflow_name: Option<String>,
    pub status: execution::Status,
    pub error: Option<Value>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    pub duration_ms: Option<i64>,
}
