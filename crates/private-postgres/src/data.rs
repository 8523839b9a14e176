//! The data directory: its owner, its lock, and its layout.
//!
//!     <data>  forebay.lock   locked by the process that uses the directory; contains the id of that process
//!             pg             the cluster      pg.tmp-*   a cluster that initdb did not finish
//!             log, log.1     the server's output since this start, and since the start before it
//!             s              the socket (`socket`)
//!
//! Invariants
//! - Nothing is changed in a directory that Forebay did not create, nor without the lock.
//! - The process that created an ephemeral directory deletes it. If that process was killed, the next ephemeral start
//!   deletes the directory.

use std::{
    fs::{self, File, OpenOptions, Permissions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    process,
};

use nix::fcntl::OFlag;

use super::{Account, Error, orphans};

const LOCK: &str = "forebay.lock";
const UNFINISHED: &str = "pg.tmp-";
const EPHEMERAL: &str = "forebay-ephemeral-";
/// How much of the end of a log an error shows: enough to see why a server ended.
const TAIL_BYTES: u64 = 4096;

#[derive(Debug)]
pub(super) struct Data {
    dir: PathBuf,
    ephemeral: bool,
    _lock: Lock,
}

impl Data {
    pub(super) fn open(dir: &Path, ephemeral: bool, account: &Account) -> Result<Data, Error> {
        let dir = if ephemeral { make_ephemeral(dir, account)? } else { make_kept(dir, account)? };
        let lock = Lock::take(&dir)?;
        let data = Data { dir, ephemeral, _lock: lock };
        account.check_reach(&data.dir)?;
        account.own(&data.dir).map_err(Error::io_at("give to the server's user", &data.dir))?;
        fs::set_permissions(&data.dir, Permissions::from_mode(0o700)).map_err(Error::io_at("close", &data.dir))?;
        Ok(data)
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn is_ephemeral(&self) -> bool {
        self.ephemeral
    }

    pub(super) fn cluster(&self) -> PathBuf {
        self.dir.join("pg")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// The major version of PostgreSQL that created the cluster. None: there is no cluster yet.
    pub(super) fn major(&self) -> Result<Option<u32>, Error> {
        let cluster = self.cluster();
        if !cluster.try_exists().map_err(Error::io_at("look for", &cluster))? {
            return Ok(None);
        }
        let version = fs::read_to_string(cluster.join("PG_VERSION")).ok();
        let major = version.and_then(|version| version.trim().parse().ok());
        major.map(Some).ok_or(Error::Damaged { cluster })
    }

    /// A new directory for `initdb`, after removing the directories of earlier unfinished runs. A name is never used
    /// twice: an earlier `initdb` that is still stopping deletes its directory by name.
    pub(super) fn unfinished_cluster(&self) -> Result<PathBuf, Error> {
        for (name, path) in entries(&self.dir)? {
            if name.starts_with(UNFINISHED) {
                fs::remove_dir_all(&path).map_err(Error::io_at("remove", &path))?;
            }
        }
        Ok(self.dir.join(format!("{UNFINISHED}{}", uuid::Uuid::new_v4().simple())))
    }

    /// Begins an empty log and keeps the previous log, so that the logs of at most two starts exist.
    pub(super) fn rotate_log(&self) -> Result<(), Error> {
        let log = self.log();
        match fs::rename(&log, self.dir.join("log.1")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Error::io_at("rename", &log)(error)),
            _ => (),
        }
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&log)
            .map_err(Error::io_at("create", &log))
            .map(drop)
    }

    /// Opens the log for a program that appends to it.
    pub(super) fn open_log(&self) -> Result<File, Error> {
        let log = self.log();
        let mut options = OpenOptions::new();
        options.append(true).custom_flags(OFlag::O_NOFOLLOW.bits()).open(&log).map_err(Error::io_at("open", &log))
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        if self.ephemeral
            && let Err(error) = fs::remove_dir_all(&self.dir)
        {
            let dir = self.dir.display();
            tracing::warn!(%error, %dir, "Data directory of a temporary database could not be removed");
        }
    }
}

/// The last whole lines of a log. Empty if the log cannot be read: its text only explains another error.
pub(super) fn tail(log: &Path) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let skipped = file.metadata()?.len().saturating_sub(TAIL_BYTES);
        file.seek(SeekFrom::Start(skipped))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        if skipped > 0 {
            let first_line = bytes.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            bytes.drain(..first_line);
        }
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).trim_end().to_owned()
}

