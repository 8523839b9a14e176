//! Requests that wait for an execution to end.
//!
//! Invariants
//! - A workspace has a bounded number of requests that wait at once: they cost a task and a look each.
//! - A waiter is woken when its execution leaves this process; it looks again by itself anyway,
//!   because another process may have ended it.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

use kernel::ids::ExecutionId;
use tokio::sync::Notify;

/// Who waits for what. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiters {
    waiting: Arc<Mutex<BTreeMap<ExecutionId, Arc<Notify>>>>,
    /// How many requests of each share wait.
    by_share: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Waiters {
    /// Something to wait on; hold it while looking, so that no end is missed in between.
    pub(crate) fn on(&self, execution: ExecutionId) -> Waiter {
        let mut waiting = self.waiting.lock();
        let notify = Arc::clone(waiting.entry(execution).or_default());
        Waiter { waiters: self.clone(), execution, notify }
    }

    /// One more request that waits, if that share (`Caller::share`) has fewer than `most`.
    pub(crate) fn turn(&self, share: &str, most: usize) -> Option<Turn> {
        let mut by_share = self.by_share.lock();
        let count = by_share.get(share).copied().unwrap_or(0);
        if count >= most {
            return None;
        }
        by_share.insert(share.to_owned(), count + 1);
        Some(Turn { waiters: self.clone(), share: share.to_owned() })
    }

    /// The execution changed: whoever waits looks again.
    pub(crate) fn wake(&self, execution: ExecutionId) {
        let waiting = self.waiting.lock();
        if let Some(notify) = waiting.get(&execution) {
            notify.notify_waiters();
        }
    }
}

/// One request's wait; leaves no trace when dropped.
#[derive(Debug)]
pub(crate) struct Waiter {
    waiters: Waiters,
    execution: ExecutionId,
    pub(crate) notify: Arc<Notify>,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiting = self.waiters.waiting.lock();
        // Two references: the map's and this one's.
        if Arc::strong_count(&self.notify) <= 2 {
            waiting.remove(&self.execution);
        }
    }
}

/// The right of one request to wait; given back when dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    waiters: Waiters,
    share: String,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut by_share = self.waiters.by_share.lock();
        match by_share.get_mut(&self.share) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(by_share.remove(&self.share)),
        }
    }
}
