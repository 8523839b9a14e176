//! Runs that this worker works for, so that not every node loads the execution's input again.
//!
//! Invariants
//! - What is kept of a run never changes under one epoch; only the number kept is bounded.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use engine::versions::Version;
use kernel::definition::Node;
use kernel::definition::plan::NodeIx;
use kernel::ids::ExecutionId;
use kernel::kind::for_each;
use parking_lot::Mutex;
use serde_json::Value;
use store::queue::claim::Begun;
use store::run::attempt::Hold;

/// How many runs are kept; their inputs may be large.
const KEPT: usize = 200;

/// What the activities of a run share.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) begun: Arc<Begun>,
    pub(crate) version: Arc<Version>,
    lists: Lists,
}

/// The items of a run's loops, as they were stored.
type Lists = Arc<Mutex<BTreeMap<NodeIx, Arc<Vec<Value>>>>>;

impl Held {
    pub(crate) fn new(begun: Begun, version: Arc<Version>) -> Held {
        Held { begun: Arc::new(begun), version, lists: Lists::default() }
    }

    /// What is performed: a node, or what a loop does for an item. None if the loop is no loop.
    pub(crate) fn spec(&self, node: NodeIx, iteration: i32) -> Option<Cow<'_, Node>> {
        let spec = self.version.definition.nodes.get(node)?;
        if iteration == 0 { Some(Cow::Borrowed(spec)) } else { for_each::action(spec).map(Cow::Owned) }
    }

    pub(crate) fn list(&self, node: NodeIx) -> Option<Arc<Vec<Value>>> {
        self.lists.lock().get(&node).cloned()
    }

    pub(crate) fn keep_list(&self, node: NodeIx, items: Vec<Value>) -> Arc<Vec<Value>> {
        let items = Arc::new(items);
        self.lists.lock().insert(node, Arc::clone(&items));
        items
    }
}

/// The runs of one worker.
#[derive(Default)]
pub(crate) struct Runs(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    by_id: BTreeMap<ExecutionId, (Hold, Held)>,
    oldest: VecDeque<ExecutionId>,
}

impl Runs {
    pub(crate) fn get(&self, hold: Hold) -> Option<Held> {
        let kept = self.0.lock();
        kept.by_id.get(&hold.execution).filter(|(known, _)| *known == hold).map(|(_, held)| held.clone())
    }

    pub(crate) fn keep(&self, hold: Hold, held: Held) {
        let mut kept = self.0.lock();
        if kept.by_id.insert(hold.execution, (hold, held)).is_none() {
            kept.oldest.push_back(hold.execution);
        }
        if kept.oldest.len() > KEPT
            && let Some(oldest) = kept.oldest.pop_front()
        {
            kept.by_id.remove(&oldest);
        }
    }

    pub(crate) fn forget(&self, execution: ExecutionId) {
        let mut kept = self.0.lock();
        if kept.by_id.remove(&execution).is_some() {
            kept.oldest.retain(|known| *known != execution);
        }
    }
}
