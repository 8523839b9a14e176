//! What nodes ask of the world outside: waits and their answers, tokens, and tasks for workers. A token is shown once.

use std::fmt;

use jiff::Timestamp;
use kernel::ids::{ExecutionId, WorkspaceId};
use kernel::wait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;
use uuid::Uuid;

/// What an execution waits for, or waited for.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Wait {
    pub execution_id: ExecutionId,
    pub node: String,
    /// Of a loop, from 1; 0 if the node is none.
    pub iteration: i32,
    /// `OPEN`: it takes an answer. `ANSWERED`: it has one that the run has not seen yet, or that came before the node
    /// began.
    pub status: wait::Status,
    /// The type of the domain event that answers it; none: a person or a program does.
    pub event: Option<String>,
    /// What must hold of that event.
    #[serde(rename = "match")]
    pub matches: Option<String>,
    /// The node's configuration as it was resolved; what an answer must bring is its `data`.
    pub input: Option<Value>,
    pub opened_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    /// The key that answered, `token` or `event`.
    pub answered_by: Option<String>,
    pub answered_at: Option<Timestamp>,
}

/// `POST /api/v1/workflow/executions/{id}/answers/{node}`
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AnswerWait {
    /// What the node's `data` asks for.
    pub data: Option<Value>,
    /// Of a loop, from 1.
    #[schema(minimum = 0, maximum = 10_000)]
    pub iteration: Option<i32>,
}

/// An answer that was accepted.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnsweredWait {
    pub execution_id: ExecutionId,
    pub node: String,
    pub iteration: i32,
    /// The node has not begun: the answer waits for it.
    pub early: bool,
}

/// `POST /api/v1/workflow/executions/{id}/answers/{node}/token`
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MintToken {
    /// Of a loop, from 1.
    #[schema(minimum = 0, maximum = 10_000)]
    pub iteration: Option<i32>,
    /// How long it is good, such as `48h`; as long as the execution may last if not said.
    #[schema(example = "48h")]
    pub expires_in: Option<String>,
}

/// A token that answers one wait, once, without a key.
#[skip_serializing_none]
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MintedToken {
    /// Shown this once, and kept as a hash.
    pub token: String,
    /// Where to POST `{"data": …}`, on this service's own address.
    pub path: String,
    /// The same with `http.public_url` before it, if that is set.
    pub url: Option<String>,
    pub expires_at: Timestamp,
}

impl fmt::Debug for MintedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MintedToken").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}

/// `GET /answers/{token}`: what an answer there would answer.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Invitation {
    pub workflow: Option<String>,
    pub node: String,
    /// Does it take an answer now? One that comes before the node began is kept for it.
    pub open: bool,
    /// It was used: it takes no more.
    pub used: bool,
    /// What `data` must bring, by field.
    #[schema(value_type = Option<Object>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// Until when an answer is taken.
    pub expires_at: Timestamp,
}

/// `POST /answers/{token}`
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AnswerByToken {
    /// What the invitation asks for.
    pub data: Option<Value>,
}

/// That an answer by token was accepted.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Thanks {
    pub accepted: bool,
}

/// `POST /api/v1/tasks/claim`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClaimTasks {
    /// Which queues this worker serves.
    #[schema(min_items = 1, max_items = 100)]
    pub queues: Vec<String>,
    /// Whom the tasks name, such as `{hostname}-{pid}`.
    #[schema(min_length = 1, max_length = 200)]
    pub worker: String,
    /// How many at most; 1 if not said.
    #[schema(minimum = 1, maximum = 100)]
    pub max: Option<i32>,
    /// How long to wait for one if there is none, such as `30s`; a minute at most, not at all if not said.
    #[schema(example = "30s")]
    pub wait: Option<String>,
    /// How long until the next heartbeat, 1s to 1h; what the node says if not said.
    #[schema(example = "60s")]
    pub lease: Option<String>,
    /// With a root key: only this workspace's; of all, in turn, if not said.
    pub workspace_id: Option<WorkspaceId>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimedTasks {
    pub items: Vec<ClaimedTask>,
}

/// Work to be done.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimedTask {
    pub id: Uuid,
    /// To be shown by whatever is told of the task.
    pub claim_id: Uuid,
    pub queue: String,
    pub workspace_id: WorkspaceId,
    pub execution_id: ExecutionId,
    pub node: String,
    pub iteration: i32,
    /// Of the node, from 1.
    pub attempt: i32,
    /// How often this attempt was handed out, this time included.
    pub delivery: i32,
    /// What the node gives.
    pub input: Value,
    /// Not heard of until then, the worker has lost it.
    pub lease_until: Timestamp,
    pub lease_seconds: f64,
    /// Not ended until then, the attempt has failed.
    pub expires_at: Option<Timestamp>,
}

/// `POST /api/v1/tasks/{id}/heartbeat`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeepTask {
    pub claim_id: Uuid,
    /// How far it is, in any form.
    pub progress: Option<Value>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeptTask {
    pub lease_until: Timestamp,
    /// Somebody wants the execution to end: the work will not be needed.
    pub canceling: bool,
}

/// `POST /api/v1/tasks/{id}/complete`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CompleteTask {
    pub claim_id: Uuid,
    /// The node's output; null if not said.
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
    /// False: another attempt could not help. True if not said.
    pub retryable: Option<bool>,
}

/// A task as it stands.
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
    pub worker: Option<String>,
    pub lease_until: Option<Timestamp>,
    /// How often this attempt was handed out, and how often a worker was not heard of in time.
    pub deliveries: i32,
    pub lost: i32,
    pub progress: Option<Value>,
    pub output: Option<Value>,
    pub error: Option<Value>,
    pub opened_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
}
