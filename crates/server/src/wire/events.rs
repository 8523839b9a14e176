//! Events, their bindings, and the jobs that they make.

use jiff::Timestamp;
use kernel::ids::{DefinitionId, WorkspaceId};
use kernel::job;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;
use uuid::Uuid;

/// `POST /api/v1/events`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AppendEvents {
    /// With a root key: whose events these are. None: no workspace's, or of one that does not exist yet.
    pub workspace_id: Option<WorkspaceId>,
    /// Appended in order, all or none.
    #[schema(min_items = 1, max_items = 1000)]
    pub events: Vec<NewEvent>,
}

/// An event to be appended.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewEvent {
    /// Yours, or made here. The same id with the same content is appended once.
    pub id: Option<Uuid>,
    /// Such as `order.placed`.
    #[schema(min_length = 1, max_length = 200)]
    #[serde(rename = "type")]
    pub kind: String,
    /// What it happened to.
    pub stream_id: Uuid,
    /// What sort of thing that is, such as `order`.
    #[schema(min_length = 1, max_length = 200)]
    pub stream_type: String,
    /// The version that the stream must be at, 0 for a new one; whatever it is at, if not said.
    #[schema(minimum = 0)]
    pub expected_version: Option<i32>,
    /// What happened; `{}` if not said.
    #[schema(value_type = Option<Object>)]
    pub data: Option<Value>,
    /// Beside it, such as `correlation_id` and `causation_id`.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Map<String, Value>>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppendedEvents {
    pub events: Vec<AppendedEvent>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppendedEvent {
    pub id: Uuid,
    pub sequence: i64,
    pub stream_version: i32,
    pub created_at: Timestamp,
    /// It was there already.
    pub repeated: bool,
    /// False: no binding holds for its type, so it makes no job. Absent: not known.
    pub bound: Option<bool>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DomainEvent {
    pub id: Uuid,
    pub sequence: i64,
    pub workspace_id: Option<WorkspaceId>,
    #[serde(rename = "type")]
    pub kind: String,
    pub stream_id: Uuid,
    pub stream_type: String,
    pub stream_version: Option<i32>,
    pub data: Value,
    pub metadata: Value,
    pub created_at: Timestamp,
    /// False: no binding held for its type when it was appended, so it made no job. Absent: not known, or a step of a
    /// job.
    pub bound: Option<bool>,
    /// Why it has no job although it is bound.
    pub processing_error: Option<String>,
    pub processing_failed_at: Option<Timestamp>,
}

create_and_change! {
    /// `POST /api/v1/bindings`
    create CreateBinding {
        /// With a root key: whose events; of the whole platform if not said.
        pub workspace_id: Option<WorkspaceId>,
        /// Exact, or a prefix: `order.*`.
        #[schema(min_length = 1, max_length = 200)]
        pub event_type: String,
    }

    /// `PUT /api/v1/bindings/{id}`: what is absent is taken away.
    change ChangeBinding {
        /// What runs its jobs; external workers only, if not said.
        pub workflow_definition_id: Option<DefinitionId>,
        /// An expression over `trigger.event`; a job for which it is not true is completed as skipped.
        pub filter: Option<String>,
        /// The execution's input, with templates; `{event: …}` if not said.
        #[schema(value_type = Option<Object>)]
        pub input: Option<Value>,
        /// Such as `org-bootstrap-{subdomain}`; `execution-{executionId}` if not said.
        #[schema(max_length = 500)]
        pub workflow_id: Option<String>,
        /// How long an external worker may be silent; 900 if not said.
        #[schema(minimum = 1, maximum = 604_800)]
        pub lease_seconds: Option<u32>,
    }
}

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Binding {
    pub id: Uuid,
    /// None: of the whole platform.
    pub workspace_id: Option<WorkspaceId>,
    pub event_type: String,
    pub workflow_definition_id: Option<DefinitionId>,
    pub workflow_name: Option<String>,
    /// Every service has it: it cannot be changed or deleted, and holds where no other binding does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub built_in: bool,
    /// Made by the definition's `on: event`: it changes with the definition.
    pub by_definition: bool,
    pub filter: Option<String>,
    pub input: Option<Value>,
    pub workflow_id: Option<String>,
    pub lease_seconds: u32,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

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

/// `POST /api/v1/projection/claim`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClaimJobs {
    /// With a root key: only this workspace's.
    pub workspace_id: Option<WorkspaceId>,
    /// Whom the jobs name, such as `{hostname}-{pid}`.
    #[schema(min_length = 1, max_length = 200)]
    pub worker_id: String,
    /// Only these types, exact or by a prefix: `order.*`.
    #[schema(min_items = 1, max_items = 100)]
    pub event_types: Option<Vec<String>>,
    /// Only this job.
    pub id: Option<Uuid>,
    /// How many at most; 1 if not said.
    #[schema(minimum = 1, maximum = 100)]
    pub limit: Option<i32>,
    /// How long until the next heartbeat, and from each to the next; the binding's lease if not said.
    #[schema(minimum = 1, maximum = 604_800)]
    pub lease_seconds: Option<i32>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimedJobs {
    pub items: Vec<ClaimedJob>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimedJob {
    /// To be shown by whatever is done with the job.
    pub claim_id: Uuid,
    /// Not heard of until then, the worker has lost it.
    pub lease_until: Timestamp,
    pub job: Job,
}

/// `POST /api/v1/projection/{id}/heartbeat`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeepJob {
    pub claim_id: Uuid,
    /// How long until the next heartbeat, this once; the claim's lease if not said.
    #[schema(minimum = 1, maximum = 604_800)]
    pub lease_seconds: Option<i32>,
    /// What runs it, once that is known.
    #[schema(max_length = 500)]
    pub workflow_id: Option<String>,
    #[schema(max_length = 500)]
    pub workflow_run_id: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeptJob {
    pub lease_until: Timestamp,
}

/// `POST /api/v1/projection/{id}/complete`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CompleteJob {
    pub claim_id: Uuid,
    /// `{}` if not said.
    #[schema(value_type = Option<Object>)]
    pub result: Option<Value>,
}

/// `POST /api/v1/projection/{id}/fail`
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
