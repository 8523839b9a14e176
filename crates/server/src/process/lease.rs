//! Leases for work that only one process at a time does. The process that holds a lease keeps it until it shuts down.
//!
//!     free ──lock──▶ held ──extend, well before it expires──▶ held ──stop──▶ released
//!      ▲                └──lost, or not extended in time──▶ free
//!      └── held by another process: retry at the next poll, or at each heartbeat while its holder is known to be dead
//!
//! Invariants
//! - `is_held` is never true for longer than the lease lasts. Its duration is measured by the monotonic clock, from the
//!   moment when the statement was sent, not from the database's answer.
//! - The name of a holder contains its process id, so that other processes may take the lease as soon as that process
//!   is known to be dead. A process that registers under a new id no longer holds its earlier leases.
//! - A process that may not claim (`protocol`) neither acquires nor keeps a lease. Otherwise nothing would be
//!   dispatched, because the other processes wait for the holder.
//! - Limits hold without leases: if two processes believe that they hold the same lease, they only do work twice.
//!
//! Not here: the table (`store::process::lease`).

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel::ids::ProcessId;
use kernel::signals::{metrics, spans};
use store::Store;
use store::process::lease::{Lease, LeaseHolder};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::process::heartbeat::Membership;
use crate::process::protocol::ClaimProtocol;

/// The lease for dispatching, with the name and times of the source documents.
pub(crate) const DISPATCH: Lease =
    Lease { name: "processExecutionQueue", at_most: Duration::from_secs(4 * 60), at_least: Duration::from_secs(10) };
/// The lease for taking over claimed items whose claimer is dead, with the name and times of the source documents.
pub(crate) const RECOVERY: Lease =
    Lease { name: "recoverStaleQueueItems", at_most: Duration::from_secs(2 * 60), at_least: Duration::from_secs(30) };

/// Whether this process holds a lease that its work requires. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct LeaseState {
    /// When the lease expires: the inner `None` means that it is not held, the outer `None` that no lease is required.
    until: Option<Arc<Mutex<Option<Instant>>>>,
    changed: watch::Sender<()>,
}

impl LeaseState {
    /// The state for work that requires no lease.
    pub(crate) fn not_required() -> LeaseState {
        LeaseState { until: None, changed: watch::Sender::new(()) }
    }

    /// The state for work that only the holder of the lease may do. The lease is not held yet.
    pub(crate) fn required() -> LeaseState {
        LeaseState { until: Some(Arc::default()), changed: watch::Sender::new(()) }
    }

    /// True if this process holds the lease now, or if no lease is required.
    pub(crate) fn is_held(&self) -> bool {
        let Some(until) = &self.until else { return true };
        until.lock().is_some_and(|until| until > Instant::now())
    }

    /// True if only one process at a time does this work, which then covers all shards.
    pub(crate) fn is_required(&self) -> bool {
        self.until.is_some()
    }

    /// A receiver that is notified when this process acquires or loses the lease.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn set(&self, until: Option<Instant>) {
        if let Some(held) = &self.until {
            *held.lock() = until;
            self.changed.send_replace(());
        }
    }
}

/// Tries to acquire a lease, and extends the lease while this process holds it.
pub(crate) struct LeaseKeeper {
    pub(crate) store: Store,
    pub(crate) lease: Lease,
    /// The host of this process: the first part of its name as a holder.
    pub(crate) host: String,
    pub(crate) state: LeaseState,
    pub(crate) poll: Duration,
    /// A process that was silent for this long is dead.
    pub(crate) dead_after: Duration,
    pub(crate) membership: watch::Receiver<Option<Membership>>,
    pub(crate) claim_protocol: ClaimProtocol,
    pub(crate) stop: CancellationToken,
}

impl LeaseKeeper {
    pub(crate) async fn run(mut self) {
        let mut held_as = None;
        while !self.stop.is_cancelled() {
            let membership = self.membership.borrow_and_update().clone();
            let process = membership.as_ref().map(|membership| membership.process);
            if held_as.is_some() && held_as != process {
                self.state.set(None);
                held_as = None;
            }
            if let Some(process) = held_as.filter(|_| !self.claim_protocol.may_claim()) {
                self.release(&self.name(process)).await;
                self.state.set(None);
                held_as = None;
            }
            let pause = match &membership {
                None => self.poll,
                Some(_) if !self.claim_protocol.may_claim() => self.poll,
                Some(membership) if self.state.is_held() => self.extend(&self.name(membership.process)).await,
                Some(membership) => self.lock(&self.name(membership.process), membership).await,
            };
            if self.state.is_held() {
                held_as = process;
            }
            self.wait(pause, process).await;
        }
        if let Some(process) = held_as {
            self.release(&self.name(process)).await;
        }
    }

