//! Schedules and their ticks, as they cross the wire.

use jiff::Timestamp;
use kernel::ids::{DefinitionId, ExecutionId, WorkspaceId};
use kernel::queue::Priority;
use kernel::schedule::{CatchUp, Overlap, Status, TickStatus};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;
use uuid::Uuid;

create_and_change! {
    /// `POST /api/v1/schedules`: `cron`, or `runAt` for a single time.
    create CreateSchedule {
        /// Optional with a workspace key, and must be its own; required with the root key.
        pub workspace_id: Option<WorkspaceId>,
        pub workflow_definition_id: DefinitionId,
    }

    /// `PUT /api/v1/schedules/{id}`: what is absent goes back to what holds if it is not said.
    change ChangeSchedule {
        /// minute hour day month weekday, with seconds before them if there are six.
        #[schema(min_length = 1, max_length = 200)]
        pub cron: Option<String>,
        /// Of the IANA database; UTC if not said.
        pub timezone: Option<String>,
        /// Once, then.
        pub run_at: Option<Timestamp>,
        pub input: Option<Value>,
        pub priority: Option<Priority>,
        #[schema(min_length = 1, max_length = 200)]
        pub concurrency_key: Option<String>,
        /// What a tick does while an execution that the schedule started has not ended; `skip` if not said.
        pub overlap: Option<Overlap>,
        /// Which ticks that were missed are run; `last` if not said.
        pub catch_up: Option<CatchUp>,
    }
}

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Schedule {
    pub id: Uuid,
    pub workspace_id: WorkspaceId,
    pub workflow_definition_id: DefinitionId,
    pub workflow_name: String,
    /// Made by the definition's `on: schedule`: it changes with the definition.
    pub by_definition: bool,
    pub cron: Option<String>,
    pub timezone: Option<String>,
    pub run_at: Option<Timestamp>,
    pub input: Option<Value>,
    pub priority: Priority,
    pub concurrency_key: Option<String>,
    pub overlap: Overlap,
    pub catch_up: CatchUp,
    pub status: Status,
    /// Why it ended.
    pub reason: Option<String>,
    /// The next tick. While it is paused, the first that was missed.
    pub next_at: Option<Timestamp>,
    /// A tick that waits for the end of an execution.
    pub buffered_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// What became of a tick.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tick {
    pub at: Timestamp,
    /// Triggered by hand.
    pub by_hand: bool,
    pub status: TickStatus,
    /// Why it did not start.
    pub reason: Option<String>,
    pub execution_id: Option<ExecutionId>,
    pub decided_at: Timestamp,
}

/// When an expression comes.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NextTicks {
    pub items: Vec<Timestamp>,
}
