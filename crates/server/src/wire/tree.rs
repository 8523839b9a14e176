//! The tree of an execution: its root, and the executions that its nodes created.

use jiff::Timestamp;
use kernel::execution;
use kernel::ids::{DefinitionId, ExecutionId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

/// `GET /api/v1/workflow/executions/{id}/tree`: the root first, then the others in the order of their
/// creation.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionTree {
    pub root_execution_id: ExecutionId,
    pub items: Vec<TreeExecution>,
    /// True: the tree has more executions than are shown.
    pub more: bool,
}

/// One execution of a tree.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TreeExecution {
    pub execution_id: ExecutionId,
    /// The execution whose node created this execution. Absent: this is the root.
    pub parent_execution_id: Option<ExecutionId>,
    /// The node of the parent that created this execution.
    pub node: Option<String>,
    /// The iteration of that node, from 1. Absent: the node is not a loop.
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
