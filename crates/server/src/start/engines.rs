//! Makes the engine that the settings name.
//!
//! Invariants
//! - Only here is the Temporal engine known: a build without it says so when it is asked for.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use engine::Engine;
use engine::embedded::{self, Embedded, Left};
use engine::outbound::{self, Outbound};
use engine::vault::Vault;
use store::Store;
use tokio::sync::mpsc;

use super::StartError;
use super::parts::Shared;
use crate::access::secrets;
use crate::config::{EngineKind, Settings};
use crate::process::hints::Hint;
use crate::webhook::Sender;

/// What this process has to do with the engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Duties {
    /// Hands waiting items to it.
    pub(super) dispatches: bool,
    /// Does its work.
    pub(super) works: bool,
}

/// What an engine is made of.
struct Parts<'a> {
    shared: &'a Shared,
    dispatcher: &'a mpsc::UnboundedSender<Hint>,
}

/// The engine of a process; none in one that runs nothing.
#[derive(Default)]
pub(super) struct Engines {
    /// To hand items to, in a process that dispatches.
    pub(super) engine: Option<Arc<dyn Engine>>,
    /// To tell of cancels, in any process that can reach it.
    pub(super) told: Option<Arc<dyn Engine>>,
    /// The same, if this process itself is the one that runs.
    pub(super) embedded: Option<Embedded>,
    /// An engine that is not the configured one, for runs that it still has: it gets nothing new.
    pub(super) other: Option<Arc<dyn Engine>>,
    /// A worker of an engine elsewhere.
    pub(super) worker: Worker,
    /// The guard that it calls out through, if it calls from here.
    pub(super) outbound: Option<Outbound>,
}

/// A worker of an engine elsewhere, in a process that is one.
#[derive(Debug, Default)]
pub(super) struct Worker {
    #[cfg(feature = "temporal")]
    inner: Option<temporal::Worker>,
}

impl Worker {
    /// Whether it polls; none if there is no worker here.
    pub(super) fn polls(&self) -> Option<Arc<AtomicBool>> {
        #[cfg(feature = "temporal")]
        return self.inner.as_ref().map(temporal::Worker::polls);
        #[cfg(not(feature = "temporal"))]
        None
    }

    /// Takes nothing more, and ends when what it performs has.
    pub(super) async fn stop(self) {
        #[cfg(feature = "temporal")]
        if let Some(worker) = self.inner {
            worker.stop().await;
        }
    }
}

pub(super) fn make(
    shared: &Shared,
    dispatcher: &mpsc::UnboundedSender<Hint>,
    duties: Duties,
) -> Result<Engines, StartError> {
    let parts = &Parts { shared, dispatcher };
    let settings = &shared.settings;
    match &settings.engine.kind {
        EngineKind::Embedded if !duties.dispatches => Ok(Engines::default()),
        EngineKind::Embedded => {
            let outbound = outbound(settings, &parts.shared.store)?;
            let embedded = embedded(parts, duties, outbound.clone())?;
            let other = other(parts, duties);
            let serving = serving(Arc::new(embedded.clone()));
            Ok(Engines { embedded: Some(embedded), outbound: Some(outbound), other, ..serving })
        }
        #[cfg(feature = "test-engine")]
        EngineKind::Test(_) if !duties.dispatches => Ok(Engines::default()),
        #[cfg(feature = "test-engine")]
        EngineKind::Test(directory) => {
            let engine =
                engine::test_engine::TestEngine::open(directory, parts.shared.store.clone(), on_left(parts, duties));
            Ok(serving(Arc::new(engine.map_err(StartError::TestEngine)?)))
        }
        #[cfg(feature = "temporal")]
        EngineKind::Temporal => temporal::make(parts, duties),
        #[cfg(not(feature = "temporal"))]
        EngineKind::Temporal => Ok(Engines::default()),
    }
}

fn embedded(parts: &Parts<'_>, duties: Duties, outbound: Outbound) -> Result<Embedded, StartError> {
    let settings = &parts.shared.settings;
    let limits = embedded::Settings {
        max_runs: settings.engine.max_runs,
        max_calls: settings.engine.max_calls,
        max_generations: settings.workflow.max_generations,
    };
    let (store, pulse) = (parts.shared.store.clone(), Arc::clone(&parts.shared.pulse));
    let keys = secrets::keys(settings)?;
    let embedded = Embedded::new(store, outbound, keys, limits, pulse, on_left(parts, duties));
    let hints = parts.shared.hints.clone();
    embedded.on_ready(Arc::new(move |workspace| hints.ready(workspace)));
    Ok(embedded)
}

/// Temporal, where runs may be left that began before the engine was changed. It is connected to only if there are any.
fn other(parts: &Parts<'_>, duties: Duties) -> Option<Arc<dyn Engine>> {
    #[cfg(feature = "temporal")]
    return temporal::client(parts, duties).ok();
    #[cfg(not(feature = "temporal"))]
    {
        let _unused = (parts, duties);
        None
    }
}

fn serving(engine: Arc<dyn Engine>) -> Engines {
    Engines { told: Some(Arc::clone(&engine)), engine: Some(engine), ..Engines::default() }
}

fn outbound(settings: &Settings, store: &Store) -> Result<Outbound, outbound::Error> {
    let (allow, allow_loopback) = (settings.outbound.allow.clone(), settings.outbound.allow_loopback);
    let (deny, public_url) = (settings.outbound.deny.clone(), settings.http.public_url.clone());
    let outbound = Outbound::new(outbound::Settings { allow, allow_loopback, deny, public_url, ..Default::default() })?;
    Ok(outbound.ruled_by(store.clone()))
}

