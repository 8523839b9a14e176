//! Executions that were dispatched to an external engine and have no terminal status in the database yet.
//!
//! Not here: what to do about them (`kernel::run::reconcile`), ending them (`run`).

use std::time::Duration;

use kernel::execution;
use kernel::ids::{ExecutionId, WorkspaceId};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::sql::sql;
use crate::{Error, Store, parsed};

/// An execution that an external engine should know.
#[derive(Clone, Debug)]
pub struct DispatchedRun {
    pub execution: ExecutionId,
    pub workspace: WorkspaceId,
    pub status: execution::Status,
    /// Where the run lives in the engine; None if it has not begun.
    pub location: Option<String>,
    /// The execution's cancellation was requested.
    pub canceling: bool,
}

impl Store {
    /// Executions of some shards that were dispatched longer ago than `after`: a bounded number, by id after `from`.
    pub async fn dispatched_runs(
        &self,
        shards: &[i16],
        after: Duration,
        engine: &str,
        from: Option<ExecutionId>,
        most: i64,
    ) -> Result<Vec<DispatchedRun>, Error> {
        let from = from.map_or(Uuid::nil(), |from| from.0);
        let rows = self
            .query(sql!("execution_queue/dispatched_runs"), &[&shards, &after.as_secs_f64(), &from, &engine, &most])
            .await?;
        let found = |row: &Row| {
            Ok(DispatchedRun {
                execution: ExecutionId(row.try_get("id")?),
                workspace: WorkspaceId(row.try_get("workspace_id")?),
                status: parsed(row, "status", execution::Status::parse)?,
                location: row.try_get("engine_location")?,
                canceling: row.try_get("canceling")?,
            })
        };
        rows.iter().map(found).collect()
    }
}
