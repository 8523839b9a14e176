//! Children of a run: each has its own workflow, which this module starts, polls and stops.
//!
//!     row made by an activity ──▶ workflow started ──▶ result              (this history started it)
//!                                   └ already started ──▶ its row is polled (an earlier history started it)
//!
//! Invariants
//! - A started child keeps running when this history is continued as new. Temporal then no longer reports its result,
//!   so the next history polls the child's row, and stops the child by its workflow id.
//! - The child's row says how it ended. The result of its workflow is never used.
//! - When a run is stopped, it finds the children that an earlier history started, and stops them.
//!
//! Not here: starting the child's row and reading it (`activities::children`).

use std::time::Duration;

use futures_util::FutureExt;
use kernel::definition::Manner;
use kernel::ids::ExecutionId;
use kernel::orchestration::Target;
use kernel::run::Stop;
use temporalio_sdk::{ChildWorkflowStartError, TimerResult, WorkflowCancellationToken};

use super::begin::{Context, event_of};
use super::drive::WorkflowDriver;
use super::events::{DEADLINE, WorkflowEvent};
use super::{WorkflowOrchestration, options};
use crate::activities::RunActivities;
use crate::message::{CloseReason, Input, PerformRequest, PerformResult};

/// The first and the longest pause between two polls of a child that an earlier history started.
const POLL: Duration = Duration::from_secs(5);
const LONGEST_POLL: Duration = Duration::from_secs(60);
/// The first pause for a child that is being stopped.
const STOPPING_POLL: Duration = Duration::from_secs(1);

impl WorkflowDriver<'_> {
    /// Finds what an earlier history started, so that it can be stopped: the items of a loop, or a child.
    pub(super) fn find_begun_earlier(&mut self, at: Target) {
        if self.shape(at).kind.manner() == Manner::Loops {
            // A loop that is already ready or in flight loads its items together with its list.
            if !self.ready.contains(&at) && !self.in_flight.contains_key(&at) {
                self.ready.push_back(at);
            }
            return;
        }
        self.machine.take_begun_earlier(at);
        self.ready.retain(|ready| *ready != at);
        let token = WorkflowCancellationToken::new();
        self.cancel_child(&token);
        self.in_flight.insert(at, token.clone());
        let request = PerformRequest { earlier_child: Some(CloseReason::Stopped), ..self.request_of(at) };
        self.events.push(find_and_stop(self.context, at, request, token).boxed_local());
    }

    /// Cancels a child. The reason tells the child whether the deadline passed.
    pub(super) fn cancel_child(&self, token: &WorkflowCancellationToken) {
        match self.machine.stop() {
            Some(Stop::Deadline) => token.cancel_with_reason(DEADLINE),
            _ => token.cancel(),
        }
    }
}

/// Starts a child, runs its workflow, and settles its node from the child's row. If an earlier history began the node,
/// the child may already run.
pub(super) async fn run_child(
    context: &Context,
    at: Target,
    request: PerformRequest,
    token: WorkflowCancellationToken,
    begun_earlier: bool,
) -> WorkflowEvent<'_> {
    let input: Input =
        match context.execute_local_activity(RunActivities::node, request.clone(), options::recorded()).await {
            Ok(PerformResult::Child(input)) => *input,
            other => return event_of(at, other),
        };
    let execution = input.execution_id;
    let options = options::child(execution, &token);
    match context.start_child_workflow(WorkflowOrchestration::run, input, options).await {
        Ok(started) => {
            let ended = async move {
                // The child's row says how the child ended, so the workflow's result is not used.
                drop(started.result().await);
                settle_closed(context, at, request, &token).await
            };
            WorkflowEvent::ChildStarted(at, ended.boxed_local())
        }
        Err(ChildWorkflowStartError::Cancelled(_)) if !begun_earlier => {
            settle_closed(context, at, request, &token).await
        }
        // An earlier history started the child. The child's row is polled until the child has ended.
        Err(_) => WorkflowEvent::ChildStarted(at, poll_child(context, at, request, token, execution).boxed_local()),
    }
}

/// Settles a node whose child's workflow has closed, or whose own activity reported no result. The row of the child or
/// of the node says what happened.
pub(super) async fn settle_closed<'a>(
    context: &'a Context,
    at: Target,
    request: PerformRequest,
    token: &WorkflowCancellationToken,
) -> WorkflowEvent<'a> {
    let closed = Some(if token.is_cancelled() { CloseReason::Stopped } else { CloseReason::ByItself });
    let request = PerformRequest { closed, ..request };
    event_of(at, context.execute_local_activity(RunActivities::node, request, options::recorded()).await)
}

/// Polls a child that an earlier history started, until the child has ended. Cancels the child if its node is stopped
/// meanwhile.
async fn poll_child(
    context: &Context,
    at: Target,
    request: PerformRequest,
    token: WorkflowCancellationToken,
    execution: ExecutionId,
) -> WorkflowEvent<'_> {
    let (mut wait, mut stopping) = (POLL, false);
    loop {
        if token.is_cancelled() && !stopping {
            (wait, stopping) = (STOPPING_POLL, true);
            let child = context.external_workflow(execution.engine_id(), None);
            // If the workflow has already closed, the cancel fails. The child's row says how the child ended.
            drop(child.cancel(token.reason()).await);
        }
        // The node's token cuts the pause short when the node is stopped. After that, nothing shortens the pause.
        let pause = if stopping { WorkflowCancellationToken::new() } else { token.clone() };
        if matches!(context.timer(options::timer(wait, &pause)).await, TimerResult::Cancelled) {
            continue;
        }
        wait = wait.saturating_mul(2).min(LONGEST_POLL);
        let earlier_child = Some(if stopping { CloseReason::Stopped } else { CloseReason::ByItself });
        let poll = PerformRequest { earlier_child, ..request.clone() };
        match context.execute_local_activity(RunActivities::node, poll, options::recorded()).await {
            Ok(PerformResult::Child(_)) => {}
            other => return event_of(at, other),
        }
    }
}

/// Finds the child of a node that is being stopped, and stops the child.
async fn find_and_stop(
    context: &Context,
    at: Target,
    request: PerformRequest,
    token: WorkflowCancellationToken,
) -> WorkflowEvent<'_> {
    match context.execute_local_activity(RunActivities::node, request.clone(), options::recorded()).await {
        Ok(PerformResult::Child(input)) => poll_child(context, at, request, token, input.execution_id).await,
        other => event_of(at, other),
    }
}
