//! Hands waiting items to the engine: whose turn it is, the claim, the start.
//!
//!     hint · poll · freed slot ──▶ ring ──claim (one commit a turn)──▶ begun: adopted by the engine
//!                                                                    └▶ claimed: started, then marked
//!
//! Invariants
//! - Everything the engine needs is committed before the engine is called, and no call is made
//!   inside a transaction.
//! - No more is claimed than the engine can hold; a full engine is busy, not unavailable. While the engine is
//!   unavailable nothing is (`breaker`), nor by another protocol than the database's (`process::protocol`), and room
//!   that dead processes' runs wait for is theirs (`reach`).
//! - While a claim is under way the next turn gathers behind it: the busier the process, the fewer
//!   commits an item costs. Only one that a slow claim kept waiting goes beside it; or, when turns are
//!   as large as they may be, the other half of the ring.
//! - One claim of a shard is under way at a time. Claims of several shards wait for none of them: what
//!   somebody else is claiming from is asked again on its own, and keeps no other shard back.
//! - A claim once sent is waited for, also when told to stop: what it took is handed over.
//!
//! Not here: starting what was claimed (`starter`), the strict claim (`store::queue::claim`), what an engine's answer
//! means (`kernel::queue`).

mod claims;
mod reach;
mod sweeps;
mod turn;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use engine::say;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use kernel::ids::{DefinitionId, WorkspaceId};
use kernel::queue::ring::Ring;
use kernel::signals::{events, metrics};
use store::queue::claim::Claims;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::config::ms;
use crate::process::heartbeat::Alive;
use crate::process::hints::Hint;
use crate::process::lease;
use crate::queue::starter::Starter;
use sweeps::Sweeps;
use turn::{Planned, Turn};

/// The most hints taken in before the next turn.
const HINTS: usize = 1_000;
/// How long a workspace that was found full is not asked because something was enqueued.
const FULL_FOR: Duration = Duration::from_millis(100);

pub(crate) struct Dispatcher {
    starter: Starter,
    inbox: mpsc::UnboundedReceiver<Hint>,
    alive: watch::Receiver<Option<Alive>>,
    /// Hears of definitions whose items a claim met and could not start.
    blocked_definitions: mpsc::UnboundedSender<(WorkspaceId, DefinitionId)>,
    /// Whether dispatching is this process's to do.
    ours: lease::Turn,
    /// Runs of dead processes that this one has no room for.
    waiting_runs: Arc<AtomicUsize>,
    stop: CancellationToken,
    ring: Ring,
    batch: i32,
    /// How many workspaces a full turn asks.
    width: usize,
    /// Workspaces known to be full with something waiting, and since when: told of once per transition.
    full: BTreeMap<WorkspaceId, Instant>,
    /// Full ones that have had a slot again since then.
    freed: BTreeMap<WorkspaceId, Instant>,
    /// Who is to be asked next, by shard.
    next: BTreeMap<i16, Vec<Planned>>,
    /// Shards with a claim under way.
    claiming: BTreeSet<i16>,
    /// Shards that somebody else was claiming from: asked on their own, and waited for.
    contended: BTreeSet<i16>,
    /// Those of them in which somebody's data could not be claimed: asked a workspace at a time.
    singly: BTreeSet<i16>,
    /// How many claims are under way, and since when the last; and how many that wait for one shard.
    claims: usize,
    waiting: usize,
    last_claim: Instant,
    /// Workspaces asked, or about to be: each has one ask at a time.
    asked: BTreeSet<WorkspaceId>,
    /// Those of them that were hinted at meanwhile: to be asked again.
    again: BTreeSet<WorkspaceId>,
    /// Items asked for and not yet answered.
    outstanding: i32,
    /// Turns of the ring not yet answered in full, by number.
    turns: BTreeMap<u64, Turn>,
    last_turn: u64,
    under_way: FuturesUnordered<BoxFuture<'static, Done>>,
    sweeping: bool,
}

/// Something under way that came to its end.
enum Done {
    Claim { alone: bool, planned: Vec<Planned>, answer: Result<Claims, store::Error> },
    Sweep { found: Vec<(WorkspaceId, i32)> },
}

impl Dispatcher {
    pub(crate) fn new(
        starter: Starter,
        inbox: mpsc::UnboundedReceiver<Hint>,
        alive: watch::Receiver<Option<Alive>>,
        blocked_definitions: mpsc::UnboundedSender<(WorkspaceId, DefinitionId)>,
        ours: lease::Turn,
        waiting_runs: Arc<AtomicUsize>,
        stop: CancellationToken,
    ) -> Dispatcher {
        let batch = starter.settings.batch_min;
        Dispatcher {
            starter,
            inbox,
            alive,
            blocked_definitions,
            ours,
            waiting_runs,
            stop,
            ring: Ring::default(),
            batch,
            width: usize::MAX,
            full: BTreeMap::new(),
            freed: BTreeMap::new(),
            next: BTreeMap::new(),
            claiming: BTreeSet::new(),
            contended: BTreeSet::new(),
            singly: BTreeSet::new(),
            claims: 0,
            waiting: 0,
            last_claim: Instant::now(),
            asked: BTreeSet::new(),
            again: BTreeSet::new(),
            outstanding: 0,
            turns: BTreeMap::new(),
            last_turn: 0,
            under_way: FuturesUnordered::new(),
            sweeping: false,
        }
    }

