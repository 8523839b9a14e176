//! Dead letters: queue items that FAILED, kept until a person dismisses them.
//!
//! Invariants
//! - A dead letter holds no slot, and its status never changes again. Dismissing deletes the queue item and keeps the
//!   execution.
//!
//! Not here: running it again (`enqueue`), how items fail (`run`).

use jiff::Timestamp;
use kernel::execution;
use kernel::ids::{DefinitionId, QueueItemId, WorkspaceId};
use kernel::queue::{Status, Step};
use serde_json::{Value, json};
use tokio_postgres::Row;

use crate::sql::sql;
use crate::workspace::audit;
use crate::{Error, Store, parsed};

/// A queue item that failed.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    pub item: QueueItemId,
    pub workspace: WorkspaceId,
    pub definition: DefinitionId,
    pub definition_name: Option<String>,
    pub attempts: i32,
    pub last_error: Option<String>,
    /// How the execution ended and why; None if the execution was deleted.
    pub execution_status: Option<execution::Status>,
    pub error: Option<Value>,
    pub created_at: Timestamp,
    pub failed_at: Option<Timestamp>,
}

/// Which dead letters to list. A field that is None adds no condition.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeadLetterFilter {
    pub workspace: Option<WorkspaceId>,
    pub definition: Option<DefinitionId>,
    /// Only dead letters older than this item.
    pub before: Option<QueueItemId>,
}

impl Store {
    /// Dead letters, newest first.
    pub async fn dead_letters(&self, filter: DeadLetterFilter, limit: i64) -> Result<Vec<DeadLetter>, Error> {
        let workspace = filter.workspace.map(|workspace| workspace.0);
        let definition = filter.definition.map(|definition| definition.0);
        let before = filter.before.map(|item| item.0);
        let rows =
            self.query(sql!("execution_queue/dead_letters"), &[&workspace, &definition, &before, &limit]).await?;
        let mut dead_letters = rows.iter().map(dead_letter).collect::<Result<Vec<_>, _>>()?;
        dead_letters.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(dead_letters)
    }

    /// Dismisses a dead letter, with its audit row in one commit. An item that has not failed is a `Conflict`; a
    /// missing item is `NotFound`.
    pub async fn dismiss(&self, item: QueueItemId, workspace: WorkspaceId, actor: &str) -> Result<(), Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let row = transaction.query_opt(sql!("execution_queue/status"), &[&item.0, &workspace.0]).await?;
        let status = parsed(&row.ok_or(Error::NotFound)?, "status", Status::parse)?;
        if status.after(Step::Dismiss).is_none() {
            return Err(Error::Conflict(format!(
                "a {} queue item cannot be dismissed; only failed ones can",
                status.name()
            )));
        }
        if transaction.query(sql!("execution_queue/dismiss"), &[&item.0, &workspace.0]).await?.is_empty() {
            return Err(Error::NotFound);
        }
        audit(&transaction, Some(workspace), actor, "queue_item.dismiss", "queue_item", item.0, &json!({})).await?;
        Ok(transaction.commit().await?)
    }
}

fn dead_letter(row: &Row) -> Result<DeadLetter, Error> {
    let status: Option<&str> = row.try_get("execution_status")?;
    Ok(DeadLetter {
        item: QueueItemId(row.try_get("id")?),
        workspace: WorkspaceId(row.try_get("workspace_id")?),
        definition: DefinitionId(row.try_get("workflow_definition_id")?),
        definition_name: row.try_get("definition_name")?,
        attempts: row.try_get("attempt_count")?,
        last_error: row.try_get("last_error")?,
        execution_status: status.and_then(execution::Status::parse),
        error: row.try_get("error")?,
        created_at: row.try_get("created_at")?,
        failed_at: row.try_get("completed_at")?,
    })
}
