//! Wakes parked runs that are due or have a signal: this process becomes the owner of each such run and resumes it.
//!
//! Invariants
//! - The statement that wakes runs changes only runs without an owner, skips locked rows, and raises the run's epoch.
//!   So no run is woken by two processes. A run whose row was locked is still due at the next pass.

use std::time::Duration;

use engine::embedded::{Embedded, NAME};
use store::Store;
use tokio::sync::watch;

use crate::process::heartbeat::Membership;

/// The most runs woken at once.
const MAX_WOKEN: usize = 200;

pub(crate) struct ParkedRunWaker {
    pub(crate) store: Store,
    pub(crate) engine: Embedded,
    pub(crate) membership: watch::Receiver<Option<Membership>>,
}

impl ParkedRunWaker {
    /// Wakes runs that are due; returns the time until the next run is due.
    pub(crate) async fn run_once(&self) -> Result<Option<Duration>, store::Error> {
        let Some(process) = self.membership.borrow().as_ref().map(|membership| membership.process) else {
            return Ok(None);
        };
        let room = self.engine.resume_capacity().min(MAX_WOKEN);
        if room == 0 {
            return Ok(None);
        }
        let woken = self.store.wake_due(process, NAME, room).await?;
        if !woken.is_empty() {
            self.engine.resume(process, &woken, false).await?;
            return Ok(Some(Duration::ZERO));
        }
        // The next run may already be due, but its row may be locked or have an owner. A minimum pause prevents that
        // the loop spins in that case.
        Ok(self.store.next_wake(NAME).await?.map(|due| due.max(Duration::from_millis(100))))
    }
}
