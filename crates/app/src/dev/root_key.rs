//! The root key of a `dev`: created once and saved in its data directory.
//!
//! Invariants
//! - Only its owner can read the file. The database has only a hash of the key.
//! - A start that cannot read the saved key creates a new key and revokes the old keys, so at most one key works. If
//!   the process dies before it saved the new key, the next start revokes that key.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use kernel::access::Scopes;
use kernel::ids::KeyId;
use nix::fcntl::OFlag;
use store::Store;
use store::access::key::{NewKey, Secret};

use crate::profile::write_private;

/// The name of the file in the data directory.
pub(super) const FILE: &str = "root-key";
/// The name of the keys that are created here, and the actor in the audit log.
const NAME: &str = "dev";
const PAGE: i64 = 200;
const LONGEST: u64 = 1_000;

/// Returns the saved key if it still works, else a new key, and whether it is new. Without `file` it is not saved.
pub(super) async fn find_or_create(store: &Store, file: Option<&Path>) -> anyhow::Result<(Secret, bool)> {
    let kept = file.map(read).transpose()?.flatten();
    if let Some(secret) = kept
        && opens(store, &secret).await?
    {
        return Ok((secret, false));
    }
    let secret = Secret::generate()?;
    let root = NewKey { workspace: None, name: NAME, scopes: Scopes::all(), expires_at: None };
    let id = store.create_key(&root, &secret, NAME).await?;
    if let Some(file) = file {
        write_private(file, secret.expose()).with_context(|| format!("write {}", file.display()))?;
    }
    revoke_others(store, id).await?;
    Ok((secret, true))
}

async fn opens(store: &Store, secret: &Secret) -> anyhow::Result<bool> {
    match store.find_key(secret).await {
        Ok(key) => Ok(key.workspace.is_none()),
        Err(store::Error::NotFound) => Ok(false),
        Err(error) => Err(error).context("read the root key"),
    }
}

async fn revoke_others(store: &Store, own: KeyId) -> anyhow::Result<()> {
    let mut after = None;
    loop {
        let page = store.keys(None, after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.id);
        for key in page.iter().filter(|key| key.workspace.is_none() && key.name == NAME && key.id != own) {
            store.revoke_key(key.id, None, NAME).await?;
        }
    }
}

/// Reads the saved key. Does not follow links: the directory belongs to the user of the database server, who may be
/// another user and could have put a link there.
fn read(file: &Path) -> anyhow::Result<Option<Secret>> {
    let opened = OpenOptions::new().read(true).custom_flags(OFlag::O_NOFOLLOW.bits()).open(file);
    let opened = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.with_context(|| format!("read {}", file.display()))?,
    };
    let mut text = String::new();
    opened.take(LONGEST).read_to_string(&mut text).with_context(|| format!("read {}", file.display()))?;
    Ok(Secret::parse(text.trim()).ok())
}
