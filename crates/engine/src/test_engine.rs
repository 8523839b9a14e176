//! A remote engine in a directory, which misbehaves on order: for tests and the chaos harness only.
//!
//!     mode          how starts are answered: see `Mode`; a reason may follow the word
//!     where         the name of the place; "test" if there is no such file
//!     idle          while it is there, no worker picks anything up
//!     hold          while it is there, no run ends
//!     runs/<id>     what is known of an execution: RUNNING, or how it ended
//!     tasks/<id>    is to be performed; locked by the worker that does
//!     cancels/<id>  is asked to end
//!     log           one line for every answer to a start, every begin and every end
//!
//! Every process that is given the directory is a client and a worker of the same engine. A test
//! breaks it by writing and removing files.
//!
//! Invariants
//! - It outlives its clients: what it accepted is known to all of them, and a task of a worker that
//!   died is free for the next, because its lock went with the process.
//! - A start is accepted once: the file of its run is created, never replaced.
//! - It performs no nodes: a run begins, waits for `hold` to go, and completes.
//!
//! Not here: what its answers lead to (`kernel::queue`, `kernel::queue::breaker`).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use kernel::execution;
use kernel::ids::{ExecutionId, ProcessId};
use kernel::queue::Answer;
use kernel::run::failure::{Class, Failure};
use serde_json::json;
use store::Store;
use store::queue::claim::Begun;
use store::run::{BeginAnswer, End, Ending};

use crate::embedded::{Left, OnLeft};
use crate::{Described, Engine};

/// The name that executions note.
pub const NAME: &str = "test";

/// How often workers look for tasks, and held runs at what holds them.
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// How many more runs it can hold, unless it is told to be full.
const ROOM: usize = 1_000;

/// How starts are answered.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Mode {
    Available,
    /// Nothing can be started.
    Unavailable(String),
    /// No item is acceptable.
    Refuses(String),
    /// Starts it, and never answers.
    Slow,
    /// Starts it, and the answer is lost.
    Ambiguous,
    /// Starts it, and says that it cannot, as one does whose own storage answered too late.
    Hasty(String),
    /// The request is lost.
    Unsent,
    /// Says that it started, and knows nothing of it afterwards.
    Lost,
    /// It holds as many runs as it can.
    Full,
}

/// The engine as one process sees it. Cheap to clone.
#[derive(Clone)]
pub struct TestEngine {
    shared: Arc<Shared>,
}

struct Shared {
    directory: PathBuf,
    store: Store,
    on_left: OnLeft,
}

impl std::fmt::Debug for TestEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestEngine").field("directory", &self.shared.directory).finish_non_exhaustive()
    }
}

