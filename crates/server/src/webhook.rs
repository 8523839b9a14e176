//! Delivers webhooks: sends a signed message for each ended execution that a webhook subscribes to.
//!
//! Invariants
//! - The claim of a due delivery lasts longer than a call may take. So any number of processes may run this loop at the
//!   same time. The kernel decides what a response means (`kernel::webhook`).
//! - The number of calls is bounded, in total and for each workspace. One claim gives a workspace at most a quarter of
//!   the calls that are free. So the slow receivers of a few workspaces do not delay the deliveries of other
//!   workspaces.
//! - Every attempt goes through the guard of outgoing calls (`engine::outbound`), carries the delivery's id, and
//!   follows no redirect.
//! - The status of a response decides whether the delivery succeeded. Only the start of a long response body is read.
//! - A secret is decrypted only to sign a message. The decrypted secret is never sent, stored or logged.
//!
//! What happens if this process dies: its deliveries are due again when their claims expire. Another process sends them
//! again, with the same id.
//!
//! Not here: what makes a delivery (`store`'s `functions/webhook.sql`), requests about webhooks (`http::webhooks`).

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::outbound::{self, Body, Method, Outbound, Request};
use engine::vault::Vault;
use jiff::Timestamp;
use kernel::ids::WorkspaceId;
use kernel::run::failure::Class;
use kernel::signals::metrics;
use kernel::webhook::{DeliveryDecision, DeliveryResponse, after_attempt, message, signatures};
use store::Store;
use store::webhook::delivery::{AttemptResult, ClaimLimits, ClaimedDelivery};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;
use zeroize::Zeroizing;

/// The most calls of this process at the same time.
const MAX_CALLS: usize = 64;
/// The most calls for one workspace at the same time, by all processes together.
const MAX_CALLS_PER_WORKSPACE: i32 = 8;
/// The most workspaces checked in one pass.
const MAX_WORKSPACES: i32 = 500;
/// How long a receiver may take to respond.
const TIMEOUT: Duration = Duration::from_secs(15);
/// How long the claim of a delivery lasts: enough for the call and for storing its result.
const LEASE: Duration = Duration::from_secs(60);
/// How much of a response body is read: enough for the error message that the delivery stores.
const MAX_RESPONSE_BYTES: usize = 4 << 10;

/// The keys that sign the messages of a webhook, the newest first.
type Keys = Vec<Zeroizing<String>>;

/// The longest time between two passes, even if `dispatch.poll_interval_ms` is longer.
pub(crate) const EVERY: Duration = Duration::from_secs(1);

/// What a process needs to send webhooks.
pub(crate) struct WebhookSender {
    pub(crate) outbound: Outbound,
    pub(crate) vault: Vault,
}

pub(crate) struct WebhookDeliverer {
    store: Store,
    outbound: Outbound,
    vault: Vault,
    /// Notified when a call has ended.
    wake: Arc<Notify>,
    stop: CancellationToken,
    tasks: TaskTracker,
    /// The calls in progress.
    calls: Arc<Semaphore>,
    /// The workspace after which the next pass continues.
    after: Mutex<Option<WorkspaceId>>,
}

impl WebhookDeliverer {
    pub(crate) fn new(
        store: Store,
        WebhookSender { outbound, vault }: WebhookSender,
        wake: Arc<Notify>,
        (stop, tasks): (CancellationToken, TaskTracker),
    ) -> WebhookDeliverer {
        let calls = Arc::new(Semaphore::new(MAX_CALLS));
        WebhookDeliverer { store, outbound, vault, wake, stop, tasks, calls, after: Mutex::default() }
    }

    pub(crate) async fn run_once(self: &Arc<Self>) -> Result<Option<Duration>, store::Error> {
        let after = *self.after.lock();
        if after.is_none() {
            ::metrics::gauge!(metrics::WEBHOOK_OLDEST_DUE.name).set(self.store.oldest_delivery_s().await?);
        }
        let free = self.calls.available_permits();
        if free == 0 {
            return Ok(None);
        }
        let limit = i32::try_from(free).unwrap_or(i32::MAX);
        let room = ClaimLimits { each: MAX_CALLS_PER_WORKSPACE, limit, steps: MAX_WORKSPACES, lease: LEASE };
        let claim = self.store.claim_deliveries(after, room).await?;
        *self.after.lock() = claim.next;
        // There may be more: the claim did not reach the last workspace, or it skipped the workspaces before `after`.
        let more = claim.next.is_some() || after.is_some();
        let webhooks: Vec<Uuid> = claim.deliveries.iter().map(|delivery| delivery.webhook).collect();
        let keys = if webhooks.is_empty() { BTreeMap::new() } else { self.keys(&webhooks).await? };
        for delivery in claim.deliveries {
            // A permit is always free, because only this loop takes permits, and it claimed at most `free` deliveries.
            let Ok(permit) = Arc::clone(&self.calls).try_acquire_owned() else { break };
            let (this, keys) = (Arc::clone(self), keys.get(&delivery.webhook).cloned().unwrap_or_default());
            self.tasks.spawn(async move { this.deliver(delivery, keys, permit).await });
        }
        Ok(more.then_some(Duration::ZERO))
    }

