//! The directory of the server's Unix socket: `s` in the data directory, or a new directory elsewhere if that path is
//! too long or has special characters.
//!
//! Invariants
//! - Only the server's user (and root) can enter the directory.
//! - Its path needs no quoting in a URL or in the server's settings, and is short enough for a socket address.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{Account, Error};

pub(super) const PORT: u16 = 5432;

/// The longest path that `sockaddr_un` can hold, without its final zero byte.
const LONGEST_PATH: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

#[derive(Debug)]
pub(super) struct Socket {
    dir: String,
    /// Whether the directory was created for this start only. It is then removed when the server stops.
    is_fresh: bool,
}

impl Socket {
    pub(super) fn open(data: &Path, runtime_dir: Option<&Path>, account: &Account) -> Result<Socket, Error> {
        let usual = data.join("s");
        if let Some(dir) = suitable(&usual) {
            return match account.make_dir(&usual) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    Err(Error::io_at("make directory", &usual)(error))
                }
                _ => Ok(Socket { dir, is_fresh: false }),
            };
        }
        let dir = account.make_fresh_dir(&shorter_parent(runtime_dir, account), "forebay-")?;
        let dir = suitable(&dir).expect("the parent was chosen for it");
        Ok(Socket { dir, is_fresh: true })
    }

    pub(super) fn dir(&self) -> &str {
        &self.dir
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.is_fresh
            && let Err(error) = fs::remove_dir_all(&self.dir)
        {
            tracing::warn!(%error, dir = self.dir, "Socket directory could not be removed");
        }
    }
}

/// The path as text, if it is plain and short enough for the directory of a socket.
fn suitable(dir: &Path) -> Option<String> {
    let text = dir.to_str()?;
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte));
    let length = text.len() + format!("/.s.PGSQL.{PORT}").len();
    (plain && length <= LONGEST_PATH).then(|| text.to_owned())
}

fn shorter_parent(runtime_dir: Option<&Path>, account: &Account) -> PathBuf {
    let fits = |dir: &&Path| {
        let child = dir.join(format!("forebay-{}", uuid::Uuid::nil().simple()));
        dir.is_dir() && suitable(&child).is_some() && account.check_reach(&child).is_ok()
    };
    runtime_dir.filter(fits).unwrap_or(Path::new("/tmp")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_suits_if_it_is_short_and_plain() {
        let socket = "/.s.PGSQL.5432".len();
        let long = |length: usize| format!("/{}", "d".repeat(length - 1));
        assert!(suitable(Path::new(&long(LONGEST_PATH - socket))).is_some());
        for dir in [&long(LONGEST_PATH - socket + 1), "/with space", "/a,b", "/per%cent", "/é"] {
            assert_eq!(suitable(Path::new(dir)), None, "{dir}");
        }
    }
}
