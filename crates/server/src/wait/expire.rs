//! Expires waits and tasks whose timeout has passed, and takes tasks away from workers that sent no heartbeat. It also
//! signals runs on an external engine again if they did not react to a signal.
//!
//! Invariants
//! - Timeouts and leases are compared with the database's clock. The kernel decides after how many lost leases a task
//!   fails.
//! - Any number of processes may run this at the same time: each statement changes only rows that still have the
//!   expected status. If a statement also signals a run, it locks the run's row first.
//!
//! What happens if this process dies: before the commit nothing has changed. The commit also stores the signals, so
//! another process delivers them.
//!
//! Not here: the statement (`store`'s `functions/wait.sql`), events that answer waits (`wait::match_events`).

use std::sync::Arc;
use std::time::Duration;

use engine::Engine;
use kernel::signals::metrics;
use store::Store;

use crate::run::notify::RunNotifier;

/// The longest time between two passes. It is short, because a lease may last only a few seconds.
pub(crate) const EVERY: Duration = Duration::from_secs(1);
/// The most rows of each kind that one pass changes.
const MAX_ROWS: i32 = 200;
/// A run on an external engine is signaled again if it has not reacted to a signal for this long.
const SIGNAL_AGAIN_AFTER: Duration = Duration::from_secs(2);

pub(crate) struct WaitExpirer {
    pub(crate) store: Store,
    pub(crate) run_notifier: RunNotifier,
    /// The engine, if it is an external one.
    pub(crate) external_engine: Option<Arc<dyn Engine>>,
}

impl WaitExpirer {
    pub(crate) async fn run_once(&self) -> Result<Option<Duration>, store::Error> {
        let swept = self.store.expire_waits(MAX_ROWS).await?;
        let lost = swept.lost + swept.failed;
        if lost > 0 {
            ::metrics::counter!(metrics::TASK_LEASES_EXPIRED.name).increment(lost.try_into().unwrap_or(u64::MAX));
        }
        let changed = lost + swept.expired;
        swept.to_wake.into_iter().for_each(|call| self.run_notifier.notify(Some(call)));
        if let Some(engine) = &self.external_engine {
            for run in self.store.unread_wakes(engine.name(), SIGNAL_AGAIN_AFTER, i64::from(MAX_ROWS)).await? {
                // A stored signal of a root run may also mean that children of the run are to be canceled.
                for child in self.store.canceling_below(run).await? {
                    engine.cancel(child);
                }
                engine.signal(run);
            }
        }
        self.publish_task_depth().await?;
        Ok((changed >= usize::try_from(MAX_ROWS).unwrap_or(usize::MAX)).then_some(Duration::ZERO))
    }

    #[expect(clippy::cast_precision_loss, reason = "counts are bounded far below what a float holds exactly")]
    async fn publish_task_depth(&self) -> Result<(), store::Error> {
        let depth = self.store.task_counts().await?;
        for (status, count) in [("open", depth.open), ("claimed", depth.claimed)] {
            ::metrics::gauge!(metrics::TASKS.name, "status" => status).set(count as f64);
        }
        Ok(())
    }
}