/// With what this process delivers webhooks, if it does. The engine's guard is used if it has one here.
pub(super) fn sender(shared: &Shared, duties: Duties, guard: Option<Outbound>) -> Result<Option<Sender>, StartError> {
    if !duties.dispatches {
        return Ok(None);
    }
    let outbound = match guard {
        Some(outbound) => outbound,
        None => outbound(&shared.settings, &shared.store)?,
    };
    let vault = Vault::new(shared.store.clone(), secrets::keys(&shared.settings)?);
    Ok(Some(Sender { outbound, vault }))
}

/// The one that ends an execution claims its workspace's next itself: hints on or off. One that does not dispatch tells
/// those that do.
fn on_left(parts: &Parts<'_>, duties: Duties) -> embedded::OnLeft {
    let (dispatcher, hints, waiters) =
        (parts.dispatcher.clone(), parts.shared.hints.clone(), parts.shared.waiters.clone());
    Arc::new(move |execution, left| {
        waiters.wake(execution);
        match left {
            Left::Ended { freed: Some(workspace) } if !duties.dispatches => hints.ready(workspace),
            _ if !duties.dispatches => {}
            Left::Ended { freed: Some(workspace) } => {
                let _stopping = dispatcher.send(Hint::Freed(workspace, Instant::now()));
            }
            Left::Ended { freed: None } | Left::Parked | Left::Released | Left::Lost => {
                let _stopping = dispatcher.send(Hint::Room);
            }
        }
    })
}

#[cfg(feature = "temporal")]
mod temporal {
    //! The Temporal engine: a client in every process that may have something to tell it, a worker where asked for.

    pub(super) use ::temporal::Worker;
    use ::temporal::{Hands, Keys, Settings, Temporal, Tls};
    use engine::nodes::call::Means;

    use super::{Arc, Duties, Engine, Engines, Parts, StartError, Vault, on_left, outbound, secrets};
    use crate::config::{Invalid, ms};

    pub(super) fn make(parts: &Parts<'_>, duties: Duties) -> Result<Engines, StartError> {
        let client = client(parts, duties)?;
        let settings = settings(&parts.shared.settings)?;
        let mut made = Engines { told: Some(Arc::clone(&client)), ..Engines::default() };
        if duties.dispatches {
            made.engine = Some(client);
            // For runs that began before the engine was changed: resumed here, and nothing new.
            made.embedded =
                Some(super::embedded(parts, duties, outbound(&parts.shared.settings, &parts.shared.store)?)?);
        }
        if duties.works {
            let (outbound, hints) =
                (outbound(&parts.shared.settings, &parts.shared.store)?, parts.shared.hints.clone());
            made.outbound = Some(outbound.clone());
            let (store, pulse) = (parts.shared.store.clone(), Arc::clone(&parts.shared.pulse));
            let vault = Vault::new(store.clone(), secrets::keys(&parts.shared.settings)?);
            let hands = Hands {
                means: Means { store, outbound, vault, pulse },
                on_left: on_left(parts, duties),
                on_ready: Arc::new(move |workspace| hints.ready(workspace)),
            };
            made.worker.inner = Some(Worker::start(settings, hands).map_err(StartError::Thread)?);
        }
        Ok(made)
    }

    pub(super) fn client(parts: &Parts<'_>, duties: Duties) -> Result<Arc<dyn Engine>, StartError> {
        let settings = settings(&parts.shared.settings)?;
        Ok(Arc::new(Temporal::new(settings, parts.shared.store.clone(), on_left(parts, duties))))
    }

    fn settings(all: &crate::config::Settings) -> Result<Settings, StartError> {
        let given = &all.engine.temporal;
        let from_file = secret("engine.temporal.encryption_key_file", given.encryption_key_file.as_deref())?;
        let keys = match from_file.or_else(|| given.encryption_key.clone()) {
            Some(text) => Keys::parse(&text).map_err(|problem| Invalid {
                key: "engine.temporal.encryption_key",
                problem: format!("{problem}; make one with `openssl rand -hex 32`"),
            })?,
            None => Keys::default(),
        };
        let pair = (
            file("engine.temporal.client_cert_file", given.client_cert_file.as_deref())?,
            file("engine.temporal.client_key_file", given.client_key_file.as_deref())?,
        );
        let tls = Tls {
            ca_pem: file("engine.temporal.ca_file", given.ca_file.as_deref())?,
            server_name: given.server_name.clone(),
            client_pem: pair.0.zip(pair.1),
        };
        Ok(Settings {
            address: given.address.clone(),
            namespace: given.namespace.clone(),
            task_queue: given.task_queue.clone(),
            api_key: secret("engine.temporal.api_key_file", given.api_key_file.as_deref())?
                .or_else(|| given.api_key.clone()),
            tls,
            keys,
            local_below: ms(given.local_activity_below_ms),
            max_calls: all.engine.max_calls,
            max_generations: all.workflow.max_generations,
            heartbeat: ms(given.heartbeat_ms),
            drain: all.process.drain(),
        })
    }

    /// A secret that stands alone in a file, with or without an end of line.
    fn secret(key: &'static str, path: Option<&str>) -> Result<Option<String>, StartError> {
        let Some(bytes) = file(key, path)? else { return Ok(None) };
        match String::from_utf8(bytes).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()) {
            Some(text) => Ok(Some(text)),
            None => Err(Invalid { key, problem: "names a file without a secret in it".to_owned() }.into()),
        }
    }

    fn file(key: &'static str, path: Option<&str>) -> Result<Option<Vec<u8>>, StartError> {
        let read = |path: &str| {
            std::fs::read(path).map_err(|error| Invalid { key, problem: format!("cannot read {path}: {error}") })
        };
        Ok(path.map(read).transpose()?)
    }
}
