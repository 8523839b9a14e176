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
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kernel::ids::WorkspaceId;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::embedded::permits::Permits;

/// How many computations of one workspace may wait for their turn.
const MOST_WAITING: usize = 64;
/// How many may run in the place of the task that asks for them.
const IN_PLACE: usize = 4;

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
    let permit = TURNS.acquire(workspace).await;
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

/// Computes in the place of the calling task, while another thread takes over what else its thread had to do. For code
/// that cannot wait for a turn.
pub fn in_place<T>(work: impl FnOnce() -> T) -> T {
    static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let before = UNDER_WAY.fetch_add(1, Ordering::Relaxed);
    let _leave = Leave;
    let can = Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    if can && before < IN_PLACE { tokio::task::block_in_place(work) } else { work() }
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
