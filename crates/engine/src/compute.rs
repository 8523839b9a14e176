//! Runs long computations away from the threads that answer requests and drive runs.
//!
//! Invariants
//! - At most one computation per processor runs at a time, each on its own thread. Other computations wait.
//! - Workspaces take turns. One workspace may use a quarter of the permits at once, and always at least one.
//! - [`run_within`] refuses a computation if `MOST_WAITING` computations of its workspace already wait.
//! - A computation is never interrupted. It ends when its own budget is used up (`kernel::expression::Budget`).
//!
//! Not here: what a computation may cost (`kernel`), which expressions may take long
//! (`kernel::expression::may_take_long`).

use std::sync::LazyLock;
use std::time::Duration;

use kernel::ids::WorkspaceId;

use crate::embedded::permits::{Permit, Permits};

/// How many computations of one workspace may wait for their turn.
const MOST_WAITING: usize = 64;

/// The permits of this process. All callers share them because they share the processors.
static PERMITS: LazyLock<Permits> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(2, std::num::NonZeroUsize::get);
    Permits::new(processors.max(2))
});

/// The computation did not start or finish in time, or too many of this workspace's computations are already waiting.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many computations of this workspace are waiting; try again later")]
pub struct Busy;

/// Waits for this workspace's turn, then computes on a separate thread.
pub async fn run<T: Send + 'static>(workspace: WorkspaceId, work: impl FnOnce() -> T + Send + 'static) -> T {
    acquire(workspace).await.run(work).await
}

/// The right to run one computation. Dropping it returns the permit.
#[derive(Debug)]
pub struct ComputePermit(Permit);

/// Waits for this workspace's turn. A caller that needs secrets acquires the permit first, so that no secret is in
/// memory during the wait.
pub async fn acquire(workspace: WorkspaceId) -> ComputePermit {
    ComputePermit(PERMITS.acquire(workspace).await)
}

impl ComputePermit {
    /// Computes on a separate thread.
    pub async fn run<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let ComputePermit(permit) = self;
        let worked = tokio::task::spawn_blocking(move || {
            let done = work();
            // Keep the permit until the work is done, even if the caller no longer waits.
            drop(permit);
            done
        });
        match worked.await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is shutting down, so nobody will read the result.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

/// Like [`run`], but gives up if the result does not arrive in time or too many computations are already waiting.
pub async fn run_within<T: Send + 'static>(
    workspace: WorkspaceId,
    time: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Busy> {
    if PERMITS.waiting(workspace) >= MOST_WAITING {
        return Err(Busy);
    }
    tokio::time::timeout(time, run(workspace, work)).await.map_err(|_| Busy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use uuid::Uuid;

    #[tokio::test]
    async fn what_one_workspace_computes_does_not_keep_another_waiting() {
        let (greedy, quiet) = (WorkspaceId(Uuid::from_u128(1)), WorkspaceId(Uuid::from_u128(2)));
        let (open, gate) = mpsc::channel::<()>();
        let gate = std::sync::Arc::new(std::sync::Mutex::new(gate));
        let mut held = Vec::new();
        for _ in 0..MOST_WAITING * 2 {
            let gate = std::sync::Arc::clone(&gate);
            held.push(tokio::spawn(run_within(greedy, Duration::from_secs(60), move || {
                let _closed = gate.lock().expect("no panic").recv();
            })));
            tokio::task::yield_now().await;
        }
        // The runtime has one thread here, and it is free. A permit is free too.
        assert_eq!(run_within(quiet, Duration::from_secs(10), || 7).await, Ok(7));
        drop(open);
        let mut busy = 0;
        for task in held {
            busy += usize::from(task.await.expect("no panic") == Err(Busy));
        }
        assert!(busy > 0, "some callers got Busy");
    }
}
