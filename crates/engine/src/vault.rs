//! Secrets of workspaces: sealed before they are stored, opened for the call that sends them.
//!
//!     outer key (configuration) ──seals──▶ data key (one a version) ──seals──▶ value
//!
//! Invariants
//! - A value in clear is in zeroising memory, in the call that sets it or sends it, and nowhere else.
//! - No error holds a value or a key; names, and ids of keys, are all it tells.
//! - Without a key nothing can be set or opened, and everything else works.
//! - Changing the outer key never opens a value.
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
use store::access::secret::{Listed, Sealed};
use store::wait::Place;
use uuid::Uuid;
use zeroize::Zeroizing;

pub use hosts::Bound;
pub use keys::{BadKeys, Keys, generate};

/// The longest value, in bytes.
pub const MAX_VALUE_BYTES: usize = 64 << 10;
/// The longest name.
pub const MAX_NAME_LEN: usize = 128;
/// As long as an execution may last; the execution's own deadline ends it sooner.
const LONGEST_CALLBACK: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// How often a value is sealed anew because another came first.
const TRIES: usize = 5;
/// How many outer keys are looked for at most: as many as an operator could ever have used.
const MOST_KEYS: i64 = 100;
/// How many data keys are sealed anew between two looks.
const BATCH: i64 = 200;

/// Why a secret was not set, opened or sealed anew.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no key to seal secrets with: set secrets.key_file (see docs/secrets.md)")]
    NoKey,
    #[error("a secret is called by letters, digits and _, at most {MAX_NAME_LEN}, and no digit first")]
    Name,
    #[error("a secret holds 1 to {MAX_VALUE_BYTES} bytes, and no NUL character")]
    Value,
    #[error("hosts: at most {} names or addresses, such as api.example.com, without a port", hosts::MOST)]
    Hosts,
    #[error("there is no secret {}", .0.join(", "))]
    Unknown(Vec<String>),
    #[error("secret {name} was sealed with the key {key_id}, which is not among secrets.key_file")]
    OtherKey { name: String, key_id: String },
    #[error("secret {0} cannot be opened: what is stored of it was changed, or the key of that id is another")]
    Broken(String),
    #[error("callbacks need this service's address: set http.public_url")]
    NoAddress,
    #[error("secret {0} is being set by others; try again")]
    Busy(String),
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// What sealing data keys anew came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resealed {
    pub resealed: u64,
    /// Those that could not be opened, as `WORKSPACE NAME`, with the key's id.
    pub unopened: Vec<(String, String)>,
}

/// Seals and opens. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Vault {
    store: Store,
    keys: Keys,
}

impl Vault {
    pub fn new(store: Store, keys: Keys) -> Vault {
        Vault { store, keys }
    }

    /// Sets a secret: its first version, or the next. `hosts`: those it may be sent to, empty for any, none to leave
    /// them as they were.
    pub async fn set(
        &self,
        workspace: WorkspaceId,
        name: &str,
        value: &str,
        hosts: Option<&[String]>,
        actor: &str,
    ) -> Result<Listed, Error> {
        let hosts = hosts.map(hosts::normal).transpose()?;
        if !is_name(name) {
            return Err(Error::Name);
        }
        if value.is_empty() || value.len() > MAX_VALUE_BYTES || value.contains('\0') {
            return Err(Error::Value);
        }
        let key = self.keys.first().ok_or(Error::NoKey)?;
        for _ in 0..TRIES {
            let version = self.store.next_secret_version(workspace, name).await?;
            let sealed = seal::seal(key, workspace, name, version, value.as_bytes());
            if let Some(listed) = self.store.set_secret_for(&sealed, hosts.as_deref(), actor).await? {
                return Ok(listed);
            }
        }
        Err(Error::Busy(name.to_owned()))
    }

    /// The address that answers a node that waits, with a new token. Whoever dies before it is sent leaves a token that
    /// nobody knows.
    pub async fn callback(
        &self,
        execution: ExecutionId,
        node: &str,
        public_url: Option<&str>,
    ) -> Result<Zeroizing<String>, Error> {
        let base = public_url.ok_or(Error::NoAddress)?;
        let node = NodeKey::new(node).map_err(|_| Error::Name)?;
        let place = Place { execution, node, iteration: 0 };
        let minted = self.store.mint_token(&place, None, LONGEST_CALLBACK, "engine").await?;
        Ok(Zeroizing::new(format!("{}/answers/{}", base.trim_end_matches('/'), minted.token.expose())))
    }

    /// Opens secrets of a workspace; all of them, or none.
    pub async fn open(&self, workspace: WorkspaceId, names: &BTreeSet<String>) -> Result<Secrets, Error> {
        Ok(self.open_sealed(&self.sealed(workspace, names).await?)?.0)
    }

