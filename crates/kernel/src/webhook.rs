//! Webhooks: the message about the end of an execution, its signature, its retries, and when the sender gives up.
//!
//!     PENDING ──claim──▶ SENDING ──deliver──▶ DELIVERED
//!        ▲                │    └────fail────▶ FAILED
//!        ├────requeue─────┘                     │
//!        └───────────────retry──────────────────┘   (manual; also after DELIVERED)
//!
//! Invariants
//! - Every attempt at a delivery has the same id and body; the timestamp and therefore the signature differ.
//! - The death of a sender is not a failure: the delivery is claimed again.
//! - A retry is never sent earlier than the receiver asked for, nor later than `TRIED_FOR` after the first attempt.
//!
//! Not here: incoming requests that start workflows (`trigger`), making secrets (`server::http::webhooks`), sending
//! (`server::webhook`).

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
use crate::names::names;
use crate::run::failure::Class;

/// How long a delivery is retried.
pub const TRIED_FOR: Duration = Duration::from_secs(24 * 60 * 60);
/// A webhook without a successful delivery for this long is disabled.
pub const FAILING_FOR: Duration = Duration::from_secs(5 * 24 * 60 * 60);
/// The longest output or error in a message, as JSON; a longer one is omitted.
pub const MAX_PART_BYTES: usize = 64 << 10;
/// The longest URL, in bytes, and the longest description, in characters.
const MAX_URL_LEN: usize = 2_048;
const MAX_DESCRIPTION_LEN: usize = 500;
/// What a signing secret begins with.
pub const SECRET_PREFIX: &str = "whsec_";
/// The final statuses that a webhook can subscribe to.
pub const ENDS: [execution::Status; 4] =
    [execution::Status::Completed, execution::Status::Failed, execution::Status::Canceled, execution::Status::TimedOut];
/// How long to wait after each failed attempt, in seconds; the last value applies to all later attempts.
const WAITS_S: [u64; 8] = [5, 30, 120, 600, 1_800, 3_600, 7_200, 14_400];

/// Why a field of a webhook is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidWebhook {
    #[error("must begin with https:// or http://, without spaces, at most {MAX_URL_LEN} bytes")]
    Url,
    #[error("must be one or more of COMPLETED, FAILED, CANCELED, TIMED_OUT")]
    Events,
    #[error("must have at most {MAX_DESCRIPTION_LEN} characters")]
    Description,
}

/// Checks the form of a URL. Whether the outbound rules allow it is checked elsewhere.
pub fn check_url(url: &str) -> Result<(), InvalidWebhook> {
    let schemed = url.starts_with("https://") || url.starts_with("http://");
    let fine = schemed && url.len() <= MAX_URL_LEN && !url.contains(|c: char| c.is_whitespace() || c.is_control());
    if fine { Ok(()) } else { Err(InvalidWebhook::Url) }
}

pub fn check_events(events: &[execution::Status]) -> Result<(), InvalidWebhook> {
    let fine = !events.is_empty() && events.iter().all(|event| ENDS.contains(event));
    if fine { Ok(()) } else { Err(InvalidWebhook::Events) }
}

pub fn check_description(text: &str) -> Result<(), InvalidWebhook> {
    if text.chars().count() <= MAX_DESCRIPTION_LEN { Ok(()) } else { Err(InvalidWebhook::Description) }
}

names! {
    /// The status of a delivery, as stored and shown.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = DeliveryStatus))]
    #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
    pub enum Status { Pending = "PENDING", Sending = "SENDING", Delivered = "DELIVERED", Failed = "FAILED" }
}

names! {
    /// What may happen to a delivery.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Step {
        /// A process claims the delivery to send it, also if the previous sender died.
        Claim,
        Deliver,
        /// The attempt failed and will be retried.
        Requeue,
        Fail,
        /// A person requests another attempt now.
        Retry,
    }
}

