//! Jobs: the rows of `workflow_queue_projection`, worked on by us, by the API's workers and by plain SQL.
//!
//! Invariants
//! - A trigger refuses every move that the kernel's table does not have, and appends the fact of every other, whoever
//!   writes.
//! - What is held under a claim moves only with that claim.
//!
//! Not here: our own worker's (`job::ours`), the rules (`kernel::event`, `functions/shared/job.sql`), when to
//! look (`server::job::projector`).

pub mod ours;
pub mod table;

use std::time::Duration;

use jiff::Timestamp;
use kernel::ids::WorkspaceId;
use kernel::job::{self, Status};
use serde_json::{Value, json};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::execution::list::Place;
use crate::json::Json;
use crate::page::Paged;
use crate::sql::sql;
use crate::workspace::audit;
use crate::{Error, Store, parsed};

/// A job as its table has it.
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

/// Which jobs. What is not said is not asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Which<'a> {
    pub workspace: Option<WorkspaceId>,
    pub status: Option<Status>,
    pub event_type: Option<&'a str>,
    pub stream_id: Option<Uuid>,
    pub after: Option<Place<Uuid>>,
}

/// Jobs that a worker of the API asks for.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    pub workspace: Option<WorkspaceId>,
    pub event_types: Option<&'a [String]>,
    pub id: Option<Uuid>,
    pub worker: &'a str,
    pub lease_s: Option<i32>,
    pub limit: i32,
}

/// A job that a worker of the API holds.
#[derive(Clone, Debug)]
pub struct Held {
    pub job: Job,
    pub claim: Uuid,
    pub lease_until: Timestamp,
}

/// A job by its claim.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    pub job: Uuid,
    pub workspace: Option<WorkspaceId>,
    pub claim: Uuid,
}

/// How a job came to its end.
#[derive(Clone, Debug)]
pub enum End<'a> {
    Completed(&'a Value),
    Failed { message: &'a str, stack: Option<&'a str> },
}

