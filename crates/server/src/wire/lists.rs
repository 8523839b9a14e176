//! Pages of lists, and the items of some of them.

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
    /// Send it as `?cursor=` to get the next page. Absent: this is the last page.
    pub next_cursor: Option<String>,
}

/// An execution in a list, without its input and output.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionListItem {
    pub id: ExecutionId,
    pub queue_id: QueueItemId,
    pub workspace_id: WorkspaceId,
    pub workflow_definition_id: DefinitionId,
    pub workflow_name: Option<String>,
    pub version_id: VersionId,
    pub version: Option<i32>,
    pub status: execution::Status,
    /// Why the execution failed: `{type, message, node?, status?}`.
    pub error: Option<Value>,
    pub priority: i16,
    pub concurrency_key: Option<String>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    pub duration_ms: Option<i64>,
    /// When a caller requested that the execution ends.
    pub cancel_requested_at: Option<Timestamp>,
}

/// A version of a definition, without its graph.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionListItem {
    pub id: VersionId,
    pub version: i32,
    /// True: new executions run this version.
    pub published: bool,
    pub content_hash: String,
    /// How long an execution may take.
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
    /// How many executions hold a slot. More than the limit only after the limit was lowered.
    pub running: BoundedCount,
    /// How many slots are free.
    pub free: i64,
    /// True: the workspace is paused, and nothing starts.
    pub paused: bool,
    pub waiting: WaitingCounts,
    /// How long the oldest ready execution has waited. Requested delays do not count. The first 1,000 ready items are
    /// examined, and the first 1,000 items of each other reason to wait.
    pub oldest_waiting_seconds: Option<f64>,
    /// How many dead letters there are.
    pub failed: BoundedCount,
}

/// How many executions wait, by what they wait for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct WaitingCounts {
    /// Executions that wait for a slot of the workspace.
    pub ready: BoundedCount,
    /// Executions that wait for a time: a later start, or the next attempt.
    pub delayed: BoundedCount,
    /// Executions that wait for another execution with the same concurrency key.
    pub key: BoundedCount,
    /// Executions that wait for other executions of their definition, or until the definition is resumed.
    pub definition: BoundedCount,
}

/// A number that the service counts only up to 1,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BoundedCount {
    pub count: i64,
    /// True: there are more than `count`.
    pub more: bool,
}

/// An entry of the audit log: who did what to which resource, and when.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActivityEntry {
    /// Absent: the start of an execution, which is stored with the execution.
    pub id: Option<i64>,
    pub at: Timestamp,
    /// Absent: the resource belongs to no workspace.
    pub workspace_id: Option<WorkspaceId>,
    /// Who did it: `root`, `key:ID`, `sql:ROLE`, `trigger:ID`, or a part of the service.
    pub actor: String,
    /// What was done, such as `webhook.create`.
    pub action: String,
    pub subject_type: String,
    pub subject_id: Uuid,
    pub detail: Option<Value>,
}

/// `GET /api/v1/workflow/nodes`
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NodeKinds {
    pub items: Vec<kernel::kind::Description>,
}

/// `GET /api/v1/workflow/definitions/{id}/versions/{number}`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct VersionDocument {
    pub version: i32,
    /// The nodes with their configuration, and the edges. You can publish this document again.
    pub graph: Value,
    /// The text that the version was read from. Absent: it came as JSON.
    pub source: Option<String>,
}

/// `GET /api/v1/workflow/definitions/{id}/versions/{number}/diff`
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct VersionDiff {
    pub from: i32,
    pub to: i32,
    pub changes: Vec<kernel::definition::diff::FieldChange>,
}
