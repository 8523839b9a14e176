//! Requests that wait for an execution to end.
//!
//! Invariants
//! - A key has a bounded number of requests that wait at once: they cost a task and a look each.
//! - A waiter is woken when its execution leaves this process; it looks again by itself anyway,
//!   because another process may have ended it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use kernel::ids::ExecutionId;
use tokio::sync::Notify;

/// Who waits for what. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiters {
    waiting: Arc<Mutex<BTreeMap<ExecutionId, Arc<Notify>>>>,
    /// How many requests of each key wait.
    by_key: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Waiters {
    /// Something to wait on; hold it while looking, so that no end is missed in between.
    pub(crate) fn on(&self, execution: ExecutionId) -> Waiter {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let notify = Arc::clone(waiting.entry(execution).or_default());
        Waiter { waiters: self.clone(), execution, notify }
    }

    /// One more request of this key that waits, if it has fewer than `most`.
    pub(crate) fn turn(&self, key: &str, most: usize) -> Option<Turn> {
        let mut by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        let count = by_key.get(key).copied().unwrap_or(0);
        if count >= most {
            return None;
        }
        by_key.insert(key.to_owned(), count + 1);
        Some(Turn { waiters: self.clone(), key: key.to_owned() })
    }

    /// The execution changed: whoever waits looks again.
    pub(crate) fn wake(&self, execution: ExecutionId) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut waiting = self.waiters.waiting.lock().unwrap_or_else(PoisonError::into_inner);
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
    key: String,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut by_key = self.waiters.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        match by_key.get_mut(&self.key) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(by_key.remove(&self.key)),
        }
    }
}
