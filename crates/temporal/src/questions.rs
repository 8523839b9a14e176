//! What Temporal is asked about runs and about whoever does their work.
//!
//! Invariants
//! - Nothing is changed by a question, and no answer is waited for longer than `CALL`.
//! - A list may be seconds old; what follows for a run is decided by its description alone.
//! - Only a run that waits for a worker, or whose tasks fail, costs more than one question.
//!
//! Not here: starting and ending (`client`), what follows from an answer (`kernel::run::reconcile`,
//! `server::run::reconcile`).

use std::collections::BTreeSet;

use engine::{Described, ending};
use jiff::Timestamp;
use kernel::execution::Status;
use kernel::ids::ExecutionId;
use kernel::queue::explain::Stuck;
use kernel::run::failure::{Class, Failure};
use store::run::End;
use temporalio_client::errors::WorkflowInteractionError;
use temporalio_client::tonic::{self, Request};
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

use crate::connection::{CALL, Linked, chain, once};
use crate::start::workflow_id;

/// A workflow's task that was tried more often than this will not succeed by itself. One whose history does not fit the
/// worker's build will not either, and need not be tried again to know it.
const STUCK_AFTER: i32 = 3;
/// How many runs one page of a list holds, and how many pages are read. What is not on them is asked about one by one.
const PAGE: i32 = 1_000;
const PAGES: usize = 50;
/// Whoever polls asks at least once in a minute; one that did not for longer is gone.
const POLLS_WITHIN_S: i64 = 75;
/// How far back in a history the failure of a task is looked for.
const LOOKED_BACK: i32 = 10;

/// What became of an execution's run.
pub(crate) async fn describe(linked: &Linked, execution: ExecutionId) -> Result<Described, String> {
    let handle = linked.client.get_workflow_handle::<UntypedWorkflow>(workflow_id(execution));
    let options = WorkflowDescribeOptions::builder().rpc_options(once()).build();
    let found = match handle.describe(options).await {
        Ok(found) => found,
        Err(WorkflowInteractionError::NotFound(_)) => return Ok(Described::Unknown),
        Err(error) => return Err(chain(&error)),
    };
    let ended = |outcome, error| End { outcome, output: None, error };
    let failed = |class, message: &str| Some(Failure::new(class, message));
    Ok(match found.status() {
        WorkflowExecutionStatus::Completed => Described::Closed(ended(Status::Completed, None)),
        WorkflowExecutionStatus::Canceled => Described::Closed(ended(Status::Canceled, None)),
        WorkflowExecutionStatus::Failed => {
            let why = "its workflow failed in Temporal, and nothing was recorded";
            Described::Broken(ended(Status::Failed, failed(Class::EngineLost, why)))
        }
        WorkflowExecutionStatus::Terminated => Described::Broken(ending::terminated()),
        WorkflowExecutionStatus::TimedOut => {
            let why = "its workflow ran out of time in Temporal";
            Described::Broken(ended(Status::TimedOut, failed(Class::DeadlinePassed, why)))
        }
        _ => Described::Running { stuck: stuck(linked, found.raw()).await? },
    })
}

