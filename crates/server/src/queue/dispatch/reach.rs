//! What this process claims for, and how much.
//!
//! Invariants
//! - Room that runs of dead processes wait for is not claimed for new work.
//! - A workspace that this process has no room for is told to the others: whoever has room first claims for it.
//!
//! Not here: which shards are whose (`heartbeat`), how many runs wait for an owner (`run::resume`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kernel::ids::{SHARDS, WorkspaceId};

use super::Dispatcher;

impl Dispatcher {
    /// The shards to look at: this process's own and those it claims for, or all of them if nobody else may.
    pub(super) fn shards(&self) -> Arc<[i16]> {
        if self.ours.is_exclusive() {
            return if self.ours.is_held() { (0..SHARDS).collect() } else { Arc::default() };
        }
        self.alive.borrow().as_ref().map(|alive| Arc::clone(&alive.claim_shards)).unwrap_or_default()
    }

    /// What was known of shards that are another's now is theirs to know.
    pub(super) fn forget_others(&mut self) {
        let shards = self.shards();
        self.full.retain(|workspace, _| shards.contains(&workspace.shard()));
    }

    /// How many more items may be asked for now.
    pub(super) fn room(&self) -> i32 {
        let told = self.alive.borrow().as_ref().map_or(0, |alive| alive.waiting);
        let waiting = told.max(self.waiting_runs.load(Ordering::Relaxed));
        let room = self.starter.room().saturating_sub(waiting);
        i32::try_from(room).unwrap_or(i32::MAX).saturating_sub(self.outstanding)
    }

    /// Takes in what a sweep found. What this process has no room for is offered to the others.
    pub(super) fn found(&mut self, found: Vec<(WorkspaceId, i32)>) {
        if self.room() <= 0 && !self.ours.is_exclusive() {
            self.starter.hints.no_room(found.iter().map(|(workspace, _)| *workspace));
        }
        for (workspace, weight) in found {
            self.full.remove(&workspace);
            if self.asked.contains(&workspace) {
                self.again.insert(workspace);
            } else {
                self.ring.add(workspace, weight);
            }
        }
    }
}