/// How a table differs from its facts.
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
    pub async fn jobs(&self, which: Which<'_>, limit: i64) -> Result<Paged<Job>, Error> {
        let status = which.status.map(Status::name);
        let (at, id) = (which.after.map(|place| place.at), which.after.map_or(Uuid::max(), |place| place.id));
        let asked: [&(dyn ToSql + Sync); 6] = [&status, &which.event_type, &which.stream_id, &at, &id, &limit];
        match which.workspace {
            None => self.paged(sql!("workflow_queue_projection/list"), &asked, job_of).await,
            Some(WorkspaceId(workspace)) => {
                let asked: Vec<&(dyn ToSql + Sync)> = std::iter::once(&workspace as _).chain(asked).collect();
                self.paged(sql!("workflow_queue_projection/list_of"), &asked, job_of).await
            }
        }
    }

    /// One job, if this workspace (none: any) may see it.
    pub async fn job(&self, id: Uuid, workspace: Option<WorkspaceId>) -> Result<Job, Error> {
        let workspace = workspace.map(|id| id.0);
        job_of(&self.one(sql!("workflow_queue_projection/get"), &[&id, &workspace]).await?)
    }

    /// Claims pending jobs for a worker of the API, the oldest first.
    pub async fn claim_jobs(&self, wanted: &Wanted<'_>) -> Result<Vec<Held>, Error> {
        let workspace = wanted.workspace.map(|id| id.0);
        let rows = self
            .query(
                sql!("workflow_queue_projection/claim"),
                &[&workspace, &wanted.event_types, &wanted.id, &wanted.worker, &wanted.lease_s, &wanted.limit],
            )
            .await?;
        let held = |row: &Row| {
            let lease_until = row.try_get("lease_until")?;
            Ok(Held { claim: row.try_get("claim")?, lease_until, job: job_of(row)? })
        };
        rows.iter().map(held).collect()
    }

    /// Keeps a claim for its lease again; answers until when. A claim that was lost is a conflict.
    pub async fn keep_job(
        &self,
        claim: Claim,
        lease_s: Option<i32>,
        workflow_id: Option<&str>,
        run_id: Option<&str>,
    ) -> Result<Timestamp, Error> {
        let workspace = claim.workspace.map(|id| id.0);
        let row = self
            .one(
                sql!("workflow_queue_projection/beat"),
                &[&claim.job, &workspace, &claim.claim, &lease_s, &workflow_id, &run_id],
            )
            .await?;
        answered(row.try_get("answer")?, "held")?;
        Ok(row.try_get("lease_until")?)
    }

    /// Ends a job under its claim. Told twice, the second changes nothing; a claim that was lost is a conflict.
    pub async fn end_job(&self, claim: Claim, end: &End<'_>) -> Result<(), Error> {
        let workspace = claim.workspace.map(|id| id.0);
        let (result, message, stack) = match end {
            End::Completed(result) => (Some(*result), None, None),
            End::Failed { message, stack } => (None, Some(*message), *stack),
        };
        let row = self
            .one(
                sql!("workflow_queue_projection/end"),
                &[&claim.job, &workspace, &claim.claim, &result, &message, &stack],
            )
            .await?;
        answered(row.try_get("answer")?, "ended")
    }

    /// Tries a failed job again at once, with its audit row in one commit.
    pub async fn retry_job(&self, id: Uuid, workspace: Option<WorkspaceId>, actor: &str) -> Result<(), Error> {
        let job = self.job(id, workspace).await?;
        if job.status.after(job::Step::Retry).is_err() {
            return Err(Error::Conflict(format!("a {} job is not tried again", job.status.name())));
        }
        if !job::may_retry(job.retry_count) {
            return Err(Error::Conflict(format!("a job that failed {} times is not tried again", job.retry_count)));
        }
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let of = workspace.map(|id| id.0);
        if transaction.query_opt(sql!("workflow_queue_projection/retry"), &[&id, &of]).await?.is_none() {
            return Err(Error::Conflict("somebody else moved this job".to_owned()));
        }
        audit(&transaction, job.workspace, actor, "job.retry", "job", id, &json!({})).await?;
        Ok(transaction.commit().await?)
    }

    /// Failed jobs are pending again when their wait is over; answers how many.
    pub async fn retry_jobs(&self, first: Duration, most: i32) -> Result<i32, Error> {
        let waits: Vec<f64> = job::waits(first).iter().map(Duration::as_secs_f64).collect();
        Ok(self.one(sql!("workflow_queue_projection/try_again"), &[&waits, &most]).await?.try_get(0)?)
    }

    /// Jobs whose worker was not heard of for its lease are pending again; answers how many.
    pub async fn recover_jobs(&self, most: i32) -> Result<i32, Error> {
        Ok(self.one(sql!("workflow_queue_projection/recover"), &[&most]).await?.try_get(0)?)
    }

    /// Jobs whose binding is gone wait for our own worker no more; answers how many.
    pub async fn unbound_jobs(&self, most: i32) -> Result<i32, Error> {
        Ok(self.one(sql!("workflow_queue_projection/unbound"), &[&most]).await?.try_get(0)?)
    }

    /// Our own worker's jobs whose execution is over or gone follow it; answers how many.
    pub async fn reconcile_jobs(&self, most: i32) -> Result<i32, Error> {
        Ok(self.one(sql!("workflow_queue_projection/reconcile"), &[&most]).await?.try_get(0)?)
    }

    /// How the table differs from its facts.
    pub async fn check_jobs(&self) -> Result<Difference, Error> {
        self.difference(sql!("workflow_queue_projection/check")).await
    }

    /// Makes the table what its facts say; answers what differed.
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

fn answered(answer: Option<&str>, wanted: &str) -> Result<(), Error> {
    match answer {
        None => Err(Error::NotFound),
        Some(answer) if answer == wanted => Ok(()),
        Some(_) => Err(Error::Conflict("this claim holds the job no more".to_owned())),
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
