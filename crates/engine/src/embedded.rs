//! The engine inside this process: durable, because every fact is stored before it is acted on.
//!
//! Invariants
//! - A run belongs to one process at a time, by owner and epoch on its row; a process that lost it
//!   learns so at its next record, at the latest.
//! - Each run is a task of its own, with its own state; nothing of one run is visible to another.
//! - What this process holds in memory may vanish at any moment: the rows are the truth.
//!
//! Not here: heartbeats, taking over runs of the dead, waking (`server`'s loops call `resume`).

mod engine;
mod permits;
mod run;
mod versions;
mod writer;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use kernel::execution;
use kernel::failure::{Class, Failure};
use kernel::ids::{ExecutionId, ProcessId, WorkspaceId};
use kernel::signals::{metrics, spans};
use store::admission::Begun;
use store::run::{End, Record, StoredNode};
use store::{Error, Store};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::outbound::Outbound;
use crate::pulse::Pulse;
use crate::trace;
use permits::Permits;
use run::{Driver, Message};
use versions::Versions;
use writer::{Told, Writer};

/// The name that executions note.
pub const NAME: &str = "embedded";

/// What an operator may set.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How many runs this process holds at once; parked ones do not count.
    pub max_runs: usize,
    /// How many nodes of this process may call out at once.
    pub max_calls: usize,
}

/// Timers do not reach further; no deadline does either.
const LONGEST_SLEEP: Duration = Duration::from_secs(60 * 60 * 24 * 60);
/// How many runs are loaded at once.
const RESUMED_AT_ONCE: usize = 16;

/// How a run left this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It ended; this workspace has a slot more.
    Ended { freed: Option<WorkspaceId> },
    /// It needs no process until it is woken.
    Parked,
    /// This process is to stop; the run is where its rows left it.
    Released,
    /// It is another's by now.
    Lost,
}

/// Is told of every run that left: the dispatcher has room, and perhaps a slot to hand over.
pub type OnLeft = Arc<dyn Fn(ExecutionId, Left) + Send + Sync>;

/// The embedded engine. Cheap to clone.
#[derive(Clone)]
pub struct Embedded {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedded").field("runs", &self.held().len()).finish_non_exhaustive()
    }
}

struct Shared {
    store: Store,
    outbound: Outbound,
    settings: Settings,
    versions: Versions,
    permits: Permits,
    writer: Writer,
    pulse: Arc<Pulse>,
    on_left: OnLeft,
    runs: Mutex<Runs>,
    tasks: TaskTracker,
    /// A run that its processes keep dying of is resumed alone.
    suspects: Arc<Semaphore>,
}

/// What this process holds, and as whom.
#[derive(Default)]
struct Runs {
    /// The id it lives under now; none while it may act for nobody.
    process: Option<ProcessId>,
    held: BTreeMap<ExecutionId, Held>,
}

struct Held {
    epoch: i64,
    inbox: mpsc::UnboundedSender<Message>,
    task: tokio::task::AbortHandle,
    /// Cancelled when the task is over, aborted or not.
    gone: CancellationToken,
}

impl Embedded {
    /// An engine that stores through `store` and calls out through `outbound`.
    pub fn new(store: Store, outbound: Outbound, settings: Settings, pulse: Arc<Pulse>, on_left: OnLeft) -> Embedded {
        let shared = Shared {
            writer: Writer::spawn(store.clone()),
            store,
            outbound,
            settings,
            versions: Versions::default(),
            permits: Permits::new(settings.max_calls),
            pulse,
            on_left,
            runs: Mutex::new(Runs::default()),
            tasks: TaskTracker::new(),
            suspects: Arc::new(Semaphore::new(1)),
        };
        Embedded { shared: Arc::new(shared) }
    }

    /// The runs this process holds, with their epochs.
    pub fn held(&self) -> BTreeMap<ExecutionId, i64> {
        let runs = self.shared.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.held.iter().map(|(id, held)| (*id, held.epoch)).collect()
    }

    /// How many runs it could take up again now. More than `capacity`: a part of the room is kept for
    /// runs that hold a slot already, so that new ones never crowd them out.
    pub fn room(&self) -> usize {
        self.shared.settings.max_runs.saturating_sub(self.count())
    }

    fn count(&self) -> usize {
        self.shared.runs.lock().unwrap_or_else(PoisonError::into_inner).held.len()
    }

