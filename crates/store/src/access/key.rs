//! API keys: random texts with a prefix, shown once and stored as a hash.
//!
//! Invariants
//! - A key in clear text exists only in the call that created it. It cannot be recovered from the stored hash.
//! - A key has 256 random bits, so a fast hash is safe. Its checksum distinguishes a mistyped key from an unknown key.
//! - A revoked or expired key is not found. Its row stores when it was last used; the audit log stores when it was
//!   revoked.
//! - A key created by another key expires no later than that key and is revoked with it.
//! - Creating a key locks its creator's row, and a revocation repeats until it finds no more keys that the revoked key
//!   created. So a key created during the revocation is revoked too.
//!
//! Not here: what a scope allows (`kernel::access`, `server::http::access`).

use std::fmt;

use deadpool_postgres::Transaction;
use jiff::Timestamp;
use kernel::access::{self, ExpiryTooLate, Scope, Scopes};
use kernel::ids::{KeyId, WorkspaceId};
use serde_json::json;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::access::token::{is_well_formed, mint_token};
use crate::sql::sql;
use crate::workspace::audit;
use crate::{Error, Store, new_id};

/// The prefix of every key, so that a leaked key is recognized.
const PREFIX: &str = "fbk_";

/// A key in clear text: never logged, never stored. Its hash is computed once, because each request compares it with
/// several others.
#[derive(Clone)]
pub struct Secret {
    text: String,
    hash: [u8; 32],
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The text cannot be a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not an API key: a key is {PREFIX} followed by 72 letters and digits (was it cut off?)")]
pub struct Malformed;

impl Secret {
    /// A new random key.
    pub fn generate() -> Result<Secret, Error> {
        mint_token(PREFIX).map(Secret::new)
    }

    /// Parses a key; rejects malformed text without a database query.
    pub fn parse(text: &str) -> Result<Secret, Malformed> {
        if is_well_formed(PREFIX, text) { Ok(Secret::new(text.to_owned())) } else { Err(Malformed) }
    }

    fn new(text: String) -> Secret {
        let hash = Sha256::digest(text.as_bytes()).into();
        Secret { text, hash }
    }

    /// The key in clear text, to show once to its creator.
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// The first characters: enough to tell keys apart, too few to guess one.
    pub fn prefix(&self) -> &str {
        &self.text[..PREFIX.len() + 8]
    }

    /// The hash that is stored in place of the key.
    pub fn hash(&self) -> Vec<u8> {
        self.hash.to_vec()
    }

    /// Compares with another key in constant time.
    pub fn is(&self, other: &Secret) -> bool {
        self.hash.ct_eq(&other.hash).into()
    }
}

/// A key that is neither revoked nor expired: a key of a workspace, or a root key, which has every scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    pub id: KeyId,
    pub workspace: Option<WorkspaceId>,
    pub scopes: Scopes,
}

/// A key to create.
#[derive(Clone, Copy, Debug)]
pub struct NewKey<'a> {
    pub workspace: Option<WorkspaceId>,
    pub name: &'a str,
    pub scopes: Scopes,
    pub expires_at: Option<Timestamp>,
}

/// Who creates a key, and which limits apply to the new key.
#[derive(Clone, Copy, Debug)]
pub struct KeyCreator<'a> {
    /// The name in the audit log.
    pub actor: &'a str,
    /// The stored key that the request was made with; None for a root key from the configuration.
    pub key: Option<KeyId>,
    /// The maximum number of active keys in a workspace.
    pub max_active: i64,
}

/// A key that was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Issued {
    pub id: KeyId,
    pub expires_at: Option<Timestamp>,
}

/// Why a key was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    #[error("the key that creates it is revoked or expired; use an active key")]
    CreatorInactive,
    #[error("the key that creates it expires at {limit}, and the new key may not outlive it")]
    Outlives { limit: Timestamp },
    #[error("the workspace has {most} active keys, which is the limit; revoke one first")]
    TooMany { most: i64 },
}