/// Creates the directory, or checks that the existing one is Forebay's or empty. Returns its path with links resolved.
fn make_kept(dir: &Path, account: &Account) -> Result<PathBuf, Error> {
    if let Some(parent) = dir.parent() {
        fs::create_dir_all(parent).map_err(Error::io_at("make directory", parent))?;
    }
    match account.make_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(Error::io_at("make directory", dir)(error));
        }
        _ => (),
    }
    let dir = dir.canonicalize().map_err(Error::io_at("look at", dir))?;
    let owner = fs::metadata(&dir).map_err(Error::io_at("look at", &dir))?.uid();
    if !account.accepts_owner(owner) {
        return Err(Error::WrongOwner { data_dir: dir, owner });
    }
    let names: Vec<String> = entries(&dir)?.into_iter().map(|(name, _)| name).collect();
    if names.is_empty() || names.iter().any(|name| name == LOCK) {
        Ok(dir)
    } else {
        Err(Error::NotOurs { data_dir: dir })
    }
}

fn make_ephemeral(parent: &Path, account: &Account) -> Result<PathBuf, Error> {
    fs::create_dir_all(parent).map_err(Error::io_at("make directory", parent))?;
    let parent = parent.canonicalize().map_err(Error::io_at("look at", parent))?;
    for (name, path) in entries(&parent)? {
        if name.starts_with(EPHEMERAL) && is_abandoned(&path, account) {
            // Another start may be deleting the same directory. A directory that remains does no harm.
            let _ = fs::remove_dir_all(&path);
        }
    }
    account.make_fresh_dir(&parent, EPHEMERAL)
}

/// Whether the process that made this directory was killed and its server is gone.
fn is_abandoned(dir: &Path, account: &Account) -> bool {
    let ours = fs::symlink_metadata(dir).is_ok_and(|found| found.is_dir() && account.accepts_owner(found.uid()));
    // A lock file without a process id belongs to a process that is just starting: it writes its id after it locks.
    ours && read_holder(dir).is_some() && Lock::take(dir).is_ok() && !orphans::any(&dir.join("pg"))
}

fn entries(dir: &Path) -> Result<Vec<(String, PathBuf)>, Error> {
    let named = |entry: fs::DirEntry| (entry.file_name().to_string_lossy().into_owned(), entry.path());
    let read = || -> io::Result<Vec<_>> { fs::read_dir(dir)?.map(|entry| entry.map(named)).collect() };
    read().map_err(Error::io_at("read directory", dir))
}

fn read_holder(dir: &Path) -> Option<u32> {
    fs::read_to_string(dir.join(LOCK)).ok()?.trim().parse().ok()
}

/// The lock on a data directory. The operating system releases the lock if this process is killed.
#[derive(Debug)]
struct Lock(File);

impl Lock {
    fn take(dir: &Path) -> Result<Lock, Error> {
        let path = dir.join(LOCK);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlag::O_NOFOLLOW.bits())
            .open(&path)
            .map_err(Error::io_at("open", &path))?;
        match file.try_lock() {
            Ok(()) => (),
            Err(TryLockError::WouldBlock) => {
                return Err(Error::InUse { data_dir: dir.to_owned(), pid: read_holder(dir) });
            }
            Err(TryLockError::Error(error)) => return Err(Error::io_at("lock", &path)(error)),
        }
        file.set_len(0).map_err(Error::io_at("empty", &path))?;
        writeln!(file, "{}", process::id()).map_err(Error::io_at("write", &path))?;
        Ok(Lock(file))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file is not enough: a child that another thread is just spawning may still have the file open.
        let _ = self.0.unlock();
    }
}
