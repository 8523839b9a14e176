//! Tasks over HTTP: the user's workers claim tasks, send heartbeats, and complete or fail the tasks.
//!
//! Invariants
//! - A claim has an id that every later request about the task must send. A request with a lost claim gets 409
//!   `lease_lost`.
//! - A worker may send the result of a task twice: it is stored once, and both requests get the same response.
//! - A key of a workspace gets tasks of its workspace. A root key gets tasks of all workspaces, which take turns.
//! - A claim request that waits holds no database connection: it queries again after a notification, and at intervals.
//!
//! If the process dies after a claim and before the response, the lease of the task expires and the task is offered
//! again.
//!
//! Not here: expired leases (`crate::wait::expire`), opening tasks (the engines).

use std::time::Duration;

use axum::extract::State;
use axum::{Extension, Json as Reply};
use kernel::ids::{ClaimId, WorkspaceId};
use kernel::kind::task::{MAX_QUEUE_LEN, check_lease, failed, is_queue};
use kernel::signals::metrics;
use kernel::wait::{MAX_WORKER_LEN, Status, check_text};
use store::wait::task::{EndTaskOutcome, TaskRequest};
use tokio::time::Instant;
use uuid::Uuid;

use super::auth::Caller;
use super::body::{Id, Json, Params};
use super::page::list_params;
use super::problem::{check_field, no_such};
use super::{Api, Code, Problem, page};
use crate::execution::waiters::WaitPermit;
use crate::wire::{
    ClaimTasks, ClaimedTask, ClaimedTasks, CompleteTask, FailTask, HeartbeatTask, Page, Task, TaskLease,
};

/// The largest number of tasks of one claim, and of queues that it may name.
const MOST: i32 = 100;
const MOST_QUEUES: usize = 100;
const LONGEST_MESSAGE: usize = 4_096;
/// The longest time that a claim waits.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The largest number of waiting claim requests of one workspace in this process. It is bounded because each queries
/// the database twice a second.
const MOST_WAITING: usize = 64;
/// How often a waiting claim request polls, because a notification may be lost.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Claims open tasks of the named queues, the oldest first, each under a lease.
///
/// With `waitSeconds` the request waits until there is a task. An empty list means that there is none.
#[utoipa::path(post, path = "/tasks/claim", tag = "tasks", request_body = ClaimTasks,
    responses((status = 200, body = ClaimedTasks)))]
pub(crate) async fn claim(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Json(body): Json<ClaimTasks>,
) -> Result<Reply<ClaimedTasks>, Problem> {
    let (most, lease, wait) = check(&api, &body)?;
    let workspace = caller.listed_workspace(body.workspace_id)?;
    let _permits = if wait.is_zero() { Vec::new() } else { wait_permits(&api, &caller, workspace)? };
    let until = Instant::now() + wait;
    loop {
        let notified = api.wakeups.tasks.notified();
        tokio::pin!(notified);
        // From here on every notification is noticed, even if it arrives during the query.
        notified.as_mut().enable();
        let after = api.last_served.get(&body.queues);
        let request = TaskRequest { queues: &body.queues, worker: &body.worker_id, most, lease, workspace, after };
        let (tasks, served) = api.store.claim_tasks(&request).await?;
        if workspace.is_none() {
            api.last_served.record(&body.queues, served);
        }
        if !tasks.is_empty() || Instant::now() >= until || api.stop.is_cancelled() {
            let claimed: Vec<ClaimedTask> = tasks.into_iter().filter_map(claimed).collect();
            ::metrics::counter!(metrics::TASK_CLAIMS.name).increment(claimed.len().try_into().unwrap_or(u64::MAX));
            return Ok(Reply(ClaimedTasks { items: claimed }));
        }
        tokio::select! {
            () = notified => {}
            () = tokio::time::sleep_until(until.min(Instant::now() + POLL_INTERVAL)) => {}
            () = api.stop.cancelled() => {}
        }
    }
}

