//! The background loops of a process, in one table: what each is called, how often it looks, what wakes it, and what it
//! is made of.
//!
//! Invariants
//! - A process without an engine runs none of them, but the one that watches an engine elsewhere.
//!
//! Not here: what a loop does (the room of its feature), the shape of a loop (`process::pass`).

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use engine::Engine;
use engine::embedded::Embedded;
use engine::versions::Versions;
use store::process::lease::Lease;
use tokio::sync::{Notify, mpsc};

use super::parts::{Parts, host};
use crate::config::{EngineKind, ms};
use crate::definition::inputs::{InputRules, Turn};
use crate::feed::{self, Pruner};
use crate::job::projector::Projector;
use crate::job::recovery::Recovery;
use crate::process::dead::Processes;
use crate::process::pass::{Loop, keep};
use crate::process::protocol::Protocols;
use crate::process::{hints, lease};
use crate::queue::breaker::Breaker;
use crate::queue::dispatch::Dispatcher;
use crate::queue::promote::Promoter;
use crate::queue::starter::{Line, Starter};
use crate::queue::strays::{self, GRACE, Strays};
use crate::queue::takeover::Takeover;
use crate::retention::{self, Retention};
use crate::run::deadline::Deadlines;
use crate::run::engine_health::Watcher;
use crate::run::reconcile::{Findings, Reconciler};
use crate::run::resume::Orphans;
use crate::run::wake::Waker;
use crate::schedule::Schedules;
use crate::signals::sampler::Sampler;
use crate::signals::statistics::{self, Statistics};
use crate::wait::expire::{self, Asks};
use crate::wait::judge::Judge;
use crate::webhook::{self, Webhooks};

/// How long hints gather: many changes make one look.
const GATHER: Duration = Duration::from_millis(20);

/// A line of the table: the loop `it`, whose look is its method `pass`, or another that is named.
macro_rules! every {
    ($every:expr, $wake:expr, $name:literal, $it:expr) => {
        every!($every, $wake, $name, $it, pass)
    };
    ($every:expr, $wake:expr, $name:literal, $it:expr, $pass:ident) => {
        Loop::new($name, $every, $wake, Arc::new($it), |it| async move { it.$pass().await })
    };
}

impl Parts {
    /// Everything that a process with an engine does beside answering requests.
    pub(super) fn spawn_loops(&mut self) {
        let Some(engine) = self.engines.engine.clone() else { return };
        let starter = self.starter(engine);
        let mut loops = self.queue_loops(&starter);
        loops.extend(self.upkeep_loops(&starter));
        loops.extend(self.start_loops());
        loops.extend(self.wait_loops());
        if let Some(embedded) = self.engines.embedded.clone() {
            loops.extend(self.run_loops(embedded));
        }
        self.spawn_dispatcher(&starter);
        self.spawn(loops);
    }

    /// In a process that answers requests and hands nothing over: how the engine elsewhere is doing.
    pub(super) fn spawn_watcher(&self, api: bool) {
        let watched = self.engines.told.clone().filter(|engine| engine.place().is_some());
        if let (true, None, Some(engine)) = (api, &self.engines.engine, watched) {
            let watcher = Watcher {
                store: self.shared.store.clone(),
                engine,
                breaker: self.engine_state.breaker.clone(),
                findings: self.engine_state.findings.clone(),
                after: ms(self.shared.settings.engine.reconcile_after_ms),
                from: Mutex::default(),
                stop: self.shared.stop.clone(),
            };
            self.spawn(vec![every!(self.poll(), &self.shared.wakes.all, "watcher", watcher)]);
        }
    }

    /// Items that wait for something other than their turn, or lost who looked after them.
    fn queue_loops(&self, starter: &Starter) -> Vec<Loop> {
        let (poll, all) = (self.poll(), &self.shared.wakes.all);
        let takeover = Takeover {
            starter: starter.clone(),
            settings: self.shared.settings.process.clone(),
            alive: self.shared.alive.clone(),
            ours: self.turn(lease::RECOVERY),
        };
        let strays = Strays {
            store: self.shared.store.clone(),
            foreign: self.engine_state.foreign.clone(),
            other: self.engines.other.clone(),
            alive: self.shared.alive.clone(),
            hints: self.shared.hints.clone(),
            waiters: self.shared.waiters.clone(),
            missing: Mutex::default(),
        };
        let mut loops = vec![every!(poll, all, "takeover", takeover), every!(strays::EVERY, all, "strays", strays)];
        if let Some(other) = self.engines.other.clone() {
            let reconciler =
                Reconciler { breaker: Breaker::new(), findings: Findings::default(), ..self.reconciler(other) };
            loops.push(every!(poll, all, "reconciler of the other engine", reconciler));
        }
        if self.shared.settings.engine.kind != EngineKind::Embedded {
            let reconciler = self.reconciler(Arc::clone(&starter.engine));
            loops.push(every!(poll, all, "reconciler", reconciler));
        }
        loops
    }

