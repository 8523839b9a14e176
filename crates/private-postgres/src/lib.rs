//! A private PostgreSQL cluster, run with the binaries installed on the system, for `forebay dev`.
//!
//!     lock ─▶ find binaries ─▶ clear orphans ─▶ initdb (once) ─▶ serve ─▶ ready ─▶ stop ─▶ unlock
//!
//! One thread, the keeper, does all of this and runs as long as the server. It must: Linux stops the server as soon as
//! the thread that forked it ends, even if the process continues.
//!
//! Invariants
//! - The lock is taken before anything in the directory is read, and kept until the server has ended.
//! - Only the server's own user can reach the socket, and the server does not listen on TCP. So the authentication
//!   method `trust`, which needs no password, is safe.
//! - A directory named `pg` is a complete cluster: `initdb` writes to another directory, which is then renamed.
//! - The server stops when this process ends: this process stops it, or, if it was killed, the kernel does on Linux.
//!
//! Not here: reading the environment (the app passes values in `Options`), the database schema (`migrations/`).

mod account;
mod binaries;
mod child;
mod data;
mod error;
mod orphans;
mod server;
mod socket;

use std::{
    ffi::OsString,
    fmt,
    panic::resume_unwind,
    path::{Path, PathBuf},
    sync::mpsc,
    thread::{self, JoinHandle},
};

use tokio::sync::oneshot;

use self::{account::Account, data::Data, server::Server, socket::Socket};
pub use self::{
    child::{Launcher, child_main},
    error::Error,
};

/// Receives a short text when a step takes long enough for a person to notice.
pub type Progress = Box<dyn Fn(&str) + Send>;

/// What to run and where. Everything that depends on the environment is an option, because only the app reads the
/// environment.
pub struct Options {
    /// The directory of the cluster. For an ephemeral one: the parent of its temporary directory.
    pub data_dir: PathBuf,
    /// Use a new cluster without fsync, and remove it when the server stops.
    pub ephemeral: bool,
    pub launcher: Launcher,
    /// The directory of `postgres` and `initdb` (`FOREBAY_PG_BIN`). None: search for them.
    pub postgres_bin: Option<PathBuf>,
    /// The value of `PATH`, whose directories are searched first.
    pub search_path: Option<OsString>,
    /// The value of `XDG_RUNTIME_DIR`: the parent of the socket's directory if the path of the data directory is
    /// unsuitable.
    pub runtime_dir: Option<PathBuf>,
    pub max_connections: u32,
    pub progress: Progress,
}

impl Options {
    pub fn new(data_dir: impl Into<PathBuf>, launcher: Launcher) -> Options {
        Options {
            data_dir: data_dir.into(),
            ephemeral: false,
            launcher,
            postgres_bin: None,
            search_path: None,
            runtime_dir: None,
            max_connections: 60,
            progress: Box::new(|_| ()),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("data_dir", &self.data_dir)
            .field("ephemeral", &self.ephemeral)
            .field("launcher", &self.launcher)
            .finish_non_exhaustive()
    }
}

/// The default data directory. For root it is not in the home directory, because the server's user cannot enter that.
pub fn default_data_dir(home: &Path, is_root: bool) -> PathBuf {
    if is_root { PathBuf::from("/var/lib/forebay") } else { home.join(".local/share/forebay") }
}

/// A running cluster. Dropping it also stops the server, but blocks the thread until then: prefer
/// [`PrivatePostgres::stop`].
#[derive(Debug)]
pub struct PrivatePostgres {
    paths: ServerPaths,
    keeper: Option<Keeper>,
}

impl PrivatePostgres {
    /// Returns once the server answers and the database `forebay` exists. Another thread does the work, so the runtime
    /// is not blocked. If the future is dropped, the server is stopped.
    pub async fn start(options: Options) -> Result<PrivatePostgres, Error> {
        let (ready, started) = oneshot::channel();
        let (stop, stop_requested) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("postgres-keeper".into())
            .spawn(move || keep(&options, ready, &stop_requested))
            .map_err(Error::io("start a thread"))?;
        let keeper = Keeper { stop, thread };
        match started.await {
            Ok(paths) => Ok(PrivatePostgres { paths: paths?, keeper: Some(keeper) }),
            Err(_) => Err(keeper.join().expect_err("unless it panics, the keeper reports before it ends")),
        }
    }

