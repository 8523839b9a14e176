//! A private PostgreSQL cluster on the system's own binaries, for `forebay dev`.
//!
//!     lock ─▶ find binaries ─▶ clear orphans ─▶ initdb (once) ─▶ serve ─▶ ready ─▶ stop ─▶ unlock
//!
//! One thread, the keeper, does all of it and stays for as long as the server does: the kernel ties
//! the server's life to the thread that forked it, not to the process.
//!
//! Invariants
//! - The lock is taken before anything in the directory is looked at, and kept until the server is gone.
//! - Nobody but the server's own user can reach the socket, and there is no TCP: so `trust` is safe.
//! - A directory named `pg` is a whole cluster: `initdb` writes elsewhere and the result is renamed.
//! - However this process ends, the server stops: told by us, or on Linux by the kernel.
//!
//! Not here: reading the environment (the app passes what is needed), the schema (`migrations/`).

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

/// Told what is being done, in a few words, when it takes long enough to be noticed.
pub type Progress = Box<dyn Fn(&str) + Send>;

/// What to run and where. All that depends on the environment is here, since only the app reads it.
pub struct Options {
    /// Where the cluster lives. For an ephemeral one: where its temporary directory is made.
    pub data_dir: PathBuf,
    /// Keep nothing: a fresh cluster without fsync, removed at the end.
    pub ephemeral: bool,
    pub launcher: Launcher,
    /// The directory of `postgres` and `initdb` (`FOREBAY_PG_BIN`); none: search for them.
    pub postgres_bin: Option<PathBuf>,
    /// `PATH`, the first place searched.
    pub search_path: Option<OsString>,
    /// `XDG_RUNTIME_DIR`, for the socket when the data directory's path does not suit one.
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

/// Where data is kept unless the user says otherwise. Not in root's home: the server's user cannot enter it.
pub fn default_data_dir(home: &Path, is_root: bool) -> PathBuf {
    if is_root { PathBuf::from("/var/lib/forebay") } else { home.join(".local/share/forebay") }
}

/// A running cluster. Dropping it stops the server too, and blocks meanwhile: prefer [`PrivatePostgres::stop`].
#[derive(Debug)]
pub struct PrivatePostgres {
    place: Place,
    keeper: Option<Keeper>,
}

impl PrivatePostgres {
    /// Returns once the server answers and the database `forebay` exists. The work is done on a
    /// thread of its own, so the runtime is not blocked; dropping the future stops what was begun.
    pub async fn start(options: Options) -> Result<PrivatePostgres, Error> {
        let (ready, started) = oneshot::channel();
        let (stop, told_to_stop) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("postgres-keeper".into())
            .spawn(move || keep(&options, ready, &told_to_stop))
            .map_err(Error::io("start a thread"))?;
        let keeper = Keeper { stop, thread };
        match started.await {
            Ok(place) => Ok(PrivatePostgres { place: place?, keeper: Some(keeper) }),
            Err(_) => Err(keeper.join().expect_err("unless it panics, the keeper reports before it ends")),
        }
    }

    /// For our own client.
    pub fn url(&self) -> String {
        format!("postgresql:///{DATABASE}?host={}&user={USER}", self.place.socket_dir)
    }

    /// For `psql` and other tools, which would take the port from `PGPORT`.
    pub fn psql_url(&self) -> String {
        format!("{}&port={}", self.url(), socket::PORT)
    }

    /// The directory in use, which for an ephemeral cluster is the temporary one.
    pub fn data_dir(&self) -> &Path {
        &self.place.data_dir
    }

    /// Disconnects every client and waits for the server to end; says so if it had ended by itself.
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

/// What the outside needs to know of a running cluster.
#[derive(Debug)]
struct Place {
    data_dir: PathBuf,
    socket_dir: String,
}

#[derive(Debug)]
struct Keeper {
    /// Never sent on: its end is the message.
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
    ready: oneshot::Sender<Result<Place, Error>>,
    told_to_stop: &mpsc::Receiver<()>,
) -> Result<(), Error> {
    match Cluster::open(options) {
        Ok(mut cluster) => {
            // Nobody waiting any more means that the sender of the stop is gone too.
            let _ = ready.send(Ok(cluster.place()));
            let _ = told_to_stop.recv();
            cluster.server.stop()
        }
        Err(error) => {
            let _ = ready.send(Err(error));
            Ok(())
        }
    }
}

/// Dropped in this order: the server stops, then its directories go, then the lock.
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

    fn place(&self) -> Place {
        Place { data_dir: self.data.dir().to_owned(), socket_dir: self.socket.dir().to_owned() }
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
