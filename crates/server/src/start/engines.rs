//! Makes the engine that `engine.kind` names.
//!
//! Invariants
//! - Only this file of the crate uses the crate `temporal`. A build without that crate refuses `engine.kind =
//!   "temporal"` (`config::engine_kind`).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use engine::Engine;
use engine::embedded::{self, Embedded, RunExit};
use engine::outbound::{self, Outbound};
use engine::vault::Vault;
use store::Store;
use tokio::sync::mpsc;

use super::StartError;
use super::parts::SharedParts;
use crate::access::secrets;
use crate::config::{EngineKind, Settings};
use crate::process::notifications::Notification;
use crate::webhook::WebhookSender;

/// What this process does with the engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct EngineRoles {
    /// Claims queue items and starts them on the engine.
    pub(super) dispatches: bool,
    /// Performs the nodes of runs.
    pub(super) works: bool,
}

/// What an engine is made from.
struct EngineContext<'a> {
    shared: &'a SharedParts,
    dispatcher: &'a mpsc::UnboundedSender<Notification>,
}

/// The engines of a process. All are none in a process that neither dispatches nor works.
#[derive(Default)]
pub(super) struct Engines {
    /// The engine that gets new items, in a process that dispatches.
    pub(super) engine: Option<Arc<dyn Engine>>,
    /// The engine for cancels and signals, in any process that can reach it.
    pub(super) control: Option<Arc<dyn Engine>>,
    /// The embedded engine, in a process that performs runs itself.
    pub(super) embedded: Option<Embedded>,
    /// An engine other than the configured one, to reconcile and terminate the runs that were started on it before
    /// `engine.kind` was changed. It starts no new runs.
    pub(super) other: Option<Arc<dyn Engine>>,
    /// A worker of an external engine.
    pub(super) worker: Worker,
    /// The guard of outgoing calls, in a process that makes such calls.
    pub(super) outbound: Option<Outbound>,
}

/// The worker of an external engine; empty in a process without the role `worker`.
#[derive(Debug, Default)]
pub(super) struct Worker {
    #[cfg(feature = "temporal")]
    inner: Option<temporal::Worker>,
}

impl Worker {
    /// A flag that is true while the worker polls; none if this process has no worker.
    pub(super) fn polling_flag(&self) -> Option<Arc<AtomicBool>> {
        #[cfg(feature = "temporal")]
        return self.inner.as_ref().map(temporal::Worker::polls);
        #[cfg(not(feature = "temporal"))]
        None
    }

    /// Stops polling, and waits for the activities in progress.
    pub(super) async fn shut_down(self) {
        #[cfg(feature = "temporal")]
        if let Some(worker) = self.inner {
            worker.stop().await;
        }
    }
}

pub(super) fn make_engines(
    shared: &SharedParts,
    dispatcher: &mpsc::UnboundedSender<Notification>,
    engine_roles: EngineRoles,
) -> Result<Engines, StartError> {
    let context = &EngineContext { shared, dispatcher };
    let settings = &shared.settings;
    match &settings.engine.kind {
        EngineKind::Embedded if !engine_roles.dispatches => Ok(Engines::default()),
        EngineKind::Embedded => {
            let outbound = outbound(settings, &context.shared.store)?;
            let embedded = embedded(context, engine_roles, outbound.clone())?;
            let other = other(context, engine_roles);
            let serving = serving(Arc::new(embedded.clone()));
            Ok(Engines { embedded: Some(embedded), outbound: Some(outbound), other, ..serving })
        }
        #[cfg(feature = "test-engine")]
        EngineKind::Test(_) if !engine_roles.dispatches => Ok(Engines::default()),
        #[cfg(feature = "test-engine")]
        EngineKind::Test(directory) => {
            let engine = engine::test_engine::TestEngine::open(
                directory,
                context.shared.store.clone(),
                on_run_exit(context, engine_roles),
            );
            Ok(serving(Arc::new(engine.map_err(StartError::TestEngine)?)))
        }
        #[cfg(feature = "temporal")]
        EngineKind::Temporal => temporal::make_engines(context, engine_roles),
        #[cfg(not(feature = "temporal"))]
        EngineKind::Temporal => Ok(Engines::default()),
    }
}

