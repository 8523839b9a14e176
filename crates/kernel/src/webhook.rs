//! Webhooks out: how the end of an execution is told, signed, tried again and given up.
//!
//!     PENDING ──claim──▶ SENDING ──deliver──▶ DELIVERED
//!        ▲                │    └────fail────▶ FAILED
//!        ├─────later──────┘                     │
//!        └───────────────retry──────────────────┘   (by hand; also of what was delivered)
//!
//! Invariants
//! - Every attempt at a delivery has the same id and the same body; the time and so the signature differ.
//! - A sender that dies is no failure: what it was sending is claimed again.
//! - A wait is never shorter than the receiver asked for, and none leads past the day that a delivery is tried for.
//!
//! Not here: what comes in (`webhook::hook`), making secrets and sending (`server::webhook`).

pub mod hook;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::execution;
use crate::ids::{DefinitionId, ExecutionId, WorkspaceId};
use crate::run::failure::Class;

/// For so long a delivery is tried.
pub const TRIED_FOR: Duration = Duration::from_secs(24 * 60 * 60);
/// A webhook of which nothing was taken for so long is turned off.
pub const FAILING_FOR: Duration = Duration::from_secs(5 * 24 * 60 * 60);
/// An output or error that is longer, as JSON, is left out of the message.
pub const MAX_PART_BYTES: usize = 64 << 10;
/// The longest URL.
pub const MAX_URL_LEN: usize = 2_048;
/// What a signing secret begins with.
pub const SECRET_PREFIX: &str = "whsec_";
/// The ends that can be asked for.
pub const ENDS: [execution::Status; 4] =
    [execution::Status::Completed, execution::Status::Failed, execution::Status::Canceled, execution::Status::TimedOut];
/// How long to wait after each failed attempt, in seconds; the last for all that follow.
const WAITS_S: [u64; 8] = [5, 30, 120, 600, 1_800, 3_600, 7_200, 14_400];

/// How a delivery stands, as stored and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = DeliveryStatus))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    Pending,
    Sending,
    Delivered,
    Failed,
}

/// What may happen to a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Also of one whose sender died.
    Claim,
    Deliver,
    /// It is to be tried again.
    Later,
    Fail,
    /// Somebody wants it sent again, now.
    Retry,
}

/// A step that a status does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a {from:?} delivery cannot {step:?}")]
pub struct Illegal {
    pub from: Status,
    pub step: Step,
}

impl Status {
    pub const ALL: [Status; 4] = [Status::Pending, Status::Sending, Status::Delivered, Status::Failed];

    /// The name as stored and shown.
    pub fn name(self) -> &'static str {
        match self {
            Status::Pending => "PENDING",
            Status::Sending => "SENDING",
            Status::Delivered => "DELIVERED",
            Status::Failed => "FAILED",
        }
    }

    pub fn parse(text: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.name() == text)
    }

    /// The whole life of a delivery. What is not listed is illegal.
    pub fn after(self, step: Step) -> Result<Status, Illegal> {
        use {Status::*, Step::*};
        Ok(match (self, step) {
            (Pending | Sending, Claim) => Sending,
            (Sending, Deliver) => Delivered,
            (Sending, Later) => Pending,
            (Sending, Fail) => Failed,
            (Pending | Delivered | Failed, Retry) => Pending,
            (from, step) => return Err(Illegal { from, step }),
        })
    }
}

impl Step {
    pub const ALL: [Step; 5] = [Step::Claim, Step::Deliver, Step::Later, Step::Fail, Step::Retry];
}

/// What an attempt came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The receiver answered, and perhaps asked to wait.
    Status { status: u16, wait: Option<Duration> },
    /// There was no answer to take.
    None(Class),
}

/// What follows from an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Delivered,
    /// Again, after so long.
    Later(Duration),
    /// Never again.
    Failed,
    /// Never again, and nothing else of this webhook either: the receiver says that it is gone.
    Gone,
}

