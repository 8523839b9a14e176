//! The ring: a weighted round robin over the workspaces that probably have a ready item and a free slot.
//!
//! Invariants
//! - The ring may be wrong. A workspace that should not be in the ring costs one claim that finds nothing. The next
//!   notification or poll adds a missing workspace again. Limits never depend on the ring.
//! - Every workspace in the ring has a turn before any workspace has a second turn. Over time the items that each
//!   workspace gets are in proportion to its weight, even if batches are small.
//! - A full, paused or empty workspace is not in the ring, so it costs nothing.
//!
//! Not here: claiming (`store`), finding workspaces (`server::queue::dispatch` polls).

use std::collections::{BTreeMap, VecDeque};

use crate::ids::WorkspaceId;

/// How many items a claim may take from one workspace in this turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    pub workspace: WorkspaceId,
    pub limit: i32,
}

#[derive(Clone, Copy)]
enum Due {
    /// A whole turn; its length depends on this weight.
    Turn(i32),
    /// The remainder of a turn that a batch cut short.
    Rest(i32),
}

/// The ring of one dispatcher.
#[derive(Clone, Debug, Default)]
pub struct RoundRobin {
    turn: VecDeque<WorkspaceId>,
    weights: BTreeMap<WorkspaceId, i32>,
    /// The remainder of each turn that a batch cut short.
    rest: BTreeMap<WorkspaceId, i32>,
}

impl RoundRobin {
    /// Adds a workspace, or updates its weight. A workspace whose turn was cut short continues that turn
    /// before the others.
    pub fn add(&mut self, workspace: WorkspaceId, weight: i32) {
        if self.weights.insert(workspace, weight.max(1)).is_some() {
            return;
        }
        if self.rest.contains_key(&workspace) {
            self.turn.push_front(workspace);
        } else {
            self.turn.push_back(workspace);
        }
    }

    /// Adds a workspace whose weight is not known yet.
    pub fn add_unweighted(&mut self, workspace: WorkspaceId) {
        if !self.weights.contains_key(&workspace) {
            self.add(workspace, 1);
        }
    }

    pub fn len(&self) -> usize {
        self.turn.len()
    }

    pub fn is_empty(&self) -> bool {
        self.turn.is_empty()
    }

    /// Removes the next workspaces from the ring and gives them quotas of at most `batch` items in all.
    /// Only the last workspace may get a smaller quota than its turn allows.
    pub fn next_batch(&mut self, batch: i32) -> Vec<Quota> {
        self.next_batch_of(batch, usize::MAX)
    }

    /// The same as `next_batch`, for at most this many workspaces.
    pub fn next_batch_of(&mut self, batch: i32, workspaces: usize) -> Vec<Quota> {
        let mut taken: Vec<(WorkspaceId, Due)> = Vec::new();
        let (mut weights, mut rests) = (0i32, 0i32);
        while weights.saturating_add(rests) < batch
            && taken.len() < workspaces
            && let Some(workspace) = self.turn.pop_front()
        {
            let weight = self.weights.remove(&workspace).unwrap_or(1);
            let due = self.rest.remove(&workspace).map_or(Due::Turn(weight), Due::Rest);
            match due {
                Due::Turn(weight) => weights = weights.saturating_add(weight),
                Due::Rest(rest) => rests = rests.saturating_add(rest),
            }
            taken.push((workspace, due));
        }
        let quantum = (batch.saturating_sub(rests) / weights.max(1)).max(1);
        let mut left = batch;
        let mut quotas = Vec::with_capacity(taken.len());
        for (workspace, due) in taken {
            let due = match due {
                Due::Turn(weight) => weight.saturating_mul(quantum),
                Due::Rest(rest) => rest,
            };
            let want = due.min(left);
            left -= want;
            if due > want {
                self.rest.insert(workspace, due - want);
            }
            quotas.push(Quota { workspace, limit: want });
        }
        quotas
    }

    /// Forgets the remainder of a workspace's turn, because the workspace left the ring.
    pub fn forget_remainder(&mut self, workspace: WorkspaceId) {
        self.rest.remove(&workspace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn workspace(n: u128) -> WorkspaceId {
        WorkspaceId(Uuid::from_u128(n))
    }

    #[test]
    fn shares_follow_weights() {
        let weights = [1, 1, 3, 1, 2];
        let mut served = [0; 5];
        let mut ring = RoundRobin::default();
        for (at, weight) in weights.iter().enumerate() {
            ring.add(workspace(at as u128), *weight);
        }
        for _ in 0..1_000 {
            for quota in ring.next_batch(8) {
                let at = usize::try_from(quota.workspace.0.as_u128()).expect("small");
                served[at] += quota.limit;
                ring.add(quota.workspace, weights[at]);
            }
        }
        let unit = served[0];
        assert_eq!(served, [unit, unit, 3 * unit, unit, 2 * unit]);
    }

    #[test]
    fn weights_count_in_the_smallest_batches_and_none_is_exceeded() {
        let weights = [1, 1, 3, 1, 2];
        for batch in 1..20 {
            let mut served = [0; 5];
            let mut ring = RoundRobin::default();
            for (at, weight) in weights.iter().enumerate() {
                ring.add(workspace(at as u128), *weight);
            }
            for _ in 0..2_000 {
                let quotas = ring.next_batch(batch);
                assert!(quotas.iter().map(|quota| quota.limit).sum::<i32>() <= batch);
                for quota in quotas {
                    assert!(quota.limit > 0, "every quota is positive");
                    let at = usize::try_from(quota.workspace.0.as_u128()).expect("small");
                    served[at] += quota.limit;
                    ring.add(quota.workspace, weights[at]);
                }
            }
            for (at, weight) in weights.iter().enumerate() {
                let fair = served.iter().sum::<i32>() * weight / 8;
                assert!((served[at] - fair).abs() <= fair / 20, "batch {batch}: {served:?}");
            }
        }
    }

    #[test]
    fn an_empty_batch_gives_no_quota() {
        let mut ring = RoundRobin::default();
        ring.add(workspace(1), 1);
        assert_eq!(ring.next_batch(0), []);
        assert_eq!(ring.next_batch(1), [Quota { workspace: workspace(1), limit: 1 }]);
    }

    #[test]
    fn no_workspace_has_a_second_turn_before_all_had_one() {
        let mut ring = RoundRobin::default();
        for n in 0..100 {
            ring.add(workspace(n), 1);
        }
        let mut seen = Vec::new();
        for _ in 0..10 {
            let quotas = ring.next_batch(10);
            assert!(quotas.iter().map(|quota| quota.limit).sum::<i32>() <= 10);
            for quota in quotas {
                seen.push(quota.workspace);
                ring.add(quota.workspace, 1);
            }
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 100);
    }
}
