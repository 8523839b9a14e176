//! Definitions and their immutable versions.
//!
//! Invariants
//! - A version never changes; an execution pins the one published at its enqueue.
//! - The same content twice is one version.

use jiff::Timestamp;
use kernel::ids::{DefinitionId, VersionId, WorkspaceId};
use serde_json::{Value, json};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::event::binding;
use crate::schedule;
use crate::sql::sql;
use crate::webhook::hook;
use crate::workspace::{audit, taken};
use crate::{Error, Store, new_id};

/// A definition as people read it.
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

/// A version that was stored, or that was there with the same content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredVersion {
    pub id: VersionId,
    pub number: i32,
    /// The same content was the latest version already.
    pub unchanged: bool,
}

/// A version as people read it, without its graph.
#[derive(Clone, Debug)]
pub struct Version {
    pub id: VersionId,
    pub number: i32,
    pub content_hash: String,
    pub timeout_ms: Option<i64>,
    pub created_at: Timestamp,
    pub published: bool,
}

impl Store {
    /// Makes a definition, a draft. A taken name is a conflict.
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
                taken(error, "workflow_definition_living_name", || format!("a definition is called {name:?} already"))
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

    /// Makes a version the one that new executions pin, with its limits; answers the definition's status.
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
        binding::publish(&transaction, id).await?;
        hook::publish(&transaction, id).await?;
        schedule::publish(&transaction, id, actor).await?;
        let detail = json!({ "version": version });
        audit(&transaction, Some(workspace), actor, "definition.publish", "definition", id.0, &detail).await?;
        transaction.commit().await?;
        Ok(status)
    }

    /// A living definition by id or by name; with no workspace, by id alone.
    pub async fn definition(&self, which: Which<'_>, workspace: Option<WorkspaceId>) -> Result<Definition, Error> {
        let (id, name) = match which {
            Which::Id(id) => (Some(id.0), None),
            Which::Name(name) => (None, Some(name)),
        };
        let workspace = workspace.map(|workspace| workspace.0);
        definition_of(&self.one(sql!("workflow_definition/find"), &[&id, &name, &workspace]).await?)
    }

    /// The living definitions of a workspace (none: of all), by workspace and name, after a place.
    pub async fn definitions(
        &self,
        workspace: Option<WorkspaceId>,
        after: Option<(WorkspaceId, &str)>,
        limit: i64,
    ) -> Result<Vec<Definition>, Error> {
        let (first, last) = workspace.map_or((Uuid::nil(), Uuid::max()), |id| (id.0, id.0));
        // Nothing is before the empty name of the first.
        let (place, name) = after.map_or((first, ""), |(id, name)| (id.0, name));
        let rows = self.query(sql!("workflow_definition/list"), &[&first, &last, &place, &name, &limit]).await?;
        rows.iter().map(definition_of).collect()
    }

    /// The versions of a definition before a number (none: all), newest first.
    pub async fn versions(&self, id: DefinitionId, before: Option<i32>, limit: i64) -> Result<Vec<Version>, Error> {
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

    /// The same, with the text it was read from.
    pub async fn numbered_source(&self, id: DefinitionId, number: i32) -> Result<(Value, Option<String>), Error> {
        let row = self.one(sql!("workflow_definition_version/numbered"), &[&id.0, &number]).await?;
        Ok((row.try_get("graph")?, row.try_get("source")?))
    }

    /// The immutable graphs of versions.
    pub async fn graphs(&self, versions: &[VersionId]) -> Result<Vec<(VersionId, Value)>, Error> {
        let ids: Vec<Uuid> = versions.iter().map(|version| version.0).collect();
        let rows = self.query(sql!("workflow_definition_version/graph"), &[&ids]).await?;
        rows.iter().map(|row| Ok((VersionId(row.try_get(0)?), row.try_get(1)?))).collect()
    }
}

/// How a definition is named.
#[derive(Clone, Copy, Debug)]
pub enum Which<'a> {
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

fn version_of(row: &Row) -> Result<Version, Error> {
    Ok(Version {
        id: VersionId(row.try_get("id")?),
        number: row.try_get("number")?,
        content_hash: row.try_get("content_hash")?,
        timeout_ms: row.try_get("timeout_ms")?,
        created_at: row.try_get("created_at")?,
        published: row.try_get("published")?,
    })
}
