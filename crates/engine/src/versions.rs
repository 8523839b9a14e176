//! Graphs in memory: each version is read and checked once per process.
//!
//! Invariants
//! - Versions never change, so what is here is never stale; only the number kept is bounded.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use kernel::definition::parse;
use kernel::definition::plan::{NodeIx, Plan};
use kernel::definition::{Definition, Node};
use kernel::expression::template;
use kernel::expression::template::Survey;
use kernel::expression::{Part, Path, Root, Scope, Segment};
use kernel::ids::{NodeKey, VersionId};
use kernel::kind;
use parking_lot::Mutex;
use store::Store;
use store::run::iteration::Looks;

/// How many versions are kept.
const KEPT: usize = 1_000;

/// A version, ready to run.
#[derive(Debug)]
pub struct Version {
    pub definition: Definition,
    pub plan: Arc<Plan>,
    /// The nodes whose output or error something looks at; the others' need not be kept.
    pub looked_at: BTreeSet<NodeKey>,
    /// The nodes that ask how others ended, with `success()` or `failure()`.
    asking: BTreeSet<NodeIx>,
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

/// The versions of one process.
#[derive(Debug, Default)]
pub struct Versions {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    by_id: BTreeMap<VersionId, Arc<Version>>,
    oldest: VecDeque<VersionId>,
}

impl Versions {
    /// A version, from memory or from the store.
    pub async fn get(&self, store: &Store, id: VersionId) -> Result<Arc<Version>, Error> {
        if let Some(version) = self.kept.lock().by_id.get(&id) {
            return Ok(Arc::clone(version));
        }
        let graph = store.graphs(&[id]).await?.pop().ok_or(Error::Missing(id))?.1;
        let (definition, plan) = parse::check_stored(&graph).map_err(|problems| {
            let problems = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            Error::Invalid { id, problems }
        })?;
        let (looked_at, asking) = (looked_at(&definition), asking(&definition));
        let version = Arc::new(Version { definition, plan: Arc::new(plan), looked_at, asking });
        let mut kept = self.kept.lock();
        if kept.by_id.insert(id, Arc::clone(&version)).is_none() {
            kept.oldest.push_back(id);
        }
        if kept.oldest.len() > KEPT
            && let Some(oldest) = kept.oldest.pop_front()
        {
            kept.by_id.remove(&oldest);
        }
        Ok(version)
    }
}

impl Version {
    /// The nodes that this one looks at, in whatever way.
    pub fn looked_at_by(&self, at: NodeIx) -> BTreeSet<NodeKey> {
        let node = &self.definition.nodes[at];
        let mut all = self.seen_by(&kind::references(node.kind, &node.with), Some(at));
        all.extend(self.seen_by(&kind::condition_references(node), Some(at)));
        all
    }

    /// What of a loop's output anything looks at.
    pub fn looks_at_loop(&self, key: &NodeKey) -> Looks {
        if !self.looked_at.contains(key) {
            return Looks::None;
        }
        let of_nodes = self.definition.nodes.iter();
        let surveys =
            of_nodes.flat_map(|node| [kind::references(node.kind, &node.with), kind::condition_references(node)]);
        let mut surveys = surveys.chain([template::survey(&self.definition.outputs)]);
        let looks_at_items = |(_, path): &(_, Path)| match path.root() {
            Ok((Root::Node { key: named, part: Part::Output }, way)) if named == key.as_str() => {
                !matches!(way.first(), Some(Segment::Field(field)) if field != "items")
            }
            _ => false,
        };
        if surveys.any(|survey| survey.paths.iter().any(looks_at_items)) { Looks::All } else { Looks::Some }
    }

    /// The nodes that the outputs look at.
    pub fn looked_at_by_outputs(&self) -> BTreeSet<NodeKey> {
        self.seen_by(&template::survey(&self.definition.outputs), None)
    }

    /// A scope as this node sees it: `success()` and `failure()` ask of what comes before it, not of what else has
    /// ended by now, so that their answer does not depend on who was faster.
    pub fn view<'s>(&self, at: NodeIx, scope: &'s Scope) -> Cow<'s, Scope> {
        if !self.asking.contains(&at) {
            return Cow::Borrowed(scope);
        }
        let before = self.before(at);
        let mut view = scope.clone();
        view.nodes.retain(|key, _| before.contains(key));
        Cow::Owned(view)
    }

    /// What `success()` and `failure()` of a node look at; those of the outputs look at every node.
    fn seen_by(&self, survey: &Survey, at: Option<NodeIx>) -> BTreeSet<NodeKey> {
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

fn asking(definition: &Definition) -> BTreeSet<NodeIx> {
    let asks =
        |node: &Node| kind::references(node.kind, &node.with).statuses || kind::condition_references(node).statuses;
    definition.nodes.iter().enumerate().filter(|(_, node)| asks(node)).map(|(at, _)| at).collect()
}

fn looked_at(definition: &Definition) -> BTreeSet<NodeKey> {
    let surveys = definition
        .nodes
        .iter()
        .flat_map(|node| [kind::references(node.kind, &node.with), kind::condition_references(node)]);
    let surveys = surveys.chain([template::survey(&definition.outputs)]);
    surveys.flat_map(|survey| named(&survey, |part| part != Part::Status)).collect()
}

/// The nodes of which a survey found such a part.
fn named(survey: &Survey, wanted: impl Fn(Part) -> bool) -> BTreeSet<NodeKey> {
    let node = |(_, path): &(_, Path)| match path.root() {
        Ok((Root::Node { key, part }, _)) if wanted(part) => NodeKey::new(key).ok(),
        _ => None,
    };
    survey.paths.iter().filter_map(node).collect()
}
