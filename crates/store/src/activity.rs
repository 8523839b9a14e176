//! The audit log, as people read it: who did what to what, when.
//!
//! Invariants
//! - A page costs no more than `LOOKED_AT` rows: one that looks for a rare actor may come back short,
//!   and says where the next goes on.
//!
//! Not here: writing it, which each deed does in its own transaction.

use jiff::Timestamp;
use kernel::ids::WorkspaceId;
use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::execution::list::{Place, before};
use crate::sql::sql;
use crate::{Error, Store};

/// How many rows one page looks at for those of an actor.
const LOOKED_AT: i64 = 2_000;

/// Which entries, and from where. What is not said is not asked for.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub workspace: Option<WorkspaceId>,
    pub subject: Option<Uuid>,
    pub actor: Option<String>,
    /// At this time or later.
    pub from: Option<Timestamp>,
    /// Before this time.
    pub until: Option<Timestamp>,
    pub after: Option<Place<i64>>,
    pub limit: i64,
}

/// One deed.
#[derive(Clone, Debug)]
pub struct Entry {
    pub id: i64,
    pub at: Timestamp,
    pub workspace: Option<WorkspaceId>,
    pub actor: String,
    pub action: String,
    pub subject_type: String,
    pub subject: Uuid,
    pub detail: Option<Value>,
}

impl Store {
    /// The entries of a filter, newest first, and where the next page goes on.
    pub async fn activity(&self, filter: &Filter) -> Result<(Vec<Entry>, Option<Place<i64>>), Error> {
        let workspace = filter.workspace.map(|id| id.0);
        let (before, id) = before(filter.until, filter.after, (i64::MIN, i64::MAX));
        // One more than asked for tells whether there are more.
        let enough = filter.limit + 1;
        let looked_at = if filter.actor.is_some() { LOOKED_AT } else { enough };
        let rows = self
            .query(
                sql!("activity/list"),
                &[&workspace, &filter.subject, &filter.actor, &filter.from, &before, &id, &looked_at, &enough],
            )
            .await?;
        let mut entries = Vec::new();
        let mut stopped = None;
        for row in &rows {
            let entry = entry_of(row)?;
            if row.try_get("last")? {
                stopped = Some(Place { at: entry.at, id: entry.id });
            }
            if row.try_get("wanted")? {
                entries.push(entry);
            }
        }
        let asked = usize::try_from(filter.limit).unwrap_or(usize::MAX);
        if entries.len() > asked {
            entries.truncate(asked);
            stopped = entries.last().map(|entry| Place { at: entry.at, id: entry.id });
        }
        Ok((entries, stopped))
    }
}

fn entry_of(row: &Row) -> Result<Entry, Error> {
    Ok(Entry {
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
