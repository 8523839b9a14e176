//! The dispatcher: picks workspaces in turn from a ring (round robin), claims their items, and starts them.
//!
//!     notification · poll · freed slot ──▶ ring ──claim──▶ embedded engine: runs what the claim began
//!                                                      └▶ external engine: item claimed, run started, item marked
//!
//! Invariants
//! - A claim is committed before the engine is called, and no transaction is open during a call.
//! - No more items are claimed than the engine has room for. Nothing is claimed while the engine is unavailable
//!   (`breaker`) or the database requires another claim protocol (`process::protocol`). Room that runs of dead
//!   processes wait for is not used for new items (`capacity`).
//! - Workspaces that become ready during a claim share the next claim: under load, one commit claims many items. A
//!   second claim is sent at the same time only if the first is slow, or if rounds have their largest size (`claims`).
//! - This process has at most one claim of a shard in progress. A claim of several shards waits for no shard's lock: a
//!   shard that another process has locked is claimed separately, and delays no other shard.
//! - Each claim that was sent is awaited, even during shutdown, because the items that it claimed must be handled.
//!
//! Not here: starting claimed items (`starter`), the claim statement (`store::queue::claim`), what an engine's answer
//! means (`kernel::queue`).

mod capacity;
mod claims;
mod full;
mod round;
mod sweep_schedule;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use engine::log_event;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use kernel::ids::{DefinitionId, WorkspaceId};
use kernel::queue::round_robin::RoundRobin;
use kernel::signals::{events, metrics};
use store::queue::claim::Claims;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::config::ms;
use crate::process::heartbeat::Membership;
use crate::process::lease;
use crate::process::notifications::Notification;
use crate::queue::starter::Starter;
use full::FullWorkspaces;
use round::{PlannedClaim, Round};
use sweep_schedule::SweepSchedule;

/// The most notifications handled before the next round.
const MAX_NOTIFICATIONS: usize = 1_000;

pub(crate) struct Dispatcher {
    starter: Starter,
    notifications: mpsc::UnboundedReceiver<Notification>,
    membership: watch::Receiver<Option<Membership>>,
    /// Sends the definitions whose items a claim found but could not claim to the loop that marks them as blocked.
    blocked_definitions: mpsc::UnboundedSender<(WorkspaceId, DefinitionId)>,
    /// Whether this process may dispatch.
    lease: lease::LeaseState,
    /// The number of runs of dead processes that this process has no room for.
    waiting_runs: Arc<AtomicUsize>,
    stop: CancellationToken,
    ring: RoundRobin,
    batch: i32,
    /// How many workspaces a round of the largest size asks for items.
    workspaces_per_round: usize,
    full: FullWorkspaces,
    /// The workspaces to ask next, by shard.
    next: BTreeMap<i16, Vec<PlannedClaim>>,
    /// Shards with a claim in progress.
    claiming: BTreeSet<i16>,
    /// Shards that another process had locked. Each gets a claim of its own, which waits for the shard's lock.
    contended: BTreeSet<i16>,
    /// Shards in which the data of a workspace made a claim fail. Their workspaces are claimed from one at a time.
    one_by_one: BTreeSet<i16>,
    /// How many claims of several shards are in progress.
    claims: usize,
    /// How many claims of one shard are in progress. Such a claim waits for the shard's lock.
    waiting_claims: usize,
    /// When the last claim was sent.
    last_claim: Instant,
    /// Workspaces in a planned claim or a claim in progress. A workspace is never in two claims at a time.
    asked: BTreeSet<WorkspaceId>,
    /// The workspaces of `asked` with a new notification: they are asked again after their claim.
    ask_again: BTreeSet<WorkspaceId>,
    /// The number of items that planned claims and claims in progress may claim.
    outstanding: i32,
    /// Rounds with claims that are not finished, by number.
    rounds: BTreeMap<u64, Round>,
    last_round: u64,
    under_way: FuturesUnordered<BoxFuture<'static, Finished>>,
    sweeping: bool,
}

