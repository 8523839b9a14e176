//! Secrets of workspaces: encrypted before they are stored, decrypted for the call that sends them.
//!
//!     outer key (configuration) ──encrypts──▶ data key (one per version) ──encrypts──▶ value
//!
//! Invariants
//! - A secret in clear exists only in zeroized memory, inside the call that sets it or sends it.
//! - No error contains a value or a key, only names and key ids.
//! - Without an outer key no secret can be set or decrypted. All other functions of the service work.
//! - Changing the outer key re-encrypts data keys only. It never decrypts a value.
//!
//! Not here: rows (`store::access::secret`), the ciphers (`seal`), masking what comes back (`mask`).

mod hosts;
mod keys;
mod seal;

use std::collections::BTreeSet;
use std::time::Duration;

use kernel::access::secret::Secrets;
use kernel::ids::{ExecutionId, NodeKey, WorkspaceId};
use store::Store;
use store::access::secret::{Sealed, SecretSummary};
use store::wait::WaitKey;
use uuid::Uuid;
use zeroize::Zeroizing;

pub use hosts::HostLimit;
pub use keys::{InvalidKeys, OuterKeys, generate};

/// The maximum length of a value, in bytes.
pub const MAX_VALUE_BYTES: usize = 64 << 10;
/// The maximum length of a name.
pub const MAX_NAME_LEN: usize = 128;
/// How long the address of a callback works. The deadline of the execution always comes earlier.
const LONGEST_CALLBACK: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// How often setting a secret is tried while other clients set the same secret at the same time.
const TRIES: usize = 5;
/// The maximum number of key ids that are checked: more than any operator uses.
const MOST_KEYS: i64 = 100;
/// How many data keys are re-encrypted per batch.
const BATCH: i64 = 200;

/// Why a secret could not be set, decrypted or re-encrypted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no key for encrypting secrets is configured: set secrets.key_file (see docs/reference/secrets.md)")]
    NoKey,
    #[error("a secret's name has 1 to {MAX_NAME_LEN} letters, digits and _, and does not start with a digit")]
    InvalidName,
    #[error("a secret's value has 1 to {MAX_VALUE_BYTES} bytes and no NUL character")]
    InvalidValue,
    #[error("hosts: give at most {} host names or addresses without a port, such as api.example.com", hosts::MOST)]
    InvalidHosts,
    #[error("there is no secret {}", .0.join(", "))]
    UnknownSecret(Vec<String>),
    #[error("secret {name} was encrypted with the key {key_id}, which is not in secrets.key_file; add that key")]
    UnknownKey { name: String, key_id: String },
    #[error("secret {0} cannot be decrypted: its row was altered, or its key id now has another key; set it again")]
    CannotDecrypt(String),
    #[error("callbacks need the public address of this service: set http.public_url")]
    NoPublicUrl,
    #[error("secret {0} is being set by several clients at once; try again")]
    SetConcurrently(String),
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// The result of re-encrypting data keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reencrypted {
    pub resealed: u64,
    /// The secrets that could not be decrypted, as `WORKSPACE NAME`, with the key's id.
    pub unopened: Vec<(String, String)>,
}

/// Encrypts and decrypts secrets. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Vault {
    store: Store,
    keys: OuterKeys,
}

impl Vault {
    pub fn new(store: Store, keys: OuterKeys) -> Vault {
        Vault { store, keys }
    }

    /// Sets a secret: creates its first version, or the next one. `hosts` lists the hosts that the secret may be sent
    /// to. An empty list permits every host; `None` leaves the list unchanged.
    pub async fn set(
        &self,
        workspace: WorkspaceId,
        name: &str,
        value: &str,
        hosts: Option<&[String]>,
        actor: &str,
    ) -> Result<SecretSummary, Error> {
        let hosts = hosts.map(hosts::normal).transpose()?;
        if !is_name(name) {
            return Err(Error::InvalidName);
        }
        if value.is_empty() || value.len() > MAX_VALUE_BYTES || value.contains('\0') {
            return Err(Error::InvalidValue);
        }
        let key = self.keys.first().ok_or(Error::NoKey)?;
        for _ in 0..TRIES {
            let version = self.store.next_secret_version(workspace, name).await?;
            let sealed = seal::seal(key, workspace, name, version, value.as_bytes());
            if let Some(listed) = self.store.set_secret_for(&sealed, hosts.as_deref(), actor).await? {
                return Ok(listed);
            }
        }
        Err(Error::SetConcurrently(name.to_owned()))
    }

    /// Creates an address, with a new token, at which a waiting node can be answered. If this process dies before it
    /// sends the address, nobody ever knows the token.
    pub async fn callback(
        &self,
        execution: ExecutionId,
        node: &str,
        public_url: Option<&str>,
    ) -> Result<Zeroizing<String>, Error> {
        let base = public_url.ok_or(Error::NoPublicUrl)?;
        let node = NodeKey::new(node).map_err(|_| Error::InvalidName)?;
        let wait = WaitKey { execution, node, iteration: 0 };
        let minted = self.store.create_token(&wait, None, LONGEST_CALLBACK, "engine").await?;
        Ok(Zeroizing::new(format!("{}/answers/{}", base.trim_end_matches('/'), minted.token.expose())))
    }

    /// Reads and decrypts secrets of a workspace. Fails if any of them does not exist or cannot be decrypted.
    pub async fn open(&self, workspace: WorkspaceId, names: &BTreeSet<String>) -> Result<Secrets, Error> {
        Ok(self.open_sealed(&self.sealed(workspace, names).await?)?.0)
    }

