//! Tasks: waits that the user's own workers claim, keep with heartbeats, and end.
//!
//! Invariants
//! - The claim is the fence: every later call of a worker passes it. If the claim was lost, the call changes nothing.
//! - A worker that is silent for longer than its lease loses the task. That costs no attempt: the next worker that
//!   claims the task gets the same attempt.
//! - Repeating an end under the same claim gets the same answer as the first call.
//!
//! Not here: opening tasks and expiring leases (`super`), whether a failure is retried (`kernel`).

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use kernel::ids::{ClaimId, ExecutionId, WorkspaceId};
use kernel::run::failure::Failure;
use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::page::Paged;
use crate::run::failure_json;
use crate::sql::sql;
use crate::wait::{RunToWake, WaitKey, run_to_wake, wait_key};
use crate::{Error, Store, parsed};

/// Which tasks a worker asks for.
#[derive(Clone, Debug)]
pub struct TaskRequest<'a> {
    pub queues: &'a [String],
    pub worker: &'a str,
    pub most: i32,
    /// None: the lease of each task.
    pub lease: Option<Duration>,
    /// None: tasks of all workspaces, in turn, after `after`.
    pub workspace: Option<WorkspaceId>,
    pub after: Option<WorkspaceId>,
}

/// A stored task.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    pub id: Uuid,
    pub key: WaitKey,
    pub attempt: i32,
    pub workspace: WorkspaceId,
    pub queue: String,
    pub status: kernel::wait::Status,
    pub input: Option<Value>,
    pub opened_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub claim: Option<ClaimId>,
    pub worker: Option<String>,
    pub lease_until: Option<Timestamp>,
    pub lease: Option<Duration>,
    pub deliveries: i32,
    pub lost: i32,
    pub progress: Option<Value>,
    pub output: Option<Value>,
    pub error: Option<Value>,
    pub answered_at: Option<Timestamp>,
}

/// What a heartbeat returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskLease {
    pub lease_until: Timestamp,
    /// The execution's cancellation was requested, so the result is no longer needed.
    pub canceling: bool,
}

/// The result of ending a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndTaskOutcome {
    Accepted(Option<RunToWake>),
    /// This claim already ended it with the same result.
    Repeated,
    /// This claim already ended it with another result.
    OtherResult,
    /// This claim does not hold the task, or no longer does.
    Lost,
}

/// How many tasks wait for a worker, and how many are claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskCounts {
    pub open: i64,
    pub claimed: i64,
}

/// The maximum number of tasks counted.
const MOST_COUNTED: i64 = 100_000;

impl Store {
    /// Claims open tasks, each under its own claim. Also returns the last workspace from which a task was claimed, to
    /// continue after it.
    pub async fn claim_tasks(&self, wanted: &TaskRequest<'_>) -> Result<(Vec<Task>, Option<WorkspaceId>), Error> {
        let (workspace, after) = (wanted.workspace.map(|id| id.0), wanted.after.map(|id| id.0));
        let lease = wanted.lease.map(|lease| lease.as_secs_f64());
        let rows = self
            .query(
                sql!("workflow_execution_wait/claim"),
                &[&wanted.queues, &workspace, &after, &wanted.worker, &wanted.most, &lease],
            )
            .await?;
        let (mut claims, mut key) = (BTreeMap::new(), None);
        for row in &rows {
            match row.try_get::<_, Option<Uuid>>("task")? {
                Some(task) => drop(claims.insert(task, ClaimId(row.try_get("claim")?))),
                None => key = row.try_get::<_, Option<Uuid>>("last_workspace")?.map(WorkspaceId),
            }
        }
        let ids: Vec<Uuid> = claims.keys().copied().collect();
        let mut tasks = if ids.is_empty() { Vec::new() } else { self.tasks_by(None, ids).await? };
        // Tasks whose execution has ended since are left out. So are tasks whose lease has expired since, because
        // another worker of the same name may hold them.
        tasks
            .retain(|task| task.status == kernel::wait::Status::Claimed && task.claim.as_ref() == claims.get(&task.id));
        Ok((tasks, key))
    }

    /// Records a worker's heartbeat and progress. A `Conflict` if this claim does not hold the task.
    pub async fn heartbeat_task(
        &self,
        id: Uuid,
        workspace: Option<WorkspaceId>,
        claim: ClaimId,
        progress: Option<&Value>,
    ) -> Result<TaskLease, Error> {
        let of = workspace.map(|id| id.0);
        let rows = self.query(sql!("workflow_execution_wait/heartbeat"), &[&id, &of, &claim.0, &progress]).await?;
        let Some(row) = rows.first() else {
            self.task(id, workspace).await?;
            return Err(Error::Conflict("this claim no longer holds the task".to_owned()));
        };
        Ok(TaskLease { lease_until: row.try_get("lease_until")?, canceling: row.try_get("canceling")? })
    }

