//! Checks the inputs of starts. The input rules of each version are cached, so that a start need not read its
//! definition.
//!
//! Invariants
//! - A version never changes, so its cached rules are never stale.
//! - The cached published version may be stale. A start that was checked against another version than the published one
//!   is not accepted: the published version is read, and the input is checked again.
//!
//! Not here: the rules (`kernel::definition::inputs`), storing starts (`store::queue::enqueue`), responses to clients
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
use store::definition::DefinitionRef;
use store::queue::enqueue::Start;
use uuid::Uuid;

/// How many ids of published versions are cached, and the rules of how many versions.
const CACHE_SIZE: NonZeroUsize = NonZeroUsize::new(5_000).expect("greater than zero");
/// How often one input is checked at most.
const MAX_ATTEMPTS: usize = 5;

/// Checks inputs, with a cache of input rules.
#[derive(Debug)]
pub(crate) struct InputRules {
    cache: Mutex<InputCache>,
    compute_share: ComputeShare,
}

/// Whose share of computing time is used for checks that may take long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ComputeShare {
    /// The workspace's own share. A check waits at most this long for other work of the same workspace.
    Workspace { within: Duration },
    /// The service's own share, for loops that serve every workspace, so that no workspace delays them.
    Service,
}

#[derive(Debug)]
struct InputCache {
    published: LruCache<(WorkspaceId, DefinitionId), VersionId>,
    inputs: LruCache<VersionId, Arc<Inputs>>,
}

/// The result of checking the input of one start.
#[derive(Debug)]
pub(crate) enum InputVerdict {
    /// The input with its defaults. `published` is the published version that the input was checked against; none if
    /// the start names a version, or if no version is published.
    Valid { input: Option<Value>, published: Option<VersionId> },
    /// The problems of the input.
    Invalid(Vec<Problem>),
}

/// Why an input could not be checked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error("this workspace already uses its share of computing time")]
    Busy,
}

impl InputRules {
    pub(crate) fn new(compute_share: ComputeShare) -> InputRules {
        let cache = InputCache { published: LruCache::new(CACHE_SIZE), inputs: LruCache::new(CACHE_SIZE) };
        InputRules { cache: Mutex::new(cache), compute_share }
    }

    /// Computes in the configured share. A loop waits for as long as needed: its work is bounded, and no client waits
    /// for it.
    async fn compute<T: Send + 'static>(
        &self,
        workspace: WorkspaceId,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        match self.compute_share {
            ComputeShare::Workspace { within } => {
                compute::run_within(workspace, within, work).await.map_err(|compute::Busy| Error::Busy)
            }
            ComputeShare::Service => Ok(compute::run(WorkspaceId(Uuid::nil()), work).await),
        }
    }

    /// Checks the inputs of starts, in order. With `reload` the published versions are read again first.
    pub(crate) async fn check(
        &self,
        store: &Store,
        starts: &[(usize, Start)],
        reload: bool,
    ) -> Result<Vec<InputVerdict>, Error> {
        if reload {
            let mut cache = self.cache();
            for (_, start) in starts {
                cache.published.pop(&(start.workspace, start.definition));
            }
        }
        // The published version of each definition is read at most once per call, even if the definition does not
        // exist.
        let mut looked_up: BTreeMap<(WorkspaceId, DefinitionId), Option<VersionId>> = BTreeMap::new();
        let mut verdicts = Vec::with_capacity(starts.len());
        for (_, start) in starts {
            let key = (start.workspace, start.definition);
            let published = match (start.version, looked_up.get(&key)) {
                (Some(_), _) => None,
                (None, Some(known)) => *known,
                (None, None) => self.published(store, start).await?,
            };
            if start.version.is_none() {
                looked_up.insert(key, published);
            }
            verdicts.push(self.verdict(store, start, published).await?);
        }
        Ok(verdicts)
    }

    async fn verdict(&self, store: &Store, start: &Start, published: Option<VersionId>) -> Result<InputVerdict, Error> {
        // The definition is unknown or not published. The statement that stores the start reports that error.
        let Some(version) = start.version.or(published) else {
            return Ok(InputVerdict::Valid { input: start.input.clone(), published: None });
        };
        let inputs = self.inputs(store, start.workspace, version).await?;
        let input = start.input.clone();
        let checked = match inputs.apply_cheaply(&input) {
            Some(checked) => checked,
            None => self.compute(start.workspace, move || inputs.apply(input)).await?,
        };
        Ok(match checked {
            Ok(input) => InputVerdict::Valid { input, published },
            Err(problems) => {
                InputVerdict::Invalid(problems.into_iter().map(|problem| problem.below("/input")).collect())
            }
        })
    }

    async fn published(&self, store: &Store, start: &Start) -> Result<Option<VersionId>, Error> {
        let key = (start.workspace, start.definition);
        if let Some(version) = self.cache().published.get(&key) {
            return Ok(Some(*version));
        }
        let known = match store.definition(DefinitionRef::Id(start.definition), Some(start.workspace)).await {
            Ok(known) => known,
            Err(store::Error::NotFound) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if let Some(version) = known.published_version {
            self.cache().published.put(key, version);
        }
        Ok(known.published_version)
    }

    async fn inputs(&self, store: &Store, workspace: WorkspaceId, version: VersionId) -> Result<Arc<Inputs>, Error> {
        if let Some(inputs) = self.cache().inputs.get(&version) {
            return Ok(Arc::clone(inputs));
        }
        // A version that cannot be read has no rules here. Its execution fails with the problem when it begins.
        let graph = store.graphs(&[version]).await?.pop().map(|(_, graph)| graph);
        let read = move || {
            let (definition, _) = graph.and_then(|graph| parse::check_stored(&graph).ok())?;
            Some(Inputs::read(&definition.inputs, definition.additional_inputs.unwrap_or(true)))
        };
        let inputs = Arc::new(self.compute(workspace, read).await?.unwrap_or_default());
        self.cache().inputs.put(version, Arc::clone(&inputs));
        Ok(inputs)
    }

    fn cache(&self) -> MutexGuard<'_, InputCache> {
        self.cache.lock()
    }
}

/// Iterates over the attempts to check inputs and store starts. Another attempt is needed if a version was published
/// between the check and the store. Each value is true if the published version must be read again: the first attempt
/// uses the cached version.
pub(crate) fn check_attempts() -> impl Iterator<Item = bool> {
    (0..MAX_ATTEMPTS).map(|round| round > 0)
}

/// Formats the first five problems of an input as one line.
pub(crate) fn format_problems(problems: &[Problem]) -> String {
    let all: Vec<String> = problems.iter().take(5).map(ToString::to_string).collect();
    all.join("; ")
}
