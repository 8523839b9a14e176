//! Lists executions: filtered, newest first, a page at a time.
//!
//! Invariants
//! - A page walks an index in its own order and stops, so its cost does not grow with history. It reads at most
//!   `MAX_ROWS_READ` executions. So a page for a rare filter may have few executions, or none, although more follow; it
//!   then returns where the next page starts.
//! - Executions are ordered by id, which begins with the time at which it was made. So a position is an id, and never
//!   changes.
//!
//! Not here: one execution (`execution`), how positions are written as cursors (`server::http::page`).

use jiff::Timestamp;
use kernel::execution;
use kernel::ids::{DefinitionId, ExecutionId, VersionId, WorkspaceId};
use serde_json::Value;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::sql::sql;
use crate::{Error, Store, parsed};

/// How many executions one page reads.
const MAX_ROWS_READ: i64 = 2_000;

/// Where a list ordered by time continues: with rows before this time, or at this time with a smaller id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeCursor<T> {
    pub at: Timestamp,
    pub id: T,
}

/// Which executions to list, and where the list starts. A field that is None adds no condition.
#[derive(Clone, Debug, Default)]
pub struct ExecutionFilter {
    pub workspace: Option<WorkspaceId>,
    pub definitions: Option<Vec<DefinitionId>>,
    pub ids: Option<Vec<ExecutionId>>,
    pub statuses: Vec<execution::Status>,
    /// Created at this time or later.
    pub from: Option<Timestamp>,
    /// Created before this time.
    pub until: Option<Timestamp>,
    pub after: Option<ExecutionId>,
    pub limit: i64,
}

/// An execution without its input and output.
#[derive(Clone, Debug)]
pub struct ExecutionSummary {
    pub id: ExecutionId,
    pub workspace: WorkspaceId,
    pub definition: DefinitionId,
    pub definition_name: Option<String>,
    pub version: VersionId,
    pub version_number: Option<i32>,
    pub status: execution::Status,
    pub error: Option<Value>,
    pub priority: i16,
    pub concurrency_key: Option<String>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub completed_at: Option<Timestamp>,
    pub duration_ms: Option<i64>,
    pub cancel_requested_at: Option<Timestamp>,
}

impl Store {
    /// The executions that match a filter, newest first, and where the next page starts. An empty list of statuses
    /// means every status.
    pub async fn executions(
        &self,
        filter: &ExecutionFilter,
    ) -> Result<(Vec<ExecutionSummary>, Option<ExecutionId>), Error> {
        let workspace = filter.workspace.map(|id| id.0);
        let definitions: Option<Vec<Uuid>> = filter.definitions.as_ref().map(|ids| ids.iter().map(|id| id.0).collect());
        let ids: Option<Vec<Uuid>> = filter.ids.as_ref().map(|ids| ids.iter().map(|id| id.0).collect());
        let wanted = |status: &execution::Status| filter.statuses.is_empty() || filter.statuses.contains(status);
        let statuses: Vec<&str> =
            execution::Status::ALL.into_iter().filter(wanted).map(execution::Status::name).collect();
        let before = filter.after.map(|id| id.0);
        // One row more than requested shows whether there are more.
        let enough = filter.limit + 1;
        let params: [&(dyn ToSql + Sync); 9] =
            [&workspace, &definitions, &statuses, &filter.from, &filter.until, &before, &enough, &ids, &MAX_ROWS_READ];
        let rows = self.query(sql!("workflow_execution/list"), &params).await?;
        let (mut page, mut stopped) = (Vec::new(), None);
        for row in &rows {
            if row.try_get("last")? {
                stopped = Some(ExecutionId(row.try_get("id")?));
            }
            if row.try_get("wanted")? {
                page.push(listed_of(row)?);
            }
        }
        let limit = usize::try_from(filter.limit).unwrap_or(usize::MAX);
        if page.len() > limit {
            page.truncate(limit);
            stopped = page.last().map(|item| item.id);
        }
        Ok((page, stopped))
    }

    /// The executions of a workspace with an id in the range `ids` (the ids with one prefix), or with this idempotency
    /// key.
    pub async fn search_executions(
        &self,
        workspace: WorkspaceId,
        ids: (Uuid, Uuid),
        idempotency_key: &str,
        limit: i64,
    ) -> Result<Vec<ExecutionId>, Error> {
        let sql = sql!("workflow_execution/search");
        let rows = self.query(sql, &[&workspace.0, &ids.0, &ids.1, &idempotency_key, &limit]).await?;
        rows.iter().map(|row| Ok(ExecutionId(row.try_get(0)?))).collect()
    }

    /// The definitions of a workspace that are not deleted and whose name has this prefix.
    pub async fn search_definitions(
        &self,
        workspace: WorkspaceId,
        name: &str,
        limit: i64,
    ) -> Result<Vec<DefinitionId>, Error> {
        let rows = self.query(sql!("workflow_definition/search"), &[&workspace.0, &name, &limit]).await?;
        rows.iter().map(|row| Ok(DefinitionId(row.try_get(0)?))).collect()
    }

    /// Did this definition ever exist in this workspace (None: any)?
    pub async fn knows_definition(&self, id: DefinitionId, workspace: Option<WorkspaceId>) -> Result<bool, Error> {
        let workspace = workspace.map(|id| id.0);
        Ok(!self.query(sql!("workflow_definition/known"), &[&id.0, &workspace]).await?.is_empty())
    }
}

fn listed_of(row: &Row) -> Result<ExecutionSummary, Error> {
    Ok(ExecutionSummary {
        id: ExecutionId(row.try_get("id")?),
        workspace: WorkspaceId(row.try_get("workspace_id")?),
        definition: DefinitionId(row.try_get("workflow_definition_id")?),
        definition_name: row.try_get("definition_name")?,
        version: VersionId(row.try_get("version_id")?),
        version_number: row.try_get("version_number")?,
        status: parsed(row, "status", execution::Status::parse)?,
        error: row.try_get("error")?,
        priority: row.try_get("priority")?,
        concurrency_key: row.try_get("concurrency_key")?,
        created_at: row.try_get("created_at")?,
        started_at: row.try_get("started_at")?,
        completed_at: row.try_get("completed_at")?,
        duration_ms: row.try_get("duration_ms")?,
        cancel_requested_at: row.try_get("cancel_requested_at")?,
    })
}
