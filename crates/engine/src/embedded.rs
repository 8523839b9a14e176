//! The engine inside this process. It is durable because every fact is stored before it is acted on.
//!
//! Invariants
//! - A run belongs to one process at a time: its row stores the owner and the epoch. A process that no longer owns a
//!   run learns this at the latest when it next writes a record of the run.
//! - Each run is a task with its own state, which no other run can read.
//! - The memory of this process may vanish at any moment. Only the rows are authoritative.
//!
//! Not here: heartbeats, finding parked runs and the runs of dead processes (the loops of `server` call `resume`).

pub(crate) mod permits;
mod run;
mod run_task;
mod suspects;
mod writer;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use kernel::execution;
use kernel::ids::{ExecutionId, ProcessId, WorkspaceId};
use kernel::queue::StartOutcome;
use kernel::run::failure::{Class, Failure};
use kernel::signals::{events, metrics};
use parking_lot::Mutex;
use store::queue::claim::Begun;
use store::run::{BeginOutcome, End, StoredNode};
use store::{Error, Store};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::liveness::Liveness;
use crate::nodes::call::CallResources;
use crate::outbound::Outbound;
use crate::vault::{OuterKeys, Vault};
use crate::versions::VersionCache;
use crate::{Engine, RunDescription, ending, log_event};
use permits::Permits;
use run::RunMessage;
use writer::Writer;

/// The engine's name, stored on each execution it runs.
pub const NAME: &str = "embedded";

/// The operator's settings.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddedSettings {
    /// How many runs this process holds at once. Parked runs do not count.
    pub max_runs: usize,
    /// How many nodes of this process may make calls at the same time.
    pub max_calls: usize,
    /// The maximum length of a chain of executions that start each other.
    pub max_generations: u32,
}

/// No timer runs for longer than this, and no deadline is further away.
const LONGEST_SLEEP: Duration = Duration::from_secs(60 * 60 * 24 * 60);
/// How many runs are loaded at the same time.
const RESUMED_AT_ONCE: usize = 16;

/// Why this process no longer holds a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunExit {
    /// The run ended. The workspace in `freed`, if any, has one more free slot.
    Ended { freed: Option<WorkspaceId> },
    /// The run needs no process until it is resumed.
    Parked,
    /// This process is shutting down. Another process resumes the run from its rows.
    Released,
    /// Another process owns this run.
    Lost,
}

/// Called for every run that this process no longer holds. The process then has room for another run.
pub type OnRunExit = Arc<dyn Fn(ExecutionId, RunExit) + Send + Sync>;

/// Called when a node started another execution in this workspace.
pub type OnReady = Arc<dyn Fn(WorkspaceId) + Send + Sync>;

/// The embedded engine. Cheap to clone.
#[derive(Clone)]
pub struct Embedded {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedded").field("runs", &self.held_runs().len()).finish_non_exhaustive()
    }
}

struct Shared {
    store: Store,
    resources: CallResources,
    settings: EmbeddedSettings,
    versions: VersionCache,
    permits: Permits,
    writer: Writer,
    on_run_exit: OnRunExit,
    on_ready: OnceLock<OnReady>,
    runs: Mutex<Runs>,
    tasks: TaskTracker,
    /// The solo permit. A run whose owners keep dying needs it, so only one such run is active at a time.
    suspects: Arc<Semaphore>,
}

/// The runs that this process holds, and the process id it holds them under.
#[derive(Default)]
struct Runs {
    /// The current id of this process. None while it may not act for any run.
    process: Option<ProcessId>,
    held: BTreeMap<ExecutionId, HeldRun>,
}

struct HeldRun {
    epoch: i64,
    inbox: mpsc::UnboundedSender<RunMessage>,
    task: tokio::task::AbortHandle,
    /// Cancelled when the task has completed or was aborted.
    ended: CancellationToken,
}

impl Embedded {
    /// An engine that stores through `store`, makes calls through `outbound`, and decrypts secrets with `keys`.
    pub fn new(
        store: Store,
        outbound: Outbound,
        keys: OuterKeys,
        settings: EmbeddedSettings,
        liveness: Arc<Liveness>,
        on_run_exit: OnRunExit,
    ) -> Embedded {
        let shared = Shared {
            writer: Writer::spawn(store.clone()),
            resources: CallResources {
                vault: Vault::new(store.clone(), keys),
                store: store.clone(),
                outbound,
                liveness,
            },
            store,
            settings,
            versions: VersionCache::default(),
            permits: Permits::new(settings.max_calls),
            on_run_exit,
            on_ready: OnceLock::new(),
            runs: Mutex::new(Runs::default()),
            tasks: TaskTracker::new(),
            suspects: Arc::new(Semaphore::new(1)),
        };
        Embedded { shared: Arc::new(shared) }
    }

