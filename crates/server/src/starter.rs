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
//! Not here: whose turn it is (`dispatcher`), what an answer means (`kernel::queue`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use engine::{Described, Engine};
use futures_util::{StreamExt, stream};
use kernel::execution;
use kernel::failure::{Class, Failure};
use kernel::ids::{ClaimId, ProcessId, QueueItemId};
use kernel::queue::{self, Answer, Decision};
use kernel::ring::Ask;
use store::Store;
use store::admission::{Claimed, Claims};
use store::definition::Which;
use store::run::{End, Ending};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::breaker::{Breaker, Pass};
use crate::config::{Dispatch, ms};
use crate::hints::Hints;
use crate::metrics;

/// How often an engine may refuse a start, where the definition does not say.
const DEFAULT_ATTEMPTS: u32 = 3;
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
    /// No start is sent any more.
    pub(crate) stop: CancellationToken,
    /// Starts under way.
    pub(crate) tasks: TaskTracker,
}

impl Starter {
    /// Claims from one shard and starts what was claimed.
    pub(crate) async fn claim(&self, process: ProcessId, shard: i16, asks: &[Ask]) -> Result<Claims, store::Error> {
        let claim = ClaimId(store::new_id());
        let engine = self.engine.begins_with_claim().then(|| self.engine.name());
        let mut claims = match self.store.claim(shard, asks, claim, process, engine).await {
            Ok(claims) => claims,
            Err(error) => {
                // It may have been committed. What it began is found among the runs this process
                // owns; what it only claimed is asked for under the same claim.
                let starter = self.clone();
                self.tasks.spawn(async move { starter.find_claimed(process, shard, claim).await });
                return Err(error);
            }
        };
        let begun: Vec<_> = claims.items.iter_mut().filter_map(|item| item.begun.take()).collect();
        ::metrics::counter!(metrics::DISPATCHED).increment(begun.len() as u64);
        let begun_ids: BTreeSet<QueueItemId> = begun.iter().map(|run| run.execution.queue_item()).collect();
        self.engine.adopt(process, begun);
        let rest: Vec<Claimed> = claims.items.iter().filter(|item| !begun_ids.contains(&item.item)).cloned().collect();
        if !rest.is_empty() {
            let starter = self.clone();
            self.tasks.spawn(async move { starter.start_all(process, claim, rest).await });
        }
        Ok(claims)
    }

    /// Starts what a claim took whose answer was lost.
    async fn find_claimed(&self, process: ProcessId, shard: i16, claim: ClaimId) {
        for pause in [1, 2, 4, 8, 16] {
            if !self.rest(Duration::from_secs(pause)).await {
                return;
            }
            match self.store.claimed_under(shard, claim).await {
                // Nothing yet: the claim may still be waiting for its shard.
                Ok(items) if items.is_empty() => {}
                Ok(items) => return self.start_all(process, claim, items).await,
                Err(_) => {}
            }
        }
        // Nothing was claimed, or this process lapsed meanwhile and a takeover finds it.
    }

    /// Starts claimed items side by side, each on its own.
    pub(crate) async fn start_all(&self, process: ProcessId, claim: ClaimId, items: Vec<Claimed>) {
        let starts = items.into_iter().map(|item| self.start(process, claim, item));
        stream::iter(starts).buffer_unordered(self.settings.parallel_starts).for_each(|()| async {}).await;
    }

    async fn start(&self, process: ProcessId, claim: ClaimId, item: Claimed) {
        if let Err(error) = self.try_start(process, claim, &item).await {
            // The claim and its slot stay; when this process cannot finish it, a takeover does.
            tracing::error!(
                queue_item_id = %item.item,
                error = &error as &dyn std::error::Error,
                "Error processing queue item"
            );
        }
    }

    async fn try_start(&self, process: ProcessId, claim: ClaimId, item: &Claimed) -> Result<(), store::Error> {
        if item.gone {
            tracing::warn!(queue_item_id = %item.item, definition_id = %item.definition, "Workflow definition not found");
            let reason = "its definition was deleted before it could start";
            return self.fail(claim, item, Class::DefinitionGone, reason).await;
        }
        if item.newer {
            self.store.give_back(&[item.item], claim, NEWER_DELAY).await?;
            return Ok(());
        }
        tracing::info!(queue_item_id = %item.item, definition_id = %item.definition, "Dispatching queue item");
        let mut pause = Duration::from_millis(100);
        let (mut sent, mut in_doubt) = (false, item.in_doubt);
        while let Some(pass) = self.may_send().await {
            sent = true;
            let answer = self.send(process, item, pass).await;
            let decision = self.decide(item, answer, in_doubt).await;
            if self.carry_out(claim, item, &decision).await? {
                return Ok(());
            }
            let Decision::Hold { reason } = &decision else {
                tracing::error!(queue_item_id = %item.item, ?decision, "Failed to start workflow, trying again");
                ::metrics::counter!(metrics::DISPATCH_FAILURES, "reason" => "ambiguous").increment(1);
                in_doubt = true;
                if !self.rest(pause).await {
                    break;
                }
                pause = (pause * 2).min(Duration::from_secs(5));
                continue;
            };
            tracing::debug!(queue_item_id = %item.item, reason, "Keeping a queue item until the engine is available");
            ::metrics::counter!(metrics::DISPATCH_FAILURES, "reason" => "unavailable").increment(1);
        }
        if !sent && !in_doubt {
            self.store.give_back(&[item.item], claim, Duration::ZERO).await?;
        }
        Ok(())
    }

    /// Waits until a start may be sent; none if this process is to stop first.
    async fn may_send(&self) -> Option<Pass> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => None,
            pass = self.breaker.pass() => Some(pass),
        }
    }

    /// One call, with a deadline; the breaker hears the answer.
    async fn send(&self, process: ProcessId, item: &Claimed, pass: Pass) -> Answer {
        let call = self.engine.start(process, item.item.execution());
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
            _ => DEFAULT_ATTEMPTS,
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
        definition.ok().and_then(|found| u32::try_from(found.max_attempts).ok()).unwrap_or(DEFAULT_ATTEMPTS)
    }

    /// True when the item is settled; otherwise its start is to be repeated.
    async fn carry_out(&self, claim: ClaimId, item: &Claimed, decision: &Decision) -> Result<bool, store::Error> {
        match decision {
            Decision::MarkDispatched => {
                self.store.dispatched(&[item.item], claim).await?;
                tracing::info!(queue_item_id = %item.item, execution_id = %item.item.execution(), "Dispatched execution");
                ::metrics::counter!(metrics::DISPATCHED).increment(1);
            }
            Decision::Requeue { reason, backoff } => {
                self.store.requeue(item.item, claim, reason, *backoff).await?;
                ::metrics::counter!(metrics::DISPATCH_FAILURES, "reason" => "refused").increment(1);
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
        ::metrics::counter!(metrics::FAILED, "reason" => format!("{class:?}")).increment(1);
        if ended.iter().any(|ended| ended.freed) {
            self.hints.ready(item.workspace);
        }
        Ok(())
    }
}
