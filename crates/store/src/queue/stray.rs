//! Strays: slots whose execution row is missing, or whose execution runs on an engine that this process does not serve.
//!
//! Invariants
//! - If the execution row is missing, its queue item becomes a dead letter with an audit row. The item never disappears
//!   silently.
//!
//! Not here: when to give a slot up (`server::queue::strays`), runs of an external engine (`run::dispatched_run`).

use kernel::ids::{ExecutionId, WorkspaceId};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::run::uuids;
use crate::sql::sql;
use crate::{Error, Store};

/// A slot that no engine of this process is responsible for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    pub execution: ExecutionId,
    pub workspace: WorkspaceId,
    /// The execution's row was deleted.
    pub missing: bool,
    /// The engine on which the execution runs; None if it has not begun.
    pub engine: Option<String>,
    /// The execution's termination was requested.
    pub terminating: bool,
}

/// The maximum number of strays that one poll finds.
pub const MAX_STRAYS: usize = 500;

impl Store {
    /// The strays of some shards: slots whose execution row is missing or which run on other engines than `engines`. A
    /// bounded number, by id after `from`.
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

    /// Turns queue items whose execution row is missing into dead letters, each with a warning. Returns the workspaces
    /// in which a slot became free.
    pub async fn fail_items_of_missing(
        &self,
        executions: &[ExecutionId],
        actor: &str,
    ) -> Result<Vec<WorkspaceId>, Error> {
        let rows = self.query(sql!("execution_queue/fail_missing"), &[&uuids(executions), &actor]).await?;
        let lost = |row: &Row| {
            let (execution_id, workspace_id) = (ExecutionId(row.try_get("id")?), row.try_get("workspace_id")?);
            let workspace_id = WorkspaceId(workspace_id);
            tracing::warn!(%execution_id, %workspace_id,
                "Execution row is missing; its queue item is now a dead letter and its slot is free");
            Ok(workspace_id)
        };
        rows.iter().map(lost).collect()
    }

    /// Which of these executions have no row.
    pub async fn missing_executions(&self, executions: &[ExecutionId]) -> Result<Vec<ExecutionId>, Error> {
        let rows = self.query(sql!("workflow_execution/missing"), &[&uuids(executions)]).await?;
        rows.iter().map(|row| Ok(ExecutionId(row.try_get(0)?))).collect()
    }
}
