//! Decides which node may make the next call, within one process: permits, handed out round-robin by workspace.
//!
//! Invariants
//! - At most `size` permits are in use at a time.
//! - A workspace with a thousand waiting nodes gets its next permit only after every other waiting workspace got one.
//!   So workspaces share calls as fairly as admission shares slots.
//! - No workspace holds more than its share of the permits, however long its calls take.
//! - A waiter whose future is dropped loses its turn. A permit that is dropped goes to the next waiter.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use kernel::ids::WorkspaceId;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The permits of one process. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Permits {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// The maximum number of permits that one workspace may hold.
    share: usize,
    held: BTreeMap<WorkspaceId, usize>,
    /// Workspaces with waiters, in order of their turns.
    round_robin: VecDeque<WorkspaceId>,
    waiting: BTreeMap<WorkspaceId, VecDeque<oneshot::Sender<Permit>>>,
}

/// The right to make a call. Dropping it returns the permit.
#[derive(Debug)]
pub(crate) struct Permit {
    state: Option<Arc<Mutex<State>>>,
    workspace: WorkspaceId,
}

impl Permits {
    /// `size` permits in total, of which one workspace may hold a quarter.
    pub(crate) fn new(size: usize) -> Permits {
        let share = (size / 4).max(1);
        let state =
            State { free: size, share, held: BTreeMap::new(), round_robin: VecDeque::new(), waiting: BTreeMap::new() };
        Permits { state: Arc::new(Mutex::new(state)) }
    }

    /// Returns a permit if this workspace may have one now.
    pub(super) fn try_acquire(&self, workspace: WorkspaceId) -> Option<Permit> {
        let mut state = self.state.lock();
        state.take(workspace).then(|| Permit { state: Some(Arc::clone(&self.state)), workspace })
    }

    /// How many callers of this workspace wait for a permit.
    pub(crate) fn waiting(&self, workspace: WorkspaceId) -> usize {
        let state = self.state.lock();
        state.waiting.get(&workspace).map_or(0, VecDeque::len)
    }

    /// Waits until this workspace gets a permit.
    pub(crate) async fn acquire(&self, workspace: WorkspaceId) -> Permit {
        let turn = {
            let mut state = self.state.lock();
            if state.take(workspace) {
                return Permit { state: Some(Arc::clone(&self.state)), workspace };
            }
            let (send, receive) = oneshot::channel();
            let waiters = state.waiting.entry(workspace).or_default();
            waiters.push_back(send);
            if waiters.len() == 1 {
                state.round_robin.push_back(workspace);
            }
            receive
        };
        match turn.await {
            Ok(permit) => permit,
            // The engine was dropped with all its permits, so nobody else needs one.
            Err(_) => Permit { state: None, workspace },
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(shared) = self.state.take() else { return };
        let mut back = self.workspace;
        loop {
            let next = {
                let mut state = shared.lock();
                state.give_back(back);
                state.next()
            };
            let Some((workspace, waiter)) = next else { return };
            let permit = Permit { state: Some(Arc::clone(&shared)), workspace };
            // If the waiter is gone, `send` returns the permit. Its `state` is removed, so that its own drop does
            // nothing: this loop returns the permit instead.
            match waiter.send(permit) {
                Ok(()) => return,
                Err(mut returned) => {
                    returned.state = None;
                    back = workspace;
                }
            }
        }
    }
}

impl State {
    fn has_share(&self, workspace: WorkspaceId) -> bool {
        self.held.get(&workspace).is_none_or(|held| *held < self.share)
    }

    /// Counts a permit for this workspace, if one is free and its share is not used up.
    fn take(&mut self, workspace: WorkspaceId) -> bool {
        let may = self.free > 0 && self.has_share(workspace);
        if may {
            self.free -= 1;
            *self.held.entry(workspace).or_default() += 1;
        }
        may
    }

    fn give_back(&mut self, workspace: WorkspaceId) {
        self.free += 1;
        if let Some(held) = self.held.get_mut(&workspace) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&workspace);
            }
        }
    }

    /// Removes and returns the next waiter whose workspace is below its share, and counts a permit for that workspace.
    fn next(&mut self) -> Option<(WorkspaceId, oneshot::Sender<Permit>)> {
        let at = (0..self.round_robin.len()).find(|at| self.has_share(self.round_robin[*at]))?;
        let workspace = self.round_robin.remove(at)?;
        let waiters = self.waiting.get_mut(&workspace)?;
        let waiter = waiters.pop_front();
        if waiters.is_empty() {
            self.waiting.remove(&workspace);
        } else {
            self.round_robin.push_back(workspace);
        }
        let waiter = waiter?;
        self.free -= 1;
        *self.held.entry(workspace).or_default() += 1;
        Some((workspace, waiter))
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
                order.lock().push(n);
                drop(permit);
            }));
            tokio::task::yield_now().await;
        }
        drop(first);
        for task in tasks {
            task.await.expect("no panic");
        }
        assert_eq!(*order.lock(), [1, 2, 3, 1, 1]);
    }

    #[tokio::test]
    async fn a_waiter_that_goes_away_blocks_nobody_and_no_permit_is_lost() {
        let permits = Permits::new(8);
        let busy = Arc::new(AtomicUsize::new(0));
        let mut held = Vec::new();
        for n in 10..18 {
            held.push(permits.acquire(workspace(n)).await);
        }
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
                assert!(busy.fetch_add(1, Ordering::SeqCst) < 8);
                tokio::task::yield_now().await;
                busy.fetch_sub(1, Ordering::SeqCst);
            }));
        }
        for task in tasks {
            task.await.expect("never more than eight at once");
        }
    }

    #[tokio::test]
    async fn a_workspace_of_endless_calls_leaves_the_rest_to_others() {
        let permits = Permits::new(8);
        let first = permits.acquire(workspace(1)).await;
        let second = permits.acquire(workspace(1)).await;
        let third = tokio::spawn({
            let permits = permits.clone();
            async move { permits.acquire(workspace(1)).await }
        });
        tokio::task::yield_now().await;
        assert!(!third.is_finished(), "a quarter of eight is two");
        let other = permits.acquire(workspace(2)).await;
        drop((second, other));
        let third = third.await.expect("the task ended");
        drop((first, third));
    }
}
