//! Forgets changes that everybody has had the time to read.
//!
//! Invariants
//! - Bounded deletes; any number of processes may do it, and the second finds less.
//! - What was deleted is noted in the same statement, so that whoever comes back too late is told.

use std::time::Duration;

use store::Store;

/// How often it looks.
pub(crate) const EVERY: Duration = Duration::from_secs(60);
/// How long a change is kept: the time in which one may come back.
const KEPT: Duration = Duration::from_secs(15 * 60);
/// Entries deleted in one commit.
const BATCH: i64 = 5_000;
/// Commits in one pass.
const BATCHES: usize = 100;

pub(crate) struct Pruner {
    pub(crate) store: Store,
}

impl Pruner {
    pub(crate) async fn pass(&self) -> Result<Option<Duration>, store::Error> {
        for _ in 0..BATCHES {
            if self.store.prune_log(KEPT, BATCH).await? < BATCH {
                break;
            }
        }
        Ok(None)
    }
}
