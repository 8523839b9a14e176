//! Starts claimed items: sends one start request per item to the engine, and carries out what the answer means.
//!
//! Invariants
//! - An item whose execution may have started keeps its claim and its slot.
//! - While the engine cannot be reached, items keep their claim and slot, and no attempt is counted. The breaker
//!   decides when their start requests are sent.
//! - At shutdown, items whose start request was certainly never sent are requeued without an attempt. Items whose start
//!   request may have been sent stay claimed. Another process takes them over as soon as this process has deregistered.
//! - A failure of one item does not affect the other items of its batch.
//!
//! Not here: whose turn it is (`dispatch`), how many starts are in flight (`start_limit`), what an engine's answer
//! means (`kernel::queue`).

mod start_limit;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::gather::Gather;
use engine::{Engine, RunDescription, log_event, trace};
use futures_util::future::join_all;
use kernel::execution;
use kernel::ids::{ClaimId, ProcessId, QueueItemId};
use kernel::queue::round_robin::Quota;
use kernel::queue::{self, StartDecision, StartOutcome};
use kernel::run::failure::{Class, Failure};
use kernel::signals::{events, metrics, spans};
use store::Store;
use store::definition::DefinitionRef;
use store::queue::claim::{Begun, ClaimedItem, Claims};
use store::run::{End, Ending};
use tokio::sync::SemaphorePermit;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

use crate::config::{Dispatch, ms};
use crate::process::notifications::Notifier;
use crate::process::protocol::ClaimProtocol;
use crate::queue::breaker::{Breaker, StartPermit};
use start_limit::PendingStart;
pub(crate) use start_limit::StartLimit;

/// How long an item waits before it may be claimed again if only a process of a newer release can start it.
const NEWER_DELAY: Duration = Duration::from_secs(5);

/// How long a mark waits for others.
const LINGER: Duration = Duration::from_millis(25);

/// Claims items and starts them. `takeover` uses it to repeat start requests.
#[derive(Clone)]
pub(crate) struct Starter {
    pub(crate) store: Store,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) settings: Dispatch,
    pub(crate) notifier: Notifier,
    pub(crate) breaker: Breaker,
    pub(crate) claim_protocol: ClaimProtocol,
    pub(crate) start_limit: StartLimit,
    /// Items that the engine accepted at about the same time are marked in one commit.
    pub(crate) marks: Gather<(QueueItemId, ClaimId), ()>,
    /// After it is cancelled, no start request is sent.
    pub(crate) stop: CancellationToken,
    /// The tasks that start items; shutdown waits for them.
    pub(crate) tasks: TaskTracker,
}

/// Marks items as dispatched, together. A mark lingers, because nothing waits for it: the run begins without it.
pub(crate) fn marks(store: &Store) -> Gather<(QueueItemId, ClaimId), ()> {
    let store = store.clone();
    Gather::new(LINGER, move |items: Vec<(QueueItemId, ClaimId)>| {
        let store = store.clone();
        // An item that is no longer claimed was marked when its run began, or another dispatcher has taken it over.
        async move { store.mark_dispatched_by_claims(&items).await.map(|_| vec![(); items.len()]) }
    })
}

impl Starter {
    /// How many more items may be claimed now.
    pub(crate) fn claim_limit(&self) -> usize {
        let limit = if self.engine.begins_with_claim() { usize::MAX } else { self.start_limit.claim_limit() };
        self.engine.capacity().min(self.breaker.claim_limit()).min(limit)
    }

