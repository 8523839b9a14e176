//! From a claim to a running execution: one call to the engine for each item, and what its answer means.
//!
//! Invariants
//! - The claim and its slot are kept whenever a start may have happened.
//! - An engine out of reach costs its items nothing but time: they keep claim and slot, and the
//!   breaker says when they are sent.
//! - When told to stop, what was certainly never sent is given back, without an attempt; what may
//!   have been stays claimed, and is taken over as soon as this process has said goodbye.
//! - An item's trouble is its own: the rest of the batch goes on.
//!
//! Not here: whose turn it is (`dispatch`), how many go at once (`line`), what an answer means (`kernel::queue`).

mod line;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Described, Engine, say, trace};
use futures_util::{StreamExt, stream};
use kernel::execution;
use kernel::ids::{ClaimId, ProcessId};
use kernel::queue::ring::Ask;
use kernel::queue::{self, Answer, Decision};
use kernel::run::failure::{Class, Failure};
use kernel::signals::{events, metrics, spans};
use store::Store;
use store::definition::Which;
use store::queue::claim::{Begun, Claimed, Claims};
use store::run::{End, Ending};
use tokio::sync::SemaphorePermit;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

use crate::config::{Dispatch, ms};
use crate::process::hints::Hints;
use crate::process::protocol::Rules;
use crate::queue::breaker::{Breaker, Pass};
pub(crate) use line::Line;
use line::Place;

/// How long an item of a newer build waits before it is offered again.
const NEWER_DELAY: Duration = Duration::from_secs(5);

/// Claims, and starts what was claimed; `takeover` starts through it too.
#[derive(Clone)]
pub(crate) struct Starter {
    pub(crate) store: Store,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) settings: Dispatch,
    pub(crate) hints: Hints,
    pub(crate) breaker: Breaker,
    pub(crate) rules: Rules,
    pub(crate) line: Line,
    /// No start is sent any more.
    pub(crate) stop: CancellationToken,
    /// Starts under way.
    pub(crate) tasks: TaskTracker,
}

impl Starter {
    /// How many more items may be claimed now.
    pub(crate) fn room(&self) -> usize {
        let line = if self.engine.begins_with_claim() { usize::MAX } else { self.line.room() };
        self.engine.capacity().min(self.breaker.room()).min(line)
    }

    /// Claims and starts what was claimed, as a part of `flow`.
    pub(crate) async fn claim(&self, process: ProcessId, asks: &[Ask], flow: &Span) -> Result<Claims, store::Error> {
        let claim = ClaimId(store::new_id());
        let engine = self.engine.begins_with_claim().then(|| self.engine.name());
        let workspaces = asks.len();
        let span = tracing::debug_span!(parent: flow, spans::CLAIM_BATCH.name, workspaces, claimed = Empty);
        let mut claims = match self.store.claim(asks, claim, process, engine).instrument(span.clone()).await {
            Ok(claims) => claims,
            Err(error) => {
                // It may have been committed. What it began is found among the runs this process
                // owns; what it only claimed is asked for under the same claim.
                let shards: BTreeSet<i16> = asks.iter().map(|ask| ask.workspace.shard()).collect();
                let starter = self.clone();
                self.tasks.spawn(async move { starter.find_claimed(process, shards, claim).await });
                return Err(error);
            }
        };
        span.record("claimed", claims.items.len());
        let mut rest = Vec::new();
        for item in &mut claims.items {
            match item.begun.take() {
                Some(begun) => self.adopt(process, item, begun, flow),
                None => rest.push(item.clone()),
            }
        }
        if !rest.is_empty() {
            self.spawn_starts(process, claim, rest, flow.clone());
        }
        Ok(claims)
    }

    /// Hands over what the claim itself began and marked.
    fn adopt(&self, process: ProcessId, item: &Claimed, begun: Begun, flow: &Span) {
        item_span(flow, item).in_scope(|| {
            say!(events::DISPATCHING, queue_item_id = %item.item, definition_id = %item.definition);
            dispatch_span(self.engine.name()).in_scope(|| self.engine.adopt(process, vec![begun]));
            drop(tracing::debug_span!(spans::MARK_DISPATCHED.name).entered());
            dispatched(item, Duration::ZERO);
        });
    }

