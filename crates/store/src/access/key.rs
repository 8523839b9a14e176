//! API keys: random, prefixed, shown once, hashed at rest.
//!
//! Invariants
//! - The secret never leaves the call that made it; a stored key cannot be turned back into one.
//! - A key is 256 random bits, so a fast hash keeps it safe; its check sum tells a typo from a wrong key.
//!
//! - A revoked or expired key is not found. What a key's use and end leave behind is in its row and the
//!   audit log.
//! - A key that another key made expires no later than that one, and is revoked with it. Whoever makes a key holds its
//!   maker's row, and a revocation looks again until it finds nothing more, so no child escapes by being made
//!   meanwhile.
//!
//! Not here: what a scope allows (`kernel::access`, `server::http::access`).

use std::fmt;

use deadpool_postgres::Transaction;
use jiff::Timestamp;
use kernel::access::{self, Outlives, Scope, Scopes};
use kernel::ids::{KeyId, WorkspaceId};
use serde_json::json;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::access::token::{minted, well_formed};
use crate::sql::sql;
use crate::workspace::audit;
use crate::{Error, Store, new_id};

/// What every key starts with, so that one is known when it is found where it should not be.
const PREFIX: &str = "fbk_";

/// A key in clear: never logged, never stored.
#[derive(Clone)]
pub struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A text that cannot be a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not an API key: one looks like {PREFIX} and 72 letters and digits (was it cut off?)")]
pub struct Malformed;

impl Secret {
    /// A new random key.
    pub fn generate() -> Result<Secret, Error> {
        minted(PREFIX).map(Secret)
    }

    /// Reads a key, refusing what cannot be one without asking the database.
    pub fn parse(text: &str) -> Result<Secret, Malformed> {
        if well_formed(PREFIX, text) { Ok(Secret(text.to_owned())) } else { Err(Malformed) }
    }

    /// The key in clear, for the one who may see it once.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// How it begins: enough to tell keys apart, too little to guess one.
    pub fn prefix(&self) -> &str {
        &self.0[..PREFIX.len() + 8]
    }

    /// What is stored instead of it.
    pub fn hash(&self) -> Vec<u8> {
        Sha256::digest(self.0.as_bytes()).to_vec()
    }

    /// Compares with another in constant time.
    pub fn is(&self, other: &Secret) -> bool {
        self.hash().ct_eq(&other.hash()).into()
    }
}

/// A living key: of a workspace, or a root key, which has every scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    pub id: KeyId,
    pub workspace: Option<WorkspaceId>,
    pub scopes: Scopes,
}

/// A key to be made.
#[derive(Clone, Copy, Debug)]
pub struct NewKey<'a> {
    pub workspace: Option<WorkspaceId>,
    pub name: &'a str,
    pub scopes: Scopes,
    pub expires_at: Option<Timestamp>,
}

/// Who makes a key, and within which bound.
#[derive(Clone, Copy, Debug)]
pub struct Maker<'a> {
    /// What the audit log calls it.
    pub actor: &'a str,
    /// The stored key behind the request; none for a configured root key.
    pub key: Option<KeyId>,
    /// The most keys of a workspace that may work at once.
    pub max_live: i64,
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
    #[error("the key that makes it does not work any more")]
    MakerGone,
    #[error("the key that makes it expires at {limit}")]
    Outlives { limit: Timestamp },
    #[error("the workspace has {most} keys that work")]
    TooMany { most: i64 },
}

/// A key as people read it: how it begins, never more.
#[derive(Clone, Debug)]
pub struct Listed {
    pub id: KeyId,
    pub workspace: Option<WorkspaceId>,
    pub name: String,
    pub prefix: Option<String>,
    pub scopes: Scopes,
    pub created_at: Timestamp,
    /// What the audit log calls whoever made it; not known of the oldest.
    pub created_by: Option<String>,
    pub expires_at: Option<Timestamp>,
    pub last_used_at: Option<Timestamp>,
}

impl Store {
    /// Stores a key that no other key makes, without a bound. An unknown workspace is refused data.
    pub async fn create_key(&self, new: &NewKey<'_>, secret: &Secret, actor: &str) -> Result<KeyId, Error> {
        let issued = self.issue_key(new, secret, &Maker { actor, key: None, max_live: i64::MAX }).await?;
        issued.map(|issued| issued.id).map_err(|denied| Error::Conflict(denied.to_string()))
    }

