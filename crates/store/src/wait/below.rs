//! What is waited for below an execution: its own waits, and those of its descendants.
//!
//! Invariants
//! - A list is in a fixed order, by execution, node and iteration, and read in pages.
//!
//! Not here: asking and answering (`super`), the tree itself (`child`).

use kernel::ids::{ExecutionId, WorkspaceId};
use tokio_postgres::Row;

use crate::page::Paged;
use crate::sql::sql;
use crate::wait::{Place, Wait, place_of};
use crate::{Error, Store, parsed};

impl Store {
    /// The waits of an execution and of all below it, after a place.
    pub async fn waits_below(
        &self,
        execution: ExecutionId,
        workspace: Option<WorkspaceId>,
        after: Option<&Place>,
        limit: i64,
    ) -> Result<Paged<Wait>, Error> {
        let of = after.map(|place| place.execution.0);
        let (node, iteration) = (after.map(|place| place.node.as_str()), after.map(|place| place.iteration));
        let workspace = workspace.map(|id| id.0);
        let sql = sql!("workflow_execution_ask/list_below");
        self.paged(sql, &[&execution.0, &workspace, &of, &node, &iteration, &limit], wait_of).await
    }
}

fn wait_of(row: &Row) -> Result<Wait, Error> {
    Ok(Wait {
        place: place_of(row, ExecutionId(row.try_get("execution_id")?))?,
        attempt: row.try_get("attempt")?,
        status: parsed(row, "status", kernel::wait::Status::parse)?,
        event: row.try_get("event_type")?,
        matches: row.try_get("match")?,
        input: row.try_get("input")?,
        opened_at: row.try_get("opened_at")?,
        expires_at: row.try_get("expires_at")?,
        answered_by: row.try_get("answered_by")?,
        answered_at: row.try_get("answered_at")?,
    })
}