    /// Ends a task under its claim.
    pub async fn end_task(
        &self,
        id: Uuid,
        workspace: Option<WorkspaceId>,
        claim: ClaimId,
        result: Result<&Value, &Failure>,
    ) -> Result<EndTaskOutcome, Error> {
        let of = workspace.map(|id| id.0);
        let (outcome, output, error) = match result {
            Ok(output) => ("COMPLETED", Some(output), None),
            Err(failure) => ("FAILED", None, Some(failure_json(failure))),
        };
        let row =
            self.one(sql!("workflow_execution_wait/end"), &[&id, &of, &claim.0, &outcome, &output, &error]).await?;
        match row.try_get("result")? {
            "accepted" => Ok(EndTaskOutcome::Accepted(run_to_wake(&row)?)),
            "repeated" => Ok(EndTaskOutcome::Repeated),
            "other_result" => Ok(EndTaskOutcome::OtherResult),
            "lost" => Ok(EndTaskOutcome::Lost),
            "missing" => Err(Error::NotFound),
            other => Err(Error::Corrupt(format!("ending a task returned the unknown result {other}"))),
        }
    }

    /// Lists tasks of a workspace (None: of all), by id after `after`.
    pub async fn tasks(
        &self,
        workspace: Option<WorkspaceId>,
        (queue, status): (Option<&str>, Option<kernel::wait::Status>),
        after: Option<Uuid>,
        limit: i64,
    ) -> Result<Paged<Task>, Error> {
        let (after, of) = (after.unwrap_or(Uuid::nil()), workspace.map(|id| id.0));
        let (status, none) = (status.map(kernel::wait::Status::name), None::<Vec<Uuid>>);
        let sql = sql!("workflow_execution_wait/tasks");
        self.paged(sql, &[&after, &of, &queue, &status, &none, &limit], task_of).await
    }

    /// One task, if this workspace (None: any) may see it.
    pub async fn task(&self, id: Uuid, workspace: Option<WorkspaceId>) -> Result<Task, Error> {
        self.tasks_by(workspace, vec![id]).await?.pop().ok_or(Error::NotFound)
    }

    /// Counts the tasks that wait for a worker, and those that a worker has claimed.
    pub async fn task_counts(&self) -> Result<TaskCounts, Error> {
        let row = self.one(sql!("workflow_execution_wait/counts"), &[&MOST_COUNTED]).await?;
        Ok(TaskCounts { open: row.try_get("open")?, claimed: row.try_get("claimed")? })
    }

    async fn tasks_by(&self, workspace: Option<WorkspaceId>, ids: Vec<Uuid>) -> Result<Vec<Task>, Error> {
        let (of, none, limit) = (workspace.map(|id| id.0), None::<&str>, i64::try_from(ids.len()).unwrap_or(i64::MAX));
        let rows = self
            .query(sql!("workflow_execution_wait/tasks"), &[&Uuid::nil(), &of, &none, &none, &Some(ids), &limit])
            .await?;
        rows.iter().map(task_of).collect()
    }
}

fn task_of(row: &Row) -> Result<Task, Error> {
    let lease: Option<f64> = row.try_get("claim_lease_s")?;
    Ok(Task {
        id: row.try_get("id")?,
        key: wait_key(row, ExecutionId(row.try_get::<_, Uuid>("execution_id")?))?,
        attempt: row.try_get("attempt")?,
        workspace: WorkspaceId(row.try_get("workspace_id")?),
        queue: row.try_get("queue")?,
        status: parsed(row, "status", kernel::wait::Status::parse)?,
        input: row.try_get("input")?,
        opened_at: row.try_get("opened_at")?,
        expires_at: row.try_get("expires_at")?,
        claim: row.try_get::<_, Option<Uuid>>("claim_id")?.map(ClaimId),
        worker: row.try_get("worker")?,
        lease_until: row.try_get("lease_until")?,
        lease: lease.and_then(|lease| Duration::try_from_secs_f64(lease).ok()),
        deliveries: row.try_get("deliveries")?,
        lost: row.try_get("lost")?,
        progress: row.try_get("progress")?,
        output: row.try_get("output")?,
        error: row.try_get("error")?,
        answered_at: row.try_get("answered_at")?,
    })
}
