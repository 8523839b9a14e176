//! Tasks: work that `TASK` nodes offer to workers outside the service.

use jiff::Timestamp;
use kernel::ids::{ExecutionId, WorkspaceId};
use kernel::wait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;
use uuid::Uuid;

/// `POST /api/v1/tasks/claim`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClaimTasks {
    /// The queues that this worker serves.
    #[schema(min_items = 1, max_items = 100)]
    pub queues: Vec<String>,
    /// The name of the worker, such as `{hostname}-{pid}`. Its tasks show it.
    #[schema(min_length = 1, max_length = 200)]
    pub worker_id: String,
    /// How many tasks to claim at most. Default: 1.
    #[schema(minimum = 1, maximum = 100)]
    pub limit: Option<i32>,
    /// How long the request waits for a task if there is none. Default: 0, no waiting.
    #[schema(minimum = 0, maximum = 60, example = 30)]
    pub wait_seconds: Option<u32>,
    /// How long the worker keeps a task without a heartbeat. Default: the `lease` of the node.
    #[schema(minimum = 1, maximum = 3600, example = 60)]
    pub lease_seconds: Option<u32>,
    /// With a root key: claim tasks of this workspace only. Default: of all workspaces, in turn.
    pub workspace_id: Option<WorkspaceId>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimedTasks {
    pub items: Vec<ClaimedTask>,
}

/// A task, and the claim that this worker has on it.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimedTask {
    pub id: Uuid,
    /// The id of the claim. Every later request about the task must send it.
    pub claim_id: Uuid,
    pub queue: String,
    pub workspace_id: WorkspaceId,
    pub execution_id: ExecutionId,
    pub node: String,
    pub iteration: i32,
    /// The attempt at the node, from 1.
    pub attempt: i32,
    /// How often this attempt was handed to a worker, this time included.
    pub delivery: i32,
    /// The `input` of the node, with its templates resolved.
    pub input: Value,
    /// When the worker loses the task, unless it sends a heartbeat before.
    pub lease_expires_at: Timestamp,
    pub lease_seconds: f64,
    /// When the attempt fails, unless the task has ended before.
    pub expires_at: Option<Timestamp>,
}

/// `POST /api/v1/tasks/{id}/heartbeat`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HeartbeatTask {
    pub claim_id: Uuid,
    /// How far the work is: any JSON, for people to read.
    pub progress: Option<Value>,
}

/// The lease of a task after a heartbeat.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskLease {
    pub lease_expires_at: Timestamp,
    /// True: the execution is being stopped, and the result of the task is no longer needed.
    pub canceling: bool,
}

/// `POST /api/v1/tasks/{id}/complete`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CompleteTask {
    pub claim_id: Uuid,
    /// The output of the node. Default: null.
    pub output: Option<Value>,
}

/// `POST /api/v1/tasks/{id}/fail`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FailTask {
    pub claim_id: Uuid,
    #[schema(min_length = 1, max_length = 4_096)]
    pub message: String,
    /// False: the node is not retried. Default: true.
    pub retryable: Option<bool>,
}

/// A task and its state.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    pub id: Uuid,
    pub workspace_id: WorkspaceId,
    pub queue: String,
    pub execution_id: ExecutionId,
    pub node: String,
    pub iteration: i32,
    pub attempt: i32,
    pub status: wait::Status,
    pub input: Option<Value>,
    /// The worker that claimed the task last.
    pub worker_id: Option<String>,
    pub lease_expires_at: Option<Timestamp>,
    /// How often this attempt was handed to a worker.
    pub deliveries: i32,
    /// How often a worker lost this attempt because it sent no heartbeat.
    pub lost_leases: i32,
    pub progress: Option<Value>,
    pub output: Option<Value>,
    pub error: Option<Value>,
    pub opened_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
}