    /// Starts what a claim took whose answer was lost.
    pub(crate) async fn find_claimed(&self, process: ProcessId, shards: BTreeSet<i16>, claim: ClaimId) {
        for pause in [1, 2, 4, 8, 16] {
            if !self.rest(Duration::from_secs(pause)).await {
                return;
            }
            let shards: Vec<i16> = shards.iter().copied().collect();
            match self.store.claimed_under(&shards, claim).await {
                // Nothing yet: the claim may still be waiting for its shard.
                Ok(items) if items.is_empty() => {}
                Ok(items) => return self.spawn_starts(process, claim, items, Span::none()),
                Err(_) => {}
            }
        }
        // Nothing was claimed, or this process lapsed meanwhile and a takeover finds it.
    }

    /// Starts claimed items side by side, each on its own. They are in line from now on.
    pub(crate) fn spawn_starts(&self, process: ProcessId, claim: ClaimId, items: Vec<Claimed>, flow: Span) {
        let items: Vec<(Claimed, Place)> = items.into_iter().map(|item| (item, self.line.join())).collect();
        let starter = self.clone();
        self.tasks.spawn(async move {
            let starts = items.into_iter().map(|(item, place)| {
                let span = item_span(&flow, &item);
                starter.start(process, claim, item, place).instrument(span)
            });
            stream::iter(starts).buffer_unordered(starter.settings.parallel_starts).for_each(|()| async {}).await;
        });
    }

    /// The claim and its slot stay while the database gives no answer; the start is repeated after that.
    async fn start(&self, process: ProcessId, claim: ClaimId, mut item: Claimed, place: Place) {
        let (mut pause, mut place) = (Duration::from_secs(1), Some(place));
        while let Err(error) = self.try_start(process, claim, &item, &mut place).await {
            failed(&item, &error);
            if error.is_answer() || !self.rest(pause).await {
                return;
            }
            item.in_doubt = true;
            pause = (pause * 2).min(Duration::from_secs(30));
        }
    }

    /// Its place in line is the next's as soon as the engine has answered, whatever it said.
    async fn try_start(
        &self,
        process: ProcessId,
        claim: ClaimId,
        item: &Claimed,
        place: &mut Option<Place>,
    ) -> Result<(), store::Error> {
        if item.gone {
            say!(events::DEFINITION_GONE, queue_item_id = %item.item, definition_id = %item.definition);
            let reason = "its definition was deleted before it could start";
            return self.fail(claim, item, Class::DefinitionGone, reason).await;
        }
        if item.newer {
            self.store.give_back(&[item.item], claim, NEWER_DELAY).await?;
            return Ok(());
        }
        say!(events::DISPATCHING, queue_item_id = %item.item, definition_id = %item.definition);
        let claimed = Instant::now();
        let mut pause = Duration::from_millis(100);
        let (mut sent, mut in_doubt) = (false, item.in_doubt);
        while let Some((turn, pass)) = self.may_send().await {
            sent = true;
            let answer = self.send(process, item, pass).await;
            drop((turn, place.take()));
            let decision = self.decide(item, answer, in_doubt).await;
            if let Some((kind, error)) = trouble(&decision) {
                say!(events::START_FAILED; titled(self.engine.name()), queue_item_id = %item.item, error);
                ::metrics::counter!(metrics::DISPATCH_FAILURES.name, "reason" => kind).increment(1);
            }
            if self.carry_out(claim, item, &decision, claimed).await? {
                return Ok(());
            }
            // It may have started, even if the engine said that it cannot: its own storage may have answered too late.
            in_doubt = true;
            // One that is held waits for the breaker.
            if matches!(decision, Decision::Hold { .. }) {
                continue;
            }
            if !self.rest(pause).await {
                break;
            }
            pause = (pause * 2).min(Duration::from_secs(5));
        }
        if !sent && !in_doubt {
            self.store.give_back(&[item.item], claim, Duration::ZERO).await?;
        }
        Ok(())
    }

