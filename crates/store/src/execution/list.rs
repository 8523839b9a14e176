//! Lists of executions: filtered, newest first, a page at a time.
//!
//! Invariants
//! - A page walks an index in its own order and stops: what it costs does not grow with history.
//! - Places are a time of the database and an id, so that no two are equal and none moves.
//!
//! Not here: one execution (`execution`), how places are written as cursors (`server::http::page`).

use jiff::Timestamp;
use kernel::execution;
use kernel::ids::{DefinitionId, ExecutionId, VersionId, WorkspaceId};
use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::sql::sql;
use crate::{Error, Store, parsed};

/// Where a list of times goes on: before this time, or at it with a smaller id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<T> {
    pub at: Timestamp,
    pub id: T,
}

/// Which executions, and from where. What is not said is not asked for.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub workspace: Option<WorkspaceId>,
    pub definitions: Option<Vec<DefinitionId>>,
    pub ids: Option<Vec<ExecutionId>>,
    pub statuses: Vec<execution::Status>,
    /// Created at this time or later.
    pub from: Option<Timestamp>,
    /// Created before this time.
    pub until: Option<Timestamp>,
    pub after: Option<Place<Uuid>>,
    pub limit: i64,
}

/// An execution without what it was given and made.
#[derive(Clone, Debug)]
pub struct Listed {
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
    /// The executions of a filter, newest first. No statuses: all of them.
    pub async fn executions(&self, filter: &Filter) -> Result<Vec<Listed>, Error> {
        let workspace = filter.workspace.map(|id| id.0);
        let definitions: Option<Vec<Uuid>> = filter.definitions.as_ref().map(|ids| ids.iter().map(|id| id.0).collect());
        let ids: Option<Vec<Uuid>> = filter.ids.as_ref().map(|ids| ids.iter().map(|id| id.0).collect());
        let wanted = |status: &execution::Status| filter.statuses.is_empty() || filter.statuses.contains(status);
        let statuses: Vec<&str> =
            execution::Status::ALL.into_iter().filter(wanted).map(execution::Status::name).collect();
        let (before, id) = before(filter.until, filter.after, (Uuid::nil(), Uuid::max()));
        let rows = self
            .query(
                sql!("workflow_execution/list"),
                &[&workspace, &definitions, &statuses, &filter.from, &before, &id, &filter.limit, &ids],
            )
            .await?;
        rows.iter().map(listed_of).collect()
    }

    /// The executions of a workspace whose id begins so (a range of ids) or whose idempotency key this is.
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

    /// The living definitions of a workspace whose name begins so.
    pub async fn search_definitions(
        &self,
        workspace: WorkspaceId,
        name: &str,
        limit: i64,
    ) -> Result<Vec<DefinitionId>, Error> {
        let rows = self.query(sql!("workflow_definition/search"), &[&workspace.0, &name, &limit]).await?;
        rows.iter().map(|row| Ok(DefinitionId(row.try_get(0)?))).collect()
    }

    /// Was there ever such a definition in this workspace (none: any)?
    pub async fn knows_definition(&self, id: DefinitionId, workspace: Option<WorkspaceId>) -> Result<bool, Error> {
        let workspace = workspace.map(|id| id.0);
        Ok(!self.query(sql!("workflow_definition/known"), &[&id.0, &workspace]).await?.is_empty())
    }
}

/// The nearer of two bounds, as a time (none: any) and the id it is compared with.
pub(crate) fn before<T>(
    until: Option<Timestamp>,
    after: Option<Place<T>>,
    (least, greatest): (T, T),
) -> (Option<Timestamp>, T) {
    match (until, after) {
        (Some(until), Some(place)) if until <= place.at => (Some(until), least),
        (_, Some(place)) => (Some(place.at), place.id),
        (Some(until), None) => (Some(until), least),
        (None, None) => (None, greatest),
    }
}

fn listed_of(row: &Row) -> Result<Listed, Error> {
    Ok(Listed {
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