    /// Takes up runs that this process owns in the store but does not hold, a few at a time, because
    /// their outputs may be large. `alone`: one after the other, because the processes that held
    /// them died. One that was terminated is ended instead.
    pub async fn resume(&self, process: ProcessId, runs: &[ExecutionId], alone: bool) -> Result<(), Error> {
        for some in runs.chunks(RESUMED_AT_ONCE) {
            for loaded in self.shared.store.load_runs(process, some).await? {
                match loaded.nodes {
                    _ if loaded.terminating => self.end_terminated(process, &loaded.begun).await,
                    Ok(nodes) => self.spawn(process, loaded.begun, nodes, loaded.canceling, alone),
                    Err(error) => {
                        let reason = format!("what is stored of it cannot be read: {error}");
                        self.shared.give_up(process, &loaded.begun, Class::BadGraph, reason).await;
                    }
                }
            }
        }
        Ok(())
    }

    /// Looks whether this process owns a run under a newer epoch than it held it, and goes on with it.
    async fn take_up(&self, process: ProcessId, execution: ExecutionId) {
        if let Err(error) = self.resume(process, &[execution], false).await {
            tracing::warn!(execution_id = %execution, error = &error as &dyn std::error::Error, "Taking a run up failed; the next look finds it");
        }
    }

    /// Ends a run that somebody terminated. What this process still does for it is broken off, and gone,
    /// before the slot is freed.
    async fn end_terminated(&self, process: ProcessId, begun: &Begun) {
        let held = {
            let mut runs = self.shared.runs.lock().unwrap_or_else(PoisonError::into_inner);
            runs.held.remove(&begun.execution)
        };
        if let Some(held) = held {
            held.task.abort();
            held.gone.cancelled().await;
        }
        let error = Some(store::control::terminated());
        let end = End { outcome: execution::Status::Canceled, output: None, error };
        let left = self.shared.end(process, begun, end).await;
        self.shared.leave(begun.execution, begun.epoch, left);
    }

    /// From now on this process lives under that id: runs are taken in for it, and for no other.
    pub fn assume(&self, process: ProcessId) {
        self.shared.runs.lock().unwrap_or_else(PoisonError::into_inner).process = Some(process);
    }

    /// Drops every run and takes none in, because this process may no longer act for them. Their
    /// requests are broken off. May be called from any thread.
    pub fn abandon(&self) {
        let runs = std::mem::take(&mut *self.shared.runs.lock().unwrap_or_else(PoisonError::into_inner));
        for held in runs.held.values() {
            held.task.abort();
        }
    }

    /// Lets every run go: at once where nothing is in flight, else when what is has been recorded, at
    /// the latest after `grace`. None is taken in from now on.
    pub async fn drain(&self, grace: Duration) {
        {
            let mut runs = self.shared.runs.lock().unwrap_or_else(PoisonError::into_inner);
            runs.process = None;
            for held in runs.held.values() {
                let _leaving = held.inbox.send(Message::Drain);
            }
        }
        if tokio::time::timeout(grace, self.gone()).await.is_err() {
            self.abandon();
            self.gone().await;
        }
    }

    /// Waits until every run that was dropped is really gone.
    pub async fn gone(&self) {
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
        self.shared.tasks.reopen();
    }

    fn spawn(&self, process: ProcessId, mut begun: Begun, stored: Vec<StoredNode>, mut canceling: bool, alone: bool) {
        let (inbox, mut receive) = mpsc::unbounded_channel();
        let (id, epoch) = (begun.execution, begun.epoch);
        let (engine, shared) = (self.clone(), Arc::clone(&self.shared));
        let gone = CancellationToken::new();
        let going = gone.clone().drop_guard();
        let mut runs = self.shared.runs.lock().unwrap_or_else(PoisonError::into_inner);
        // A claim that was answered after this process gave itself up belongs to a dead id: another
        // owner takes it up.
        if runs.process != Some(process) || runs.held.get(&id).is_some_and(|held| held.epoch >= epoch) {
            return;
        }
        let span = span(&begun);
        let run = async move {
            let _going = going;
            // While it waits to be alone it can still be canceled, or run out of time.
            let _alone = match alone {
                false => None,
                true => tokio::select! {
                    permit = shared.suspects.clone().acquire_owned() => permit.ok(),
                    message = receive.recv() => match message {
                        Some(Message::Drain) => return shared.leave(id, epoch, Left::Released),
                        Some(Message::Cancel) | None => { canceling = true; None }
                    },
                    () = tokio::time::sleep(begun.deadline_in.min(LONGEST_SLEEP)) => {
                        begun.deadline_in = Duration::ZERO;
                        None
                    }
                },
            };
            let driven = shared.clone().drive(process, begun.clone(), stored, canceling, receive);
            let left = match std::panic::AssertUnwindSafe(driven).catch_unwind().await {
                Ok(left) => left,
                Err(_) => shared.broke(process, &begun).await,
            };
            shared.leave(id, epoch, left);
            if left == Left::Lost {
                engine.take_up(process, id).await;
            }
        };
        let task = self.shared.tasks.spawn(run.instrument(span));
        if let Some(old) = runs.held.insert(id, Held { epoch, inbox, task: task.abort_handle(), gone }) {
            old.task.abort();
        }
        ::metrics::gauge!(metrics::RUNS_HELD.name).set(u32::try_from(runs.held.len()).unwrap_or(u32::MAX));
    }
}

