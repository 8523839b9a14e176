//! Children: the execution that a node makes, and what its end makes of the node.
//!
//! Invariants
//! - Making a child is the node's call, fenced and repeatable: one child for each attempt, whoever performs the node.
//! - A child runs as a workflow of its own, under its own id; its row is the truth of its end.
//! - A child whose workflow is closed is over before its node is: what its workflow did not record is recorded here.
//!
//! What happens if this process dies: before the child's commit there is none; after it the node is performed again and finds it.
//!
//! Not here: starting its workflow (`workflow`), what its end means (`kernel::kind::workflow`).

use std::time::Duration;

use engine::nodes::Done;
use engine::versions;
use kernel::definition::inputs::Inputs;
use kernel::execution;
use kernel::execution::generation;
use kernel::ids::ExecutionId;
use kernel::kind::workflow::{self, Config, MAX_DEPTH, MAX_DESCENDANTS};
use kernel::queue::Priority;
use kernel::run::failure::{Class, Failure};
use serde_json::Value;
use store::queue::claim::Begun;
use store::queue::enqueue::{Accepted, Judged, Start};
use store::run::child::{Named, NewChild, Place, Refusal, Spawned};
use store::run::{End, Ending};
use store::{Error, new_id};
use temporalio_client::errors::WorkflowInteractionError;
use temporalio_client::{UntypedWorkflow, WorkflowDescribeOptions, WorkflowExecutionStatus};
use temporalio_sdk::activities::{ActivityContext, ActivityError};

use super::runs::Held;
use super::told::Attempt;
use super::{Kit, again, later};
use crate::NAME;
use crate::connection::{chain, once};
use crate::message::{Closed, Ended, Input};
use crate::retry::RetryConfig;
use crate::start::workflow_id;

/// How soon Temporal is asked again about a child when it did not answer.
const POLL: Duration = Duration::from_secs(1);

impl Kit {
    /// Makes the child of a node, or finds it, and says how it stands.
    pub(super) async fn child(
        &self,
        context: &ActivityContext,
        attempt: &Attempt<'_>,
        held: &Held,
        config: &Config,
        (closed, attends): (Option<Closed>, Option<Closed>),
    ) -> Result<Ended, ActivityError> {
        let stops = attends == Some(Closed::Stopped);
        if config.detached {
            if stops {
                return Ok(Ended::Stopped);
            }
            let result = self.detach(attempt, held, config).await?;
            return self.ended(attempt, result).await;
        }
        let (child, end, unknown) = match self.spawn(attempt, held, config, stops).await? {
            Err(failure) => return self.ended(attempt, Err(failure)).await,
            Ok(None) => return Ok(Ended::Lost),
            Ok(Some(Spawned::Refused(refusal))) => return self.ended(attempt, Err(refused(refusal))).await,
            Ok(Some(Spawned::Missing)) if stops => return Ok(Ended::Stopped),
            Ok(Some(Spawned::Missing)) => return self.ended(attempt, Err(unknown(config))).await,
            Ok(Some(Spawned::Running { begun, inherits, .. })) => {
                match self.how_closed(context, &begun, closed, attends).await? {
                    None => return Ok(Ended::Child(Box::new(self.input_of(&begun, inherits).await))),
                    Some(closed) => {
                        self.end_closed(context, &begun, closed).await?;
                        // Its rows say now what became of it.
                        return Box::pin(self.child(context, attempt, held, config, (Some(closed), None))).await;
                    }
                }
            }
            Ok(Some(Spawned::Ended { execution, end, unknown })) => (execution, end, unknown),
        };
        let End { outcome, output, error } = end;
        // What stopped it from above is no failure of its node.
        if (closed == Some(Closed::Stopped) || stops) && outcome != execution::Status::Completed && !unknown {
            return Ok(Ended::Stopped);
        }
        self.ended(attempt, workflow::ended(child, outcome, output, error, unknown).map(Done::plain)).await
    }