/// Judges an attempt, the `attempt`th from 1, at a delivery that is tried since `age`.
pub fn judge(answer: Answer, delivery: Uuid, attempt: u32, age: Duration) -> Verdict {
    let asked = match answer {
        Answer::Status { status: 200..=299, .. } => return Verdict::Delivered,
        Answer::Status { status: 410, .. } => return Verdict::Gone,
        Answer::Status { wait, .. } => wait.unwrap_or_default(),
        // It would be refused again.
        Answer::None(Class::SecurityError | Class::ValidationError) => return Verdict::Failed,
        Answer::None(_) => Duration::ZERO,
    };
    let wait = wait_after(delivery, attempt).max(asked);
    if age.saturating_add(wait) > TRIED_FOR { Verdict::Failed } else { Verdict::Later(wait) }
}

/// The wait of the table, spread over its upper half by a hash of delivery and attempt.
fn wait_after(delivery: Uuid, attempt: u32) -> Duration {
    let place = usize::try_from(attempt.saturating_sub(1)).unwrap_or(usize::MAX).min(WAITS_S.len() - 1);
    let full = WAITS_S[place] * 1_000;
    let mut hash = Sha256::new();
    hash.update(delivery.as_bytes());
    hash.update(attempt.to_be_bytes());
    let spread = hash.finalize().iter().take(8).fold(0_u64, |all, byte| (all << 8) | u64::from(*byte));
    Duration::from_millis(full / 2 + spread % (full / 2 + 1))
}

/// Is a webhook to be turned off of which nothing was taken for so long?
pub fn gives_up(failing: Duration) -> bool {
    failing >= FAILING_FOR
}

/// An execution that ended, as it is told of.
#[derive(Clone, Debug)]
pub struct Ended {
    pub execution: ExecutionId,
    pub workspace: WorkspaceId,
    pub definition: DefinitionId,
    pub workflow_name: String,
    pub status: execution::Status,
    /// None if there is none, or if it is too long to be told.
    pub output: Option<Value>,
    pub error: Option<Value>,
    /// Something was too long.
    pub cut: bool,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub completed_at: Timestamp,
    pub duration_ms: Option<i64>,
}

/// The body of a message, the same at each attempt.
pub fn message(ended: &Ended) -> String {
    let end = ended.status.name().to_ascii_lowercase();
    json!({
        "type": format!("execution.{end}"),
        "timestamp": ended.completed_at,
        "data": {
            "executionId": ended.execution,
            "workspaceId": ended.workspace,
            "workflowDefinitionId": ended.definition,
            "workflowName": ended.workflow_name,
            "status": ended.status,
            "output": ended.output,
            "error": ended.error,
            "truncated": ended.cut,
            "url": format!("/api/v1/workflow/executions/{}", ended.execution),
            "createdAt": ended.created_at,
            "startedAt": ended.started_at,
            "completedAt": ended.completed_at,
            "durationMs": ended.duration_ms,
        },
    })
    .to_string()
}

/// The `webhook-signature` of a message: one signature for each secret, as long as two are good. A secret that is none
/// signs nothing.
pub fn signatures<'s>(
    secrets: impl IntoIterator<Item = &'s str>,
    delivery: Uuid,
    timestamp: i64,
    body: &str,
) -> String {
    let signed = |secret: &str| {
        let key = STANDARD.decode(secret.strip_prefix(SECRET_PREFIX)?).ok()?;
        let mut mac = Hmac::<Sha256>::new_from_slice(&key).ok()?;
        mac.update(format!("{delivery}.{timestamp}.").as_bytes());
        mac.update(body.as_bytes());
        Some(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
    };
    secrets.into_iter().filter_map(signed).collect::<Vec<_>>().join(" ")
}

/// A signing secret of these random bytes, as people are shown it.
pub fn secret(random: &[u8; 32]) -> String {
    format!("{SECRET_PREFIX}{}", STANDARD.encode(random))
}

#[cfg(test)]
mod tests;