/// A key for display: with its prefix, never with its secret.
#[derive(Clone, Debug)]
pub struct KeySummary {
    pub id: KeyId,
    pub workspace: Option<WorkspaceId>,
    pub name: String,
    pub prefix: Option<String>,
    pub scopes: Scopes,
    pub created_at: Timestamp,
    /// The creator's name in the audit log; None for the oldest keys.
    pub created_by: Option<String>,
    pub expires_at: Option<Timestamp>,
    pub last_used_at: Option<Timestamp>,
}

impl Store {
    /// Stores a key that no other key creates, without limits. An unknown workspace is an `Error::Refused`.
    pub async fn create_key(&self, new: &NewKey<'_>, secret: &Secret, actor: &str) -> Result<KeyId, Error> {
        let issued = self.issue_key(new, secret, &KeyCreator { actor, key: None, max_active: i64::MAX }).await?;
        issued.map(|issued| issued.id).map_err(|denied| Error::Conflict(denied.to_string()))
    }

    /// Stores a key by its hash, within its creator's limits. An unknown workspace is an `Error::Refused`.
    pub async fn issue_key(
        &self,
        new: &NewKey<'_>,
        secret: &Secret,
        creator: &KeyCreator<'_>,
    ) -> Result<Result<Issued, Denied>, Error> {
        let NewKey { workspace, name, scopes, expires_at } = *new;
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let expires_at = match within_limits(&transaction, workspace, expires_at, creator).await? {
            Ok(expires_at) => expires_at,
            Err(denied) => return Ok(Err(denied)),
        };
        let id = KeyId(new_id());
        let (owner, parent) = (workspace.map(|workspace| workspace.0), creator.key.map(|key| key.0));
        let names: Vec<&str> = scopes.list().into_iter().map(Scope::name).collect();
        transaction
            .execute(
                sql!("api_key/create"),
                &[&id.0, &owner, &name, &secret.hash(), &secret.prefix(), &names, &expires_at, &creator.actor, &parent],
            )
            .await?;
        let detail = json!({ "name": name, "scopes": names, "expiresAt": expires_at });
        audit(&transaction, workspace, creator.actor, "key.create", "key", id.0, &detail).await?;
        transaction.commit().await?;
        Ok(Ok(Issued { id, expires_at }))
    }

    /// Finds the active key with this secret, and records when it was used, to the minute.
    pub async fn find_key(&self, secret: &Secret) -> Result<Key, Error> {
        let row = self.one(sql!("api_key/find"), &[&secret.hash()]).await?;
        let id = KeyId(row.try_get("id")?);
        if row.try_get("use_unrecorded")? {
            self.execute(sql!("api_key/record_use"), &[&id.0]).await?;
        }
        let workspace = row.try_get::<_, Option<Uuid>>("workspace_id")?.map(WorkspaceId);
        Ok(Key { id, workspace, scopes: scopes_of(&row, workspace)? })
    }

    /// Lists unrevoked keys of a workspace (None: all keys), by id after `after`.
    pub async fn keys(
        &self,
        workspace: Option<WorkspaceId>,
        after: Option<KeyId>,
        limit: i64,
    ) -> Result<Vec<KeySummary>, Error> {
        let (workspace, after) = (workspace.map(|id| id.0), after.map_or(Uuid::nil(), |id| id.0));
        let rows = self.query(sql!("api_key/list"), &[&workspace, &after, &limit]).await?;
        rows.iter().map(listed_of).collect()
    }

