//! Starts and shuts down the service: everything that runs in this process.
//!
//! Invariants
//! - A process claims nothing before its migrations are done and the database has answered its first heartbeat.
//! - A process that shuts down claims nothing more and requeues claimed items that it never sent to the engine. Each
//!   run may finish what it does and store the result. Then the process deregisters, so that other processes take over
//!   its runs and items immediately.
//!
//! Not here: reading settings (`app`), the parts of a process (`parts`, `loops`), making the engine (`engines`).

mod engines;
mod error;
mod listeners;
mod loops;
mod parts;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::embedded::Embedded;
use store::Store;
use store::connect::Target;
use store::migrate::migrate;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::root_keys::RootKeys;
use crate::config::{EngineKind, Settings};
use crate::process::heartbeat::Membership;
use crate::process::notifications;
use crate::process::role::Role;
use crate::signals::recorder;
use engines::{EngineRoles, Worker};
use listeners::Listeners;
use parts::{DatabaseTargets, ServerParts};

pub use error::StartError;

/// How long a process that shuts down waits for requests that are not answered yet.
const REQUESTS_TIMEOUT: Duration = Duration::from_secs(10);

/// A running service.
#[derive(Debug)]
pub struct Server {
    /// The address of the API or, in a process without the role `api`, the address of health and metrics. None if the
    /// process listens nowhere.
    pub address: Option<SocketAddr>,
    /// The address of readiness and metrics, if it differs from `address`.
    pub admin_address: Option<SocketAddr>,
    stop: CancellationToken,
    tasks: TaskTracker,
    /// The tasks that claim items and start them.
    starts: TaskTracker,
    embedded: Option<Embedded>,
    /// The worker of an external engine.
    worker: Worker,
    /// How long each run may take, at shutdown, to finish what it does and store the result.
    drain: Duration,
    target: Target,
    store: Store,
    membership: watch::Receiver<Option<Membership>>,
    heartbeat: Option<std::thread::JoinHandle<()>>,
    announced: Arc<AtomicBool>,
}

/// What the caller of `Server::start` chooses, apart from the settings.
#[derive(Debug, Default)]
pub struct ServerOptions {
    pub roles: BTreeSet<Role>,
    /// No other process uses the database, because the caller holds the lock of its data directory. All processes
    /// registered earlier have therefore ended, and their work is taken over without waiting for their leases.
    pub only_process: bool,
    /// The service is for this machine only. Workflows may call the address at which it listens. That address is also
    /// the public URL, unless `http.public_url` is set.
    pub local: bool,
    /// `/readyz` answers 503 until `mark_ready` is called.
    pub wait_for_mark_ready: bool,
}

impl Server {
    /// Starts every part of the service; returns when all parts have started.
    pub async fn start(mut settings: Settings, options: ServerOptions) -> Result<Server, StartError> {
        settings.check()?;
        if settings.database.url.is_empty() {
            return Err(StartError::NoDatabase);
        }
        let engine_roles = engine_roles(&settings, &options.roles)?;
        let root_keys = RootKeys::read(&settings.auth)?;
        let (target, direct) = (Target::new(&settings.database.url)?, Target::new(settings.direct_url())?);
        match settings.database.migrate {
            true => drop(migrate(&direct).await?),
            false => store::migrate::check(&direct).await?,
        }
        let api = options.roles.contains(&Role::Api);
        let work = Store::new(&target, settings.database.work_connections)?;
        if api {
            check_root_key(settings.http.listen, &root_keys, &work).await?;
        }
        let listeners = Listeners::open(&settings, api).await?;
        let (address, admin_address) = listeners.addresses();
        if let Some(address) = address.filter(|_| options.local) {
            allow_own_address(&mut settings, address);
        }
        let mut parts = ServerParts::new(settings, DatabaseTargets { pooled: target, direct }, work, engine_roles)?;
        recorder::global_recorder();
        parts.shared.tasks.spawn(recorder::aggregate_periodically(parts.shared.stop.clone()));
        // The check comes before the first heartbeat, because the heartbeat of a process that may not claim must not
        // ask for shards.
        parts.protocol_checker().run_once().await?;
        let heartbeat = parts.spawn_heartbeat(&options).map_err(StartError::Thread)?;
        let first = parts.wait_for_first_heartbeat().await;
        if options.only_process {
            parts.shared.store.end_all_but(first).await?;
        }
        let announced = Arc::new(AtomicBool::new(!options.wait_for_mark_ready));
        parts.check_secrets().await?;
        parts.spawn_loops();
        parts.spawn_notifications(api);
        parts.spawn_engine_health_check(api);
        parts.spawn_api(listeners, root_keys, Arc::clone(&announced))?;
        Ok(Server {
            address,
            admin_address,
            stop: parts.shared.stop,
            tasks: parts.shared.tasks,
            starts: parts.starts,
            embedded: parts.engines.embedded,
            worker: parts.engines.worker,
            drain: parts.shared.settings.process.drain_timeout(),
            target: parts.targets.direct,
            store: parts.shared.store,
            membership: parts.shared.membership,
            heartbeat: Some(heartbeat),
            announced,
        })
    }

