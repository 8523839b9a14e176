//! Hands waiting items to the engine: whose turn it is, the claim, the start.
//!
//!     hint · poll · freed slot ──▶ ring ──claim (one commit a shard)──▶ begun: adopted by the engine
//!                                                                     └▶ claimed: started, then marked
//!
//! Invariants
//! - Everything the engine needs is committed before the engine is called, and no call is made
//!   inside a transaction.
//! - No more is claimed than the engine can hold; a full engine is busy, not unavailable.
//!
//! Not here: starting what was claimed (`starter`), the strict claim (`store::admission`), what an engine's answer means (`kernel::queue`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use kernel::ids::{ProcessId, SHARDS, WorkspaceId};
use kernel::ring::{Ask, Ring};
use store::admission::{Asked, Claims};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::config::ms;
use crate::heartbeat::Alive;
use crate::hints::Hint;
use crate::metrics;
use crate::starter::Starter;

/// How many shards are claimed from at once.
const PARALLEL_CLAIMS: usize = 4;
/// The most hints taken in before the next turn.
const HINTS: usize = 1_000;

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
            let again = self.turn().await;
            if self.stop.is_cancelled() {
                return;
            }
            let mut hints = Vec::new();
            // While there is somebody to ask, hints are taken in without waiting for more.
            if again {
                while hints.len() < HINTS
                    && let Ok(hint) = self.inbox.try_recv()
                {
                    hints.push(hint);
                }
            } else {
                let next_sweep = sweeps.until_next();
                tokio::select! {
                    _ = self.inbox.recv_many(&mut hints, HINTS) => {}
                    () = tokio::time::sleep(next_sweep) => {}
                    changed = self.alive.changed() => if changed.is_err() { return },
                    () = self.stop.cancelled() => return,
                }
            }
            for hint in hints {
                match hint {
                    // One known to be full has nothing to offer until a slot frees or the sweep says so.
                    Hint::Enqueued(workspace) if self.full.contains(&workspace) => {}
                    Hint::Enqueued(workspace) | Hint::Workspace(workspace) => self.ring.hint(workspace),
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

    /// Brings workspaces that nobody hinted at into the ring: of a few shards that are due, so that
    /// turns go on in between.
    async fn sweep(&mut self, sweeps: &mut Sweeps) {
        for shard in sweeps.due(&self.shards()) {
            match self.starter.store.sweep(shard).await {
                Ok(found) => {
                    for (workspace, weight) in found {
                        self.full.remove(&workspace);
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

    /// One turn of the ring. True if there is somebody to ask at once.
    async fn turn(&mut self) -> bool {
        let Some(process) = self.alive.borrow().as_ref().map(|alive| alive.process) else { return false };
        let room = i32::try_from(self.starter.engine.capacity()).unwrap_or(i32::MAX);
        if self.ring.is_empty() || room == 0 {
            return false;
        }
        let started = Instant::now();
        let asks = self.ring.take(self.batch.min(room));
        let (claims, failed) = self.claim(process, asks).await;
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
        !failed && !self.ring.is_empty()
    }

    async fn claim(&mut self, process: ProcessId, asks: Vec<Ask>) -> (Claims, bool) {
        let mut by_shard: BTreeMap<i16, Vec<Ask>> = BTreeMap::new();
        for ask in asks {
            by_shard.entry(ask.workspace.shard()).or_default().push(ask);
        }
        let calls = by_shard.into_iter().map(|(shard, asks)| {
            let starter = self.starter.clone();
            async move { (starter.claim(process, shard, &asks).await, asks) }
        });
        let (mut all, mut failed) = (Claims::default(), false);
        let mut answers = stream::iter(calls).buffer_unordered(PARALLEL_CLAIMS);
        while let Some((answer, asks)) = answers.next().await {
            match answer {
                Ok(claims) => {
                    all.items.extend(claims.items);
                    all.asked.extend(claims.asked);
                }
                Err(error) => {
                    failed = true;
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
        (all, failed)
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

/// When which shard is looked at: each once a poll, spread evenly.
struct Sweeps {
    poll: Duration,
    next: BTreeMap<i16, Next>,
}

struct Next {
    at: Instant,
    /// It was looked at before, and so has its place in the poll.
    placed: bool,
}

/// The most shards looked at between two turns.
const SWEPT_AT_ONCE: usize = 4;

impl Sweeps {
    fn new(poll: Duration) -> Sweeps {
        Sweeps { poll, next: BTreeMap::new() }
    }

    /// Every shard is due at once.
    fn all(&mut self) {
        self.next.clear();
    }

    fn until_next(&self) -> Duration {
        let next = self.next.values().map(|next| next.at.saturating_duration_since(Instant::now())).min();
        next.unwrap_or(self.poll).min(self.poll)
    }

    /// The next shards that are due: new ones at once, the others in their turn.
    fn due(&mut self, shards: &[i16]) -> Vec<i16> {
        self.next.retain(|shard, _| shards.contains(shard));
        let now = Instant::now();
        for shard in shards {
            self.next.entry(*shard).or_insert(Next { at: now, placed: false });
        }
        let due = self.next.iter_mut().filter(|(_, next)| next.at <= now).take(SWEPT_AT_ONCE);
        due.map(|(shard, next)| {
            let place = self.poll * u32::from(shard.unsigned_abs() + 1) / u32::from(SHARDS.unsigned_abs());
            next.at = now + if next.placed { self.poll } else { place };
            next.placed = true;
            *shard
        })
        .collect()
    }
}