    /// Claims items and starts them, inside the tracing span `flow`.
    pub(crate) async fn claim(
        &self,
        process: ProcessId,
        quotas: &[Quota],
        flow: &Span,
    ) -> Result<Claims, store::Error> {
        let claim = ClaimId(store::new_id());
        let engine = self.engine.begins_with_claim().then(|| self.engine.name());
        let workspaces = quotas.len();
        let span = tracing::debug_span!(parent: flow, spans::CLAIM_BATCH.name, workspaces, claimed = Empty);
        let mut claims = match self.store.claim(quotas, claim, process, engine).instrument(span.clone()).await {
            Ok(claims) => claims,
            Err(error) => {
                // The claim may have been committed although its answer was lost. `run::resume` finds the runs that the
                // claim began, because this process owns them. Items that were only claimed are read by the claim's id.
                let shards: BTreeSet<i16> = quotas.iter().map(|quota| quota.workspace.shard()).collect();
                let starter = self.clone();
                self.tasks.spawn(async move { starter.start_lost_claim(process, shards, claim).await });
                return Err(error);
            }
        };
        span.record("claimed", claims.items.len());
        let mut rest = Vec::new();
        for item in &mut claims.items {
            match item.begun.take() {
                Some(begun) => self.run_begun(process, item, begun, flow),
                None => rest.push(item.clone()),
            }
        }
        if !rest.is_empty() {
            self.spawn_starts(process, claim, rest, flow.clone());
        }
        Ok(claims)
    }

    /// Gives the engine a run that the claim statement itself began and marked as dispatched.
    fn run_begun(&self, process: ProcessId, item: &ClaimedItem, begun: Begun, flow: &Span) {
        item_span(flow, item).in_scope(|| {
            log_event!(events::DISPATCHING, queue_item_id = %item.item, definition_id = %item.definition);
            dispatch_span(self.engine.name()).in_scope(|| self.engine.run_begun(process, vec![begun]));
            drop(tracing::debug_span!(spans::MARK_DISPATCHED.name).entered());
            record_dispatched(item, Duration::ZERO);
        });
    }

    /// Starts the items of a claim whose answer was lost.
    pub(crate) async fn start_lost_claim(&self, process: ProcessId, shards: BTreeSet<i16>, claim: ClaimId) {
        for pause in [1, 2, 4, 8, 16] {
            if !self.sleep(Duration::from_secs(pause)).await {
                return;
            }
            let shards: Vec<i16> = shards.iter().copied().collect();
            match self.store.items_of_claim(&shards, claim).await {
                // No item is claimed yet: the claim statement may still be waiting for its shard's lock.
                Ok(items) if items.is_empty() => {}
                Ok(items) => return self.spawn_starts(process, claim, items, Span::none()),
                Err(_) => {}
            }
        }
        // The claim was never committed. If it was, a takeover finds its items when this process's lease expires.
    }

    /// Starts claimed items concurrently, independently of each other. Each counts in the start limit as pending from
    /// now on, until the engine has answered.
    pub(crate) fn spawn_starts(&self, process: ProcessId, claim: ClaimId, items: Vec<ClaimedItem>, flow: Span) {
        let items: Vec<(ClaimedItem, PendingStart)> =
            items.into_iter().map(|item| (item, self.start_limit.add_pending())).collect();
        let starter = self.clone();
        self.tasks.spawn(async move {
            let executions = items.iter().map(|(item, _)| item.item.execution()).collect();
            starter.engine.prepare_starts(executions).await;
            // The start limit says how many requests are in flight. While an item is marked, others are sent.
            join_all(items.into_iter().map(|(item, pending)| {
                let span = item_span(&flow, &item);
                starter.start(process, claim, item, pending).instrument(span)
            }))
            .await;
        });
    }

    /// Starts one item. While the database does not answer, the item keeps its claim and slot, and the start request is
    /// repeated.
    async fn start(&self, process: ProcessId, claim: ClaimId, mut item: ClaimedItem, pending: PendingStart) {
        let (mut pause, mut pending) = (Duration::from_secs(1), Some(pending));
        while let Err(error) = self.try_start(process, claim, &item, &mut pending).await {
            log_item_error(&item, &error);
            if error.is_answer() || !self.sleep(pause).await {
                return;
            }
            item.in_doubt = true;
            pause = (pause * 2).min(Duration::from_secs(30));
        }
    }