    fn name(&self, process: ProcessId) -> String {
        format!("{}/{process}", self.host)
    }

    /// Waits for `pause`, or until there is something to do sooner: this process has a new id, or the holder of the
    /// lease died. The death of another process does not end the wait, because an attempt to acquire the lease would
    /// fail and be counted in `LOCK_FAILURES`.
    async fn wait(&mut self, pause: Duration, process: Option<ProcessId>) {
        let (sleep, mut protocol) = (tokio::time::sleep(pause), self.claim_protocol.changes());
        tokio::pin!(sleep);
        loop {
            tokio::select! {
                () = &mut sleep => return,
                () = self.stop.cancelled() => return,
                _ = protocol.changed() => return,
                changed = self.membership.changed() => {
                    let (now, some_process_died) = {
                        let membership = self.membership.borrow_and_update();
                        let some_died = membership.as_ref().is_some_and(|membership| membership.dead_processes > 0);
                        (membership.as_ref().map(|membership| membership.process), some_died)
                    };
                    if changed.is_err() || now != process {
                        return;
                    }
                    if some_process_died && !self.state.is_held() && self.holder_is_dead().await {
                        return;
                    }
                }
            }
        }
    }

    /// True if no process holds the lease, or if its holder is dead. False if the database does not answer, because the
    /// next poll tries to acquire the lease in any case.
    async fn holder_is_dead(&self) -> bool {
        let held_by = self.store.lease_holder(self.lease, self.dead_after).await;
        held_by.is_ok_and(|held_by| held_by.is_none_or(|held_by| held_by.dead))
    }

    async fn lock(&self, name: &str, membership: &Membership) -> Duration {
        let sent = Instant::now();
        let taken = async {
            if self.store.lock(self.lease, name).await? {
                return Ok(true);
            }
            self.store.take_over_lease(self.lease, name, membership.liveness_rule(self.dead_after)).await
        };
        match taken.await {
            Ok(true) => {
                tracing::info!(lease = self.lease.name, "Lease acquired by this process");
                self.state.set(Some(sent + self.lease.at_most));
                return self.lease.at_most / 3;
            }
            Ok(false) => tracing::debug!(lease = self.lease.name, "Lease is held by another process"),
            Err(error) => {
                tracing::warn!(
                    lease = self.lease.name,
                    error = &error as &dyn std::error::Error,
                    "Lease could not be acquired; retrying at the next poll"
                );
            }
        }
        ::metrics::counter!(metrics::LOCK_FAILURES.name).increment(1);
        self.poll
    }

    async fn extend(&self, name: &str) -> Duration {
        let sent = Instant::now();
        match self.store.extend(self.lease, name).await {
            Ok(true) => {
                self.state.set(Some(sent + self.lease.at_most));
                self.lease.at_most / 3
            }
            Ok(false) => {
                tracing::warn!(
                    lease = self.lease.name,
                    "Lease lost: another process holds it; this process retries at each poll"
                );
                ::metrics::counter!(metrics::LOCK_FAILURES.name).increment(1);
                self.state.set(None);
                self.poll
            }
            // This process still holds the lease until it expires.
            Err(error) => {
                tracing::warn!(
                    lease = self.lease.name,
                    error = &error as &dyn std::error::Error,
                    "Lease could not be extended; retrying until the lease expires"
                );
                self.poll
            }
        }
    }

    async fn release(&self, name: &str) {
        if !self.state.is_held() {
            return;
        }
        self.state.set(None);
        let span = tracing::debug_span!(spans::RELEASE_LOCK.name, lock = self.lease.name);
        if let Err(error) = self.store.unlock(self.lease, name).instrument(span).await {
            tracing::warn!(
                lease = self.lease.name,
                error = %error,
                "Lease could not be released; other processes can acquire it when it expires"
            );
        }
    }
}

/// Why no process dispatches, judged by the holder of the lease; none if a living process of this service holds it.
pub(crate) fn dispatch_problem(held_by: Option<&LeaseHolder>) -> Option<String> {
    let name = DISPATCH.name;
    match held_by {
        None => Some(format!("no process holds the lease {name}; a process acquires the lease at its next poll")),
        Some(LeaseHolder { name: by, dead: true, .. }) => {
            Some(format!("{by} held the lease {name} and died; another process acquires the lease within seconds"))
        }
        Some(LeaseHolder { name: by, is_forebay: false, .. }) => Some(format!(
            "another program ({by}) holds the lease {name}; nothing is dispatched until that program releases the lease"
        )),
        Some(_) => None,
    }
}
