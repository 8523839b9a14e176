//! Limits the start requests of this process: how many are in flight at the same time. Also limits how many more items
//! may be claimed while earlier items are not started yet.
//!
//! Invariants
//! - No more start requests are in flight than `dispatch.parallel_starts` allows, however many claims there are.
//! - The number of items claimed ahead is bounded, because an item that waits here holds a slot, and items enqueued
//!   later can no longer come before it.
//! - When the bound is reached, nothing more is claimed until the engine has answered half of the pending start
//!   requests. So items are claimed in batches.
//!
//! Not here: whether the engine can be reached (`breaker`), how many runs it can hold (`Engine::capacity`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::process::notifications::Notifier;

/// The number of items that may be claimed ahead is this many times `dispatch.parallel_starts`: enough that the engine
/// is not idle until the next claim has returned.
const CLAIMED_AHEAD: usize = 8;

/// The limit on start requests of this process. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct StartLimit {
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    in_flight: Semaphore,
    /// The number of claimed items whose start request the engine has not answered.
    pending: AtomicUsize,
    max_pending: usize,
    notifier: Notifier,
}

/// A claimed item counted as pending, until this is dropped.
#[derive(Debug)]
pub(crate) struct PendingStart(Arc<State>);

impl StartLimit {
    /// Allows `max_in_flight` start requests at the same time. Notifies the dispatcher when more items may be claimed.
    pub(crate) fn new(max_in_flight: usize, notifier: Notifier) -> StartLimit {
        let in_flight = Semaphore::new(max_in_flight.min(Semaphore::MAX_PERMITS));
        let max_pending = max_in_flight.saturating_mul(CLAIMED_AHEAD);
        StartLimit { state: Arc::new(State { in_flight, pending: AtomicUsize::new(0), max_pending, notifier }) }
    }

    /// How many more items may be claimed.
    pub(crate) fn claim_limit(&self) -> usize {
        match self.state.pending.load(Ordering::Relaxed) {
            pending if pending > self.state.half() => 0,
            pending => self.state.max_pending - pending,
        }
    }

    /// Counts a claimed item as pending. Items taken over from another process are counted too, even without room.
    pub(crate) fn add_pending(&self) -> PendingStart {
        self.state.pending.fetch_add(1, Ordering::Relaxed);
        PendingStart(Arc::clone(&self.state))
    }

    /// Waits until a start request may be sent. Hold the permit until the engine has answered.
    pub(crate) async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        self.state.in_flight.acquire().await.ok()
    }
}

impl State {
    fn half(&self) -> usize {
        self.max_pending / 2
    }
}

impl Drop for PendingStart {
    fn drop(&mut self) {
        if self.0.pending.fetch_sub(1, Ordering::Relaxed) == self.0.half() + 1 {
            self.0.notifier.notify_room();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::process::notifications::Notification;

    #[tokio::test]
    async fn nothing_more_is_claimed_until_half_of_the_starts_are_answered_and_the_dispatcher_is_notified_once() {
        let (sender, mut notifications) = mpsc::unbounded_channel();
        let limit = StartLimit::new(2, Notifier::new(Some(sender), None));
        assert_eq!(limit.claim_limit(), 16);
        let mut pending: Vec<PendingStart> = (0..16).map(|_| limit.add_pending()).collect();
        assert_eq!(limit.claim_limit(), 0);
        pending.truncate(9);
        assert_eq!((limit.claim_limit(), notifications.try_recv().is_err()), (0, true), "not yet");
        pending.pop();
        assert_eq!((limit.claim_limit(), notifications.try_recv()), (8, Ok(Notification::Room)));
        pending.clear();
        assert_eq!((limit.claim_limit(), notifications.try_recv().is_err()), (16, true));
    }

    #[tokio::test]
    async fn no_more_starts_are_in_flight_than_the_setting_allows() {
        let limit = StartLimit::new(2, Notifier::new(None, None));
        let (first, _second) = (limit.permit().await, limit.permit().await);
        assert!(futures_util::FutureExt::now_or_never(limit.permit()).is_none());
        drop(first);
        assert!(futures_util::FutureExt::now_or_never(limit.permit()).is_some());
    }
}
