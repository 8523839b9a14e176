//! Computing that may take long, apart from the threads that answer requests and drive runs.
//!
//! Invariants
//! - At most as many computations run at once as there are processors, each on a thread of its own; the rest wait.
//! - They take turns by workspace. One workspace runs at most a quarter of them at once, and at least one.
//! - No more of a workspace wait than `MOST_WAITING`, where the caller can be told to come again.
//! - A computation is not broken off: it ends by its own budget (`kernel::expression::Budget`).
//!
//! Not here: what a computation may cost (`kernel`), whether one may take long (`kernel::expression::may_take_long`).

use std::sync::LazyLock;
use std::time::Duration;

use kernel::ids::WorkspaceId;

use crate::embedded::permits::{Permit, Permits};

/// How many computations of one workspace may wait for their turn.
const MOST_WAITING: usize = 64;

/// The turns of this process: whatever asks, the processors are the same.
static TURNS: LazyLock<Permits> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(2, std::num::NonZeroUsize::get);
    Permits::new(processors.max(2))
});

/// Nobody got to it in time, or too much waits already.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("too much is being computed for this workspace")]
pub struct Busy;

/// Computes on a thread apart, when it is this workspace's turn.
pub async fn run<T: Send + 'static>(workspace: WorkspaceId, work: impl FnOnce() -> T + Send + 'static) -> T {
    turn(workspace).await.run(work).await
}

/// The right to compute one thing; given back when dropped.
#[derive(Debug)]
pub struct Turn(Permit);

/// Waits for this workspace's turn. For what must not be at hand while it waits.
pub async fn turn(workspace: WorkspaceId) -> Turn {
    Turn(TURNS.acquire(workspace).await)
}

impl Turn {
    /// Computes on a thread apart.
    pub async fn run<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let Turn(permit) = self;
        let worked = tokio::task::spawn_blocking(move || {
            let done = work();
            // Also when nobody waits for it any more, the turn lasts until the work is done.
            drop(permit);
            done
        });
        match worked.await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime stops: nobody hears the answer.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

/// [`run`], unless the answer does not come in time or too many wait already.
pub async fn run_within<T: Send + 'static>(
    workspace: WorkspaceId,
    time: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Busy> {
    if TURNS.waiting(workspace) >= MOST_WAITING {
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
        // The reactor has one thread here, and it is free; so is a turn.
        assert_eq!(run_within(quiet, Duration::from_secs(10), || 7).await, Ok(7));
        drop(open);
        let mut busy = 0;
        for task in held {
            busy += usize::from(task.await.expect("no panic") == Err(Busy));
        }
        assert!(busy > 0, "some were told to come again");
    }
}
