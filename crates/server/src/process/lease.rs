//! One process at a time: a lease that its holder keeps for as long as it lives.
//!
//!     free ──lock──▶ held ──extend, well before it is over──▶ held ──stop──▶ given back
//!      ▲                └──lost, or not extended in time──▶ free
//!      └── taken: skip, and ask again at the next poll; at each heartbeat while its holder is known to be dead
//!
//! Invariants
//! - `is_held` is never true for longer than the lease lasts: what was sent before the answer counts
//!   from when it was sent, by the monotonic clock.
//! - A holder is named by its process id, so that others may take the lease as soon as that process is known to be
//!   dead. One that comes back under a new id holds nothing.
//! - A process that may not claim (`protocol`) neither takes nor keeps it: others would wait for it in vain.
//! - Nothing that must be exact relies on it: two who believe to hold it do no harm, only work twice.
//!
//! Not here: the table (`store::process::lease`).

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel::ids::ProcessId;
use kernel::signals::{metrics, spans};
use store::Store;
use store::process::lease::{HeldBy, Lease};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::process::heartbeat::Alive;
use crate::process::protocol::Rules;

/// Handing waiting items to the engine, as the source documents name and time it.
pub(crate) const DISPATCH: Lease =
    Lease { name: "processExecutionQueue", at_most: Duration::from_secs(4 * 60), at_least: Duration::from_secs(10) };
/// Taking over claimed items whose claimer is gone, likewise.
pub(crate) const RECOVERY: Lease =
    Lease { name: "recoverStaleQueueItems", at_most: Duration::from_secs(2 * 60), at_least: Duration::from_secs(30) };

/// Whether this process may do what a lease is for. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    /// None: no lease is needed.
    until: Option<Arc<Mutex<Option<Instant>>>>,
    changed: watch::Sender<()>,
}

impl Turn {
    /// Everybody's at any time.
    pub(crate) fn always() -> Turn {
        Turn { until: None, changed: watch::Sender::new(()) }
    }

    /// The lease's holder's.
    pub(crate) fn leased() -> Turn {
        Turn { until: Some(Arc::default()), changed: watch::Sender::new(()) }
    }

    pub(crate) fn is_held(&self) -> bool {
        let Some(until) = &self.until else { return true };
        until.lock().is_some_and(|until| until > Instant::now())
    }

    /// There is only one at a time, so whoever it is looks after everything.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.until.is_some()
    }

    /// Rings when it is taken or lost.
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

/// Keeps asking for a lease, and keeps it once it is had.
pub(crate) struct Holder {
    pub(crate) store: Store,
    pub(crate) lease: Lease,
    /// Where this process runs: the first part of its name as a holder.
    pub(crate) host: String,
    pub(crate) turn: Turn,
    pub(crate) poll: Duration,
    /// A process that was silent for this long is dead.
    pub(crate) dead_after: Duration,
    pub(crate) alive: watch::Receiver<Option<Alive>>,
    pub(crate) rules: Rules,
    pub(crate) stop: CancellationToken,
}

impl Holder {
    pub(crate) async fn run(mut self) {
        let mut held_as = None;
        while !self.stop.is_cancelled() {
            let alive = self.alive.borrow_and_update().clone();
            let process = alive.as_ref().map(|alive| alive.process);
            if held_as.is_some() && held_as != process {
                self.turn.set(None);
                held_as = None;
            }
            if let Some(process) = held_as.filter(|_| !self.rules.may_claim()) {
                self.give_back(&self.name(process)).await;
                self.turn.set(None);
                held_as = None;
            }
            let pause = match &alive {
                None => self.poll,
                Some(_) if !self.rules.may_claim() => self.poll,
                Some(alive) if self.turn.is_held() => self.extend(&self.name(alive.process)).await,
                Some(alive) => self.lock(&self.name(alive.process), alive).await,
            };
            if self.turn.is_held() {
                held_as = process;
            }
            self.wait(pause, process).await;
        }
        if let Some(process) = held_as {
            self.give_back(&self.name(process)).await;
        }
    }

