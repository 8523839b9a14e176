//! Tells webhooks of the ends they asked for.
//!
//! Invariants
//! - Look, decide, do: what is due is claimed for longer than a call may take; what an answer means is the kernel's
//!   (`kernel::webhook`). Safe to run twice and in every process at once.
//! - So many calls at once, so many of one workspace, and no more of it than a quarter of what the others leave free:
//!   it takes many workspaces with slow receivers to keep another waiting, and then for a call's time.
//! - Every attempt goes through the guard, carries the delivery's id, and follows no redirect.
//! - An answer is judged by its status; of a long one only the start is read.
//! - A secret is opened to sign with, and is in nothing that is sent, kept or logged.
//!
//! What happens if this process dies: what it was sending falls due when its claim ends, and is sent again under the
//! same id.
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
use kernel::webhook::{Answer, Verdict, judge, message, signatures};
use store::Store;
use store::webhook::delivery::{Claimed, Room, Told};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;
use zeroize::Zeroizing;

/// Calls of this process at once.
const AT_ONCE: usize = 64;
/// Calls of one workspace at once, by all processes together.
const EACH: i32 = 8;
/// Workspaces looked at in one pass.
const STEPS: i32 = 500;
/// How long a receiver may take.
const TIMEOUT: Duration = Duration::from_secs(15);
/// How long a claim lasts: a call, and then to store what came of it.
const LEASE: Duration = Duration::from_secs(60);
/// How much of an answer is read: what is shown of it.
const MAX_ANSWER_BYTES: usize = 4 << 10;

/// What messages of a webhook are signed with, the newest first.
type Keys = Vec<Zeroizing<String>>;

/// It looks at least so often: whoever waits to be told waits for this, not for the dispatcher's poll.
pub(crate) const EVERY: Duration = Duration::from_secs(1);

/// With what a process calls out for webhooks.
pub(crate) struct Sender {
    pub(crate) outbound: Outbound,
    pub(crate) vault: Vault,
}

pub(crate) struct Webhooks {
    store: Store,
    outbound: Outbound,
    vault: Vault,
    /// Rung when a call is over.
    wake: Arc<Notify>,
    stop: CancellationToken,
    tasks: TaskTracker,
    slots: Arc<Semaphore>,
    /// The workspace to go on behind.
    place: Mutex<Option<WorkspaceId>>,
}

impl Webhooks {
    pub(crate) fn new(
        store: Store,
        Sender { outbound, vault }: Sender,
        wake: Arc<Notify>,
        (stop, tasks): (CancellationToken, TaskTracker),
    ) -> Webhooks {
        let slots = Arc::new(Semaphore::new(AT_ONCE));
        Webhooks { store, outbound, vault, wake, stop, tasks, slots, place: Mutex::default() }
    }

    pub(crate) async fn pass(self: &Arc<Self>) -> Result<Option<Duration>, store::Error> {
        let after = *self.place.lock();
        if after.is_none() {
            ::metrics::gauge!(metrics::WEBHOOK_OLDEST.name).set(self.store.oldest_delivery_s().await?);
        }
        let free = self.slots.available_permits();
        if free == 0 {
            return Ok(None);
        }
        let limit = i32::try_from(free).unwrap_or(i32::MAX);
        let room = Room { each: EACH, limit, steps: STEPS, lease: LEASE };
        let claim = self.store.claim_deliveries(after, room).await?;
        *self.place.lock() = claim.next;
        // Not at the end yet, or only the part behind `after` was looked at.
        let more = claim.next.is_some() || after.is_some();
        let webhooks: Vec<Uuid> = claim.deliveries.iter().map(|delivery| delivery.webhook).collect();
        let keys = if webhooks.is_empty() { BTreeMap::new() } else { self.keys(&webhooks).await? };
        for delivery in claim.deliveries {
            // Only this loop takes them, and no more than were free.
            let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else { break };
            let (this, keys) = (Arc::clone(self), keys.get(&delivery.webhook).cloned().unwrap_or_default());
            self.tasks.spawn(async move { this.deliver(delivery, keys, slot).await });
        }
        Ok(more.then_some(Duration::ZERO))
    }