/// The runs between two ids, both included, that are open.
pub(crate) async fn open(linked: &Linked, from: ExecutionId, to: ExecutionId) -> Result<BTreeSet<ExecutionId>, String> {
    let (from, to) = (workflow_id(from), workflow_id(to));
    let mut request = ListWorkflowExecutionsRequest {
        namespace: linked.client.options().namespace.clone(),
        page_size: PAGE,
        next_page_token: Vec::new(),
        query: format!("WorkflowId BETWEEN '{from}' AND '{to}' AND ExecutionStatus = 'Running'"),
    };
    let mut service = linked.client.connection().workflow_service();
    let mut found = BTreeSet::new();
    for _ in 0..PAGES {
        let page = service.list_workflow_executions(timed(request.clone())).await.map_err(told)?.into_inner();
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

/// Is the work of a task queue done? Says what is wrong.
pub(crate) async fn look(linked: &Linked, queue: &str) -> Result<Option<String>, String> {
    Ok((!is_polled(linked, queue).await?).then(|| nobody(queue)))
}

/// Why a run does not go on, if it does not: its tasks fail (its history and this build's code do not agree, or its key
/// is not known to its workers), or it waits for a worker and there is none.
async fn stuck(linked: &Linked, found: &DescribeWorkflowExecutionResponse) -> Result<Option<Stuck>, String> {
    let task = found.pending_workflow_task.as_ref();
    let attempts = task.map_or(0, |task| task.attempt);
    if attempts > 1 {
        let execution = found.workflow_execution_info.as_ref().and_then(|info| info.execution.clone());
        let last = failure(linked, execution).await;
        let certain = last.as_ref().is_some_and(|last| last.cause == WorkflowTaskFailedCause::NonDeterministicError);
        if certain || attempts > STUCK_AFTER {
            let why = last.and_then(Last::told).map(|why| format!(": {why}")).unwrap_or_default();
            return Ok(Some(Stuck::Failing(format!("its workflow task failed {}{why}", times(attempts - 1)))));
        }
    }
    let waits = task.is_some_and(|task| task.state() == PendingWorkflowTaskState::Scheduled)
        || found.pending_activities.iter().any(|activity| activity.state() == PendingActivityState::Scheduled);
    let queue = found.execution_config.as_ref().and_then(|config| config.task_queue.as_ref());
    match queue {
        Some(queue) if waits && !is_polled(linked, &queue.name).await? => Ok(Some(Stuck::Idle(nobody(&queue.name)))),
        _ => Ok(None),
    }
}

/// How a run's task failed.
struct Last {
    cause: WorkflowTaskFailedCause,
    message: String,
}

impl Last {
    fn told(self) -> Option<String> {
        match (self.cause, self.message) {
            (WorkflowTaskFailedCause::Unspecified, message) => Some(message).filter(|message| !message.is_empty()),
            (cause, message) if message.is_empty() => Some(format!("{cause:?}")),
            (cause, message) => Some(format!("{cause:?}, {message}")),
        }
    }
}

/// How its last task failed, if that can be read and none was completed since.
async fn failure(linked: &Linked, execution: Option<WorkflowExecution>) -> Option<Last> {
    let request = GetWorkflowExecutionHistoryReverseRequest {
        namespace: linked.client.options().namespace.clone(),
        execution,
        maximum_page_size: LOOKED_BACK,
        next_page_token: Vec::new(),
    };
    let mut service = linked.client.connection().workflow_service();
    let answer = service.get_workflow_execution_history_reverse(timed(request)).await.ok()?.into_inner();
    answer.history?.events.into_iter().find_map(|event| match event.attributes? {
        Attributes::WorkflowTaskFailedEventAttributes(failed) => Some(Some(Last {
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

/// Does any worker poll it?
async fn is_polled(linked: &Linked, queue: &str) -> Result<bool, String> {
    let request = DescribeTaskQueueRequest {
        namespace: linked.client.options().namespace.clone(),
        task_queue: Some(TaskQueue { name: queue.to_owned(), ..TaskQueue::default() }),
        task_queue_type: TaskQueueType::Workflow.into(),
        ..DescribeTaskQueueRequest::default()
    };
    let answer = linked.client.connection().workflow_service().describe_task_queue(timed(request)).await;
    let now = Timestamp::now().as_second();
    Ok(answer
        .map_err(told)?
        .into_inner()
        .pollers
        .into_iter()
        .any(|poller| poller.last_access_time.is_some_and(|at| now - at.seconds < POLLS_WITHIN_S)))
}

fn nobody(queue: &str) -> String {
    format!("no worker polls task queue {queue}")
}

fn timed<T>(request: T) -> Request<T> {
    let mut request = Request::new(request);
    request.set_timeout(CALL);
    request
}

fn told(status: tonic::Status) -> String {
    format!("Temporal answered {:?}: {}", status.code(), status.message())
}
