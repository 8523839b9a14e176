//! Whether this process may still act for the runs it holds.
//!
//! Invariants
//! - A process whose last successful heartbeat was *sent* too long ago sends nothing more: others
//!   may have taken its runs over. The monotonic clock decides, and goes on while the process is
//!   stopped.
//!
//! Not here: beating (`server::process::heartbeat`), the fence on what is written (`store`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The last heartbeat that succeeded.
#[derive(Debug)]
pub struct Pulse {
    origin: Instant,
    /// Milliseconds after `origin`.
    sent: AtomicU64,
    limit: Duration,
}

impl Pulse {
    /// A pulse that is fresh now, and for `limit` after each beat.
    pub fn new(limit: Duration) -> Pulse {
        Pulse { origin: Instant::now(), sent: AtomicU64::new(0), limit }
    }

    /// A heartbeat that was sent then has succeeded.
    pub fn beat(&self, sent: Instant) {
        let at = u64::try_from(sent.saturating_duration_since(self.origin).as_millis()).unwrap_or(u64::MAX);
        self.sent.fetch_max(at, Ordering::Relaxed);
    }

    /// How long ago the last successful heartbeat was sent.
    pub fn age(&self) -> Duration {
        self.origin.elapsed().saturating_sub(Duration::from_millis(self.sent.load(Ordering::Relaxed)))
    }

    pub fn is_fresh(&self) -> bool {
        self.age() < self.limit
    }

    /// Waits until this process may act. One that may not is about to drop its runs, and this with them.
    pub async fn fresh(&self) {
        while !self.is_fresh() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