    fn name(&self, process: ProcessId) -> String {
        format!("{}/{process}", self.host)
    }

    /// Waits that long, or until something is to be done sooner: this process has another id, or the lease's holder
    /// died. That some other process ended is no reason to ask: what is refused counts as a failure.
    async fn wait(&mut self, pause: Duration, process: Option<ProcessId>) {
        let (sleep, mut rules) = (tokio::time::sleep(pause), self.rules.changes());
        tokio::pin!(sleep);
        loop {
            tokio::select! {
                () = &mut sleep => return,
                () = self.stop.cancelled() => return,
                _ = rules.changed() => return,
                changed = self.alive.changed() => {
                    let (now, somebody_died) = {
                        let alive = self.alive.borrow_and_update();
                        (alive.as_ref().map(|alive| alive.process), alive.as_ref().is_some_and(|alive| alive.dead > 0))
                    };
                    if changed.is_err() || now != process {
                        return;
                    }
                    if somebody_died && !self.turn.is_held() && self.holder_is_gone().await {
                        return;
                    }
                }
            }
        }
    }

    /// Nobody holds the lease, or a process that is dead. If that cannot be found out, the next poll does.
    async fn holder_is_gone(&self) -> bool {
        let held_by = self.store.lease_holder(self.lease, self.dead_after).await;
        held_by.is_ok_and(|held_by| held_by.is_none_or(|held_by| held_by.dead))
    }

    async fn lock(&self, name: &str, alive: &Alive) -> Duration {
        let sent = Instant::now();
        let taken = async {
            if self.store.lock(self.lease, name).await? {
                return Ok(true);
            }
            self.store.lock_of_dead(self.lease, name, alive.silence(self.dead_after)).await
        };
        match taken.await {
            Ok(true) => {
                tracing::info!(lease = self.lease.name, "This process holds the lease");
                self.turn.set(Some(sent + self.lease.at_most));
                return self.lease.at_most / 3;
            }
            Ok(false) => tracing::debug!(lease = self.lease.name, "The lease is taken"),
            Err(error) => {
                tracing::warn!(lease = self.lease.name, error = &error as &dyn std::error::Error, "No lease");
            }
        }
        ::metrics::counter!(metrics::LOCK_FAILURES.name).increment(1);
        self.poll
    }

    async fn extend(&self, name: &str) -> Duration {
        let sent = Instant::now();
        match self.store.extend(self.lease, name).await {
            Ok(true) => {
                self.turn.set(Some(sent + self.lease.at_most));
                self.lease.at_most / 3
            }
            Ok(false) => {
                tracing::warn!(lease = self.lease.name, "The lease was lost");
                ::metrics::counter!(metrics::LOCK_FAILURES.name).increment(1);
                self.turn.set(None);
                self.poll
            }
            // It is still held until its time is over.
            Err(error) => {
                tracing::warn!(lease = self.lease.name, error = &error as &dyn std::error::Error, "Not extended yet");
                self.poll
            }
        }
    }

    async fn give_back(&self, name: &str) {
        if !self.turn.is_held() {
            return;
        }
        self.turn.set(None);
        let span = tracing::debug_span!(spans::RELEASE_LOCK.name, lock = self.lease.name);
        if let Err(error) = self.store.unlock(self.lease, name).instrument(span).await {
            tracing::warn!(lease = self.lease.name, error = %error, "The lease was not given back; it ends by itself");
        }
    }
}

/// Why nobody dispatches, if nobody does who can be told of: by who holds the lease.
pub(crate) fn trouble(held_by: Option<&HeldBy>) -> Option<String> {
    let name = DISPATCH.name;
    match held_by {
        None => Some(format!("no process holds the lease {name}; one takes it at its next poll")),
        Some(HeldBy { name: by, dead: true, .. }) => {
            Some(format!("{by} held the lease {name} and died; another process takes over within seconds"))
        }
        Some(HeldBy { name: by, ours: false, .. }) => Some(format!(
            "another program ({by}) holds the lease {name}; nothing is dispatched until it gives the lease back"
        )),
        Some(_) => None,
    }
}
