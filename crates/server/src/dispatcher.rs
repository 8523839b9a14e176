//! Hands waiting items to the engine: whose turn it is, the claim, the start.
//!
//!     hint · poll · freed slot ──▶ ring ──claim (one commit a shard)──▶ begun: adopted by the engine
//!                                                                     └▶ claimed: started, then marked
//!
//! Invariants
//! - Everything the engine needs is committed before the engine is called, and no call is made
//!   inside a transaction.
//! - No more is claimed than the engine can hold; a full engine is busy, not unavailable.
//! - An item's trouble is its own: the rest of the batch goes on.
//!
//! Not here: the strict claim (`store::admission`), what an engine's answer means (`kernel::queue`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::Engine;
use futures_util::{StreamExt, stream};
use kernel::execution;
use kernel::failure::{Class, Failure};
use kernel::ids::{ClaimId, ProcessId, QueueItemId, WorkspaceId};
use kernel::queue::{self, Answer, Decision};
use kernel::ring::{Ask, Ring};
use store::Store;
use store::admission::{Asked, Claimed, Claims};
use store::definition::Which;
use store::run::{End, Ending};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::config::{Dispatch, ms};
use crate::heartbeat::Alive;
use crate::hints::{Hint, Hints};
use crate::metrics;

/// How many shards are claimed from at once.
const PARALLEL_CLAIMS: usize = 4;
/// The most hints taken in before the next turn.
const HINTS: usize = 1_000;
/// How often an engine may refuse a start, where the definition does not say.
const DEFAULT_ATTEMPTS: u32 = 3;
/// How long an item of a newer build waits before it is offered again.
const NEWER_DELAY: Duration = Duration::from_secs(5);

/// What starting an item needs; shared with `takeover`.
#[derive(Clone)]
pub(crate) struct Starter {
    pub(crate) store: Store,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) settings: Dispatch,
    pub(crate) hints: Hints,
}

pub(crate) struct Dispatcher {
    starter: Starter,
    inbox: mpsc::UnboundedReceiver<Hint>,
    alive: watch::Receiver<Option<Alive>>,
    /// Hears of workspaces where a claim met items of a paused or full definition.
    met_closed: mpsc::UnboundedSender<WorkspaceId>,
    stop: CancellationToken,
    ring: Ring,
    batch: i32,
    /// Workspaces known to be full with something waiting: told of once per transition.
    full: BTreeSet<WorkspaceId>,
}

impl Dispatcher {
    pub(crate) fn new(
        starter: Starter,
        inbox: mpsc::UnboundedReceiver<Hint>,
        alive: watch::Receiver<Option<Alive>>,
        met_closed: mpsc::UnboundedSender<WorkspaceId>,
        stop: CancellationToken,
    ) -> Dispatcher {
        let batch = starter.settings.batch_min;
        Dispatcher { starter, inbox, alive, met_closed, stop, ring: Ring::default(), batch, full: BTreeSet::new() }
    }

    /// Dispatches until told to stop.
    pub(crate) async fn run(mut self) {
        let mut sweeps = Sweeps::new(ms(self.starter.settings.poll_interval_ms));
        loop {
            let served = self.turn().await;
            if self.stop.is_cancelled() {
                return;
            }
            let mut hints = Vec::new();
            // A turn that served somebody is followed by the next at once; hints that came meanwhile
            // are taken in without waiting for more.
            if served {
                while hints.len() < HINTS
                    && let Ok(hint) = self.inbox.try_recv()
                {
                    hints.push(hint);
                }
            } else {
                let next_sweep = sweeps.until_next(self.shards().len());
                tokio::select! {
                    _ = self.inbox.recv_many(&mut hints, HINTS) => {}
                    () = tokio::time::sleep(next_sweep) => {}
                    changed = self.alive.changed() => if changed.is_err() { return },
                    () = self.stop.cancelled() => return,
                }
            }
            for hint in hints {
                match hint {
                    Hint::Workspace(workspace) => self.ring.hint(workspace),
                    Hint::Room => {}
                    Hint::Sweep => sweeps.all(),
                }
            }
            self.sweep(&mut sweeps).await;
        }
    }

