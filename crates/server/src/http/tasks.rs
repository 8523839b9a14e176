//! Tasks over HTTP: the user's own workers claim them, keep them by heartbeats and end them.
//!
//! Invariants
//! - A claim is a number that every later request about the task must show; one that was lost is 409 `lease_lost`,
//!   whatever it asks for.
//! - An end that is told twice is answered twice and done once.
//! - A key of a workspace is given its own tasks; a root key those of all, workspaces in turn.
//! - A claim that waits holds no connection: it looks when the bell rings, and by itself.
//!
//! What happens if the process dies: tasks that were claimed and not told to the worker are lost with their lease, and
//! offered again.
//!
//! Not here: leases that were lost (`asks`), opening tasks (the engines).

use std::time::Duration;

use axum::extract::State;
use axum::{Extension, Json as Reply};
use kernel::duration;
use kernel::ids::{ClaimId, WorkspaceId};
use kernel::kind::task::{LONGEST_LEASE, MAX_QUEUE_LEN, SHORTEST_LEASE, failed, is_queue};
use kernel::signals::metrics;
use kernel::wait::Status;
use store::wait::task::{Ended, Wanted};
use tokio::time::Instant;
use uuid::Uuid;

use super::auth::Caller;
use super::body::{Id, Json, Params};
use super::page::list_params;
use super::{Api, Code, Problem, page};
use crate::execution::waiters::Turn;
use crate::wire::{ClaimTasks, ClaimedTask, ClaimedTasks, CompleteTask, FailTask, KeepTask, KeptTask, Page, Task};

/// The most tasks of one claim, and the most queues it may name.
const MOST: i32 = 100;
const MOST_QUEUES: usize = 100;
const LONGEST_NAME: usize = 200;
const LONGEST_MESSAGE: usize = 4_096;
/// The longest that a claim waits.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The most claims of one workspace that wait at once, in this process: each looks twice a second.
const MOST_WAITING: usize = 64;
/// How often a claim that waits looks by itself: a bell may have been missed.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Claims open tasks of some queues, the oldest first, each under a lease. With `wait` it waits for one; none are no
/// error.
#[utoipa::path(post, path = "/tasks/claim", tag = "tasks", request_body = ClaimTasks,
    responses((status = 200, body = ClaimedTasks)))]
pub(crate) async fn claim(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Json(body): Json<ClaimTasks>,
) -> Result<Reply<ClaimedTasks>, Problem> {
    let (most, lease, wait) = check(&api, &body)?;
    let workspace = caller.sees(body.workspace_id)?;
    let _turns = if wait.is_zero() { Vec::new() } else { turns(&api, &caller, workspace)? };
    let until = Instant::now() + wait;
    loop {
        let rung = api.wakes.tasks.notified();
        tokio::pin!(rung);
        // From now on a bell is heard, also one that rings while this looks.
        rung.as_mut().enable();
        let after = api.places.after(&body.queues);
        let wanted = Wanted { queues: &body.queues, worker: &body.worker, most, lease, workspace, after };
        let (tasks, served) = api.store.claim_tasks(&wanted).await?;
        if workspace.is_none() {
            api.places.served(&body.queues, served);
        }
        if !tasks.is_empty() || Instant::now() >= until || api.stop.is_cancelled() {
            let claimed: Vec<ClaimedTask> = tasks.into_iter().filter_map(claimed).collect();
            ::metrics::counter!(metrics::TASK_CLAIMS.name).increment(claimed.len().try_into().unwrap_or(u64::MAX));
            return Ok(Reply(ClaimedTasks { items: claimed }));
        }
        tokio::select! {
            () = rung => {}
            () = tokio::time::sleep_until(until.min(Instant::now() + LOOK_AGAIN)) => {}
            () = api.stop.cancelled() => {}
        }
    }
}

/// How many, for how long, and how long to wait.
fn check(api: &Api, body: &ClaimTasks) -> Result<(i32, Option<Duration>, Duration), Problem> {
    let wrong = |detail: String| Err(Problem::new(Code::ValidationFailed, detail));
    let most = body.max.unwrap_or(1);
    if !(1..=MOST).contains(&most) {
        return wrong(format!("max: 1 to {MOST}"));
    }
    if body.queues.is_empty() || body.queues.len() > MOST_QUEUES || !body.queues.iter().all(|name| is_queue(name)) {
        return wrong(format!("queues: 1 to {MOST_QUEUES} names, each one line of 1 to {MAX_QUEUE_LEN} bytes"));
    }
    check_text("worker", &body.worker, LONGEST_NAME)?;
    let lease = match body.lease.as_deref().map(duration::parse) {
        None => None,
        Some(Ok(lease)) if (SHORTEST_LEASE..=LONGEST_LEASE).contains(&lease) => Some(lease),
        Some(Ok(_)) => return wrong("lease: 1s to 1h".to_owned()),
        Some(Err(error)) => return wrong(format!("lease: {error}")),
    };
    let wait = match body.wait.as_deref().map(duration::parse) {
        None => Duration::ZERO,
        Some(Ok(wait)) => wait.min(LONGEST_WAIT).min(api.timeout() * 9 / 10),
        Some(Err(error)) => return wrong(format!("wait: {error}")),
    };
    Ok((most, lease, wait))
}

