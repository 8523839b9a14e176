//! How activities are asked for: who repeats them, for how long, and what stops them.
//!
//! Invariants
//! - Temporal repeats for ever: attempts that count are on the node's row, and the deadline ends them all.
//! - What records is never stopped by a cancel of the workflow: each has a token of its own.

use std::time::Duration;

use kernel::ids::ExecutionId;
use temporalio_common::RetryPolicy;
use temporalio_sdk::{
    ActivityCancellationType, ActivityOptions, ChildWorkflowCancellationType, ChildWorkflowOptions,
    LocalActivityOptions, ParentClosePolicy, TimerOptions, WorkflowCancellationToken, WorkflowIdReusePolicy,
};

use crate::message::{Activity, ShapeNode};
use crate::start::workflow_id;

/// How long a short activity may take before it is taken for hung.
const SHORT: Duration = Duration::from_secs(30);
/// What a worker may need beside the node's own work, which has a limit of its own: it tells what came of it until the
/// database has it. A worker that is gone is noticed by its silence, not by this.
const MARGIN: Duration = Duration::from_secs(24 * 60 * 60);

/// For what must be done whatever happens.
pub(super) fn surely() -> LocalActivityOptions {
    local(SHORT, &WorkflowCancellationToken::new())
}

/// For a node that is performed within the workflow's own task.
pub(super) fn local_node(node: &ShapeNode, token: &WorkflowCancellationToken) -> LocalActivityOptions {
    local(Duration::from_millis(node.limit_ms).saturating_add(MARGIN), token)
}

fn local(limit: Duration, token: &WorkflowCancellationToken) -> LocalActivityOptions {
    LocalActivityOptions::builder()
        .retry_policy(for_ever())
        .cancel_type(ActivityCancellationType::WaitCancellationCompleted)
        .cancellation_token(token.clone())
        .start_to_close_timeout(limit)
        // A longer wait is a timer of the workflow: it keeps no worker.
        .timer_backoff_threshold(Duration::from_secs(5))
        .build()
}

/// For a node that is an activity of its own; a worker that is silent for `heartbeat` loses it. There is no end to its
/// attempts but the workflow's own timer: with one, Temporal would fail a node whose next attempt lies behind it.
pub(super) fn node(
    node: &ShapeNode,
    iteration: i32,
    heartbeat: Duration,
    token: &WorkflowCancellationToken,
) -> ActivityOptions {
    ActivityOptions::with_start_to_close_timeout(Duration::from_millis(node.limit_ms).saturating_add(MARGIN))
        .activity_id(activity_id(node, iteration))
        .heartbeat_timeout(heartbeat)
        .retry_policy(for_ever())
        .cancellation_type(ActivityCancellationType::WaitCancellationCompleted)
        .cancellation_token(token.clone())
        .build()
}

/// For what a worker of the user's own does. Each attempt is one of ours, so Temporal makes none by itself; one that is
/// canceled and sends no heartbeat is not waited for.
pub(super) fn foreign(
    node: &ShapeNode,
    activity: &Activity,
    iteration: i32,
    (limit, lease): (Duration, Option<Duration>),
    token: &WorkflowCancellationToken,
) -> ActivityOptions {
    ActivityOptions::with_schedule_to_close_timeout(limit)
        .activity_id(activity_id(node, iteration))
        .task_queue(activity.task_queue.clone())
        .maybe_heartbeat_timeout(lease)
        .retry_policy(RetryPolicy::builder().maximum_attempts(1).build())
        .cancellation_type(ActivityCancellationType::TryCancel)
        .cancellation_token(token.clone())
        .build()
}

/// For the workflow of a child, which is waited for when it is canceled. Temporal takes a history that is continued as
/// new for a parent that closes: a child is abandoned, and told to stop by whoever stops its parent.
pub(super) fn child(execution: ExecutionId, token: &WorkflowCancellationToken) -> ChildWorkflowOptions {
    ChildWorkflowOptions::builder()
        .workflow_id(workflow_id(execution))
        .id_reuse_policy(WorkflowIdReusePolicy::RejectDuplicate)
        .parent_close_policy(ParentClosePolicy::Abandon)
        .cancel_type(ChildWorkflowCancellationType::WaitCancellationCompleted)
        .cancellation_token(token.clone())
        .build()
}

/// As people see it in Temporal: the node, and which item.
fn activity_id(node: &ShapeNode, iteration: i32) -> String {
    if iteration == 0 { node.key.as_str().to_owned() } else { format!("{}/{iteration}", node.key) }
}

pub(super) fn timer(wait: Duration, token: &WorkflowCancellationToken) -> TimerOptions {
    TimerOptions::builder(wait).cancellation_token(token.clone()).build()
}

fn for_ever() -> RetryPolicy {
    RetryPolicy::builder()
        .initial_interval(Duration::from_secs(1))
        .backoff_coefficient(2.0)
        .maximum_interval(Duration::from_secs(10))
        .maximum_attempts(0)
        .build()
}