    /// Stores a key by its hash, within what its maker may. An unknown workspace is refused data.
    pub async fn issue_key(
        &self,
        new: &NewKey<'_>,
        secret: &Secret,
        maker: &Maker<'_>,
    ) -> Result<Result<Issued, Denied>, Error> {
        let NewKey { workspace, name, scopes, expires_at } = *new;
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let expires_at = match bounded(&transaction, workspace, expires_at, maker).await? {
            Ok(expires_at) => expires_at,
            Err(denied) => return Ok(Err(denied)),
        };
        let id = KeyId(new_id());
        let (owner, parent) = (workspace.map(|workspace| workspace.0), maker.key.map(|key| key.0));
        let names: Vec<&str> = scopes.list().into_iter().map(Scope::name).collect();
        transaction
            .execute(
                sql!("api_key/create"),
                &[&id.0, &owner, &name, &secret.hash(), &secret.prefix(), &names, &expires_at, &maker.actor, &parent],
            )
            .await?;
        let detail = json!({ "name": name, "scopes": names, "expiresAt": expires_at });
        audit(&transaction, workspace, maker.actor, "key.create", "key", id.0, &detail).await?;
        transaction.commit().await?;
        Ok(Ok(Issued { id, expires_at }))
    }

    /// The living key of this secret. That it was used is noted, to the minute.
    pub async fn find_key(&self, secret: &Secret) -> Result<Key, Error> {
        let row = self.one(sql!("api_key/find"), &[&secret.hash()]).await?;
        let id = KeyId(row.try_get("id")?);
        if row.try_get("unnoted")? {
            self.execute(sql!("api_key/used"), &[&id.0]).await?;
        }
        let workspace = row.try_get::<_, Option<Uuid>>("workspace_id")?.map(WorkspaceId);
        Ok(Key { id, workspace, scopes: scopes_of(&row, workspace)? })
    }

    /// Keys that were not revoked, of a workspace (none: every key there is), by id after a given one.
    pub async fn keys(
        &self,
        workspace: Option<WorkspaceId>,
        after: Option<KeyId>,
        limit: i64,
    ) -> Result<Vec<Listed>, Error> {
        let (workspace, after) = (workspace.map(|id| id.0), after.map_or(Uuid::nil(), |id| id.0));
        let rows = self.query(sql!("api_key/list"), &[&workspace, &after, &limit]).await?;
        rows.iter().map(listed_of).collect()
    }

    /// Ends a key of a workspace (none: any key) and every key made with it, and with those. Answers all that it ended.
    /// One that is unknown or ended is not found.
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
        note_revoked(&transaction, &row, actor, None).await?;
        // A child that was being made held its maker's row, so it is there once that row could be changed: look again.
        loop {
            let rows = transaction.query(sql!("api_key/revoke_below"), &[&id.0]).await?;
            if rows.is_empty() {
                break;
            }
            for row in &rows {
                ended.push(note_revoked(&transaction, row, actor, Some(id)).await?);
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

/// When the key expires, if its maker may make it.
async fn bounded(
    transaction: &Transaction<'_>,
    workspace: Option<WorkspaceId>,
    asked: Option<Timestamp>,
    maker: &Maker<'_>,
) -> Result<Result<Option<Timestamp>, Denied>, Error> {
    let mut limit = None;
    if let Some(key) = maker.key {
        let Some(row) = transaction.query_opt(sql!("api_key/hold"), &[&key.0]).await? else {
            return Ok(Err(Denied::MakerGone));
        };
        limit = row.try_get("expires_at")?;
    }
    if let Some(workspace) = workspace.filter(|_| maker.max_live < i64::MAX) {
        transaction.query_opt(sql!("workspace/hold"), &[&workspace.0]).await?;
        let row = transaction.query_one(sql!("api_key/count_live"), &[&workspace.0, &maker.max_live]).await?;
        if row.try_get::<_, i64>("live")? >= maker.max_live {
            return Ok(Err(Denied::TooMany { most: maker.max_live }));
        }
    }
    Ok(access::child_expiry(limit, asked).map_err(|Outlives(limit)| Denied::Outlives { limit }))
}

/// Leaves an audit row for a key that was ended, perhaps because the key that made it was.
async fn note_revoked(
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

fn listed_of(row: &Row) -> Result<Listed, Error> {
    let workspace = row.try_get::<_, Option<Uuid>>("workspace_id")?.map(WorkspaceId);
    Ok(Listed {
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
