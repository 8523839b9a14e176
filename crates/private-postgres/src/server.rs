//! The server's process: `initdb` creates the cluster once; the server is started, polled until it answers, and
//! stopped.
//!
//!     spawn ──▶ starting ──answers──▶ ready ──SIGINT──▶ stopping ──10 s──▶ SIGQUIT ──10 s──▶ SIGKILL
//!                  └──────ends──────────┴──▶ reported with the last lines of its log
//!
//! Invariants
//! - Ready means that the process started here answers: the pid file names this process, not an earlier server.
//! - SIGTERM is never sent: after it the server waits until every client has disconnected by itself.

use std::{
    ffi::OsString,
    fs,
    path::PathBuf,
    process::{Child, Command, ExitStatus},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio_postgres::{Config, NoTls};

use super::{
    Account, DATABASE, Data, Error, Launcher, Options, Progress, Socket, USER,
    binaries::Binaries,
    data::tail,
    orphans::{POLL, read_pid_file},
    socket::PORT,
};

/// How long a server may take to answer: after a crash it first replays up to `max_wal_size`.
const PATIENCE: Duration = Duration::from_secs(300);
/// A start that takes longer than this is reported as progress.
const UNUSUAL: Duration = Duration::from_secs(2);
/// How long to wait for the end of the server after each signal.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// Creates a new cluster, in a temporary directory that is renamed to `pg` when the cluster is complete.
pub(super) fn init(launcher: &Launcher, account: &Account, binaries: &Binaries, data: &Data) -> Result<(), Error> {
    let unfinished = data.unfinished_cluster()?;
    let mut command = launcher.command(account, &binaries.initdb());
    command.arg("-D").arg(&unfinished).args(["-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"]);
    command.args(["--no-sync", "--no-instructions"]);
    let status = spawn(command, data)?.wait().map_err(Error::io("wait for initdb"))?;
    if !status.success() {
        let log = data.log();
        return Err(Error::Exited { program: "initdb", status, tail: tail(&log), log });
    }
    fs::rename(&unfinished, data.cluster()).map_err(Error::io_at("rename", &unfinished))
}

/// A started server. Dropping it stops the server.
#[derive(Debug)]
pub(super) struct Server {
    process: Child,
    log: PathBuf,
}

impl Server {
    pub(super) fn spawn(
        options: &Options,
        account: &Account,
        binaries: &Binaries,
        data: &Data,
        socket: &Socket,
    ) -> Result<Server, Error> {
        let mut command = options.launcher.command(account, &binaries.postgres());
        command.arg("-D").arg(data.cluster());
        for setting in settings(socket, options.max_connections, data.is_ephemeral()) {
            command.arg("-c").arg(setting);
        }
        Ok(Server { process: spawn(command, data)?, log: data.log() })
    }

    /// Returns when the server answers and the database `forebay` exists.
    pub(super) fn wait_until_ready(&mut self, data: &Data, socket: &Socket, progress: &Progress) -> Result<(), Error> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::io("start a runtime"))?;
        let mut config = Config::new();
        config.host_path(socket.dir()).port(PORT).user(USER).dbname("postgres");

        let began = Instant::now();
        let mut is_reported = false;
        loop {
            if let Some(status) = self.exit_status()? {
                return Err(self.exited(status));
            }
            // Connect only after the pid file says ready: earlier attempts would fill the log.
            if read_pid_file(&data.cluster()) == Some((self.pid(), true))
                && let Some(created) = runtime.block_on(create_database(&config))
            {
                return created;
            }
            if began.elapsed() > PATIENCE {
                let (seconds, log) = (PATIENCE.as_secs(), self.log.clone());
                return Err(Error::NotReady { seconds, tail: tail(&log), log });
            }
            if began.elapsed() > UNUSUAL && !is_reported {
                progress("waiting for the database, which may be recovering from a crash…");
                is_reported = true;
            }
            thread::sleep(POLL);
        }
    }

    /// Stops the server and waits for its end. Fails if the server had already ended by itself.
    pub(super) fn stop(&mut self) -> Result<(), Error> {
        if let Some(status) = self.exit_status()? {
            return Err(self.exited(status));
        }
        for signal in [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGKILL] {
            // The process was not reaped, so no other process can have its id.
            kill(self.pid(), signal).map_err(Error::io("signal the server"))?;
            let deadline = Instant::now() + STOP_PATIENCE;
            while Instant::now() < deadline {
                if self.exit_status()?.is_some() {
                    return Ok(());
                }
                thread::sleep(POLL);
            }
        }
        Err(Error::Orphan { cluster: self.log.with_file_name("pg"), pid: self.pid().as_raw() })
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.process.id()).expect("the system's process ids fit"))
    }

    fn exit_status(&mut self) -> Result<Option<ExitStatus>, Error> {
        self.process.try_wait().map_err(Error::io("look after the server"))
    }

    fn exited(&self, status: ExitStatus) -> Error {
        Error::Exited { program: "postgres", status, tail: tail(&self.log), log: self.log.clone() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(None) = self.exit_status()
            && let Err(error) = self.stop()
        {
            tracing::warn!(%error, "Private PostgreSQL could not be stopped");
        }
    }
}

/// Starts the program. Its stdout and stderr go to the log.
fn spawn(mut command: Command, data: &Data) -> Result<Child, Error> {
    command.stdout(data.open_log()?).stderr(data.open_log()?);
    let program = PathBuf::from(command.get_program());
    command.spawn().map_err(Error::io_at("run", &program))
}

fn settings(socket: &Socket, max_connections: u32, ephemeral: bool) -> Vec<OsString> {
    let mut settings = vec![
        "listen_addresses=".into(),
        format!("port={PORT}"),
        format!("unix_socket_directories={}", socket.dir()),
        "unix_socket_permissions=0700".into(),
        format!("max_connections={max_connections}"),
        "jit=off".into(),
        "max_wal_size=4GB".into(),
        "checkpoint_timeout=15min".into(),
        "idle_in_transaction_session_timeout=10s".into(),
    ];
    if ephemeral {
        settings.extend(["fsync=off", "full_page_writes=off", "synchronous_commit=off"].map(String::from));
    }
    settings.into_iter().map(OsString::from).collect()
}

/// Creates the database `forebay` if it does not exist. None: the server does not answer yet.
async fn create_database(config: &Config) -> Option<Result<(), Error>> {
    let (client, connection) = config.connect(NoTls).await.ok()?;
    let create = async {
        let existing = client.query_opt("SELECT 1 FROM pg_database WHERE datname = $1", &[&DATABASE]).await?;
        if existing.is_none() {
            client.batch_execute(&format!("CREATE DATABASE {DATABASE}")).await?;
        }
        Ok(())
    };
    // The connection task ends with an error only if `create` does.
    let created = tokio::select! {
        created = create => created,
        Err(error) = connection => Err(error),
    };
    Some(created.map_err(Error::CreateDatabase))
}
