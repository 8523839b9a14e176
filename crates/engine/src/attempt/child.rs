//! Executions that nodes start: children, and starts of their own.
//!
//! Invariants
//! - Repeated, a start finds the first: one child for each attempt of a node, one start of its own for each node.
//! - What was made before stands, whatever became of its definition.
//!
//! Not here: the rows (`store::run::child`), running a child (the engines), what its end means
//! (`kernel::kind::workflow`).

use std::sync::Arc;
use std::time::Duration;

use kernel::definition::Node;
use kernel::definition::inputs::Inputs;
use kernel::execution::generation;
use kernel::ids::{ExecutionId, VersionId, WorkspaceId};
use kernel::kind::workflow::{self, Config, MAX_DEPTH, MAX_DESCENDANTS};
use kernel::queue::Priority;
use kernel::run::failure::{Class, Failure};
use kernel::signals::trace::TraceParent;
use serde_json::Value;
use store::queue::claim::Begun;
use store::queue::enqueue::{Accepted, Judged, Start};
use store::run::attempt::Hold;
use store::run::child::{Named, NewChild, Place, Refusal, Spawned};
use store::{Store, new_id};
use uuid::Uuid;

use super::Error;
use crate::nodes::Done;
use crate::versions::{self, Version, Versions};

/// An execution that is to be started for a node, or found.
#[derive(Debug)]
pub struct Starting {
    place: Place,
    workspace: WorkspaceId,
    config: Config,
    timeout: Option<Duration>,
    trace: TraceParent,
    /// Why the execution runs that starts it.
    cause: Value,
}

impl Starting {
    pub fn new(
        config: Config,
        spec: &Node,
        begun: &Begun,
        (iteration, attempt): (i32, u32),
        trace: TraceParent,
    ) -> Starting {
        let place = Place { parent: begun.execution, node: spec.key.clone(), iteration, attempt };
        let timeout = spec.timeout_ms.map(Duration::from_millis);
        Starting { place, workspace: begun.workspace, config, timeout, trace, cause: begun.trigger.clone() }
    }

    /// Is it a start of its own, which nobody waits for?
    pub fn is_detached(&self) -> bool {
        self.config.detached
    }

    /// Finds the child, and makes none.
    pub async fn find(&self, store: &Store, hold: Hold) -> Result<Option<Spawned>, Error> {
        Ok(store.find_child(hold, &self.place).await?)
    }

