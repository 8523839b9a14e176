//! What runs in one process: the loops, the heartbeat and the API, and what they share.
//!
//! Not here: the order in which they start and stop (`start`), making the engine (`engines`).

mod api;
mod asks;
mod jobs;
mod strays;
mod webhooks;

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::Engine;
use engine::embedded::Embedded;
use engine::pulse::Pulse;
use kernel::ids::ProcessId;
use store::Store;
use store::connect::Target;
use store::process::Registration;
use store::process::lease::Lease;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::engines::{self, Duties, Engines, Worker};
use super::{Options, StartError};
use crate::config::{EngineKind, Settings, ms};
use crate::execution::waiters::Waiters;
use crate::feed::{self, Pruner};
use crate::process::dead::Processes;
use crate::process::heartbeat::{Alive, Heartbeat};
use crate::process::hints::{self, Hints};
use crate::process::lease;
use crate::process::pass::{keep, repeat};
use crate::process::role::Role;
use crate::queue::breaker::Breaker;
use crate::queue::dispatch::Dispatcher;
use crate::queue::promote::Promoter;
use crate::queue::starter::{Line, Starter};
use crate::queue::strays::{Foreign, GRACE};
use crate::queue::takeover::Takeover;
use crate::retention::{self, Retention};
use crate::run::deadline::Deadlines;
use crate::run::engine_health::Watcher;
use crate::run::reconcile::Findings;
use crate::run::resume::Orphans;
use crate::run::wake::Waker;
use crate::signals::sampler::Sampler;
use crate::signals::statistics::{self, Statistics};

/// Where the database is: for single calls, and for what needs a session of its own.
pub(super) struct Targets {
    pub(super) pooled: Target,
    pub(super) direct: Target,
}

pub(super) struct Parts {
    pub(super) settings: Settings,
    pub(super) targets: Targets,
    pub(super) work: Store,
    duties: Duties,
    pub(super) stop: CancellationToken,
    pub(super) tasks: TaskTracker,
    pub(super) alive: (watch::Sender<Option<Alive>>, watch::Receiver<Option<Alive>>),
    pulse: Arc<Pulse>,
    hints: Hints,
    local: Option<mpsc::UnboundedReceiver<hints::Hint>>,
    local_send: mpsc::UnboundedSender<hints::Hint>,
    remote: Option<mpsc::UnboundedReceiver<hints::Remote>>,
    waiters: Waiters,
    engine: Option<Arc<dyn Engine>>,
    told: Option<Arc<dyn Engine>>,
    pub(super) embedded: Option<Embedded>,
    /// An engine that is not the configured one, for runs that it still has.
    other: Option<Arc<dyn Engine>>,
    foreign: Foreign,
    pub(super) worker: Worker,
    breaker: Breaker,
    findings: Findings,
    pub(super) starts: TaskTracker,
    /// Runs of dead processes that this one has no room for.
    waiting: Arc<AtomicUsize>,
    rouse: Arc<Notify>,
    beat: Arc<Notify>,
    /// There may be jobs to take.
    jobs: Arc<Notify>,
    /// There may be webhooks to tell; and with what, in a process that does.
    deliveries: Arc<Notify>,
    teller: Option<webhooks::Teller>,
    /// A schedule may be due, or sooner than thought.
    schedules: Arc<Notify>,
    /// Something came for a run that is parked.
    called: Arc<Notify>,
    /// There may be events to judge.
    judged: Arc<Notify>,
    /// There may be tasks to claim.
    offered: Arc<Notify>,
    /// Something came for a run of another process.
    others: (mpsc::UnboundedSender<()>, Option<mpsc::UnboundedReceiver<()>>),
}