    /// What keeps the tables small, the gauges true and the dead known.
    fn upkeep_loops(&self, starter: &Starter) -> Vec<Loop> {
        let (poll, all, settings) = (self.poll(), &self.shared.wakes.all, &self.shared.settings);
        let (store, alive) = (|| starter.store.clone(), || self.shared.alive.clone());
        let retention = Retention::new(store(), settings.retention.clone(), holder(), self.shared.stop.clone());
        let processes = Processes::new(store(), settings.process.clone(), alive());
        vec![
            every!(poll, all, "deadlines", Deadlines { store: store() }),
            every!(poll, all, "processes", processes),
            every!(poll, all, "protocol", self.protocols()),
            every!(ms(settings.signals.sample_interval_ms), all, "sampler", Sampler { store: store(), alive: alive() }),
            every!(statistics::EVERY, all, "statistics", Statistics { store: store(), alive: alive() }),
            every!(feed::PRUNE_EVERY, all, "change log", Pruner { store: store() }),
            every!(retention::EVERY, all, "retention", retention),
        ]
    }

    /// Whether the database goes by the rules that this process claims by.
    pub(super) fn protocols(&self) -> Protocols {
        Protocols {
            store: self.shared.store.clone(),
            settings: self.shared.settings.process.clone(),
            rules: self.engine_state.rules.clone(),
            beat: Arc::clone(&self.shared.wakes.heartbeat),
        }
    }

    /// From events and times to executions, and from their ends to whoever wants to know.
    fn start_loops(&mut self) -> Vec<Loop> {
        let (poll, shared) = (self.poll(), self.shared.clone());
        let settings = &shared.settings;
        let projector = Projector {
            store: shared.store.clone(),
            hints: shared.hints.clone(),
            input_rules: InputRules::new(Turn::Service),
            worker: format!("{}-{}", host(), std::process::id()),
            max_backlog: settings.queue.max_backlog,
            max_generations: settings.workflow.max_generations,
        };
        let recovery = Recovery {
            store: shared.store.clone(),
            retry_after: ms(settings.projection.retry_after_ms),
            holder: holder(),
            jobs: Arc::clone(&shared.wakes.jobs),
        };
        let schedules = Schedules {
            store: shared.store.clone(),
            hints: shared.hints.clone(),
            input_rules: InputRules::new(Turn::Service),
            max_backlog: settings.queue.max_backlog,
            page_from: Mutex::default(),
        };
        let mut loops = vec![
            every!(poll, &shared.wakes.jobs, "projector", projector),
            every!(poll, &shared.wakes.all, "jobs", recovery),
            every!(poll, &shared.wakes.schedules, "schedules", schedules),
        ];
        if let Some(sender) = self.sender.take() {
            let wake = &shared.wakes.deliveries;
            let over = (shared.stop.clone(), shared.tasks.clone());
            let webhooks = Webhooks::new(shared.store.clone(), sender, Arc::clone(wake), over);
            loops.push(every!(poll.min(webhook::EVERY), wake, "webhooks", webhooks));
        }
        loops
    }

    /// From time that is up, lost leases and events to answers.
    fn wait_loops(&self) -> Vec<Loop> {
        let (every, wakes) = (self.poll().min(expire::EVERY), &self.shared.wakes);
        let elsewhere = self.engines.told.clone().filter(|engine| engine.place().is_some());
        let asks = Asks { store: self.shared.store.clone(), calls: self.calls(), elsewhere };
        let (versions, last, failing) = (Versions::default(), Mutex::default(), Mutex::default());
        let judge = Judge { store: self.shared.store.clone(), calls: self.calls(), versions, last, failing };
        vec![every!(every, &wakes.all, "waits", asks), every!(every, &wakes.events, "judge", judge)]
    }

    /// The runs of this very process.
    fn run_loops(&self, engine: Embedded) -> Vec<Loop> {
        let (poll, wakes) = (self.poll(), &self.shared.wakes);
        let waker =
            Waker { store: self.shared.store.clone(), engine: engine.clone(), alive: self.shared.alive.clone() };
        let orphans = Orphans {
            store: self.shared.store.clone(),
            engine,
            settings: self.shared.settings.process.clone(),
            alive: self.shared.alive.clone(),
            hints: self.shared.hints.clone(),
            waiting: Arc::clone(&self.waiting),
            beat: Arc::clone(&wakes.heartbeat),
        };
        // Whatever wakes every loop wakes parked runs too.
        let (all, parked, stop) = (Arc::clone(&wakes.all), Arc::clone(&wakes.parked), self.shared.stop.clone());
        self.shared.tasks.spawn(async move {
            while tokio::select! { () = all.notified() => true, () = stop.cancelled() => false } {
                parked.notify_one();
            }
        });
        vec![
            every!(poll, &wakes.parked, "waker", waker),
            // Each process drops what was deleted before `strays` frees its slot.
            every!(poll.min(GRACE / 2), &wakes.all, "orphans", orphans),
        ]
    }

