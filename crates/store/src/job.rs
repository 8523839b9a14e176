//! Jobs: the rows of `workflow_queue_projection`. The projector, workers of the API and plain SQL change them.
//!
//! Invariants
//! - A trigger refuses every step that the kernel's table does not list. For every other step it appends an event. This
//!   holds for every program that writes.
//! - A claimed job changes only under its claim.
//!
//! Not here: the projector (`job::projector`), the rules (`kernel::event`, `functions/shared/job.sql`), when to poll
//! (`server::job::projector`).

pub mod projector;
pub mod table;

use std::time::Duration;

use jiff::Timestamp;
use kernel::ids::WorkspaceId;
use kernel::job::{self, Status};
use serde_json::{Value, json};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::execution::list::TimeCursor;
use crate::json::Json;
use crate::page::Paged;
use crate::sql::sql;
use crate::workspace::audit;
use crate::{Error, Store, parsed};

/// A job, as stored.
#[derive(Clone, Debug)]
pub struct Job {
    pub id: Uuid,
    pub workspace: Option<WorkspaceId>,
    pub event_id: Uuid,
    pub event_type: String,
    pub event_data: Value,
    pub stream_id: Uuid,
    pub stream_type: String,
    pub status: Status,
    pub worker_id: Option<String>,
    pub claimed_at: Option<Timestamp>,
    pub workflow_id: Option<String>,
    pub workflow_run_id: Option<String>,
    pub completed_at: Option<Timestamp>,
    pub failed_at: Option<Timestamp>,
    pub error_message: Option<String>,
    pub error_stack: Option<String>,
    pub retry_count: i32,
    pub result: Option<Value>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// Which jobs to list. A field that is None adds no condition.
#[derive(Clone, Copy, Debug, Default)]
pub struct JobFilter<'a> {
    pub workspace: Option<WorkspaceId>,
    pub status: Option<Status>,
    pub event_type: Option<&'a str>,
    pub stream_id: Option<Uuid>,
    pub after: Option<TimeCursor<Uuid>>,
}

/// Which jobs a worker asks for through the API.
#[derive(Clone, Debug)]
pub struct JobRequest<'a> {
    pub workspace: Option<WorkspaceId>,
    pub event_types: Option<&'a [String]>,
    pub id: Option<Uuid>,
    pub worker: &'a str,
    pub lease_s: Option<i32>,
    pub limit: i32,
}

/// A job that a worker has claimed through the API.
#[derive(Clone, Debug)]
pub struct ClaimedJob {
    pub job: Job,
    pub claim: Uuid,
    pub lease_until: Timestamp,
}

/// A job and the claim on it.
#[derive(Clone, Copy, Debug)]
pub struct JobClaim {
    pub job: Uuid,
    pub workspace: Option<WorkspaceId>,
    pub claim: Uuid,
}

/// How a job ended.
#[derive(Clone, Debug)]
pub enum JobEnd<'a> {
    Completed(&'a Value),
    Failed { message: &'a str, stack: Option<&'a str> },
}

/// How the table of jobs differs from the events that record every change of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    pub jobs: i64,
    pub missing: Vec<Uuid>,
    pub extra: Vec<Uuid>,
    pub changed: Vec<Uuid>,
}

impl Difference {
    pub fn is_none(&self) -> bool {
        self.missing.is_empty() && self.extra.is_empty() && self.changed.is_empty()
    }
}

impl Store {
    /// Jobs, the newest first.
    pub async fn jobs(&self, filter: JobFilter<'_>, limit: i64) -> Result<Paged<Job>, Error> {
        let status = filter.status.map(Status::name);
        let (at, id) = (filter.after.map(|cursor| cursor.at), filter.after.map_or(Uuid::max(), |cursor| cursor.id));
        let params: [&(dyn ToSql + Sync); 6] = [&status, &filter.event_type, &filter.stream_id, &at, &id, &limit];
        match filter.workspace {
            None => self.paged(sql!("workflow_queue_projection/list"), &params, job_of).await,
            Some(WorkspaceId(workspace)) => {
                let params: Vec<&(dyn ToSql + Sync)> = std::iter::once(&workspace as _).chain(params).collect();
                self.paged(sql!("workflow_queue_projection/list_of"), &params, job_of).await
            }
        }
    }

    /// One job, if this workspace (None: any) may see it.
    pub async fn job(&self, id: Uuid, workspace: Option<WorkspaceId>) -> Result<Job, Error> {
        let workspace = workspace.map(|id| id.0);
        job_of(&self.one(sql!("workflow_queue_projection/get"), &[&id, &workspace]).await?)
    }

    /// Claims pending jobs for a worker that uses the API, oldest first.
    pub async fn claim_jobs(&self, request: &JobRequest<'_>) -> Result<Vec<ClaimedJob>, Error> {
        let workspace = request.workspace.map(|id| id.0);
        let rows = self
            .query(
                sql!("workflow_queue_projection/claim"),
                &[&workspace, &request.event_types, &request.id, &request.worker, &request.lease_s, &request.limit],
            )
            .await?;
        let claimed = |row: &Row| {
            let lease_until = row.try_get("lease_until")?;
            Ok(ClaimedJob { claim: row.try_get("claim")?, lease_until, job: job_of(row)? })
        };
        rows.iter().map(claimed).collect()
    }

    /// Extends a claim by its lease, and returns its new expiry. A lost claim is a `Conflict`.
    pub async fn heartbeat_job(
        &self,
        claim: JobClaim,
        lease_s: Option<i32>,
        workflow_id: Option<&str>,
        run_id: Option<&str>,
    ) -> Result<Timestamp, Error> {
        let workspace = claim.workspace.map(|id| id.0);
        let row = self
            .one(
                sql!("workflow_queue_projection/heartbeat"),
                &[&claim.job, &workspace, &claim.claim, &lease_s, &workflow_id, &run_id],
            )
            .await?;
        answered(row.try_get("answer")?, "held")?;
        Ok(row.try_get("lease_until")?)
    }

