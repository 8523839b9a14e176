//! Tells the database's planner when a burst has made the tables large.
//!
//! Invariants
//! - One look is a few sizes of files; only what has doubled is analysed, and never beside another
//!   process's.
//!
//! Not here: why, and what is told (`store::statistics`).

use std::time::Duration;

use store::Store;

/// How often it looks: a flood goes on with bad plans for no longer.
pub(crate) const EVERY: Duration = Duration::from_secs(1);

pub(crate) struct Statistics {
    pub(crate) store: Store,
}

impl Statistics {
    pub(crate) async fn pass(&self) -> Result<Option<Duration>, store::Error> {
        self.store.tell_planner().await.map(|_| None)
    }
}