impl Status {
    /// The whole life of a delivery. What is not listed is illegal.
    pub fn after(self, step: Step) -> Option<Status> {
        use {Status::*, Step::*};
        Some(match (self, step) {
            (Pending | Sending, Claim) => Sending,
            (Sending, Deliver) => Delivered,
            (Sending, Requeue) => Pending,
            (Sending, Fail) => Failed,
            (Pending | Delivered | Failed, Retry) => Pending,
            _ => return None,
        })
    }
}

/// How the receiver answered an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryResponse {
    /// The receiver answered, and perhaps asked to wait.
    Status { status: u16, wait: Option<Duration> },
    /// There was no usable answer, because of a failure of this class.
    NoResponse(Class),
}

/// What to do after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryDecision {
    Delivered,
    /// Retry after this wait.
    RetryAfter(Duration),
    /// Give up this delivery.
    Failed,
    /// Give up this delivery and disable the webhook: the receiver answered 410 Gone.
    ReceiverGone,
}

/// Decides what follows from an attempt. Attempts count from 1; `age` is the time since the first one.
pub fn after_attempt(response: DeliveryResponse, delivery: Uuid, attempt: u32, age: Duration) -> DeliveryDecision {
    let asked = match response {
        DeliveryResponse::Status { status: 200..=299, .. } => return DeliveryDecision::Delivered,
        DeliveryResponse::Status { status: 410, .. } => return DeliveryDecision::ReceiverGone,
        DeliveryResponse::Status { wait, .. } => wait.unwrap_or_default(),
        // The outbound guard refused the request, or the request is invalid: a retry would fail in the same way.
        DeliveryResponse::NoResponse(Class::SecurityError | Class::ValidationError) => return DeliveryDecision::Failed,
        DeliveryResponse::NoResponse(_) => Duration::ZERO,
    };
    let wait = wait_after(delivery, attempt).max(asked);
    if age.saturating_add(wait) > TRIED_FOR { DeliveryDecision::Failed } else { DeliveryDecision::RetryAfter(wait) }
}

/// Between half and all of the wait in `WAITS_S`. A hash of delivery and attempt decides how much, so that deliveries
/// that failed together are not retried together.
fn wait_after(delivery: Uuid, attempt: u32) -> Duration {
    let index = usize::try_from(attempt.saturating_sub(1)).unwrap_or(usize::MAX).min(WAITS_S.len() - 1);
    let full = WAITS_S[index] * 1_000;
    let mut hash = Sha256::new();
    hash.update(delivery.as_bytes());
    hash.update(attempt.to_be_bytes());
    let spread = hash.finalize().iter().take(8).fold(0_u64, |all, byte| (all << 8) | u64::from(*byte));
    Duration::from_millis(full / 2 + spread % (full / 2 + 1))
}

/// Must a webhook be disabled whose deliveries have failed for this long?
pub fn must_disable(failing: Duration) -> bool {
    failing >= FAILING_FOR
}

/// An execution that ended, as a message describes it.
#[derive(Clone, Debug)]
pub struct EndedExecution {
    pub execution: ExecutionId,
    pub workspace: WorkspaceId,
    pub definition: DefinitionId,
    pub workflow_name: String,
    pub status: execution::Status,
    /// None if there is no output, or if it is too long.
    pub output: Option<Value>,
    pub error: Option<Value>,
    /// The output or the error was too long and is omitted.
    pub cut: bool,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub completed_at: Timestamp,
    pub duration_ms: Option<i64>,
}

/// The body of a message, the same at each attempt.
pub fn message(ended: &EndedExecution) -> String {
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

/// The `webhook-signature` header of a message: one signature for each valid secret. Two secrets are valid while a
/// secret is being rotated. A malformed secret is ignored.
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

/// A signing secret made of these random bytes, as it is shown to people.
pub fn secret(random: &[u8; 32]) -> String {
    format!("{SECRET_PREFIX}{}", STANDARD.encode(random))
}

#[cfg(test)]
mod tests;
