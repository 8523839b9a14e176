//! Children: the execution that a node starts, and the result that its end means for the node.
//!
//! Invariants
//! - Starting a child is fenced and repeatable: one child per attempt, whichever worker performs the node.
//! - A child runs as its own workflow, under its own id. Its row is authoritative about its end.
//! - A child whose workflow has closed ends before its node. If the workflow recorded no end, this activity records
//!   one.
//!
//! What happens if this process dies: before the child's commit there is no child. After the commit, the node is
//! performed again and finds the child.
//!
//! Not here: starting or finding the row, and what the child's end means for its node (`engine::attempt::child`),
//! starting the child's workflow (`workflow`).

use std::time::Duration;

use engine::attempt::child::{ChildStart, ended};
use engine::ending;
use kernel::execution;
use kernel::kind::workflow::Config;
use kernel::run::failure::{Class, Failure};
use store::queue::claim::Begun;
use store::run::child::ChildState;
use store::run::{End, Ending};
use temporalio_client::errors::WorkflowInteractionError;
use temporalio_client::{UntypedWorkflow, WorkflowDescribeOptions, WorkflowExecutionStatus};
use temporalio_sdk::activities::ActivityContext;

use super::attempt_end::Attempt;
use super::runs::LoadedRun;
use super::{Activity, RunActivities, failure_or_repeat, repeat_after, repeat_on};
use crate::NAME;
use crate::connection::{chain, once};
use crate::message::{CloseReason, Input, PerformResult};
use crate::retry::RetryConfig;

/// The pause before the activity asks Temporal again whether a child's workflow is open.
const POLL: Duration = Duration::from_secs(1);

impl RunActivities {
    /// Starts the child of a node, or finds the child that was already started, and returns the node's state.
    pub(super) async fn start_child(
        &self,
        context: &ActivityContext,
        attempt: &Attempt<'_>,
        run: &LoadedRun,
        config: &Config,
        (closed, earlier_child): (Option<CloseReason>, Option<CloseReason>),
    ) -> Activity<PerformResult> {
        let stops = earlier_child == Some(CloseReason::Stopped);
        let place = (attempt.iteration, attempt.attempt);
        let child_start = ChildStart::new(config.clone(), attempt.spec, &run.begun, place, run.begun.trace);
        if child_start.is_detached() {
            return if stops { Ok(PerformResult::Stopped) } else { self.detach(attempt, &child_start).await };
        }
        let spawned = match stops {
            true => child_start.find(&self.store, attempt.hold).await,
            false => child_start.spawn(&self.store, &self.versions, attempt.hold, (NAME, false)).await,
        };
        let (child, end, unknown) = match failure_or_repeat(spawned)? {
            Err(failure) => return self.end_attempt(attempt, Err(failure)).await,
            Ok(None) => return Ok(PerformResult::Lost),
            Ok(Some(ChildState::Missing | ChildState::Refused(_))) => return Ok(PerformResult::Stopped),
            Ok(Some(ChildState::Running { begun, inherits, .. })) => {
                match self.close_reason(context, &begun, closed, earlier_child).await? {
                    None => return Ok(PerformResult::Child(Box::new(self.input_of(&begun, inherits).await))),
                    Some(closed) => {
                        self.end_closed(context, &begun, closed).await?;
                        // The child's rows now contain its end.
                        return Box::pin(self.start_child(context, attempt, run, config, (Some(closed), None))).await;
                    }
                }
            }
            Ok(Some(ChildState::Ended { execution, end, unknown })) => (execution, end, unknown),
        };
        match ended(closed == Some(CloseReason::Stopped) || stops, child, end, unknown) {
            Some(result) => self.end_attempt(attempt, result).await,
            None => Ok(PerformResult::Stopped),
        }
    }

    /// Starts a detached execution for a node.
    async fn detach(&self, attempt: &Attempt<'_>, child_start: &ChildStart) -> Activity<PerformResult> {
        let detached = child_start.detach(&self.store, &self.versions, self.max_generations).await;
        let result = failure_or_repeat(detached)?.map(|(output, ready)| {
            if ready {
                (self.on_ready)(child_start.workspace());
            }
            output
        });
        self.end_attempt(attempt, result).await
    }

    /// Returns why the workflow of a child closed; None if it is open. Asks Temporal about a child that an earlier
    /// history started.
    async fn close_reason(
        &self,
        context: &ActivityContext,
        begun: &Begun,
        closed: Option<CloseReason>,
        earlier_child: Option<CloseReason>,
    ) -> Activity<Option<CloseReason>> {
        if closed.is_some() || earlier_child.is_none() {
            return Ok(closed);
        }
        let handle = context.client().get_workflow_handle::<UntypedWorkflow>(begun.execution.engine_id());
        match handle.describe(WorkflowDescribeOptions::builder().rpc_options(once()).build()).await {
            Ok(found) if found.status() == WorkflowExecutionStatus::Running => Ok(None),
            Ok(_) | Err(WorkflowInteractionError::NotFound(_)) => Ok(earlier_child),
            Err(error) => Err(repeat_after("TEMPORAL", &chain(&error), POLL)),
        }
    }

    /// The input of the child's workflow.
    async fn input_of(&self, begun: &Begun, inherits: bool) -> Input {
        // A child whose version cannot be read is started anyway. Its begin activity ends it with the reason.
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

    /// Ends a child whose workflow closed and recorded no end: it never began, or was terminated in Temporal. A node of
    /// the child may still run until its heartbeat times out. So the activity first fails, and is repeated after that
    /// time.
    async fn end_closed(&self, context: &ActivityContext, begun: &Begun, closed: CloseReason) -> Activity<()> {
        if closed == CloseReason::ByItself && context.info().attempt <= 1 {
            let linger = self.heartbeat.max(self.local_below);
            return Err(repeat_after("LINGERS", "the workflow of a child closed and recorded no end", linger));
        }
        let end = match closed {
            CloseReason::Stopped => End { outcome: execution::Status::Canceled, output: None, error: None },
            CloseReason::ByItself => {
                let why = "its workflow was ended in Temporal and recorded no end; see its history in Temporal";
                ending::failed(Failure::new(Class::EngineLost, why))
            }
        };
        // If the child has ended in the meantime, the stored end is kept.
        let ending = Ending { execution: begun.execution, claim: None, end };
        self.store.complete(&[ending], None, "engine").await.map(drop).map_err(repeat_on)
    }
}