    /// From waiting to claimed.
    fn spawn_dispatcher(&mut self, starter: &Starter) {
        let (poll, stop) = (self.poll(), self.shared.stop.clone());
        let (blocked_definitions, met) = mpsc::unbounded_channel();
        if let Some(inbox) = self.channels.dispatcher.take() {
            let ours = self.turn(lease::DISPATCH);
            let (alive, waiting) = (self.shared.alive.clone(), Arc::clone(&self.waiting));
            let dispatcher =
                Dispatcher::new(starter.clone(), inbox, alive, blocked_definitions, ours, waiting, stop.clone());
            self.starts.spawn(keep("dispatcher", stop.clone(), dispatcher.run()));
        }
        if self.shared.settings.dispatch.hints {
            let inbox = hints::Inbox {
                local: self.channels.to_dispatcher.clone(),
                beat: Arc::clone(&self.shared.wakes.heartbeat),
                rung: self.spawn_bell(),
                called: Arc::clone(&self.shared.wakes.parked),
            };
            self.shared.tasks.spawn(hints::receive(self.targets.direct.clone(), inbox, stop.clone()));
        }
        let promoter = Arc::new(Promoter {
            store: self.shared.store.clone(),
            hints: self.shared.hints.clone(),
            dispatcher: self.channels.to_dispatcher.clone(),
            alive: self.shared.alive.clone(),
            gates_from: Mutex::default(),
        });
        let clearing = Arc::clone(&promoter).clear_the_way(met, stop.clone());
        self.shared.tasks.spawn(keep("clear the way", stop, clearing));
        let all = &self.shared.wakes.all;
        let gates = Loop::new("gates", poll, all, Arc::clone(&promoter), |it| async move { it.gates().await });
        let ripen = Loop::new("promoter", poll, all, promoter, |it| async move { it.ripen().await });
        self.spawn(vec![gates, ripen]);
    }

    /// Wakes whoever cares when anybody changed jobs, events or tasks, plain SQL included.
    fn spawn_bell(&self) -> Arc<Notify> {
        let (rung, wakes, stop) = (Arc::new(Notify::new()), self.shared.wakes.clone(), self.shared.stop.clone());
        let bell = Arc::clone(&rung);
        self.shared.tasks.spawn(async move {
            while tokio::select! { () = bell.notified() => true, () = stop.cancelled() => false } {
                wakes.tasks.notify_waiters();
                tokio::time::sleep(GATHER).await;
                wakes.jobs.notify_one();
                wakes.events.notify_one();
            }
        });
        rung
    }

    fn starter(&self, engine: Arc<dyn Engine>) -> Starter {
        let settings = self.shared.settings.dispatch.clone();
        Starter {
            store: self.shared.store.clone(),
            engine,
            line: Line::new(settings.parallel_starts, self.shared.hints.clone()),
            settings,
            hints: self.shared.hints.clone(),
            breaker: self.engine_state.breaker.clone(),
            rules: self.engine_state.rules.clone(),
            stop: self.shared.stop.clone(),
            tasks: self.starts.clone(),
        }
    }

    /// The runs of an engine elsewhere.
    fn reconciler(&self, engine: Arc<dyn Engine>) -> Reconciler {
        Reconciler {
            store: self.shared.store.clone(),
            engine,
            breaker: self.engine_state.breaker.clone(),
            after: ms(self.shared.settings.engine.reconcile_after_ms),
            alive: self.shared.alive.clone(),
            hints: self.shared.hints.clone(),
            waiters: self.shared.waiters.clone(),
            findings: self.engine_state.findings.clone(),
            place: Mutex::default(),
        }
    }

    /// Who may do what only one at a time does, if that is asked for: whoever holds the lease.
    fn turn(&self, lease: Lease) -> lease::Turn {
        let settings = &self.shared.settings;
        if !settings.dispatch.exclusive {
            return lease::Turn::always();
        }
        let turn = lease::Turn::leased();
        let holder = lease::Holder {
            store: self.shared.store.clone(),
            lease,
            host: short_host(),
            turn: turn.clone(),
            poll: self.poll(),
            dead_after: ms(settings.process.claims_after_ms),
            alive: self.shared.alive.clone(),
            rules: self.engine_state.rules.clone(),
            stop: self.shared.stop.clone(),
        };
        // With the starts: it is given back before the goodbye.
        self.starts.spawn(holder.run());
        turn
    }

    fn poll(&self) -> Duration {
        ms(self.shared.settings.dispatch.poll_interval_ms)
    }

    fn spawn(&self, loops: Vec<Loop>) {
        for one in loops {
            self.shared.tasks.spawn(one.run(self.shared.stop.clone()));
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
