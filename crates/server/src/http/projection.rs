//! Jobs over HTTP: listed, and worked on by whoever asks for them under a lease.
//!
//! Invariants
//! - A claim is a number that every later request about the job must show; one that was lost is 409, whatever it asks
//!   for.
//! - An end that is told twice is answered twice and done once.
//!
//! Not here: our own worker (`projector`), plain SQL (the table's triggers).

use axum::extract::State;
use axum::{Extension, Json as Reply};
use kernel::event::binding;
use kernel::ids::WorkspaceId;
use kernel::job::Status;
use serde_json::json;
use store::job::{Claim, End, Wanted, Which};
use uuid::Uuid;

use super::auth::Caller;
use super::body::{Id, Json, Params};
use super::page::list_params;
use super::{Api, Code, Problem, page};
use crate::wire::{ClaimJobs, ClaimedJob, ClaimedJobs, CompleteJob, FailJob, Job, KeepJob, KeptJob, Page};

/// The most jobs of one claim.
const MOST: i32 = 100;
const LONGEST_LEASE: i32 = 7 * 24 * 60 * 60;

list_params! {
    pub(crate) struct List {
        /// With a root key, only those of this workspace.
        workspace_id: Option<WorkspaceId>,
        status: Option<Status>,
        /// Exactly this type.
        event_type: Option<String>,
        stream_id: Option<Uuid>,
    }
}

/// Jobs, the newest first; a root key sees all workspaces'.
#[utoipa::path(get, path = "/projection", tag = "projection", params(List),
    responses((status = 200, body = Page<Job>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<List>,
) -> Result<Reply<Page<Job>>, Problem> {
    let (limit, after) = params.page(page::List::Jobs, |bytes| page::place_of(bytes, Uuid::from_bytes))?;
    let which = Which {
        workspace: caller.sees(params.workspace_id)?,
        status: params.status,
        event_type: params.event_type.as_deref(),
        stream_id: params.stream_id,
        after,
    };
    let found = api.store.jobs(which, limit + 1).await?;
    let cursor =
        |row: &store::job::Job| page::write(page::List::Jobs, &page::timed(row.created_at, *row.id.as_bytes()));
    Ok(Reply(page::cut(found, limit, cursor, wire)))
}

/// One job.
#[utoipa::path(get, path = "/projection/{id}", tag = "projection", params(("id" = Uuid, Path)),
    responses((status = 200, body = Job)))]
pub(crate) async fn get(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<Reply<Job>, Problem> {
    Ok(Reply(wire(api.store.job(id, caller.workspace).await.map_err(unknown)?)))
}

/// Claims pending jobs, the oldest first, each under a lease. None are no error.
#[utoipa::path(post, path = "/projection/claim", tag = "projection", request_body = ClaimJobs,
    responses((status = 200, body = ClaimedJobs)))]
pub(crate) async fn claim(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Json(body): Json<ClaimJobs>,
) -> Result<Reply<ClaimedJobs>, Problem> {
    let limit = body.limit.unwrap_or(1);
    if !(1..=MOST).contains(&limit) {
        return Err(Problem::new(Code::ValidationFailed, format!("limit: 1 to {MOST}")));
    }
    check_lease(body.lease_seconds)?;
    check_text("workerId", Some(&body.worker_id), 200)?;
    check_types(body.event_types.as_deref())?;
    let wanted = Wanted {
        workspace: caller.sees(body.workspace_id)?,
        event_types: body.event_types.as_deref(),
        id: body.id,
        worker: &body.worker_id,
        lease_s: body.lease_seconds,
        limit,
    };
    let held = api.store.claim_jobs(&wanted).await?;
    let claimed = |held: store::job::Held| ClaimedJob {
        claim_id: held.claim,
        lease_until: held.lease_until,
        job: wire(held.job),
    };
    Ok(Reply(ClaimedJobs { items: held.into_iter().map(claimed).collect() }))
}

/// Keeps a job for its lease again, and notes what runs it.
#[utoipa::path(post, path = "/projection/{id}/heartbeat", tag = "projection", params(("id" = Uuid, Path)),
    request_body = KeepJob,
    responses((status = 200, body = KeptJob)))]
