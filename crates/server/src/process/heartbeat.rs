//! The heartbeat reports that this process is alive, from a thread and over a database connection of its own. If
//! heartbeats fail for too long, the process gives up its id and its runs: its registration lapses.
//!
//!     register ──heartbeat each second──▶ steady ──no success for too long, or declared dead by another──▶ lapse
//!        ▲                                                                                                   │
//!        └──────────────── new id, once every run is dropped ◀───────────────────────────────────────────────┘
//!
//! Invariants
//! - A process without a recent heartbeat drops its runs and registers under a new id, because other processes may have
//!   taken the runs over.
//! - A process may declare another process dead only if its own heartbeats have succeeded without a gap.
//! - A process that dispatches owns its share of the shards even if it has no room for more runs. A process with room
//!   also claims for owners without room.
//!
//! Not here: taking over runs and items (`run::resume`, `queue::takeover`), stopping outgoing calls of a process that
//! lost its lease (`engine::liveness`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use engine::Engine;
use engine::embedded::Embedded;
use engine::liveness::Liveness;
use engine::log_event;
use kernel::ids::ProcessId;
use kernel::signals::{events, metrics};
use store::connect::Target;
use store::process::{HeartbeatReply, HeartbeatReport, ProcessRegistration, end, heartbeat, register};
use store::queue::claim::LivenessRule;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::config::{Process, ms};
use crate::process::background_loop::supervise;
use crate::process::protocol::ClaimProtocol;

/// This process's id and its share of the work, as of the last heartbeat.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    pub(crate) process: ProcessId,
    /// The shards that this process owns.
    pub(crate) shards: Arc<[i16]>,
    /// The shards that this process claims from: its own and, while it has room, some shards whose owner has no room.
    pub(crate) claim_shards: Arc<[i16]>,
    /// The number of runs of dead processes that no process has had room for yet. They come before new claims.
    pub(crate) waiting_runs: usize,
    /// Since when heartbeats have succeeded without a gap.
    pub(crate) steady_since: Instant,
    /// The number of processes that are silent or ended recently.
    pub(crate) dead_processes: usize,
}

impl Membership {
    /// The rule by which another process counts as dead: how long it must have been silent, and whether this process
    /// may declare it dead.
    pub(crate) fn liveness_rule(&self, dead_after: Duration) -> LivenessRule {
        LivenessRule { dead_after, steady: self.steady_since.elapsed() > dead_after }
    }
}

pub(crate) struct Heartbeat {
    pub(crate) target: Target,
    pub(crate) settings: Process,
    pub(crate) registration: ProcessRegistration,
    pub(crate) dispatches: bool,
    /// A process that may not claim takes no share of the shards.
    pub(crate) claim_protocol: ClaimProtocol,
    pub(crate) liveness: Arc<Liveness>,
    pub(crate) engine: Option<Arc<dyn Engine>>,
    /// The embedded engine, in a process that holds runs itself.
    pub(crate) embedded: Option<Embedded>,
    /// The number of runs of dead processes that this process has no room for.
    pub(crate) waiting_runs: Arc<AtomicUsize>,
    pub(crate) membership: watch::Sender<Option<Membership>>,
    /// Wakes the background loops when another process turns out to be dead.
    pub(crate) wake_loops: Arc<Notify>,
    /// Triggers the next heartbeat immediately, for example because another process ended.
    pub(crate) send_now: Arc<Notify>,
    pub(crate) stop: CancellationToken,
}