/// A claim or a sweep that has finished.
enum Finished {
    Claim { alone: bool, planned: Vec<PlannedClaim>, answer: Result<Claims, store::Error> },
    Sweep { found: Vec<(WorkspaceId, i32)> },
}

impl Dispatcher {
    pub(crate) fn new(
        starter: Starter,
        notifications: mpsc::UnboundedReceiver<Notification>,
        membership: watch::Receiver<Option<Membership>>,
        blocked_definitions: mpsc::UnboundedSender<(WorkspaceId, DefinitionId)>,
        lease: lease::LeaseState,
        waiting_runs: Arc<AtomicUsize>,
        stop: CancellationToken,
    ) -> Dispatcher {
        let batch = starter.settings.batch_min;
        Dispatcher {
            starter,
            notifications,
            membership,
            blocked_definitions,
            lease,
            waiting_runs,
            stop,
            ring: RoundRobin::default(),
            batch,
            workspaces_per_round: usize::MAX,
            full: FullWorkspaces::default(),
            next: BTreeMap::new(),
            claiming: BTreeSet::new(),
            contended: BTreeSet::new(),
            one_by_one: BTreeSet::new(),
            claims: 0,
            waiting_claims: 0,
            last_claim: Instant::now(),
            asked: BTreeSet::new(),
            ask_again: BTreeSet::new(),
            outstanding: 0,
            rounds: BTreeMap::new(),
            last_round: 0,
            under_way: FuturesUnordered::new(),
            sweeping: false,
        }
    }

    /// Dispatches until `stop` is cancelled.
    pub(crate) async fn run(mut self) {
        let mut sweeps = SweepSchedule::new(ms(self.starter.settings.poll_interval_ms));
        let stop = self.stop.clone();
        let (mut breaker, mut lease) = (self.starter.breaker.changes(), self.lease.changes());
        let mut claim_protocol = self.starter.claim_protocol.changes();
        let mut notifications = Vec::new();
        while !stop.is_cancelled() {
            while self.plan_round() {
                self.send_claims();
            }
            self.send_claims();
            self.start_sweep(&mut sweeps);
            let slow_at = self.last_claim + self.slow_after();
            tokio::select! {
                Some(done) = self.under_way.next(), if !self.under_way.is_empty() => self.finish(done),
                _ = self.notifications.recv_many(&mut notifications, MAX_NOTIFICATIONS) => {
                    self.gather(&mut notifications).await;
                }
                () = tokio::time::sleep(sweeps.until_next()), if !self.sweeping => {}
                () = tokio::time::sleep_until(slow_at.into()), if self.waits_to_claim() => {}
                () = self.full.recheck_due() => {}
                changed = self.membership.changed() => match changed {
                    Ok(()) => self.forget_foreign_shards(),
                    Err(_) => break,
                },
                _ = breaker.changed() => {}
                _ = lease.changed() => {}
                _ = claim_protocol.changed() => {}
                () = stop.cancelled() => break,
            }
            while let Some(workspace) = self.full.take_recheck(Instant::now()) {
                self.on_notification(workspace);
            }
            for notification in notifications.drain(..) {
                match notification {
                    // A workspace just found at capacity can start nothing until a slot is freed.
                    Notification::Enqueued(workspace) if self.is_deferred(workspace) => {}
                    Notification::Enqueued(workspace) | Notification::Ready(workspace) => {
                        self.on_notification(workspace)
                    }
                    Notification::SlotFreed(workspace, at) => {
                        self.full.record_freed(workspace, at);
                        self.on_notification(workspace);
                    }
                    Notification::Room => {}
                    Notification::SweepAll => sweeps.make_all_due(),
                }
            }
        }
        while let Some(done) = self.under_way.next().await {
            self.finish(done);
        }
    }

