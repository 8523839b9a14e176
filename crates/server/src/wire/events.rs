//! Domain events, and the bindings that create jobs for them.

use jiff::Timestamp;
use kernel::ids::{DefinitionId, WorkspaceId};
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
    /// With a root key: the workspace of the events. Absent: they belong to no workspace, or to one that does not exist
    /// yet.
    pub workspace_id: Option<WorkspaceId>,
    /// The events, in order. Either all are appended or none.
    #[schema(min_items = 1, max_items = 1000)]
    pub events: Vec<NewEvent>,
}

/// An event to append.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewEvent {
    /// Your own id. The same id with the same content is appended once. Default: a new id.
    pub id: Option<Uuid>,
    /// The type of the event, such as `order.placed`.
    #[schema(min_length = 1, max_length = 200)]
    #[serde(rename = "type")]
    pub kind: String,
    /// The id of the stream: of the thing that the event happened to.
    pub stream_id: Uuid,
    /// The sort of thing that the stream is about, such as `order`.
    #[schema(min_length = 1, max_length = 200)]
    pub stream_type: String,
    /// The version that the stream must be at; 0 is a new stream. Default: any version.
    #[schema(minimum = 0)]
    pub expected_version: Option<i32>,
    /// What happened. Default: `{}`.
    #[schema(value_type = Option<Object>)]
    pub data: Option<Value>,
    /// Further data, such as `correlation_id` and `causation_id`. Default: `{}`.
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
    /// True: the event existed already, and nothing was appended.
    pub repeated: bool,
    /// False: no binding matches the type, so the event creates no job. Absent: unknown.
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
    /// False: no binding matched the type when the event was appended, so it created no job. Absent: unknown, or the
    /// event is a step of a job.
    pub bound: Option<bool>,
    /// Why the event has no job although a binding matches.
    pub processing_error: Option<String>,
    pub processing_failed_at: Option<Timestamp>,
}

create_and_change! {
    /// `POST /api/v1/bindings`
    create CreateBinding {
        /// With a root key: the workspace of the events. Default: the whole platform.
        pub workspace_id: Option<WorkspaceId>,
        /// The event type: an exact type, or a prefix such as `order.*`.
        #[schema(min_length = 1, max_length = 200)]
        pub event_type: String,
    }

    /// `PATCH /api/v1/bindings/{id}`: an omitted field keeps its value; `null` resets it to its default.
    change ChangeBinding of BindingFields {
        /// The workflow that runs the jobs. Default: none; external workers claim the jobs.
        pub workflow_definition_id: Option<DefinitionId>,
        /// An expression over `trigger.event`. A job for which it is not true is completed as skipped. Default: none.
        pub filter: Option<String>,
        /// The input of the execution, with templates. Default: `{event: …}`.
        #[schema(value_type = Option<Object>)]
        pub input: Option<Value>,
        /// The `workflow_id` of the jobs, such as `org-bootstrap-{subdomain}`. Default: `execution-{executionId}`.
        #[schema(max_length = 500)]
        pub workflow_id: Option<String>,
        /// How long an external worker keeps a job without a heartbeat. Default: 900.
        #[schema(minimum = 1, maximum = 604_800)]
        pub lease_seconds: Option<u32>,
    }
}

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Binding {
    pub id: Uuid,
    /// Absent: the binding applies to the whole platform.
    pub workspace_id: Option<WorkspaceId>,
    pub event_type: String,
    pub workflow_definition_id: Option<DefinitionId>,
    pub workflow_name: Option<String>,
    /// True: every service has this binding. It cannot be changed or deleted, and applies if no other binding matches.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub built_in: bool,
    /// True: the `on: event` of a workflow created it. It changes with the workflow only.
    pub by_definition: bool,
    pub filter: Option<String>,
    pub input: Option<Value>,
    pub workflow_id: Option<String>,
    pub lease_seconds: u32,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}
