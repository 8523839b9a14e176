//! What crosses the wire of a tree: an execution, and those that its nodes made.

use jiff::Timestamp;
use kernel::execution;
use kernel::ids::{DefinitionId, ExecutionId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
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
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TreeItem {
    pub execution_id: ExecutionId,
    /// The execution whose node made it; the root has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_execution_id: Option<ExecutionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Of a loop: which of its items, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iteration: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    pub depth: i16,
    pub workflow_definition_id: DefinitionId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_name: Option<String>,
    pub status: execution::Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<i64>,
}
