//! Starts real `forebay serve` processes, and separate workers for jobs and tasks, and kills, pauses and restarts them.
//!
//!     start ──▶ running ──kill──▶ dead ──start──▶ running (a new name)
//!                │  ▲
//!              pause resume
//!
//! Invariants
//! - Each start of a process has its own name, which is also the `application_name` of its database sessions. So the
//!   judge can distinguish the writes of a process from those of its successor.
//! - Every kill and pause is recorded with its time. The database uses the same clock.
//! - No process outlives the harness: when the harness dies, the operating system kills them, if it supports this.

use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

/// How long a process may take to be ready. Usually it takes far less.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// How long a process may take to stop.
const STOPS_WITHIN: Duration = Duration::from_secs(60);

/// How often to check whether a process has ended by itself.
const LOOK: Duration = Duration::from_millis(200);

/// The arguments that make the harness's own program a worker for jobs or for tasks.
const JOB_WORKER: &str = "job-worker";
const TASK_WORKER: &str = "task-worker";

/// Microseconds since 1970, by the clock that `clock_timestamp()` reads on the same machine.
pub fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// What the processes of a fleet do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Everything,
    /// Processes that answer requests and dispatch, but perform no nodes.
    Dispatch,
    /// Processes that perform nodes for a remote engine, and answer no requests.
    Work,
    /// Not the service: workers that claim jobs over HTTP.
    JobsByHttp,
    /// Not the service: workers that claim jobs in plain SQL.
    JobsBySql,
    /// Not the service: workers that claim tasks over HTTP.
    Tasks,
}

impl Part {
    /// The roles of the service. None for a process that is not the service.
    fn roles(self) -> Option<&'static str> {
        match self {
            Part::Everything => Some("api,dispatcher,worker"),
            Part::Dispatch => Some("api,dispatcher"),
            Part::Work => Some("worker"),
            Part::JobsByHttp | Part::JobsBySql | Part::Tasks => None,
        }
    }

    /// The argument for a process that is not the service.
    fn mode(self) -> &'static str {
        if self == Part::Tasks { TASK_WORKER } else { JOB_WORKER }
    }

    fn answers(self) -> bool {
        matches!(self, Part::Everything | Part::Dispatch)
    }

    /// The first letter of the names of these processes.
    fn letter(self) -> char {
        match self {
            Part::Everything | Part::Dispatch => 'p',
            Part::Work => 'w',
            Part::JobsByHttp => 'h',
            Part::JobsBySql => 's',
            Part::Tasks => 't',
        }
    }
}

/// How every process of a fleet is started.
#[derive(Clone, Debug)]
pub struct Spec {
    pub program: PathBuf,
    pub part: Part,
    /// The URL without a session name. Each start appends its own name.
    pub database_url: String,
    pub root_key: String,
    /// In the format of `--set`.
    pub settings: Vec<String>,
    /// The standard input of a process that is not the service, with its name as `worker`.
    pub order: Value,
    /// Additional environment variables.
    pub environment: Vec<(String, String)>,
    /// The directory of the processes' logs.
    pub logs: PathBuf,
}

/// A process that was killed.
#[derive(Clone, Debug)]
pub struct Kill {
    pub name: String,
    pub at: i64,
}

/// A process that was paused. `to` is none while the process is still paused.
#[derive(Clone, Debug)]
pub struct Pause {
    pub name: String,
    pub from: i64,
    pub to: Option<i64>,
}

/// The faults applied to a fleet.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub kills: Vec<Kill>,
    pub pauses: Vec<Pause>,
}

/// The processes, by place. A place keeps its number when its process is replaced.
#[derive(Debug)]
pub struct Fleet {
    spec: Spec,
    places: Vec<Mutex<Place>>,
    history: Mutex<History>,
}

#[derive(Debug, Default)]
struct Place {
    starts: u32,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    name: String,
    /// None if the process answers no requests.
    base: Option<String>,
    pid: u32,
    paused: bool,
    /// Killed when dropped.
    child: Child,
}

