//! Jobs that come back: failed ones when their wait is over, and those whose worker is gone; those that are no more
//! ours, because their binding is gone; and events whose job a transient error prevented.
//!
//! Invariants
//! - One process at a time, by a lease; two would only find less to do, because every move is guarded by the status it
//!   leaves.
//! - A worker of the API, and one of plain SQL, is gone when it was not heard of for its lease; ours never is: its jobs
//!   live and end with their executions.
//! - One kind of recovery that fails does not stop the others.
//!
//! What happens if this process dies: each move is one commit; the next pass, of any process, goes on.

use std::time::Duration;

use store::Store;
use store::process::lease::Lease;

/// Jobs moved in one commit.
const BATCH: i32 = 500;

/// As short as it may be: one that dies in the middle of a pass keeps every job waiting for so long, and a pass that
/// takes longer than this does no harm.
const LEASE: Lease = Lease { name: "forebayJobs", at_most: Duration::from_secs(10), at_least: Duration::ZERO };

pub(crate) struct Recovery {
    pub(crate) store: Store,
    /// How long after a first failure a job is tried again.
    pub(crate) retry_after: Duration,
    /// Who holds the lease.
    pub(crate) holder: String,
    /// Told when there may be something to take.
    pub(crate) jobs: std::sync::Arc<tokio::sync::Notify>,
}

impl Recovery {
    pub(crate) async fn pass(&self) -> Result<Option<Duration>, store::Error> {
        if !self.store.lock(LEASE, &self.holder).await? {
            return Ok(None);
        }
        let moved = self.bring_back().await;
        self.store.unlock(LEASE, &self.holder).await?;
        let moved = moved?;
        if moved > 0 {
            self.jobs.notify_one();
        }
        Ok((moved >= BATCH).then_some(Duration::ZERO))
    }

    async fn bring_back(&self) -> Result<i32, store::Error> {
        let retried = self.store.retry_jobs(self.retry_after, BATCH).await;
        let recovered = self.store.recover_jobs(BATCH).await;
        let reconciled = self.store.reconcile_jobs(BATCH).await;
        let unbound = self.store.unbound_jobs(BATCH).await;
        let folded = self.store.fold_events(BATCH).await;
        let (retried, recovered, reconciled, unbound, folded) = (retried?, recovered?, reconciled?, unbound?, folded?);
        if folded > 0 {
            tracing::info!(folded, "Handled events again whose handling a transient error had stopped");
        }
        if unbound > 0 {
            tracing::info!(unbound, "Jobs whose binding is gone wait for our own worker no more");
        }
        if recovered + reconciled > 0 {
            tracing::info!(recovered, reconciled, "Jobs whose worker was gone came back");
        }
        Ok(retried.max(recovered).max(reconciled).max(unbound).max(folded))
    }
}
