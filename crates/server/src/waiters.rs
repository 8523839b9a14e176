//! Requests that wait for an execution to end.
//!
//! Invariants
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
}

impl Waiters {
    /// Something to wait on; hold it while looking, so that no end is missed in between.
    pub(crate) fn on(&self, execution: ExecutionId) -> Waiter {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let notify = Arc::clone(waiting.entry(execution).or_default());
        Waiter { waiters: self.clone(), execution, notify }
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
