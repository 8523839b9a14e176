//! Real `forebay serve` processes, and workers of jobs and tasks beside them, to be killed, paused and started again.
//!
//!     start ──▶ running ──kill──▶ dead ──start──▶ running (a new name)
//!                │  ▲
//!              pause resume
//!
//! Invariants
//! - Each start has a name of its own, which is also its database sessions' name: what a process
//!   wrote can be told from what its successor wrote.
//! - Every kill and pause is noted with its time, by the clock that the database uses too.
//! - No process outlives this one: the kernel kills them with the harness, where it can be told to.

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

/// How long a process may take to be ready; far more than it needs.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// How long a process may take to stop.
const STOPS_WITHIN: Duration = Duration::from_secs(60);

/// How often it is looked whether a process has fallen.
const LOOK: Duration = Duration::from_millis(200);

/// What the harness's own program is called with to be a worker of jobs, or of tasks.
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
    /// They answer and dispatch, and leave the work to others.
    Dispatch,
    /// They work for an engine elsewhere, and answer nobody.
    Work,
    /// Not the service: they take jobs from it over HTTP.
    JobsByHttp,
    /// Not the service: they take jobs in plain SQL.
    JobsBySql,
    /// Not the service: they take tasks from it over HTTP.
    Tasks,
}

impl Part {
    /// Of the service; none of what is not.
    fn roles(self) -> Option<&'static str> {
        match self {
            Part::Everything => Some("api,dispatcher,worker"),
            Part::Dispatch => Some("api,dispatcher"),
            Part::Work => Some("worker"),
            Part::JobsByHttp | Part::JobsBySql | Part::Tasks => None,
        }
    }

    /// What one that is not the service is called with.
    fn mode(self) -> &'static str {
        if self == Part::Tasks { TASK_WORKER } else { JOB_WORKER }
    }

    fn answers(self) -> bool {
        matches!(self, Part::Everything | Part::Dispatch)
    }

    /// What their names begin with.
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

/// What every process of a fleet is started with.
#[derive(Clone, Debug)]
pub struct Spec {
    pub program: PathBuf,
    pub part: Part,
    /// Without a name for the sessions; each start appends its own.
    pub database_url: String,
    pub root_key: String,
    /// As `--set` takes them.
    pub settings: Vec<String>,
    /// What one that is not the service reads on its standard input, with its name as `worker`.
    pub order: Value,
    /// More of its environment.
    pub environment: Vec<(String, String)>,
    /// Where logs go.
    pub logs: PathBuf,
}

/// A process that was killed.
#[derive(Clone, Debug)]
pub struct Kill {
    pub name: String,
    pub at: i64,
}

/// A process that was stopped for a while. Open while it is.
#[derive(Clone, Debug)]
pub struct Pause {
    pub name: String,
    pub from: i64,
    pub to: Option<i64>,
}

/// What was done to a fleet.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub kills: Vec<Kill>,
    pub pauses: Vec<Pause>,
}

/// The processes, by place. A place keeps its number however often its process is replaced.
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
    /// None if it answers nobody.
    base: Option<String>,
    pid: u32,
    paused: bool,
    /// Killed when dropped.
    child: Child,
}

impl Fleet {
    /// Starts a process at each of so many places, side by side.
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

    /// Starts a process where there is none.
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

    /// Kills the process at a place, as a power cut would. None if there is none.
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

    /// Asks the process at a place to stop, and waits until it has: no fault, and not noted as one.
    pub async fn terminate(&self, place: usize) -> anyhow::Result<()> {
        let Some(mut gone) = lock(&self.places[place]).running.take() else { return Ok(()) };
        signal(gone.pid, Signal::SIGTERM);
        let ended = tokio::time::timeout(STOPS_WITHIN, gone.child.wait()).await.context("it did not stop in time")?;
        ensure!(ended.context("wait for it")?.success(), "{} did not stop well", gone.name);
        Ok(())
    }

    /// Stops the process at a place in its tracks; answers its name, or none if it is not running.
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

    /// Lets a paused process go on, if it is still the one of that name.
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

    /// Where the API of a place listens.
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

    /// The place that a process of that name was started at, whether it still runs or not.
    pub fn place_in(name: &str) -> Option<usize> {
        name.strip_prefix('p')?.split('-').next()?.parse().ok()
    }

    pub fn pids(&self) -> Vec<u32> {
        self.places.iter().filter_map(|place| lock(place).running.as_ref().map(|running| running.pid)).collect()
    }

    /// Waits until a process ends that nobody killed; answers which, and how.
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

    /// Everything goes on and everybody is there.
    pub async fn heal(&self) -> anyhow::Result<()> {
        for place in 0..self.len() {
            if let Some(name) = self.name(place) {
                self.resume(place, &name);
            }
        }
        futures_util::future::try_join_all((0..self.len()).map(|place| self.restart(place))).await?;
        Ok(())
    }

    /// Everybody is gone, at the end of a run: not a fault, and not noted as one.
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
    let log = std::fs::File::create(spec.logs.join(format!("{name}.log"))).context("make a log file")?;
    let mut command = command(spec, name);
    command.stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
    let mut child = command.spawn().context("run it")?;
    if let Some(mut stdin) = child.stdin.take() {
        let mut order = spec.order.clone();
        order["worker"] = json!(name);
        stdin.write_all(order.to_string().as_bytes()).await.context("give it its order")?;
    }
    let pid = child.id().context("it ended at once")?;
    let stdout = child.stdout.take().context("its output is piped")?;
    let mut lines = BufReader::new(stdout).lines();
    let ready = async {
        let mut base = None;
        while let Some(line) = lines.next_line().await? {
            if let Some(address) = line.strip_prefix("Forebay listens on ") {
                base = Some(address.to_owned());
            }
            if line == "ready" {
                ensure!(base.is_some() || !spec.part.answers(), "it did not say where it listens");
                return Ok(base);
            }
        }
        bail!("it ended before it was ready; its log is {}", spec.logs.join(format!("{name}.log")).display())
    };
    let base = tokio::time::timeout(READY_WITHIN, ready).await.context("it was not ready in time")??;
    Ok(Running { name: name.to_owned(), base, pid, paused: false, child })
}

fn command(spec: &Spec, name: &str) -> Command {
    let mut command = tied(&spec.program);
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

/// On Linux the kernel ends the child when the thread that made it is gone, however that happened.
pub(crate) fn tied(program: &Path) -> Command {
    let setpriv = Path::new("/usr/bin/setpriv");
    if !setpriv.exists() {
        return Command::new(program);
    }
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// How a child ended, if it has. It is left to be reaped, so that its id stays its own.
fn ended(pid: u32) -> Option<WaitStatus> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?);
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    waitid(Id::Pid(pid), look).ok().filter(|status| *status != WaitStatus::StillAlive)
}

fn signal(pid: u32, signal: Signal) {
    // The child is not reaped before it is dropped, so the id is still its own; one that ended by
    // itself is found by whoever watches for it (`one_falls`), or missing by the judge.
    let _gone = i32::try_from(pid).map(|pid| kill(Pid::from_raw(pid), signal));
}

fn lock<T>(mutex: &Mutex<T>) -> parking_lot::MutexGuard<'_, T> {
    mutex.lock()
}
