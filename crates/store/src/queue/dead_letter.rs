//! The dead letter: items that FAILED, kept until somebody dismisses them.
//!
//! Invariants
//! - A letter holds no slot and never moves again; dismissing takes the ticket away and leaves the
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

/// An item that failed.
#[derive(Clone, Debug)]
pub struct Letter {
    pub item: QueueItemId,
    pub workspace: WorkspaceId,
    pub definition: DefinitionId,
    pub definition_name: Option<String>,
    pub attempts: i32,
    pub last_error: Option<String>,
    /// How its execution ended and why; none if that is kept no longer.
    pub execution_status: Option<execution::Status>,
    pub error: Option<Value>,
    pub created_at: Timestamp,
    pub failed_at: Option<Timestamp>,
}

/// Which letters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Which {
    pub workspace: Option<WorkspaceId>,
    pub definition: Option<DefinitionId>,
    /// Those before this one: the newest come first.
    pub before: Option<QueueItemId>,
}

impl Store {
    /// Dead letters, the newest first.
    pub async fn letters(&self, which: Which, limit: i64) -> Result<Vec<Letter>, Error> {
        let workspace = which.workspace.map(|workspace| workspace.0);
        let definition = which.definition.map(|definition| definition.0);
        let before = which.before.map(|item| item.0);
        let rows = self.query(sql!("execution_queue/letters"), &[&workspace, &definition, &before, &limit]).await?;
        let mut letters = rows.iter().map(letter).collect::<Result<Vec<_>, _>>()?;
        letters.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(letters)
    }

    /// Takes a letter away, with its audit row in one commit. What has not failed is a conflict; what
    /// has no ticket any more is not found.
    pub async fn dismiss(&self, item: QueueItemId, workspace: WorkspaceId, actor: &str) -> Result<(), Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let row = transaction.query_opt(sql!("execution_queue/status"), &[&item.0, &workspace.0]).await?;
        let status = parsed(&row.ok_or(Error::NotFound)?, "status", Status::parse)?;
        status.after(Step::Dismiss).map_err(|illegal| Error::Conflict(illegal.to_string()))?;
        if transaction.query(sql!("execution_queue/dismiss"), &[&item.0, &workspace.0]).await?.is_empty() {
            return Err(Error::NotFound);
        }
        audit(&transaction, Some(workspace), actor, "queue_item.dismiss", "queue_item", item.0, &json!({})).await?;
        Ok(transaction.commit().await?)
    }
}

fn letter(row: &Row) -> Result<Letter, Error> {
    let status: Option<&str> = row.try_get("execution_status")?;
    Ok(Letter {
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
