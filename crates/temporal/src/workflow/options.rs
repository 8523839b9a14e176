//! The options of activities, timers and child workflows: retries, time limits, cancellation.
//!
//! Invariants
//! - Temporal repeats Forebay's activities without limit. The node's row counts the attempts, and the run's deadline
//!   ends them all.
//! - A cancel of the workflow never stops an activity that records something: each has its own token.

use std::time::Duration;

use kernel::ids::ExecutionId;
use kernel::kind::task::Activity;
use temporalio_common::RetryPolicy;
use temporalio_sdk::{
    ActivityCancellationType, ActivityOptions, ChildWorkflowCancellationType, ChildWorkflowOptions,
    LocalActivityOptions, ParentClosePolicy, TimerOptions, WorkflowCancellationToken, WorkflowIdReusePolicy,
};

use crate::message::GraphNode;

/// The time limit of a short activity. After it the activity counts as hung.
const SHORT: Duration = Duration::from_secs(30);
/// The time that a worker may need in addition to the node's own time limit, because it retries until the database
/// stores the result. A dead worker is noticed by its missing heartbeats, not by this limit.
const MARGIN: Duration = Duration::from_secs(24 * 60 * 60);

/// For short activities that record something. No cancel stops them.
pub(super) fn recorded() -> LocalActivityOptions {
    local(SHORT, &WorkflowCancellationToken::new())
}

/// For a node that is performed by a local activity, within the workflow task.
pub(super) fn local_node(node: &GraphNode, token: &WorkflowCancellationToken) -> LocalActivityOptions {
    local(Duration::from_millis(node.limit_ms).saturating_add(MARGIN), token)
}

fn local(limit: Duration, token: &WorkflowCancellationToken) -> LocalActivityOptions {
    LocalActivityOptions::builder()
        .retry_policy(without_limit())
        .cancel_type(ActivityCancellationType::WaitCancellationCompleted)
        .cancellation_token(token.clone())
        .start_to_close_timeout(limit)
        // A longer pause is a timer of the workflow, which occupies no worker.
        .timer_backoff_threshold(Duration::from_secs(5))
        .build()
}

/// For a node with its own activity. A worker that sends no heartbeat for `heartbeat` loses the activity. Only the
/// workflow's deadline timer limits the attempts. With a limit of its own, Temporal would fail a node whose next
/// attempt comes after that limit.
pub(super) fn node(
    node: &GraphNode,
    iteration: i32,
    heartbeat: Duration,
    token: &WorkflowCancellationToken,
) -> ActivityOptions {
    ActivityOptions::with_start_to_close_timeout(Duration::from_millis(node.limit_ms).saturating_add(MARGIN))
        .activity_id(activity_id(node, iteration))
        .heartbeat_timeout(heartbeat)
        .retry_policy(without_limit())
        .cancellation_type(ActivityCancellationType::WaitCancellationCompleted)
        .cancellation_token(token.clone())
        .build()
}

/// For a user's own activity. The node counts the attempts, so Temporal makes only one. The workflow does not wait for
/// a canceled activity, because an activity that sends no heartbeat never learns of the cancel.
pub(super) fn user_activity(
    node: &GraphNode,
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

/// For the workflow of a child. When it is canceled, the parent waits for its end. Temporal treats a history that is
/// continued as new as a closed parent, so the child must survive that (`Abandon`). Code that stops the parent also
/// stops the child.
pub(super) fn child(execution: ExecutionId, token: &WorkflowCancellationToken) -> ChildWorkflowOptions {
    ChildWorkflowOptions::builder()
        .workflow_id(execution.engine_id())
        .id_reuse_policy(WorkflowIdReusePolicy::RejectDuplicate)
        .parent_close_policy(ParentClosePolicy::Abandon)
        .cancel_type(ChildWorkflowCancellationType::WaitCancellationCompleted)
        .cancellation_token(token.clone())
        .build()
}

/// The activity's id as Temporal shows it: the node, and the item.
fn activity_id(node: &GraphNode, iteration: i32) -> String {
    if iteration == 0 { node.key.as_str().to_owned() } else { format!("{}/{iteration}", node.key) }
}

pub(super) fn timer(wait: Duration, token: &WorkflowCancellationToken) -> TimerOptions {
    TimerOptions::builder(wait).cancellation_token(token.clone()).build()
}

fn without_limit() -> RetryPolicy {
    RetryPolicy::builder()
        .initial_interval(Duration::from_secs(1))
        .backoff_coefficient(2.0)
        .maximum_interval(Duration::from_secs(10))
        .maximum_attempts(0)
        .build()
}
