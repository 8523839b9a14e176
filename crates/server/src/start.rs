//! The service as one thing: what runs in this process, started and stopped together.
//!
//! Invariants
//! - Migrations are done, and the first heartbeat has been answered, before anything is claimed.
//! - Stopping claims nothing more, drops its runs where their rows can be taken up, and says goodbye,
//!   so that others go on at once.
//!
//! Not here: reading settings (`app`).

mod error;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use engine::embedded::{self, Embedded, Left};
use engine::outbound::{self, Outbound};
use engine::pulse::Pulse;
use kernel::ids::ProcessId;
use store::Store;
use store::connect::Target;
use store::key::Secret;
use store::migrate::migrate;
use store::process::Registration;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{Settings, ms};
use crate::deadlines::Deadlines;
use crate::dispatcher::Dispatcher;
use crate::heartbeat::{Alive, Heartbeat};
use crate::hints::{self, Hints};
use crate::http;
use crate::orphans::Orphans;
use crate::pass::{keep, repeat};
use crate::promoter::Promoter;
use crate::recorder;
use crate::role::Role;
use crate::sampler::Sampler;
use crate::starter::Starter;
use crate::takeover::Takeover;
use crate::waiters::Waiters;
use crate::waker::Waker;

pub use error::StartError;

/// How often ended processes are forgotten.
const FORGET_EVERY: Duration = Duration::from_secs(600);

/// A running service.
#[derive(Debug)]
pub struct Server {
    /// Where it listens, if it does: for the API, or only to tell how it is doing.
    pub address: Option<SocketAddr>,
    stop: CancellationToken,
    tasks: TaskTracker,
    engine: Option<Embedded>,
    store: Store,
    alive: watch::Receiver<Option<Alive>>,
    heartbeat: Option<std::thread::JoinHandle<()>>,
}

/// What an operator decides beside the settings.
#[derive(Debug, Default)]
pub struct Options {
    pub roles: BTreeSet<Role>,
    /// This process alone can reach the database (it holds the data directory's lock): older ones are gone.
    pub alone: bool,
    /// Workflows may call this very service, at whatever port it gets.
    pub allow_own: bool,
}

impl Server {
    /// Starts everything; answers when it is ready.
    pub async fn start(mut settings: Settings, options: Options) -> Result<Server, StartError> {
        settings.check()?;
        if settings.database.url.is_empty() {
            return Err(StartError::NoDatabase);
        }
        let works = options.roles.contains(&Role::Dispatcher) && settings.workflow.engine.enabled;
        if options.roles.contains(&Role::Dispatcher) != options.roles.contains(&Role::Worker) {
            return Err(StartError::SplitRoles);
        }
        let configured = settings.auth.root_key.as_deref().map(Secret::parse).transpose()?;
        let (target, direct) = (Target::new(&settings.database.url)?, Target::new(settings.direct_url())?);
        match settings.database.migrate {
            true => drop(migrate(&direct).await?),
            false => store::migrate::check(&direct).await?,
        }
        let api = options.roles.contains(&Role::Api);
        let listen_at = if api { Some(settings.http.listen) } else { settings.http.signals_listen };
        let listener = match listen_at {
            Some(address) => Some(listen(address).await?),
            None => None,
        };
        let address = listener.as_ref().and_then(|listener| listener.local_addr().ok());
        let own = address.filter(|_| options.allow_own).and_then(|address| address.to_string().parse().ok());
        settings.outbound.allow.extend(own);
        let work = Store::new(&target, settings.database.work_connections)?;
        let mut parts = Parts::new(settings, Targets { pooled: target, direct }, work, works)?;
        recorder::recorder();
        parts.tasks.spawn(recorder::fold(parts.stop.clone()));
        let heartbeat = parts.heartbeat(&options).map_err(StartError::Thread)?;
        let first = parts.first_beat().await;
        if options.alone {
            parts.work.end_all_but(first).await?;
        }
        if let Some(engine) = parts.engine.clone() {
            parts.spawn_loops(engine);
        }
        if let Some(listener) = listener {
            if api && configured.is_none() && !parts.work.has_root_key().await? {
                tracing::warn!(
                    "There is no root key, so nobody can make workspaces: set auth.root_key (`forebay root-key`)"
                );
            }
            parts.spawn_api(listener, configured, api)?;
        }
        Ok(Server {
            address,
            stop: parts.stop,
            tasks: parts.tasks,
            engine: parts.engine,
            store: parts.work,
            alive: parts.alive.1,
            heartbeat: Some(heartbeat),
        })
    }

