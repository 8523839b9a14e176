//! Jobs: rows of `workflow_queue_projection`, and the requests of a worker that claims them.

use jiff::Timestamp;
use kernel::ids::WorkspaceId;
use kernel::job;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;
use uuid::Uuid;

/// A job: a row of `workflow_queue_projection`.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    pub id: Uuid,
    pub workspace_id: Option<WorkspaceId>,
    pub event_id: Uuid,
    pub event_type: String,
    pub event_data: Value,
    pub stream_id: Uuid,
    pub stream_type: String,
    pub status: job::Status,
    pub worker_id: Option<String>,
    pub claimed_at: Option<Timestamp>,
    pub workflow_id: Option<String>,
    pub workflow_run_id: Option<String>,
    pub completed_at: Option<Timestamp>,
    pub failed_at: Option<Timestamp>,
    pub error_message: Option<String>,
    pub error_stack: Option<String>,
    pub retry_count: i32,
    pub result: Option<Value>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// `POST /api/v1/jobs/claim`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClaimJobs {
    /// With a root key: claim jobs of this workspace only. Default: of all.
    pub workspace_id: Option<WorkspaceId>,
    /// The name of the worker, such as `{hostname}-{pid}`. Its jobs show it.
    #[schema(min_length = 1, max_length = 200)]
    pub worker_id: String,
    /// Claim jobs of these event types only. Each is an exact type, or a prefix such as `order.*`. Default: all.
    #[schema(min_items = 1, max_items = 100)]
    pub event_types: Option<Vec<String>>,
    /// Claim this job only.
    pub id: Option<Uuid>,
    /// How many jobs to claim at most. Default: 1.
    #[schema(minimum = 1, maximum = 100)]
    pub limit: Option<i32>,
    /// How long the worker keeps a job without a heartbeat. Default: the lease of the binding.
    #[schema(minimum = 1, maximum = 604_800)]
    pub lease_seconds: Option<i32>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimedJobs {
    pub items: Vec<ClaimedJob>,
}

/// A job, and the claim that this worker has on it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimedJob {
    /// The id of the claim. Every later request about the job must send it.
    pub claim_id: Uuid,
    /// When the worker loses the job, unless it sends a heartbeat before.
    pub lease_expires_at: Timestamp,
    pub job: Job,
}

/// `POST /api/v1/jobs/{id}/heartbeat`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HeartbeatJob {
    pub claim_id: Uuid,
    /// How long the worker keeps the job from now, this once. Default: the lease of the claim.
    #[schema(minimum = 1, maximum = 604_800)]
    pub lease_seconds: Option<i32>,
    /// The `workflow_id` to store on the job, once it is known.
    #[schema(max_length = 500)]
    pub workflow_id: Option<String>,
    /// The `workflow_run_id` to store on the job, once it is known.
    #[schema(max_length = 500)]
    pub workflow_run_id: Option<String>,
}

/// The lease of a job after a heartbeat.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobLease {
    pub lease_expires_at: Timestamp,
}

/// `POST /api/v1/jobs/{id}/complete`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CompleteJob {
    pub claim_id: Uuid,
    /// The result of the job. Default: `{}`.
    #[schema(value_type = Option<Object>)]
    pub result: Option<Value>,
}

/// `POST /api/v1/jobs/{id}/fail`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FailJob {
    pub claim_id: Uuid,
    #[schema(min_length = 1, max_length = 10_000)]
    pub error_message: String,
    #[schema(max_length = 100_000)]
    pub error_stack: Option<String>,
}