    /// Dispatches until told to stop.
    pub(crate) async fn run(mut self) {
        let mut sweeps = Sweeps::new(ms(self.starter.settings.poll_interval_ms));
        let stop = self.stop.clone();
        let (mut breaker, mut ours) = (self.starter.breaker.changes(), self.ours.changes());
        let mut rules = self.starter.rules.changes();
        let mut hints = Vec::new();
        while !stop.is_cancelled() {
            while self.turn() {
                self.claim();
            }
            self.claim();
            self.sweep(&mut sweeps);
            tokio::select! {
                Some(done) = self.under_way.next(), if !self.under_way.is_empty() => self.done(done),
                _ = self.inbox.recv_many(&mut hints, HINTS) => self.gather(&mut hints).await,
                () = tokio::time::sleep(sweeps.until_next()), if !self.sweeping => {}
                () = tokio::time::sleep_until((self.last_claim + claims::SLOW).into()), if self.gathers() => {}
                changed = self.alive.changed() => match changed {
                    Ok(()) => self.forget_others(),
                    Err(_) => break,
                },
                _ = breaker.changed() => {}
                _ = ours.changed() => {}
                _ = rules.changed() => {}
                () = stop.cancelled() => break,
            }
            for hint in hints.drain(..) {
                match hint {
                    // One just found full has nothing to offer until a slot frees; while it is being
                    // asked, nobody knows. Of slots that free elsewhere nobody is told here.
                    Hint::Enqueued(workspace) if self.is_full(workspace) => {}
                    Hint::Enqueued(workspace) | Hint::Workspace(workspace) => self.hinted(workspace),
                    Hint::Freed(workspace, at) => {
                        if self.full.contains_key(&workspace) {
                            self.freed.entry(workspace).or_insert(at);
                        }
                        self.hinted(workspace);
                    }
                    Hint::Room => {}
                    Hint::Sweep => sweeps.all(),
                }
            }
        }
        while let Some(done) = self.under_way.next().await {
            self.done(done);
        }
    }

    /// Takes in what is said at the same time: what ended in one commit frees its slots together.
    async fn gather(&mut self, hints: &mut Vec<Hint>) {
        let mut before = 0;
        while before < hints.len() && hints.len() < HINTS {
            before = hints.len();
            tokio::task::yield_now().await;
            while hints.len() < HINTS
                && let Ok(hint) = self.inbox.try_recv()
            {
                hints.push(hint);
            }
        }
    }

    /// Was it found full a moment ago, with nobody asking it since?
    fn is_full(&self, workspace: WorkspaceId) -> bool {
        let found = self.full.get(&workspace).is_some_and(|found| found.elapsed() < FULL_FOR);
        found && !self.asked.contains(&workspace)
    }

    /// A workspace may have something to start.
    fn hinted(&mut self, workspace: WorkspaceId) {
        if self.asked.contains(&workspace) {
            self.again.insert(workspace);
        } else {
            self.ring.hint(workspace);
        }
    }

    /// Brings workspaces that nobody hinted at into the ring: of a few shards that are due.
    fn sweep(&mut self, sweeps: &mut Sweeps) {
        if self.sweeping {
            return;
        }
        let due = sweeps.due(&self.shards());
        if due.is_empty() {
            return;
        }
        self.sweeping = true;
        let store = self.starter.store.clone();
        self.under_way.push(Box::pin(async move {
            let mut found = Vec::new();
            for shard in due {
                match store.sweep(shard).await {
                    Ok(some) => found.extend(some),
                    Err(error) => {
                        tracing::warn!(shard, error = &error as &dyn std::error::Error, "A sweep failed");
                    }
                }
            }
            Done::Sweep { found }
        }));
    }

