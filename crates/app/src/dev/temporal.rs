//! Temporal for `dev --engine temporal`: uses a running Temporal server, or else starts a development server.
//!
//!     us ──spawn──▶ us again: die with parent, own group, parent still there? ──exec──▶ temporal
//!
//! Invariants
//! - A server that answers at the configured address is used and never stopped.
//! - A server that `dev` started ends with this process, however the process ends.
//!
//! Not here: the engine (`temporal`), starting and stopping PostgreSQL (`private_postgres`).

use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::unistd::{Pid, getppid, setpgid};
use server::config::Settings;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::output;

/// How long a started server may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a start is tried before its error is reported.
const TRIES: u32 = 3;
/// The distance between the port of the server and the port of its UI, as Temporal chooses it by default.
const UI: u16 = 1_000;

/// A development server that was started here; stopped when dropped.
pub(crate) struct Started {
    child: std::process::Child,
    pub(crate) ui: String,
}

impl Drop for Started {
    fn drop(&mut self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap_or(0));
        // SIGTERM ends the server immediately. Its data is already in its file.
        let _gone = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        drop(self.child.wait());
    }
}

/// Makes sure that a Temporal server runs, and puts its address into the settings. None: a server was already running.
pub(crate) async fn ensure(settings: &mut Settings, data_dir: Option<&Path>) -> anyhow::Result<Option<Started>> {
    let configured = settings.engine.temporal.address.clone();
    if answers(&configured).await {
        output::print_note(format!("using the Temporal server at {configured}"))?;
        return Ok(None);
    }
    let program = find().with_context(|| {
        format!(
            "no Temporal server answers at {configured}, and Temporal's command line is not installed: ./dev/up \
             installs it, or see https://docs.temporal.io/cli, or set FOREBAY_TEMPORAL_BIN to its path"
        )
    })?;
    for _ in 1..TRIES {
        // The start fails if another process took the port meanwhile, so it is tried again with another port.
        if let Ok(started) = start(&program, settings, data_dir).await {
            return Ok(Some(started));
        }
    }
    start(&program, settings, data_dir).await.map(Some)
}

async fn start(program: &Path, settings: &mut Settings, data_dir: Option<&Path>) -> anyhow::Result<Started> {
    let port = free_port()?;
    let mut command = Command::new(std::env::current_exe().context("find this program's own file")?);
    command.args(["temporal-child", &std::process::id().to_string()]).arg(program);
    command.args(["server", "start-dev", "--ip", "127.0.0.1", "--log-level", "error"]);
    command.args(["--port", &port.to_string(), "--ui-port", &(port + UI).to_string()]);
    for attribute in ["ForebayWorkspace", "ForebayDefinition", "ForebayQueueItem"] {
        command.args(["--search-attribute", &format!("{attribute}=Keyword")]);
    }
    if let Some(directory) = data_dir {
        command.arg("--db-filename").arg(directory.join("temporal.db"));
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let child = command.spawn().context("start Temporal's development server")?;
    let started = Started { child, ui: format!("http://127.0.0.1:{}", port + UI) };
    settings.engine.temporal.address = format!("http://127.0.0.1:{port}");
    wait(started, &settings.engine.temporal.address).await
}

async fn wait(mut started: Started, address: &str) -> anyhow::Result<Started> {
    let until = Instant::now() + PATIENCE;
    while !(answers(address).await && answers(&started.ui).await) {
        if let Some(status) = started.child.try_wait().context("check Temporal's development server")? {
            bail!("Temporal's development server exited immediately ({status})");
        }
        if Instant::now() > until {
            bail!("Temporal's development server does not answer at {address}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(started)
}

/// Whether the address accepts connections.
async fn answers(address: &str) -> bool {
    let host = address.split_once("://").map_or(address, |(_, host)| host).trim_end_matches('/');
    let connect = tokio::time::timeout(Duration::from_secs(2), TcpStream::connect(host.to_owned()));
    matches!(connect.await, Ok(Ok(_)))
}

/// A free port whose UI port is free too.
fn free_port() -> anyhow::Result<u16> {
    for _ in 0..100 {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr())?.port();
        let ui = port.checked_add(UI).map(|ui| SocketAddr::from(([127, 0, 0, 1], ui)));
        if ui.is_some_and(|ui| TcpListener::bind(ui).is_ok()) {
            return Ok(port);
        }
    }
    bail!("no two free ports were found for Temporal")
}

/// Finds the program `temporal`, in the same places as `dev/lib/temporal.sh`.
fn find() -> Option<PathBuf> {
    if let Some(given) = std::env::var_os("FOREBAY_TEMPORAL_BIN") {
        return Some(given.into());
    }
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share"));
    let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).or(home);
    let installed = data.map(|data| data.join("forebay-dev/temporal/bin"));
    let mut places = std::env::split_paths(&on_path).chain(installed);
    places.find_map(|place| Some(place.join("temporal")).filter(|program| program.is_file()))
}

/// The main function of the re-executed process: replaces the process by the given program. `args`: the process id of
/// the parent, the program, its arguments.
pub(crate) fn child_main(args: Vec<OsString>) -> anyhow::Result<std::convert::Infallible> {
    let mut args = args.into_iter();
    let parent = args.next().and_then(|id| id.into_string().ok()?.parse::<i32>().ok());
    let program = args.next().context("give a parent and a program")?;
    // The signal is set before the parent is checked, so a parent that dies is noticed, before or after the check.
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM).context("ask to die with our parent")?;
    // An own process group: Ctrl-C in the terminal reaches only `dev`, which then stops the server in order.
    setpgid(Pid::from_raw(0), Pid::from_raw(0)).context("start a process group")?;
    if parent != Some(getppid().as_raw()) {
        bail!("the parent process has ended");
    }
    Err(Command::new(&program).args(args).exec()).context("run Temporal's development server")
}
