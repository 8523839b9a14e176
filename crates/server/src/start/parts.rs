//! The parts of one process: the values that all parts share, the engine, and the channels between parts.
//!
//! Not here: the order in which parts start and stop (`start`), making the engine (`engines`), the loops (`loops`).

mod api;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use engine::liveness::Liveness;
use kernel::ids::ProcessId;
use store::Store;
use store::connect::Target;
use store::process::ProcessRegistration;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::engines::{self, EngineRoles, Engines};
use super::{ServerOptions, StartError};
use crate::config::{Settings, ms};
use crate::execution::waiters::Waiters;
use crate::process::heartbeat::{Heartbeat, Membership};
use crate::process::notifications::{self, Notification, Notifier};
use crate::process::protocol::ClaimProtocol;
use crate::process::role::Role;
use crate::process::wakeups::Wakeups;
use crate::queue::breaker::Breaker;
use crate::queue::strays::OtherEngineRuns;
use crate::run::notify::RunNotifier;
use crate::run::reconcile::EngineFindings;
use crate::webhook::WebhookSender;

/// The addresses of the database: `pooled` for single statements, `direct` for connections that need a session of their
/// own, such as LISTEN and heartbeats.
pub(super) struct DatabaseTargets {
    pub(super) pooled: Target,
    pub(super) direct: Target,
}

/// The values that all parts of a process share. Cheap to clone.
#[derive(Clone)]
pub(super) struct SharedParts {
    pub(super) settings: Arc<Settings>,
    /// The connections of the background loops and runs (`database.work_connections`).
    pub(super) store: Store,
    /// This process's id and shards; none while this process is not registered.
    pub(super) membership: watch::Receiver<Option<Membership>>,
    pub(super) liveness: Arc<Liveness>,
    pub(super) notifier: Notifier,
    pub(super) waiters: Waiters,
    pub(super) wakeups: Wakeups,
    pub(super) stop: CancellationToken,
    /// The tasks that a process waits for at shutdown.
    pub(super) tasks: TaskTracker,
}

/// What this process knows about the engine, for dispatching and for requests about it.
#[derive(Clone)]
pub(super) struct EngineStatus {
    pub(super) breaker: Breaker,
    pub(super) findings: EngineFindings,
    pub(super) other_engine_runs: OtherEngineRuns,
    /// Whether the database accepts claims by this process's claim protocol.
    pub(super) claim_protocol: ClaimProtocol,
}

/// The channels between parts. Each receiver is taken out of its `Option` by the one part that reads it.
pub(super) struct Channels {
    pub(super) to_dispatcher: mpsc::UnboundedSender<Notification>,
    pub(super) dispatcher: Option<mpsc::UnboundedReceiver<Notification>>,
    /// Notifications for other processes.
    pub(super) remote: Option<mpsc::UnboundedReceiver<notifications::RemoteNotification>>,
    /// Each message reports that a signal was stored for a run of another process.
    pub(super) run_signals_sender: mpsc::UnboundedSender<()>,
    pub(super) run_signals: Option<mpsc::UnboundedReceiver<()>>,
}

pub(super) struct ServerParts {
    pub(super) shared: SharedParts,
    pub(super) targets: DatabaseTargets,
    pub(super) engine_roles: EngineRoles,
    pub(super) engines: Engines,
    pub(super) engine_status: EngineStatus,
    pub(super) channels: Channels,
    /// The tasks that claim items and start them.
    pub(super) starts: TaskTracker,
    /// The number of runs of dead processes that this process has no room for.
    pub(super) waiting_runs: Arc<AtomicUsize>,
    /// Sends webhooks; none in a process that delivers no webhooks.
    pub(super) sender: Option<WebhookSender>,
    membership: watch::Sender<Option<Membership>>,
}

