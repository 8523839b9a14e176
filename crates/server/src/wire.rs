//! What crosses the wire, for server and clients alike.
//!
//! Invariants
//! - JSON in camelCase; unknown fields in requests are refused; times are RFC 3339 in UTC.
//! - Fields are only ever added.
//!
//! Not here: graph documents (`kernel::definition::parse` reads them as they are), errors (`problem`).

/// The bodies that create something and that change it: what both say is written once, behind what only the first says.
macro_rules! create_and_change {
    ($(#[$of_create:meta])* create $create:ident { $($own:tt)* } $(#[$of_change:meta])* change $change:ident {
        $($(#[$of_field:meta])* pub $field:ident: $type:ty,)*
    }) => {
        $(#[$of_create])*
        #[serde_with::skip_serializing_none]
        #[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub struct $create {
            $($own)*
            $($(#[$of_field])* pub $field: $type,)*
        }

        $(#[$of_change])*
        #[serde_with::skip_serializing_none]
        #[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub struct $change {
            $($(#[$of_field])* pub $field: $type,)*
        }

        impl From<$create> for $change {
            fn from(created: $create) -> $change {
                $change { $($field: created.$field),* }
            }
        }
    };
}

mod asks;
mod control;
mod events;
mod keys;
mod lists;
mod looks;
mod outbound;
mod schedules;
mod secrets;
mod tree;
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

pub use asks::{
    AnswerByToken, AnswerWait, AnsweredWait, ClaimTasks, ClaimedTask, ClaimedTasks, CompleteTask, FailTask, Invitation,
    KeepTask, KeptTask, MintToken, MintedToken, Task, Thanks, Wait,
};
pub use events::{
    AppendEvents, AppendedEvent, AppendedEvents, Binding, ChangeBinding, ClaimJobs, ClaimedJob, ClaimedJobs,
    CompleteJob, CreateBinding, DomainEvent, FailJob, Job, KeepJob, KeptJob, NewEvent,
};
pub use kernel::draw::Drawing as Graph;
pub use keys::{CreateKey, CreatedKey, Key};
pub use lists::{Activity, Capacity, Count, Diff, Kinds, ListedExecution, Page, Version, WaitingCounts, WholeVersion};

pub use looks::{Evaluate, Evaluated, LogLine, LogSource, Logs};
pub use outbound::OutboundRules;
pub use schedules::{ChangeSchedule, CreateSchedule, NextTicks, Schedule, Tick};
pub use secrets::{Hidden, Secret, SetSecret};
pub use tree::{Tree, TreeItem};
pub use webhooks::{
    ChangeWebhook, CreateHook, CreateWebhook, CreatedHook, CreatedWebhook, Delivery, Hook, Rotate, Webhook,
};

pub use control::{BulkItem, BulkStart, BulkStarted, DeadLetter, Rerun, RerunFrom, RerunResolve, RerunVersion};

/// `POST /api/v1/workspaces`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateWorkspace {
    #[schema(min_length = 1, max_length = 200)]
    pub name: String,
    /// FREE, PRO or ENTERPRISE; FREE if not said.
    pub tier: Option<String>,
    /// How many executions may run at once, instead of what the tier says.
    #[schema(minimum = 0, maximum = 100_000)]
    pub limit: Option<i32>,
    /// Its share of turns beside other workspaces, 1 to 100.
    #[schema(minimum = 1, maximum = 100)]
    pub weight: Option<i16>,
    /// The most executions that may wait, instead of what the service allows.
    pub max_backlog: Option<i32>,
}

/// `PATCH /api/v1/workspaces/{id}`: what is absent stays as it is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChangeWorkspace {
    pub tier: Option<String>,
    /// A number overrides the tier's limit; null goes back to it.
    #[schema(value_type = Option<i32>, minimum = 0, maximum = 100_000)]
    #[serde(default, with = "double_option")]
    pub limit: Option<Option<i32>>,
    #[schema(minimum = 1, maximum = 100)]
    pub weight: Option<i16>,
    /// A number bounds what may wait; null goes back to what the service allows.
    #[serde(default, with = "double_option")]
    pub max_backlog: Option<Option<i32>>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workspace {
    pub id: WorkspaceId,
    pub name: String,
    pub tier: String,
    /// How many executions may run at once, from the tier or its override.
    pub limit: i32,
    pub limit_override: Option<i32>,
    pub weight: i16,
    /// The most executions that may wait; null for what the service allows.
    #[serde(default)]
    pub max_backlog: Option<i32>,
    pub paused: bool,
    /// Executions that hold a slot now.
    pub running: i32,
    /// Executions ready to start, counted to 1,000; one more means more.
    pub ready: i32,
    pub created_at: Timestamp,
}

/// `POST /api/v1/workflow/definitions`, `…/validate`, `…/apply` and `…/{id}/versions`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SubmitDefinition {
    /// The graph document, in either form. Without it, `source` is read.
    pub document: Option<Value>,
    /// The name, if the document has none.
    pub name: Option<String>,
    /// The text, YAML or JSON, kept for people. Alone it is read here, and problems have their line and column;
    /// beside a `document` it is not looked at.
    pub source: Option<String>,
    /// Required with the root key.
    pub workspace_id: Option<WorkspaceId>,
}

/// `POST /api/v1/workflow/definitions/{id}/publish`
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Publish {}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Validated {
    pub valid: bool,
    pub nodes: usize,
    pub edges: usize,
    pub content_hash: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Definition {
    pub id: DefinitionId,
    pub workspace_id: WorkspaceId,
    pub name: String,
    /// DRAFT, ACTIVE or PAUSED.
    pub status: String,
    pub published_version: Option<i32>,
    pub published_version_id: Option<VersionId>,
    pub concurrency: Option<i32>,
    pub key_concurrency: i32,
    pub max_attempts: i32,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A version that was stored, or was there already with the same content.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Applied {
    pub definition: Definition,
    pub version: i32,
    pub version_id: VersionId,
    /// The content was the latest version's already.
    pub unchanged: bool,
}

/// `POST /api/v1/workflow/executions/start`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StartExecution {
    pub workflow_definition_id: DefinitionId,
    /// Optional with a workspace key, and must be its own; required with the root key.
    pub workspace_id: Option<WorkspaceId>,
    pub input: Option<Value>,
    pub priority: Option<Priority>,
    /// Not before this time.
    pub run_at: Option<Timestamp>,
    #[schema(min_length = 1, max_length = 200)]
    pub concurrency_key: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Started {
    pub queue_id: QueueItemId,
    pub execution_id: ExecutionId,
    /// PENDING, or how a repeated request's execution stands.
    pub status: execution::Status,
    /// It was there already: the same request with the same idempotency key came before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueItem {
    pub queue_id: QueueItemId,
    pub execution_id: ExecutionId,
    pub workspace_id: WorkspaceId,
    pub workflow_definition_id: DefinitionId,
    /// GONE once the execution completed or was canceled.
    pub status: queue::Status,
    pub execution_status: execution::Status,
    /// Its place among the workspace's ready items: 1 is next, 1001 means more than 1,000.
    pub position: Option<i32>,
    /// Why it is not running; absent once it runs or has ended.
    pub waiting: Option<WaitingReason>,
    pub priority: i16,
    pub attempts: u32,
    pub last_error: Option<String>,
    pub created_at: Timestamp,
    pub claimed_at: Option<Timestamp>,
    pub dispatched_at: Option<Timestamp>,
}

/// Why an item waits: a code with its figures, and the same as a sentence.
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
    /// `{type, message, node?, status?, attempts?}` of what failed it; `attempts` are those at the node:
    /// `[{attempt, at, error}]`.
    pub error: Option<Value>,
    pub priority: i16,
    pub concurrency_key: Option<String>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    pub duration_ms: Option<i64>,
    pub deadline_at: Timestamp,
    /// Somebody asked it to end.
    pub cancel_requested_at: Option<Timestamp>,
    /// The execution that this one repeats.
    pub rerun_of: Option<ExecutionId>,
    /// The execution whose node made this one; absent of a root.
    pub parent_execution_id: Option<ExecutionId>,
    /// The execution at the top, in whose slot a child runs.
    pub root_execution_id: Option<ExecutionId>,
    pub parent_node: Option<String>,
    /// The iteration of that node, if it is a loop's; otherwise 0.
    pub parent_iteration: Option<i32>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    pub node: String,
    pub kind: String,
    pub iteration: i32,
    pub status: node::Status,
    pub attempt: i32,
    /// The branch it took.
    pub label: Option<String>,
    pub input: Option<Value>,
    pub output: Option<Value>,
    pub error: Option<Value>,
    /// Failed attempts before this one: `[{attempt, at, error}]`, the last ten.
    pub earlier: Option<Value>,
    /// When it goes on by itself: the end of a delay, the next attempt.
    pub next_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    pub duration_ms: Option<i64>,
    /// The execution in which it came to this end: a rerun kept it.
    pub kept_from: Option<ExecutionId>,
}

/// `GET /api/v1/workflow/executions/{id}/nodes`: every node of the graph, those not begun as PENDING, last; or the
/// iterations of a loop.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Nodes {
    pub items: Vec<Node>,
    /// Give it as `?cursor=` for the next page; absent on the last. Nodes come in one page unless they are large.
    pub next_cursor: Option<String>,
}

/// `GET /api/v1/workflow/executions/{id}/summary`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    pub id: ExecutionId,
    pub status: execution::Status,
    pub phase: kernel::run::Phase,
    pub duration_ms: Option<i64>,
    pub total_nodes: usize,
    /// How many nodes are in each status, by status name.
    pub nodes: std::collections::BTreeMap<String, usize>,
    pub error: Option<Value>,
}

/// `POST /api/v1/workflow/executions/{id}/cancel` and `…/terminate`
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Canceled {
    pub execution_id: ExecutionId,
    /// CANCELED if it was waiting; RUNNING while its nodes are being stopped; otherwise how it had ended.
    pub status: execution::Status,
}

/// `GET /readyz`
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Readiness {
    pub ready: bool,
    pub checks: std::collections::BTreeMap<String, String>,
}

/// An error as RFC 9457 says, with a stable code and, for documents, every problem.
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
