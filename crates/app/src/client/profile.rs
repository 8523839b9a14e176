//! The server and key that `forebay dev` leaves for commands beside it.
//!
//! Invariants
//! - Only its owner can read the file; it is replaced whole or not at all.
//! - Whoever removes it removes only what is about its own server.
//!
//! Not here: when it is used (`client::connection`).

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::connection::{Secret, read_server};

/// A server and the key it takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Profile {
    pub(crate) server: String,
    pub(crate) key: Secret,
}

/// `$XDG_CONFIG_HOME/forebay/dev.json` or `~/.config/forebay/dev.json`; none without a home.
pub(crate) fn path() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")))?;
    Some(config.join("forebay").join("dev.json"))
}

/// Keeps a server's address and key for the commands of this user.
pub(crate) fn save(server: &str, key: &str) -> anyhow::Result<PathBuf> {
    let path = path().context("find a place for the key: neither XDG_CONFIG_HOME nor HOME is set")?;
    save_to(&path, server, key).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

/// What was kept, if anything.
pub(crate) fn load() -> anyhow::Result<Option<Profile>> {
    let Some(path) = path() else { return Ok(None) };
    let advice = || format!("read {} (remove it, or give --server and --key)", path.display());
    load_from(&path).with_context(advice)
}

/// Forgets what was kept for this server; what another server left stays.
pub(crate) fn remove(server: &str) -> anyhow::Result<()> {
    let Some(path) = path() else { return Ok(()) };
    remove_from(&path, server).with_context(|| format!("remove {}", path.display()))
}

fn save_to(path: &Path, server: &str, key: &str) -> anyhow::Result<()> {
    let server = read_server(server).map_err(anyhow::Error::msg)?;
    let directory = path.parent().context("a file has a directory")?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let text = serde_json::to_string(&serde_json::json!({ "server": server, "key": key }))?;
    let draft = directory.join(format!(".dev.json.{}", std::process::id()));
    let written = write_private(&draft, &text).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // The error that counts is the write's; a draft that cannot be removed either is no secret to others.
        let _ = fs::remove_file(&draft);
    }
    Ok(written?)
}

/// A draft that a dead process of our id left is in the way and of no use.
fn write_private(draft: &Path, text: &str) -> io::Result<()> {
    if let Err(error) = fs::remove_file(draft)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
    writeln!(file, "{text}")?;
    file.sync_all()
}

fn load_from(path: &Path) -> anyhow::Result<Option<Profile>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(serde_json::from_str(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn remove_from(path: &Path, server: &str) -> anyhow::Result<()> {
    let server = read_server(server).map_err(anyhow::Error::msg)?;
    if load_from(path)?.is_some_and(|profile| profile.server == server) {
        fs::remove_file(path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_kept_key_is_private_replaced_whole_and_removed_by_its_server_only() -> anyhow::Result<()> {
        let home = tempfile::tempdir()?;
        let path = home.path().join("forebay").join("dev.json");
        assert_eq!(load_from(&path)?, None);
        save_to(&path, "http://127.0.0.1:1/", "first")?;
        save_to(&path, "http://127.0.0.1:2", "second")?;
        let kept = load_from(&path)?.context("it was kept")?;
        assert_eq!((kept.server.as_str(), kept.key.expose()), ("http://127.0.0.1:2", "second"));
        assert_eq!(fs::metadata(&path)?.permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(home.path().join("forebay"))?.count(), 1);
        remove_from(&path, "http://127.0.0.1:1")?;
        assert!(path.exists());
        remove_from(&path, "http://127.0.0.1:2/")?;
        assert!(!path.exists());
        remove_from(&path, "http://127.0.0.1:2")?;
        Ok(())
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error() -> anyhow::Result<()> {
        let home = tempfile::tempdir()?;
        let path = home.path().join("dev.json");
        fs::write(&path, "{")?;
        assert!(load_from(&path).is_err());
        Ok(())
    }
}
