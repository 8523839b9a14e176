//! Graphs in memory: a process reads a version from the store, checks it, and caches it.
//!
//! Invariants
//! - Versions never change, so a cached version is never stale. Only the number of cached versions is bounded.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;

use kernel::definition::parse;
use kernel::definition::plan::{NodeIx, Plan};
use kernel::definition::{Definition, Node};
use kernel::expression::template;
use kernel::expression::template::Survey;
use kernel::expression::{Part, Path, Root, Scope, Segment};
use kernel::ids::{NodeKey, VersionId};
use kernel::kind;
use lru::LruCache;
use parking_lot::Mutex;
use store::Store;
use store::run::iteration::OutputUse;

/// How many versions are cached.
const MAX_CACHED: NonZeroUsize = NonZeroUsize::new(1_000).expect("not zero");

/// A version, ready to run.
#[derive(Debug)]
pub struct LoadedVersion {
    pub definition: Definition,
    pub plan: Arc<Plan>,
    /// The nodes whose output or error some expression reads. The outputs of other nodes need not be cached in memory.
    pub read_nodes: BTreeSet<NodeKey>,
    /// The nodes that call `success()` or `failure()`.
    status_readers: BTreeSet<NodeIx>,
}

/// Why a version cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("version {0} does not exist")]
    Missing(VersionId),
    #[error("version {id} cannot be run: {problems}")]
    Invalid { id: VersionId, problems: String },
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// The cached versions of one process.
#[derive(Debug)]
pub struct VersionCache {
    cached: Mutex<LruCache<VersionId, Arc<LoadedVersion>>>,
}

impl Default for VersionCache {
    fn default() -> VersionCache {
        VersionCache { cached: Mutex::new(LruCache::new(MAX_CACHED)) }
    }
}

impl VersionCache {
    /// Returns a version from memory, or loads it from the store.
    pub async fn get(&self, store: &Store, id: VersionId) -> Result<Arc<LoadedVersion>, Error> {
        if let Some(version) = self.cached.lock().get(&id) {
            return Ok(Arc::clone(version));
        }
        let graph = store.graphs(&[id]).await?.pop().ok_or(Error::Missing(id))?.1;
        let (definition, plan) = parse::check_stored(&graph).map_err(|problems| {
            let problems = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            Error::Invalid { id, problems }
        })?;
        let (read_nodes, status_readers) = (read_nodes(&definition), status_readers(&definition));
        let version = Arc::new(LoadedVersion { definition, plan: Arc::new(plan), read_nodes, status_readers });
        self.cached.lock().put(id, Arc::clone(&version));
        Ok(version)
    }
}

impl LoadedVersion {
    /// All nodes that this node reads.
    pub fn read_by(&self, at: NodeIx) -> BTreeSet<NodeKey> {
        let node = &self.definition.nodes[at];
        kind::surveys(node).iter().flat_map(|survey| self.nodes_read(survey, Some(at))).collect()
    }

    /// Which parts of a loop's output any expression reads.
    pub fn loop_parts_read(&self, key: &NodeKey) -> OutputUse {
        if !self.read_nodes.contains(key) {
            return OutputUse::None;
        }
        let reads_items = |(_, path): &(_, Path)| match path.root() {
            Ok((Root::Node { key: named, part: Part::Output }, way)) if named == key.as_str() => {
                !matches!(way.first(), Some(Segment::Field(field)) if field != "items")
            }
            _ => false,
        };
        if surveys(&self.definition).any(|survey| survey.paths.iter().any(reads_items)) {
            OutputUse::All
        } else {
            OutputUse::Some
        }
    }

    /// The nodes that the workflow's outputs read.
    pub fn read_by_outputs(&self) -> BTreeSet<NodeKey> {
        self.nodes_read(&template::survey(&self.definition.outputs), None)
    }

    /// The scope as this node sees it. `success()` and `failure()` consider only the nodes before it, so that their
    /// result does not depend on timing.
    pub fn view<'s>(&self, at: NodeIx, scope: &'s Scope) -> Cow<'s, Scope> {
        if !self.status_readers.contains(&at) {
            return Cow::Borrowed(scope);
        }
        let before = self.before(at);
        let mut view = scope.clone();
        view.nodes.retain(|key, _| before.contains(key));
        Cow::Owned(view)
    }

    /// The nodes that the expressions of a survey read. `success()` and `failure()` read every node before the node
    /// `at`. In the workflow's outputs (`at` is `None`), they read every node.
    fn nodes_read(&self, survey: &Survey, at: Option<NodeIx>) -> BTreeSet<NodeKey> {
        match (survey.statuses, at) {
            (false, _) => named(survey, |_| true),
            (true, Some(at)) => self.before(at),
            (true, None) => self.definition.nodes.iter().map(|node| node.key.clone()).collect(),
        }
    }

    fn before(&self, at: NodeIx) -> BTreeSet<NodeKey> {
        self.plan.ancestors(at).into_iter().map(|at| self.plan.node(at).key.clone()).collect()
    }
}

fn status_readers(definition: &Definition) -> BTreeSet<NodeIx> {
    let reads_statuses = |node: &Node| kind::surveys(node).iter().any(|survey| survey.statuses);
    definition.nodes.iter().enumerate().filter(|(_, node)| reads_statuses(node)).map(|(at, _)| at).collect()
}

fn read_nodes(definition: &Definition) -> BTreeSet<NodeKey> {
    surveys(definition).flat_map(|survey| named(&survey, |part| part != Part::Status)).collect()
}

/// Everything that the expressions of a definition read.
fn surveys(definition: &Definition) -> impl Iterator<Item = Survey> + '_ {
    let of_nodes = definition.nodes.iter().flat_map(kind::surveys);
    of_nodes.chain([template::survey(&definition.outputs)])
}

/// The nodes of which some expression reads a part that `wanted` accepts.
fn named(survey: &Survey, wanted: impl Fn(Part) -> bool) -> BTreeSet<NodeKey> {
    let node = |(_, path): &(_, Path)| match path.root() {
        Ok((Root::Node { key, part }, _)) if wanted(part) => NodeKey::new(key).ok(),
        _ => None,
    };
    survey.paths.iter().filter_map(node).collect()
}