    /// Ends when a part of the service ended unasked: the rest is stopping, and the process should go.
    pub async fn broken(&self) {
        self.stop.cancelled().await;
    }

    /// Stops everything; what runs here is left where another process, or the next start, takes it up.
    pub async fn stop(mut self) {
        self.stop.cancel();
        // First the runs and the goodbye, because the heartbeat has stopped; then whoever still waits
        // for an answer.
        if let Some(engine) = &self.engine {
            engine.abandon();
            engine.gone().await;
        }
        let process = self.alive.borrow().as_ref().map(|alive| alive.process);
        if let Some(process) = process
            && let Err(error) = self.store.end_process(process).await
        {
            tracing::warn!(error = %error, "Could not say goodbye; others go on after the lease");
        }
        self.tasks.close();
        if tokio::time::timeout(Duration::from_secs(10), self.tasks.wait()).await.is_err() {
            tracing::warn!("Some work did not stop in time");
        }
        if let Some(thread) = self.heartbeat.take() {
            let _ended = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| StartError::Listen { address, source })
}

/// Where the database is: for single calls, and for what needs a session of its own.
struct Targets {
    pooled: Target,
    direct: Target,
}

struct Parts {
    settings: Settings,
    targets: Targets,
    work: Store,
    works: bool,
    stop: CancellationToken,
    tasks: TaskTracker,
    alive: (watch::Sender<Option<Alive>>, watch::Receiver<Option<Alive>>),
    pulse: Arc<Pulse>,
    hints: Hints,
    local: Option<mpsc::UnboundedReceiver<hints::Hint>>,
    local_send: mpsc::UnboundedSender<hints::Hint>,
    remote: Option<mpsc::UnboundedReceiver<kernel::ids::WorkspaceId>>,
    waiters: Waiters,
    engine: Option<Embedded>,
    rouse: Arc<Notify>,
}

impl Parts {
    fn new(settings: Settings, targets: Targets, work: Store, works: bool) -> Result<Parts, StartError> {
        let (local_send, local) = mpsc::unbounded_channel();
        let (remote_send, remote) = mpsc::unbounded_channel();
        let listens = settings.dispatch.hints;
        let hints =
            Hints::new((works && listens).then(|| local_send.clone()), (!works && listens).then_some(remote_send));
        let pulse = Arc::new(Pulse::new(ms(settings.process.claims_after_ms)));
        let waiters = Waiters::default();
        let engine = match works {
            true => Some(embedded(&settings, &work, &pulse, &local_send, &waiters)?),
            false => None,
        };
        Ok(Parts {
            settings,
            targets,
            work,
            works,
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
            rouse: Arc::new(Notify::new()),
        })
    }

    fn heartbeat(&self, options: &Options) -> std::io::Result<std::thread::JoinHandle<()>> {
        let roles = options.roles.iter().filter(|role| self.works || **role == Role::Api);
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
            dispatches: self.works,
            pulse: Arc::clone(&self.pulse),
            engine: self.engine.clone(),
            alive: self.alive.0.clone(),
            stop: self.stop.clone(),
        };
        heartbeat.spawn()
    }

    async fn first_beat(&mut self) -> ProcessId {
        loop {
            if let Some(alive) = self.alive.1.borrow_and_update().as_ref() {
                return alive.process;
            }
            // The sender lives as long as `self`.
            let _changed = self.alive.1.changed().await;
        }
    }