    /// Collects notifications that arrive together, such as those of executions that ended in one commit.
    async fn gather(&mut self, notifications: &mut Vec<Notification>) {
        let mut before = 0;
        while before < notifications.len() && notifications.len() < MAX_NOTIFICATIONS {
            before = notifications.len();
            tokio::task::yield_now().await;
            while notifications.len() < MAX_NOTIFICATIONS
                && let Ok(notification) = self.notifications.try_recv()
            {
                notifications.push(notification);
            }
        }
    }

    /// True if the workspace was just found at capacity and no claim asks it now. It is then asked a moment later.
    fn is_deferred(&mut self, workspace: WorkspaceId) -> bool {
        !self.asked.contains(&workspace) && self.full.defer(workspace, Instant::now())
    }

    /// Adds a workspace that may have an item to start to the ring, or marks it to be asked again.
    fn on_notification(&mut self, workspace: WorkspaceId) {
        if self.asked.contains(&workspace) {
            self.ask_again.insert(workspace);
        } else {
            self.ring.add_unweighted(workspace);
        }
    }

    /// Starts a sweep, which finds workspaces with ready items in a few shards, even without a notification.
    fn start_sweep(&mut self, sweeps: &mut SweepSchedule) {
        if self.sweeping {
            return;
        }
        let due = sweeps.take_due(&self.claim_shards());
        if due.is_empty() {
            return;
        }
        self.sweeping = true;
        let store = self.starter.store.clone();
        self.under_way.push(Box::pin(async move {
            let (mut found, mut groups) = (Vec::new(), VecDeque::from([due]));
            while let Some(shards) = groups.pop_front() {
                match store.sweep(&shards).await {
                    Ok(some) => found.extend(some),
                    // A failure in one shard hides no items of the other shards.
                    Err(_) if shards.len() > 1 => groups.extend(shards.chunks(1).map(<[i16]>::to_vec)),
                    Err(error) => {
                        tracing::warn!(
                            ?shards,
                            error = &error as &dyn std::error::Error,
                            "Sweep of a shard for ready items failed; the next poll retries it"
                        );
                    }
                }
            }
            Finished::Sweep { found }
        }));
    }

    /// Plans one round of the ring: which workspaces the next claims ask. No round is planned while workspaces of an
    /// earlier round could still be sent. True if a round was planned.
    fn plan_round(&mut self) -> bool {
        let room = self.claim_limit();
        let on_its_way = self.next.keys().all(|shard| self.claiming.contains(shard));
        let free = self.may_claim()
            && self.starter.claim_protocol.may_claim()
            && self.membership.borrow().is_some()
            && self.lease.is_held();
        if !on_its_way || !free || self.ring.is_empty() || room <= 0 {
            return false;
        }
        self.last_round += 1;
        let some =
            if self.is_saturated() { self.workspaces_per_round.min(self.ring.len().div_ceil(2)) } else { usize::MAX };
        let quotas = self.ring.next_batch_of(self.batch.min(room), some);
        self.rounds.insert(self.last_round, Round::new(self.batch, quotas.len()));
        for quota in quotas {
            self.outstanding += quota.limit;
            self.asked.insert(quota.workspace);
            self.next.entry(quota.workspace.shard()).or_default().push(PlannedClaim { quota, round: self.last_round });
        }
        true
    }

