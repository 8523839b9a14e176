//! The root key of a `dev`: made once for its data, kept beside it.
//!
//! Invariants
//! - Only its owner can read the file; the database holds a hash.
//! - A start that cannot find its key again makes another and revokes the one it replaces, so one at most works.
//!   Dying between the two leaves a key that nobody has; the next start revokes it.

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

/// Its name in the data directory.
pub(super) const FILE: &str = "root-key";
/// What the keys that are made here are called, and who the audit log says made them.
const NAME: &str = "dev";
const PAGE: i64 = 200;
const LONGEST: u64 = 1_000;

/// The key of earlier starts if it is there and still opens the store, else a new one; and whether it is new.
/// Without a file it is kept nowhere.
pub(super) async fn find_or_make(store: &Store, file: Option<&Path>) -> anyhow::Result<(Secret, bool)> {
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
        Err(error) => Err(error).context("look for the root key"),
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

/// Not through a link: the directory is the database server's, whose user may be another.
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
