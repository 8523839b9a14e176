//! Definitions and their immutable versions.
//!
//! Invariants
//! - A version never changes. An execution is pinned to the version that was published when it was enqueued.
//! - Storing the content of the latest version again makes no new version.

use jiff::Timestamp;
use kernel::ids::{DefinitionId, VersionId, WorkspaceId};
use serde_json::{Value, json};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::event::binding;
use crate::schedule;
use crate::sql::sql;
use crate::trigger;
use crate::workspace::{audit, conflict_on};
use crate::{Error, Store, new_id};

/// A definition for display.
#[derive(Clone, Debug)]
pub struct Definition {
    pub id: DefinitionId,
    pub workspace: WorkspaceId,
    pub name: String,
    pub status: String,
    pub published_version: Option<VersionId>,
    pub published_number: Option<i32>,
    pub published_hash: Option<String>,
    pub concurrency: Option<i32>,
    pub key_concurrency: i32,
    pub max_attempts: i32,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A checked graph, ready to be stored.
#[derive(Clone, Debug)]
pub struct NewVersion {
    pub graph: Value,
    pub content_hash: String,
    pub source: Option<String>,
    pub timeout_ms: Option<i64>,
    pub concurrency: Option<i32>,
    pub key_concurrency: Option<i32>,
    pub max_attempts: Option<i32>,
}

/// The version that was stored, or the existing version with the same content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredVersion {
    pub id: VersionId,
    pub number: i32,
    /// The latest version already had the same content.
    pub unchanged: bool,
}

/// A version for display, without its graph.
#[derive(Clone, Debug)]
pub struct VersionSummary {
    pub id: VersionId,
    pub number: i32,
    pub content_hash: String,
    pub timeout_ms: Option<i64>,
    pub created_at: Timestamp,
    pub published: bool,
}

impl Store {
    /// Creates a definition as a draft. A name in use is a `Conflict`.
    pub async fn create_definition(
        &self,
        workspace: WorkspaceId,
        name: &str,
        version: &NewVersion,
        actor: &str,
    ) -> Result<(DefinitionId, StoredVersion), Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let id = DefinitionId(new_id());
        transaction
            .execute(
                sql!("workflow_definition/create"),
                &[&id.0, &workspace.0, &name, &version.concurrency, &version.key_concurrency, &version.max_attempts],
            )
            .await
            .map_err(Error::from)
            .map_err(|error| {
                conflict_on(error, "workflow_definition_living_name", || {
                    format!("the workspace already has a definition named {name:?}; choose another name")
                })
            })?;
        let stored = add_version(&transaction, workspace, id, version).await?;
        let detail = json!({ "name": name, "version": stored.number });
        audit(&transaction, Some(workspace), actor, "definition.create", "definition", id.0, &detail).await?;
        transaction.commit().await?;
        Ok((id, stored))
    }

    /// Adds a version, unless the latest one has the same content.
    pub async fn add_version(
        &self,
        workspace: WorkspaceId,
        id: DefinitionId,
        version: &NewVersion,
        actor: &str,
    ) -> Result<StoredVersion, Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let rows = transaction.query(sql!("workflow_definition/lock"), &[&id.0, &workspace.0]).await?;
        if rows.is_empty() {
            return Err(Error::NotFound);
        }
        let stored = add_version(&transaction, workspace, id, version).await?;
        if !stored.unchanged {
            let detail = json!({ "version": stored.number });
            audit(&transaction, Some(workspace), actor, "definition.version", "definition", id.0, &detail).await?;
        }
        transaction.commit().await?;
        Ok(stored)
    }

    /// Publishes a version: new executions are pinned to it, and its limits apply. Also replaces the definition's
    /// binding, trigger and schedules by those that the version declares. Returns the definition's status.
    pub async fn publish(
        &self,
        workspace: WorkspaceId,
        id: DefinitionId,
        version: VersionId,
        limits: &NewVersion,
        actor: &str,
    ) -> Result<String, Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let rows = transaction
            .query(
                sql!("workflow_definition/publish"),
                &[&id.0, &workspace.0, &version.0, &limits.concurrency, &limits.key_concurrency, &limits.max_attempts],
            )
            .await?;
        let status = rows.first().ok_or(Error::NotFound)?.try_get(0)?;
        binding::store_published_binding(&transaction, id).await?;
        trigger::store_published_trigger(&transaction, id).await?;
        schedule::store_published_schedules(&transaction, id, actor).await?;
        let detail = json!({ "version": version });
        audit(&transaction, Some(workspace), actor, "definition.publish", "definition", id.0, &detail).await?;
        transaction.commit().await?;
        Ok(status)
    }

    /// Finds a definition that is not deleted, by id or name. Without a workspace, only by id.
    pub async fn definition(
        &self,
        reference: DefinitionRef<'_>,
        workspace: Option<WorkspaceId>,
    ) -> Result<Definition, Error> {
        let (id, name) = match reference {
            DefinitionRef::Id(id) => (Some(id.0), None),
            DefinitionRef::Name(name) => (None, Some(name)),
        };
        let workspace = workspace.map(|workspace| workspace.0);
        definition_of(&self.one(sql!("workflow_definition/find"), &[&id, &name, &workspace]).await?)
    }

    /// Lists definitions of a workspace (None: all) that are not deleted, by workspace and name, after a position.
    pub async fn definitions(
        &self,
        workspace: Option<WorkspaceId>,
        after: Option<(WorkspaceId, &str)>,
        limit: i64,
    ) -> Result<Vec<Definition>, Error> {
        let (first, last) = workspace.map_or((Uuid::nil(), Uuid::max()), |id| (id.0, id.0));
        // The empty name sorts before every other.
        let (place, name) = after.map_or((first, ""), |(id, name)| (id.0, name));
        let rows = self.query(sql!("workflow_definition/list"), &[&first, &last, &place, &name, &limit]).await?;
        rows.iter().map(definition_of).collect()
    }

    /// Lists the versions of a definition before a number (None: all), newest first.
    pub async fn versions(
        &self,
        id: DefinitionId,
        before: Option<i32>,
        limit: i64,
    ) -> Result<Vec<VersionSummary>, Error> {
        let before = before.unwrap_or(i32::MAX);
        let rows = self.query(sql!("workflow_definition_version/list"), &[&id.0, &before, &limit]).await?;
        rows.iter().map(version_of).collect()
    }

    /// The newest version of a definition, with its graph.
    pub async fn latest_version(&self, id: DefinitionId) -> Result<(StoredVersion, Value), Error> {
        let row = self.one(sql!("workflow_definition_version/latest"), &[&id.0]).await?;
        let stored =
            StoredVersion { id: VersionId(row.try_get("id")?), number: row.try_get("number")?, unchanged: true };
        Ok((stored, row.try_get("graph")?))
    }

    /// The graph of one version of a definition, by its number.
    pub async fn numbered_version(&self, id: DefinitionId, number: i32) -> Result<Value, Error> {
        Ok(self.one(sql!("workflow_definition_version/numbered"), &[&id.0, &number]).await?.try_get("graph")?)
    }

    /// The graph of one version of a definition by its number, with the source text it was parsed from.
    pub async fn numbered_source(&self, id: DefinitionId, number: i32) -> Result<(Value, Option<String>), Error> {
        let row = self.one(sql!("workflow_definition_version/numbered"), &[&id.0, &number]).await?;
        Ok((row.try_get("graph")?, row.try_get("source")?))
    }

    /// Reads the immutable graphs of these versions.
    pub async fn graphs(&self, versions: &[VersionId]) -> Result<Vec<(VersionId, Value)>, Error> {
        let ids: Vec<Uuid> = versions.iter().map(|version| version.0).collect();
        let rows = self.query(sql!("workflow_definition_version/graph"), &[&ids]).await?;
        rows.iter().map(|row| Ok((VersionId(row.try_get(0)?), row.try_get(1)?))).collect()
    }
}

