//! Lists the waits of an execution and of its descendants.
//!
//! Invariants
//! - The order is fixed: by execution, node and iteration. Lists are read in pages.
//!
//! Not here: opening and answering waits (`super`), the tree itself (`run::child`).

use kernel::ids::{ExecutionId, WorkspaceId};

use crate::page::Paged;
use crate::sql::sql;
use crate::wait::{Wait, WaitKey, wait_of};
use crate::{Error, Store};

impl Store {
    /// The waits of an execution and of its descendants, after a position.
    pub async fn waits_of_tree(
        &self,
        execution: ExecutionId,
        workspace: Option<WorkspaceId>,
        after: Option<&WaitKey>,
        limit: i64,
    ) -> Result<Paged<Wait>, Error> {
        let of = after.map(|key| key.execution.0);
        let (node, iteration) = (after.map(|key| key.node.as_str()), after.map(|key| key.iteration));
        let workspace = workspace.map(|id| id.0);
        let sql = sql!("workflow_execution_wait/list_tree");
        self.paged(sql, &[&execution.0, &workspace, &of, &node, &iteration, &limit], |row| {
            wait_of(row, ExecutionId(row.try_get("execution_id")?))
        })
        .await
    }
}