fn embedded(
    context: &EngineContext<'_>,
    engine_roles: EngineRoles,
    outbound: Outbound,
) -> Result<Embedded, StartError> {
    let settings = &context.shared.settings;
    let limits = embedded::EmbeddedSettings {
        max_runs: settings.engine.max_runs,
        max_calls: settings.engine.max_calls,
        max_generations: settings.workflow.max_generations,
    };
    let (store, liveness) = (context.shared.store.clone(), Arc::clone(&context.shared.liveness));
    let keys = secrets::read_keys(settings)?;
    let embedded = Embedded::new(store, outbound, keys, limits, liveness, on_run_exit(context, engine_roles));
    let notifier = context.shared.notifier.clone();
    embedded.on_ready(Arc::new(move |workspace| notifier.notify_ready(workspace)));
    Ok(embedded)
}

/// A client of Temporal, which may still have runs that began before `engine.kind` was changed. The client connects
/// only when it is used, so a service without such runs needs no Temporal server.
fn other(context: &EngineContext<'_>, engine_roles: EngineRoles) -> Option<Arc<dyn Engine>> {
    #[cfg(feature = "temporal")]
    return temporal::client(context, engine_roles).ok();
    #[cfg(not(feature = "temporal"))]
    {
        let _unused = (context, engine_roles);
        None
    }
}

fn serving(engine: Arc<dyn Engine>) -> Engines {
    Engines { control: Some(Arc::clone(&engine)), engine: Some(engine), ..Engines::default() }
}

fn outbound(settings: &Settings, store: &Store) -> Result<Outbound, outbound::Error> {
    let (allow, allow_loopback) = (settings.outbound.allow.clone(), settings.outbound.allow_loopback);
    let (deny, public_url) = (settings.outbound.deny.clone(), settings.http.public_url.clone());
    let outbound =
        Outbound::new(outbound::OutboundSettings { allow, allow_loopback, deny, public_url, ..Default::default() })?;
    Ok(outbound.ruled_by(store.clone()))
}

/// Makes the sender of webhooks, in a process that dispatches. The sender shares the engine's guard of outgoing calls,
/// if this process has one.
pub(super) fn make_webhook_sender(
    shared: &SharedParts,
    engine_roles: EngineRoles,
    guard: Option<Outbound>,
) -> Result<Option<WebhookSender>, StartError> {
    if !engine_roles.dispatches {
        return Ok(None);
    }
    let outbound = match guard {
        Some(outbound) => outbound,
        None => outbound(&shared.settings, &shared.store)?,
    };
    let vault = Vault::new(shared.store.clone(), secrets::read_keys(&shared.settings)?);
    Ok(Some(WebhookSender { outbound, vault }))
}

/// The callback for a run that leaves the engine. In a process that dispatches, the callback wakes the dispatcher,
/// which claims the next item of the workspace, even if `dispatch.notifications` is off. In any other process it
/// notifies the processes that dispatch.
fn on_run_exit(context: &EngineContext<'_>, engine_roles: EngineRoles) -> embedded::OnRunExit {
    let (dispatcher, notifier, waiters) =
        (context.dispatcher.clone(), context.shared.notifier.clone(), context.shared.waiters.clone());
    Arc::new(move |execution, left| {
        waiters.wake(execution);
        match left {
            RunExit::Ended { freed: Some(workspace) } if !engine_roles.dispatches => notifier.notify_ready(workspace),
            _ if !engine_roles.dispatches => {}
            RunExit::Ended { freed: Some(workspace) } => {
                let _stopping = dispatcher.send(Notification::SlotFreed(workspace, Instant::now()));
            }
            RunExit::Ended { freed: None } | RunExit::Parked | RunExit::Released | RunExit::Lost => {
                let _stopping = dispatcher.send(Notification::Room);
            }
        }
    })
}

