//! Where claims of tasks for all workspaces went on: workspaces take turns, for each set of queues by itself.
//!
//! Invariants
//! - A claim that found nothing moves nobody's turn, and one of other queues neither.
//! - So many sets are remembered; one that is forgotten begins anew, which delays nobody for longer than a round.
//!
//! Not here: whose turn is next (`store`'s `functions/task.sql`).

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};

use kernel::ids::WorkspaceId;

/// The most sets of queues that are remembered.
const MOST: usize = 1_000;

/// Who was served last, by the queues that were asked for.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<BTreeMap<BTreeSet<String>, WorkspaceId>>);

impl Places {
    /// Who was served last of these queues.
    pub(crate) fn after(&self, queues: &[String]) -> Option<WorkspaceId> {
        let places = self.0.lock();
        places.get(&set(queues)).copied()
    }

    /// Somebody was served; none: nobody was.
    pub(crate) fn served(&self, queues: &[String], workspace: Option<WorkspaceId>) {
        let Some(workspace) = workspace else { return };
        let (mut places, queues) = (self.0.lock(), set(queues));
        if places.len() >= MOST && !places.contains_key(&queues) {
            places.pop_first();
        }
        places.insert(queues, workspace);
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
    fn each_set_of_queues_has_a_place_of_its_own_that_only_a_served_claim_moves() {
        let (places, mail, idle) = (Places::default(), ["mail".to_owned()], ["idle".to_owned()]);
        places.served(&mail, Some(workspace(7)));
        places.served(&idle, None);
        places.served(&mail, None);
        assert_eq!((places.after(&mail), places.after(&idle)), (Some(workspace(7)), None));
        let (both, other_way_round) = (["a".to_owned(), "b".to_owned()], ["b".to_owned(), "a".to_owned()]);
        places.served(&both, Some(workspace(8)));
        assert_eq!(places.after(&other_way_round), Some(workspace(8)), "the same set");
    }

    #[test]
    fn no_more_sets_than_so_many_are_remembered() {
        let places = Places::default();
        for n in 0..2 * MOST {
            places.served(&[n.to_string()], Some(workspace(1)));
        }
        assert_eq!(places.0.lock().len(), MOST);
    }
}
