//! Schedules and their ticks, as they cross the wire.

use jiff::Timestamp;
use kernel::ids::{DefinitionId, ExecutionId, WorkspaceId};
use kernel::queue::Priority;
use kernel::schedule::{CatchUp, Overlap, Status, TickStatus};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

/// `POST /api/v1/schedules`: `cron`, or `runAt` for a single time.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateSchedule {
    /// Optional with a workspace key, and must be its own; required with the root key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    pub workflow_definition_id: DefinitionId,
    /// minute hour day month weekday, with seconds before them if there are six.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub cron: Option<String>,
    /// Of the IANA database; UTC if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// Once, then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub concurrency_key: Option<String>,
    /// What a tick does while an execution that the schedule started has not ended; `skip` if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Overlap>,
    /// Which ticks that were missed are run; `last` if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up: Option<CatchUp>,
}

/// `PUT /api/v1/schedules/{id}`: what is absent goes back to what holds if it is not said.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChangeSchedule {
    /// minute hour day month weekday, with seconds before them if there are six.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub cron: Option<String>,
    /// Of the IANA database; UTC if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// Once, then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub concurrency_key: Option<String>,
    /// What a tick does while an execution that the schedule started has not ended; `skip` if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Overlap>,
    /// Which ticks that were missed are run; `last` if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up: Option<CatchUp>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Schedule {
    pub id: Uuid,
    pub workspace_id: WorkspaceId,
    pub workflow_definition_id: DefinitionId,
    pub workflow_name: String,
    /// Made by the definition's `on: schedule`: it changes with the definition.
    pub by_definition: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    pub priority: Priority,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency_key: Option<String>,
    pub overlap: Overlap,
    pub catch_up: CatchUp,
    pub status: Status,
    /// Why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The next tick. While it is paused, the first that was missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// A tick that waits for the end of an execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffered_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// What became of a tick.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tick {
    pub at: Timestamp,
    /// Triggered by hand.
    pub by_hand: bool,
    pub status: TickStatus,
    /// Why it did not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<ExecutionId>,
    pub decided_at: Timestamp,
}

/// When an expression comes.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NextTicks {
    pub items: Vec<Timestamp>,
}
