//! Who may call out next, within one process: node permits, handed out round-robin by workspace.
//!
//! Invariants
//! - At most `size` permits are out at once.
//! - A workspace with a thousand waiting nodes gets its next permit after every other waiting
//!   workspace got one: fairness does not end at admission.
//! - A waiter that goes away gives its turn up; a permit that is dropped goes to the next.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use kernel::ids::WorkspaceId;
use tokio::sync::oneshot;

/// The permits of one process. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Permits {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// Workspaces with waiters, in turn.
    turn: VecDeque<WorkspaceId>,
    waiting: BTreeMap<WorkspaceId, VecDeque<oneshot::Sender<Permit>>>,
}

/// The right to call out; given back when dropped.
#[derive(Debug)]
pub(super) struct Permit {
    state: Option<Arc<Mutex<State>>>,
}

impl Permits {
    pub(super) fn new(size: usize) -> Permits {
        let state = State { free: size, turn: VecDeque::new(), waiting: BTreeMap::new() };
        Permits { state: Arc::new(Mutex::new(state)) }
    }

    /// Waits for this workspace's turn.
    pub(super) async fn acquire(&self, workspace: WorkspaceId) -> Permit {
        let turn = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.free > 0 {
                state.free -= 1;
                return Permit { state: Some(Arc::clone(&self.state)) };
            }
            let (send, receive) = oneshot::channel();
            let waiters = state.waiting.entry(workspace).or_default();
            waiters.push_back(send);
            if waiters.len() == 1 {
                state.turn.push_back(workspace);
            }
            receive
        };
        match turn.await {
            Ok(permit) => permit,
            // The permits are gone with their process's engine; nothing waits behind this one.
            Err(_) => Permit { state: None },
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(shared) = self.state.take() else { return };
        let mut handed = Permit { state: Some(Arc::clone(&shared)) };
        loop {
            let waiter = {
                let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
                match state.next() {
                    Some(waiter) => waiter,
                    None => {
                        state.free += 1;
                        handed.state = None;
                        return;
                    }
                }
            };
            // A waiter that went away hands the permit straight back.
            match waiter.send(handed) {
                Ok(()) => return,
                Err(back) => handed = back,
            }
        }
    }
}

impl State {
    fn next(&mut self) -> Option<oneshot::Sender<Permit>> {
        let workspace = self.turn.pop_front()?;
        let waiters = self.waiting.get_mut(&workspace)?;
        let waiter = waiters.pop_front();
        if waiters.is_empty() {
            self.waiting.remove(&workspace);
        } else {
            self.turn.push_back(workspace);
        }
        waiter
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use uuid::Uuid;

    fn workspace(n: u128) -> WorkspaceId {
        WorkspaceId(Uuid::from_u128(n))
    }

    #[tokio::test]
    async fn permits_go_round_by_workspace() {
        let permits = Permits::new(1);
        let first = permits.acquire(workspace(0)).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for n in [1, 1, 1, 2, 3] {
            let (permits, order) = (permits.clone(), Arc::clone(&order));
            tasks.push(tokio::spawn(async move {
                let permit = permits.acquire(workspace(n)).await;
                order.lock().expect("whole").push(n);
                drop(permit);
            }));
            tokio::task::yield_now().await;
        }
        drop(first);
        for task in tasks {
            task.await.expect("no panic");
        }
        assert_eq!(*order.lock().expect("whole"), [1, 2, 3, 1, 1]);
    }

    #[tokio::test]
    async fn a_waiter_that_goes_away_blocks_nobody_and_no_permit_is_lost() {
        let permits = Permits::new(2);
        let busy = Arc::new(AtomicUsize::new(0));
        let held = (permits.acquire(workspace(9)).await, permits.acquire(workspace(9)).await);
        let gone = tokio::spawn({
            let permits = permits.clone();
            async move { permits.acquire(workspace(1)).await }
        });
        tokio::task::yield_now().await;
        gone.abort();
        assert!(gone.await.is_err());
        drop(held);
        let mut tasks = Vec::new();
        for n in 0..50 {
            let (permits, busy) = (permits.clone(), Arc::clone(&busy));
            tasks.push(tokio::spawn(async move {
                let _permit = permits.acquire(workspace(n % 3)).await;
                assert!(busy.fetch_add(1, Ordering::SeqCst) < 2);
                tokio::task::yield_now().await;
                busy.fetch_sub(1, Ordering::SeqCst);
            }));
        }
        for task in tasks {
            task.await.expect("never more than two at once");
        }
    }
}
