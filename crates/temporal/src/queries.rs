//! Queries Temporal about runs and about the workers that serve them.
//!
//! Invariants
//! - A query changes nothing and waits at most `CALL`.
//! - A list may be seconds old. Decisions about a run are based on the description of that run alone.
//! - Only a run that waits for a worker, or whose tasks fail, costs more than one request.
//!
//! Not here: starting and ending (`client`), the consequences of an answer (`kernel::run::reconcile`,
//! `server::run::reconcile`).

use std::collections::BTreeSet;

use engine::{RunDescription, ending};
use jiff::Timestamp;
use kernel::execution::Status;
use kernel::ids::ExecutionId;
use kernel::queue::explain::RunProblem;
use kernel::run::failure::{Class, Failure};
use store::run::End;
use temporalio_client::errors::WorkflowInteractionError;
use temporalio_client::tonic;
use temporalio_client::{UntypedWorkflow, WorkflowDescribeOptions, WorkflowExecutionStatus};
use temporalio_common::protos::temporal::api::common::v1::WorkflowExecution;
use temporalio_common::protos::temporal::api::enums::v1::{
    PendingActivityState, PendingWorkflowTaskState, TaskQueueType, WorkflowTaskFailedCause,
};
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use temporalio_common::protos::temporal::api::taskqueue::v1::TaskQueue;
use temporalio_common::protos::temporal::api::workflowservice::v1::{
    DescribeTaskQueueRequest, DescribeWorkflowExecutionResponse, GetWorkflowExecutionHistoryReverseRequest,
    ListWorkflowExecutionsRequest,
};

use crate::connection::{NamespaceClient, chain, once, timed};

/// A workflow task that was attempted more often than this will not succeed by itself. If the history does not match
/// the worker's build, the run counts as stuck without further attempts.
const STUCK_AFTER: i32 = 3;
/// How many runs a page of a list has, and how many pages are read. Runs on later pages are described one by one.
const PAGE: i32 = 1_000;
const PAGES: usize = 50;
/// A worker polls at least once a minute. A worker that has not polled for longer than this counts as gone.
const POLLS_WITHIN_S: i64 = 75;
/// How many events at the end of a history are searched for a failed task.
const LOOKED_BACK: i32 = 10;

/// Describes the run of an execution.
pub(crate) async fn describe(linked: &NamespaceClient, execution: ExecutionId) -> Result<RunDescription, String> {
    let handle = linked.client.get_workflow_handle::<UntypedWorkflow>(execution.engine_id());
    let options = WorkflowDescribeOptions::builder().rpc_options(once()).build();
    let found = match handle.describe(options).await {
        Ok(found) => found,
        Err(WorkflowInteractionError::NotFound(_)) => return Ok(RunDescription::Unknown),
        Err(error) => return Err(chain(&error)),
    };
    let ended = |outcome, error| End { outcome, output: None, error };
    let failed = |class, message: &str| Some(Failure::new(class, message));
    Ok(match found.status() {
        WorkflowExecutionStatus::Completed => RunDescription::Closed(ended(Status::Completed, None)),
        WorkflowExecutionStatus::Canceled => RunDescription::Closed(ended(Status::Canceled, None)),
        WorkflowExecutionStatus::Failed => {
            let why = "its workflow failed in Temporal and recorded no end; see its history in Temporal";
            RunDescription::EndedExternally(ended(Status::Failed, failed(Class::EngineLost, why)))
        }
        WorkflowExecutionStatus::Terminated => RunDescription::EndedExternally(ending::terminated()),
        WorkflowExecutionStatus::TimedOut => {
            let why = "its workflow timed out in Temporal";
            RunDescription::EndedExternally(ended(Status::TimedOut, failed(Class::DeadlinePassed, why)))
        }
        _ => RunDescription::Running { stuck: stuck(linked, found.raw()).await? },
    })
}

/// The open runs between two ids, both included.
pub(crate) async fn open_runs(
    linked: &NamespaceClient,
    from: ExecutionId,
    to: ExecutionId,
) -> Result<BTreeSet<ExecutionId>, String> {
    let (from, to) = (from.engine_id(), to.engine_id());
    let mut request = ListWorkflowExecutionsRequest {
        namespace: linked.client.options().namespace.clone(),
        page_size: PAGE,
        next_page_token: Vec::new(),
        query: format!("WorkflowId BETWEEN '{from}' AND '{to}' AND ExecutionStatus = 'Running'"),
    };
    let mut service = linked.client.connection().workflow_service();
    let mut found = BTreeSet::new();
    for _ in 0..PAGES {
        let page =
            service.list_workflow_executions(timed(request.clone())).await.map_err(describe_status)?.into_inner();
        let ids =
            page.executions.iter().filter_map(|run| run.execution.as_ref()?.workflow_id.strip_prefix("execution-"));
        found.extend(ids.filter_map(|id| id.parse().ok()).map(ExecutionId));
        if page.next_page_token.is_empty() {
            break;
        }
        request.next_page_token = page.next_page_token;
    }
    Ok(found)
}