    /// Revokes a key of a workspace (None: any key), and all keys that were created with it, directly or through
    /// another key. Returns every key that it revoked. An unknown or already revoked key is `NotFound`.
    pub async fn revoke_key(
        &self,
        id: KeyId,
        workspace: Option<WorkspaceId>,
        actor: &str,
    ) -> Result<Vec<KeyId>, Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let workspace = workspace.map(|id| id.0);
        let row = transaction.query_opt(sql!("api_key/revoke"), &[&id.0, &workspace]).await?.ok_or(Error::NotFound)?;
        let mut ended = vec![id];
        audit_revoked(&transaction, &row, actor, None).await?;
        // A key that was created meanwhile is visible once its creator's row was updated, because creating it locked
        // that row. So the search is repeated until it finds nothing.
        loop {
            let rows = transaction.query(sql!("api_key/revoke_descendants"), &[&id.0]).await?;
            if rows.is_empty() {
                break;
            }
            for row in &rows {
                ended.push(audit_revoked(&transaction, row, actor, Some(id)).await?);
            }
        }
        transaction.commit().await?;
        Ok(ended)
    }

    /// Is there a stored root key?
    pub async fn has_root_key(&self) -> Result<bool, Error> {
        Ok(self.one(sql!("api_key/any_root"), &[]).await?.try_get(0)?)
    }
}

/// The expiry of the new key, or why its creator may not create it.
async fn within_limits(
    transaction: &Transaction<'_>,
    workspace: Option<WorkspaceId>,
    asked: Option<Timestamp>,
    creator: &KeyCreator<'_>,
) -> Result<Result<Option<Timestamp>, Denied>, Error> {
    let mut limit = None;
    if let Some(key) = creator.key {
        let Some(row) = transaction.query_opt(sql!("api_key/lock"), &[&key.0]).await? else {
            return Ok(Err(Denied::CreatorInactive));
        };
        limit = row.try_get("expires_at")?;
    }
    if let Some(workspace) = workspace.filter(|_| creator.max_active < i64::MAX) {
        transaction.query_opt(sql!("workspace/lock"), &[&workspace.0]).await?;
        let row = transaction.query_one(sql!("api_key/count_active"), &[&workspace.0, &creator.max_active]).await?;
        if row.try_get::<_, i64>("active")? >= creator.max_active {
            return Ok(Err(Denied::TooMany { most: creator.max_active }));
        }
    }
    Ok(access::child_expiry(limit, asked).map_err(|ExpiryTooLate(limit)| Denied::Outlives { limit }))
}

/// Writes the audit row of a revoked key; the key may have been revoked with its creator.
async fn audit_revoked(
    transaction: &Transaction<'_>,
    row: &Row,
    actor: &str,
    with: Option<KeyId>,
) -> Result<KeyId, Error> {
    let id = KeyId(row.try_get("id")?);
    let owner = row.try_get::<_, Option<Uuid>>("workspace_id")?.map(WorkspaceId);
    let mut detail = json!({ "name": row.try_get::<_, String>("name")? });
    if let Some(with) = with {
        detail["with"] = json!(with);
    }
    audit(transaction, owner, actor, "key.revoke", "key", id.0, &detail).await?;
    Ok(id)
}

fn scopes_of(row: &Row, workspace: Option<WorkspaceId>) -> Result<Scopes, Error> {
    if workspace.is_none() {
        return Ok(Scopes::all());
    }
    let names: Vec<String> = row.try_get("scopes")?;
    let known = |name: &String| Scope::parse(name).ok_or_else(|| Error::Corrupt(format!("scope is {name:?}")));
    names.iter().map(known).collect()
}

fn listed_of(row: &Row) -> Result<KeySummary, Error> {
    let workspace = row.try_get::<_, Option<Uuid>>("workspace_id")?.map(WorkspaceId);
    Ok(KeySummary {
        id: KeyId(row.try_get("id")?),
        workspace,
        name: row.try_get("name")?,
        prefix: row.try_get("prefix")?,
        scopes: scopes_of(row, workspace)?,
        created_at: row.try_get("created_at")?,
        created_by: row.try_get("created_by")?,
        expires_at: row.try_get("expires_at")?,
        last_used_at: row.try_get("last_used_at")?,
    })
}