    fn shards(&self) -> Arc<[i16]> {
        self.alive.borrow().as_ref().map(|alive| Arc::clone(&alive.shards)).unwrap_or_default()
    }

    /// Brings workspaces that nobody hinted at into the ring; a shard that is due, one at a time.
    async fn sweep(&mut self, sweeps: &mut Sweeps) {
        for shard in sweeps.due(&self.shards()) {
            match self.starter.store.sweep(shard).await {
                Ok(found) => {
                    for (workspace, weight) in found {
                        self.ring.add(workspace, weight);
                    }
                }
                Err(error) => {
                    tracing::warn!(shard, error = &error as &dyn std::error::Error, "A sweep failed");
                    return;
                }
            }
        }
    }

    /// One turn of the ring. True if it claimed anything.
    async fn turn(&mut self) -> bool {
        let Some(process) = self.alive.borrow().as_ref().map(|alive| alive.process) else { return false };
        let room = i32::try_from(self.starter.engine.capacity()).unwrap_or(i32::MAX);
        if self.ring.is_empty() || room == 0 {
            return false;
        }
        let started = Instant::now();
        let asks = self.ring.take(self.batch.min(room));
        let claims = self.claim(process, asks).await;
        let claimed = claims.items.len();
        self.note(&claims.asked);
        if claimed > 0 {
            tracing::debug!(batch_size = claimed, "Processing {claimed} queue items");
            ::metrics::histogram!(metrics::BATCH_SIZE).record(u32::try_from(claimed).unwrap_or(u32::MAX));
            ::metrics::counter!(metrics::PROCESSING_RUNS).increment(1);
            ::metrics::histogram!(metrics::PROCESSING_DURATION).record(started.elapsed());
        }
        self.batch = match i32::try_from(claimed) {
            Ok(claimed) if claimed >= self.batch => (self.batch * 2).min(self.starter.settings.batch_max),
            _ => (self.batch / 2).max(self.starter.settings.batch_min),
        };
        claimed > 0
    }

    async fn claim(&mut self, process: ProcessId, asks: Vec<Ask>) -> Claims {
        let mut by_shard: BTreeMap<i16, Vec<Ask>> = BTreeMap::new();
        for ask in asks {
            by_shard.entry(ask.workspace.shard()).or_default().push(ask);
        }
        let calls = by_shard.into_iter().map(|(shard, asks)| {
            let starter = self.starter.clone();
            async move { (starter.claim(process, shard, &asks).await, asks) }
        });
        let mut all = Claims::default();
        let mut answers = stream::iter(calls).buffer_unordered(PARALLEL_CLAIMS);
        while let Some((answer, asks)) = answers.next().await {
            match answer {
                Ok(claims) => {
                    all.items.extend(claims.items);
                    all.asked.extend(claims.asked);
                }
                Err(error) => {
                    // A committed claim whose answer was lost is found again by its owner; the
                    // workspaces come back by the next sweep.
                    tracing::warn!(
                        workspaces = asks.len(),
                        error = &error as &dyn std::error::Error,
                        "Claiming failed, going on at the next poll"
                    );
                }
            }
        }
        all
    }

    /// Puts back who may be asked again, and tells of who became full.
    fn note(&mut self, asked: &[Asked]) {
        for asked in asked {
            if asked.parked {
                let _stopping = self.met_closed.send(asked.workspace);
            }
            if asked.more && asked.running < asked.limit {
                self.ring.add(asked.workspace, asked.weight);
            } else {
                self.ring.drop_debt(asked.workspace);
            }
            if !asked.at_capacity() {
                self.full.remove(&asked.workspace);
            } else if self.full.insert(asked.workspace) {
                tracing::info!(
                    workspace_id = %asked.workspace,
                    active_count = asked.running,
                    limit = asked.limit,
                    "Workspace at capacity"
                );
                ::metrics::counter!(metrics::AT_CAPACITY).increment(1);
            }
        }
    }
}

