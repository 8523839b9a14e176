//! Executions that nodes start: children, and detached executions.
//!
//! Invariants
//! - A repeated start finds the execution that the first start created. A node has one child per attempt, but only one
//!   detached execution over all its attempts. For a loop, this holds for each item.
//! - A repeat finds that execution even if its definition was changed or deleted since the first start.
//!
//! Not here: the rows (`store::run::child`), running a child (the engines), which result the end of a child is
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
use store::queue::enqueue::{CheckedStart, EnqueueOutcome, Start};
use store::run::End;
use store::run::attempt::Ownership;
use store::run::child::{ChildRefusal, ChildState, NamedVersion, NewChild, ParentAttempt};
use store::{Store, new_id};
use uuid::Uuid;

use super::Error;
use crate::nodes::NodeOutput;
use crate::versions::{self, LoadedVersion, VersionCache};

const BACKLOG_FULL: &str = "the workspace's backlog limit is reached; retry when executions have ended";

/// An execution that a node must start, or that an earlier call for the same node has started.
#[derive(Debug)]
pub struct ChildStart {
    parent: ParentAttempt,
    workspace: WorkspaceId,
    config: Config,
    timeout: Option<Duration>,
    trace: TraceParent,
    /// The `trigger` of the execution that the node belongs to.
    cause: Value,
}

impl ChildStart {
    pub fn new(
        config: Config,
        spec: &Node,
        begun: &Begun,
        (iteration, attempt): (i32, u32),
        trace: TraceParent,
    ) -> ChildStart {
        let parent = ParentAttempt { execution: begun.execution, node: spec.key.clone(), iteration, attempt };
        let timeout = spec.timeout_ms.map(Duration::from_millis);
        ChildStart { parent, workspace: begun.workspace, config, timeout, trace, cause: begun.trigger.clone() }
    }

    /// True if the node does not wait for the execution to end.
    pub fn is_detached(&self) -> bool {
        self.config.detached
    }

    /// Finds the child that an earlier call started. `Missing` if there is none; None if another process owns the run.
    pub async fn find(&self, store: &Store, hold: Ownership) -> Result<Option<ChildState>, Error> {
        Ok(store.find_child(hold, &self.parent).await?)
    }

    /// Starts the child, or finds the one that was already started. None if another process owns the run. With
    /// `begins`, the child runs immediately.
    pub async fn spawn(
        &self,
        store: &Store,
        versions: &VersionCache,
        hold: Ownership,
        (engine, begins): (&'static str, bool),
    ) -> Result<Option<ChildState>, Error> {
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
            Ok(new) => store.spawn_child(hold, &self.parent, new).await?,
            Err(_) => store.find_child(hold, &self.parent).await?,
        };
        match (spawned, new) {
            (Some(ChildState::Refused(refusal)), _) => Err(refused(refusal).into()),
            (Some(ChildState::Missing), Err(error)) => Err(error),
            (Some(ChildState::Missing), Ok(_)) => Err(self.unknown().into()),
            (spawned, _) => Ok(spawned),
        }
    }

    /// Starts a detached execution and waits only until the queue accepts it. Also returns whether the execution may
    /// begin immediately.
    pub async fn detach(
        &self,
        store: &Store,
        versions: &VersionCache,
        max_generations: u32,
    ) -> Result<(NodeOutput, bool), Error> {
        let generation = generation::next(&self.cause, max_generations)?;
        let ParentAttempt { execution: parent, node, iteration, .. } = &self.parent;
        let key = format!("node/{parent}/{node}/{iteration}");
        let done = |execution| NodeOutput::new(workflow::detached(execution));
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
            // A repeated start may have another input and must still find the first execution. So the key is given in
            // place of the content hash, and the content is not compared.
            idempotency: Some((key.clone(), key.into_bytes())),
            trigger: self.trigger(generation),
            trace: Some(self.trace),
            version: Some(named.version),
            rerun_of: None,
        };
        let judged = [CheckedStart { start: &start, published: None, actor: "engine" }];
        let accepted = store.enqueue_checked(&judged, None).await?;
        match accepted.first() {
            Some(EnqueueOutcome::New { execution, ready }) => Ok((done(*execution), *ready)),
            Some(EnqueueOutcome::Existing { execution }) => Ok((done(*execution), false)),
            // A retry may succeed when other executions have ended.
            Some(EnqueueOutcome::BacklogFull) => Err(Failure::new(Class::ExecutionError, BACKLOG_FULL).into()),
            _ => Err(self.unknown().into()),
        }
    }

    /// The workspace of the execution.
    pub fn workspace(&self) -> WorkspaceId {
        self.workspace
    }

    /// The version to start, and the input for it.
    async fn named(&self, store: &Store, versions: &VersionCache) -> Result<(NamedVersion, Option<Value>), Error> {
        let config = &self.config;
        let named = store.named_version(self.workspace, &config.workflow, config.version).await?;
        let named = named.ok_or_else(|| self.unknown())?;
        let version = load_version(store, versions, named.version).await?;
        let definition = &version.definition;
        let inputs = Inputs::read(&definition.inputs, definition.additional_inputs.unwrap_or(true));
        let input = inputs.apply(config.input.clone()).map_err(|problems| {
            let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
            let message = format!("workflow {:?} does not accept this input: {}", config.workflow, all.join("; "));
            Failure::new(Class::ValidationError, message)
        })?;
        Ok((named, input))
    }

    /// The `trigger` of the new execution: which node started it.
    fn trigger(&self, generation: u32) -> Value {
        let ParentAttempt { execution: parent, node, iteration, .. } = &self.parent;
        workflow::trigger(*parent, node, *iteration, generation)
    }

    fn unknown(&self) -> Failure {
        let Config { workflow, version, .. } = &self.config;
        let message = match version {
            Some(version) => format!("the workflow {workflow:?} has no version {version} in this workspace"),
            None => format!("the workflow {workflow:?} is not published in this workspace: publish it first"),
        };
        Failure::new(Class::ValidationError, message)
    }
}

/// The result of a node whose child ended. None if the child ended because its parent is being stopped (`stopped`):
/// then the node did not fail. `unknown`: a node of the child ended as UNKNOWN.
pub fn ended(stopped: bool, child: ExecutionId, end: End, unknown: bool) -> Option<Result<NodeOutput, Failure>> {
    let End { outcome, output, error } = end;
    if workflow::was_stopped(stopped, outcome, unknown) {
        return None;
    }
    Some(workflow::ended(child, outcome, output, error, unknown).map(NodeOutput::new))
}

/// Loads a version, or returns why its executions cannot run.
pub async fn load_version(store: &Store, versions: &VersionCache, id: VersionId) -> Result<Arc<LoadedVersion>, Error> {
    versions.get(store, id).await.map_err(|error| match error {
        versions::Error::Store(error) if !error.is_answer() => Error::Unavailable(error),
        versions::Error::Missing(_) => Failure::new(Class::DefinitionGone, error.to_string()).into(),
        error => Failure::new(Class::BadGraph, error.to_string()).into(),
    })
}

fn refused(refusal: ChildRefusal) -> Failure {
    let message = match refusal {
        ChildRefusal::TooDeep => format!(
            "the child would be at depth {}; the limit is {MAX_DEPTH}: nest fewer workflows in one another",
            MAX_DEPTH + 1
        ),
        ChildRefusal::TooMany => format!(
            "the tree of this execution has {MAX_DESCENDANTS} executions, which is the limit; \
             split the tree with detached starts"
        ),
    };
    Failure::new(Class::ValidationError, message)
}
