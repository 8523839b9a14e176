//! Workspaces: the limits of each, and how many slots and ready items it has now.
//!
//! Invariants
//! - Changing a limit takes the shard's lock (in a trigger on the table), so no claim overlaps the change.
//! - Every accepted change writes an audit row in its own transaction.

use jiff::Timestamp;
use kernel::ids::WorkspaceId;
use serde_json::{Value, json};
use tokio_postgres::Row;

use crate::sql::sql;
use crate::{Error, Store};

/// A workspace for display.
#[derive(Clone, Debug)]
pub struct Workspace {
    pub id: WorkspaceId,
    pub name: String,
    pub tier: String,
    pub limit_override: Option<i32>,
    pub limit: i32,
    pub paused: bool,
    pub weight: i16,
    pub max_backlog: Option<i32>,
    pub running: i32,
    /// Ready items, counted up to `MAX_COUNTED` + 1.
    pub ready: i32,
    pub created_at: Timestamp,
}

/// A workspace to create.
#[derive(Clone, Debug)]
pub struct NewWorkspace {
    pub id: WorkspaceId,
    pub name: String,
    pub tier: String,
    pub limit_override: Option<i32>,
    pub weight: i16,
    /// The backlog limit; None: the service's default.
    pub max_backlog: Option<i32>,
}

/// What to change; a field that is None stays unchanged.
#[derive(Clone, Debug, Default)]
pub struct WorkspaceChange {
    pub tier: Option<String>,
    /// A new override; Some(None) returns to the tier's limit.
    pub limit_override: Option<Option<i32>>,
    pub weight: Option<i16>,
    /// A new backlog limit; Some(None) returns to the service's default.
    pub max_backlog: Option<Option<i32>>,
}

/// Items of a workspace are counted up to this number plus one; that last value means "more than this".
pub const MAX_COUNTED: i64 = 1_000;

/// What a workspace may use, what it uses, and its backlog.
#[derive(Clone, Debug, PartialEq)]
pub struct Capacity {
    pub limit: i32,
    pub paused: bool,
    pub running: i64,
    pub ready: i64,
    pub delayed: i64,
    pub waits_for_key: i64,
    pub waits_for_definition: i64,
    pub failed: i64,
    /// The age of the oldest item that is not delayed.
    pub oldest_s: Option<f64>,
}

impl Store {
    /// Creates a workspace. A name in use is a `Conflict`; an unknown tier is an `Error::Refused`.
    pub async fn create_workspace(&self, new: &NewWorkspace, actor: &str) -> Result<(), Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let NewWorkspace { id, name, tier, limit_override, weight, max_backlog } = new;
        transaction
            .execute(sql!("workspace/create"), &[&id.0, name, tier, limit_override, weight, max_backlog])
            .await
            .map_err(Error::from)
            .map_err(|error| {
                conflict_on(error, "workspace_living_name", || {
                    format!("a workspace is already named {name:?}; choose another name")
                })
            })?;
        let detail = json!({ "name": name, "tier": tier });
        audit(&transaction, Some(*id), actor, "workspace.create", "workspace", id.0, &detail).await?;
        Ok(transaction.commit().await?)
    }

    /// Changes what a workspace may use.
    pub async fn change_workspace(&self, id: WorkspaceId, change: &WorkspaceChange, actor: &str) -> Result<(), Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let (overrides, limit) = (change.limit_override.is_some(), change.limit_override.flatten());
        let (bounds, backlog) = (change.max_backlog.is_some(), change.max_backlog.flatten());
        let rows = transaction
            .query(
                sql!("workspace/update"),
                &[&id.0, &change.tier, &overrides, &limit, &change.weight, &bounds, &backlog],
            )
            .await?;
        if rows.is_empty() {
            return Err(Error::NotFound);
        }
        let mut detail = json!({ "tier": change.tier, "weight": change.weight });
        if let Some(limit) = change.limit_override {
            detail["limit"] = json!(limit);
        }
        if let Some(backlog) = change.max_backlog {
            detail["maxBacklog"] = json!(backlog);
        }
        audit(&transaction, Some(id), actor, "workspace.update", "workspace", id.0, &detail).await?;
        Ok(transaction.commit().await?)
    }

    /// One workspace that is not deleted.
    pub async fn workspace(&self, id: WorkspaceId) -> Result<Workspace, Error> {
        workspace_of(&self.one(sql!("workspace/get"), &[&id.0]).await?)
    }

    /// Lists workspaces that are not deleted after a name (an empty name: from the first), by name.
    pub async fn workspaces(&self, after: &str, limit: i64) -> Result<Vec<Workspace>, Error> {
        let rows = self.query(sql!("workspace/list"), &[&after, &limit]).await?;
        rows.iter().map(workspace_of).collect()
    }

    /// The capacity and the backlog of a workspace that is not deleted.
    pub async fn capacity(&self, id: WorkspaceId) -> Result<Capacity, Error> {
        let row = self.one(sql!("workspace/capacity"), &[&id.0, &(MAX_COUNTED + 1)]).await?;
        let count = |column: &str| row.try_get::<_, i32>(column).map(i64::from);
        Ok(Capacity {
            limit: row.try_get("max_running")?,
            paused: row.try_get("paused")?,
            running: count("running")?,
            ready: count("ready")?,
            delayed: count("delayed")?,
            waits_for_key: count("waits_for_key")?,
            waits_for_definition: count("waits_for_definition")?,
            failed: count("failed")?,
            oldest_s: row.try_get("oldest_s")?,
        })
    }

    /// Finds a workspace by name that is not deleted.
    pub async fn workspace_named(&self, name: &str) -> Result<WorkspaceId, Error> {
        Ok(WorkspaceId(self.one(sql!("workspace/find_by_name"), &[&name]).await?.try_get(0)?))
    }
}

fn workspace_of(row: &Row) -> Result<Workspace, Error> {
    Ok(Workspace {
        id: WorkspaceId(row.try_get("id")?),
        name: row.try_get("name")?,
        tier: row.try_get("tier")?,
        limit_override: row.try_get("limit_override")?,
        limit: row.try_get("max_running")?,
        paused: row.try_get("paused")?,
        weight: row.try_get("weight")?,
        max_backlog: row.try_get("max_backlog")?,
        running: row.try_get("running")?,
        ready: row.try_get("ready")?,
        created_at: row.try_get("created_at")?,
    })
}

/// Turns a unique violation of this index into a readable `Conflict`.
pub(crate) fn conflict_on(error: Error, index: &str, message: impl FnOnce() -> String) -> Error {
    if error.refused_by(index) { Error::Conflict(message()) } else { error }
}

/// The error of a change whose row another request changed since the caller read it.
pub(crate) fn changed_meanwhile() -> Error {
    Error::Conflict("another request changed this resource at the same time: repeat the request".to_owned())
}

pub(crate) async fn audit(
    transaction: &deadpool_postgres::Transaction<'_>,
    workspace: Option<WorkspaceId>,
    actor: &str,
    action: &str,
    subject_type: &str,
    subject: uuid::Uuid,
    detail: &Value,
) -> Result<(), Error> {
    let workspace = workspace.map(|workspace| workspace.0);
    transaction
        .execute(sql!("activity/add"), &[&workspace, &actor, &action, &subject_type, &subject, &Some(detail)])
        .await?;
    Ok(())
}
