//! Reads the audit log: who did what to what, and when.
//!
//! Invariants
//! - A page reads at most `MAX_ROWS_READ` rows. So a page for a rare actor may have few entries, or none, although more
//!   follow; it then returns where the next page starts.
//! - The start of an execution is an entry too, read from the execution's own row.
//!
//! Not here: writing the log. Each change does that in its own transaction.

use jiff::Timestamp;
use kernel::ids::WorkspaceId;
use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::sql::sql;
use crate::{Error, Store};

/// How many rows one page reads when it filters by actor.
const MAX_ROWS_READ: i64 = 2_000;

/// Where the audit log continues: with entries before this time and number, and with starts of executions before this
/// id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivityCursor {
    pub at: Timestamp,
    pub id: i64,
    pub execution: Uuid,
}

/// Which entries of the audit log to list, and where the list starts. A field that is None adds no condition.
#[derive(Clone, Debug, Default)]
pub struct ActivityFilter {
    pub workspace: Option<WorkspaceId>,
    pub subject: Option<Uuid>,
    pub actor: Option<String>,
    /// At this time or later.
    pub from: Option<Timestamp>,
    /// Before this time.
    pub until: Option<Timestamp>,
    pub after: Option<ActivityCursor>,
    pub limit: i64,
}

/// One audited change.
#[derive(Clone, Debug)]
pub struct ActivityEntry {
    /// None: the start of an execution.
    pub id: Option<i64>,
    pub at: Timestamp,
    pub workspace: Option<WorkspaceId>,
    pub actor: String,
    pub action: String,
    pub subject_type: String,
    pub subject: Uuid,
    pub detail: Option<Value>,
}

impl Store {
    /// The entries that match a filter, newest first, and where the next page starts.
    pub async fn activity(
        &self,
        filter: &ActivityFilter,
    ) -> Result<(Vec<ActivityEntry>, Option<ActivityCursor>), Error> {
        let workspace = filter.workspace.map(|id| id.0);
        let before = filter.after.map(|after| after.at);
        let (id, execution) = filter.after.map_or((i64::MAX, Uuid::max()), |after| (after.id, after.execution));
        // One row more than requested shows whether there are more.
        let enough = filter.limit + 1;
        let max_rows = if filter.actor.is_some() { MAX_ROWS_READ } else { enough };
        let rows = self
            .query(
                sql!("activity/list"),
                &[
                    &workspace,
                    &filter.subject,
                    &filter.actor,
                    &filter.from,
                    &filter.until,
                    &before,
                    &id,
                    &execution,
                    &max_rows,
                    &enough,
                ],
            )
            .await?;
        let mut entries = Vec::new();
        let mut stopped = None;
        for row in &rows {
            if row.try_get("last")? {
                stopped = Some(cursor_of(row)?);
            }
            if row.try_get("wanted")? {
                entries.push((entry_of(row)?, cursor_of(row)?));
            }
        }
        let limit = usize::try_from(filter.limit).unwrap_or(usize::MAX);
        if entries.len() > limit {
            entries.truncate(limit);
            stopped = entries.last().map(|(_, cursor)| *cursor);
        }
        Ok((entries.into_iter().map(|(entry, _)| entry).collect(), stopped))
    }
}

fn cursor_of(row: &Row) -> Result<ActivityCursor, Error> {
    Ok(ActivityCursor {
        at: row.try_get("placed_at")?,
        id: row.try_get("next_id")?,
        execution: row.try_get("next_execution")?,
    })
}

fn entry_of(row: &Row) -> Result<ActivityEntry, Error> {
    Ok(ActivityEntry {
        id: row.try_get("id")?,
        at: row.try_get("at")?,
        workspace: row.try_get::<_, Option<Uuid>>("workspace_id")?.map(WorkspaceId),
        actor: row.try_get("actor")?,
        action: row.try_get("action")?,
        subject_type: row.try_get("subject_type")?,
        subject: row.try_get("subject_id")?,
        detail: row.try_get("detail")?,
    })
}