impl Heartbeat {
    /// Sends heartbeats until `stop` is cancelled, on a thread of its own, so that a busy runtime does not delay them.
    pub(crate) fn spawn(self) -> std::io::Result<std::thread::JoinHandle<()>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("heartbeat".to_owned()).spawn(move || {
            runtime.block_on(supervise("process::heartbeat", self.stop.clone(), self.run()));
        })
    }

    async fn run(mut self) {
        let mut lapsed = None;
        while !self.stop.is_cancelled() {
            self.registration.id = ProcessId(store::new_id());
            match self.run_registered(lapsed).await {
                Ok(()) => lapsed = Some(self.registration.id),
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "Could not register this process in the database; retrying"
                    );
                    tokio::select! {
                        () = tokio::time::sleep(ms(self.settings.heartbeat_ms)) => {}
                        () = self.stop.cancelled() => {}
                    }
                }
            }
        }
    }

    /// Registers under one id and sends heartbeats until the id lapses or the process stops. `lapsed` is the previous
    /// id of this process. That id is marked as ended: this process has dropped its runs, so other processes may take
    /// the runs over immediately.
    async fn run_registered(&mut self, lapsed: Option<ProcessId>) -> Result<(), store::Error> {
        let mut sent = Instant::now();
        let connection = self.target.connect().await?;
        register(&connection, &self.registration).await?;
        if let Some(lapsed) = lapsed {
            end(&connection, lapsed).await?;
        }
        self.liveness.record_heartbeat(sent);
        if let Some(engine) = &self.embedded {
            engine.set_process(self.registration.id);
        }
        log_event!(events::REGISTERED, process_id = %self.registration.id);
        let mut client = Some(connection);
        let mut steady_since = Instant::now();
        let mut next = tokio::time::interval(ms(self.settings.heartbeat_ms));
        next.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = next.tick() => {}
                () = self.send_now.notified() => {}
                () = self.stop.cancelled() => return Ok(()),
            }
            ::metrics::gauge!(metrics::HEARTBEAT_AGE.name).set(self.liveness.age().as_secs_f64());
            // The check comes before the next heartbeat: a process that was suspended for too long must lapse, because
            // other processes may own its runs.
            if !self.liveness.is_live() {
                self.lapse("its heartbeats did not reach the database in time").await;
                return Ok(());
            }
            if sent.elapsed() > ms(self.settings.shard_lease_ms) {
                steady_since = Instant::now();
            }
            sent = Instant::now();
            match self.send(&mut client).await {
                Ok(reply) if reply.declared_dead => {
                    self.lapse("it was declared dead by another process").await;
                    return Ok(());
                }
                Ok(reply) => {
                    self.liveness.record_heartbeat(sent);
                    self.publish(reply, steady_since);
                }
                Err(()) => steady_since = Instant::now(),
            }
        }
    }

    async fn send(&self, client: &mut Option<store::connect::Client>) -> Result<HeartbeatReply, ()> {
        let timeout = ms(self.settings.shard_lease_ms);
        // Only the first of several failures in a row is logged.
        let is_first = client.is_some();
        let failed = |error: store::Error| {
            if is_first {
                tracing::warn!(error = &error as &dyn std::error::Error, "Heartbeat failed; retrying");
            }
        };
        let call = async {
            if client.is_none() {
                *client = Some(self.target.connect().await.map_err(drop)?);
            }
            let connection = client.as_ref().ok_or(())?;
            let (lease, dead) = (ms(self.settings.shard_lease_ms), ms(self.settings.claim_lease_ms));
            heartbeat(connection, self.registration.id, self.report(), lease, dead).await.map_err(failed)
        };
        let answer = tokio::time::timeout(timeout, call).await.unwrap_or(Err(()));
        if answer.is_err() {
            *client = None;
        }
        answer
    }

    fn report(&self) -> HeartbeatReport {
        HeartbeatReport {
            dispatches: self.dispatches && self.engine.is_some() && self.claim_protocol.may_claim(),
            has_room: self.engine.as_ref().is_some_and(|engine| engine.capacity() > 0),
            waiting: self.waiting_runs.load(Ordering::Relaxed),
        }
    }

    fn publish(&self, reply: HeartbeatReply, steady_since: Instant) {
        // Cancels and wakeups concern the runs that this process owns. These are on the embedded engine, even if
        // another engine starts the new runs.
        let embedded = self.embedded.as_ref().map(|embedded| embedded as &dyn Engine);
        if let Some(engine) = embedded.or(self.engine.as_deref()) {
            for execution in &reply.cancel {
                engine.cancel(*execution);
            }
            for execution in &reply.wake {
                engine.signal(*execution);
            }
        }
        let (process, dead_processes) = (self.registration.id, reply.dead.len());
        let claim_shards = reply.shards.iter().chain(&reply.claim_shards).copied().collect::<BTreeSet<_>>();
        let membership = Membership {
            process,
            shards: reply.shards.into(),
            claim_shards: claim_shards.into_iter().collect(),
            waiting_runs: reply.waiting,
            steady_since,
            dead_processes,
        };
        let before = self.membership.send_replace(Some(membership));
        if before.is_some_and(|before| before.dead_processes < dead_processes) {
            self.wake_loops.notify_waiters();
        }
    }

    async fn lapse(&self, reason: &str) {
        log_event!(events::LEASE_EXPIRED, process_id = %self.registration.id, reason);
        ::metrics::counter!(metrics::PROCESS_LEASES_EXPIRED.name).increment(1);
        self.membership.send_replace(None);
        if let Some(engine) = &self.embedded {
            engine.drop_all();
            engine.wait_until_ended().await;
        }
    }
}
