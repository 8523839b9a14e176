//! Forgets what ended long ago: executions with their nodes and dead letters, jobs of events, schedules, deliveries of webhooks, and old activity.
//!
//! Invariants
//! - One process at a time, by a lease; two would only find less to do.
//! - Bounded deletes with a pause between them: what runs comes first.
//! - Safe to stop anywhere: each batch is one commit, and the next look begins from the oldest.
//!
//! Not here: what may go (`store::retention`).

use std::time::Duration;

use kernel::ids::ExecutionId;
use kernel::signals::metrics;
use store::Store;
use store::lease::Lease;

use crate::config::Retention as Settings;

/// How often it looks.
pub(crate) const EVERY: Duration = Duration::from_secs(10 * 60);
/// Executions looked at, and activity deleted, in one commit.
const BATCH: i64 = 500;
/// Jobs deleted in one commit.
const JOBS: i32 = 500;
/// Commits in one pass.
const BATCHES: usize = 200;
const PAUSE: Duration = Duration::from_millis(50);

const LEASE: Lease =
    Lease { name: "forebayRetention", at_most: Duration::from_secs(10 * 60), at_least: Duration::from_secs(60) };

pub(crate) struct Retention {
    pub(crate) store: Store,
    pub(crate) settings: Settings,
    /// Who holds the lease.
    pub(crate) holder: String,
}

impl Retention {
    pub(crate) async fn pass(&self) -> Result<Option<Duration>, store::Error> {
        if !self.store.lock(LEASE, &self.holder).await? {
            ::metrics::counter!(metrics::LOCK_FAILURES.name, "name" => LEASE.name).increment(1);
            return Ok(None);
        }
        let done = async {
            self.executions().await?;
            self.jobs().await?;
            self.deliveries().await?;
            self.schedules().await?;
            self.activity().await
        };
        let done = done.await;
        self.store.unlock(LEASE, &self.holder).await?;
        done.map(|()| None)
    }

    async fn executions(&self) -> Result<(), store::Error> {
        let Some(age) = days(self.settings.execution_days) else { return Ok(()) };
        let (mut from, mut retired): (Option<ExecutionId>, i64) = (None, 0);
        for _ in 0..BATCHES {
            let done = self.store.retire(age, from, BATCH).await?;
            retired += done.executions;
            from = done.next;
            if from.is_none() || !self.go_on().await? {
                break;
            }
        }
        if retired > 0 {
            tracing::info!(retired, "Forgot executions that ended long ago");
            ::metrics::counter!(metrics::RETIRED.name).increment(retired.unsigned_abs());
        }
        Ok(())
    }

    async fn jobs(&self) -> Result<(), store::Error> {
        let Some(age) = days(self.settings.job_days) else { return Ok(()) };
        for _ in 0..BATCHES {
            if self.store.retire_jobs(age, JOBS).await? == 0 || !self.go_on().await? {
                break;
            }
        }
        Ok(())
    }

    async fn deliveries(&self) -> Result<(), store::Error> {
        let Some(age) = days(self.settings.delivery_days) else { return Ok(()) };
        for _ in 0..BATCHES {
            if self.store.retire_deliveries(age, BATCH).await? == 0 || !self.go_on().await? {
                break;
            }
        }
        Ok(())
    }

    /// As long as the executions that they started.
    async fn schedules(&self) -> Result<(), store::Error> {
        let Some(age) = days(self.settings.execution_days) else { return Ok(()) };
        for _ in 0..BATCHES {
            if self.store.retire_schedules(age, BATCH).await? == 0 || !self.go_on().await? {
                break;
            }
        }
        Ok(())
    }

    async fn activity(&self) -> Result<(), store::Error> {
        let Some(age) = days(self.settings.activity_days) else { return Ok(()) };
        for _ in 0..BATCHES {
            if self.store.retire_activity(age, BATCH).await? == 0 || !self.go_on().await? {
                break;
            }
        }
        Ok(())
    }

    /// Rests, and keeps the lease; false if it was lost.
    async fn go_on(&self) -> Result<bool, store::Error> {
        tokio::time::sleep(PAUSE).await;
        self.store.extend(LEASE, &self.holder).await
    }
}

/// Zero days: for ever.
fn days(days: u32) -> Option<Duration> {
    (days > 0).then(|| Duration::from_secs(u64::from(days) * 24 * 60 * 60))
}
