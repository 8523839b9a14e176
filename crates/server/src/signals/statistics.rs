//! Runs ANALYZE on tables that a burst has made large, and publishes the age of the oldest database snapshot as a
//! metric.
//!
//! Invariants
//! - A check reads only the sizes of a few tables. Only tables that have doubled are analyzed, by one process at a
//!   time.
//! - Only the process that owns the first shard publishes the age of the snapshot. All other processes publish 0.
//!
//! Not here: why this is needed, and the statements (`store::signals::statistics`, `store::signals::sample`).

use std::time::Duration;

use kernel::signals::metrics;
use store::Store;
use tokio::sync::watch;

use crate::process::heartbeat::Membership;

/// How often the tables are checked. After a burst, PostgreSQL uses outdated query plans for about this long at most.
pub(crate) const EVERY: Duration = Duration::from_secs(1);
/// The owner of this shard publishes what concerns the whole database.
const FIRST_SHARD: i16 = 0;

pub(crate) struct PlannerStatistics {
    pub(crate) store: Store,
    pub(crate) membership: watch::Receiver<Option<Membership>>,
}

impl PlannerStatistics {
    pub(crate) async fn run_once(&self) -> Result<Option<Duration>, store::Error> {
        let analyzed = self.store.analyze_grown_tables().await;
        self.publish_snapshot_age().await?;
        analyzed.map(|_| None)
    }

    #[expect(clippy::cast_precision_loss, reason = "a number for people")]
    async fn publish_snapshot_age(&self) -> Result<(), store::Error> {
        let ours = self.membership.borrow().as_ref().is_some_and(|membership| membership.shards.contains(&FIRST_SHARD));
        let (mut seconds, mut transactions) = (0.0, 0.0);
        if ours {
            let oldest = self.store.oldest_snapshot().await?;
            (seconds, transactions) = (oldest.seconds, oldest.transactions as f64);
        }
        ::metrics::gauge!(metrics::OLDEST_SNAPSHOT_AGE.name).set(seconds);
        ::metrics::gauge!(metrics::OLDEST_XMIN_AGE.name).set(transactions);
        Ok(())
    }
}
