//! Why the private server cannot start or stop. Where the user can do something about an error, its message says what.
//!
//! Not here: errors of statements on a running server (`store::Error`).

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitStatus,
};

use super::binaries::OLDEST_MAJOR;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("install PostgreSQL 15 or later (Debian: apt-get install postgresql), or pass --database-url")]
    NotFound,

    #[error("no postgres and initdb of version {OLDEST_MAJOR} or later in {}: correct FOREBAY_PG_BIN, or unset it",
        dir.display())]
    NotInGivenDir { dir: PathBuf },

    #[error("the data in {} is from PostgreSQL {data}, but only {found} is installed: {}", data_dir.display(),
        advice_on_version(*data))]
    Version { data_dir: PathBuf, data: u32, found: String },

    #[error("the data directory {} is in use by {}: stop that process, or pass another directory", data_dir.display(),
        holder(*pid))]
    InUse { data_dir: PathBuf, pid: Option<u32> },

    #[error("{} contains files that Forebay did not create: pass an empty directory, or one that does not exist yet",
        data_dir.display())]
    NotOurs { data_dir: PathBuf },

    #[error("{} belongs to the user with id {owner}: run as that user, or pass another directory", data_dir.display())]
    WrongOwner { data_dir: PathBuf, owner: u32 },

    #[error("the server runs as the user postgres, who cannot enter {}: pass another directory, such as \
        /var/lib/forebay", dir.display())]
    Unreachable { dir: PathBuf },

    #[error(
        "PostgreSQL does not run as root, and there is no user `postgres`: create that user, or run as another user"
    )]
    NoUser,

    #[error("{} is not a PostgreSQL cluster (its PG_VERSION is missing or unreadable): move it away to start with an \
        empty database",
        cluster.display())]
    Damaged { cluster: PathBuf },

    #[error("process {pid} still uses {} and does not stop: kill it, then try again", cluster.display())]
    Orphan { cluster: PathBuf, pid: i32 },

    #[error("{program} ended with {status}; the last lines of {}:\n{tail}", log.display())]
    Exited { program: &'static str, status: ExitStatus, log: PathBuf, tail: String },

    #[error("the server did not answer within {seconds} s; the last lines of {}:\n{tail}", log.display())]
    NotReady { seconds: u64, log: PathBuf, tail: String },

    #[error("the parent process has ended, so PostgreSQL is not started")]
    ParentGone,

    #[error("this command is only for forebay itself: {0}")]
    BadChildArguments(&'static str),

    #[error("cannot create the database")]
    CreateDatabase(#[source] tokio_postgres::Error),

    #[error("cannot {doing}")]
    Io { doing: String, source: io::Error },
}

impl Error {
    /// Wraps an IO error, for `map_err`. `doing` is what failed, as a verb phrase.
    pub(super) fn io<E: Into<io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> Error {
        move |source| Error::Io { doing: doing.into(), source: source.into() }
    }

    pub(super) fn io_at<E: Into<io::Error>>(verb: &str, path: &Path) -> impl FnOnce(E) -> Error {
        move |source| Error::Io { doing: format!("{verb} {}", path.display()), source: source.into() }
    }
}

fn advice_on_version(data: u32) -> String {
    let keep = if data < OLDEST_MAJOR {
        format!("dump it with PostgreSQL {data} and restore it into a newer one")
    } else {
        format!("install PostgreSQL {data}")
    };
    format!("{keep}, or move the directory away to start with an empty database")
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".into(), |pid| format!("process {pid}"))
}
