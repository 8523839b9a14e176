//! What is waited for below an execution: its own waits, and those of its descendants.
//!
//! Invariants
//! - A list is in a fixed order, by execution, node and iteration, and read in pages.
//!
//! Not here: asking and answering (`super`), the tree itself (`child`).

use kernel::ids::{ExecutionId, WorkspaceId};

use crate::page::Paged;
use crate::sql::sql;
use crate::wait::{Place, Wait, wait_of};
use crate::{Error, Store};

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
        self.paged(sql, &[&execution.0, &workspace, &of, &node, &iteration, &limit], |row| {
            wait_of(row, ExecutionId(row.try_get("execution_id")?))
        })
        .await
    }
}