    /// Starts one item. The item stops counting as pending when the engine has answered, whatever the answer is.
    async fn try_start(
        &self,
        process: ProcessId,
        claim: ClaimId,
        item: &ClaimedItem,
        pending: &mut Option<PendingStart>,
    ) -> Result<(), store::Error> {
        if item.definition_deleted {
            log_event!(events::DEFINITION_GONE, queue_item_id = %item.item, definition_id = %item.definition);
            let reason = "the definition was deleted before the execution could start";
            return self.fail(claim, item, Class::DefinitionGone, reason).await;
        }
        if item.newer {
            self.store.requeue_unsent(&[item.item], claim, NEWER_DELAY).await?;
            return Ok(());
        }
        log_event!(events::DISPATCHING, queue_item_id = %item.item, definition_id = %item.definition);
        let claimed = Instant::now();
        let mut pause = Duration::from_millis(100);
        let (mut sent, mut in_doubt) = (false, item.in_doubt);
        while let Some((in_flight, permit)) = self.permits().await {
            sent = true;
            let answer = self.send(process, item, permit).await;
            drop((in_flight, pending.take()));
            let decision = self.decide(item, answer, in_doubt).await;
            if let Some((kind, error)) = start_failure(&decision) {
                log_event!(events::START_FAILED; capitalized(self.engine.name()), queue_item_id = %item.item, error);
                ::metrics::counter!(metrics::DISPATCH_FAILURES.name, "reason" => kind).increment(1);
            }
            if self.carry_out(claim, item, &decision, claimed).await? {
                return Ok(());
            }
            // The run may have started even if the engine reported a failure, because the engine's own storage may have
            // answered too late.
            in_doubt = true;
            // An item that is held back waits in `permits`, for the breaker, and not for `pause`.
            if matches!(decision, StartDecision::Hold { .. }) {
                continue;
            }
            if !self.sleep(pause).await {
                break;
            }
            pause = (pause * 2).min(Duration::from_secs(5));
        }
        if !sent && !in_doubt {
            self.store.requeue_unsent(&[item.item], claim, Duration::ZERO).await?;
        }
        Ok(())
    }