/// Checks a claim request. Returns how many tasks to claim, their lease, and how long to wait for a task.
fn check(api: &Api, body: &ClaimTasks) -> Result<(i32, Option<Duration>, Duration), Problem> {
    let wrong = |detail: String| Err(Problem::new(Code::ValidationFailed, detail));
    let most = body.limit.unwrap_or(1);
    if !(1..=MOST).contains(&most) {
        return wrong(format!("limit: must be between 1 and {MOST}"));
    }
    if body.queues.is_empty() || body.queues.len() > MOST_QUEUES || !body.queues.iter().all(|name| is_queue(name)) {
        return wrong(format!(
            "queues: must have 1 to {MOST_QUEUES} names, each one line of 1 to {MAX_QUEUE_LEN} bytes"
        ));
    }
    check_field("workerId", Some(&body.worker_id), |text| check_text(text, MAX_WORKER_LEN))?;
    let lease = body.lease_seconds.map(|seconds| Duration::from_secs(seconds.into()));
    check_field("leaseSeconds", lease, check_lease)?;
    let wait = Duration::from_secs(body.wait_seconds.unwrap_or(0).into());
    if wait > LONGEST_WAIT {
        return wrong(format!("waitSeconds: must be between 0 and {}", LONGEST_WAIT.as_secs()));
    }
    Ok((most, lease, wait.min(api.timeout() * 9 / 10)))
}

/// The permits to wait. A workspace has a limit for all waiting requests, and a lower limit for requests that wait for
/// tasks.
fn wait_permits(api: &Api, caller: &Caller, workspace: Option<WorkspaceId>) -> Result<Vec<WaitPermit>, Problem> {
    let most = api.settings.http.max_waits_per_workspace;
    let mut wait_permits =
        vec![api.waiters.try_permit(&caller.limit_name(), most).ok_or_else(|| too_many(most, "of this workspace"))?];
    if let Some(workspace) = workspace {
        let permit = api.waiters.try_permit(&format!("tasks of {workspace}"), MOST_WAITING);
        wait_permits.push(permit.ok_or_else(|| too_many(MOST_WAITING, "for tasks of this workspace"))?);
    }
    Ok(wait_permits)
}

fn too_many(most: usize, whose: &str) -> Problem {
    let detail = format!(
        "the limit of {most} waiting requests {whose} is reached: claim without waitSeconds, or try again later"
    );
    Problem { retry_after_s: Some(1), ..Problem::new(Code::RateLimited, detail) }
}

/// Renews the lease of a task. Optionally records its progress.
#[utoipa::path(post, path = "/tasks/{id}/heartbeat", tag = "tasks", params(("id" = Uuid, Path)),
    request_body = HeartbeatTask,
    responses((status = 200, body = TaskLease)))]
pub(crate) async fn heartbeat(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
    Json(body): Json<HeartbeatTask>,
) -> Result<Reply<TaskLease>, Problem> {
    let renewed = api.store.heartbeat_task(id, caller.workspace, ClaimId(body.claim_id), body.progress.as_ref()).await;
    let renewed = renewed.map_err(|error| match error {
        store::Error::Conflict(_) => lost(),
        other => no_such("task")(other),
    })?;
    Ok(Reply(TaskLease { lease_expires_at: renewed.lease_until, canceling: renewed.canceling }))
}

/// Completes a task. Its node succeeds with this output.
#[utoipa::path(post, path = "/tasks/{id}/complete", tag = "tasks", params(("id" = Uuid, Path)),
    request_body = CompleteTask,
    responses((status = 200, body = Task)))]
pub(crate) async fn complete(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
    Json(body): Json<CompleteTask>,
) -> Result<Reply<Task>, Problem> {
    let output = body.output.unwrap_or_default();
    let ended = api.store.end_task(id, caller.workspace, ClaimId(body.claim_id), Ok(&output)).await;
    end(&api, &caller, id, ended).await
}

/// Fails a task. This fails one attempt of its node; the retry policy of the node decides about the next.
#[utoipa::path(post, path = "/tasks/{id}/fail", tag = "tasks", params(("id" = Uuid, Path)), request_body = FailTask,
    responses((status = 200, body = Task)))]
