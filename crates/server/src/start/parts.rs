//! What one process is made of: what its parts share, its engine, and the channels between them.
//!
//! Not here: the order in which parts start and stop (`start`), making the engine (`engines`), the loops (`loops`).

mod api;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use engine::pulse::Pulse;
use kernel::ids::ProcessId;
use store::Store;
use store::connect::Target;
use store::process::Registration;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::engines::{self, Duties, Engines};
use super::{Options, StartError};
use crate::config::{Settings, ms};
use crate::execution::waiters::Waiters;
use crate::process::heartbeat::{Alive, Heartbeat};
use crate::process::hints::{self, Hint, Hints};
use crate::process::protocol::Rules;
use crate::process::role::Role;
use crate::process::wakes::Wakes;
use crate::queue::breaker::Breaker;
use crate::queue::strays::Foreign;
use crate::run::notify::Calls;
use crate::run::reconcile::Findings;
use crate::webhook::Sender;

/// Where the database is: for single calls, and for what needs a session of its own.
pub(super) struct Targets {
    pub(super) pooled: Target,
    pub(super) direct: Target,
}

/// What every part of a process may use. Cheap to clone.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) settings: Arc<Settings>,
    /// The store of the background work.
    pub(super) store: Store,
    /// Whether this process lives, and which shards are its own.
    pub(super) alive: watch::Receiver<Option<Alive>>,
    pub(super) pulse: Arc<Pulse>,
    pub(super) hints: Hints,
    pub(super) waiters: Waiters,
    pub(super) wakes: Wakes,
    pub(super) stop: CancellationToken,
    /// What is waited for when the process stops.
    pub(super) tasks: TaskTracker,
}

/// What is known of the engine, by those who hand over and by those who answer questions about it.
#[derive(Clone)]
pub(super) struct EngineState {
    pub(super) breaker: Breaker,
    pub(super) findings: Findings,
    pub(super) foreign: Foreign,
    /// Whether the database goes by the rules that this process claims by.
    pub(super) rules: Rules,
}

/// What one part sends and another receives; each is received once.
pub(super) struct Channels {
    pub(super) to_dispatcher: mpsc::UnboundedSender<Hint>,
    pub(super) dispatcher: Option<mpsc::UnboundedReceiver<Hint>>,
    /// Hints for other processes.
    pub(super) remote: Option<mpsc::UnboundedReceiver<hints::Remote>>,
    /// Something came for a run of another process.
    pub(super) to_others: mpsc::UnboundedSender<()>,
    pub(super) others: Option<mpsc::UnboundedReceiver<()>>,
}

pub(super) struct Parts {
    pub(super) shared: Shared,
    pub(super) targets: Targets,
    pub(super) duties: Duties,
    pub(super) engines: Engines,
    pub(super) engine_state: EngineState,
    pub(super) channels: Channels,
    /// Starts under way.
    pub(super) starts: TaskTracker,
    /// Runs of dead processes that this one has no room for.
    pub(super) waiting: Arc<AtomicUsize>,
    /// With what webhooks are delivered, in a process that does.
    pub(super) sender: Option<Sender>,
    alive: watch::Sender<Option<Alive>>,
}

