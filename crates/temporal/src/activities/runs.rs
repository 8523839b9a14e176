//! The runs that this worker performs, cached so that not every node loads the execution's input again.
//!
//! Invariants
//! - A run does not change while its epoch stays the same, so a cached run is never stale. The number of cached runs is
//!   bounded.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use engine::versions::LoadedVersion;
use kernel::definition::Node;
use kernel::definition::plan::NodeIx;
use kernel::ids::ExecutionId;
use kernel::kind::for_each;
use lru::LruCache;
use parking_lot::Mutex;
use serde_json::Value;
use store::queue::claim::Begun;
use store::run::attempt::Ownership;

/// The maximum number of cached runs. Their inputs may be large.
const MAX_CACHED: NonZeroUsize = NonZeroUsize::new(200).expect("not zero");

/// What the activities of a run share.
#[derive(Clone)]
pub(crate) struct LoadedRun {
    pub(crate) begun: Arc<Begun>,
    pub(crate) version: Arc<LoadedVersion>,
    lists: Lists,
}

/// The items of a run's loops, as they were stored.
type Lists = Arc<Mutex<BTreeMap<NodeIx, Arc<Vec<Value>>>>>;

impl LoadedRun {
    pub(crate) fn new(begun: Begun, version: Arc<LoadedVersion>) -> LoadedRun {
        LoadedRun { begun: Arc::new(begun), version, lists: Lists::default() }
    }

    /// The definition to perform: a node, or the action of a loop's item. None if the node does not exist, or if it has
    /// no items because it is no loop.
    pub(crate) fn spec(&self, node: NodeIx, iteration: i32) -> Option<Cow<'_, Node>> {
        let spec = self.version.definition.nodes.get(node)?;
        if iteration == 0 { Some(Cow::Borrowed(spec)) } else { for_each::action(spec).map(Cow::Owned) }
    }

    pub(crate) fn list(&self, node: NodeIx) -> Option<Arc<Vec<Value>>> {
        self.lists.lock().get(&node).cloned()
    }

    pub(crate) fn cache_list(&self, node: NodeIx, items: Vec<Value>) -> Arc<Vec<Value>> {
        let items = Arc::new(items);
        self.lists.lock().insert(node, Arc::clone(&items));
        items
    }
}

/// The cached runs of one worker.
pub(crate) struct RunCache(Mutex<LruCache<ExecutionId, (Ownership, LoadedRun)>>);

impl Default for RunCache {
    fn default() -> RunCache {
        RunCache(Mutex::new(LruCache::new(MAX_CACHED)))
    }
}

impl RunCache {
    pub(crate) fn get(&self, hold: Ownership) -> Option<LoadedRun> {
        let mut cache = self.0.lock();
        cache.get(&hold.execution).filter(|(known, _)| *known == hold).map(|(_, run)| run.clone())
    }

    pub(crate) fn insert(&self, hold: Ownership, run: LoadedRun) {
        self.0.lock().put(hold.execution, (hold, run));
    }

    pub(crate) fn forget(&self, execution: ExecutionId) {
        self.0.lock().pop(&execution);
    }
}
