//! Children: the execution that a node makes, and what its end makes of the node.
//!
//! Invariants
//! - Making a child is the node's call, fenced and repeatable: one child for each attempt, whoever performs the node.
//! - A child runs as a workflow of its own, under its own id; its row is the truth of its end.
//! - A child whose workflow is closed is over before its node is: what its workflow did not record is recorded here.
//!
//! What happens if this process dies: before the child's commit there is none; after it the node is performed again and
//! finds it.
//!
//! Not here: making or finding the row (`engine::attempt::child`), starting its workflow (`workflow`), what its end
//! means (`kernel::kind::workflow`).

use std::time::Duration;

use engine::attempt::child::Starting;
use engine::ending;
use engine::nodes::Done;
use kernel::execution;
use kernel::kind::workflow::{self, Config};
use kernel::run::failure::{Class, Failure};
use store::queue::claim::Begun;
use store::run::child::Spawned;
use store::run::{End, Ending};
use temporalio_client::errors::WorkflowInteractionError;
use temporalio_client::{UntypedWorkflow, WorkflowDescribeOptions, WorkflowExecutionStatus};
use temporalio_sdk::activities::{ActivityContext, ActivityError};

use super::runs::Held;
use super::told::Attempt;
use super::{Kit, again, later, or_repeat};
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
        let place = (attempt.iteration, attempt.attempt);
        let starting = Starting::new(config.clone(), attempt.spec, &held.begun, place, held.begun.trace);
        if starting.is_detached() {
            return if stops { Ok(Ended::Stopped) } else { self.detach(attempt, &starting).await };
        }
        let spawned = match stops {
            true => starting.find(&self.store, attempt.hold).await,
            false => starting.spawn(&self.store, &self.versions, attempt.hold, (NAME, false)).await,
        };
        let (child, end, unknown) = match or_repeat(spawned)? {
            Err(failure) => return self.ended(attempt, Err(failure)).await,
            Ok(None) => return Ok(Ended::Lost),
            Ok(Some(Spawned::Missing | Spawned::Refused(_))) => return Ok(Ended::Stopped),
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
        if workflow::was_stopped(closed == Some(Closed::Stopped) || stops, outcome, unknown) {
            return Ok(Ended::Stopped);
        }
        self.ended(attempt, workflow::ended(child, outcome, output, error, unknown).map(Done::plain)).await
    }

    /// Starts an execution of its own for a node.
    async fn detach(&self, attempt: &Attempt<'_>, starting: &Starting) -> Result<Ended, ActivityError> {
        let detached = starting.detach(&self.store, &self.versions, self.max_generations).await;
        let result = or_repeat(detached)?.map(|(done, ready)| {
            if ready {
                (self.on_ready)(starting.workspace());
            }
            done
        });
        self.ended(attempt, result).await
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

    /// Ends a child whose workflow is closed and recorded nothing: it never began, or was ended from outside. One of
    /// its nodes may still be performed for as long as a silent worker keeps it, so this waits once.
    async fn end_closed(&self, context: &ActivityContext, begun: &Begun, closed: Closed) -> Result<(), ActivityError> {
        if closed == Closed::ByItself && context.info().attempt <= 1 {
            let lingers = self.heartbeat.max(self.local_below);
            return Err(later("LINGERS", "the workflow of a child is closed and recorded nothing", lingers));
        }
        let end = match closed {
            Closed::Stopped => End { outcome: execution::Status::Canceled, output: None, error: None },
            Closed::ByItself => {
                let why = "its workflow was ended in Temporal, and nothing was recorded";
                ending::failed(Failure::new(Class::EngineLost, why))
            }
        };
        // It may have come to an end of its own meanwhile, which stands.
        let ending = Ending { execution: begun.execution, claim: None, end };
        self.store.complete(&[ending], None, "engine").await.map(drop).map_err(again)
    }
}
