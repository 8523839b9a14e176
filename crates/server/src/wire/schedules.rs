//! Schedules and their ticks.

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
        /// Required with a root key. With a workspace key: optional, and only its own workspace.
        pub workspace_id: Option<WorkspaceId>,
        pub workflow_definition_id: DefinitionId,
    }

    /// `PATCH /api/v1/schedules/{id}`: an omitted field keeps its value; `null` resets it to its default. `runAt`
    /// replaces `cron`, `timezone` and `overlap`; `cron` replaces `runAt`.
    change ChangeSchedule of ScheduleFields {
        /// A cron expression: minute, hour, day, month, weekday. A sixth field at the front is the second.
        #[schema(min_length = 1, max_length = 200)]
        pub cron: Option<String>,
        /// The time zone of `cron`, from the IANA database. Default: `UTC`.
        pub timezone: Option<String>,
        /// The time of a single start, in place of `cron`.
        pub run_at: Option<Timestamp>,
        /// The input of each execution. Default: none.
        pub input: Option<Value>,
        /// The priority of each execution. Default: 3.
        pub priority: Option<Priority>,
        /// The concurrency key of each execution. Default: none.
        #[schema(min_length = 1, max_length = 200)]
        pub concurrency_key: Option<String>,
        /// What a tick does while an execution that the schedule started has not ended. Default: `skip`.
        pub overlap: Option<Overlap>,
        /// Which missed ticks are run. Default: `last`.
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
    /// True: the `on: schedule` of a workflow created it. It changes with the workflow only.
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
    /// Why the schedule ended.
    pub reason: Option<String>,
    /// The next tick. While the schedule is paused: the first missed tick.
    pub next_at: Option<Timestamp>,
    /// The tick that waits for an earlier execution to end.
    pub buffered_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A tick, and its result.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tick {
    /// When the tick was due.
    pub at: Timestamp,
    /// True: somebody ran the schedule by hand.
    pub manual: bool,
    pub status: TickStatus,
    /// Why the tick started nothing.
    pub reason: Option<String>,
    pub execution_id: Option<ExecutionId>,
    pub decided_at: Timestamp,
}

/// The next times of a cron expression.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NextTicks {
    pub items: Vec<Timestamp>,
}
