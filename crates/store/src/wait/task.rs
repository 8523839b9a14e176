//! Tasks: asks that the user's own workers claim, keep by heartbeats and end.
//!
//! Invariants
//! - A claim is the fence: every later word of a worker shows it, and whoever lost it changes nothing.
//! - A worker that is silent for longer than its lease loses the task, which costs no attempt; the next one has the
//!   same.
//! - An end that is told twice under the same claim is answered as the first was.
//!
//! Not here: opening tasks and taking their leases (`super`), whether a failure is worth another attempt (`kernel`).

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use kernel::ids::{ClaimId, ExecutionId, WorkspaceId};
use kernel::run::failure::Failure;
use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::page::Paged;
use crate::run::json;
use crate::sql::sql;
use crate::wait::{Call, Place, call_of, place_of};
use crate::{Error, Store, parsed};

/// What a worker asks for.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    pub queues: &'a [String],
    pub worker: &'a str,
    pub most: i32,
    /// None: what each task says.
    pub lease: Option<Duration>,
    /// None: of all workspaces, in turn behind this one.
    pub workspace: Option<WorkspaceId>,
    pub after: Option<WorkspaceId>,
}

/// A task as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    pub id: Uuid,
    pub place: Place,
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

/// What a heartbeat is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    pub lease_until: Timestamp,
    /// Somebody wants the execution to end: the work will not be needed.
    pub canceling: bool,
}

/// What became of an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    Accepted(Option<Call>),
    /// This claim ended it so before.
    Repeat,
    /// This claim ended it otherwise before.
    Otherwise,
    /// The claim is not, or no more, the task's.
    Lost,
}

/// How many tasks wait for a worker, and how many one has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    pub open: i64,
    pub claimed: i64,
}

/// The most tasks that are counted.
const MOST_COUNTED: i64 = 100_000;

impl Store {
    /// Claims open tasks, each under a claim of its own; and the workspace that was served last, to go on behind.
    pub async fn claim_tasks(&self, wanted: &Wanted<'_>) -> Result<(Vec<Task>, Option<WorkspaceId>), Error> {
        let (workspace, after) = (wanted.workspace.map(|id| id.0), wanted.after.map(|id| id.0));
        let lease = wanted.lease.map(|lease| lease.as_secs_f64());
        let rows = self
            .query(
                sql!("workflow_execution_ask/claim"),
                &[&wanted.queues, &workspace, &after, &wanted.worker, &wanted.most, &lease],
            )
            .await?;
        let (mut claims, mut place) = (BTreeMap::new(), None);
        for row in &rows {
            match row.try_get::<_, Option<Uuid>>("task")? {
                Some(task) => drop(claims.insert(task, ClaimId(row.try_get("claim")?))),
                None => place = row.try_get::<_, Option<Uuid>>("place")?.map(WorkspaceId),
            }
        }
        let ids: Vec<Uuid> = claims.keys().copied().collect();
        let mut tasks = if ids.is_empty() { Vec::new() } else { self.tasks_by(None, ids).await? };
        // One whose execution ended since is nobody's any more, and one whose lease was lost since may be another's of
        // the same name.
        tasks
            .retain(|task| task.status == kernel::wait::Status::Claimed && task.claim.as_ref() == claims.get(&task.id));
        Ok((tasks, place))
    }

    /// A worker is alive, and says how far it is. A conflict if the claim is not the task's.
    pub async fn keep_task(
        &self,
        id: Uuid,
        workspace: Option<WorkspaceId>,
        claim: ClaimId,
        progress: Option<&Value>,
    ) -> Result<Kept, Error> {
        let of = workspace.map(|id| id.0);
        let rows = self.query(sql!("workflow_execution_ask/beat"), &[&id, &of, &claim.0, &progress]).await?;
        let Some(row) = rows.first() else {
            self.task(id, workspace).await?;
            return Err(Error::Conflict("this claim is not the task's any more".to_owned()));
        };
        Ok(Kept { lease_until: row.try_get("lease_until")?, canceling: row.try_get("canceling")? })
    }

    /// Ends a task under its claim.
    pub async fn end_task(
        &self,
        id: Uuid,
        workspace: Option<WorkspaceId>,
        claim: ClaimId,
        result: Result<&Value, &Failure>,
    ) -> Result<Ended, Error> {
        let of = workspace.map(|id| id.0);
        let (outcome, output, error) = match result {
            Ok(output) => ("COMPLETED", Some(output), None),
            Err(failure) => ("FAILED", None, Some(json(failure))),
        };
        let row =
            self.one(sql!("workflow_execution_ask/end"), &[&id, &of, &claim.0, &outcome, &output, &error]).await?;
        match row.try_get("told")? {
            "accepted" => Ok(Ended::Accepted(call_of(&row)?)),
            "repeat" => Ok(Ended::Repeat),
            "answered" => Ok(Ended::Otherwise),
            "lost" => Ok(Ended::Lost),
            "missing" => Err(Error::NotFound),
            other => Err(Error::Corrupt(format!("the end of a task was told {other}"))),
        }
    }

    /// Tasks of a workspace (none: of all), after an id.
    pub async fn tasks(
        &self,
        workspace: Option<WorkspaceId>,
        (queue, status): (Option<&str>, Option<kernel::wait::Status>),
        after: Option<Uuid>,
        limit: i64,
    ) -> Result<Paged<Task>, Error> {
        let (after, of) = (after.unwrap_or(Uuid::nil()), workspace.map(|id| id.0));
        let (status, none) = (status.map(kernel::wait::Status::name), None::<Vec<Uuid>>);
        let sql = sql!("workflow_execution_ask/tasks");
        self.paged(sql, &[&after, &of, &queue, &status, &none, &limit], task_of).await
    }

    /// One task, if this workspace (none: any) may see it.
    pub async fn task(&self, id: Uuid, workspace: Option<WorkspaceId>) -> Result<Task, Error> {
        self.tasks_by(workspace, vec![id]).await?.pop().ok_or(Error::NotFound)
    }

    /// How many tasks wait.
    pub async fn task_depth(&self) -> Result<Depth, Error> {
        let row = self.one(sql!("workflow_execution_ask/depth"), &[&MOST_COUNTED]).await?;
        Ok(Depth { open: row.try_get("open")?, claimed: row.try_get("claimed")? })
    }

    async fn tasks_by(&self, workspace: Option<WorkspaceId>, ids: Vec<Uuid>) -> Result<Vec<Task>, Error> {
        let (of, none, limit) = (workspace.map(|id| id.0), None::<&str>, i64::try_from(ids.len()).unwrap_or(i64::MAX));
        let rows = self
            .query(sql!("workflow_execution_ask/tasks"), &[&Uuid::nil(), &of, &none, &none, &Some(ids), &limit])
            .await?;
        rows.iter().map(task_of).collect()
    }
}

fn task_of(row: &Row) -> Result<Task, Error> {
    let lease: Option<f64> = row.try_get("claim_lease_s")?;
    Ok(Task {
        id: row.try_get("id")?,
        place: place_of(row, ExecutionId(row.try_get::<_, Uuid>("execution_id")?))?,
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
