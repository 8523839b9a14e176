//! Deletes entries of the change log that are older than the time in which a client may reconnect and continue.
//!
//! Invariants
//! - Each statement and each pass deletes a bounded number of entries. Several processes may prune at the same time.
//! - The statement that deletes entries also records up to where they were deleted. So a client that reconnects too
//!   late gets an error and does not miss changes unnoticed.

use std::time::Duration;

use store::Store;

/// How often the log is pruned.
pub(crate) const EVERY: Duration = Duration::from_secs(60);
/// How long a change is kept: the time in which a client may reconnect and continue.
const KEEP_FOR: Duration = Duration::from_secs(15 * 60);
/// The most entries deleted in one commit.
const BATCH: i64 = 5_000;
/// The most commits in one pass.
const BATCHES: usize = 100;

pub(crate) struct ChangeLogPruner {
    pub(crate) store: Store,
}

impl ChangeLogPruner {
    pub(crate) async fn run_once(&self) -> Result<Option<Duration>, store::Error> {
        for _ in 0..BATCHES {
            if self.store.prune_log(KEEP_FOR, BATCH).await? < BATCH {
                break;
            }
        }
        Ok(None)
    }
}