    /// Ends a job under its claim. Repeating the same end changes nothing; a lost claim is a `Conflict`.
    pub async fn end_job(&self, claim: JobClaim, end: &JobEnd<'_>) -> Result<(), Error> {
        let workspace = claim.workspace.map(|id| id.0);
        let (result, message, stack) = match end {
            JobEnd::Completed(result) => (Some(*result), None, None),
            JobEnd::Failed { message, stack } => (None, Some(*message), *stack),
        };
        let row = self
            .one(
                sql!("workflow_queue_projection/end"),
                &[&claim.job, &workspace, &claim.claim, &result, &message, &stack],
            )
            .await?;
        answered(row.try_get("answer")?, "ended")
    }

    /// Retries a failed job immediately, with its audit row in one commit.
    pub async fn retry_job(&self, id: Uuid, workspace: Option<WorkspaceId>, actor: &str) -> Result<(), Error> {
        let job = self.job(id, workspace).await?;
        if job.status.after(job::Step::Retry).is_none() {
            return Err(Error::Conflict(format!(
                "a {} job cannot be retried; only failed jobs can",
                job.status.name()
            )));
        }
        if !job::may_retry(job.retry_count) {
            return Err(Error::Conflict(format!(
                "the job has failed {} times, which is the maximum, so it cannot be retried",
                job.retry_count
            )));
        }
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let of = workspace.map(|id| id.0);
        if transaction.query_opt(sql!("workflow_queue_projection/retry"), &[&id, &of]).await?.is_none() {
            return Err(Error::Conflict("another process changed this job meanwhile; try again".to_owned()));
        }
        audit(&transaction, job.workspace, actor, "job.retry", "job", id, &json!({})).await?;
        Ok(transaction.commit().await?)
    }

    /// Makes failed jobs pending again once their backoff is over. Returns how many.
    pub async fn retry_due_jobs(&self, first: Duration, most: i32) -> Result<i32, Error> {
        let waits: Vec<f64> = job::retry_waits(first).iter().map(Duration::as_secs_f64).collect();
        Ok(self.one(sql!("workflow_queue_projection/retry_due"), &[&waits, &most]).await?.try_get(0)?)
    }

    /// Makes jobs pending again whose worker sent no heartbeat before the lease expired. Returns how many.
    pub async fn recover_jobs(&self, most: i32) -> Result<i32, Error> {
        Ok(self.one(sql!("workflow_queue_projection/recover"), &[&most]).await?.try_get(0)?)
    }

    /// Gives jobs whose binding was deleted to external workers; the projector no longer claims them. Returns how many.
    pub async fn release_unbound_jobs(&self, most: i32) -> Result<i32, Error> {
        Ok(self.one(sql!("workflow_queue_projection/release_unbound"), &[&most]).await?.try_get(0)?)
    }

    /// Settles jobs that the projector started and whose execution has ended or is missing. Returns how many.
    pub async fn reconcile_jobs(&self, most: i32) -> Result<i32, Error> {
        Ok(self.one(sql!("workflow_queue_projection/reconcile"), &[&most]).await?.try_get(0)?)
    }

    /// Compares the table of jobs with its events.
    pub async fn check_jobs(&self) -> Result<Difference, Error> {
        self.difference(sql!("workflow_queue_projection/check")).await
    }

    /// Rebuilds the table of jobs from its events. Returns what differed.
    pub async fn rebuild_jobs(&self) -> Result<Difference, Error> {
        self.difference(sql!("workflow_queue_projection/rebuild")).await
    }

    async fn difference(&self, sql: &'static str) -> Result<Difference, Error> {
        let mut difference = Difference::default();
        for row in self.query(sql, &[]).await? {
            let id = row.try_get("id")?;
            match row.try_get("how")? {
                "missing" => difference.missing.push(id),
                "extra" => difference.extra.push(id),
                _ => difference.changed.push(id),
            }
        }
        difference.jobs = self.one(sql!("workflow_queue_projection/count"), &[]).await?.try_get(0)?;
        Ok(difference)
    }
}

fn answered(answer: Option<&str>, expected: &str) -> Result<(), Error> {
    match answer {
        None => Err(Error::NotFound),
        Some(answer) if answer == expected => Ok(()),
        Some(_) => Err(Error::Conflict("this claim no longer holds the job; another worker may have it".to_owned())),
    }
}

fn job_of(row: &Row) -> Result<Job, Error> {
    Ok(Job {
        id: row.try_get("id")?,
        workspace: row.try_get::<_, Option<Uuid>>("workspace_id")?.map(WorkspaceId),
        event_id: row.try_get("event_id")?,
        event_type: row.try_get("event_type")?,
        event_data: row.try_get::<_, Json>("event_data")?.0,
        stream_id: row.try_get("stream_id")?,
        stream_type: row.try_get("stream_type")?,
        status: parsed(row, "status", Status::parse)?,
        worker_id: row.try_get("worker_id")?,
        claimed_at: row.try_get("claimed_at")?,
        workflow_id: row.try_get("workflow_id")?,
        workflow_run_id: row.try_get("workflow_run_id")?,
        completed_at: row.try_get("completed_at")?,
        failed_at: row.try_get("failed_at")?,
        error_message: row.try_get("error_message")?,
        error_stack: row.try_get("error_stack")?,
        retry_count: row.try_get("retry_count")?,
        result: row.try_get("result")?,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
    })
}
