//! The types of request and response bodies, which the server and the command line share.
//!
//! Invariants
//! - Names of fields are in camelCase. Unknown fields in requests are refused.
//! - Times are RFC 3339 in UTC. Durations are numbers, with their unit in the name of the field.
//! - Fields may be added, but never removed or renamed.
//!
//! Not here: workflow documents (`kernel::definition::parse` reads their JSON itself), errors (`http::problem`).

/// Declares the two request bodies of a resource: for creating and for changing it. The fields that both have are
/// written once. In a change, an omitted field keeps its value and `null` resets it to its default.
macro_rules! create_and_change {
    ($(#[$of_create:meta])* create $create:ident { $($own:tt)* } $(#[$of_change:meta])* change $change:ident
        of $fields:ident { $($(#[$of_field:meta])* pub $field:ident: Option<$type:ty>,)* }
    ) => {
        $(#[$of_create])*
        #[serde_with::skip_serializing_none]
        #[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub struct $create {
            $($own)*
            $($(#[$of_field])* pub $field: Option<$type>,)*
        }

        $(#[$of_change])*
        #[serde_with::skip_serializing_none]
        #[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub struct $change {
            $($(#[$of_field])* #[serde(default, with = "serde_with::rust::double_option")]
            pub $field: Option<Option<$type>>,)*
        }

        /// The values of the fields that a change may set. None: the default.
        #[derive(Clone, Debug, Default)]
        pub struct $fields {
            $(pub $field: Option<$type>,)*
        }

        impl From<$create> for $fields {
            fn from(created: $create) -> $fields {
                $fields { $($field: created.$field),* }
            }
        }

        impl $change {
            /// The fields after this change.
            pub fn apply(self, before: $fields) -> $fields {
                $fields { $($field: self.$field.unwrap_or(before.$field)),* }
            }
        }
    };
}

mod control;
mod definitions;
mod events;
mod expressions;
mod jobs;
mod keys;
mod lists;
mod logs;
mod outbound;
mod schedules;
mod secrets;
mod tasks;
mod tree;
mod triggers;
mod waits;
mod webhooks;

use jiff::Timestamp;
use kernel::definition::parse::Problem;
use kernel::ids::{DefinitionId, ExecutionId, QueueItemId, VersionId, WorkspaceId};
use kernel::queue::Priority;
use kernel::queue::explain::Waiting;
use kernel::run::node;
use kernel::{execution, queue};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::rust::double_option;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

pub use control::{
    BulkStartExecutions, BulkStartResult, BulkStartedExecutions, DeadLetter, NodeResolution, RerunExecution, RerunFrom,
    RerunVersion,
};
pub use definitions::{AppliedDefinition, Definition, PublishDefinition, SubmitDefinition, ValidatedDefinition};
pub use events::{
    AppendEvents, AppendedEvent, AppendedEvents, Binding, BindingFields, ChangeBinding, CreateBinding, DomainEvent,
    NewEvent,
};
pub use expressions::{EvaluateExpression, ExpressionValue};
pub use jobs::{ClaimJobs, ClaimedJob, ClaimedJobs, CompleteJob, FailJob, HeartbeatJob, Job, JobLease};
pub use kernel::draw::Drawing as Graph;
pub use keys::{ApiKey, CreateApiKey, CreatedApiKey};
pub use lists::{
    ActivityEntry, BoundedCount, Capacity, ExecutionListItem, NodeKinds, Page, VersionDiff, VersionDocument,
    VersionListItem, WaitingCounts,
};
pub use logs::{ExecutionLogs, LogLine, LogSource};
pub use outbound::OutboundRules;
pub use schedules::{ChangeSchedule, CreateSchedule, NextTicks, Schedule, ScheduleFields, Tick};
pub use secrets::{Secret, SecretValue, SetSecret};
pub use tasks::{ClaimTasks, ClaimedTask, ClaimedTasks, CompleteTask, FailTask, HeartbeatTask, Task, TaskLease};
pub use tree::{ExecutionTree, TreeExecution};
pub use triggers::{CreateTrigger, CreatedTrigger, Trigger};
pub use waits::{
    AnswerByToken, AnswerWait, AnsweredByToken, AnsweredWait, CreateWaitToken, CreatedWaitToken, Wait, WaitToken,
};
pub use webhooks::{ChangeWebhook, CreateWebhook, CreatedWebhook, Delivery, Rotate, Webhook};

/// `POST /api/v1/workspaces`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateWorkspace {
    #[schema(min_length = 1, max_length = 200)]
    pub name: String,
    /// `FREE`, `PRO` or `ENTERPRISE`. Default: `FREE`.
    pub tier: Option<String>,
    /// How many executions may run at once. Default: the limit of the tier.
    #[schema(minimum = 0, maximum = 100_000)]
    pub limit: Option<i32>,
    /// The share of the workspace in the turns of the queue, compared with other workspaces. Default: 1.
    #[schema(minimum = 1, maximum = 100)]
    pub weight: Option<i16>,
    /// How many executions may wait. Default: `queue.max_backlog`, else the limit of the tier.
    pub max_backlog: Option<i32>,
}

/// `PATCH /api/v1/workspaces/{id}`: an omitted field keeps its value; `null` resets it to its default.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChangeWorkspace {
    /// `FREE`, `PRO` or `ENTERPRISE`. Null: `FREE`.
    #[serde(default, with = "double_option")]
    pub tier: Option<Option<String>>,
    /// How many executions may run at once. Null: the limit of the tier.
    #[schema(value_type = Option<i32>, minimum = 0, maximum = 100_000)]
    #[serde(default, with = "double_option")]
    pub limit: Option<Option<i32>>,
    /// The share of the workspace in the turns of the queue, compared with other workspaces. Null: 1.
    #[schema(value_type = Option<i16>, minimum = 1, maximum = 100)]
    #[serde(default, with = "double_option")]
    pub weight: Option<Option<i16>>,
    /// How many executions may wait. Null: `queue.max_backlog`, else the limit of the tier.
    #[serde(default, with = "double_option")]
    pub max_backlog: Option<Option<i32>>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workspace {
    pub id: WorkspaceId,
    pub name: String,
    pub tier: String,
    /// How many executions may run at once: `limitOverride`, else the limit of the tier.
    pub limit: i32,
    pub limit_override: Option<i32>,
    pub weight: i16,
    /// How many executions may wait. Null: `queue.max_backlog`, else the limit of the tier.
    #[serde(default)]
    pub max_backlog: Option<i32>,
    pub paused: bool,
    /// How many executions hold a slot now.
    pub running: i32,
    /// How many executions are ready to start, counted up to 1,000. 1,001 means more than that.
    pub ready: i32,
    pub created_at: Timestamp,
}

/// `POST /api/v1/workflow/executions/start`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StartExecution {
    pub workflow_definition_id: DefinitionId,
    /// Required with a root key. With a workspace key: optional, and only its own workspace.
    pub workspace_id: Option<WorkspaceId>,
    /// The input, as the workflow declares it under `inputs`.
    pub input: Option<Value>,
    /// 1 is first, 5 is last. Default: 3.
    pub priority: Option<Priority>,
    /// The earliest time at which the execution starts. Default: now.
    pub run_at: Option<Timestamp>,
    /// Executions of the workflow with the same key take turns. Default: no key.
    #[schema(min_length = 1, max_length = 200)]
    pub concurrency_key: Option<String>,
}

/// The execution of an accepted start request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartedExecution {
    pub queue_id: QueueItemId,
    pub execution_id: ExecutionId,
    /// `PENDING`. For a repeated request: the current status of the execution that the first request started.
    pub status: execution::Status,
    /// True: a request with the same idempotency key started this execution before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}

/// The queue item of an execution.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueItem {
    pub queue_id: QueueItemId,
    pub execution_id: ExecutionId,
    pub workspace_id: WorkspaceId,
    pub workflow_definition_id: DefinitionId,
    /// `GONE`: the execution completed or was canceled, and the queue item was deleted.
    pub status: queue::Status,
    pub execution_status: execution::Status,
    /// Its position among the ready items of the workspace. 1 is next; 1001 means more than 1,000.
    pub position: Option<i32>,
    /// Why the execution waits. Absent: the execution runs or has ended.
    pub waiting: Option<WaitingReason>,
    pub priority: i16,
    /// How often the engine refused to start the execution.
    pub attempts: u32,
    pub last_error: Option<String>,
    pub created_at: Timestamp,
    pub claimed_at: Option<Timestamp>,
    pub dispatched_at: Option<Timestamp>,
}

/// Why an execution waits: a code with its figures, and the same in a sentence.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WaitingReason {
    #[serde(flatten)]
    pub reason: Waiting,
    pub message: String,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Execution {
    pub id: ExecutionId,
    pub queue_id: QueueItemId,
    pub workspace_id: WorkspaceId,
    pub workflow_definition_id: DefinitionId,
    pub workflow_name: Option<String>,
    pub version_id: VersionId,
    pub version: Option<i32>,
    pub status: execution::Status,
    pub engine: Option<String>,
    pub trigger: Value,
    pub input: Option<Value>,
    pub output: Option<Value>,
    /// Why it failed: `{type, message, node?, status?, attempts?}`. `attempts` lists the failed attempts at the node:
    /// `[{attempt, at, error}]`.
    pub error: Option<Value>,
    pub priority: i16,
    pub concurrency_key: Option<String>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    pub duration_ms: Option<i64>,
    pub deadline_at: Timestamp,
    /// When a caller requested that the execution ends.
    pub cancel_requested_at: Option<Timestamp>,
    /// The execution that this execution reruns.
    pub rerun_of_execution_id: Option<ExecutionId>,
    /// The execution whose node created this execution. Absent: this execution is a root.
    pub parent_execution_id: Option<ExecutionId>,
    /// The root of the tree. A child runs in the slot of its root.
    pub root_execution_id: Option<ExecutionId>,
    /// The node of the parent that created this execution.
    pub parent_node: Option<String>,
    /// The iteration of that node, from 1; 0 if it is not a loop.
    pub parent_iteration: Option<i32>,
}

/// A node of an execution, or an iteration of a loop.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionNode {
    pub node: String,
    pub kind: String,
    /// The iteration of a loop, from 1; 0 if the node is not a loop.
    pub iteration: i32,
    pub status: node::Status,
    /// The current attempt, from 1.
    pub attempt: i32,
    /// The label of the edges that the execution took after this node.
    pub label: Option<String>,
    pub input: Option<Value>,
    pub output: Option<Value>,
    pub error: Option<Value>,
    /// The last ten failed attempts before this one: `[{attempt, at, error}]`.
    pub earlier_attempts: Option<Value>,
    /// When the node continues by itself: the end of a delay, or the next attempt.
    pub next_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    pub duration_ms: Option<i64>,
    /// The execution in which the node ended. Present if this execution is a rerun that kept the result of the node.
    pub kept_from_execution_id: Option<ExecutionId>,
}

/// `GET /api/v1/workflow/executions/{id}/nodes`: every node of the graph, or the iterations of a loop. Nodes that have
/// not begun come last, as PENDING.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionNodes {
    pub items: Vec<ExecutionNode>,
    /// Send it as `?cursor=` to get the next page. Absent: this is the last page. Small nodes come in one page.
    pub next_cursor: Option<String>,
}

/// `GET /api/v1/workflow/executions/{id}/summary`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionSummary {
    pub id: ExecutionId,
    pub status: execution::Status,
    pub phase: kernel::run::Phase,
    pub duration_ms: Option<i64>,
    pub total_nodes: usize,
    /// How many nodes are in each status, by status name.
    pub nodes: std::collections::BTreeMap<String, usize>,
    pub error: Option<Value>,
}

/// An execution that was canceled or terminated: `POST /api/v1/workflow/executions/{id}/cancel` and `…/terminate`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CanceledExecution {
    pub execution_id: ExecutionId,
    /// `CANCELED` if it was waiting, `RUNNING` while its nodes are being stopped, else the final status.
    pub status: execution::Status,
}

/// `GET /readyz`
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Readiness {
    pub ready: bool,
    /// The result of each check, by name: `ok`, or what is wrong.
    pub checks: std::collections::BTreeMap<String, String>,
}

/// A problem document (RFC 9457), with a stable code. If parts of the request can be named, it lists every problem.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProblemBody {
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    pub code: String,
    pub detail: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
}
