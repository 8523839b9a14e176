//! What the starts of each version must bring, kept so that a start costs no look at its definition.
//!
//! Invariants
//! - A version never changes, so what is kept of one is never stale.
//! - Which version is published may be: a start judged by another is not accepted, and judged anew after a look.
//!
//! Not here: the rules (`kernel::definition::inputs`), storing starts (`store::queue::enqueue`), what a client is told
//! (`http`).

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use engine::compute;
use kernel::definition::inputs::Inputs;
use kernel::definition::parse::{self, Problem};
use kernel::ids::{DefinitionId, VersionId, WorkspaceId};
use lru::LruCache;
use serde_json::Value;
use store::Store;
use store::definition::Which;
use store::queue::enqueue::Start;
use uuid::Uuid;

/// How many of each are kept.
const KEPT: NonZeroUsize = NonZeroUsize::new(5_000).expect("greater than zero");
/// How often something is judged at the most.
const ROUNDS: usize = 5;

/// What this process knows.
#[derive(Debug)]
pub(crate) struct InputRules {
    kept: Mutex<Kept>,
    turn: Turn,
}

/// Whose turn is used for what takes long to judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// That of the workspace, which waits behind itself, for at most so long.
    Workspace { within: Duration },
    /// One of the service's own: a loop serves every workspace, and none may delay it.
    Service,
}

#[derive(Debug)]
struct Kept {
    published: LruCache<(WorkspaceId, DefinitionId), VersionId>,
    inputs: LruCache<VersionId, Arc<Inputs>>,
}

/// What is said of one start.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The input with its defaults, and the published version that it was judged by, if it was.
    Good { input: Option<Value>, published: Option<VersionId> },
    /// What is wrong with its input.
    Refused(Vec<Problem>),
}

/// Why no verdict could be given.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error("too much is being computed for this workspace")]
    Busy,
}

impl InputRules {
    pub(crate) fn new(turn: Turn) -> InputRules {
        let kept = Kept { published: LruCache::new(KEPT), inputs: LruCache::new(KEPT) };
        InputRules { kept: Mutex::new(kept), turn }
    }

    /// Computes when it is its turn. A loop waits for as long as it takes: its work is bounded, and it has no client to
    /// tell.
    async fn apart<T: Send + 'static>(
        &self,
        workspace: WorkspaceId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        match self.turn {
            Turn::Workspace { within } => {
                compute::run_within(workspace, within, work).await.map_err(|compute::Busy| Error::Busy)
            }
            Turn::Service => Ok(compute::run(WorkspaceId(Uuid::nil()), work).await),
        }
    }

    /// Judges the inputs of starts, in order; `anew` looks what is published now.
    pub(crate) async fn judge(
        &self,
        store: &Store,
        starts: &[(usize, Start)],
        anew: bool,
    ) -> Result<Vec<Verdict>, Error> {
        if anew {
            let mut kept = self.kept();
            for (_, start) in starts {
                kept.published.pop(&(start.workspace, start.definition));
            }
        }
        // What is not there is looked for once, too.
        let mut looked: BTreeMap<(WorkspaceId, DefinitionId), Option<VersionId>> = BTreeMap::new();
        let mut verdicts = Vec::with_capacity(starts.len());
        for (_, start) in starts {
            let key = (start.workspace, start.definition);
            let published = match (start.version, looked.get(&key)) {
                (Some(_), _) => None,
                (None, Some(known)) => *known,
                (None, None) => self.published(store, start).await?,
            };
            if start.version.is_none() {
                looked.insert(key, published);
            }
            verdicts.push(self.verdict(store, start, published).await?);
        }
        Ok(verdicts)
    }

    async fn verdict(&self, store: &Store, start: &Start, published: Option<VersionId>) -> Result<Verdict, Error> {
        // A definition that is unknown or a draft: storing says so.
        let Some(version) = start.version.or(published) else {
            return Ok(Verdict::Good { input: start.input.clone(), published: None });
        };
        let inputs = self.inputs(store, start.workspace, version).await?;
        let input = start.input.clone();
        let judged = match inputs.apply_cheaply(&input) {
            Some(judged) => judged,
            None => self.apart(start.workspace, move || inputs.apply(input)).await?,
        };
        Ok(match judged {
            Ok(input) => Verdict::Good { input, published },
            Err(problems) => Verdict::Refused(problems.into_iter().map(|problem| problem.below("/input")).collect()),
        })
    }

    async fn published(&self, store: &Store, start: &Start) -> Result<Option<VersionId>, Error> {
        let key = (start.workspace, start.definition);
        if let Some(version) = self.kept().published.get(&key) {
            return Ok(Some(*version));
        }
        let known = match store.definition(Which::Id(start.definition), Some(start.workspace)).await {
            Ok(known) => known,
            Err(store::Error::NotFound) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if let Some(version) = known.published_version {
            self.kept().published.put(key, version);
        }
        Ok(known.published_version)
    }

    async fn inputs(&self, store: &Store, workspace: WorkspaceId, version: VersionId) -> Result<Arc<Inputs>, Error> {
        if let Some(inputs) = self.kept().inputs.get(&version) {
            return Ok(Arc::clone(inputs));
        }
        // A version that cannot be read asks for nothing: running it says why.
        let graph = store.graphs(&[version]).await?.pop().map(|(_, graph)| graph);
        let read = move || {
            let (definition, _) = graph.and_then(|graph| parse::check_stored(&graph).ok())?;
            Some(Inputs::read(&definition.inputs, definition.additional_inputs.unwrap_or(true)))
        };
        let inputs = Arc::new(self.apart(workspace, read).await?.unwrap_or_default());
        self.kept().inputs.put(version, Arc::clone(&inputs));
        Ok(inputs)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock()
    }
}

/// The rounds of judging and storing: another, for as long as a version was published between the two, but not forever.
/// Each says whether to look what is published now: in the first round, what is kept will do for those who wait.
pub(crate) fn rounds() -> impl Iterator<Item = bool> {
    (0..ROUNDS).map(|round| round > 0)
}

/// What is wrong with an input, as one line.
pub(crate) fn reason(problems: &[Problem]) -> String {
    let all: Vec<String> = problems.iter().take(5).map(ToString::to_string).collect();
    all.join("; ")
}