    /// What these webhooks' messages are signed with; nothing for one whose secret cannot be opened.
    async fn keys(&self, webhooks: &[Uuid]) -> Result<BTreeMap<Uuid, Keys>, store::Error> {
        let mut keys: BTreeMap<Uuid, Keys> = BTreeMap::new();
        for (webhook, sealed) in self.store.webhook_secrets(webhooks).await? {
            match self.vault.unseal(&sealed) {
                Ok(key) => keys.entry(webhook).or_default().push(key),
                Err(error) => {
                    tracing::warn!(%webhook, error = &error as &dyn std::error::Error,
                        "A webhook's secret cannot be opened");
                }
            }
        }
        Ok(keys)
    }

    /// One attempt. When the process stops it is broken off: whoever takes it over sends it again.
    async fn deliver(&self, delivery: Claimed, keys: Keys, slot: OwnedSemaphorePermit) {
        let attempt = tokio::select! {
            attempt = self.attempt(&delivery, &keys) => attempt,
            () = self.stop.cancelled() => return,
        };
        let (verdict, told) = attempt;
        let outcome = match verdict {
            Verdict::Delivered => "delivered",
            Verdict::Later(_) => "later",
            Verdict::Failed | Verdict::Gone => "failed",
        };
        match self.store.settle_delivery(&delivery, verdict, &told).await {
            Ok(true) => {
                ::metrics::counter!(metrics::WEBHOOK_DELIVERIES.name, "outcome" => outcome).increment(1);
                tracing::debug!(delivery = %delivery.id, webhook = %delivery.webhook, outcome, "Told a webhook");
            }
            Ok(false) => tracing::debug!(delivery = %delivery.id, "A delivery was taken over meanwhile"),
            Err(error) => tracing::warn!(
                delivery = %delivery.id,
                error = &error as &dyn std::error::Error,
                "What came of a delivery cannot be stored; it is sent again"
            ),
        }
        drop(slot);
        self.wake.notify_one();
    }

    async fn attempt(&self, delivery: &Claimed, keys: &Keys) -> (Verdict, Told) {
        let unsent = |error: &str| Told { error: Some(error.to_owned()), unsent: true, ..Told::default() };
        let Some(url) = &delivery.url else {
            return (Verdict::Failed, unsent("the webhook was deleted, or is off"));
        };
        let Some(ended) = &delivery.ended else {
            return (Verdict::Failed, unsent("the execution is no longer kept"));
        };
        if keys.is_empty() {
            let none = Answer::None(Class::ExecutionError);
            let told = unsent("its secret cannot be opened: ask whoever runs this service");
            return (judge(none, delivery.id, delivery.attempt, delivery.age), told);
        }
        let request = request(delivery, url, message(ended), keys);
        let (answer, told) = match self.outbound.send(request).await {
            Ok(response) => {
                let (status, wait) = (response.status, outbound::wanted_wait(&response));
                let quoted = || outbound::failure_of(&response).map(|failure| failure.message);
                let error = match status {
                    200..=299 => None,
                    _ => quoted().or_else(|| Some(format!("the answer was {status}"))),
                };
                (Answer::Status { status, wait }, Told { status: Some(status), error, unsent: false })
            }
            Err(failure) => {
                (Answer::None(failure.class), Told { status: None, error: Some(failure.message), unsent: false })
            }
        };
        (judge(answer, delivery.id, delivery.attempt, delivery.age), told)
    }
}

fn request(delivery: &Claimed, url: &str, body: String, keys: &Keys) -> Request {
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
    request.max_response_bytes = MAX_ANSWER_BYTES;
    request.follows = false;
    request.cuts = true;
    request
}