impl ServerParts {
    pub(super) fn new(
        settings: Settings,
        targets: DatabaseTargets,
        work: Store,
        engine_roles: EngineRoles,
    ) -> Result<ServerParts, StartError> {
        let (to_dispatcher, dispatcher) = mpsc::unbounded_channel();
        let (to_remote, remote) = mpsc::unbounded_channel();
        let (run_signals_sender, run_signals) = mpsc::unbounded_channel();
        let notifies = settings.dispatch.notifications;
        // With `dispatch.exclusive` the process that dispatches may be another one, so it is notified through the
        // database.
        let local = engine_roles.dispatches && !settings.dispatch.exclusive;
        let (membership_sender, membership) = watch::channel(None);
        let shared = SharedParts {
            store: work,
            membership,
            liveness: Arc::new(Liveness::new(ms(settings.process.claim_lease_ms))),
            notifier: Notifier::new((local && notifies).then(|| to_dispatcher.clone()), notifies.then_some(to_remote)),
            waiters: Waiters::default(),
            wakeups: Wakeups::default(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            settings: Arc::new(settings),
        };
        let engines = match shared.settings.workflow.engine.enabled {
            true => engines::make_engines(&shared, &to_dispatcher, engine_roles)?,
            false => Engines::default(),
        };
        let sender = engines::make_webhook_sender(&shared, engine_roles, engines.outbound.clone())?;
        let other_engine_runs = OtherEngineRuns::new(&shared.settings.engine.kind);
        Ok(ServerParts {
            shared,
            targets,
            engine_roles,
            engines,
            engine_status: EngineStatus {
                breaker: Breaker::new(),
                findings: EngineFindings::default(),
                other_engine_runs,
                claim_protocol: ClaimProtocol::default(),
            },
            channels: Channels {
                to_dispatcher,
                dispatcher: Some(dispatcher),
                remote: Some(remote),
                run_signals_sender,
                run_signals: Some(run_signals),
            },
            starts: TaskTracker::new(),
            waiting_runs: Arc::default(),
            sender,
            membership: membership_sender,
        })
    }

    pub(super) fn spawn_heartbeat(&self, options: &ServerOptions) -> std::io::Result<std::thread::JoinHandle<()>> {
        let has = |role: &&Role| match role {
            Role::Api => true,
            Role::Dispatcher => self.engine_roles.dispatches,
            Role::Worker => self.engine_roles.works,
        };
        let roles = options.roles.iter().filter(has);
        let registration = ProcessRegistration {
            id: ProcessId(store::new_id()),
            host: host_name(),
            pid: i32::try_from(std::process::id()).unwrap_or(0),
            // With `workflow.engine.enabled = false` this process dispatches nothing, so it must not get a share of the
            // shards. Therefore it registers without the roles `dispatcher` and `worker`.
            roles: roles.map(|role| role.name().to_owned()).collect(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let heartbeat = Heartbeat {
            target: self.targets.direct.clone(),
            settings: self.shared.settings.process.clone(),
            registration,
            dispatches: self.engine_roles.dispatches,
            claim_protocol: self.engine_status.claim_protocol.clone(),
            liveness: Arc::clone(&self.shared.liveness),
            engine: self.engines.engine.clone(),
            embedded: self.engines.embedded.clone(),
            waiting_runs: Arc::clone(&self.waiting_runs),
            membership: self.membership.clone(),
            wake_loops: Arc::clone(&self.shared.wakeups.all),
            send_now: Arc::clone(&self.shared.wakeups.heartbeat),
            stop: self.shared.stop.clone(),
        };
        heartbeat.spawn()
    }

    pub(super) async fn wait_for_first_heartbeat(&mut self) -> ProcessId {
        loop {
            if let Some(membership) = self.shared.membership.borrow_and_update().as_ref() {
                return membership.process;
            }
            // `changed` cannot fail, because `self` holds the sender.
            let _changed = self.shared.membership.changed().await;
        }
    }

    /// Makes the notifier for signals: it informs the process or engine of a run that a signal is stored for the run.
    pub(super) fn run_notifier(&self) -> RunNotifier {
        RunNotifier {
            engine: self.engines.control.clone(),
            membership: self.shared.membership.clone(),
            parked: Arc::clone(&self.shared.wakeups.parked),
            wakes_parked: self.engines.embedded.is_some(),
            other_processes: self
                .shared
                .settings
                .dispatch
                .notifications
                .then(|| self.channels.run_signals_sender.clone()),
        }
    }

    /// Starts the tasks that notify other processes: of ready items, of items that this process has no room for, and of
    /// signals.
    pub(super) fn spawn_notifications(&mut self, api: bool) {
        if !self.shared.settings.dispatch.notifications {
            return;
        }
        let (target, stop) = (&self.targets.direct, &self.shared.stop);
        if let Some(outgoing) = self.channels.run_signals.take() {
            self.shared.tasks.spawn(notifications::notify_signaled_runs(target.clone(), outgoing, stop.clone()));
        }
        if api && self.engines.engine.is_none() {
            // Other processes receive row changes with the notifications for their dispatcher. This process has no
            // dispatcher, so a task of its own receives the row changes, for requests that wait for tasks.
            let tasks = Arc::clone(&self.shared.wakeups.tasks);
            self.shared.tasks.spawn(notifications::receive_row_changes(target.clone(), tasks, stop.clone()));
        }
        let sends = api || self.engine_roles.works || self.engine_roles.dispatches;
        if let (true, Some(outgoing)) = (sends, self.channels.remote.take()) {
            self.shared.tasks.spawn(notifications::send_to_dispatchers(target.clone(), outgoing, stop.clone()));
        }
    }
}

pub(super) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}