    /// Makes the child, or finds it. None if the run is another's by now. `begins`: it runs as soon as it is made.
    pub async fn spawn(
        &self,
        store: &Store,
        versions: &Versions,
        hold: Hold,
        (engine, begins): (&'static str, bool),
    ) -> Result<Option<Spawned>, Error> {
        let new = self.named(store, versions).await.map(|(named, input)| NewChild {
            execution: ExecutionId(new_id()),
            definition: named.definition,
            version: named.version,
            input: input.unwrap_or_default(),
            trigger: self.trigger(generation::of(&self.cause)),
            timeout: [named.timeout, self.timeout].into_iter().flatten().min(),
            trace: self.trace,
            engine,
            begins,
        });
        let spawned = match &new {
            Ok(new) => store.spawn_child(hold, &self.place, new).await?,
            Err(_) => store.find_child(hold, &self.place).await?,
        };
        match (spawned, new) {
            (Some(Spawned::Refused(refusal)), _) => Err(refused(refusal).into()),
            (Some(Spawned::Missing), Err(error)) => Err(error),
            (Some(Spawned::Missing), Ok(_)) => Err(self.unknown().into()),
            (spawned, _) => Ok(spawned),
        }
    }

    /// Starts an execution of its own, and waits for its acceptance alone. Answers also whether it may begin at once.
    pub async fn detach(
        &self,
        store: &Store,
        versions: &Versions,
        max_generations: u32,
    ) -> Result<(Done, bool), Error> {
        let generation = generation::next(&self.cause, max_generations)?;
        let Place { parent, node, iteration, .. } = &self.place;
        let key = format!("node/{parent}/{node}/{iteration}");
        let done = |execution| Done::plain(workflow::detached(execution));
        let (named, input) = match self.named(store, versions).await {
            Err(Error::Failed(failure)) => {
                let none = (Uuid::max(), Uuid::nil());
                let found = store.search_executions(self.workspace, none, &key, 1).await?;
                return found.first().map(|known| (done(*known), false)).ok_or(Error::Failed(failure));
            }
            named => named?,
        };
        let start = Start {
            execution: ExecutionId(new_id()),
            workspace: self.workspace,
            definition: named.definition,
            input,
            priority: Priority::USUAL,
            run_at: None,
            concurrency_key: None,
            // One start a node: its content is the node's own business.
            idempotency: Some((key.clone(), key.into_bytes())),
            trigger: self.trigger(generation),
            trace: Some(self.trace),
            version: Some(named.version),
            rerun_of: None,
        };
        let judged = [Judged { start: &start, published: None }];
        let accepted = store.enqueue_judged(&judged, None, "engine").await?;
        match accepted.first() {
            Some(Accepted::New { execution, ready }) => Ok((done(*execution), *ready)),
            Some(Accepted::Existing { execution }) => Ok((done(*execution), false)),
            // Worth another try: others' work makes room.
            Some(Accepted::Full) => Err(Failure::new(Class::ExecutionError, "the workspace's backlog is full").into()),
            _ => Err(self.unknown().into()),
        }
    }

    /// Whose backlog it is in.
    pub fn workspace(&self) -> WorkspaceId {
        self.workspace
    }

    /// Which version the node means, and what it is to start with.
    async fn named(&self, store: &Store, versions: &Versions) -> Result<(Named, Option<Value>), Error> {
        let config = &self.config;
        let named = store.named_version(self.workspace, &config.workflow, config.version).await?;
        let named = named.ok_or_else(|| self.unknown())?;
        let version = readable(store, versions, named.version).await?;
        let definition = &version.definition;
        let inputs = Inputs::read(&definition.inputs, definition.additional_inputs.unwrap_or(true));
        let input = inputs.apply(config.input.clone()).map_err(|problems| {
            let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
            let message = format!("{:?} does not take this input: {}", config.workflow, all.join("; "));
            Failure::new(Class::ValidationError, message)
        })?;
        Ok((named, input))
    }

    /// The `trigger` of the new execution: which node started it.
    fn trigger(&self, generation: u32) -> Value {
        let Place { parent, node, iteration, .. } = &self.place;
        workflow::trigger(*parent, node, *iteration, generation)
    }

    fn unknown(&self) -> Failure {
        let Config { workflow, version, .. } = &self.config;
        let version = version.map(|version| format!(" version {version} of")).unwrap_or_default();
        let message = format!("there is no{version} published workflow {workflow:?} in this workspace");
        Failure::new(Class::ValidationError, message)
    }
}

/// A version, or why no execution of it can be run.
pub async fn readable(store: &Store, versions: &Versions, id: VersionId) -> Result<Arc<Version>, Error> {
    versions.get(store, id).await.map_err(|error| match error {
        versions::Error::Store(error) if !error.is_answer() => Error::Unavailable(error),
        versions::Error::Missing(_) => Failure::new(Class::DefinitionGone, error.to_string()).into(),
        error => Failure::new(Class::BadGraph, error.to_string()).into(),
    })
}

fn refused(refusal: Refusal) -> Failure {
    let message = match refusal {
        Refusal::TooDeep => format!("a child would be at depth {}; at most {MAX_DEPTH} are allowed", MAX_DEPTH + 1),
        Refusal::TooMany => format!("its root has {MAX_DESCENDANTS} descendants, the most there may be"),
    };
    Failure::new(Class::ValidationError, message)
}
