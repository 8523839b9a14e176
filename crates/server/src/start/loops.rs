//! The background loops of a process, in one table. A row has the name of a loop, which is its module, its poll
//! interval, what wakes it, and the struct that does its work.
//!
//! Invariants
//! - A process that does not dispatch runs none of these loops, except the health check of an external engine.
//!
//! Not here: what a loop does (the module of its feature), the shape of a loop (`process::background_loop`), the start
//! of the heartbeat (`start::parts`) and of the feed's reader (`start::parts::api`).

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use engine::Engine;
use engine::embedded::Embedded;
use engine::versions::VersionCache;
use store::process::lease::Lease;
use tokio::sync::{Notify, mpsc};

use super::parts::{ServerParts, host_name};
use crate::config::{EngineKind, ms};
use crate::definition::inputs::{ComputeShare, InputRules};
use crate::feed::{self, ChangeLogPruner};
use crate::job::projector::Projector;
use crate::job::recovery::JobRecovery;
use crate::process::background_loop::{BackgroundLoop, supervise};
use crate::process::dead::DeadProcessDetector;
use crate::process::protocol::ProtocolChecker;
use crate::process::{lease, notifications};
use crate::queue::breaker::Breaker;
use crate::queue::dispatch::Dispatcher;
use crate::queue::promote::Promoter;
use crate::queue::starter::{self, StartLimit, Starter};
use crate::queue::strays::{self, GRACE, StraySlots};
use crate::queue::takeover::Takeover;
use crate::retention::{self, Retention};
use crate::run::deadline::DeadlineEnforcer;
use crate::run::engine_health::EngineHealthCheck;
use crate::run::reconcile::{EngineFindings, Reconciler};
use crate::run::resume::RunResumer;
use crate::run::wake::ParkedRunWaker;
use crate::schedule::Scheduler;
use crate::signals::sampler::Sampler;
use crate::signals::statistics::{self, PlannerStatistics};
use crate::wait::expire::{self, WaitExpirer};
use crate::wait::match_events::EventMatcher;
use crate::webhook::{self, WebhookDeliverer};

/// How long notifications are collected before the loops are woken, so that many changes cause one pass.
const COLLECT_FOR: Duration = Duration::from_millis(20);

/// One line of the table: a loop whose pass calls `$worker.run_once()`.
macro_rules! background_loop {
    ($every:expr, $wake:expr, $name:literal, $worker:expr) => {
        BackgroundLoop::new($name, $every, $wake, Arc::new($worker), |worker| async move { worker.run_once().await })
    };
}

impl ServerParts {
    /// Starts all loops, in a process that dispatches.
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

    /// Starts the health check of an external engine, in a process that answers requests and does not dispatch.
    pub(super) fn spawn_engine_health_check(&self, api: bool) {
        let watched = self.engines.control.clone().filter(|engine| engine.location().is_some());
        if let (true, None, Some(engine)) = (api, &self.engines.engine, watched) {
            let health_check = EngineHealthCheck {
                store: self.shared.store.clone(),
                engine,
                breaker: self.engine_status.breaker.clone(),
                findings: self.engine_status.findings.clone(),
                after: ms(self.shared.settings.engine.reconcile_after_ms),
                position: Mutex::default(),
                stop: self.shared.stop.clone(),
            };
            self.spawn(vec![background_loop!(
                self.poll(),
                &self.shared.wakeups.all,
                "run::engine_health",
                health_check
            )]);
        }
    }

