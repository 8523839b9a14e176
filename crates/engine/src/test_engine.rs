//! A fake remote engine that misbehaves on request. Its state is a directory. For tests and the chaos harness only.
//!
//!     mode          how starts are answered: see `Mode`; a reason may follow the word
//!     where         the name of the place; "test" if the file is missing
//!     idle          while it exists, no worker accepts a task
//!     hold          while it exists, no run ends
//!     runs/<id>     the state of an execution: RUNNING, or how it ended
//!     tasks/<id>    a task to perform; locked by the worker that performs it
//!     cancels/<id>  a request to cancel
//!     log           one line for every answer to a start request, every begin and every end
//!
//! Every process that gets the directory is a client and a worker of the same engine. A test makes the engine misbehave
//! by creating and removing files.
//!
//! Invariants
//! - The engine outlives its clients. All clients see what it accepted. A task whose worker died is free for the next
//!   worker, because the lock on its file ended with the process.
//! - A start is accepted once: the file of its run is created, never replaced.
//! - The engine performs no nodes. A run begins, waits until `hold` is removed, and completes.
//!
//! Not here: the consequences of the engine's answers (`kernel::queue`, `kernel::queue::breaker`).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use kernel::execution;
use kernel::ids::{ExecutionId, ProcessId};
use kernel::queue::StartOutcome;
use kernel::run::failure::{Class, Failure};
use serde_json::json;
use store::Store;
use store::queue::claim::Begun;
use store::run::{BeginOutcome, End, Ending};

use crate::embedded::{OnRunExit, RunExit};
use crate::{Engine, RunDescription};

/// The engine's name, stored on each execution it runs.
pub const NAME: &str = "test";

/// How often workers poll for tasks, and how often held runs check `hold`.
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// How many more runs the engine says it can hold, unless its mode is `full`.
const ROOM: usize = 1_000;

/// How starts are answered.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Mode {
    Available,
    /// No execution can be started.
    Unavailable(String),
    /// Every item is refused.
    Refuses(String),
    /// Starts the execution and never answers.
    Slow,
    /// Starts the execution, and the answer is lost.
    Ambiguous,
    /// Starts the execution and reports that it could not, like an engine whose own storage timed out.
    Hasty(String),
    /// The request is lost: the execution is not started, and the answer is ambiguous.
    Unsent,
    /// Reports that the execution was started, but does not start it and does not know it afterwards.
    Lost,
    /// The engine holds as many runs as it can.
    Full,
}

/// The engine as seen by one process. Cheap to clone.
#[derive(Clone)]
pub struct TestEngine {
    shared: Arc<Shared>,
}

struct Shared {
    directory: PathBuf,
    store: Store,
    on_run_exit: OnRunExit,
}

impl std::fmt::Debug for TestEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestEngine").field("directory", &self.shared.directory).finish_non_exhaustive()
    }
}

impl TestEngine {
    /// A client and worker of the engine in this directory. Creates the directory if it does not exist.
    pub fn open(directory: &Path, store: Store, on_run_exit: OnRunExit) -> io::Result<TestEngine> {
        for part in ["runs", "tasks", "cancels"] {
            fs::create_dir_all(directory.join(part))?;
        }
        let shared = Arc::new(Shared { directory: directory.to_owned(), store, on_run_exit });
        tokio::spawn(work(Arc::downgrade(&shared)));
        Ok(TestEngine { shared })
    }
}

