//! Makes jobs pending again: failed jobs after their delay, and jobs whose worker died. It also lets external workers
//! claim the jobs of deleted bindings, and creates the jobs of events for which a transient error prevented that.
//!
//! Invariants
//! - A lease lets one process at a time do this. If a second process did it too, nothing would be done twice, because
//!   every statement changes only rows that still have the expected status.
//! - A worker that uses the API or plain SQL counts as dead if it sent no heartbeat within its lease. The service's own
//!   worker never counts as dead, because its jobs end with their executions.
//! - If one kind of recovery fails, the other kinds still run.
//!
//! What happens if this process dies: each change is one commit. The next pass, in any process, continues.

use std::time::Duration;

use store::Store;
use store::process::lease::Lease;

/// The most jobs changed in one commit.
const BATCH: i32 = 500;

/// The lease is short, because no job is recovered until it expires if its holder dies in the middle of a pass. A pass
/// that takes longer than the lease does no harm.
const LEASE: Lease = Lease { name: "forebayJobs", at_most: Duration::from_secs(10), at_least: Duration::ZERO };

pub(crate) struct JobRecovery {
    pub(crate) store: Store,
    /// How long after its first failure a job is retried.
    pub(crate) retry_after: Duration,
    /// The name under which this process holds the lease.
    pub(crate) holder: String,
    /// Notified when there may be jobs to claim.
    pub(crate) jobs: std::sync::Arc<tokio::sync::Notify>,
}

impl JobRecovery {
    pub(crate) async fn run_once(&self) -> Result<Option<Duration>, store::Error> {
        if !self.store.lock(LEASE, &self.holder).await? {
            return Ok(None);
        }
        let changed = self.recover().await;
        self.store.unlock(LEASE, &self.holder).await?;
        let changed = changed?;
        if changed > 0 {
            self.jobs.notify_one();
        }
        Ok((changed >= BATCH).then_some(Duration::ZERO))
    }

    async fn recover(&self) -> Result<i32, store::Error> {
        let retried = self.store.retry_due_jobs(self.retry_after, BATCH).await;
        let recovered = self.store.recover_jobs(BATCH).await;
        let reconciled = self.store.reconcile_jobs(BATCH).await;
        let unbound = self.store.release_unbound_jobs(BATCH).await;
        let folded = self.store.fold_events(BATCH).await;
        let (retried, recovered, reconciled, unbound, folded) = (retried?, recovered?, reconciled?, unbound?, folded?);
        if folded > 0 {
            tracing::info!(folded, "Created the jobs of events after an earlier attempt failed with a transient error");
        }
        if unbound > 0 {
            tracing::info!(unbound, "Bindings were deleted; external workers may now claim their pending jobs");
        }
        if recovered + reconciled > 0 {
            tracing::info!(recovered, reconciled, "Recovered jobs whose worker died");
        }
        Ok(retried.max(recovered).max(reconciled).max(unbound).max(folded))
    }
}