    /// Loops for items whose claimer died, and for runs that ended, or were lost, without a report to this service.
    fn queue_loops(&self, starter: &Starter) -> Vec<BackgroundLoop> {
        let (poll, all) = (self.poll(), &self.shared.wakeups.all);
        let takeover = Takeover {
            starter: starter.clone(),
            settings: self.shared.settings.process.clone(),
            membership: self.shared.membership.clone(),
            lease: self.lease_state(lease::RECOVERY),
        };
        let strays = StraySlots {
            store: self.shared.store.clone(),
            other_engine_runs: self.engine_status.other_engine_runs.clone(),
            other: self.engines.other.clone(),
            membership: self.shared.membership.clone(),
            notifier: self.shared.notifier.clone(),
            waiters: self.shared.waiters.clone(),
            missing: Mutex::default(),
        };
        let mut loops = vec![
            background_loop!(poll, all, "queue::takeover", takeover),
            background_loop!(strays::EVERY, all, "queue::strays", strays),
        ];
        if let Some(other) = self.engines.other.clone() {
            let reconciler =
                Reconciler { breaker: Breaker::new(), findings: EngineFindings::default(), ..self.reconciler(other) };
            loops.push(background_loop!(poll, all, "run::reconcile of the other engine", reconciler));
        }
        if self.shared.settings.engine.kind != EngineKind::Embedded {
            let reconciler = self.reconciler(Arc::clone(&starter.engine));
            loops.push(background_loop!(poll, all, "run::reconcile", reconciler));
        }
        loops
    }

    /// Loops that keep the tables small, publish gauges and detect dead processes.
    fn upkeep_loops(&self, starter: &Starter) -> Vec<BackgroundLoop> {
        let (poll, all, settings) = (self.poll(), &self.shared.wakeups.all, &self.shared.settings);
        let (store, membership) = (|| starter.store.clone(), || self.shared.membership.clone());
        let stop = self.shared.stop.clone();
        let retention = Retention::new(store(), settings.retention.clone(), new_holder_name(), stop);
        let dead_processes = DeadProcessDetector::new(store(), settings.process.clone(), membership());
        vec![
            background_loop!(poll, all, "run::deadline", DeadlineEnforcer { store: store() }),
            background_loop!(poll, all, "process::dead", dead_processes),
            background_loop!(poll, all, "process::protocol", self.protocol_checker()),
            background_loop!(
                ms(settings.metrics.sample_interval_ms),
                all,
                "signals::sampler",
                Sampler { store: store(), membership: membership() }
            ),
            background_loop!(
                statistics::EVERY,
                all,
                "signals::statistics",
                PlannerStatistics { store: store(), membership: membership() }
            ),
            background_loop!(feed::PRUNE_EVERY, all, "feed::prune", ChangeLogPruner { store: store() }),
            background_loop!(retention::EVERY, all, "retention", retention),
        ]
    }

    /// The loop that checks whether the database accepts claims by this process's claim protocol.
    pub(super) fn protocol_checker(&self) -> ProtocolChecker {
        ProtocolChecker {
            store: self.shared.store.clone(),
            settings: self.shared.settings.process.clone(),
            claim_protocol: self.engine_status.claim_protocol.clone(),
            heartbeat: Arc::clone(&self.shared.wakeups.heartbeat),
        }
    }

    /// Loops that start executions for events and schedules, and that deliver webhooks.
    fn start_loops(&mut self) -> Vec<BackgroundLoop> {
        let (poll, shared) = (self.poll(), self.shared.clone());
        let settings = &shared.settings;
        let projector = Projector {
            store: shared.store.clone(),
            notifier: shared.notifier.clone(),
            input_rules: InputRules::new(ComputeShare::Service),
            worker: format!("{}-{}", host_name(), std::process::id()),
            max_backlog: settings.queue.max_backlog,
            max_generations: settings.workflow.max_generations,
        };
        let recovery = JobRecovery {
            store: shared.store.clone(),
            retry_after: ms(settings.job.retry_after_ms),
            holder: new_holder_name(),
            jobs: Arc::clone(&shared.wakeups.jobs),
        };
        let scheduler = Scheduler {
            store: shared.store.clone(),
            notifier: shared.notifier.clone(),
            input_rules: InputRules::new(ComputeShare::Service),
            max_backlog: settings.queue.max_backlog,
            page_from: Mutex::default(),
        };
        let mut loops = vec![
            background_loop!(poll, &shared.wakeups.jobs, "job::projector", projector),
            background_loop!(poll, &shared.wakeups.all, "job::recovery", recovery),
            background_loop!(poll, &shared.wakeups.schedules, "schedule", scheduler),
        ];
        if let Some(sender) = self.sender.take() {
            let wake = &shared.wakeups.deliveries;
            let shutdown = (shared.stop.clone(), shared.tasks.clone());
            let webhooks = WebhookDeliverer::new(shared.store.clone(), sender, Arc::clone(wake), shutdown);
            loops.push(background_loop!(poll.min(webhook::EVERY), wake, "webhook", webhooks));
        }
        loops
    }