impl Engine for TestEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capacity(&self) -> usize {
        if self.shared.mode() == Mode::Full { 0 } else { ROOM }
    }

    fn begins_with_claim(&self) -> bool {
        false
    }

    /// No execution begins in the commit of its claim, so there is nothing to run.
    fn run_begun(&self, _process: ProcessId, _begun: Vec<Begun>) {}

    fn start(&self, _process: ProcessId, execution: ExecutionId) -> BoxFuture<'_, StartOutcome> {
        Box::pin(async move {
            let mode = self.shared.mode();
            let answer = self.shared.answer(&mode, execution);
            self.shared.log(&format!("start {execution} {answer:?}"));
            if mode == Mode::Slow {
                std::future::pending::<()>().await;
            }
            answer
        })
    }

    fn location(&self) -> Option<String> {
        Some(self.shared.location())
    }

    fn describe(&self, execution: ExecutionId) -> BoxFuture<'_, Result<RunDescription, String>> {
        Box::pin(async move {
            if let Mode::Unavailable(reason) = self.shared.mode() {
                return Err(reason);
            }
            match fs::read_to_string(self.shared.file("runs", execution)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(RunDescription::Unknown),
                Err(error) => Err(error.to_string()),
                Ok(text) => Ok(match execution::Status::parse(text.trim()) {
                    Some(outcome) if outcome.is_terminal() => RunDescription::Closed(end(outcome)),
                    _ => RunDescription::Running { stuck: None },
                }),
            }
        })
    }

    fn cancel(&self, execution: ExecutionId) {
        if let Err(error) = File::create(self.shared.file("cancels", execution)) {
            tracing::warn!(%execution, %error, "The test engine failed to store a cancel request");
        }
    }
}

impl Shared {
    fn file(&self, part: &str, execution: ExecutionId) -> PathBuf {
        self.directory.join(part).join(execution.to_string())
    }

    fn is_there(&self, name: &str) -> bool {
        self.directory.join(name).exists()
    }

    fn location(&self) -> String {
        fs::read_to_string(self.directory.join("where")).map_or_else(|_| NAME.to_owned(), |name| name.trim().to_owned())
    }

    fn mode(&self) -> Mode {
        let text = fs::read_to_string(self.directory.join("mode")).unwrap_or_default();
        let (word, reason) = text.trim().split_once(' ').unwrap_or((text.trim(), "the test engine's mode says so"));
        match word {
            "unavailable" => Mode::Unavailable(reason.to_owned()),
            "refuses" => Mode::Refuses(reason.to_owned()),
            "slow" => Mode::Slow,
            "ambiguous" => Mode::Ambiguous,
            "hasty" => Mode::Hasty(reason.to_owned()),
            "unsent" => Mode::Unsent,
            "lost" => Mode::Lost,
            "full" => Mode::Full,
            _ => Mode::Available,
        }
    }

    fn answer(&self, mode: &Mode, execution: ExecutionId) -> StartOutcome {
        match mode {
            Mode::Unavailable(reason) => StartOutcome::Unavailable(reason.clone()),
            Mode::Refuses(reason) => StartOutcome::Refused(reason.clone()),
            Mode::Hasty(reason) => {
                let _there = self.accept(execution);
                StartOutcome::Unavailable(reason.clone())
            }
            Mode::Unsent => StartOutcome::Ambiguous("the connection was lost".to_owned()),
            Mode::Lost => StartOutcome::Started,
            Mode::Available | Mode::Full | Mode::Slow => self.accept(execution),
            Mode::Ambiguous => match self.accept(execution) {
                StartOutcome::Unavailable(reason) => StartOutcome::Unavailable(reason),
                _ => StartOutcome::Ambiguous("the connection was lost after sending".to_owned()),
            },
        }
    }

    fn accept(&self, execution: ExecutionId) -> StartOutcome {
        match self.try_accept(execution) {
            Ok(true) => StartOutcome::Started,
            Ok(false) => StartOutcome::AlreadyStarted,
            Err(error) => StartOutcome::Unavailable(error.to_string()),
        }
    }