    /// The signing keys of these webhooks; none for a webhook whose secret cannot be decrypted.
    async fn keys(&self, webhooks: &[Uuid]) -> Result<BTreeMap<Uuid, Keys>, store::Error> {
        let mut keys: BTreeMap<Uuid, Keys> = BTreeMap::new();
        for (webhook, sealed) in self.store.webhook_secrets(webhooks).await? {
            match self.vault.unseal(&sealed) {
                Ok(key) => keys.entry(webhook).or_default().push(key),
                Err(error) => {
                    tracing::warn!(webhook_id = %webhook, error = &error as &dyn std::error::Error,
                        "Webhook secret cannot be decrypted: check secrets.key_file");
                }
            }
        }
        Ok(keys)
    }

    /// Makes one attempt and stores its result. At shutdown the attempt is aborted; another process sends the delivery
    /// again when its claim expires.
    async fn deliver(&self, delivery: ClaimedDelivery, keys: Keys, permit: OwnedSemaphorePermit) {
        let attempt = tokio::select! {
            attempt = self.attempt(&delivery, &keys) => attempt,
            () = self.stop.cancelled() => return,
        };
        let (verdict, result) = attempt;
        let outcome = match verdict {
            DeliveryDecision::Delivered => "delivered",
            DeliveryDecision::RetryAfter(_) => "retry",
            DeliveryDecision::Failed | DeliveryDecision::ReceiverGone => "failed",
        };
        match self.store.settle_delivery(&delivery, verdict, &result).await {
            Ok(true) => {
                ::metrics::counter!(metrics::WEBHOOK_ATTEMPTS.name, "outcome" => outcome).increment(1);
                tracing::debug!(
                    delivery_id = %delivery.id,
                    webhook_id = %delivery.webhook,
                    outcome,
                    "Webhook delivery attempted"
                );
            }
            Ok(false) => {
                tracing::debug!(delivery_id = %delivery.id, "Webhook delivery was taken over by another process")
            }
            Err(error) => tracing::warn!(
                delivery_id = %delivery.id,
                error = &error as &dyn std::error::Error,
                "Could not store the outcome of a webhook delivery; the delivery is sent again"
            ),
        }
        drop(permit);
        self.wake.notify_one();
    }

    async fn attempt(&self, delivery: &ClaimedDelivery, keys: &Keys) -> (DeliveryDecision, AttemptResult) {
        let unsent =
            |error: &str| AttemptResult { error: Some(error.to_owned()), unsent: true, ..AttemptResult::default() };
        let Some(url) = &delivery.url else {
            return (DeliveryDecision::Failed, unsent("the webhook was deleted or disabled"));
        };
        let Some(ended) = &delivery.ended else {
            return (DeliveryDecision::Failed, unsent("the execution was deleted"));
        };
        if keys.is_empty() {
            let none = DeliveryResponse::NoResponse(Class::ExecutionError);
            let result = unsent("the webhook's secret cannot be decrypted: ask the operator of this service");
            return (after_attempt(none, delivery.id, delivery.attempt, delivery.age), result);
        }
        let request = request(delivery, url, message(ended), keys);
        let (answer, result) = match self.outbound.send(request).await {
            Ok(response) => {
                let (status, wait) = (response.status, outbound::wanted_wait(&response));
                let quoted = || outbound::failure_of(&response).map(|failure| failure.message);
                let error = match status {
                    200..=299 => None,
                    _ => quoted().or_else(|| Some(format!("the response status was {status}"))),
                };
                (
                    DeliveryResponse::Status { status, wait },
                    AttemptResult { status: Some(status), error, unsent: false },
                )
            }
            Err(failure) => (
                DeliveryResponse::NoResponse(failure.class),
                AttemptResult { status: None, error: Some(failure.message), unsent: false },
            ),
        };
        (after_attempt(answer, delivery.id, delivery.attempt, delivery.age), result)
    }
}

fn request(delivery: &ClaimedDelivery, url: &str, body: String, keys: &Keys) -> Request {
    let timestamp = Timestamp::now().as_second();
    let signature = signatures(keys.iter().map(|key| key.as_str()), delivery.id, timestamp, &body);
    let mut request = Request::new(Method::Post, url, delivery.workspace);
    request.headers = [
        ("content-type", "application/json".to_owned()),
        ("webhook-id", delivery.id.to_string()),
        ("webhook-timestamp", timestamp.to_string()),
        ("webhook-signature", signature),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec();
    request.body = Some(Body::Text(body));
    request.timeout = TIMEOUT;
    request.max_response_bytes = MAX_RESPONSE_BYTES;
    request.follows = false;
    request.cuts = true;
    request
}