impl Starter {
    /// Claims from one shard and starts what was claimed.
    async fn claim(&self, process: ProcessId, shard: i16, asks: &[Ask]) -> Result<Claims, store::Error> {
        let claim = ClaimId(store::new_id());
        let engine = self.engine.begins_with_claim().then(|| self.engine.name());
        let mut claims = match self.store.claim(shard, asks, claim, process, engine).await {
            Ok(claims) => claims,
            Err(error) => {
                // It may have been committed. What it began is found among the runs this process
                // owns; what it only claimed is asked for under the same claim.
                let starter = self.clone();
                tokio::spawn(async move { starter.find_claimed(process, shard, claim).await });
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
            tokio::spawn(async move { starter.start_all(process, claim, rest).await });
        }
        Ok(claims)
    }

    /// Starts what a claim took whose answer was lost.
    async fn find_claimed(&self, process: ProcessId, shard: i16, claim: ClaimId) {
        for pause in [1, 2, 4, 8, 16] {
            tokio::time::sleep(Duration::from_secs(pause)).await;
            if let Ok(items) = self.store.claimed_under(shard, claim).await {
                return self.start_all(process, claim, items).await;
            }
        }
        // The database has been away for so long that this process lapsed; a takeover finds them.
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
        let mut in_doubt = item.in_doubt;
        loop {
            let call = self.engine.start(process, item.item.execution());
            let answer = match tokio::time::timeout(ms(self.settings.start_timeout_ms), call).await {
                Ok(answer) => answer,
                Err(_) => Answer::Ambiguous("the engine did not answer in time".to_owned()),
            };
            let decision = self.decide(item, answer, in_doubt).await;
            if self.carry_out(claim, item, &decision).await? {
                return Ok(());
            }
            tracing::error!(queue_item_id = %item.item, ?decision, "Failed to start workflow, trying again");
            ::metrics::counter!(metrics::DISPATCH_FAILURES, "reason" => "ambiguous").increment(1);
            in_doubt = true;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(5));
        }
    }

    async fn decide(&self, item: &Claimed, answer: Answer, in_doubt: bool) -> Decision {
        let max = match &answer {
            Answer::Refused(_) => self.max_attempts(item).await,
            _ => DEFAULT_ATTEMPTS,
        };
        match queue::decide(answer, item.attempts, max, in_doubt) {
            Decision::Describe { reason } => match self.engine.describe(item.item.execution()).await {
                Ok(known) => queue::described(known, reason, item.attempts, max),
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

/// When which shard is looked at: each once a poll, spread evenly.
struct Sweeps {
    poll: Duration,
    last: BTreeMap<i16, Instant>,
}

impl Sweeps {
    fn new(poll: Duration) -> Sweeps {
        Sweeps { poll, last: BTreeMap::new() }
    }

    /// Every shard is due at once.
    fn all(&mut self) {
        self.last.clear();
    }

    fn until_next(&self, shards: usize) -> Duration {
        let spread = self.poll / u32::try_from(shards.max(1)).unwrap_or(1);
        spread.max(Duration::from_millis(5))
    }

    /// The shards that are due now: new ones at once, the others in their turn.
    fn due(&mut self, shards: &[i16]) -> Vec<i16> {
        self.last.retain(|shard, _| shards.contains(shard));
        let now = Instant::now();
        let due: Vec<i16> = shards
            .iter()
            .copied()
            .filter(|shard| self.last.get(shard).is_none_or(|last| now.duration_since(*last) >= self.poll))
            .collect();
        for shard in &due {
            self.last.insert(*shard, now);
        }
        due
    }
}
