//! The waits of executions, their answers, and tokens with which a person without a key answers. A token is shown once,
//! in the response that creates it.

use std::fmt;

use jiff::Timestamp;
use kernel::ids::ExecutionId;
use kernel::wait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

/// A wait of an execution: a node that waits, or waited, for an answer or an event.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Wait {
    pub execution_id: ExecutionId,
    pub node: String,
    /// The iteration of a loop, from 1; 0 if the node is not a loop.
    pub iteration: i32,
    /// `OPEN`: the wait accepts an answer. `ANSWERED`: it has an answer, and the run has not read it yet. An answer
    /// that came before the node began is kept.
    pub status: wait::Status,
    /// The type of the domain event that answers the wait. Absent: a person or a program answers it.
    pub event_type: Option<String>,
    /// The expression that must be true of the event.
    #[serde(rename = "match")]
    pub matches: Option<String>,
    /// The configuration of the node, with its templates resolved. Its `data` declares the fields of an answer.
    pub input: Option<Value>,
    pub opened_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    /// Who answered: a key, `token` or `event`.
    pub answered_by: Option<String>,
    pub answered_at: Option<Timestamp>,
}

/// `POST /api/v1/workflow/executions/{id}/waits/{node}/answer`
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AnswerWait {
    /// The fields that the `data` of the node declares.
    pub data: Option<Value>,
    /// The iteration of a loop, from 1. Default: 0, a node that is not a loop.
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
    /// True: the node has not begun yet. The answer is kept for it.
    pub early: bool,
}

/// `POST /api/v1/workflow/executions/{id}/waits/{node}/token`
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateWaitToken {
    /// The iteration of a loop, from 1. Default: 0, a node that is not a loop.
    #[schema(minimum = 0, maximum = 10_000)]
    pub iteration: Option<i32>,
    /// How long the token works. Default: as long as the execution may last.
    #[schema(minimum = 1, example = 172_800)]
    pub expires_in_seconds: Option<u64>,
}

/// A token that answers one wait, once, without a key.
#[skip_serializing_none]
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreatedWaitToken {
    /// The token. Only this response shows it: the service stores a hash.
    pub token: String,
    /// The path to POST `{"data": …}` to, on the address of this service.
    pub path: String,
    /// The full address. Present if `http.public_url` is set.
    pub url: Option<String>,
    pub expires_at: Timestamp,
}

impl fmt::Debug for CreatedWaitToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreatedWaitToken").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}

/// `GET /answers/{token}`: the wait that the token answers.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitToken {
    pub workflow: Option<String>,
    pub node: String,
    /// Whether the wait accepts an answer now. An answer that comes before the node begins is kept for it.
    pub open: bool,
    /// Whether the token was already used. A token works once.
    pub used: bool,
    /// The fields that an answer must have, by name.
    #[schema(value_type = Option<Object>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// The last time at which an answer is accepted.
    pub expires_at: Timestamp,
}

/// `POST /answers/{token}`
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AnswerByToken {
    /// The fields that `GET /answers/{token}` lists under `data`.
    pub data: Option<Value>,
}

/// An answer by token that was accepted.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnsweredByToken {
    pub accepted: bool,
}
