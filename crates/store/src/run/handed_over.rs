//! What was handed to an engine elsewhere and has not ended here.
//!
//! Not here: what to make of it (`kernel::run::reconcile`), ending it (`run`).

use std::time::Duration;

use kernel::execution;
use kernel::ids::{ExecutionId, WorkspaceId};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::sql::sql;
use crate::{Error, Store, parsed};

/// An execution that an engine should know of.
#[derive(Clone, Debug)]
pub struct HandedOver {
    pub execution: ExecutionId,
    pub workspace: WorkspaceId,
    pub status: execution::Status,
    /// Where it began; none if it has not.
    pub place: Option<String>,
    /// Somebody wants it to end.
    pub canceling: bool,
}

impl Store {
    /// Those of some shards handed over longer ago than `after`, a bounded number behind `from`.
    pub async fn handed_over(
        &self,
        shards: &[i16],
        after: Duration,
        engine: &str,
        from: Option<ExecutionId>,
        most: i64,
    ) -> Result<Vec<HandedOver>, Error> {
        let from = from.map_or(Uuid::nil(), |from| from.0);
        let rows = self
            .query(sql!("execution_queue/handed_over"), &[&shards, &after.as_secs_f64(), &from, &engine, &most])
            .await?;
        let found = |row: &Row| {
            Ok(HandedOver {
                execution: ExecutionId(row.try_get("id")?),
                workspace: WorkspaceId(row.try_get("workspace_id")?),
                status: parsed(row, "status", execution::Status::parse)?,
                place: row.try_get("engine_where")?,
                canceling: row.try_get("canceling")?,
            })
        };
        rows.iter().map(found).collect()
    }
}