    /// One turn of the ring: who is asked next. What waits for a claim of its shard holds up nobody
    /// else; apart from that, the turn before is on its way. True if somebody is to be asked.
    fn turn(&mut self) -> bool {
        let room = self.room();
        let on_its_way = self.next.keys().all(|shard| self.claiming.contains(shard));
        let free =
            self.may_claim() && self.starter.rules.may_claim() && self.alive.borrow().is_some() && self.ours.is_held();
        if !on_its_way || !free || self.ring.is_empty() || room <= 0 {
            return false;
        }
        self.last_turn += 1;
        let some = if self.is_saturated() { self.width.min(self.ring.len().div_ceil(2)) } else { usize::MAX };
        let asks = self.ring.take_of(self.batch.min(room), some);
        self.turns.insert(self.last_turn, Turn::new(self.batch, asks.len()));
        for ask in asks {
            self.outstanding += ask.want;
            self.asked.insert(ask.workspace);
            self.next.entry(ask.workspace.shard()).or_default().push(Planned { ask, turn: self.last_turn });
        }
        true
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Sweep { found } => {
                self.sweeping = false;
                // A look that finds nothing is a run too: an idle dispatcher is not one that stands still.
                ::metrics::counter!(metrics::PROCESSING_RUNS.name).increment(1);
                self.found(found);
            }
            Done::Claim { alone, mut planned, answer } => {
                *if alone { &mut self.waiting } else { &mut self.claims } -= 1;
                for planned in &planned {
                    self.claiming.remove(&planned.ask.workspace.shard());
                }
                match &answer {
                    Ok(claims) => planned = self.ask_again(planned, &claims.busy),
                    // Somebody's data cannot be claimed: the others go on without it.
                    Err(store::Error::Refused { .. }) if !alone || planned.len() > 1 => {
                        planned = self.ask_apart(planned, alone);
                    }
                    Err(_) => {}
                }
                for planned in &planned {
                    self.asked.remove(&planned.ask.workspace);
                }
                match answer {
                    Ok(claims) => {
                        self.count(&planned, &claims);
                        self.took_again(&claims);
                        self.note(&claims);
                    }
                    Err(error) if store::release::is_other_protocol(&error) => {
                        self.count(&planned, &Claims::default());
                        self.starter.rules.refused();
                    }
                    Err(error) => {
                        self.count(&planned, &Claims::default());
                        // A committed claim whose answer was lost is found again by its owner; the
                        // workspaces come back by the next sweep.
                        tracing::warn!(
                            workspaces = planned.len(),
                            error = &error as &dyn std::error::Error,
                            "Claiming failed, going on at the next poll"
                        );
                    }
                }
                for planned in &planned {
                    if self.again.remove(&planned.ask.workspace) {
                        self.ring.hint(planned.ask.workspace);
                    }
                }
            }
        }
    }

    /// Books a claim's answer to its turns; a turn answered in full sets the size of the next.
    fn count(&mut self, planned: &[Planned], claims: &Claims) {
        for Planned { ask, turn: number } in planned {
            self.outstanding -= ask.want;
            let Some(turn) = self.turns.get_mut(number) else { continue };
            let claimed = claims.items.iter().filter(|item| item.workspace == ask.workspace).count();
            turn.claimed += i32::try_from(claimed).unwrap_or(i32::MAX);
            if let Some(asked) = claims.asked.iter().find(|asked| asked.workspace == ask.workspace) {
                turn.waiting |= asked.more;
                turn.more |= asked.could_go_on();
            }
            turn.open -= 1;
            if turn.open == 0
                && let Some(turn) = self.turns.remove(number)
            {
                self.width = turn.width(self.width);
                self.batch = turn.answered(&self.starter.settings);
            }
        }
    }

    /// Tells how long slots of full workspaces were free.
    fn took_again(&mut self, claims: &Claims) {
        for item in &claims.items {
            if let Some(freed) = self.freed.remove(&item.workspace) {
                ::metrics::histogram!(metrics::COMPLETION_TO_NEXT.name).record(freed.elapsed());
            }
        }
        for asked in &claims.asked {
            self.freed.remove(&asked.workspace);
        }
    }

    /// Puts back who may be asked again, and tells of who became full.
    fn note(&mut self, claims: &Claims) {
        for asked in &claims.asked {
            let claimed = claims.items.iter().any(|item| item.workspace == asked.workspace);
            for definition in &asked.blocked_definitions {
                let _stopping = self.blocked_definitions.send((asked.workspace, *definition));
            }
            // One that stands behind what may not start comes back when that is out of its way. One
            // with room and something ready, of which nothing was to be had, has it locked by
            // somebody: the sweep comes back to it.
            let goes_on = asked.blocked_definitions.is_empty() && (claimed || asked.put_back);
            if goes_on && asked.could_go_on() {
                self.ring.add(asked.workspace, asked.weight);
            } else {
                self.ring.drop_debt(asked.workspace);
            }
            if !asked.at_capacity() {
                self.full.remove(&asked.workspace);
            } else if self.full.insert(asked.workspace, Instant::now()).is_none() {
                let workspace = asked.workspace;
                say!(events::AT_CAPACITY, workspace_id = %workspace, active_count = asked.running, limit = asked.limit);
                ::metrics::counter!(metrics::AT_CAPACITY.name).increment(1);
            }
        }
    }
}