    fn spawn_loops(&mut self, engine: Embedded) {
        let (poll, stop) = (ms(self.settings.dispatch.poll_interval_ms), self.stop.clone());
        let starter = Starter {
            store: self.work.clone(),
            engine: Arc::new(engine.clone()),
            settings: self.settings.dispatch.clone(),
            hints: self.hints.clone(),
        };
        let (in_the_way, met) = mpsc::unbounded_channel();
        if let Some(inbox) = self.local.take() {
            let dispatcher = Dispatcher::new(starter.clone(), inbox, self.alive.1.clone(), in_the_way, stop.clone());
            self.tasks.spawn(keep("dispatcher", stop.clone(), dispatcher.run()));
        }
        if self.settings.dispatch.hints {
            self.tasks.spawn(hints::receive(self.targets.direct.clone(), self.local_send.clone(), stop.clone()));
        }
        let promoter = Arc::new(Promoter {
            store: self.work.clone(),
            hints: self.hints.clone(),
            dispatcher: self.local_send.clone(),
            alive: self.alive.1.clone(),
            gates_from: Mutex::default(),
        });
        let clearing = Arc::clone(&promoter).clear_the_way(met, stop.clone());
        self.tasks.spawn(keep("clear the way", stop.clone(), clearing));
        let gates = Arc::clone(&promoter);
        self.spawn_loop("gates", poll, gates, |it| async move { it.gates().await });
        self.spawn_loop("promoter", poll, promoter, |it| async move { it.ripen().await });
        let deadlines = Deadlines { store: self.work.clone() };
        self.spawn_loop("deadlines", poll, Arc::new(deadlines), |it| async move { it.pass().await });
        let sampler = Sampler { store: self.work.clone(), alive: self.alive.1.clone() };
        let sample = ms(self.settings.signals.sample_interval_ms);
        self.spawn_loop("sampler", sample, Arc::new(sampler), |it| async move { it.pass().await });
        let waker = Waker { store: self.work.clone(), engine: engine.clone(), alive: self.alive.1.clone() };
        self.spawn_loop("waker", poll, Arc::new(waker), |it| async move { it.pass().await });
        self.spawn_recovery(starter, engine);
    }

    /// Takeover and orphans look at every poll, and each second while somebody is known to be dead.
    fn spawn_recovery(&self, starter: Starter, engine: Embedded) {
        let (poll, process) = (ms(self.settings.dispatch.poll_interval_ms), self.settings.process.clone());
        let takeover = Takeover { starter, settings: process.clone(), alive: self.alive.1.clone() };
        let orphans = Orphans {
            store: self.work.clone(),
            engine,
            settings: process,
            alive: self.alive.1.clone(),
            hints: self.hints.clone(),
        };
        self.spawn_loop("takeover", poll, Arc::new(takeover), |it| async move { it.pass().await });
        self.spawn_loop("orphans", poll, Arc::new(orphans), |it| async move { it.pass().await });
        let store = Arc::new(self.work.clone());
        self.spawn_loop(
            "processes",
            FORGET_EVERY,
            store,
            |it| async move { it.forget_processes().await.map(|_| None) },
        );
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

    /// Answers over HTTP: the whole API, or only how this process is doing.
    fn spawn_api(&mut self, listener: TcpListener, root_key: Option<Secret>, whole: bool) -> Result<(), StartError> {
        if let (false, true, Some(inbox)) = (self.works || !whole, self.settings.dispatch.hints, self.remote.take()) {
            self.tasks.spawn(hints::send(self.targets.direct.clone(), inbox, self.stop.clone()));
        }
        let api = Arc::new(http::ApiParts {
            store: Store::new(&self.targets.pooled, self.settings.database.api_connections)?,
            settings: self.settings.clone(),
            keys: http::keys(root_key),
            hints: self.hints.clone(),
            waiters: self.waiters.clone(),
            work: self.work.clone(),
            engine: self.engine.clone(),
            pulse: Arc::clone(&self.pulse),
            rouse: Arc::clone(&self.rouse),
            stop: self.stop.clone(),
        });
        let stop = self.stop.clone();
        let router = if whole { http::router(api) } else { http::signals(api) };
        self.tasks.spawn(async move {
            let serve = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned());
            if let Err(error) = serve.await {
                tracing::error!(error = &error as &dyn std::error::Error, "The API stopped");
            }
        });
        Ok(())
    }
}

fn embedded(
    settings: &Settings,
    work: &Store,
    pulse: &Arc<Pulse>,
    hints: &mpsc::UnboundedSender<hints::Hint>,
    waiters: &Waiters,
) -> Result<Embedded, StartError> {
    let outbound = Outbound::new(outbound::Settings { allow: settings.outbound.allow.clone(), ..Default::default() })?;
    let limits = embedded::Settings { max_runs: settings.engine.max_runs, max_calls: settings.engine.max_calls };
    let (hints, waiters) = (hints.clone(), waiters.clone());
    let on_left: embedded::OnLeft = Arc::new(move |execution, left| {
        waiters.wake(execution);
        // The one that ends an execution claims its workspace's next itself: hints on or off.
        let hint = match left {
            Left::Ended { freed: Some(workspace) } => hints::Hint::Freed(workspace, Instant::now()),
            Left::Ended { freed: None } | Left::Parked | Left::Lost => hints::Hint::Room,
        };
        let _stopping = hints.send(hint);
    });
    Ok(Embedded::new(work.clone(), outbound, limits, Arc::clone(pulse), on_left))
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}
