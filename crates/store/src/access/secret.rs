//! Secrets at rest: encrypted, one row per name, only the newest version.
//!
//! Invariants
//! - Nothing here can decrypt a secret, and the audit log holds only names.
//! - A version is set once. If another request set it first, the later one changes nothing and returns None.
//! - Re-encrypting a data key changes neither the version nor the time it was set.
//!
//! If the process dies before the commit, nothing was set. After the commit, the version and its audit row are stored.
//! Repeating the request makes another version with the same value.
//!
//! Not here: encrypting and decrypting (`engine::vault`).

use jiff::Timestamp;
use kernel::ids::WorkspaceId;
use serde_json::json;
use tokio_postgres::Row;

use crate::sql::sql;
use crate::workspace::audit;
use crate::{Error, Store};

/// The maximum number of secrets in a workspace.
pub const MAX_SECRETS: i64 = 1_000;

/// A secret at rest, encrypted.
#[derive(Clone)]
pub struct Sealed {
    pub workspace: WorkspaceId,
    pub name: String,
    pub version: i32,
    /// The value, encrypted with the data key.
    pub value: Vec<u8>,
    /// The data key, encrypted with the outer key `key_id`.
    pub key: Vec<u8>,
    pub key_id: String,
    /// The hosts it may be sent to; None: any.
    pub hosts: Option<Vec<String>>,
}

impl std::fmt::Debug for Sealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Sealed { workspace, name, version, .. } = self;
        write!(f, "Sealed({workspace} {name} v{version})")
    }
}

/// What is known about a secret without decrypting it.
#[derive(Clone, Debug)]
pub struct SecretSummary {
    pub name: String,
    pub version: i32,
    pub key_id: String,
    pub created_at: Timestamp,
    /// When this version was set, and by whom.
    pub updated_at: Timestamp,
    pub created_by: String,
    /// The hosts it may be sent to; None: any.
    pub hosts: Option<Vec<String>>,
}

impl Store {
    /// The version number that the next version of this secret gets. An unknown or deleted workspace is `NotFound`; a
    /// workspace at its limit is a `Conflict`.
    pub async fn next_secret_version(&self, workspace: WorkspaceId, name: &str) -> Result<i32, Error> {
        let row = self.one(sql!("secret/next_version"), &[&workspace.0, &name]).await?;
        let (version, secrets): (i32, i64) = (row.try_get("version")?, row.try_get("secrets")?);
        if version == 0 && secrets >= MAX_SECRETS {
            return Err(Error::Conflict(format!(
                "the workspace's limit of {MAX_SECRETS} secrets is reached; delete one first"
            )));
        }
        Ok(version.saturating_add(1))
    }

    /// Sets a version of a secret; None if another request set it first. The allowed hosts do not change.
    pub async fn set_secret(&self, sealed: &Sealed, actor: &str) -> Result<Option<SecretSummary>, Error> {
        self.set_secret_for(sealed, None, actor).await
    }

    /// Sets a version of a secret and its allowed hosts. An empty list allows any host; None leaves the hosts
    /// unchanged.
    pub async fn set_secret_for(
        &self,
        sealed: &Sealed,
        hosts: Option<&[String]>,
        actor: &str,
    ) -> Result<Option<SecretSummary>, Error> {
        let Sealed { workspace, name, version, value, key, key_id, .. } = sealed;
        let (changes, bound) = (hosts.is_some(), hosts.filter(|hosts| !hosts.is_empty()));
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let row = transaction
            .query_opt(
                sql!("secret/set"),
                &[&workspace.0, name, version, value, key, key_id, &actor, &MAX_SECRETS, &changes, &bound],
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

    /// Lists a workspace's secrets without their values, by name after `after`.
    pub async fn secrets(&self, workspace: WorkspaceId, after: &str, limit: i64) -> Result<Vec<SecretSummary>, Error> {
        let rows = self.query(sql!("secret/list"), &[&workspace.0, &after, &limit]).await?;
        rows.iter().map(listed_of).collect()
    }

    /// The workspace's secrets that have one of these names.
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

    /// Secrets of any workspace whose data key is encrypted with an outer key other than `key_id`, in a stable order
    /// after a position.
    pub async fn secrets_to_reencrypt(
        &self,
        key_id: &str,
        after: (WorkspaceId, &str),
        limit: i64,
    ) -> Result<Vec<Sealed>, Error> {
        let (workspace, name) = after;
        let rows = self.query(sql!("secret/under_other_keys"), &[&key_id, &workspace.0, &name, &limit]).await?;
        rows.iter().map(sealed_of).collect()
    }

    /// One secret per outer key in use, for at most `limit` outer keys.
    pub async fn secret_key_samples(&self, limit: i64) -> Result<Vec<Sealed>, Error> {
        let rows = self.query(sql!("secret/key_samples"), &[&limit]).await?;
        rows.iter().map(sealed_of).collect()
    }

    /// Re-encrypts the data key of a secret. False if its version or key has changed since `was` was read.
    pub async fn reencrypt_secret(&self, was: &Sealed, key: &[u8], key_id: &str) -> Result<bool, Error> {
        let Sealed { workspace, name, version, key_id: from, .. } = was;
        let changed =
            self.execute(sql!("secret/reencrypt"), &[&workspace.0, name, version, from, &key, &key_id]).await?;
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

fn listed_of(row: &Row) -> Result<SecretSummary, Error> {
    Ok(SecretSummary {
        name: row.try_get("name")?,
        version: row.try_get("version")?,
        key_id: row.try_get("key_id")?,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
        created_by: row.try_get("created_by")?,
        hosts: row.try_get("hosts")?,
    })
}