    /// Is the workflow of a child closed, and how? One that an earlier history started is asked about in Temporal.
    async fn how_closed(
        &self,
        context: &ActivityContext,
        begun: &Begun,
        closed: Option<Closed>,
        attends: Option<Closed>,
    ) -> Result<Option<Closed>, ActivityError> {
        if closed.is_some() || attends.is_none() {
            return Ok(closed);
        }
        let handle = context.client().get_workflow_handle::<UntypedWorkflow>(workflow_id(begun.execution));
        match handle.describe(WorkflowDescribeOptions::builder().rpc_options(once()).build()).await {
            Ok(found) if found.status() == WorkflowExecutionStatus::Running => Ok(None),
            Ok(_) | Err(WorkflowInteractionError::NotFound(_)) => Ok(attends),
            Err(error) => Err(later("TEMPORAL", &chain(&error), POLL)),
        }
    }

    /// What the child's workflow is started with.
    async fn input_of(&self, begun: &Begun, inherits: bool) -> Input {
        // One that cannot be read is started all the same: its begin ends it, with the reason.
        let version = self.versions.get(&self.store, begun.version).await.ok();
        let definition = version.as_ref().map(|version| &version.definition);
        let nodes = definition.iter().flat_map(|definition| &definition.nodes);
        Input {
            execution_id: begun.execution,
            workspace_id: begun.workspace,
            workflow_definition_id: begun.definition,
            version_id: begun.version,
            node_ids: nodes.map(|node| node.key.clone()).collect(),
            retry_config: RetryConfig::of(definition),
            semantics: kernel::SEMANTICS,
            inherits,
        }
    }

    /// Ends a child whose workflow is closed and recorded nothing: it never began, or was ended from outside. One of its nodes may
    /// still be performed for as long as a silent worker keeps it, so this waits once.
    async fn end_closed(&self, context: &ActivityContext, begun: &Begun, closed: Closed) -> Result<(), ActivityError> {
        if closed == Closed::ByItself && context.info().attempt <= 1 {
            let lingers = self.heartbeat.max(self.local_below);
            return Err(later("LINGERS", "the workflow of a child is closed and recorded nothing", lingers));
        }
        let end = match closed {
            Closed::Stopped => End { outcome: execution::Status::Canceled, output: None, error: None },
            Closed::ByItself => {
                let why = "its workflow was ended in Temporal, and nothing was recorded";
                let error = Some(Failure::new(Class::EngineLost, why));
                End { outcome: execution::Status::Failed, output: None, error }
            }
        };
        // It may have come to an end of its own meanwhile, which stands.
        let ending = Ending { execution: begun.execution, claim: None, end };
        self.store.complete(&[ending], None, "engine").await.map(drop).map_err(again)
    }

    async fn spawn(
        &self,
        attempt: &Attempt<'_>,
        held: &Held,
        config: &Config,
        only_find: bool,
    ) -> Result<Result<Option<Spawned>, Failure>, ActivityError> {
        let Attempt { hold, spec, iteration, .. } = attempt;
        let place =
            Place { parent: hold.execution, node: spec.key.clone(), iteration: *iteration, attempt: attempt.attempt };
        // What was made before stands, whatever became of its definition.
        match self.store.find_child(*hold, &place).await.map_err(again)? {
            Some(Spawned::Missing) if !only_find => {}
            found => return Ok(Ok(found)),
        }
        let (named, input) = match self.named(held, config).await? {
            Ok(named) => named,
            Err(failure) => return Ok(Err(failure)),
        };
        let new = NewChild {
            execution: ExecutionId(new_id()),
            definition: named.definition,
            version: named.version,
            input: input.unwrap_or_default(),
            trigger: trigger(attempt, generation::of(&held.begun.trigger)),
            timeout: [named.timeout, spec.timeout_ms.map(Duration::from_millis)].into_iter().flatten().min(),
            trace: held.begun.trace,
            engine: NAME,
            begins: false,
        };
        match self.store.spawn_child(*hold, &place, &new).await {
            Ok(spawned) => Ok(Ok(spawned)),
            Err(Error::Refused { .. }) => Ok(Err(unstorable())),
            Err(error) => Err(again(error)),
        }
    }