/// How a caller names a definition.
#[derive(Clone, Copy, Debug)]
pub enum DefinitionRef<'a> {
    Id(DefinitionId),
    Name(&'a str),
}

async fn add_version(
    transaction: &deadpool_postgres::Transaction<'_>,
    workspace: WorkspaceId,
    definition: DefinitionId,
    version: &NewVersion,
) -> Result<StoredVersion, Error> {
    if let Some(row) = transaction.query_opt(sql!("workflow_definition_version/latest"), &[&definition.0]).await?
        && row.try_get::<_, &str>("content_hash")? == version.content_hash
    {
        let id = VersionId(row.try_get("id")?);
        return Ok(StoredVersion { id, number: row.try_get("number")?, unchanged: true });
    }
    let id: Uuid = new_id();
    let NewVersion { graph, content_hash, source, timeout_ms, .. } = version;
    let row = transaction
        .query_one(
            sql!("workflow_definition_version/add"),
            &[&id, &workspace.0, &definition.0, graph, content_hash, source, timeout_ms],
        )
        .await?;
    Ok(StoredVersion { id: VersionId(id), number: row.try_get(0)?, unchanged: false })
}

fn definition_of(row: &Row) -> Result<Definition, Error> {
    Ok(Definition {
        id: DefinitionId(row.try_get("id")?),
        workspace: WorkspaceId(row.try_get("workspace_id")?),
        name: row.try_get("name")?,
        status: row.try_get("status")?,
        published_version: row.try_get::<_, Option<Uuid>>("published_version")?.map(VersionId),
        published_number: row.try_get("published_number")?,
        published_hash: row.try_get("published_hash")?,
        concurrency: row.try_get("concurrency")?,
        key_concurrency: row.try_get("key_concurrency")?,
        max_attempts: row.try_get("max_attempts")?,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
    })
}

fn version_of(row: &Row) -> Result<VersionSummary, Error> {
    Ok(VersionSummary {
        id: VersionId(row.try_get("id")?),
        number: row.try_get("number")?,
        content_hash: row.try_get("content_hash")?,
        timeout_ms: row.try_get("timeout_ms")?,
        created_at: row.try_get("created_at")?,
        published: row.try_get("published")?,
    })
}
