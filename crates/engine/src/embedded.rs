//! The engine inside this process: durable, because every fact is stored before it is acted on.
//!
//! Invariants
//! - A run belongs to one process at a time, by owner and epoch on its row; a process that lost it
//!   learns so at its next record, at the latest.
//! - Each run is a task of its own, with its own state; nothing of one run is visible to another.
//! - What this process holds in memory may vanish at any moment: the rows are the truth.
//!
//! Not here: heartbeats, taking over runs of the dead, waking (`server`'s loops call `resume`).

mod held;
pub(crate) mod permits;
mod run;
mod suspects;
mod writer;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use kernel::execution;
use kernel::ids::{ExecutionId, ProcessId, WorkspaceId};
use kernel::queue::Answer;
use kernel::run::failure::{Class, Failure};
use kernel::signals::{events, metrics};
use parking_lot::Mutex;
use store::queue::claim::Begun;
use store::run::{BeginAnswer, End, StoredNode};
use store::{Error, Store};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::nodes::call::Means;
use crate::outbound::Outbound;
use crate::pulse::Pulse;
use crate::vault::{Keys, Vault};
use crate::versions::Versions;
use crate::{Described, Engine, ending, say};
use permits::Permits;
use run::Message;
use writer::Writer;

/// The name that executions note.
pub const NAME: &str = "embedded";

/// What an operator may set.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How many runs this process holds at once; parked ones do not count.
    pub max_runs: usize,
    /// How many nodes of this process may call out at once.
    pub max_calls: usize,
    /// How many executions may start each other in a row.
    pub max_generations: u32,
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