    /// Loops that expire waits and tasks, and that answer waits with events.
    fn wait_loops(&self) -> Vec<BackgroundLoop> {
        let (every, wakeups) = (self.poll().min(expire::EVERY), &self.shared.wakeups);
        let external_engine = self.engines.control.clone().filter(|engine| engine.location().is_some());
        let expirer =
            WaitExpirer { store: self.shared.store.clone(), run_notifier: self.run_notifier(), external_engine };
        let matcher = EventMatcher {
            store: self.shared.store.clone(),
            run_notifier: self.run_notifier(),
            versions: VersionCache::default(),
            last_workspace: Mutex::default(),
            failures: Mutex::default(),
        };
        vec![
            background_loop!(every, &wakeups.all, "wait::expire", expirer),
            background_loop!(every, &wakeups.events, "wait::match_events", matcher),
        ]
    }

    /// Loops for runs of the embedded engine.
    fn run_loops(&self, engine: Embedded) -> Vec<BackgroundLoop> {
        let (poll, wakeups) = (self.poll(), &self.shared.wakeups);
        let waker = ParkedRunWaker {
            store: self.shared.store.clone(),
            engine: engine.clone(),
            membership: self.shared.membership.clone(),
        };
        let resumer = RunResumer {
            store: self.shared.store.clone(),
            engine,
            settings: self.shared.settings.process.clone(),
            membership: self.shared.membership.clone(),
            notifier: self.shared.notifier.clone(),
            waiting_runs: Arc::clone(&self.waiting_runs),
            heartbeat: Arc::clone(&wakeups.heartbeat),
        };
        // The loop for parked runs waits for `parked` only, so each wakeup of all loops is passed on to it.
        let (all, parked, stop) = (Arc::clone(&wakeups.all), Arc::clone(&wakeups.parked), self.shared.stop.clone());
        self.shared.tasks.spawn(async move {
            while tokio::select! { () = all.notified() => true, () = stop.cancelled() => false } {
                parked.notify_one();
            }
        });
        vec![
            background_loop!(poll, &wakeups.parked, "run::wake", waker),
            // The loop runs at least twice per grace period. So each process drops a run whose row was deleted before
            // the loop `strays` frees the slot of that run.
            background_loop!(poll.min(GRACE / 2), &wakeups.all, "run::resume", resumer),
        ]
    }

    /// Starts the dispatcher, the task that receives its notifications, and the loops that promote and unblock items.
    fn spawn_dispatcher(&mut self, starter: &Starter) {
        let (poll, stop) = (self.poll(), self.shared.stop.clone());
        let (blocked_sender, blocked_definitions) = mpsc::unbounded_channel();
        if let Some(received) = self.channels.dispatcher.take() {
            let lease = self.lease_state(lease::DISPATCH);
            let (membership, waiting_runs) = (self.shared.membership.clone(), Arc::clone(&self.waiting_runs));
            let (starter, stop) = (starter.clone(), stop.clone());
            let dispatcher =
                Dispatcher::new(starter, received, membership, blocked_sender, lease, waiting_runs, stop.clone());
            self.starts.spawn(supervise("queue::dispatch", stop, dispatcher.run()));
        }
        if self.shared.settings.dispatch.notifications {
            let recipients = notifications::Recipients {
                dispatcher: self.channels.to_dispatcher.clone(),
                heartbeat: Arc::clone(&self.shared.wakeups.heartbeat),
                rows_changed: self.spawn_row_wakeups(),
                run_signaled: Arc::clone(&self.shared.wakeups.parked),
            };
            let target = self.targets.direct.clone();
            self.shared.tasks.spawn(notifications::receive_notifications(target, recipients, stop.clone()));
        }
        let promoter = Arc::new(Promoter {
            store: self.shared.store.clone(),
            notifier: self.shared.notifier.clone(),
            dispatcher: self.channels.to_dispatcher.clone(),
            membership: self.shared.membership.clone(),
            positions: Mutex::default(),
        });
        let marking = Arc::clone(&promoter).mark_blocked(blocked_definitions, stop.clone());
        self.shared.tasks.spawn(supervise("queue::promote: mark blocked items", stop, marking));
        let all = &self.shared.wakeups.all;
        let unblock =
            BackgroundLoop::new("queue::promote: unblock", poll, all, Arc::clone(&promoter), |promoter| async move {
                promoter.unblock().await
            });
        let promote = BackgroundLoop::new("queue::promote: due delays", poll, all, promoter, |promoter| async move {
            promoter.promote_delayed().await
        });
        self.spawn(vec![unblock, promote]);
    }

