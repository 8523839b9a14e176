//! Requests with `?wait=` that wait for an execution to end.
//!
//! Invariants
//! - The number of requests of a workspace that wait at the same time is bounded, because each costs memory and
//!   repeated queries.
//! - A request is woken when the run of its execution leaves this process, usually because it has ended. The request
//!   also polls, because the execution may end in another process.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

use kernel::ids::ExecutionId;
use tokio::sync::Notify;

/// The requests that wait, by execution. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiters {
    waiting: Arc<Mutex<BTreeMap<ExecutionId, Arc<Notify>>>>,
    /// How many requests of each share wait. A share is a workspace (`Caller::share`).
    by_share: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Waiters {
    /// Registers a request as waiting for this execution. Register before reading the execution: otherwise an end
    /// between the read and the registration would not wake the request.
    pub(crate) fn register(&self, execution: ExecutionId) -> Waiter {
        let mut waiting = self.waiting.lock();
        let notify = Arc::clone(waiting.entry(execution).or_default());
        Waiter { waiters: self.clone(), execution, notify }
    }

    /// A permit for one more request to wait; none if `most` requests of this share are waiting.
    pub(crate) fn try_permit(&self, share: &str, most: usize) -> Option<WaitPermit> {
        let mut by_share = self.by_share.lock();
        let count = by_share.get(share).copied().unwrap_or(0);
        if count >= most {
            return None;
        }
        by_share.insert(share.to_owned(), count + 1);
        Some(WaitPermit { waiters: self.clone(), share: share.to_owned() })
    }

    /// Wakes the requests that wait for this execution, so that they read it again.
    pub(crate) fn wake(&self, execution: ExecutionId) {
        let waiting = self.waiting.lock();
        if let Some(notify) = waiting.get(&execution) {
            notify.notify_waiters();
        }
    }
}

/// One waiting request. Dropping this ends its registration.
#[derive(Debug)]
pub(crate) struct Waiter {
    waiters: Waiters,
    execution: ExecutionId,
    pub(crate) notify: Arc<Notify>,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiting = self.waiters.waiting.lock();
        // Two references are left for the last waiter: the reference in the map, and its own.
        if Arc::strong_count(&self.notify) <= 2 {
            waiting.remove(&self.execution);
        }
    }
}

/// The right of one request to wait, until this is dropped.
#[derive(Debug)]
pub(crate) struct WaitPermit {
    waiters: Waiters,
    share: String,
}

impl Drop for WaitPermit {
    fn drop(&mut self) {
        let mut by_share = self.waiters.by_share.lock();
        match by_share.get_mut(&self.share) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(by_share.remove(&self.share)),
        }
    }
}