    /// Calls `on_ready` when a node starts another execution, so that the dispatcher need not wait for its poll.
    pub fn on_ready(&self, on_ready: OnReady) {
        // Only the first callback is kept.
        let _known = self.shared.on_ready.set(on_ready);
    }

    /// The runs this process holds, with their epochs.
    pub fn held_runs(&self) -> BTreeMap<ExecutionId, i64> {
        let runs = self.shared.runs.lock();
        runs.held.iter().map(|(id, held)| (*id, held.epoch)).collect()
    }

    /// How many more runs this process can resume now. This is more than `capacity`: part of the room is reserved for
    /// runs that already hold a slot, so that new runs never crowd them out.
    pub fn resume_capacity(&self) -> usize {
        self.shared.settings.max_runs.saturating_sub(self.count())
    }

    fn count(&self) -> usize {
        self.shared.runs.lock().held.len()
    }

    /// Resumes runs that this process owns in the store but does not hold in memory. A few are loaded at a time,
    /// because their outputs may be large. With `alone`, each run waits for the solo permit, because several of its
    /// owners died. A terminated run is ended instead.
    pub async fn resume(&self, process: ProcessId, runs: &[ExecutionId], alone: bool) -> Result<(), Error> {
        for some in runs.chunks(RESUMED_AT_ONCE) {
            for loaded in self.shared.store.load_runs(process, some).await? {
                match loaded.nodes {
                    _ if loaded.terminating => self.end_terminated(process, &loaded.begun).await,
                    Ok(nodes) => self.spawn(process, loaded.begun, nodes, loaded.canceling, alone),
                    Err(error) => {
                        let reason = format!("the run's stored state cannot be read: {error}");
                        self.shared.fail_run(process, &loaded.begun, Failure::new(Class::BadGraph, reason)).await;
                    }
                }
            }
        }
        Ok(())
    }

    /// Resumes the run if this process owns it in the store, and does not already hold it in memory under that epoch.
    async fn resume_if_owned(&self, process: ProcessId, execution: ExecutionId) {
        if let Err(error) = self.resume(process, &[execution], false).await {
            tracing::warn!(execution_id = %execution, error = &error as &dyn std::error::Error,
                "Failed to resume run; the next poll retries it");
        }
    }

    /// Ends a run that was terminated. The run's task ends before the slot is freed.
    async fn end_terminated(&self, process: ProcessId, begun: &Begun) {
        self.abort(begun.execution).await;
        let exit = self.shared.end_run(process, begun, ending::terminated()).await;
        self.shared.remove_run(begun.execution, begun.epoch, exit);
    }

    /// Drops runs whose execution was deleted. Each run's task ends before the slot is freed.
    pub async fn drop_missing(&self, runs: &[ExecutionId]) {
        for id in runs {
            let Some(epoch) = self.abort(*id).await else { continue };
            let exit = self.shared.end_if_missing(*id, RunExit::Lost).await;
            self.shared.remove_run(*id, epoch, exit);
        }
    }

    /// Aborts the task of a run and waits for its end. Returns the run's epoch; None if this process does not hold it.
    async fn abort(&self, id: ExecutionId) -> Option<i64> {
        let held = self.shared.runs.lock().held.remove(&id)?;
        held.task.abort();
        held.ended.cancelled().await;
        Some(held.epoch)
    }

    /// Sets the id of this process. From now on the engine accepts runs for this id only.
    pub fn set_process(&self, process: ProcessId) {
        self.shared.runs.lock().process = Some(process);
    }

    /// Drops every run, aborts its requests and accepts no other run, because this process may no longer act for runs.
    /// May be called from any thread.
    pub fn drop_all(&self) {
        let runs = std::mem::take(&mut *self.shared.runs.lock());
        for held in runs.held.values() {
            held.task.abort();
        }
    }

    /// Releases every run: immediately if it has no calls in flight, else once the results of its calls are recorded,
    /// at the latest after `grace`. The engine accepts no further run.
    pub async fn drain(&self, grace: Duration) {
        {
            let mut runs = self.shared.runs.lock();
            runs.process = None;
            for held in runs.held.values() {
                let _leaving = held.inbox.send(RunMessage::Drain);
            }
        }
        if tokio::time::timeout(grace, self.wait_until_ended()).await.is_err() {
            self.drop_all();
            self.wait_until_ended().await;
        }
    }

    /// Waits until every dropped run's task has ended.
    pub async fn wait_until_ended(&self) {
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
        self.shared.tasks.reopen();
    }

