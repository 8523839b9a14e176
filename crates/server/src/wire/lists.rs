//! Pages, and what is shown in them or counted.

use jiff::Timestamp;
use kernel::execution;
use kernel::ids::{DefinitionId, ExecutionId, QueueItemId, VersionId, WorkspaceId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;
use uuid::Uuid;

/// A page of a list.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Give it as `?cursor=` for the next page; absent on the last.
    pub next_cursor: Option<String>,
}

/// An execution in a list: all but what it was given and what it made.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListedExecution {
    pub id: ExecutionId,
    pub queue_id: QueueItemId,
    pub workspace_id: WorkspaceId,
    pub workflow_definition_id: DefinitionId,
    pub workflow_name: Option<String>,
    pub version_id: VersionId,
    pub version: Option<i32>,
    pub status: execution::Status,
    /// `{type, message, node?, status?}` of what failed it.
    pub error: Option<Value>,
    pub priority: i16,
    pub concurrency_key: Option<String>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    pub duration_ms: Option<i64>,
    /// Somebody asked it to end.
    pub cancel_requested_at: Option<Timestamp>,
}

/// A version of a definition, without its graph.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    pub id: VersionId,
    pub version: i32,
    /// New executions pin this one.
    pub published: bool,
    pub content_hash: String,
    /// How long an execution of it may take.
    pub timeout_ms: Option<i64>,
    pub created_at: Timestamp,
}

/// `GET /api/v1/workspaces/{id}/capacity`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Capacity {
    pub workspace_id: WorkspaceId,
    /// How many executions may run at once.
    pub limit: i32,
    /// How many hold a slot. More than the limit only after it was lowered.
    pub running: Count,
    pub free: i64,
    /// Nothing starts while it is paused, free slots or not.
    pub paused: bool,
    pub waiting: WaitingCounts,
    /// How long the oldest has waited that may start now, delays it asked for aside: of the first
    /// thousand in line, and of a thousand behind each kind of gate.
    pub oldest_waiting_seconds: Option<f64>,
    /// Dead letters.
    pub failed: Count,
}

/// What waits, by what it waits for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct WaitingCounts {
    /// For a slot of the workspace.
    pub ready: Count,
    /// For a time: a later start, or the next attempt.
    pub delayed: Count,
    /// For others with its concurrency key.
    pub key: Count,
    /// For others of its definition, or for that to be resumed.
    pub definition: Count,
}

/// A number that is counted to 1,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Count {
    pub count: i64,
    /// There are more than that.
    pub more: bool,
}

/// An entry of the audit log: who did what to what, when.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Activity {
    pub id: i64,
    pub at: Timestamp,
    /// None for what belongs to no workspace.
    pub workspace_id: Option<WorkspaceId>,
    /// `root`, `key:ID`, `sql:ROLE`, or a part of the service.
    pub actor: String,
    pub action: String,
    pub subject_type: String,
    pub subject_id: Uuid,
    pub detail: Option<Value>,
}

/// `GET /api/v1/workflow/nodes`
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Kinds {
    pub items: Vec<kernel::kind::Description>,
}

/// `GET /api/v1/workflow/definitions/{id}/versions/{number}`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WholeVersion {
    pub version: i32,
    /// Nodes with their configuration, and edges: a document that can be published again.
    pub graph: Value,
    /// The text it was read from, if it came as one.
    pub source: Option<String>,
}

/// `GET /api/v1/workflow/definitions/{id}/versions/{number}/diff`
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Diff {
    pub from: i32,
    pub to: i32,
    pub changes: Vec<kernel::definition::diff::Change>,
}
