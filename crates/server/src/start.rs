//! The service as one thing: what runs in this process, started and stopped together.
//!
//! Invariants
//! - Migrations are done, and the first heartbeat has been answered, before anything is claimed.
//! - Stopping claims nothing more, gives back what was never sent, lets runs reach a stored fact,
//!   and says goodbye, so that others go on at once.
//!
//! Not here: reading settings (`app`), what a process is made of (`parts`, `loops`), making the engine (`engines`).

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
use crate::process::heartbeat::Alive;
use crate::process::hints;
use crate::process::role::Role;
use crate::signals::recorder;
use engines::{Duties, Worker};
use listeners::Listeners;
use parts::{Parts, Targets};

pub use error::StartError;

/// How long those who wait for an answer of the API are waited for.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// A running service.
#[derive(Debug)]
pub struct Server {
    /// Where it listens, if it does: for the API, or only to tell how it is doing.
    pub address: Option<SocketAddr>,
    /// Where metrics and readiness are, if the API's address does not serve them.
    pub admin_address: Option<SocketAddr>,
    stop: CancellationToken,
    tasks: TaskTracker,
    /// Starts under way.
    starts: TaskTracker,
    embedded: Option<Embedded>,
    /// Of an engine elsewhere.
    worker: Worker,
    /// How long runs may take to reach a stored fact.
    drain: Duration,
    target: Target,
    store: Store,
    alive: watch::Receiver<Option<Alive>>,
    heartbeat: Option<std::thread::JoinHandle<()>>,
    announced: Arc<AtomicBool>,
}

/// What an operator decides beside the settings.
#[derive(Debug, Default)]
pub struct Options {
    pub roles: BTreeSet<Role>,
    /// This process alone can reach the database (it holds the data directory's lock): older ones are gone.
    pub alone: bool,
    /// It serves this machine: workflows may call it at whatever port it gets, and that is its public URL unless the
    /// settings name one.
    pub local: bool,
    /// `/readyz` answers 503 until `announce` is called.
    pub unannounced: bool,
}

impl Server {
    /// Starts everything; answers when it is ready.
    pub async fn start(mut settings: Settings, options: Options) -> Result<Server, StartError> {
        settings.check()?;
        if settings.database.url.is_empty() {
            return Err(StartError::NoDatabase);
        }
        let duties = duties(&settings, &options.roles)?;
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
            serve_locally(&mut settings, address);
        }
        let mut parts = Parts::new(settings, Targets { pooled: target, direct }, work, duties)?;
        recorder::recorder();
        parts.shared.tasks.spawn(recorder::fold(parts.shared.stop.clone()));
        // Before the first heartbeat: a process that may not claim takes no shards.
        parts.protocols().pass().await?;
        let heartbeat = parts.heartbeat(&options).map_err(StartError::Thread)?;
        let first = parts.first_beat().await;
        if options.alone {
            parts.shared.store.end_all_but(first).await?;
        }
        let announced = Arc::new(AtomicBool::new(!options.unannounced));
        parts.check_secrets().await?;
        parts.spawn_loops();
        parts.spawn_hints(api);
        parts.spawn_watcher(api);
        parts.spawn_api(listeners, root_keys, Arc::clone(&announced))?;
        Ok(Server {
            address,
            admin_address,
            stop: parts.shared.stop,
            tasks: parts.shared.tasks,
            starts: parts.starts,
            embedded: parts.engines.embedded,
            worker: parts.engines.worker,
            drain: parts.shared.settings.process.drain(),
            target: parts.targets.direct,
            store: parts.shared.store,
            alive: parts.shared.alive,
            heartbeat: Some(heartbeat),
            announced,
        })
    }

    /// Lets `/readyz` say that this process is ready: whoever starts it has done what those who wait need.
    pub fn announce(&self) {
        self.announced.store(true, Ordering::Relaxed);
    }

    /// Ends when a part of the service ended unasked: the rest is stopping, and the process should go.
    pub async fn broken(&self) {
        self.stop.cancelled().await;
    }

    /// Stops everything; what runs here is left where another process, or the next start, takes it up.
    pub async fn stop(mut self) {
        self.stop.cancel();
        // First the starts, the runs and the goodbye, because the heartbeat has stopped; then whoever
        // still waits for an answer.
        self.starts.close();
        let runs = async {
            if let Some(engine) = &self.embedded {
                engine.drain(self.drain).await;
            }
        };
        let starts = tokio::time::timeout(self.drain, self.starts.wait());
        let worker = std::mem::take(&mut self.worker).stop();
        // A start without an answer stays claimed; whoever takes it over repeats it.
        let ((), _in_time, ()) = tokio::join!(runs, starts, worker);
        self.say_goodbye().await;
        self.tasks.close();
        if tokio::time::timeout(ANSWERS_WITHIN, self.tasks.wait()).await.is_err() {
            tracing::warn!("Some work did not stop in time");
        }
        if let Some(thread) = self.heartbeat.take() {
            let _ended = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }

    /// Others take over at once what this process leaves.
    async fn say_goodbye(&self) {
        let Some(process) = self.alive.borrow().as_ref().map(|alive| alive.process) else { return };
        match self.store.end_process(process).await {
            Ok(()) => hints::goodbye(&self.target).await,
            Err(error) => tracing::warn!(error = %error, "Could not say goodbye; others go on after the lease"),
        }
    }
}

/// Tells the settings the address that a service of this machine got.
fn serve_locally(settings: &mut Settings, address: SocketAddr) {
    settings.outbound.allow.extend(address.to_string().parse());
    let reached = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::from((Ipv4Addr::LOCALHOST, address.port())),
        IpAddr::V6(ip) if ip.is_unspecified() => SocketAddr::from((Ipv6Addr::LOCALHOST, address.port())),
        _ => address,
    };
    settings.http.public_url.get_or_insert_with(|| format!("http://{reached}"));
}

/// What this process has to do with the engine. Runs of the embedded engine live where they are claimed.
fn duties(settings: &Settings, roles: &BTreeSet<Role>) -> Result<Duties, StartError> {
    let (dispatches, works) = (roles.contains(&Role::Dispatcher), roles.contains(&Role::Worker));
    if dispatches != works && settings.engine.kind != EngineKind::Temporal {
        return Err(StartError::SplitRoles);
    }
    let on = settings.workflow.engine.enabled;
    Ok(Duties { dispatches: dispatches && on, works: works && on })
}

/// Without a root key nobody can make workspaces, so an address that other machines reach serves nobody but strangers.
async fn check_root_key(address: SocketAddr, keys: &RootKeys, store: &Store) -> Result<(), StartError> {
    if !keys.is_empty() || store.has_root_key().await? {
        return Ok(());
    }
    if !address.ip().is_loopback() {
        return Err(StartError::NoRootKey { address });
    }
    tracing::warn!("There is no root key, so nobody can make workspaces: set auth.root_key (`forebay root-key`)");
    Ok(())
}