/// Is told of a workspace in which a node started an execution of its own.
pub type OnReady = Arc<dyn Fn(WorkspaceId) + Send + Sync>;

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
    means: Means,
    settings: Settings,
    versions: Versions,
    permits: Permits,
    writer: Writer,
    on_left: OnLeft,
    on_ready: OnceLock<OnReady>,
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
    /// An engine that stores through `store`, calls out through `outbound`, and opens secrets with `keys`.
    pub fn new(
        store: Store,
        outbound: Outbound,
        keys: Keys,
        settings: Settings,
        pulse: Arc<Pulse>,
        on_left: OnLeft,
    ) -> Embedded {
        let shared = Shared {
            writer: Writer::spawn(store.clone()),
            means: Means { vault: Vault::new(store.clone(), keys), store: store.clone(), outbound, pulse },
            store,
            settings,
            versions: Versions::default(),
            permits: Permits::new(settings.max_calls),
            on_left,
            on_ready: OnceLock::new(),
            runs: Mutex::new(Runs::default()),
            tasks: TaskTracker::new(),
            suspects: Arc::new(Semaphore::new(1)),
        };
        Embedded { shared: Arc::new(shared) }
    }

    /// From now on `tell` hears where nodes started executions of their own: the dispatcher need not wait for its poll.
    pub fn on_ready(&self, tell: OnReady) {
        // The first one stays.
        let _known = self.shared.on_ready.set(tell);
    }

    /// The runs this process holds, with their epochs.
    pub fn held(&self) -> BTreeMap<ExecutionId, i64> {
        let runs = self.shared.runs.lock();
        runs.held.iter().map(|(id, held)| (*id, held.epoch)).collect()
    }

    /// How many runs it could take up again now. More than `capacity`: a part of the room is kept for
    /// runs that hold a slot already, so that new ones never crowd them out.
    pub fn room(&self) -> usize {
        self.shared.settings.max_runs.saturating_sub(self.count())
    }

    fn count(&self) -> usize {
        self.shared.runs.lock().held.len()
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
                        self.shared.give_up(process, &loaded.begun, Failure::new(Class::BadGraph, reason)).await;
                    }
                }
            }
        }
        Ok(())
    }

    /// Looks whether this process owns a run under a newer epoch than it held it, and goes on with it.
    async fn take_up(&self, process: ProcessId, execution: ExecutionId) {
        if let Err(error) = self.resume(process, &[execution], false).await {
            tracing::warn!(execution_id = %execution, error = &error as &dyn std::error::Error,
                "Taking a run up failed; the next look finds it");
        }
    }

    /// Ends a run that somebody terminated. What this process still does for it is broken off, and gone,
    /// before the slot is freed.
    async fn end_terminated(&self, process: ProcessId, begun: &Begun) {
        let held = {
            let mut runs = self.shared.runs.lock();
            runs.held.remove(&begun.execution)
        };
        if let Some(held) = held {
            held.task.abort();
            held.gone.cancelled().await;
        }
        let left = self.shared.end(process, begun, ending::terminated()).await;
        self.shared.leave(begun.execution, begun.epoch, left);
    }

    /// Drops runs whose execution somebody deleted: what this process does for them is broken off, and gone, before
    /// their slots are freed.
    pub async fn drop_missing(&self, runs: &[ExecutionId]) {
        for id in runs {
            let held = {
                let mut runs = self.shared.runs.lock();
                runs.held.remove(id)
            };
            let Some(held) = held else { continue };
            held.task.abort();
            held.gone.cancelled().await;
            let left = self.shared.unless_missing(*id, Left::Lost).await;
            self.shared.leave(*id, held.epoch, left);
        }
    }

    /// From now on this process lives under that id: runs are taken in for it, and for no other.
    pub fn assume(&self, process: ProcessId) {
        self.shared.runs.lock().process = Some(process);
    }

    /// Drops every run and takes none in, because this process may no longer act for them. Their
    /// requests are broken off. May be called from any thread.
    pub fn abandon(&self) {
        let runs = std::mem::take(&mut *self.shared.runs.lock());
        for held in runs.held.values() {
            held.task.abort();
        }
    }

    /// Lets every run go: at once where nothing is in flight, else when what is has been recorded, at
    /// the latest after `grace`. None is taken in from now on.
    pub async fn drain(&self, grace: Duration) {
        {
            let mut runs = self.shared.runs.lock();
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
        let mut runs = self.shared.runs.lock();
        // A claim that was answered after this process gave itself up belongs to a dead id: another
        // owner takes it up.
        if runs.process != Some(process) || runs.held.get(&id).is_some_and(|held| held.epoch >= epoch) {
            return;
        }
        let span = held::span(&begun);
        let run = async move {
            let _going = going;
            let turn = match alone {
                false => Ok(None),
                true => shared.turn(process, &mut begun, &mut canceling, &mut receive).await,
            };
            let left = match turn {
                Ok(_turn) => shared.clone().hold(process, begun, stored, canceling, receive).await,
                Err(left) => left,
            };
            let left = shared.unless_missing(id, left).await;
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

impl Engine for Embedded {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capacity(&self) -> usize {
        let reserve = self.shared.settings.max_runs / 10;
        self.room().saturating_sub(reserve)
    }

    fn begins_with_claim(&self) -> bool {
        true
    }

    fn adopt(&self, process: ProcessId, begun: Vec<Begun>) {
        for begun in begun {
            match execution::rerun::is_seeded(&begun.trigger) {
                false => self.spawn(process, begun, Vec::new(), false, false),
                // It has nodes already: they are loaded first, as for a run that is taken up.
                true => {
                    let engine = self.clone();
                    self.shared.tasks.spawn(async move { engine.take_up(process, begun.execution).await });
                }
            }
        }
    }

    fn start(&self, process: ProcessId, execution: ExecutionId) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            let answers = match self.shared.store.begin(&[execution], NAME, process).await {
                Ok(answers) => answers,
                Err(error) => return Answer::Ambiguous(error.to_string()),
            };
            match answers.into_iter().next() {
                Some((_, BeginAnswer::Granted(begun))) => {
                    // It may be a repeat of a start that was granted before a crash of its answer:
                    // what it stored is taken up.
                    match self.resume(process, &[begun.execution], false).await {
                        Ok(()) => Answer::Started,
                        Err(error) => Answer::Ambiguous(error.to_string()),
                    }
                }
                Some((_, BeginAnswer::Ended)) => Answer::AlreadyThere,
                Some((_, BeginAnswer::NotYet)) => Answer::Ambiguous("the item holds no slot".to_owned()),
                Some((_, BeginAnswer::Gone)) | None => {
                    say!(events::EXECUTION_GONE, execution_id = %execution, queue_item_id = %execution.queue_item());
                    Answer::Refused("the execution does not exist".to_owned())
                }
            }
        })
    }

    fn place(&self) -> Option<String> {
        None
    }

    /// The store is this engine's own memory: what has begun is known.
    fn describe(&self, execution: ExecutionId) -> BoxFuture<'_, Result<Described, String>> {
        Box::pin(async move {
            let found = match self.shared.store.execution(execution, None).await {
                Ok(found) => found,
                Err(Error::NotFound) => return Ok(Described::Unknown),
                Err(error) => return Err(error.to_string()),
            };
            Ok(match found.status {
                execution::Status::Pending => Described::Unknown,
                execution::Status::Running => Described::Running { stuck: None },
                outcome => Described::Closed(End { outcome, output: found.output, error: None }),
            })
        })
    }

    /// The fence is stored before; without this the run's next record, or the next look at what this
    /// process owns, comes to the same.
    fn terminate(&self, execution: ExecutionId) {
        let process = self.shared.runs.lock().process;
        let Some(process) = process else { return };
        let engine = self.clone();
        self.shared.tasks.spawn(async move { engine.take_up(process, execution).await });
    }

    fn cancel(&self, execution: ExecutionId) {
        self.shared.send(execution, Message::Cancel);
    }

    fn signal(&self, execution: ExecutionId) {
        self.shared.send(execution, Message::Look);
    }
}