    /// Creates the task before the run, so that every run has a task even if this process dies in between. The task is
    /// locked until the run exists, so that no worker starts too early.
    fn try_accept(&self, execution: ExecutionId) -> io::Result<bool> {
        let run = self.file("runs", execution);
        if run.exists() {
            return Ok(false);
        }
        let new = self.directory.join(format!("new-{}", store::new_id()));
        let task = File::create(&new)?;
        task.lock()?;
        match fs::hard_link(&new, self.file("tasks", execution)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => fs::remove_file(new)?,
        }
        match File::create_new(run) {
            Ok(mut run) => run.write_all(b"RUNNING").map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn log(&self, line: &str) {
        let log = OpenOptions::new().create(true).append(true).open(self.directory.join("log"));
        if let Err(error) = log.and_then(|mut log| log.write_all(format!("{line}\n").as_bytes())) {
            tracing::warn!(%error, "The test engine could not write its log");
        }
    }

    /// Locks the tasks that no worker holds, and returns them.
    fn take_tasks(&self) -> io::Result<Vec<(ExecutionId, File)>> {
        if self.is_there("idle") {
            return Ok(Vec::new());
        }
        let mut taken = Vec::new();
        for entry in fs::read_dir(self.directory.join("tasks"))? {
            let entry = entry?;
            let Some(execution) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // If the file is gone, another worker has performed the task in the meantime.
            let Ok(task) = OpenOptions::new().write(true).open(entry.path()) else { continue };
            if task.try_lock().is_ok() && entry.path().exists() {
                taken.push((execution, task));
            }
        }
        Ok(taken)
    }

    /// Performs one task of a worker: begin, wait, complete. After an error the task is retried.
    async fn perform(&self, execution: ExecutionId, task: File) -> Result<(), store::Error> {
        // The owner is derived from the execution's id, so any worker that performs the run may repeat the request.
        let run = ProcessId(execution.0);
        let location = self.location();
        let answers = self.store.begin_on_engine(&[execution], NAME, Some(&location), run).await?;
        match answers.into_iter().next() {
            Some((_, BeginOutcome::Granted(_))) => self.log(&format!("begin {execution}")),
            // The task is retried until the item holds its slot.
            Some((_, BeginOutcome::NotYet)) => return Ok(()),
            Some((_, BeginOutcome::Ended | BeginOutcome::Missing)) | None => {
                self.close(execution, execution::Status::Canceled);
                return Ok(());
            }
        }
        while self.is_there("hold") && !self.file("cancels", execution).exists() {
            if !self.file("tasks", execution).exists() {
                // A test removed the task: its worker must look dead to the other clients.
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let canceled = self.file("cancels", execution).exists();
        let outcome = if canceled { execution::Status::Canceled } else { execution::Status::Completed };
        let ending = Ending { execution, claim: None, end: end(outcome) };
        let ended = self.store.complete(&[ending], Some(execution::Status::Running), "engine").await?;
        for ended in ended {
            self.log(&format!("end {execution} {} applied={}", outcome.name(), ended.applied));
            (self.on_run_exit)(execution, RunExit::Ended { freed: ended.freed.then_some(ended.workspace) });
        }
        self.close(execution, outcome);
        drop(task);
        Ok(())
    }

    /// Stores how a run ended, and keeps an outcome that is already stored: two clients may perform the same run.
    fn close(&self, execution: ExecutionId, outcome: execution::Status) {
        let run = self.file("runs", execution);
        let known = fs::read_to_string(&run).ok().and_then(|text| execution::Status::parse(text.trim()));
        let noted = match known {
            Some(known) if known.is_terminal() => Ok(()),
            _ => fs::write(run, outcome.name()),
        };
        if let Err(error) = noted.and_then(|()| fs::remove_file(self.file("tasks", execution))) {
            tracing::warn!(%execution, %error, "The test engine could not close a run");
        }
    }
}

/// Performs tasks for as long as the engine is in use.
async fn work(shared: Weak<Shared>) {
    while let Some(shared) = shared.upgrade() {
        match shared.take_tasks() {
            Err(error) => tracing::warn!(%error, "The test engine failed to read its tasks"),
            Ok(tasks) => {
                for (execution, task) in tasks {
                    let shared = Arc::clone(&shared);
                    tokio::spawn(async move {
                        if let Err(error) = shared.perform(execution, task).await {
                            tracing::warn!(%execution, %error, "The test engine failed to perform a run; retrying");
                        }
                    });
                }
            }
        }
        drop(shared);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn end(outcome: execution::Status) -> End {
    let failed = matches!(outcome, execution::Status::Failed | execution::Status::TimedOut);
    End {
        outcome,
        output: (outcome == execution::Status::Completed).then(|| json!({ "engine": NAME })),
        error: failed.then(|| Failure::new(Class::ExecutionError, "a test ended the execution with this status")),
    }
}
