//! The system user that runs the server: the current user, or `postgres` if the current user is root, because
//! PostgreSQL refuses to run as root.
//!
//! Not here: the change to that user (`child`), which only the re-executed process makes.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt, lchown},
    path::{Path, PathBuf},
};

use nix::unistd::{Gid, Uid, User, getegid, geteuid};

use super::Error;

#[derive(Debug)]
pub(super) struct Account {
    pub(super) uid: Uid,
    pub(super) gid: Gid,
}

impl Account {
    pub(super) fn of_server() -> Result<Account, Error> {
        if !geteuid().is_root() {
            return Ok(Account { uid: geteuid(), gid: getegid() });
        }
        let user = User::from_name("postgres").map_err(Error::io("look up the user postgres"))?;
        let User { uid, gid, .. } = user.ok_or(Error::NoUser)?;
        Ok(Account { uid, gid })
    }

    /// Creates a directory that only this account can enter. The caller decides whether `AlreadyExists` is an error.
    pub(super) fn make_dir(&self, dir: &Path) -> io::Result<()> {
        fs::DirBuilder::new().mode(0o700).create(dir)?;
        self.own(dir)
    }

    /// Gives a file or directory to this account. Does not follow links: if we are root, a link that the server's user
    /// put there could otherwise give it any file of the system.
    pub(super) fn own(&self, path: &Path) -> io::Result<()> {
        if geteuid() == self.uid {
            return Ok(());
        }
        lchown(path, Some(self.uid.as_raw()), Some(self.gid.as_raw()))
    }

    /// Whether a directory of this owner may be used: the owner is this account, or the current user, who can give the
    /// directory to this account.
    pub(super) fn accepts_owner(&self, owner: u32) -> bool {
        owner == self.uid.as_raw() || owner == geteuid().as_raw()
    }

    /// Checks that this account may enter every directory above `dir`. The error names the first that it may not.
    pub(super) fn check_reach(&self, dir: &Path) -> Result<(), Error> {
        if geteuid() == self.uid {
            return Ok(()); // The account is the current user, who created or opened the directory.
        }
        let above: Vec<&Path> = dir.ancestors().skip(1).collect();
        for parent in above.into_iter().rev() {
            let found = fs::metadata(parent).map_err(Error::io_at("look at", parent))?;
            let needed = if found.uid() == self.uid.as_raw() {
                0o100
            } else if found.gid() == self.gid.as_raw() {
                0o010
            } else {
                0o001
            };
            if found.mode() & needed == 0 {
                return Err(Error::Unreachable { dir: parent.to_owned() });
            }
        }
        Ok(())
    }

    /// Creates a directory with a new random name that only this account can enter.
    pub(super) fn make_fresh_dir(&self, parent: &Path, prefix: &str) -> Result<PathBuf, Error> {
        let dir = parent.join(format!("{prefix}{}", uuid::Uuid::new_v4().simple()));
        self.make_dir(&dir).map_err(Error::io_at("make directory", &dir))?;
        Ok(dir)
    }
}