#[cfg(feature = "temporal")]
mod temporal {
    //! The Temporal engine: a client in every process that sends requests to Temporal, and a worker in each process
    //! with the role `worker`.

    pub(super) use ::temporal::Worker;
    use ::temporal::{PayloadKeys, Temporal, TemporalSettings, Tls, WorkerSetup};
    use engine::nodes::call::CallResources;

    use super::{Arc, Engine, EngineContext, EngineRoles, Engines, StartError, Vault, on_run_exit, outbound, secrets};
    use crate::config::{Invalid, ms};

    pub(super) fn make_engines(context: &EngineContext<'_>, engine_roles: EngineRoles) -> Result<Engines, StartError> {
        let client = client(context, engine_roles)?;
        let settings = settings(&context.shared.settings)?;
        let mut made = Engines { control: Some(Arc::clone(&client)), ..Engines::default() };
        if engine_roles.dispatches {
            made.engine = Some(client);
            // The embedded engine only resumes runs that began before `engine.kind` was changed. It starts no new runs.
            made.embedded = Some(super::embedded(
                context,
                engine_roles,
                outbound(&context.shared.settings, &context.shared.store)?,
            )?);
        }
        if engine_roles.works {
            let (outbound, notifier) =
                (outbound(&context.shared.settings, &context.shared.store)?, context.shared.notifier.clone());
            made.outbound = Some(outbound.clone());
            let (store, liveness) = (context.shared.store.clone(), Arc::clone(&context.shared.liveness));
            let vault = Vault::new(store.clone(), secrets::read_keys(&context.shared.settings)?);
            let setup = WorkerSetup {
                resources: CallResources { store, outbound, vault, liveness },
                on_run_exit: on_run_exit(context, engine_roles),
                on_ready: Arc::new(move |workspace| notifier.notify_ready(workspace)),
            };
            made.worker.inner = Some(Worker::start(settings, setup).map_err(StartError::Thread)?);
        }
        Ok(made)
    }

    pub(super) fn client(
        context: &EngineContext<'_>,
        engine_roles: EngineRoles,
    ) -> Result<Arc<dyn Engine>, StartError> {
        let settings = settings(&context.shared.settings)?;
        Ok(Arc::new(Temporal::new(settings, context.shared.store.clone(), on_run_exit(context, engine_roles))))
    }

    fn settings(all: &crate::config::Settings) -> Result<TemporalSettings, StartError> {
        let given = &all.engine.temporal;
        let from_file = secret("engine.temporal.encryption_key_file", given.encryption_key_file.as_deref())?;
        let keys = match from_file.or_else(|| given.encryption_key.clone()) {
            Some(text) => PayloadKeys::parse(&text).map_err(|problem| Invalid {
                key: "engine.temporal.encryption_key",
                problem: format!("{problem}; generate one with `openssl rand -hex 32`"),
            })?,
            None => PayloadKeys::default(),
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
        Ok(TemporalSettings {
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
            drain: all.process.drain_timeout(),
        })
    }

    /// Reads a file that contains only a secret, and removes the final line break if there is one.
    fn secret(key: &'static str, path: Option<&str>) -> Result<Option<String>, StartError> {
        let Some(bytes) = file(key, path)? else { return Ok(None) };
        match String::from_utf8(bytes).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()) {
            Some(text) => Ok(Some(text)),
            None => Err(Invalid {
                key,
                problem: "names a file that contains no secret: write the secret into it".to_owned(),
            }
            .into()),
        }
    }

    fn file(key: &'static str, path: Option<&str>) -> Result<Option<Vec<u8>>, StartError> {
        let read = |path: &str| {
            std::fs::read(path).map_err(|error| Invalid { key, problem: format!("cannot read {path}: {error}") })
        };
        Ok(path.map(read).transpose()?)
    }
}