impl Fleet {
    /// Starts this many processes at the same time, one per place.
    pub async fn start(spec: Spec, places: usize) -> anyhow::Result<Fleet> {
        std::fs::create_dir_all(&spec.logs).with_context(|| format!("make {}", spec.logs.display()))?;
        let places = (0..places).map(|_| Mutex::default()).collect();
        let fleet = Fleet { spec, places, history: Mutex::default() };
        futures_util::future::try_join_all((0..fleet.len()).map(|place| fleet.restart(place))).await?;
        Ok(fleet)
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Starts a process at an empty place.
    pub async fn restart(&self, place: usize) -> anyhow::Result<()> {
        let name = {
            let mut at = lock(&self.places[place]);
            if at.running.is_some() {
                return Ok(());
            }
            at.starts += 1;
            format!("{}{place}-{}", self.spec.part.letter(), at.starts)
        };
        let running = launch(&self.spec, &name).await.with_context(|| format!("start process {name}"))?;
        lock(&self.places[place]).running = Some(running);
        Ok(())
    }

    /// Kills the process at a place with SIGKILL. Returns none if no process runs there.
    pub fn kill(&self, place: usize) -> Option<Kill> {
        let gone = lock(&self.places[place]).running.take()?;
        signal(gone.pid, Signal::SIGKILL);
        let kill = Kill { name: gone.name.clone(), at: now_us() };
        let mut history = lock(&self.history);
        for pause in history.pauses.iter_mut().filter(|pause| pause.name == gone.name && pause.to.is_none()) {
            pause.to = Some(kill.at);
        }
        history.kills.push(kill.clone());
        Some(kill)
    }

    /// Sends SIGTERM to the process at a place, and waits until the process has stopped. This is not recorded as a
    /// fault.
    pub async fn terminate(&self, place: usize) -> anyhow::Result<()> {
        let Some(mut gone) = lock(&self.places[place]).running.take() else { return Ok(()) };
        signal(gone.pid, Signal::SIGTERM);
        let ended =
            tokio::time::timeout(STOPS_WITHIN, gone.child.wait()).await.context("the process did not stop in time")?;
        ensure!(ended.context("wait for the process")?.success(), "{} did not stop cleanly", gone.name);
        Ok(())
    }

    /// Pauses the process at a place (SIGSTOP). Returns its name, or none if it is not running.
    pub fn pause(&self, place: usize) -> Option<String> {
        let mut at = lock(&self.places[place]);
        let running = at.running.as_mut().filter(|running| !running.paused)?;
        running.paused = true;
        signal(running.pid, Signal::SIGSTOP);
        let pause = Pause { name: running.name.clone(), from: now_us(), to: None };
        let name = pause.name.clone();
        lock(&self.history).pauses.push(pause);
        Some(name)
    }

    /// Resumes the paused process at a place, if the process still has that name.
    pub fn resume(&self, place: usize, name: &str) {
        let mut at = lock(&self.places[place]);
        let Some(running) = at.running.as_mut().filter(|running| running.paused && running.name == name) else {
            return;
        };
        running.paused = false;
        let mut history = lock(&self.history);
        for pause in history.pauses.iter_mut().filter(|pause| pause.name == name && pause.to.is_none()) {
            pause.to = Some(now_us());
        }
        signal(running.pid, Signal::SIGCONT);
    }

    /// The places whose process is running and not paused.
    pub fn healthy(&self) -> Vec<usize> {
        (0..self.len())
            .filter(|place| lock(&self.places[*place]).running.as_ref().is_some_and(|running| !running.paused))
            .collect()
    }

    /// The address of a place's API.
    pub fn base(&self, place: usize) -> Option<String> {
        lock(&self.places[place]).running.as_ref().and_then(|running| running.base.clone())
    }

    /// The name of the process at a place.
    pub fn name(&self, place: usize) -> Option<String> {
        lock(&self.places[place]).running.as_ref().map(|running| running.name.clone())
    }

    /// The place where the process of that name runs.
    pub fn place_of(&self, name: &str) -> Option<usize> {
        (0..self.len())
            .find(|place| lock(&self.places[*place]).running.as_ref().is_some_and(|running| running.name == name))
    }

    /// The place at which a process of that name was started, whether it still runs or not.
    pub fn place_in(name: &str) -> Option<usize> {
        name.strip_prefix('p')?.split('-').next()?.parse().ok()
    }

    pub fn pids(&self) -> Vec<u32> {
        self.places.iter().filter_map(|place| lock(place).running.as_ref().map(|running| running.pid)).collect()
    }

    /// Waits until a process ends that the harness did not kill. Returns its name and its exit status.
    pub async fn one_falls(&self) -> String {
        loop {
            for place in &self.places {
                if let Some(running) = &lock(place).running
                    && let Some(how) = ended(running.pid)
                {
                    return format!("{} ended by itself: {how:?}", running.name);
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Resumes and restarts everything, so that every place has a running process.
    pub async fn heal(&self) -> anyhow::Result<()> {
        for place in 0..self.len() {
            if let Some(name) = self.name(place) {
                self.resume(place, &name);
            }
        }
        futures_util::future::try_join_all((0..self.len()).map(|place| self.restart(place))).await?;
        Ok(())
    }

    /// Stops all processes at the end of a run. This is not recorded as a fault.
    pub fn stop(&self) {
        for place in &self.places {
            if let Some(gone) = lock(place).running.take() {
                signal(gone.pid, Signal::SIGKILL);
            }
        }
    }

    pub fn history(&self) -> History {
        lock(&self.history).clone()
    }
}

async fn launch(spec: &Spec, name: &str) -> anyhow::Result<Running> {
    let log =
        std::fs::File::create(spec.logs.join(format!("{name}.log"))).context("create the log file of a process")?;
    let mut command = command(spec, name);
    command.stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
    let mut child = command.spawn().context("start the process")?;
    if let Some(mut stdin) = child.stdin.take() {
        let mut order = spec.order.clone();
        order["worker"] = json!(name);
        stdin.write_all(order.to_string().as_bytes()).await.context("send the process its instructions")?;
    }
    let pid = child.id().context("the process ended immediately")?;
    let stdout = child.stdout.take().context("take the output of the process")?;
    let mut lines = BufReader::new(stdout).lines();
    let ready = async {
        let mut base = None;
        while let Some(line) = lines.next_line().await? {
            if let Some(address) = line.strip_prefix("Forebay listens on ") {
                base = Some(address.to_owned());
            }
            if line == "ready" {
                ensure!(base.is_some() || !spec.part.answers(), "the process did not print its address");
                return Ok(base);
            }
        }
        bail!("the process ended before it was ready; see its log {}", spec.logs.join(format!("{name}.log")).display())
    };
    let base = tokio::time::timeout(READY_WITHIN, ready).await.context("the process was not ready in time")??;
    Ok(Running { name: name.to_owned(), base, pid, paused: false, child })
}

fn command(spec: &Spec, name: &str) -> Command {
    let mut command = command_tied_to_parent(&spec.program);
    let Some(roles) = spec.part.roles() else {
        command.arg(spec.part.mode()).stdin(Stdio::piped());
        return command;
    };
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--roles", roles])
        .arg("--database-url")
        .arg(format!("{}&application_name={name}", spec.database_url))
        .args(spec.settings.iter().flat_map(|setting| ["--set", setting]))
        .env("FOREBAY_AUTH_ROOT_KEY", &spec.root_key)
        .env("FOREBAY_LOG", std::env::var("FOREBAY_LOG").unwrap_or_else(|_| "warn".to_owned()))
        .env_remove("FOREBAY_DATABASE_URL")
        .envs(spec.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null());
    command
}

/// On Linux the kernel kills the child when the thread that created it ends, however that happens.
pub(crate) fn command_tied_to_parent(program: &Path) -> Command {
    let setpriv = Path::new("/usr/bin/setpriv");
    if !setpriv.exists() {
        return Command::new(program);
    }
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// The exit status of a child, if it has ended. The child is not reaped, so that its pid is not reused.
fn ended(pid: u32) -> Option<WaitStatus> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?);
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    waitid(Id::Pid(pid), look).ok().filter(|status| *status != WaitStatus::StillAlive)
}

fn signal(pid: u32, signal: Signal) {
    // The child is not reaped before it is dropped, so its pid is still valid. A process that ended by itself is found
    // by `one_falls`, or reported missing by the judge.
    let _gone = i32::try_from(pid).map(|pid| kill(Pid::from_raw(pid), signal));
}

fn lock<T>(mutex: &Mutex<T>) -> parking_lot::MutexGuard<'_, T> {
    mutex.lock()
}
