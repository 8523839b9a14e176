//! Secrets as they are kept: sealed, one row a name, the newest version alone.
//!
//! Invariants
//! - Nothing here can open a secret, and nothing but names leaves a trace in the audit log.
//! - A version is set once: whoever was overtaken changes nothing and is told so.
//! - Sealing a data key anew changes neither the version nor when it was set.
//!
//! What happens if the process dies: before the commit nothing was set; after it the version stands with its audit row.
//! The same request again is another version with the same value.
//!
//! Not here: sealing and opening (`engine::vault`).

use jiff::Timestamp;
use kernel::ids::WorkspaceId;
use serde_json::json;
use tokio_postgres::Row;

use crate::sql::sql;
use crate::workspace::audit;
use crate::{Error, Store};

/// The most secrets of one workspace.
pub const MOST: i64 = 1_000;

/// A secret as it is kept.
#[derive(Clone)]
pub struct Sealed {
    pub workspace: WorkspaceId,
    pub name: String,
    pub version: i32,
    /// The value, under the data key.
    pub value: Vec<u8>,
    /// The data key, under the outer key of that id.
    pub key: Vec<u8>,
    pub key_id: String,
    /// The hosts it may be sent to; none: any.
    pub hosts: Option<Vec<String>>,
}

impl std::fmt::Debug for Sealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Sealed { workspace, name, version, .. } = self;
        write!(f, "Sealed({workspace} {name} v{version})")
    }
}

/// What is known of a secret without opening it.
#[derive(Clone, Debug)]
pub struct Listed {
    pub name: String,
    pub version: i32,
    pub key_id: String,
    pub created_at: Timestamp,
    /// When this version was set, and by whom.
    pub updated_at: Timestamp,
    pub created_by: String,
    /// The hosts it may be sent to; none: any.
    pub hosts: Option<Vec<String>>,
}

impl Store {
    /// The version that a secret will have when it is set next. An unknown or deleted workspace is not found, one that
    /// is full a conflict.
    pub async fn next_secret_version(&self, workspace: WorkspaceId, name: &str) -> Result<i32, Error> {
        let row = self.one(sql!("secret/standing"), &[&workspace.0, &name]).await?;
        let (version, secrets): (i32, i64) = (row.try_get("version")?, row.try_get("secrets")?);
        if version == 0 && secrets >= MOST {
            return Err(Error::Conflict(format!("a workspace holds at most {MOST} secrets")));
        }
        Ok(version.saturating_add(1))
    }

    /// Sets a version of a secret; none if another came first. The hosts it may be sent to stay as they were.
    pub async fn set_secret(&self, sealed: &Sealed, actor: &str) -> Result<Option<Listed>, Error> {
        self.set_secret_for(sealed, None, actor).await
    }

    /// The same, and the hosts it may be sent to: empty for any, none to leave them as they were.
    pub async fn set_secret_for(
        &self,
        sealed: &Sealed,
        hosts: Option<&[String]>,
        actor: &str,
    ) -> Result<Option<Listed>, Error> {
        let Sealed { workspace, name, version, value, key, key_id, .. } = sealed;
        let (changes, bound) = (hosts.is_some(), hosts.filter(|hosts| !hosts.is_empty()));
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let row = transaction
            .query_opt(
                sql!("secret/set"),
                &[&workspace.0, name, version, value, key, key_id, &actor, &MOST, &changes, &bound],
            )
            .await?;
        let Some(row) = row else { return Ok(None) };
        let mut detail = json!({ "name": name, "version": version });
        if let Some(hosts) = hosts {
            detail["hosts"] = json!(hosts);
        }
        audit(&transaction, Some(*workspace), actor, "secret.set", "secret", workspace.0, &detail).await?;
        transaction.commit().await?;
        listed_of(&row).map(Some)
    }

    /// What is known of a workspace's secrets, by name after a given one.
    pub async fn secrets(&self, workspace: WorkspaceId, after: &str, limit: i64) -> Result<Vec<Listed>, Error> {
        let rows = self.query(sql!("secret/list"), &[&workspace.0, &after, &limit]).await?;
        rows.iter().map(listed_of).collect()
    }

    /// Those of a workspace's secrets that have one of these names.
    pub async fn sealed_secrets(&self, workspace: WorkspaceId, names: &[&str]) -> Result<Vec<Sealed>, Error> {
        let rows = self.query(sql!("secret/sealed"), &[&workspace.0, &names]).await?;
        rows.iter().map(sealed_of).collect()
    }

    pub async fn delete_secret(&self, workspace: WorkspaceId, name: &str, actor: &str) -> Result<(), Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let row = transaction.query_opt(sql!("secret/delete"), &[&workspace.0, &name]).await?.ok_or(Error::NotFound)?;
        let detail = json!({ "name": name, "version": row.try_get::<_, i32>(0)? });
        audit(&transaction, Some(workspace), actor, "secret.delete", "secret", workspace.0, &detail).await?;
        Ok(transaction.commit().await?)
    }

    /// Secrets of any workspace whose key is under another outer key than this, after a place in a stable order.
    pub async fn secrets_under_others(
        &self,
        key_id: &str,
        after: (WorkspaceId, &str),
        limit: i64,
    ) -> Result<Vec<Sealed>, Error> {
        let (workspace, name) = after;
        let rows = self.query(sql!("secret/under_others"), &[&key_id, &workspace.0, &name, &limit]).await?;
        rows.iter().map(sealed_of).collect()
    }

    /// One secret of each outer key that seals any, so many keys at most.
    pub async fn secret_key_samples(&self, limit: i64) -> Result<Vec<Sealed>, Error> {
        let rows = self.query(sql!("secret/key_samples"), &[&limit]).await?;
        rows.iter().map(sealed_of).collect()
    }

    /// Puts the data key of a secret under another outer key; false if it is another version or key by now.
    pub async fn reseal_secret(&self, was: &Sealed, key: &[u8], key_id: &str) -> Result<bool, Error> {
        let Sealed { workspace, name, version, key_id: from, .. } = was;
        let changed = self.execute(sql!("secret/reseal"), &[&workspace.0, name, version, from, &key, &key_id]).await?;
        Ok(changed == 1)
    }
}

fn sealed_of(row: &Row) -> Result<Sealed, Error> {
    Ok(Sealed {
        workspace: WorkspaceId(row.try_get("workspace_id")?),
        name: row.try_get("name")?,
        version: row.try_get("version")?,
        value: row.try_get("value_sealed")?,
        key: row.try_get("key_sealed")?,
        key_id: row.try_get("key_id")?,
        hosts: row.try_get("hosts")?,
    })
}

fn listed_of(row: &Row) -> Result<Listed, Error> {
    Ok(Listed {
        name: row.try_get("name")?,
        version: row.try_get("version")?,
        key_id: row.try_get("key_id")?,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
        created_by: row.try_get("created_by")?,
        hosts: row.try_get("hosts")?,
    })
}