pub(crate) async fn fail(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
    Json(body): Json<FailTask>,
) -> Result<Reply<Task>, Problem> {
    check_field("message", Some(&body.message), |text| check_text(text, LONGEST_MESSAGE))?;
    let failure = failed(&body.message, body.retryable.unwrap_or(true));
    let ended = api.store.end_task(id, caller.workspace, ClaimId(body.claim_id), Err(&failure)).await;
    end(&api, &caller, id, ended).await
}

async fn end(
    api: &Api,
    caller: &Caller,
    id: Uuid,
    ended: Result<EndTaskOutcome, store::Error>,
) -> Result<Reply<Task>, Problem> {
    match ended.map_err(no_such("task"))? {
        EndTaskOutcome::Accepted(call) => api.run_notifier.notify(call),
        EndTaskOutcome::Repeated => {}
        EndTaskOutcome::OtherResult => {
            return Err(Problem::new(Code::Conflict, "this claim already ended the task with another result"));
        }
        EndTaskOutcome::Lost => return Err(lost()),
    }
    Ok(Reply(wire(api.store.task(id, caller.workspace).await.map_err(no_such("task"))?)))
}

list_params! {
    pub(crate) struct ListTasksParams {
        /// With a root key: list only this workspace. Default: all workspaces.
        workspace_id: Option<WorkspaceId>,
        /// List only tasks of this queue.
        queue: Option<String>,
        /// List only tasks with this status.
        status: Option<Status>,
    }
}

/// Lists tasks, the oldest first. A root key sees those of all workspaces.
#[utoipa::path(get, path = "/tasks", tag = "tasks",
    params(ListTasksParams), responses((status = 200, body = Page<Task>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<ListTasksParams>,
) -> Result<Reply<Page<Task>>, Problem> {
    let (limit, after) = params.page(page::ListKind::Tasks, page::uuid_of)?;
    let filter = (params.queue.as_deref(), params.status);
    let found = api.store.tasks(caller.listed_workspace(params.workspace_id)?, filter, after, limit + 1).await?;
    let cursor = |row: &store::wait::task::Task| page::write(page::ListKind::Tasks, row.id.as_bytes());
    Ok(Reply(page::cut(found, limit, cursor, wire)))
}

/// Reads a task.
#[utoipa::path(get, path = "/tasks/{id}", tag = "tasks", params(("id" = Uuid, Path)),
    responses((status = 200, body = Task)))]
pub(crate) async fn get(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<Reply<Task>, Problem> {
    Ok(Reply(wire(api.store.task(id, caller.workspace).await.map_err(no_such("task"))?)))
}

fn lost() -> Problem {
    let detail = "this claim no longer holds the task: its lease expired, or the task has ended; stop the work";
    Problem::new(Code::LeaseLost, detail)
}

fn claimed(task: store::wait::task::Task) -> Option<ClaimedTask> {
    Some(ClaimedTask {
        claim_id: task.claim?.0,
        lease_expires_at: task.lease_until?,
        lease_seconds: task.lease?.as_secs_f64(),
        id: task.id,
        queue: task.queue,
        workspace_id: task.workspace,
        execution_id: task.key.execution,
        node: task.key.node.to_string(),
        iteration: task.key.iteration,
        attempt: task.attempt,
        delivery: task.deliveries,
        input: task.input.unwrap_or_default(),
        expires_at: task.expires_at,
    })
}

fn wire(task: store::wait::task::Task) -> Task {
    Task {
        id: task.id,
        workspace_id: task.workspace,
        queue: task.queue,
        execution_id: task.key.execution,
        node: task.key.node.to_string(),
        iteration: task.key.iteration,
        attempt: task.attempt,
        status: task.status,
        input: task.input,
        worker_id: task.worker,
        lease_expires_at: task.lease_until,
        deliveries: task.deliveries,
        lost_leases: task.lost,
        progress: task.progress,
        output: task.output,
        error: task.error,
        opened_at: task.opened_at,
        expires_at: task.expires_at,
        ended_at: task.answered_at,
    }
}