    /// The URL for Forebay's own client.
    pub fn url(&self) -> String {
        format!("postgresql:///{DATABASE}?host={}&user={USER}", self.paths.socket_dir)
    }

    /// The URL for `psql` and other tools. It names the port, which they would otherwise take from `PGPORT`.
    pub fn psql_url(&self) -> String {
        format!("{}&port={}", self.url(), socket::PORT)
    }

    /// The data directory in use. For an ephemeral cluster this is the temporary directory.
    pub fn data_dir(&self) -> &Path {
        &self.paths.data_dir
    }

    /// Disconnects every client and waits for the server to end. Fails if the server had already ended by itself.
    pub async fn stop(mut self) -> Result<(), Error> {
        let keeper = self.keeper.take().expect("only stop and drop take the keeper, and each is last");
        match tokio::task::spawn_blocking(move || keeper.join()).await {
            Ok(result) => result,
            Err(failed) => resume_unwind(failed.into_panic()),
        }
    }
}

impl Drop for PrivatePostgres {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.take()
            && let Err(error) = keeper.join()
        {
            tracing::warn!(%error, "The private PostgreSQL did not stop cleanly");
        }
    }
}

const DATABASE: &str = "forebay";
const USER: &str = "forebay";

/// Where a running cluster is.
#[derive(Debug)]
struct ServerPaths {
    data_dir: PathBuf,
    socket_dir: String,
}

#[derive(Debug)]
struct Keeper {
    /// Nothing is ever sent: dropping the sender asks the keeper to stop.
    stop: mpsc::Sender<()>,
    thread: JoinHandle<Result<(), Error>>,
}

impl Keeper {
    fn join(self) -> Result<(), Error> {
        drop(self.stop);
        self.thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// The whole life of the keeper's thread.
fn keep(
    options: &Options,
    ready: oneshot::Sender<Result<ServerPaths, Error>>,
    stop_requested: &mpsc::Receiver<()>,
) -> Result<(), Error> {
    match Cluster::open(options) {
        Ok(mut cluster) => {
            // Sending fails if the caller dropped the future. That dropped `stop` too, so `recv` returns immediately.
            let _ = ready.send(Ok(cluster.paths()));
            let _ = stop_requested.recv();
            cluster.server.stop()
        }
        Err(error) => {
            let _ = ready.send(Err(error));
            Ok(())
        }
    }
}

/// The fields are dropped in this order: the server stops, its directories are removed, the lock is released.
struct Cluster {
    server: Server,
    socket: Socket,
    data: Data,
}

impl Cluster {
    fn open(options: &Options) -> Result<Cluster, Error> {
        let account = Account::of_server()?;
        let data = Data::open(&options.data_dir, options.ephemeral, &account)?;
        let major = data.major()?;
        let binaries =
            binaries::find(options.postgres_bin.as_deref(), options.search_path.as_deref(), major, data.dir())?;
        orphans::clear(&data.cluster(), &options.progress)?;
        data.rotate_log()?;
        if major.is_none() {
            (options.progress)("creating database…");
            server::init(&options.launcher, &account, &binaries, &data)?;
        }
        let socket = Socket::open(data.dir(), options.runtime_dir.as_deref(), &account)?;
        let mut server = Server::spawn(options, &account, &binaries, &data, &socket)?;
        server.wait_until_ready(&data, &socket, &options.progress)?;
        Ok(Cluster { server, socket, data })
    }

    fn paths(&self) -> ServerPaths {
        ServerPaths { data_dir: self.data.dir().to_owned(), socket_dir: self.socket.dir().to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_kept_where_the_server_may_enter() {
        assert_eq!(default_data_dir(Path::new("/root"), true), Path::new("/var/lib/forebay"));
        assert_eq!(default_data_dir(Path::new("/home/a"), false), Path::new("/home/a/.local/share/forebay"));
    }
}