    /// Starts an execution of its own for a node, and waits for its acceptance alone. Repeated, it finds the first.
    async fn detach(
        &self,
        attempt: &Attempt<'_>,
        held: &Held,
        config: &Config,
    ) -> Result<Result<Done, Failure>, ActivityError> {
        let (named, input) = match self.named(held, config).await? {
            Ok(named) => named,
            Err(failure) => return Ok(Err(failure)),
        };
        let generation = match generation::next(&held.begun.trigger, self.max_generations) {
            Ok(generation) => generation,
            Err(failure) => return Ok(Err(failure)),
        };
        let Attempt { hold, spec, iteration, .. } = attempt;
        let key = format!("node/{}/{}/{iteration}", hold.execution, spec.key);
        let start = Start {
            execution: ExecutionId(new_id()),
            workspace: held.begun.workspace,
            definition: named.definition,
            input,
            priority: Priority::USUAL,
            run_at: None,
            concurrency_key: None,
            // One start a node: its content is the node's own business.
            idempotency: Some((key.clone(), key.into_bytes())),
            trigger: trigger(attempt, generation),
            trace: Some(held.begun.trace),
            version: Some(named.version),
            rerun_of: None,
        };
        let judged = [Judged { start: &start, published: None }];
        let accepted = match self.store.enqueue_judged(&judged, None, "engine").await {
            Ok(accepted) => accepted,
            Err(Error::Refused { .. }) => return Ok(Err(unstorable())),
            Err(error) => return Err(again(error)),
        };
        Ok(match accepted.first() {
            Some(Accepted::New { execution, ready }) => {
                if *ready {
                    (self.on_ready)(held.begun.workspace);
                }
                Ok(Done::plain(workflow::detached(*execution)))
            }
            Some(Accepted::Existing { execution }) => Ok(Done::plain(workflow::detached(*execution))),
            // Worth another try: others' work makes room.
            Some(Accepted::Full) => Err(Failure::new(Class::ExecutionError, "the workspace's backlog is full")),
            _ => Err(unknown(config)),
        })
    }

    /// Which version a node means, and what it is to start with.
    async fn named(
        &self,
        held: &Held,
        config: &Config,
    ) -> Result<Result<(Named, Option<Value>), Failure>, ActivityError> {
        let named = self.store.named_version(held.begun.workspace, &config.workflow, config.version).await;
        let Some(named) = named.map_err(again)? else { return Ok(Err(unknown(config))) };
        let version = match self.versions.get(&self.store, named.version).await {
            Ok(version) => version,
            Err(versions::Error::Store(error)) if !error.is_answer() => {
                return Err(again(error));
            }
            Err(error @ versions::Error::Missing(_)) => {
                return Ok(Err(Failure::new(Class::DefinitionGone, error.to_string())));
            }
            Err(error) => return Ok(Err(Failure::new(Class::BadGraph, error.to_string()))),
        };
        let definition = &version.definition;
        let inputs = Inputs::read(&definition.inputs, definition.additional_inputs.unwrap_or(true));
        Ok(match inputs.apply(config.input.clone()) {
            Ok(input) => Ok((named, input)),
            Err(problems) => {
                let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
                let message = format!("{:?} does not take this input: {}", config.workflow, all.join("; "));
                Err(Failure::new(Class::ValidationError, message))
            }
        })
    }
}

/// What the child is told of why it runs.
fn trigger(attempt: &Attempt<'_>, generation: u32) -> Value {
    let Attempt { hold, spec, iteration, .. } = attempt;
    workflow::trigger(hold.execution, &spec.key, *iteration, generation)
}

fn unknown(config: &Config) -> Failure {
    let version = config.version.map(|version| format!(" version {version} of")).unwrap_or_default();
    let message = format!("there is no{version} published workflow {:?} in this workspace", config.workflow);
    Failure::new(Class::ValidationError, message)
}

fn unstorable() -> Failure {
    Failure::new(Class::ValidationError, "the database cannot hold what it was given")
}

fn refused(refusal: Refusal) -> Failure {
    let message = match refusal {
        Refusal::TooDeep => format!("a child would be at depth {}; at most {MAX_DEPTH} are allowed", MAX_DEPTH + 1),
        Refusal::TooMany => format!("its root has {MAX_DESCENDANTS} descendants, the most there may be"),
    };
    Failure::new(Class::ValidationError, message)
}
