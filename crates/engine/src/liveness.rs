//! Liveness: whether this process may still act for the runs it holds.
//!
//! Invariants
//! - A process sends no more requests if its last successful heartbeat was *sent* too long ago, because other processes
//!   may own its runs. Time is measured by the monotonic clock, which keeps counting while the process is paused.
//!
//! Not here: sending heartbeats (`server::process::heartbeat`), the fence on every write (`store`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The time of the last successful heartbeat.
#[derive(Debug)]
pub struct Liveness {
    origin: Instant,
    /// Milliseconds after `origin`.
    sent: AtomicU64,
    limit: Duration,
}

impl Liveness {
    /// Starts out live. Each heartbeat keeps it live for `limit`.
    pub fn new(limit: Duration) -> Liveness {
        Liveness { origin: Instant::now(), sent: AtomicU64::new(0), limit }
    }

    /// Records that the heartbeat sent at this time succeeded.
    pub fn record_heartbeat(&self, sent: Instant) {
        let at = u64::try_from(sent.saturating_duration_since(self.origin).as_millis()).unwrap_or(u64::MAX);
        self.sent.fetch_max(at, Ordering::Relaxed);
    }

    /// How long ago the last successful heartbeat was sent.
    pub fn age(&self) -> Duration {
        self.origin.elapsed().saturating_sub(Duration::from_millis(self.sent.load(Ordering::Relaxed)))
    }

    pub fn is_live(&self) -> bool {
        self.age() < self.limit
    }

    /// Waits until this process may act again. If it may not, the process is about to drop its runs, and this future
    /// with them.
    pub async fn wait_until_live(&self) {
        while !self.is_live() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
