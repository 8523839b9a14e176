//! Profiles: servers and their keys, by name, in private files of this user.
//!
//!     <config>/forebay/NAME.json   one profile      <config>/forebay/current   the name that `profile use` chose
//!
//! Invariants
//! - Only its owner can read the file of a profile. A write replaces the file completely or not at all.
//! - A process that reads a profile and then writes it holds the lock in between.
//! - A profile that `dev` wrote is marked as such: `dev` never replaces a profile of the user.
//!
//! Not here: when a profile is used (`client::connection`), which one `dev` may write (`dev::own_profile`).

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::client::ApiKey;

/// The profile that is used if no other is chosen.
pub(crate) const DEFAULT: &str = "dev";
const CURRENT: &str = "current";
const LOCK: &str = ".lock";
const ENDING: &str = ".json";

/// A server and its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Profile {
    pub(crate) server: String,
    pub(crate) key: ApiKey,
    /// The `forebay dev` that wrote the profile. None: the user wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dev: Option<Dev>,
}

/// The `forebay dev` that a profile belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Dev {
    /// The data directory of that `dev`. None: it runs with `--ephemeral`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) data_dir: Option<PathBuf>,
}

/// The profiles of a user.
#[derive(Debug)]
pub(crate) struct Profiles {
    directory: PathBuf,
}

/// Held while a profile is read and then written.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

/// Checks the name of a profile.
pub(crate) fn read_name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let good = (1..=64).contains(&text.len()) && text.chars().all(fits) && !text.starts_with(['.', '-']);
    if good {
        Ok(text.to_owned())
    } else {
        Err("use at most 64 letters, digits, '-', '_' and '.', and start with a letter, a digit or '_'".to_owned())
    }
}

impl Profiles {
    /// The profiles below `$XDG_CONFIG_HOME`, or `~/.config`. None: there is no home directory.
    pub(crate) fn of_user() -> Option<Profiles> {
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let config = absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")))?;
        Some(Profiles { directory: config.join("forebay") })
    }

    /// The profiles of the user; an error without a home directory.
    pub(crate) fn required() -> anyhow::Result<Profiles> {
        Profiles::of_user().context("find the directory for profiles: neither XDG_CONFIG_HOME nor HOME is set")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}{ENDING}"))
    }

    /// The profile of this name, if it exists.
    pub(crate) fn load(&self, name: &str) -> anyhow::Result<Option<Profile>> {
        let path = self.path(name);
        let read = || -> anyhow::Result<Option<Profile>> {
            Ok(read_if_there(&path)?.map(|text| serde_json::from_str(&text)).transpose()?)
        };
        read().with_context(|| format!("read {} (delete this file, or give --server and --key)", path.display()))
    }

    pub(crate) fn save(&self, name: &str, profile: &Profile) -> anyhow::Result<PathBuf> {
        let path = self.path(name);
        self.write(&path, &serde_json::to_string(profile)?)?;
        Ok(path)
    }

    /// Removes a profile. If it was the chosen one, none is chosen. Returns whether it existed.
    pub(crate) fn remove(&self, name: &str) -> anyhow::Result<bool> {
        if self.chosen()?.as_deref() == Some(name) {
            remove_if_there(&self.directory.join(CURRENT))?;
        }
        remove_if_there(&self.path(name))
    }

    /// Removes a profile if it still has this content.
    pub(crate) fn remove_own(&self, name: &str, own: &Profile) -> anyhow::Result<()> {
        let _lock = self.lock()?;
        if self.load(name)?.as_ref() == Some(own) {
            self.remove(name)?;
        }
        Ok(())
    }

    /// The name that was chosen with `profile use`, if one was.
    pub(crate) fn chosen(&self) -> anyhow::Result<Option<String>> {
        let path = self.directory.join(CURRENT);
        let text = read_if_there(&path).with_context(|| format!("read {}", path.display()))?;
        Ok(text.and_then(|text| read_name(text.trim()).ok()))
    }

    /// The name of the profile that commands use by default.
    pub(crate) fn current(&self) -> anyhow::Result<String> {
        Ok(self.chosen()?.unwrap_or_else(|| DEFAULT.to_owned()))
    }

    pub(crate) fn choose(&self, name: &str) -> anyhow::Result<()> {
        self.write(&self.directory.join(CURRENT), name)
    }

    /// All names, sorted.
    pub(crate) fn names(&self) -> anyhow::Result<Vec<String>> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.with_context(|| format!("read {}", self.directory.display()))?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let file = entry?.file_name().to_string_lossy().into_owned();
            names.extend(file.strip_suffix(ENDING).and_then(|name| read_name(name).ok()));
        }
        names.sort();
        Ok(names)
    }

    /// Waits for the lock.
    pub(crate) fn lock(&self) -> anyhow::Result<Lock> {
        self.make_directory()?;
        let path = self.directory.join(LOCK);
        let file = fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.with_context(|| format!("open {}", path.display()))?;
        file.lock().with_context(|| format!("lock {}", path.display()))?;
        Ok(Lock { _file: file })
    }

    fn write(&self, path: &Path, text: &str) -> anyhow::Result<()> {
        self.make_directory()?;
        write_private(path, text).with_context(|| format!("write {}", path.display()))
    }

    fn make_directory(&self) -> anyhow::Result<()> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory);
        made.with_context(|| format!("create {}", self.directory.display()))
    }
}