    fn finish(&mut self, done: Finished) {
        match done {
            Finished::Sweep { found } => {
                self.sweeping = false;
                // A sweep that finds nothing is counted too, so that the metric shows that an idle dispatcher is alive.
                ::metrics::counter!(metrics::PROCESSING_PASSES.name).increment(1);
                self.add_swept_workspaces(found);
            }
            Finished::Claim { alone, mut planned, answer } => {
                *if alone { &mut self.waiting_claims } else { &mut self.claims } -= 1;
                for planned in &planned {
                    self.claiming.remove(&planned.quota.workspace.shard());
                }
                match &answer {
                    Ok(claims) => planned = self.plan_again(planned, &claims.busy),
                    // The data of one workspace made the claim fail, so the workspaces are claimed from separately.
                    Err(store::Error::Refused { .. }) if !alone || planned.len() > 1 => {
                        planned = self.ask_separately(planned, alone);
                    }
                    Err(_) => {}
                }
                for planned in &planned {
                    self.asked.remove(&planned.quota.workspace);
                }
                match answer {
                    Ok(claims) => {
                        self.record_answers(&planned, &claims);
                        self.record_slot_reuse(&claims);
                        self.apply(&claims);
                    }
                    Err(error) if store::release::is_other_protocol(&error) => {
                        self.record_answers(&planned, &Claims::default());
                        self.starter.claim_protocol.record_claim_refusal();
                    }
                    Err(error) => {
                        self.record_answers(&planned, &Claims::default());
                        // If only the answer was lost, `start_lost_claim` finds the items, else the next sweep does.
                        tracing::warn!(
                            workspaces = planned.len(),
                            error = &error as &dyn std::error::Error,
                            "Claim failed; the next poll retries it"
                        );
                    }
                }
                for planned in &planned {
                    if self.ask_again.remove(&planned.quota.workspace) {
                        self.ring.add_unweighted(planned.quota.workspace);
                    }
                }
            }
        }
    }

    /// Adds the result of a claim to its rounds. A round whose results are complete sets the size of the next round.
    fn record_answers(&mut self, planned: &[PlannedClaim], claims: &Claims) {
        for PlannedClaim { quota, round: number } in planned {
            self.outstanding -= quota.limit;
            let Some(round) = self.rounds.get_mut(number) else { continue };
            let claimed = claims.items.iter().filter(|item| item.workspace == quota.workspace).count();
            round.claimed += i32::try_from(claimed).unwrap_or(i32::MAX);
            if let Some(asked) = claims.workspaces.iter().find(|asked| asked.workspace == quota.workspace) {
                round.has_waiting |= asked.more;
                round.has_startable |= asked.can_claim_more();
            }
            round.open -= 1;
            if round.open == 0
                && let Some(round) = self.rounds.remove(number)
            {
                self.workspaces_per_round = round.next_workspaces(self.workspaces_per_round);
                self.batch = round.finish(&self.starter.settings);
            }
        }
    }

    /// Measures how long a slot of a workspace at capacity was free before it was used again.
    fn record_slot_reuse(&mut self, claims: &Claims) {
        for item in &claims.items {
            if let Some(freed) = self.full.take_freed(item.workspace) {
                ::metrics::histogram!(metrics::COMPLETION_TO_NEXT.name).record(freed.elapsed());
            }
        }
        for asked in &claims.workspaces {
            self.full.take_freed(asked.workspace);
        }
    }

    /// Puts workspaces that may have more items back into the ring, and logs those that reached their capacity.
    fn apply(&mut self, claims: &Claims) {
        for asked in &claims.workspaces {
            let claimed = claims.items.iter().any(|item| item.workspace == asked.workspace);
            for definition in &asked.blocked_definitions {
                let _stopping = self.blocked_definitions.send((asked.workspace, *definition));
            }
            // A workspace whose first items are blocked is asked again when these items are marked as blocked. If
            // nothing could be claimed in spite of ready items and free slots, another transaction holds locks on the
            // items. The next sweep then finds the workspace again.
            let goes_on = asked.blocked_definitions.is_empty() && (claimed || asked.blocked_again);
            if goes_on && asked.can_claim_more() {
                self.ring.add(asked.workspace, asked.weight);
            } else {
                self.ring.forget_remainder(asked.workspace);
            }
            if !asked.is_full_with_items_waiting() {
                self.full.remove(asked.workspace);
            } else if self.full.insert(asked.workspace, Instant::now()) {
                let workspace = asked.workspace;
                log_event!(
                    events::AT_CAPACITY,
                    workspace_id = %workspace,
                    active_count = asked.running,
                    limit = asked.limit
                );
                ::metrics::counter!(metrics::AT_CAPACITY.name).increment(1);
            }
        }
    }
}