    /// Lets `/readyz` report that this process is ready. For callers that set `wait_for_mark_ready`.
    pub fn mark_ready(&self) {
        self.announced.store(true, Ordering::Relaxed);
    }

    /// Completes when a part of the service has ended unexpectedly. All other parts are then stopping, and the process
    /// should exit.
    pub async fn wait_for_failure(&self) {
        self.stop.cancelled().await;
    }

    /// Shuts the service down. Runs that have not ended stay stored: another process, or this one after a restart,
    /// resumes them.
    pub async fn shut_down(mut self) {
        self.stop.cancel();
        // The heartbeat has stopped, so other processes soon consider this one dead. Therefore the starts and the runs
        // are finished and the process is deregistered first. Requests that still wait for an answer come last.
        self.starts.close();
        let runs = async {
            if let Some(engine) = &self.embedded {
                engine.drain(self.drain).await;
            }
        };
        let starts = tokio::time::timeout(self.drain, self.starts.wait());
        let worker = std::mem::take(&mut self.worker).shut_down();
        // An item whose start the engine has not answered stays claimed. The process that takes the item over repeats
        // the start.
        let ((), _in_time, ()) = tokio::join!(runs, starts, worker);
        self.deregister().await;
        self.tasks.close();
        if tokio::time::timeout(REQUESTS_TIMEOUT, self.tasks.wait()).await.is_err() {
            tracing::warn!("Some requests or loops did not stop within 10 s of shutdown; the process ends anyway");
        }
        if let Some(thread) = self.heartbeat.take() {
            let _ended = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }

    /// Deregisters this process, so that other processes take over its runs and items immediately.
    async fn deregister(&self) {
        let Some(process) = self.membership.borrow().as_ref().map(|membership| membership.process) else { return };
        match self.store.end_process(process).await {
            Ok(()) => notifications::send_process_ended(&self.target).await,
            Err(error) => {
                tracing::warn!(
                    error = %error,
                    "Could not deregister this process; other processes take over its runs when its leases expire"
                )
            }
        }
    }
}

/// Lets workflows call this service at `address`, and makes the address the public URL unless the settings name one.
fn allow_own_address(settings: &mut Settings, address: SocketAddr) {
    settings.outbound.allow.extend(address.to_string().parse());
    let reached = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::from((Ipv4Addr::LOCALHOST, address.port())),
        IpAddr::V6(ip) if ip.is_unspecified() => SocketAddr::from((Ipv6Addr::LOCALHOST, address.port())),
        _ => address,
    };
    settings.http.public_url.get_or_insert_with(|| format!("http://{reached}"));
}

/// What this process does with the engine. With the embedded engine a process has both roles or neither, because a run
/// lives in the process that claimed its item.
fn engine_roles(settings: &Settings, roles: &BTreeSet<Role>) -> Result<EngineRoles, StartError> {
    let (dispatches, works) = (roles.contains(&Role::Dispatcher), roles.contains(&Role::Worker));
    if dispatches != works && settings.engine.kind != EngineKind::Temporal {
        return Err(StartError::SplitRoles);
    }
    let on = settings.workflow.engine.enabled;
    Ok(EngineRoles { dispatches: dispatches && on, works: works && on })
}

/// Without a root key nobody can create workspaces. Then the service refuses to listen on an address that other
/// machines can reach, because no legitimate client could use it.
async fn check_root_key(address: SocketAddr, keys: &RootKeys, store: &Store) -> Result<(), StartError> {
    if !keys.is_empty() || store.has_root_key().await? {
        return Ok(());
    }
    if !address.ip().is_loopback() {
        return Err(StartError::NoRootKey { address });
    }
    tracing::warn!(
        "No root key is set, so nobody can create workspaces: set auth.root_key (`forebay root-key` generates one)"
    );
    Ok(())
}