/// Replaces a file atomically; only its owner can read it.
pub(crate) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = write_draft(&draft, text).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // The caller gets the error of the write, not that of removing the temporary file. If that file stays, only its
        // owner can read it.
        let _ = fs::remove_file(&draft);
    }
    written
}

/// Writes the new content to a file beside the old one. A draft that a dead process with the same process id left is
/// removed first.
fn write_draft(draft: &Path, text: &str) -> io::Result<()> {
    remove_if_there(draft).map_err(io::Error::other)?;
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
    writeln!(file, "{text}")?;
    file.sync_all()
}

fn read_if_there(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn remove_if_there(path: &Path) -> anyhow::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("remove {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn profile(server: &str, key: &str) -> Profile {
        let key = key.parse().unwrap_or_else(|never| match never {});
        Profile { server: server.to_owned(), key, dev: None }
    }

    fn empty() -> (tempfile::TempDir, Profiles) {
        let home = tempfile::tempdir().expect("a directory");
        let profiles = Profiles { directory: home.path().join("forebay") };
        (home, profiles)
    }

    #[test]
    fn a_profile_is_private_replaced_whole_and_removed_by_its_owner_only() -> anyhow::Result<()> {
        let (_home, profiles) = empty();
        assert_eq!(profiles.load("dev")?, None);
        let (first, second) = (profile("http://127.0.0.1:1", "first"), profile("http://127.0.0.1:2", "second"));
        profiles.save("dev", &first)?;
        profiles.save("dev", &second)?;
        assert_eq!(profiles.load("dev")?.as_ref(), Some(&second));
        assert_eq!(fs::metadata(profiles.path("dev"))?.permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(&profiles.directory)?.permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(&profiles.directory)?.count(), 1, "no draft is left");
        profiles.remove_own("dev", &first)?;
        assert_eq!(profiles.load("dev")?.as_ref(), Some(&second));
        profiles.remove_own("dev", &second)?;
        assert_eq!(profiles.load("dev")?, None);
        assert!(!profiles.remove("dev")?);
        Ok(())
    }

    #[test]
    fn the_chosen_profile_is_used_until_it_is_removed() -> anyhow::Result<()> {
        let (_home, profiles) = empty();
        assert_eq!((profiles.current()?.as_str(), profiles.names()?.len()), ("dev", 0));
        for name in ["prod", "dev"] {
            profiles.save(name, &profile("http://e.test", "k"))?;
        }
        profiles.choose("prod")?;
        assert_eq!((profiles.current()?.as_str(), profiles.names()?.join(" ")), ("prod", "dev prod".to_owned()));
        assert!(profiles.remove("prod")?);
        assert_eq!(profiles.current()?, "dev");
        Ok(())
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error() -> anyhow::Result<()> {
        let (_home, profiles) = empty();
        profiles.make_directory()?;
        fs::write(profiles.path("dev"), "{")?;
        assert!(profiles.load("dev").is_err());
        Ok(())
    }

    #[test]
    fn a_name_is_a_file_name_of_this_directory() {
        for name in ["dev", "dev-7500", "a.b_C"] {
            assert!(read_name(name).is_ok(), "{name}");
        }
        for name in ["", ".lock", "../dev", "a/b", "-x", "é", &"a".repeat(65)] {
            assert!(read_name(name).is_err(), "{name}");
        }
    }
}
