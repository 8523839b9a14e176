//! API keys: random, prefixed, shown once, hashed at rest.
//!
//! Invariants
//! - The secret never leaves the call that made it; a stored key cannot be turned back into one.
//! - A key is 256 random bits, so a fast hash keeps it safe; its check sum tells a typo from a wrong key.
//!
//! Not here: what a key allows (`server::http::auth`).

use std::fmt;

use kernel::ids::{KeyId, WorkspaceId};
use serde_json::json;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use uuid::Uuid;

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
        let mut bytes = [0u8; 32];
        getrandom::fill(&mut bytes).map_err(|error| Error::Unavailable(Box::new(error)))?;
        let body = hex(&bytes);
        let sum = check_sum(&body);
        Ok(Secret(format!("{PREFIX}{body}{sum}")))
    }

    /// Reads a key, refusing what cannot be one without asking the database.
    pub fn parse(text: &str) -> Result<Secret, Malformed> {
        let body = text.strip_prefix(PREFIX).ok_or(Malformed)?;
        if body.len() != 72 || !body.bytes().all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase()) {
            return Err(Malformed);
        }
        let (secret, sum) = body.split_at(64);
        if sum != check_sum(secret) {
            return Err(Malformed);
        }
        Ok(Secret(text.to_owned()))
    }

    /// The key in clear, for the one who may see it once.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// What is stored instead of it.
    pub fn hash(&self) -> Vec<u8> {
        Sha256::digest(self.0.as_bytes()).to_vec()
    }

    /// Compares with another in a time that tells nothing.
    pub fn is(&self, other: &Secret) -> bool {
        self.hash().ct_eq(&other.hash()).into()
    }
}

fn check_sum(body: &str) -> String {
    hex(&Sha256::digest(body.as_bytes())[..4])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A living key: of a workspace, or a root key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    pub id: KeyId,
    pub workspace: Option<WorkspaceId>,
}

impl Store {
    /// Stores a key by its hash. An unknown workspace is refused data.
    pub async fn create_key(
        &self,
        workspace: Option<WorkspaceId>,
        name: &str,
        secret: &Secret,
        actor: &str,
    ) -> Result<KeyId, Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let id = KeyId(new_id());
        let owner = workspace.map(|workspace| workspace.0);
        transaction.execute(sql!("api_key/create"), &[&id.0, &owner, &name, &secret.hash()]).await?;
        audit(&transaction, workspace, actor, "key.create", "key", id.0, &json!({ "name": name })).await?;
        transaction.commit().await?;
        Ok(id)
    }

    /// The living key of this secret.
    pub async fn find_key(&self, secret: &Secret) -> Result<Key, Error> {
        let row = self.one(sql!("api_key/find"), &[&secret.hash()]).await?;
        Ok(Key { id: KeyId(row.try_get(0)?), workspace: row.try_get::<_, Option<Uuid>>(1)?.map(WorkspaceId) })
    }

    /// Is there a stored root key?
    pub async fn has_root_key(&self) -> Result<bool, Error> {
        Ok(self.one(sql!("api_key/any_root"), &[]).await?.try_get(0)?)
    }
}