    /// Wakes the loops of jobs and events, and requests that wait for tasks, when the rows of these tables have
    /// changed. A change by plain SQL counts as well.
    fn spawn_row_wakeups(&self) -> Arc<Notify> {
        let (changed, wakeups, stop) = (Arc::new(Notify::new()), self.shared.wakeups.clone(), self.shared.stop.clone());
        let rows_changed = Arc::clone(&changed);
        self.shared.tasks.spawn(async move {
            while tokio::select! { () = rows_changed.notified() => true, () = stop.cancelled() => false } {
                wakeups.tasks.notify_waiters();
                tokio::time::sleep(COLLECT_FOR).await;
                wakeups.jobs.notify_one();
                wakeups.events.notify_one();
            }
        });
        changed
    }

    fn starter(&self, engine: Arc<dyn Engine>) -> Starter {
        let settings = self.shared.settings.dispatch.clone();
        Starter {
            store: self.shared.store.clone(),
            engine,
            start_limit: StartLimit::new(settings.parallel_starts, self.shared.notifier.clone()),
            settings,
            marks: starter::marks(&self.shared.store),
            notifier: self.shared.notifier.clone(),
            breaker: self.engine_status.breaker.clone(),
            claim_protocol: self.engine_status.claim_protocol.clone(),
            stop: self.shared.stop.clone(),
            tasks: self.starts.clone(),
        }
    }

    /// The loop for runs of an external engine.
    fn reconciler(&self, engine: Arc<dyn Engine>) -> Reconciler {
        Reconciler {
            store: self.shared.store.clone(),
            engine,
            breaker: self.engine_status.breaker.clone(),
            after: ms(self.shared.settings.engine.reconcile_after_ms),
            membership: self.shared.membership.clone(),
            notifier: self.shared.notifier.clone(),
            waiters: self.shared.waiters.clone(),
            findings: self.engine_status.findings.clone(),
            position: Mutex::default(),
        }
    }

    /// The state of `lease` in this process. Without `dispatch.exclusive` no lease is required. With it, a task tries
    /// to acquire the lease and keeps it.
    fn lease_state(&self, lease: Lease) -> lease::LeaseState {
        let settings = &self.shared.settings;
        if !settings.dispatch.exclusive {
            return lease::LeaseState::not_required();
        }
        let state = lease::LeaseState::required();
        let keeper = lease::LeaseKeeper {
            store: self.shared.store.clone(),
            lease,
            host: short_host_name(),
            state: state.clone(),
            poll: self.poll(),
            dead_after: ms(settings.process.claim_lease_ms),
            membership: self.shared.membership.clone(),
            claim_protocol: self.engine_status.claim_protocol.clone(),
            stop: self.shared.stop.clone(),
        };
        // The task is one of `starts`, because shutdown waits for these before the process deregisters. So the lease is
        // released before.
        self.starts.spawn(keeper.run());
        state
    }

    fn poll(&self) -> Duration {
        ms(self.shared.settings.dispatch.poll_interval_ms)
    }

    fn spawn(&self, loops: Vec<BackgroundLoop>) {
        for one in loops {
            self.shared.tasks.spawn(one.run(self.shared.stop.clone()));
        }
    }
}

/// A unique name under which this process holds a lease. So a restarted process never mistakes the lease of its
/// predecessor for its own.
fn new_holder_name() -> String {
    format!("{}/{}", short_host_name(), store::new_id())
}

fn short_host_name() -> String {
    host_name().chars().take(200).collect()
}
