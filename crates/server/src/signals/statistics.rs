//! Tells the database's planner when a burst has made the tables large, and how old the oldest snapshot is.
//!
//! Invariants
//! - One look is a few sizes of files; only what has doubled is analysed, and never beside another
//!   process's.
//! - The snapshot is told by the process that looks after the first shard, so that one at a time tells it; the others
//!   tell 0.
//!
//! Not here: why, and what is told (`store::signals::statistics`, `store::signals::sample`).

use std::time::Duration;

use kernel::signals::metrics;
use store::Store;
use tokio::sync::watch;

use crate::process::heartbeat::Alive;

/// How often it looks: a flood goes on with bad plans for no longer.
pub(crate) const EVERY: Duration = Duration::from_secs(1);
/// Whoever looks after this shard tells what is told once for the database.
const FIRST_SHARD: i16 = 0;

pub(crate) struct Statistics {
    pub(crate) store: Store,
    pub(crate) alive: watch::Receiver<Option<Alive>>,
}

impl Statistics {
    pub(crate) async fn pass(&self) -> Result<Option<Duration>, store::Error> {
        let told = self.store.tell_planner().await;
        self.tell_snapshot().await?;
        told.map(|_| None)
    }

    #[expect(clippy::cast_precision_loss, reason = "a number for people")]
    async fn tell_snapshot(&self) -> Result<(), store::Error> {
        let ours = self.alive.borrow().as_ref().is_some_and(|alive| alive.shards.contains(&FIRST_SHARD));
        let (mut seconds, mut transactions) = (0.0, 0.0);
        if ours {
            let oldest = self.store.oldest_snapshot().await?;
            (seconds, transactions) = (oldest.seconds, oldest.transactions as f64);
        }
        ::metrics::gauge!(metrics::OLDEST_SNAPSHOT.name).set(seconds);
        ::metrics::gauge!(metrics::OLDEST_XMIN.name).set(transactions);
        Ok(())
    }
}