/// The right to wait: a workspace has so many requests that wait, of which fewer may wait for tasks.
fn turns(api: &Api, caller: &Caller, workspace: Option<WorkspaceId>) -> Result<Vec<Turn>, Problem> {
    let most = api.settings.http.max_waits_per_workspace;
    let mut turns = vec![api.waiters.turn(&caller.share(), most).ok_or_else(|| too_many(most, "of this workspace"))?];
    if let Some(workspace) = workspace {
        let turn = api.waiters.turn(&format!("tasks of {workspace}"), MOST_WAITING);
        turns.push(turn.ok_or_else(|| too_many(MOST_WAITING, "for tasks of this workspace"))?);
    }
    Ok(turns)
}

fn too_many(most: usize, whose: &str) -> Problem {
    let detail = format!("{most} requests {whose} wait already; claim without wait, or later");
    Problem { retry_after_s: Some(1), ..Problem::new(Code::RateLimited, detail) }
}

/// Keeps a task for its lease again, and notes how far it is.
#[utoipa::path(post, path = "/tasks/{id}/heartbeat", tag = "tasks", params(("id" = Uuid, Path)),
    request_body = KeepTask,
    responses((status = 200, body = KeptTask)))]
pub(crate) async fn heartbeat(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
    Json(body): Json<KeepTask>,
) -> Result<Reply<KeptTask>, Problem> {
    let kept = api.store.keep_task(id, caller.workspace, ClaimId(body.claim_id), body.progress.as_ref()).await;
    let kept = kept.map_err(|error| match error {
        store::Error::Conflict(_) => lost(),
        other => unknown(other),
    })?;
    Ok(Reply(KeptTask { lease_until: kept.lease_until, canceling: kept.canceling }))
}

/// Completes a task: its node goes on with the output.
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

/// Fails a task: one attempt of its node, and the next is made as the node's retry policy says.
#[utoipa::path(post, path = "/tasks/{id}/fail", tag = "tasks", params(("id" = Uuid, Path)), request_body = FailTask,
    responses((status = 200, body = Task)))]
pub(crate) async fn fail(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
    Json(body): Json<FailTask>,
) -> Result<Reply<Task>, Problem> {
    check_text("message", &body.message, LONGEST_MESSAGE)?;
    let failure = failed(&body.message, body.retryable.unwrap_or(true));
    let ended = api.store.end_task(id, caller.workspace, ClaimId(body.claim_id), Err(&failure)).await;
    end(&api, &caller, id, ended).await
}

async fn end(api: &Api, caller: &Caller, id: Uuid, ended: Result<Ended, store::Error>) -> Result<Reply<Task>, Problem> {
    match ended.map_err(unknown)? {
        Ended::Accepted(call) => api.calls.tell(call),
        Ended::Repeat => {}
        Ended::Otherwise => return Err(Problem::new(Code::Conflict, "this claim ended the task otherwise before")),
        Ended::Lost => return Err(lost()),
    }
    Ok(Reply(wire(api.store.task(id, caller.workspace).await.map_err(unknown)?)))
}

list_params! {
    pub(crate) struct List {
        /// With a root key, only those of this workspace.
        workspace_id: Option<WorkspaceId>,
        queue: Option<String>,
        status: Option<Status>,
    }
}

/// Tasks, the oldest first; a root key sees all workspaces'.
#[utoipa::path(get, path = "/tasks", tag = "tasks", params(List), responses((status = 200, body = Page<Task>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<List>,
) -> Result<Reply<Page<Task>>, Problem> {
    let (limit, after) = params.page(page::List::Tasks, page::uuid_of)?;
    let of = (params.queue.as_deref(), params.status);
    let found = api.store.tasks(caller.sees(params.workspace_id)?, of, after, limit + 1).await?;
    let cursor = |row: &store::wait::task::Task| page::write(page::List::Tasks, row.id.as_bytes());
    Ok(Reply(page::cut(found, limit, cursor, wire)))
}

/// One task.
#[utoipa::path(get, path = "/tasks/{id}", tag = "tasks", params(("id" = Uuid, Path)),
    responses((status = 200, body = Task)))]
pub(crate) async fn get(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<Reply<Task>, Problem> {
    Ok(Reply(wire(api.store.task(id, caller.workspace).await.map_err(unknown)?)))
}

fn check_text(field: &str, text: &str, longest: usize) -> Result<(), Problem> {
    match !text.trim().is_empty() && text.chars().count() <= longest {
        true => Ok(()),
        false => Err(Problem::new(Code::ValidationFailed, format!("{field}: 1 to {longest} characters"))),
    }
}

fn lost() -> Problem {
    let detail = "another worker has this task, or it is over: what this one does for it is not needed any more";
    Problem::new(Code::LeaseLost, detail)
}

fn unknown(error: store::Error) -> Problem {
    match error {
        store::Error::NotFound => Problem::not_found("task"),
        other => other.into(),
    }
}

fn claimed(task: store::wait::task::Task) -> Option<ClaimedTask> {
    Some(ClaimedTask {
        claim_id: task.claim?.0,
        lease_until: task.lease_until?,
        lease_seconds: task.lease?.as_secs_f64(),
        id: task.id,
        queue: task.queue,
        workspace_id: task.workspace,
        execution_id: task.place.execution,
        node: task.place.node.to_string(),
        iteration: task.place.iteration,
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
        execution_id: task.place.execution,
        node: task.place.node.to_string(),
        iteration: task.place.iteration,
        attempt: task.attempt,
        status: task.status,
        input: task.input,
        worker: task.worker,
        lease_until: task.lease_until,
        deliveries: task.deliveries,
        lost: task.lost,
        progress: task.progress,
        output: task.output,
        error: task.error,
        opened_at: task.opened_at,
        expires_at: task.expires_at,
        ended_at: task.answered_at,
    }
}