impl TestEngine {
    /// A client and worker of the engine in this directory, which is made if it is not there.
    pub fn open(directory: &Path, store: Store, on_left: OnLeft) -> io::Result<TestEngine> {
        for part in ["runs", "tasks", "cancels"] {
            fs::create_dir_all(directory.join(part))?;
        }
        let shared = Arc::new(Shared { directory: directory.to_owned(), store, on_left });
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

    /// Nothing begins with its claim, so there is nothing to adopt.
    fn adopt(&self, _process: ProcessId, _begun: Vec<Begun>) {}

    fn start(&self, _process: ProcessId, execution: ExecutionId) -> BoxFuture<'_, Answer> {
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

    fn place(&self) -> Option<String> {
        Some(self.shared.place())
    }

    fn describe(&self, execution: ExecutionId) -> BoxFuture<'_, Result<Described, String>> {
        Box::pin(async move {
            if let Mode::Unavailable(reason) = self.shared.mode() {
                return Err(reason);
            }
            match fs::read_to_string(self.shared.file("runs", execution)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Described::Unknown),
                Err(error) => Err(error.to_string()),
                Ok(text) => Ok(match execution::Status::parse(text.trim()) {
                    Some(outcome) if outcome.is_terminal() => Described::Closed(end(outcome)),
                    _ => Described::Running { stuck: None },
                }),
            }
        })
    }

    fn cancel(&self, execution: ExecutionId) {
        if let Err(error) = File::create(self.shared.file("cancels", execution)) {
            tracing::warn!(%execution, %error, "The test engine could not be told of a cancel");
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

    fn place(&self) -> String {
        fs::read_to_string(self.directory.join("where")).map_or_else(|_| NAME.to_owned(), |name| name.trim().to_owned())
    }

    fn mode(&self) -> Mode {
        let text = fs::read_to_string(self.directory.join("mode")).unwrap_or_default();
        let (word, reason) = text.trim().split_once(' ').unwrap_or((text.trim(), "the test engine was told so"));
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

    fn answer(&self, mode: &Mode, execution: ExecutionId) -> Answer {
        match mode {
            Mode::Unavailable(reason) => Answer::Unavailable(reason.clone()),
            Mode::Refuses(reason) => Answer::Refused(reason.clone()),
            Mode::Hasty(reason) => {
                let _there = self.accept(execution);
                Answer::Unavailable(reason.clone())
            }
            Mode::Unsent => Answer::Ambiguous("the connection was lost".to_owned()),
            Mode::Lost => Answer::Started,
            Mode::Available | Mode::Full | Mode::Slow => self.accept(execution),
            Mode::Ambiguous => match self.accept(execution) {
                Answer::Unavailable(reason) => Answer::Unavailable(reason),
                _ => Answer::Ambiguous("the connection was lost after sending".to_owned()),
            },
        }
    }

    fn accept(&self, execution: ExecutionId) -> Answer {
        match self.try_accept(execution) {
            Ok(true) => Answer::Started,
            Ok(false) => Answer::AlreadyThere,
            Err(error) => Answer::Unavailable(error.to_string()),
        }
    }

    /// The task first: a run that is known has one, whenever its client died. It is put in its place
    /// locked, and stays so until the run is known: no worker is faster.
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

    /// Tasks that nobody performs, now locked for this process.
    fn take_tasks(&self) -> io::Result<Vec<(ExecutionId, File)>> {
        if self.is_there("idle") {
            return Ok(Vec::new());
        }
        let mut taken = Vec::new();
        for entry in fs::read_dir(self.directory.join("tasks"))? {
            let entry = entry?;
            let Some(execution) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // One that vanished was performed meanwhile.
            let Ok(task) = OpenOptions::new().write(true).open(entry.path()) else { continue };
            if task.try_lock().is_ok() && entry.path().exists() {
                taken.push((execution, task));
            }
        }
        Ok(taken)
    }

    /// One task of a worker: begin, wait, complete. Trouble on the way leaves the task to be taken again.
    async fn perform(&self, execution: ExecutionId, task: File) -> Result<(), store::Error> {
        // The run is its own owner: whichever worker performs it may ask again.
        let run = ProcessId(execution.0);
        let place = self.place();
        let answers = self.store.begin_at(&[execution], NAME, Some(&place), run).await?;
        match answers.into_iter().next() {
            Some((_, BeginAnswer::Granted(_))) => self.log(&format!("begin {execution}")),
            // It is to be tried again when it has its slot.
            Some((_, BeginAnswer::NotYet)) => return Ok(()),
            Some((_, BeginAnswer::Ended | BeginAnswer::Gone)) | None => {
                self.close(execution, execution::Status::Canceled);
                return Ok(());
            }
        }
        while self.is_there("hold") && !self.file("cancels", execution).exists() {
            if !self.file("tasks", execution).exists() {
                // Its worker is dead, as far as anybody can tell.
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
            (self.on_left)(execution, Left::Ended { freed: ended.freed.then_some(ended.workspace) });
        }
        self.close(execution, outcome);
        drop(task);
        Ok(())
    }

    /// The first outcome stands: a task may be made twice, by two clients at once.
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

/// Takes tasks up for as long as the engine is in use.
async fn work(shared: Weak<Shared>) {
    while let Some(shared) = shared.upgrade() {
        match shared.take_tasks() {
            Err(error) => tracing::warn!(%error, "The test engine cannot read its tasks"),
            Ok(tasks) => {
                for (execution, task) in tasks {
                    let shared = Arc::clone(&shared);
                    tokio::spawn(async move {
                        if let Err(error) = shared.perform(execution, task).await {
                            tracing::warn!(%execution, %error, "A run of the test engine is tried again");
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
        error: failed.then(|| Failure::new(Class::ExecutionError, "the test engine ended it so")),
    }
}