impl Parts {
    pub(super) fn new(settings: Settings, targets: Targets, work: Store, duties: Duties) -> Result<Parts, StartError> {
        let (local_send, local) = mpsc::unbounded_channel();
        let (remote_send, remote) = mpsc::unbounded_channel();
        let (others_send, others) = mpsc::unbounded_channel();
        let listens = settings.dispatch.hints;
        // With one dispatcher at a time, the one that may is told, wherever it is.
        let here = duties.dispatches && !settings.dispatch.exclusive;
        let hints = Hints::new((here && listens).then(|| local_send.clone()), listens.then_some(remote_send));
        let pulse = Arc::new(Pulse::new(ms(settings.process.claims_after_ms)));
        let waiters = Waiters::default();
        let of = engines::Parts {
            settings: &settings,
            store: &work,
            pulse: &pulse,
            dispatcher: &local_send,
            hints: &hints,
            waiters: &waiters,
        };
        let Engines { engine, told, embedded, other, worker, outbound } = match settings.workflow.engine.enabled {
            true => engines::make(&of, duties)?,
            false => Engines::default(),
        };
        let teller = webhooks::teller(&settings, &work, duties, outbound)?;
        Ok(Parts {
            foreign: Foreign::new(&settings.engine.kind),
            other,
            settings,
            targets,
            work,
            duties,
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            alive: watch::channel(None),
            pulse,
            hints,
            local: Some(local),
            local_send,
            remote: Some(remote),
            waiters,
            engine,
            told,
            embedded,
            worker,
            breaker: Breaker::new(),
            findings: Findings::default(),
            starts: TaskTracker::new(),
            waiting: Arc::default(),
            rouse: Arc::new(Notify::new()),
            beat: Arc::new(Notify::new()),
            jobs: Arc::new(Notify::new()),
            deliveries: Arc::new(Notify::new()),
            teller,
            schedules: Arc::new(Notify::new()),
            called: Arc::new(Notify::new()),
            judged: Arc::new(Notify::new()),
            offered: Arc::new(Notify::new()),
            others: (others_send, Some(others)),
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
            settings: self.settings.process.clone(),
            registration,
            dispatches: self.duties.dispatches,
            pulse: Arc::clone(&self.pulse),
            engine: self.engine.clone(),
            embedded: self.embedded.clone(),
            waiting: Arc::clone(&self.waiting),
            alive: self.alive.0.clone(),
            rouse: Arc::clone(&self.rouse),
            now: Arc::clone(&self.beat),
            stop: self.stop.clone(),
        };
        heartbeat.spawn()
    }

    pub(super) async fn first_beat(&mut self) -> ProcessId {
        loop {
            if let Some(alive) = self.alive.1.borrow_and_update().as_ref() {
                return alive.process;
            }
            // The sender lives as long as `self`.
            let _changed = self.alive.1.changed().await;
        }
    }

    /// Everything that a process with an engine does beside answering requests.
    pub(super) fn spawn_loops(&mut self) {
        let Some(engine) = self.engine.clone() else { return };
        let starter = Starter {
            store: self.work.clone(),
            engine,
            settings: self.settings.dispatch.clone(),
            hints: self.hints.clone(),
            breaker: self.breaker.clone(),
            line: Line::new(self.settings.dispatch.parallel_starts, self.hints.clone()),
            stop: self.stop.clone(),
            tasks: self.starts.clone(),
        };
        self.spawn_dispatch(&starter);
        self.spawn_projector();
        self.spawn_webhooks();
        self.spawn_schedules();
        self.spawn_asks();
        let engine = Arc::clone(&starter.engine);
        self.spawn_recovery(starter);
        if let Some(embedded) = self.embedded.clone() {
            self.spawn_runs(embedded);
        }
        if self.settings.engine.kind != EngineKind::Embedded {
            self.spawn_reconciler_of(engine, self.breaker.clone(), self.findings.clone());
        }
        self.spawn_strays();
    }

    /// From waiting to claimed.
    fn spawn_dispatch(&mut self, starter: &Starter) {
        let (poll, stop) = (ms(self.settings.dispatch.poll_interval_ms), self.stop.clone());
        let (in_the_way, met) = mpsc::unbounded_channel();
        if let Some(inbox) = self.local.take() {
            let ours = self.turn(lease::DISPATCH);
            let (starter, alive, waiting) = (starter.clone(), self.alive.1.clone(), Arc::clone(&self.waiting));
            let dispatcher = Dispatcher::new(starter, inbox, alive, in_the_way, ours, waiting, stop.clone());
            self.starts.spawn(keep("dispatcher", stop.clone(), dispatcher.run()));
        }
        if self.settings.dispatch.hints {
            let inbox = hints::Inbox {
                local: self.local_send.clone(),
                beat: Arc::clone(&self.beat),
                rung: self.spawn_bell(),
                called: Arc::clone(&self.called),
            };
            self.tasks.spawn(hints::receive(self.targets.direct.clone(), inbox, stop.clone()));
        }
        let promoter = Arc::new(Promoter {
            store: self.work.clone(),
            hints: self.hints.clone(),
            dispatcher: self.local_send.clone(),
            alive: self.alive.1.clone(),
            gates_from: Mutex::default(),
        });
        let clearing = Arc::clone(&promoter).clear_the_way(met, stop.clone());
        self.tasks.spawn(keep("clear the way", stop, clearing));
        let gates = Arc::clone(&promoter);
        self.spawn_loop("gates", poll, gates, |it| async move { it.gates().await });
        self.spawn_loop("promoter", poll, promoter, |it| async move { it.ripen().await });
    }

    /// Who may do what only one at a time does, if that is asked for: whoever holds the lease.
    fn turn(&self, lease: Lease) -> lease::Turn {
        if !self.settings.dispatch.exclusive {
            return lease::Turn::always();
        }
        let turn = lease::Turn::leased();
        let holder = lease::Holder {
            store: self.work.clone(),
            lease,
            host: short_host(),
            turn: turn.clone(),
            poll: ms(self.settings.dispatch.poll_interval_ms),
            dead_after: ms(self.settings.process.claims_after_ms),
            alive: self.alive.1.clone(),
            stop: self.stop.clone(),
        };
        // With the starts: it is given back before the goodbye.
        self.starts.spawn(holder.run());
        turn
    }

    /// Looks at every poll, and more often while somebody is known to be dead.
    fn spawn_recovery(&self, starter: Starter) {
        let (poll, process) = (ms(self.settings.dispatch.poll_interval_ms), self.settings.process.clone());
        let ours = self.turn(lease::RECOVERY);
        let takeover = Takeover { starter, settings: process.clone(), alive: self.alive.1.clone(), ours };
        self.spawn_loop("takeover", poll, Arc::new(takeover), |it| async move { it.pass().await });
        let deadlines = Deadlines { store: self.work.clone() };
        let sampler = Sampler { store: self.work.clone(), alive: self.alive.1.clone() };
        let sample = ms(self.settings.signals.sample_interval_ms);
        self.spawn_loop("sampler", sample, Arc::new(sampler), |it| async move { it.pass().await });
        self.spawn_loop("deadlines", poll, Arc::new(deadlines), |it| async move { it.pass().await });
        let statistics = Statistics { store: self.work.clone(), alive: self.alive.1.clone() };
        self.spawn_loop("statistics", statistics::EVERY, Arc::new(statistics), |it| async move { it.pass().await });
        let processes = Processes::new(self.work.clone(), process, self.alive.1.clone());
        self.spawn_loop("processes", poll, Arc::new(processes), |it| async move { it.pass().await });
        let pruner = Pruner { store: self.work.clone() };
        self.spawn_loop("change log", feed::PRUNE_EVERY, Arc::new(pruner), |it| async move { it.pass().await });
        let (store, settings) = (self.work.clone(), self.settings.retention.clone());
        let retention = Retention::new(store, settings, holder(), self.stop.clone());
        self.spawn_loop("retention", retention::EVERY, Arc::new(retention), |it| async move { it.pass().await });
    }

    /// The runs of this very process.
    fn spawn_runs(&self, engine: Embedded) {
        let poll = ms(self.settings.dispatch.poll_interval_ms);
        let waker = Waker { store: self.work.clone(), engine: engine.clone(), alive: self.alive.1.clone() };
        let (stop, rouse, called) = (self.stop.clone(), Arc::clone(&self.rouse), Arc::clone(&self.called));
        self.tasks.spawn(async move {
            let woken = Arc::clone(&called);
            let pass = repeat("waker", poll, &woken, &stop, || waker.pass());
            // Whatever rouses every loop rouses this one too.
            let relay = async {
                loop {
                    rouse.notified().await;
                    called.notify_one();
                }
            };
            tokio::select! { () = pass => {}, () = relay => {} }
        });
        let orphans = Orphans {
            store: self.work.clone(),
            engine,
            settings: self.settings.process.clone(),
            alive: self.alive.1.clone(),
            hints: self.hints.clone(),
            waiting: Arc::clone(&self.waiting),
            beat: Arc::clone(&self.beat),
        };
        // Each process drops what was deleted before `strays` frees its slot.
        self.spawn_loop("orphans", poll.min(GRACE / 2), Arc::new(orphans), |it| async move { it.pass().await });
    }

    fn spawn_loop<T, P, F>(&self, name: &'static str, every: Duration, it: Arc<T>, pass: P)
    where
        T: Send + Sync + 'static,
        P: Fn(Arc<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Option<Duration>, store::Error>> + Send,
    {
        let (stop, rouse) = (self.stop.clone(), Arc::clone(&self.rouse));
        self.tasks.spawn(async move { repeat(name, every, &rouse, &stop, || pass(Arc::clone(&it))).await });
    }

    /// In a process that answers requests and hands nothing over: how the engine elsewhere is doing.
    pub(super) fn spawn_watcher(&self, api: bool) {
        let watched = self.told.clone().filter(|engine| engine.place().is_some());
        if let (true, None, Some(engine)) = (api, &self.engine, watched) {
            let watcher = Watcher {
                store: self.work.clone(),
                engine,
                breaker: self.breaker.clone(),
                findings: self.findings.clone(),
                after: ms(self.settings.engine.reconcile_after_ms),
                from: Mutex::default(),
                stop: self.stop.clone(),
            };
            let poll = ms(self.settings.dispatch.poll_interval_ms);
            self.spawn_loop("watcher", poll, Arc::new(watcher), |it| async move { it.pass().await });
        }
    }

    /// Tells dispatchers elsewhere of what this process accepted or ended, or has no room for.
    pub(super) fn spawn_hints(&mut self, api: bool) {
        self.spawn_calls(api);
        let tells = api || self.duties.works || self.duties.dispatches;
        if let (true, true, Some(inbox)) = (tells, self.settings.dispatch.hints, self.remote.take()) {
            self.tasks.spawn(hints::send(self.targets.direct.clone(), inbox, self.stop.clone()));
        }
    }
}

/// A name to hold a lease by: another each time, so that nobody takes a dead one's for its own.
fn holder() -> String {
    format!("{}/{}", short_host(), store::new_id())
}

fn short_host() -> String {
    host().chars().take(200).collect()
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}
