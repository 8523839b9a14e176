//! The workspace served last by claims of tasks across all workspaces: workspaces take turns, separately for each set
//! of queues.
//!
//! Invariants
//! - A claim that found no task does not change whose turn it is. A claim affects only its own set of queues.
//! - The number of remembered sets is bounded. If a set is forgotten, its turns begin again with the first workspace.
//!   That delays another workspace by at most one turn of every workspace.
//!
//! Not here: which workspace is next (`store`'s `functions/task.sql`).

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};

use kernel::ids::WorkspaceId;

/// The most sets of queues that are remembered.
const MAX_SETS: usize = 1_000;

/// The workspace served last, for each set of queues.
#[derive(Debug, Default)]
pub(crate) struct LastServed(Mutex<BTreeMap<BTreeSet<String>, WorkspaceId>>);

impl LastServed {
    /// The workspace whose task was claimed last from these queues.
    pub(crate) fn get(&self, queues: &[String]) -> Option<WorkspaceId> {
        self.0.lock().get(&set(queues)).copied()
    }

    /// Records the workspace whose task was claimed, if one was.
    pub(crate) fn record(&self, queues: &[String], workspace: Option<WorkspaceId>) {
        let Some(workspace) = workspace else { return };
        let (mut served, queues) = (self.0.lock(), set(queues));
        if served.len() >= MAX_SETS && !served.contains_key(&queues) {
            served.pop_first();
        }
        served.insert(queues, workspace);
    }
}

fn set(queues: &[String]) -> BTreeSet<String> {
    queues.iter().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(n: u128) -> WorkspaceId {
        WorkspaceId(uuid::Uuid::from_u128(n))
    }

    #[test]
    fn each_set_of_queues_has_its_own_last_workspace_that_only_a_claimed_task_changes() {
        let (last_served, mail, idle) = (LastServed::default(), ["mail".to_owned()], ["idle".to_owned()]);
        last_served.record(&mail, Some(workspace(7)));
        last_served.record(&idle, None);
        last_served.record(&mail, None);
        assert_eq!((last_served.get(&mail), last_served.get(&idle)), (Some(workspace(7)), None));
        let (both, other_order) = (["a".to_owned(), "b".to_owned()], ["b".to_owned(), "a".to_owned()]);
        last_served.record(&both, Some(workspace(8)));
        assert_eq!(last_served.get(&other_order), Some(workspace(8)), "the same set");
    }

    #[test]
    fn the_number_of_remembered_sets_is_bounded() {
        let last_served = LastServed::default();
        for n in 0..2 * MAX_SETS {
            last_served.record(&[n.to_string()], Some(workspace(1)));
        }
        assert_eq!(last_served.0.lock().len(), MAX_SETS);
    }
}
