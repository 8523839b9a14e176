//! Workspaces: what each may use, and what it uses now.
//!
//! Invariants
//! - A change of limit takes the shard's lock (a trigger), so no claim straddles it.
//! - Every accepted change leaves an audit row in its own transaction.

use jiff::Timestamp;
use kernel::ids::WorkspaceId;
use serde_json::{Value, json};
use tokio_postgres::Row;

use crate::sql::sql;
use crate::{Error, Store};

/// A workspace as people read it.
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
    /// Ready items, counted to a thousand and one.
    pub ready: i32,
    pub created_at: Timestamp,
}

/// A workspace to be made.
#[derive(Clone, Debug)]
pub struct NewWorkspace {
    pub id: WorkspaceId,
    pub name: String,
    pub tier: String,
    pub limit_override: Option<i32>,
    pub weight: i16,
    /// The most that may wait; none for what the service allows.
    pub max_backlog: Option<i32>,
}

/// What to change; nothing leaves a thing as it is.
#[derive(Clone, Debug, Default)]
pub struct Change {
    pub tier: Option<String>,
    /// A new override, or none to go back to the tier's limit.
    pub limit_override: Option<Option<i32>>,
    pub weight: Option<i16>,
    /// A new backlog limit, or none to go back to what the service allows.
    pub max_backlog: Option<Option<i32>>,
}

/// How far a workspace's items are counted; one more means more.
pub const COUNTED: i64 = 1_000;

/// What a workspace may use, uses, and has waiting.
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
    /// How long the oldest has waited that is not delayed.
    pub oldest_s: Option<f64>,
}

impl Store {
    /// Makes a workspace. A taken name is a conflict; an unknown tier is refused data.
    pub async fn create_workspace(&self, new: &NewWorkspace, actor: &str) -> Result<(), Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let NewWorkspace { id, name, tier, limit_override, weight, max_backlog } = new;
        transaction
            .execute(sql!("workspace/create"), &[&id.0, name, tier, limit_override, weight, max_backlog])
            .await
            .map_err(Error::from)
            .map_err(|error| {
                taken(error, "workspace_living_name", || format!("a workspace is called {name:?} already"))
            })?;
        let detail = json!({ "name": name, "tier": tier });
        audit(&transaction, Some(*id), actor, "workspace.create", "workspace", id.0, &detail).await?;
        Ok(transaction.commit().await?)
    }

    /// Changes what a workspace may use.
    pub async fn change_workspace(&self, id: WorkspaceId, change: &Change, actor: &str) -> Result<(), Error> {
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

    /// One living workspace.
    pub async fn workspace(&self, id: WorkspaceId) -> Result<Workspace, Error> {
        workspace_of(&self.one(sql!("workspace/get"), &[&id.0]).await?)
    }

    /// Living workspaces after a name (no name is empty), by name.
    pub async fn workspaces(&self, after: &str, limit: i64) -> Result<Vec<Workspace>, Error> {
        let rows = self.query(sql!("workspace/list"), &[&after, &limit]).await?;
        rows.iter().map(workspace_of).collect()
    }

    /// What a living workspace has room for, and what waits.
    pub async fn capacity(&self, id: WorkspaceId) -> Result<Capacity, Error> {
        let row = self.one(sql!("workspace/capacity"), &[&id.0, &(COUNTED + 1)]).await?;
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

    /// The living workspace of a name.
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

/// A unique violation of this index is a conflict that a person can understand.
pub(crate) fn taken(error: Error, index: &str, message: impl FnOnce() -> String) -> Error {
    if error.refused_by(index) { Error::Conflict(message()) } else { error }
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
