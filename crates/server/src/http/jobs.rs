//! Jobs over HTTP: lists jobs, claims them under a lease, and completes or fails them.
//!
//! Invariants
//! - A claim has an id that every later request about the job must send. A request with a lost claim gets 409.
//! - A worker may send the result of a job twice: it is stored once, and both requests get the same response.
//!
//! Not here: jobs that the service runs itself (`crate::job::projector`), claims in plain SQL (triggers of the table).

use axum::extract::State;
use axum::{Extension, Json as Reply};
use kernel::event::binding;
use kernel::ids::WorkspaceId;
use kernel::job::{Status, check_lease};
use kernel::wait::{self, MAX_WORKER_LEN};
use serde_json::json;
use store::job::{JobClaim, JobEnd, JobFilter, JobRequest};
use uuid::Uuid;

use super::auth::Caller;
use super::body::{Id, Json, Params};
use super::page::list_params;
use super::problem::{check_field, no_such};
use super::{Api, Code, Problem, page};
use crate::wire::{ClaimJobs, ClaimedJob, ClaimedJobs, CompleteJob, FailJob, HeartbeatJob, Job, JobLease, Page};

/// The largest number of jobs of one claim.
const MOST: i32 = 100;

list_params! {
    pub(crate) struct ListJobsParams {
        /// With a root key: list only this workspace. Default: all workspaces.
        workspace_id: Option<WorkspaceId>,
        /// List only jobs with this status.
        status: Option<Status>,
        /// List only jobs of this event type. Wildcards are not supported.
        event_type: Option<String>,
        /// List only jobs of this event stream.
        stream_id: Option<Uuid>,
    }
}

/// Lists jobs, the newest first. A root key sees those of all workspaces.
#[utoipa::path(get, path = "/jobs", tag = "jobs", params(ListJobsParams),
    responses((status = 200, body = Page<Job>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<ListJobsParams>,
) -> Result<Reply<Page<Job>>, Problem> {
    let (limit, after) = params.page(page::ListKind::Jobs, |bytes| page::time_cursor_of(bytes, Uuid::from_bytes))?;
    let filter = JobFilter {
        workspace: caller.listed_workspace(params.workspace_id)?,
        status: params.status,
        event_type: params.event_type.as_deref(),
        stream_id: params.stream_id,
        after,
    };
    let found = api.store.jobs(filter, limit + 1).await?;
    let cursor =
        |row: &store::job::Job| page::write(page::ListKind::Jobs, &page::timed(row.created_at, *row.id.as_bytes()));
    Ok(Reply(page::cut(found, limit, cursor, wire)))
}

/// Reads a job.
#[utoipa::path(get, path = "/jobs/{id}", tag = "jobs", params(("id" = Uuid, Path)),
    responses((status = 200, body = Job)))]
pub(crate) async fn get(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<Reply<Job>, Problem> {
    Ok(Reply(wire(api.store.job(id, caller.workspace).await.map_err(no_such("job"))?)))
}

/// Claims pending jobs, the oldest first, each under a lease.
///
/// An empty list means that no job matches.
#[utoipa::path(post, path = "/jobs/claim", tag = "jobs", request_body = ClaimJobs,
    responses((status = 200, body = ClaimedJobs)))]
pub(crate) async fn claim(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Json(body): Json<ClaimJobs>,
) -> Result<Reply<ClaimedJobs>, Problem> {
    let limit = body.limit.unwrap_or(1);
    if !(1..=MOST).contains(&limit) {
        return Err(Problem::new(Code::ValidationFailed, format!("limit: must be between 1 and {MOST}")));
    }
    check_field("leaseSeconds", body.lease_seconds, check_lease)?;
    check_text("workerId", Some(&body.worker_id), MAX_WORKER_LEN)?;
    check_types(body.event_types.as_deref())?;
    let request = JobRequest {
        workspace: caller.listed_workspace(body.workspace_id)?,
        event_types: body.event_types.as_deref(),
        id: body.id,
        worker: &body.worker_id,
        lease_s: body.lease_seconds,
        limit,
    };
    let claimed = api.store.claim_jobs(&request).await?;
    let to_wire = |claimed: store::job::ClaimedJob| ClaimedJob {
        claim_id: claimed.claim,
        lease_expires_at: claimed.lease_until,
        job: wire(claimed.job),
    };
    Ok(Reply(ClaimedJobs { items: claimed.into_iter().map(to_wire).collect() }))
}

