//! Slots that nobody looks after: their execution is missing, or runs on an engine that is not served here.
//!
//! Invariants
//! - A slot whose execution is missing becomes a dead letter, with its audit row: never silently nothing.
//!
//! Not here: when a slot is given up (`server::queue::strays`), runs of an engine elsewhere (`handed_over`).

use kernel::ids::{ExecutionId, WorkspaceId};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::run::uuids;
use crate::sql::sql;
use crate::{Error, Store};

/// A slot that no engine served here looks after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    pub execution: ExecutionId,
    pub workspace: WorkspaceId,
    /// Somebody deleted its execution.
    pub missing: bool,
    /// The engine that its execution runs on, if it has one.
    pub engine: Option<String>,
    /// Somebody ended it by force.
    pub terminating: bool,
}

/// The most that one look finds.
pub const MOST: usize = 500;

impl Store {
    /// Strays of some shards beside what these engines look after, a bounded number behind `from`.
    pub async fn strays(
        &self,
        shards: &[i16],
        engines: &[&str],
        from: Option<ExecutionId>,
    ) -> Result<Vec<Stray>, Error> {
        let from = from.map_or(Uuid::nil(), |from| from.0);
        let rows = self.query(sql!("execution_queue/strays"), &[&shards, &engines, &from]).await?;
        let stray = |row: &Row| {
            Ok(Stray {
                execution: ExecutionId(row.try_get("id")?),
                workspace: WorkspaceId(row.try_get("workspace_id")?),
                missing: row.try_get("missing")?,
                engine: row.try_get("engine")?,
                terminating: row.try_get("terminating")?,
            })
        };
        rows.iter().map(stray).collect()
    }

    /// Fails the items of executions that are missing, each with a warning; answers whose slots are free now.
    pub async fn lose(&self, executions: &[ExecutionId], actor: &str) -> Result<Vec<WorkspaceId>, Error> {
        let rows = self.query(sql!("execution_queue/lose"), &[&uuids(executions), &actor]).await?;
        let lost = |row: &Row| {
            let (execution_id, workspace_id) = (ExecutionId(row.try_get("id")?), row.try_get("workspace_id")?);
            let workspace_id = WorkspaceId(workspace_id);
            tracing::warn!(%execution_id, %workspace_id,
                "The row of an execution is missing; its item is a dead letter and its slot is free");
            Ok(workspace_id)
        };
        rows.iter().map(lost).collect()
    }

    /// Which of these executions have no row.
    pub async fn missing(&self, executions: &[ExecutionId]) -> Result<Vec<ExecutionId>, Error> {
        let rows = self.query(sql!("workflow_execution/missing"), &[&uuids(executions)]).await?;
        rows.iter().map(|row| Ok(ExecutionId(row.try_get(0)?))).collect()
    }
}