/// Checks that a task queue has workers. Returns a description of the problem, if there is one.
pub(crate) async fn check_workers(linked: &NamespaceClient, queue: &str) -> Result<Option<String>, String> {
    Ok((!is_polled(linked, queue).await?).then(|| no_workers(queue)))
}

/// Returns why a run makes no progress; None if it does. Either its workflow tasks fail, or no worker serves it. Tasks
/// fail if the history does not match this build's code, or if the workers lack the run's encryption key.
async fn stuck(
    linked: &NamespaceClient,
    found: &DescribeWorkflowExecutionResponse,
) -> Result<Option<RunProblem>, String> {
    let task = found.pending_workflow_task.as_ref();
    let attempts = task.map_or(0, |task| task.attempt);
    if attempts > 1 {
        let execution = found.workflow_execution_info.as_ref().and_then(|info| info.execution.clone());
        let last = failure(linked, execution).await;
        let certain = last.as_ref().is_some_and(|last| last.cause == WorkflowTaskFailedCause::NonDeterministicError);
        if certain || attempts > STUCK_AFTER {
            let why = last.and_then(TaskFailure::describe).map(|why| format!(": {why}")).unwrap_or_default();
            return Ok(Some(RunProblem::WorkFails(format!("its workflow task failed {}{why}", times(attempts - 1)))));
        }
    }
    let waits = task.is_some_and(|task| task.state() == PendingWorkflowTaskState::Scheduled)
        || found.pending_activities.iter().any(|activity| activity.state() == PendingActivityState::Scheduled);
    let queue = found.execution_config.as_ref().and_then(|config| config.task_queue.as_ref());
    match queue {
        Some(queue) if waits && !is_polled(linked, &queue.name).await? => {
            Ok(Some(RunProblem::NoWorker(no_workers(&queue.name))))
        }
        _ => Ok(None),
    }
}

/// How a run's workflow task failed.
struct TaskFailure {
    cause: WorkflowTaskFailedCause,
    message: String,
}

impl TaskFailure {
    fn describe(self) -> Option<String> {
        match (self.cause, self.message) {
            (WorkflowTaskFailedCause::Unspecified, message) => Some(message).filter(|message| !message.is_empty()),
            (cause, message) if message.is_empty() => Some(format!("{cause:?}")),
            (cause, message) => Some(format!("{cause:?}, {message}")),
        }
    }
}

/// How the run's last workflow task failed. None if that cannot be read, or if a later task completed.
async fn failure(linked: &NamespaceClient, execution: Option<WorkflowExecution>) -> Option<TaskFailure> {
    let request = GetWorkflowExecutionHistoryReverseRequest {
        namespace: linked.client.options().namespace.clone(),
        execution,
        maximum_page_size: LOOKED_BACK,
        next_page_token: Vec::new(),
    };
    let mut service = linked.client.connection().workflow_service();
    let answer = service.get_workflow_execution_history_reverse(timed(request)).await.ok()?.into_inner();
    answer.history?.events.into_iter().find_map(|event| match event.attributes? {
        Attributes::WorkflowTaskFailedEventAttributes(failed) => Some(Some(TaskFailure {
            cause: failed.cause(),
            message: failed.failure.map(|failure| failure.message).unwrap_or_default(),
        })),
        Attributes::WorkflowTaskCompletedEventAttributes(_) => Some(None),
        _ => None,
    })?
}

fn times(count: i32) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

/// True if any worker polls the task queue.
async fn is_polled(linked: &NamespaceClient, queue: &str) -> Result<bool, String> {
    let request = DescribeTaskQueueRequest {
        namespace: linked.client.options().namespace.clone(),
        task_queue: Some(TaskQueue { name: queue.to_owned(), ..TaskQueue::default() }),
        task_queue_type: TaskQueueType::Workflow.into(),
        ..DescribeTaskQueueRequest::default()
    };
    let answer = linked.client.connection().workflow_service().describe_task_queue(timed(request)).await;
    let now = Timestamp::now().as_second();
    Ok(answer
        .map_err(describe_status)?
        .into_inner()
        .pollers
        .into_iter()
        .any(|poller| poller.last_access_time.is_some_and(|at| now - at.seconds < POLLS_WITHIN_S)))
}

fn no_workers(queue: &str) -> String {
    format!("no worker polls task queue {queue}")
}

fn describe_status(status: tonic::Status) -> String {
    format!("Temporal answered {:?}: {}", status.code(), status.message())
}