/// Renews the lease of a job. Optionally records which external workflow runs it.
#[utoipa::path(post, path = "/jobs/{id}/heartbeat", tag = "jobs", params(("id" = Uuid, Path)),
    request_body = HeartbeatJob,
    responses((status = 200, body = JobLease)))]
pub(crate) async fn heartbeat(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
    Json(body): Json<HeartbeatJob>,
) -> Result<Reply<JobLease>, Problem> {
    check_field("leaseSeconds", body.lease_seconds, check_lease)?;
    check_text("workflowId", body.workflow_id.as_ref(), 500)?;
    check_text("workflowRunId", body.workflow_run_id.as_ref(), 500)?;
    let claim = JobClaim { job: id, workspace: caller.workspace, claim: body.claim_id };
    let (workflow, run) = (body.workflow_id.as_deref(), body.workflow_run_id.as_deref());
    let lease_expires_at =
        api.store.heartbeat_job(claim, body.lease_seconds, workflow, run).await.map_err(no_such("job"))?;
    Ok(Reply(JobLease { lease_expires_at }))
}

/// Completes a job.
#[utoipa::path(post, path = "/jobs/{id}/complete", tag = "jobs", params(("id" = Uuid, Path)),
    request_body = CompleteJob,
    responses((status = 200, body = Job)))]
pub(crate) async fn complete(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
    Json(body): Json<CompleteJob>,
) -> Result<Reply<Job>, Problem> {
    let result = body.result.unwrap_or_else(|| json!({}));
    end(&api, &caller, id, body.claim_id, &JobEnd::Completed(&result)).await
}

/// Fails a job. It is retried after a delay, up to three times.
#[utoipa::path(post, path = "/jobs/{id}/fail", tag = "jobs", params(("id" = Uuid, Path)),
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
    let failed = JobEnd::Failed { message: &body.error_message, stack: body.error_stack.as_deref() };
    end(&api, &caller, id, body.claim_id, &failed).await
}

/// Retries a failed job now.
#[utoipa::path(post, path = "/jobs/{id}/retry", tag = "jobs", params(("id" = Uuid, Path)),
    responses((status = 200, body = Job)))]
pub(crate) async fn retry(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<Reply<Job>, Problem> {
    api.store.retry_job(id, caller.workspace, &caller.actor).await.map_err(no_such("job"))?;
    api.wakeups.jobs.notify_one();
    Ok(Reply(wire(api.store.job(id, caller.workspace).await.map_err(no_such("job"))?)))
}

async fn end(api: &Api, caller: &Caller, id: Uuid, claim: Uuid, end: &JobEnd<'_>) -> Result<Reply<Job>, Problem> {
    let claim = JobClaim { job: id, workspace: caller.workspace, claim };
    api.store.end_job(claim, end).await.map_err(no_such("job"))?;
    Ok(Reply(wire(api.store.job(id, caller.workspace).await.map_err(no_such("job"))?)))
}

fn check_types(types: Option<&[String]>) -> Result<(), Problem> {
    let mut wrong = types.into_iter().flatten().filter_map(|text| Some((text, binding::bad_type(text)?)));
    match wrong.next() {
        None => Ok(()),
        Some((text, why)) => Err(Problem::new(Code::ValidationFailed, format!("eventTypes: {text:?} {why}"))),
    }
}

fn check_text(field: &str, text: Option<&String>, longest: usize) -> Result<(), Problem> {
    check_field(field, text, |text| wait::check_text(text, longest))
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
