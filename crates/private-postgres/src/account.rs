//! The system user the server runs as: ourselves, or `postgres` if we are root, whom it refuses.
//!
//! Not here: becoming that user (`child`), which only the re-executed process does.

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

    /// Makes a directory that only this account can enter; `AlreadyExists` is the caller's to judge.
    pub(super) fn make_dir(&self, dir: &Path) -> io::Result<()> {
        fs::DirBuilder::new().mode(0o700).create(dir)?;
        self.own(dir)
    }

    /// Does not follow links: the server's user could have put one there for us, who may be root.
    pub(super) fn own(&self, path: &Path) -> io::Result<()> {
        if geteuid() == self.uid {
            return Ok(());
        }
        lchown(path, Some(self.uid.as_raw()), Some(self.gid.as_raw()))
    }

    /// Whether what `owner` has may be used: it is the server's, or ours to give to it.
    pub(super) fn accepts_owner(&self, owner: u32) -> bool {
        owner == self.uid.as_raw() || owner == geteuid().as_raw()
    }

    /// Fails on the first directory above `dir` that this account may not pass through.
    pub(super) fn check_reach(&self, dir: &Path) -> Result<(), Error> {
        if geteuid() == self.uid {
            return Ok(()); // Made by us, hence reached by us.
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

    /// A directory nobody has used before, for this account only.
    pub(super) fn make_fresh_dir(&self, parent: &Path, prefix: &str) -> Result<PathBuf, Error> {
        let dir = parent.join(format!("{prefix}{}", uuid::Uuid::new_v4().simple()));
        self.make_dir(&dir).map_err(Error::io_at("make directory", &dir))?;
        Ok(dir)
    }
}