impl Shared {
    async fn drive(
        self: Arc<Self>,
        process: ProcessId,
        begun: Begun,
        stored: Vec<StoredNode>,
        canceling: bool,
        inbox: mpsc::UnboundedReceiver<Message>,
    ) -> Left {
        let mut pause = Duration::from_millis(50);
        let version = loop {
            match self.versions.get(&self.store, begun.version).await {
                Ok(version) => break version,
                Err(versions::Error::Store(error)) if !matches!(error, Error::NotFound | Error::Corrupt(_)) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "Reading a version failed, trying again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(2));
                }
                Err(error @ versions::Error::Missing(_)) => {
                    return self.give_up(process, &begun, Class::DefinitionGone, error.to_string()).await;
                }
                Err(error) => return self.give_up(process, &begun, Class::BadGraph, error.to_string()).await,
            }
        };
        let driver = Driver::new(Arc::clone(&self), process, begun, version, stored, canceling, inbox);
        Box::pin(driver.drive()).await
    }

    async fn give_up(&self, process: ProcessId, begun: &Begun, class: Class, reason: String) -> Left {
        tracing::warn!(execution_id = %begun.execution, workspace_id = %begun.workspace, reason, "An execution cannot be run");
        let end = End { outcome: execution::Status::Failed, output: None, error: Some(Failure::new(class, reason)) };
        self.end(process, begun, end).await
    }

    async fn end(&self, process: ProcessId, begun: &Begun, end: End) -> Left {
        let (outcome, class) = (end.outcome, end.error.as_ref().map(|error| error.class));
        let record =
            Record { execution: begun.execution, epoch: begun.epoch, facts: Vec::new(), end: Some(end), park: false };
        match self.writer.record(process, record).await {
            Some(Told::Recorded(recorded)) if recorded.held => {
                count(outcome, class);
                Left::Ended { freed: recorded.freed }
            }
            _ => Left::Lost,
        }
    }

    async fn broke(&self, process: ProcessId, begun: &Begun) -> Left {
        tracing::error!(execution_id = %begun.execution, "A run panicked");
        let reason = "the run broke off unexpectedly: a fault of Forebay's".to_owned();
        self.give_up(process, begun, Class::Stalled, reason).await
    }

    fn leave(&self, id: ExecutionId, epoch: i64, left: Left) {
        {
            let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
            if runs.held.get(&id).is_some_and(|held| held.epoch == epoch) {
                runs.held.remove(&id);
            }
            ::metrics::gauge!(metrics::RUNS_HELD.name).set(u32::try_from(runs.held.len()).unwrap_or(u32::MAX));
        }
        if left == Left::Lost {
            ::metrics::counter!(metrics::RECORDS_FENCED.name).increment(1);
            tracing::info!(execution_id = %id, "This run is another process's by now");
        }
        (self.on_left)(id, left);
    }
}

/// The span of a run in this process, below the context that its start came with.
fn span(begun: &Begun) -> tracing::Span {
    let span = tracing::info_span!(
        parent: None,
        spans::WORKFLOW_EXECUTION.name,
        execution_id = %begun.execution,
        workspace_id = %begun.workspace,
        definition_id = %begun.definition,
        trace_id = format_args!("{:032x}", begun.trace.trace_id),
    );
    trace::put_below(&span, begun.trace);
    span
}

/// Counts an end once it is stored.
fn count(outcome: execution::Status, class: Option<Class>) {
    ::metrics::counter!(metrics::RUNS_ENDED.name, "outcome" => outcome.name()).increment(1);
    if matches!(outcome, execution::Status::Failed | execution::Status::TimedOut) {
        let reason = class.map_or("UNKNOWN", Class::name);
        ::metrics::counter!(metrics::FAILED.name, "reason" => reason).increment(1);
    }
}