impl Parts {
    pub(super) fn new(settings: Settings, targets: Targets, work: Store, duties: Duties) -> Result<Parts, StartError> {
        let (to_dispatcher, dispatcher) = mpsc::unbounded_channel();
        let (to_remote, remote) = mpsc::unbounded_channel();
        let (to_others, others) = mpsc::unbounded_channel();
        let listens = settings.dispatch.hints;
        // With one dispatcher at a time, the one that may is told, wherever it is.
        let here = duties.dispatches && !settings.dispatch.exclusive;
        let (alive_send, alive) = watch::channel(None);
        let shared = Shared {
            store: work,
            alive,
            pulse: Arc::new(Pulse::new(ms(settings.process.claims_after_ms))),
            hints: Hints::new((here && listens).then(|| to_dispatcher.clone()), listens.then_some(to_remote)),
            waiters: Waiters::default(),
            wakes: Wakes::default(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            settings: Arc::new(settings),
        };
        let engines = match shared.settings.workflow.engine.enabled {
            true => engines::make(&shared, &to_dispatcher, duties)?,
            false => Engines::default(),
        };
        let sender = engines::sender(&shared, duties, engines.outbound.clone())?;
        let foreign = Foreign::new(&shared.settings.engine.kind);
        Ok(Parts {
            shared,
            targets,
            duties,
            engines,
            engine_state: EngineState {
                breaker: Breaker::new(),
                findings: Findings::default(),
                foreign,
                rules: Rules::default(),
            },
            channels: Channels {
                to_dispatcher,
                dispatcher: Some(dispatcher),
                remote: Some(remote),
                to_others,
                others: Some(others),
            },
            starts: TaskTracker::new(),
            waiting: Arc::default(),
            sender,
            alive: alive_send,
        })
    }

    pub(super) fn heartbeat(&self, options: &Options) -> std::io::Result<std::thread::JoinHandle<()>> {
        let has = |role: &&Role| match role {
            Role::Api => true,
            Role::Dispatcher => self.duties.dispatches,
            Role::Worker => self.duties.works,
        };
        let roles = options.roles.iter().filter(has);
        let registration = Registration {
            id: ProcessId(store::new_id()),
            host: host(),
            pid: i32::try_from(std::process::id()).unwrap_or(0),
            // With the engine off it dispatches nothing: it must not count where dispatchers share the work.
            roles: roles.map(|role| role.name().to_owned()).collect(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let heartbeat = Heartbeat {
            target: self.targets.direct.clone(),
            settings: self.shared.settings.process.clone(),
            registration,
            dispatches: self.duties.dispatches,
            rules: self.engine_state.rules.clone(),
            pulse: Arc::clone(&self.shared.pulse),
            engine: self.engines.engine.clone(),
            embedded: self.engines.embedded.clone(),
            waiting: Arc::clone(&self.waiting),
            alive: self.alive.clone(),
            rouse: Arc::clone(&self.shared.wakes.all),
            now: Arc::clone(&self.shared.wakes.heartbeat),
            stop: self.shared.stop.clone(),
        };
        heartbeat.spawn()
    }

    pub(super) async fn first_beat(&mut self) -> ProcessId {
        loop {
            if let Some(alive) = self.shared.alive.borrow_and_update().as_ref() {
                return alive.process;
            }
            // The sender lives as long as `self`.
            let _changed = self.shared.alive.changed().await;
        }
    }

    /// Whom to tell that something came for a run.
    pub(super) fn calls(&self) -> Calls {
        Calls {
            engine: self.engines.told.clone(),
            alive: self.shared.alive.clone(),
            called: Arc::clone(&self.shared.wakes.parked),
            wakes: self.engines.embedded.is_some(),
            others: self.shared.settings.dispatch.hints.then(|| self.channels.to_others.clone()),
        }
    }

    /// Tells other processes what this one accepted or ended, has no room for, or has for their runs.
    pub(super) fn spawn_hints(&mut self, api: bool) {
        if !self.shared.settings.dispatch.hints {
            return;
        }
        let (target, stop) = (&self.targets.direct, &self.shared.stop);
        if let Some(inbox) = self.channels.others.take() {
            self.shared.tasks.spawn(hints::call(target.clone(), inbox, stop.clone()));
        }
        if api && self.engines.engine.is_none() {
            // No dispatcher of this process listens.
            let tasks = Arc::clone(&self.shared.wakes.tasks);
            self.shared.tasks.spawn(hints::hear(target.clone(), tasks, stop.clone()));
        }
        let tells = api || self.duties.works || self.duties.dispatches;
        if let (true, Some(inbox)) = (tells, self.channels.remote.take()) {
            self.shared.tasks.spawn(hints::send(target.clone(), inbox, stop.clone()));
        }
    }
}

pub(super) fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}