    fn spawn(&self, process: ProcessId, mut begun: Begun, stored: Vec<StoredNode>, mut canceling: bool, alone: bool) {
        let (inbox, mut receive) = mpsc::unbounded_channel();
        let (id, epoch) = (begun.execution, begun.epoch);
        let (engine, shared) = (self.clone(), Arc::clone(&self.shared));
        let ended = CancellationToken::new();
        let end_guard = ended.clone().drop_guard();
        let mut runs = self.shared.runs.lock();
        // If this process gave up its id before its claim was answered, a dead id owns the run. Another owner resumes
        // the run.
        if runs.process != Some(process) || runs.held.get(&id).is_some_and(|held| held.epoch >= epoch) {
            return;
        }
        let span = run_task::span(&begun);
        let run = async move {
            let _end_guard = end_guard;
            let solo_permit = match alone {
                false => Ok(None),
                true => shared.acquire_solo_permit(process, &mut begun, &mut canceling, &mut receive).await,
            };
            let exit = match solo_permit {
                Ok(_permit) => shared.clone().run_to_exit(process, begun, stored, canceling, receive).await,
                Err(exit) => exit,
            };
            let exit = shared.end_if_missing(id, exit).await;
            shared.remove_run(id, epoch, exit);
            if exit == RunExit::Lost {
                engine.resume_if_owned(process, id).await;
            }
        };
        let task = self.shared.tasks.spawn(run.instrument(span));
        if let Some(old) = runs.held.insert(id, HeldRun { epoch, inbox, task: task.abort_handle(), ended }) {
            old.task.abort();
        }
        ::metrics::gauge!(metrics::RUNS_HELD.name).set(u32::try_from(runs.held.len()).unwrap_or(u32::MAX));
    }
}

impl Engine for Embedded {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capacity(&self) -> usize {
        let reserve = self.shared.settings.max_runs / 10;
        self.resume_capacity().saturating_sub(reserve)
    }

    fn begins_with_claim(&self) -> bool {
        true
    }

    fn run_begun(&self, process: ProcessId, begun: Vec<Begun>) {
        for begun in begun {
            match execution::rerun::is_seeded(&begun.trigger) {
                false => self.spawn(process, begun, Vec::new(), false, false),
                // A rerun may keep nodes of the old execution. They are loaded first, as for a resumed run.
                true => {
                    let engine = self.clone();
                    self.shared.tasks.spawn(async move { engine.resume_if_owned(process, begun.execution).await });
                }
            }
        }
    }

    fn start(&self, process: ProcessId, execution: ExecutionId) -> BoxFuture<'_, StartOutcome> {
        Box::pin(async move {
            let answers = match self.shared.store.begin(&[execution], NAME, process).await {
                Ok(answers) => answers,
                Err(error) => return StartOutcome::Ambiguous(error.to_string()),
            };
            match answers.into_iter().next() {
                Some((_, BeginOutcome::Granted(begun))) => {
                    // This may be a repeat of a start that was granted before a crash. The stored run is then resumed.
                    match self.resume(process, &[begun.execution], false).await {
                        Ok(()) => StartOutcome::Started,
                        Err(error) => StartOutcome::Ambiguous(error.to_string()),
                    }
                }
                Some((_, BeginOutcome::Ended)) => StartOutcome::AlreadyStarted,
                Some((_, BeginOutcome::NotYet)) => StartOutcome::Ambiguous(
                    "the queue item holds no slot, or only a newer release may run it".to_owned(),
                ),
                Some((_, BeginOutcome::Missing)) | None => {
                    log_event!(
                        events::EXECUTION_GONE,
                        execution_id = %execution,
                        queue_item_id = %execution.queue_item()
                    );
                    StartOutcome::Refused("the execution does not exist".to_owned())
                }
            }
        })
    }

    fn location(&self) -> Option<String> {
        None
    }

    /// The embedded engine knows every run that has begun, because it keeps all state in the store.
    fn describe(&self, execution: ExecutionId) -> BoxFuture<'_, Result<RunDescription, String>> {
        Box::pin(async move {
            let found = match self.shared.store.execution(execution, None).await {
                Ok(found) => found,
                Err(Error::NotFound) => return Ok(RunDescription::Unknown),
                Err(error) => return Err(error.to_string()),
            };
            Ok(match found.status {
                execution::Status::Pending => RunDescription::Unknown,
                execution::Status::Running => RunDescription::Running { stuck: None },
                outcome => RunDescription::Closed(End { outcome, output: found.output, error: None }),
            })
        })
    }

    /// Only a hint: the fence is already stored. Without the hint, the run ends at its next record or the next poll.
    fn terminate(&self, execution: ExecutionId) {
        let process = self.shared.runs.lock().process;
        let Some(process) = process else { return };
        let engine = self.clone();
        self.shared.tasks.spawn(async move { engine.resume_if_owned(process, execution).await });
    }

    fn cancel(&self, execution: ExecutionId) {
        self.shared.notify(execution, RunMessage::Cancel);
    }

    fn signal(&self, execution: ExecutionId) {
        self.shared.notify(execution, RunMessage::CheckWaits);
    }
}
