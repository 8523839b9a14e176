//! Asks that nobody answers: time that is up, workers that are silent, and runs that were called and did not hear.
//!
//! Invariants
//! - Look, decide, do: whose time is up and whose lease is lost is the database's clock's to say; how many silent
//!   workers are too many the kernel's.
//! - Safe to run twice and in every process at once: each row is moved by its status, under its holder's lock where the
//!   run is called.
//!
//! What happens if this process dies: before the commit nothing moved; after it, the call is stored with it.
//!
//! Not here: the statement (`store`'s `functions/ask.sql`), events that answer waits (`asks::judge`).

use std::sync::Arc;
use std::time::Duration;

use engine::Engine;
use kernel::signals::metrics;
use store::Store;

use crate::run::notify::Calls;

/// How often, at the latest: leases are seconds.
pub(crate) const EVERY: Duration = Duration::from_secs(1);
/// The most rows of a sort that are moved at once.
const MOST: i32 = 200;
/// A run elsewhere that has not looked for so long is told again.
const HEARS_WITHIN: Duration = Duration::from_secs(2);

pub(crate) struct Asks {
    pub(crate) store: Store,
    pub(crate) calls: Calls,
    /// The engine, if it is elsewhere.
    pub(crate) elsewhere: Option<Arc<dyn Engine>>,
}

impl Asks {
    pub(crate) async fn pass(&self) -> Result<Option<Duration>, store::Error> {
        let swept = self.store.sweep_asks(MOST).await?;
        let lost = swept.lost + swept.failed;
        if lost > 0 {
            ::metrics::counter!(metrics::TASKS_LOST.name).increment(lost.try_into().unwrap_or(u64::MAX));
        }
        let moved = lost + swept.expired;
        swept.calls.into_iter().for_each(|call| self.calls.tell(Some(call)));
        if let Some(engine) = &self.elsewhere {
            for run in self.store.called(engine.name(), HEARS_WITHIN, i64::from(MOST)).await? {
                // Its root was called for a child that is to end, too.
                for child in self.store.canceling_below(run).await? {
                    engine.cancel(child);
                }
                engine.signal(run);
            }
        }
        self.tell_depth().await?;
        Ok((moved >= usize::try_from(MOST).unwrap_or(usize::MAX)).then_some(Duration::ZERO))
    }

    #[expect(clippy::cast_precision_loss, reason = "counts are bounded far below what a float holds exactly")]
    async fn tell_depth(&self) -> Result<(), store::Error> {
        let depth = self.store.task_depth().await?;
        for (status, count) in [("open", depth.open), ("claimed", depth.claimed)] {
            ::metrics::gauge!(metrics::TASKS.name, "status" => status).set(count as f64);
        }
        Ok(())
    }
}