pub(crate) async fn heartbeat(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
    Json(body): Json<KeepJob>,
) -> Result<Reply<KeptJob>, Problem> {
    check_lease(body.lease_seconds)?;
    check_text("workflowId", body.workflow_id.as_ref(), 500)?;
    check_text("workflowRunId", body.workflow_run_id.as_ref(), 500)?;
    let claim = Claim { job: id, workspace: caller.workspace, claim: body.claim_id };
    let (workflow, run) = (body.workflow_id.as_deref(), body.workflow_run_id.as_deref());
    let lease_until = api.store.keep_job(claim, body.lease_seconds, workflow, run).await.map_err(unknown)?;
    Ok(Reply(KeptJob { lease_until }))
}

/// Completes a job.
#[utoipa::path(post, path = "/projection/{id}/complete", tag = "projection", params(("id" = Uuid, Path)),
    request_body = CompleteJob,
    responses((status = 200, body = Job)))]
pub(crate) async fn complete(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
    Json(body): Json<CompleteJob>,
) -> Result<Reply<Job>, Problem> {
    let result = body.result.unwrap_or_else(|| json!({}));
    end(&api, &caller, id, body.claim_id, &End::Completed(&result)).await
}

/// Fails a job: it is tried again after a while, unless this was the third time.
#[utoipa::path(post, path = "/projection/{id}/fail", tag = "projection", params(("id" = Uuid, Path)),
    request_body = FailJob,
    responses((status = 200, body = Job)))]
pub(crate) async fn fail(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
    Json(body): Json<FailJob>,
) -> Result<Reply<Job>, Problem> {
    check_text("errorMessage", Some(&body.error_message), 10_000)?;
    check_text("errorStack", body.error_stack.as_ref(), 100_000)?;
    let failed = End::Failed { message: &body.error_message, stack: body.error_stack.as_deref() };
    end(&api, &caller, id, body.claim_id, &failed).await
}

/// Tries a failed job again at once.
#[utoipa::path(post, path = "/projection/{id}/retry", tag = "projection", params(("id" = Uuid, Path)),
    responses((status = 200, body = Job)))]
pub(crate) async fn retry(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<Reply<Job>, Problem> {
    api.store.retry_job(id, caller.workspace, &caller.actor).await.map_err(unknown)?;
    api.wakes.jobs.notify_one();
    Ok(Reply(wire(api.store.job(id, caller.workspace).await.map_err(unknown)?)))
}

async fn end(api: &Api, caller: &Caller, id: Uuid, claim: Uuid, end: &End<'_>) -> Result<Reply<Job>, Problem> {
    let claim = Claim { job: id, workspace: caller.workspace, claim };
    api.store.end_job(claim, end).await.map_err(unknown)?;
    Ok(Reply(wire(api.store.job(id, caller.workspace).await.map_err(unknown)?)))
}

fn check_lease(lease: Option<i32>) -> Result<(), Problem> {
    match lease.is_none_or(|lease| (1..=LONGEST_LEASE).contains(&lease)) {
        true => Ok(()),
        false => Err(Problem::new(Code::ValidationFailed, format!("leaseSeconds: 1 to {LONGEST_LEASE}"))),
    }
}

fn check_types(types: Option<&[String]>) -> Result<(), Problem> {
    let mut wrong = types.into_iter().flatten().filter_map(|text| Some((text, binding::bad_type(text)?)));
    match wrong.next() {
        None => Ok(()),
        Some((text, why)) => Err(Problem::new(Code::ValidationFailed, format!("eventTypes: {text:?} {why}"))),
    }
}

fn check_text(field: &str, text: Option<&String>, longest: usize) -> Result<(), Problem> {
    let good = |text: &String| !text.is_empty() && text.chars().count() <= longest && !text.contains('\0');
    match text.is_none_or(good) {
        true => Ok(()),
        false => Err(Problem::new(Code::ValidationFailed, format!("{field}: 1 to {longest} characters"))),
    }
}

fn unknown(error: store::Error) -> Problem {
    match error {
        store::Error::NotFound => Problem::not_found("job"),
        other => other.into(),
    }
}

fn wire(job: store::job::Job) -> Job {
    Job {
        id: job.id,
        workspace_id: job.workspace,
        event_id: job.event_id,
        event_type: job.event_type,
        event_data: job.event_data,
        stream_id: job.stream_id,
        stream_type: job.stream_type,
        status: job.status,
        worker_id: job.worker_id,
        claimed_at: job.claimed_at,
        workflow_id: job.workflow_id,
        workflow_run_id: job.workflow_run_id,
        completed_at: job.completed_at,
        failed_at: job.failed_at,
        error_message: job.error_message,
        error_stack: job.error_stack,
        retry_count: job.retry_count,
        result: job.result,
        created_at: job.created_at,
        updated_at: job.updated_at,
    }
}