    /// Waits until a start may be sent; none if this process is to stop first.
    async fn may_send(&self) -> Option<(SemaphorePermit<'_>, Pass)> {
        let pass = async { Some((self.line.turn().await?, self.breaker.pass().await)) };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => None,
            pass = pass => pass,
        }
    }

    /// One call, with a deadline; the breaker hears the answer.
    async fn send(&self, process: ProcessId, item: &Claimed, pass: Pass) -> Answer {
        let call = self.engine.start(process, item.item.execution()).instrument(dispatch_span(self.engine.name()));
        let answer = match tokio::time::timeout(ms(self.settings.start_timeout_ms), call).await {
            Ok(answer) => answer,
            Err(_) => Answer::Ambiguous("the engine did not answer in time".to_owned()),
        };
        pass.heard(&answer);
        answer
    }

    /// False if this process is to stop before that time is over.
    async fn rest(&self, pause: Duration) -> bool {
        tokio::select! {
            () = tokio::time::sleep(pause) => true,
            () = self.stop.cancelled() => false,
        }
    }

    async fn decide(&self, item: &Claimed, answer: Answer, in_doubt: bool) -> Decision {
        let max = match &answer {
            Answer::Refused(_) => self.max_attempts(item).await,
            _ => self.settings.max_attempts,
        };
        match queue::decide(answer, item.attempts, max, in_doubt) {
            Decision::Describe { reason } => match self.engine.describe(item.item.execution()).await {
                Ok(described) => {
                    let known = !matches!(described, Described::Unknown);
                    queue::described(known, reason, item.attempts, max)
                }
                Err(reason) => Decision::Repeat { reason },
            },
            decision => decision,
        }
    }

    async fn max_attempts(&self, item: &Claimed) -> u32 {
        let definition = self.store.definition(Which::Id(item.definition), Some(item.workspace)).await;
        definition.ok().and_then(|found| u32::try_from(found.max_attempts).ok()).unwrap_or(self.settings.max_attempts)
    }

    /// True when the item is settled; otherwise its start is to be repeated.
    async fn carry_out(
        &self,
        claim: ClaimId,
        item: &Claimed,
        decision: &Decision,
        claimed: Instant,
    ) -> Result<bool, store::Error> {
        match decision {
            Decision::MarkDispatched => {
                let span = tracing::debug_span!(spans::MARK_DISPATCHED.name);
                self.store.dispatched(&[item.item], claim).instrument(span).await?;
                dispatched(item, claimed.elapsed());
            }
            Decision::Requeue { reason, backoff } => {
                self.store.requeue(item.item, claim, reason, *backoff).await?;
                self.hints.ready(item.workspace);
            }
            Decision::GiveUp { reason } => self.fail(claim, item, Class::DispatchRefused, reason).await?,
            Decision::Hold { .. } | Decision::Repeat { .. } | Decision::Describe { .. } => return Ok(false),
        }
        Ok(true)
    }

    async fn fail(&self, claim: ClaimId, item: &Claimed, class: Class, reason: &str) -> Result<(), store::Error> {
        let end = End { outcome: execution::Status::Failed, output: None, error: Some(Failure::new(class, reason)) };
        let ending = Ending { execution: item.item.execution(), claim: Some(claim), end };
        let ended = self.store.complete(&[ending], None, "dispatcher").await?;
        ::metrics::counter!(metrics::FAILED.name, "reason" => class.name()).increment(1);
        ::metrics::histogram!(metrics::ITEM_ATTEMPTS.name).record(f64::from(item.attempts + 1));
        if ended.iter().any(|ended| ended.freed) {
            self.hints.ready(item.workspace);
        }
        Ok(())
    }
}

fn failed(item: &Claimed, error: &store::Error) {
    let error = error as &dyn std::error::Error;
    say!(events::ITEM_ERROR, queue_item_id = %item.item, error, attempt_count = item.attempts);
}

/// Tells of an item that the engine has, so long after its claim.
fn dispatched(item: &Claimed, since_claim: Duration) {
    say!(events::DISPATCHED, execution_id = %item.item.execution(), queue_item_id = %item.item);
    ::metrics::counter!(metrics::DISPATCHED.name).increment(1);
    ::metrics::histogram!(metrics::ITEM_ATTEMPTS.name).record(f64::from(item.attempts + 1));
    if let Some(waited) = item.waited {
        ::metrics::histogram!(metrics::ENQUEUE_TO_START.name).record(waited + since_claim);
    }
}

/// What a decision that started nothing is counted as, and why it came.
fn trouble(decision: &Decision) -> Option<(&'static str, &str)> {
    match decision {
        Decision::MarkDispatched => None,
        Decision::Requeue { reason, .. } | Decision::GiveUp { reason } => Some(("refused", reason)),
        Decision::Hold { reason } => Some(("unavailable", reason)),
        Decision::Repeat { reason } | Decision::Describe { reason } => Some(("ambiguous", reason)),
    }
}

fn item_span(flow: &Span, item: &Claimed) -> Span {
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

/// An engine's name as it stands in a sentence.
fn titled(engine: &str) -> String {
    let mut letters = engine.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
