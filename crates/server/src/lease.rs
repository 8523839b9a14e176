//! One process at a time: a lease that its holder keeps for as long as it lives.
//!
//!     free ──lock──▶ held ──extend, well before it is over──▶ held ──stop──▶ given back
//!      ▲                └──lost, or not extended in time──▶ free
//!      └── taken: skip, and ask again at the next poll
//!
//! Invariants
//! - `is_held` is never true for longer than the lease lasts: what was sent before the answer counts
//!   from when it was sent, by the monotonic clock.
//! - Nothing that must be exact relies on it: two who believe to hold it do no harm, only work twice.
//!
//! Not here: the table (`store::lease`).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kernel::signals::metrics;
use store::Store;
use store::lease::Lease;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

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
        until.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|until| until > Instant::now())
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
            *held.lock().unwrap_or_else(PoisonError::into_inner) = until;
            self.changed.send_replace(());
        }
    }
}

/// Keeps asking for a lease, and keeps it once it is had.
pub(crate) struct Holder {
    pub(crate) store: Store,
    pub(crate) lease: Lease,
    /// Who holds it: another at each start, so that nobody takes a dead one's for its own.
    pub(crate) name: String,
    pub(crate) turn: Turn,
    pub(crate) poll: Duration,
    pub(crate) stop: CancellationToken,
}

impl Holder {
    pub(crate) async fn run(self) {
        while !self.stop.is_cancelled() {
            let pause = match self.turn.is_held() {
                true => self.extend().await,
                false => self.lock().await,
            };
            tokio::select! { () = tokio::time::sleep(pause) => {}, () = self.stop.cancelled() => {} }
        }
        self.give_back().await;
    }

    async fn lock(&self) -> Duration {
        let sent = Instant::now();
        match self.store.lock(self.lease, &self.name).await {
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

    async fn extend(&self) -> Duration {
        let sent = Instant::now();
        match self.store.extend(self.lease, &self.name).await {
            Ok(true) => {
                self.turn.set(Some(sent + self.lease.at_most));
                self.lease.at_most / 3
            }
            Ok(false) => {
                tracing::warn!(lease = self.lease.name, "The lease was lost");
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

    async fn give_back(&self) {
        if !self.turn.is_held() {
            return;
        }
        self.turn.set(None);
        if let Err(error) = self.store.unlock(self.lease, &self.name).await {
            tracing::warn!(lease = self.lease.name, error = %error, "The lease was not given back; it ends by itself");
        }
    }
}