    /// Secrets of a workspace as they are stored, all of them under keys that this process has.
    pub async fn sealed(&self, workspace: WorkspaceId, names: &BTreeSet<String>) -> Result<Vec<Sealed>, Error> {
        let wanted: Vec<&str> = names.iter().map(String::as_str).collect();
        let found = self.store.sealed_secrets(workspace, &wanted).await?;
        let missing = names.iter().filter(|name| !found.iter().any(|sealed| sealed.name == **name));
        let missing: Vec<String> = missing.cloned().collect();
        if !missing.is_empty() {
            return Err(Error::Unknown(missing));
        }
        found.iter().try_for_each(|sealed| self.key_of(sealed).map(drop))?;
        Ok(found)
    }

    /// Opens what `sealed` read, with what binds each to hosts. Nothing is waited for.
    pub fn open_sealed(&self, found: &[Sealed]) -> Result<(Secrets, Vec<Bound>), Error> {
        let bound = |sealed: &Sealed| Some(Bound { name: sealed.name.clone(), hosts: sealed.hosts.clone()? });
        let bounds = found.iter().filter_map(bound).collect();
        let opened = found.iter().map(|sealed| Ok((sealed.name.clone(), self.opened(sealed)?)));
        Ok((opened.collect::<Result<Secrets, Error>>()?, bounds))
    }

    /// Seals a value that is kept elsewhere than among the workspace's secrets: it opens under this name and version
    /// alone.
    pub fn seal(&self, workspace: WorkspaceId, name: &str, version: i32, value: &str) -> Result<Sealed, Error> {
        let key = self.keys.first().ok_or(Error::NoKey)?;
        Ok(seal::seal(key, workspace, name, version, value.as_bytes()))
    }

    /// Opens what `seal` sealed.
    pub fn unseal(&self, sealed: &Sealed) -> Result<Zeroizing<String>, Error> {
        self.opened(sealed)
    }

    /// Puts every data key under the first outer key, some at a time; `progress` is told how many were so far. It may
    /// be broken off, repeated, and run while secrets are set and used.
    pub async fn reseal(&self, mut progress: impl FnMut(u64)) -> Result<Resealed, Error> {
        let first = self.keys.first().ok_or(Error::NoKey)?;
        let mut done = Resealed::default();
        let mut after = (WorkspaceId(Uuid::nil()), String::new());
        loop {
            let some = self.store.secrets_under_others(first.id(), (after.0, &after.1), BATCH).await?;
            let Some(last) = some.last() else { break };
            after = (last.workspace, last.name.clone());
            for sealed in &some {
                let Some(key) = self.keys.of(&sealed.key_id).and_then(|key| seal::reseal(sealed, key, first)) else {
                    done.unopened.push((format!("{} {}", sealed.workspace, sealed.name), sealed.key_id.clone()));
                    continue;
                };
                if self.store.reseal_secret(sealed, &key, first.id()).await? {
                    done.resealed += 1;
                }
            }
            progress(done.resealed);
        }
        self.reseal_webhooks(first, done, progress).await
    }

    /// The same for what messages of webhooks are signed with.
    async fn reseal_webhooks(
        &self,
        first: &keys::Key,
        mut done: Resealed,
        mut progress: impl FnMut(u64),
    ) -> Result<Resealed, Error> {
        let mut after = (Uuid::nil(), 0);
        loop {
            let some = self.store.webhook_secrets_under_others(first.id(), after, BATCH).await?;
            let Some((webhook, last)) = some.last() else { return Ok(done) };
            after = (*webhook, last.version);
            for (webhook, sealed) in &some {
                let Some(key) = self.keys.of(&sealed.key_id).and_then(|key| seal::reseal(sealed, key, first)) else {
                    done.unopened.push((format!("{} {}", sealed.workspace, sealed.name), sealed.key_id.clone()));
                    continue;
                };
                if self.store.reseal_webhook_secret(*webhook, sealed, &key, first.id()).await? {
                    done.resealed += 1;
                }
            }
            progress(done.resealed);
        }
    }

    /// The ids of outer keys that seal something stored and that this process does not have, or has with other bytes.
    pub async fn missing_keys(&self) -> Result<BTreeSet<String>, store::Error> {
        let mut samples = self.store.secret_key_samples(MOST_KEYS).await?;
        samples.extend(self.store.webhook_key_samples(MOST_KEYS).await?);
        let opens = |sealed: &Sealed| self.keys.of(&sealed.key_id).is_some_and(|key| seal::opens(sealed, key));
        Ok(samples.into_iter().filter(|sealed| !opens(sealed)).map(|sealed| sealed.key_id).collect())
    }

    fn opened(&self, sealed: &Sealed) -> Result<Zeroizing<String>, Error> {
        seal::open(sealed, self.key_of(sealed)?).ok_or_else(|| Error::Broken(sealed.name.clone()))
    }

    fn key_of(&self, sealed: &Sealed) -> Result<&keys::Key, Error> {
        let Sealed { name, key_id, .. } = sealed;
        if self.keys.first().is_none() {
            return Err(Error::NoKey);
        }
        self.keys.of(key_id).ok_or_else(|| Error::OtherKey { name: name.clone(), key_id: key_id.clone() })
    }
}

/// Names like those of environment variables.
pub fn is_name(text: &str) -> bool {
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && text.len() <= MAX_NAME_LEN && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