    /// Reads secrets of a workspace without decrypting them. Fails if this process lacks the outer key of one of them.
    pub async fn sealed(&self, workspace: WorkspaceId, names: &BTreeSet<String>) -> Result<Vec<Sealed>, Error> {
        let wanted: Vec<&str> = names.iter().map(String::as_str).collect();
        let found = self.store.sealed_secrets(workspace, &wanted).await?;
        let missing = names.iter().filter(|name| !found.iter().any(|sealed| sealed.name == **name));
        let missing: Vec<String> = missing.cloned().collect();
        if !missing.is_empty() {
            return Err(Error::UnknownSecret(missing));
        }
        found.iter().try_for_each(|sealed| self.key_of(sealed).map(drop))?;
        Ok(found)
    }

    /// Decrypts the secrets that `sealed` read. Also returns the hosts that each secret is limited to. Never waits.
    pub fn open_sealed(&self, found: &[Sealed]) -> Result<(Secrets, Vec<HostLimit>), Error> {
        let bound = |sealed: &Sealed| Some(HostLimit { name: sealed.name.clone(), hosts: sealed.hosts.clone()? });
        let bounds = found.iter().filter_map(bound).collect();
        let opened = found.iter().map(|sealed| Ok((sealed.name.clone(), self.unseal(sealed)?)));
        Ok((opened.collect::<Result<Secrets, Error>>()?, bounds))
    }

    /// Encrypts a value that is not stored among the workspace's secrets. The result can only be decrypted under this
    /// name and version.
    pub fn seal(&self, workspace: WorkspaceId, name: &str, version: i32, value: &str) -> Result<Sealed, Error> {
        let key = self.keys.first().ok_or(Error::NoKey)?;
        Ok(seal::seal(key, workspace, name, version, value.as_bytes()))
    }

    /// Decrypts a value that `seal` encrypted.
    pub fn unseal(&self, sealed: &Sealed) -> Result<Zeroizing<String>, Error> {
        seal::open(sealed, self.key_of(sealed)?).ok_or_else(|| Error::CannotDecrypt(sealed.name.clone()))
    }

    /// Re-encrypts every data key with the first outer key, in batches. `progress` receives the count so far. This
    /// function may be interrupted, be repeated, and run while secrets are set and used.
    pub async fn reseal(&self, mut progress: impl FnMut(u64)) -> Result<Reencrypted, Error> {
        let first = self.keys.first().ok_or(Error::NoKey)?;
        let mut done = Reencrypted::default();
        let mut after = (WorkspaceId(Uuid::nil()), String::new());
        loop {
            let some = self.store.secrets_to_reencrypt(&first.id, (after.0, &after.1), BATCH).await?;
            let Some(last) = some.last() else { break };
            after = (last.workspace, last.name.clone());
            for sealed in &some {
                let Some(key) = self.keys.of(&sealed.key_id).and_then(|key| seal::reseal(sealed, key, first)) else {
                    done.unopened.push((format!("{} {}", sealed.workspace, sealed.name), sealed.key_id.clone()));
                    continue;
                };
                if self.store.reencrypt_secret(sealed, &key, &first.id).await? {
                    done.resealed += 1;
                }
            }
            progress(done.resealed);
        }
        self.reseal_webhooks(first, done, progress).await
    }

    /// Re-encrypts the data keys of the secrets that sign webhook messages, in the same way.
    async fn reseal_webhooks(
        &self,
        first: &keys::OuterKey,
        mut done: Reencrypted,
        mut progress: impl FnMut(u64),
    ) -> Result<Reencrypted, Error> {
        let mut after = (Uuid::nil(), 0);
        loop {
            let some = self.store.webhook_secrets_to_reencrypt(&first.id, after, BATCH).await?;
            let Some((webhook, last)) = some.last() else { return Ok(done) };
            after = (*webhook, last.version);
            for (webhook, sealed) in &some {
                let Some(key) = self.keys.of(&sealed.key_id).and_then(|key| seal::reseal(sealed, key, first)) else {
                    done.unopened.push((format!("{} {}", sealed.workspace, sealed.name), sealed.key_id.clone()));
                    continue;
                };
                if self.store.reencrypt_webhook_secret(*webhook, sealed, &key, &first.id).await? {
                    done.resealed += 1;
                }
            }
            progress(done.resealed);
        }
    }

    /// The ids of outer keys that stored secrets need, but that this process lacks or knows with other bytes.
    pub async fn missing_keys(&self) -> Result<BTreeSet<String>, store::Error> {
        let mut samples = self.store.secret_key_samples(MOST_KEYS).await?;
        samples.extend(self.store.webhook_key_samples(MOST_KEYS).await?);
        let opens = |sealed: &Sealed| self.keys.of(&sealed.key_id).is_some_and(|key| seal::opens(sealed, key));
        Ok(samples.into_iter().filter(|sealed| !opens(sealed)).map(|sealed| sealed.key_id).collect())
    }

    fn key_of(&self, sealed: &Sealed) -> Result<&keys::OuterKey, Error> {
        let Sealed { name, key_id, .. } = sealed;
        if self.keys.first().is_none() {
            return Err(Error::NoKey);
        }
        self.keys.of(key_id).ok_or_else(|| Error::UnknownKey { name: name.clone(), key_id: key_id.clone() })
    }
}

/// True if the text is a valid name of a secret: it has the form of an environment variable.
pub fn is_name(text: &str) -> bool {
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && text.len() <= MAX_NAME_LEN && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
