//! The shards from which this process claims, and how many items it may claim.
//!
//! Invariants
//! - Room that runs of dead processes wait for is not used for new items.
//! - If this process finds ready items but has no room for them, it notifies the other processes. A process with room
//!   then claims these items.
//!
//! Not here: which process owns which shards (`heartbeat`), how many runs wait for an owner (`run::resume`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kernel::ids::{SHARDS, WorkspaceId};

use super::Dispatcher;

impl Dispatcher {
    /// The shards from which this process claims. With `dispatch.exclusive` these are all shards if this process holds
    /// the lease, otherwise none.
    pub(super) fn claim_shards(&self) -> Arc<[i16]> {
        if self.lease.is_required() {
            return if self.lease.is_held() { (0..SHARDS).collect() } else { Arc::default() };
        }
        self.membership.borrow().as_ref().map(|membership| Arc::clone(&membership.claim_shards)).unwrap_or_default()
    }

    /// Forgets which workspaces are at capacity in shards from which this process no longer claims.
    pub(super) fn forget_foreign_shards(&mut self) {
        let shards = self.claim_shards();
        self.full.retain(|workspace| shards.contains(&workspace.shard()));
    }

    /// How many more items the next round may claim.
    pub(super) fn claim_limit(&self) -> i32 {
        let reported = self.membership.borrow().as_ref().map_or(0, |membership| membership.waiting_runs);
        let waiting_runs = reported.max(self.waiting_runs.load(Ordering::Relaxed));
        let room = self.starter.claim_limit().saturating_sub(waiting_runs);
        i32::try_from(room).unwrap_or(i32::MAX).saturating_sub(self.outstanding)
    }

    /// Adds the workspaces that a sweep found to the ring. If this process has no room, it notifies other processes of
    /// these workspaces.
    pub(super) fn add_swept_workspaces(&mut self, found: Vec<(WorkspaceId, i32)>) {
        if self.claim_limit() <= 0 && !self.lease.is_required() {
            self.starter.notifier.notify_no_room(found.iter().map(|(workspace, _)| *workspace));
        }
        for (workspace, weight) in found {
            self.full.remove(workspace);
            if self.asked.contains(&workspace) {
                self.ask_again.insert(workspace);
            } else {
                self.ring.add(workspace, weight);
            }
        }
    }
}