    /// Waits until a start request may be sent; none if this process shuts down first.
    async fn permits(&self) -> Option<(SemaphorePermit<'_>, StartPermit)> {
        let permits = async { Some((self.start_limit.permit().await?, self.breaker.permit().await)) };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => None,
            permits = permits => permits,
        }
    }

    /// Sends one start request to the engine, with a timeout, and records the answer in the breaker.
    async fn send(&self, process: ProcessId, item: &ClaimedItem, permit: StartPermit) -> StartOutcome {
        let call = self.engine.start(process, item.item.execution()).instrument(dispatch_span(self.engine.name()));
        let answer = match tokio::time::timeout(ms(self.settings.start_timeout_ms), call).await {
            Ok(answer) => answer,
            Err(_) => StartOutcome::Ambiguous("the engine did not answer the start request in time".to_owned()),
        };
        permit.record_answer(&answer);
        answer
    }

    /// Waits for `pause`; false if this process shuts down first.
    async fn sleep(&self, pause: Duration) -> bool {
        tokio::select! {
            () = tokio::time::sleep(pause) => true,
            () = self.stop.cancelled() => false,
        }
    }

    async fn decide(&self, item: &ClaimedItem, answer: StartOutcome, in_doubt: bool) -> StartDecision {
        let max = match &answer {
            StartOutcome::Refused(_) => self.max_attempts(item).await,
            _ => self.settings.max_attempts,
        };
        match queue::after_start(answer, item.attempts, max, in_doubt) {
            StartDecision::Describe { reason } => match self.engine.describe(item.item.execution()).await {
                Ok(described) => {
                    let known = !matches!(described, RunDescription::Unknown);
                    queue::described(known, reason, item.attempts, max)
                }
                Err(reason) => StartDecision::Repeat { reason },
            },
            decision => decision,
        }
    }

    async fn max_attempts(&self, item: &ClaimedItem) -> u32 {
        let definition = self.store.definition(DefinitionRef::Id(item.definition), Some(item.workspace)).await;
        definition.ok().and_then(|found| u32::try_from(found.max_attempts).ok()).unwrap_or(self.settings.max_attempts)
    }

    /// Carries out the decision; false if the start request is to be repeated.
    async fn carry_out(
        &self,
        claim: ClaimId,
        item: &ClaimedItem,
        decision: &StartDecision,
        claimed: Instant,
    ) -> Result<bool, store::Error> {
        match decision {
            StartDecision::MarkDispatched => {
                let span = tracing::debug_span!(spans::MARK_DISPATCHED.name);
                let took = claimed.elapsed();
                self.marks.write((item.item, claim), 0).instrument(span).await?;
                record_dispatched(item, took);
            }
            StartDecision::Requeue { reason, backoff } => {
                self.store.requeue_refused(item.item, claim, reason, *backoff).await?;
                self.notifier.notify_ready(item.workspace);
            }
            StartDecision::GiveUp { reason } => self.fail(claim, item, Class::DispatchRefused, reason).await?,
            StartDecision::Hold { .. } | StartDecision::Repeat { .. } | StartDecision::Describe { .. } => {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn fail(&self, claim: ClaimId, item: &ClaimedItem, class: Class, reason: &str) -> Result<(), store::Error> {
        let end = End { outcome: execution::Status::Failed, output: None, error: Some(Failure::new(class, reason)) };
        let ending = Ending { execution: item.item.execution(), claim: Some(claim), end };
        let ended = self.store.complete(&[ending], None, "dispatcher").await?;
        ::metrics::counter!(metrics::FAILED.name, "reason" => class.name()).increment(1);
        ::metrics::histogram!(metrics::ITEM_ATTEMPTS.name).record(f64::from(item.attempts + 1));
        if ended.iter().any(|ended| ended.freed) {
            self.notifier.notify_ready(item.workspace);
        }
        Ok(())
    }
}

fn log_item_error(item: &ClaimedItem, error: &store::Error) {
    let error = error as &dyn std::error::Error;
    log_event!(events::ITEM_ERROR, queue_item_id = %item.item, error, attempt_count = item.attempts);
}

/// Logs and counts an item that the engine has accepted. `since_claim` is the time since the item was claimed.
fn record_dispatched(item: &ClaimedItem, since_claim: Duration) {
    log_event!(events::DISPATCHED, execution_id = %item.item.execution(), queue_item_id = %item.item);
    ::metrics::counter!(metrics::DISPATCHED.name).increment(1);
    ::metrics::histogram!(metrics::ITEM_ATTEMPTS.name).record(f64::from(item.attempts + 1));
    if let Some(waited) = item.waited {
        ::metrics::histogram!(metrics::ENQUEUE_TO_START.name).record(waited + since_claim);
    }
}

/// The metric label and the reason of a start request that failed; none if it succeeded.
fn start_failure(decision: &StartDecision) -> Option<(&'static str, &str)> {
    match decision {
        StartDecision::MarkDispatched => None,
        StartDecision::Requeue { reason, .. } | StartDecision::GiveUp { reason } => Some(("refused", reason)),
        StartDecision::Hold { reason } => Some(("unavailable", reason)),
        StartDecision::Repeat { reason } | StartDecision::Describe { reason } => Some(("ambiguous", reason)),
    }
}

fn item_span(flow: &Span, item: &ClaimedItem) -> Span {
    let span = tracing::debug_span!(
        parent: flow,
        spans::PROCESS_ITEM.name,
        queue_item_id = %item.item,
        execution_id = %item.item.execution(),
        workspace_id = %item.workspace,
    );
    trace::link(&span, item.trace);
    span
}

fn dispatch_span(engine: &str) -> Span {
    tracing::debug_span!(spans::DISPATCH.name, engine, otel.name = spans::DISPATCH.name.replace("{engine}", engine))
}

/// An engine's name as the first word of a sentence.
fn capitalized(engine: &str) -> String {
    let mut letters = engine.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
