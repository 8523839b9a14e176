//! Whose turn it is: workspaces believed to have something ready and a free slot, in a weighted ring.
//!
//! Invariants
//! - The ring is a hint: a workspace wrongly in it costs one look, one wrongly out of it comes back
//!   with the next hint or sweep. Strictness never depends on it.
//! - Every workspace in the ring has its turn before any has a second one; over time each is
//!   offered items in proportion to its weight, however small the batches.
//! - A full, paused or empty workspace is not in the ring, so it costs nothing.
//!
//! Not here: claiming (`store`), finding workspaces (`server::queue::dispatch` sweeps).

use std::collections::{BTreeMap, VecDeque};

use crate::ids::WorkspaceId;

/// What one workspace is asked for in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    pub workspace: WorkspaceId,
    pub want: i32,
}

#[derive(Clone, Copy)]
enum Due {
    /// A turn of its own, by its weight.
    Turn(i32),
    /// What is left of a turn.
    Rest(i32),
}

/// The ring of one dispatcher.
#[derive(Clone, Debug, Default)]
pub struct Ring {
    turn: VecDeque<WorkspaceId>,
    weights: BTreeMap<WorkspaceId, i32>,
    /// What is left of a workspace's turn that a batch cut short.
    rest: BTreeMap<WorkspaceId, i32>,
}

impl Ring {
    /// Puts a workspace in, or brings its weight up to date. One whose turn was cut short goes on
    /// with it before the others.
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

    /// Puts a workspace in without saying its weight.
    pub fn hint(&mut self, workspace: WorkspaceId) {
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

    /// Takes the next workspaces out of the ring, to be asked for at most `batch` items in all: no
    /// more of them than the batch can give their due, except that the last may be cut short.
    pub fn take(&mut self, batch: i32) -> Vec<Ask> {
        self.take_of(batch, usize::MAX)
    }

    /// The same, of no more than so many workspaces.
    pub fn take_of(&mut self, batch: i32, workspaces: usize) -> Vec<Ask> {
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
        let mut asks = Vec::with_capacity(taken.len());
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
            asks.push(Ask { workspace, want });
        }
        asks
    }

    /// Forgets what is left of an absent workspace's turn.
    pub fn drop_debt(&mut self, workspace: WorkspaceId) {
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
    fn shares_follow_weights_and_a_flood_buys_nothing() {
        let weights = [1, 1, 3, 1, 2];
        let mut served = [0; 5];
        let mut ring = Ring::default();
        for (at, weight) in weights.iter().enumerate() {
            ring.add(workspace(at as u128), *weight);
        }
        for _ in 0..1_000 {
            for ask in ring.take(8) {
                let at = usize::try_from(ask.workspace.0.as_u128()).expect("small");
                served[at] += ask.want;
                ring.add(ask.workspace, weights[at]);
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
            let mut ring = Ring::default();
            for (at, weight) in weights.iter().enumerate() {
                ring.add(workspace(at as u128), *weight);
            }
            for _ in 0..2_000 {
                let asks = ring.take(batch);
                assert!(asks.iter().map(|ask| ask.want).sum::<i32>() <= batch);
                for ask in asks {
                    assert!(ask.want > 0, "whoever is taken out is asked for something");
                    let at = usize::try_from(ask.workspace.0.as_u128()).expect("small");
                    served[at] += ask.want;
                    ring.add(ask.workspace, weights[at]);
                }
            }
            for (at, weight) in weights.iter().enumerate() {
                let fair = served.iter().sum::<i32>() * weight / 8;
                assert!((served[at] - fair).abs() <= fair / 20, "batch {batch}: {served:?}");
            }
        }
    }

    #[test]
    fn nothing_is_asked_when_there_is_no_room() {
        let mut ring = Ring::default();
        ring.add(workspace(1), 1);
        assert_eq!(ring.take(0), []);
        assert_eq!(ring.take(1), [Ask { workspace: workspace(1), want: 1 }]);
    }

    #[test]
    fn nobody_is_asked_twice_before_all_are_asked_once() {
        let mut ring = Ring::default();
        for n in 0..100 {
            ring.add(workspace(n), 1);
        }
        let mut seen = Vec::new();
        for _ in 0..10 {
            let asks = ring.take(10);
            assert!(asks.iter().map(|ask| ask.want).sum::<i32>() <= 10);
            for ask in asks {
                seen.push(ask.workspace);
                ring.add(ask.workspace, 1);
            }
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 100);
    }
}
