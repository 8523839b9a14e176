//! Starts the HTTP API of a process, and the feed of changes behind it.
//!
//! Not here: the routes (`http`), how changes are read (`feed`).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use axum::Router;
use engine::vault::Vault;
use engine::versions::VersionCache;
use store::Store;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::super::StartError;
use super::super::listeners::Listeners;
use super::ServerParts;
use crate::access::root_keys::RootKeys;
use crate::connection::{self, ConnectionLimits};
use crate::execution::waiters::Waiters;
use crate::feed::{Feed, FeedReader};
use crate::http;
use crate::process::background_loop::supervise;
use crate::wait::last_served::LastServed;

/// How many requests may ask an external engine about a run at the same time.
const MAX_ENGINE_QUESTIONS: usize = 8;

/// One connection is enough, because the feed runs one statement at a time.
const FEED_CONNECTIONS: usize = 1;

impl ServerParts {
    /// Starts the reader of the change feed that serves the event streams and sockets of this process.
    fn spawn_feed(&self) -> Result<Feed, StartError> {
        let feed = Feed::new(self.shared.settings.http.max_stream_backlog_bytes);
        let store = Store::new(&self.targets.pooled, FEED_CONNECTIONS)?;
        let listener = self.shared.settings.dispatch.notifications.then(|| self.targets.direct.clone());
        let (stop, retained_bytes) = (self.shared.stop.clone(), Arc::default());
        let reader = FeedReader { feed: feed.clone(), store, listener, stop, retained_bytes };
        self.shared.tasks.spawn(supervise("feed", self.shared.stop.clone(), reader.run()));
        Ok(feed)
    }

    /// Logs a warning at startup if this process lacks a key of stored secrets, before a run fails because of that.
    pub(in crate::start) async fn check_secrets(&self) -> Result<(), StartError> {
        let vault = Vault::new(self.shared.store.clone(), crate::access::secrets::read_keys(&self.shared.settings)?);
        match crate::access::secrets::describe_missing_keys(&vault).await {
            Ok(Some(problem)) => tracing::warn!(problem, "Some secrets cannot be decrypted: check secrets.key_file"),
            Ok(None) => {}
            // Each request to `/readyz` repeats the check.
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "Could not check the keys of stored secrets; /readyz repeats the check"
                );
            }
        }
        Ok(())
    }

    /// Starts to serve HTTP: the API, and health, readiness and metrics.
    pub(in crate::start) fn spawn_api(
        &mut self,
        listeners: Listeners,
        root_keys: RootKeys,
        announced: Arc<AtomicBool>,
    ) -> Result<(), StartError> {
        let Listeners { api: public, admin } = listeners;
        if public.is_none() && admin.is_none() {
            return Ok(());
        }
        self.shared.tasks.spawn(root_keys.clone().reload_periodically(self.shared.stop.clone()));
        let store = Store::new(&self.targets.pooled, self.shared.settings.database.api_connections)?;
        let shared = &self.shared;
        let api = Arc::new(http::ApiParts {
            vault: Vault::new(store.clone(), crate::access::secrets::read_keys(&shared.settings)?),
            store: store.clone(),
            work: shared.store.clone(),
            settings: Arc::clone(&shared.settings),
            keys: http::keys(root_keys),
            failures: http::failures(&shared.settings),
            pace: http::pace(),
            rates: http::rates(),
            notifier: shared.notifier.clone(),
            wakeups: shared.wakeups.clone(),
            waiters: shared.waiters.clone(),
            streams: Waiters::default(),
            feed: self.spawn_feed()?,
            tasks: shared.tasks.clone(),
            input_rules: http::input_rules(),
            start_gather: http::start_gather(&store, &shared.notifier, &shared.settings),
            engine: self.engine_parts(),
            liveness: Arc::clone(&shared.liveness),
            health: http::health::Parts {
                runs_nodes: self.engine_roles.works,
                polls: self.engines.worker.polling_flag(),
                announced,
            },
            run_notifier: self.run_notifier(),
            last_served: LastServed::default(),
            versions: VersionCache::default(),
            stop: shared.stop.clone(),
        });
        if let Some(listener) = public {
            let health_routes = if admin.is_some() { http::HealthRoutes::Liveness } else { http::HealthRoutes::All };
            self.serve(
                listener,
                http::router(Arc::clone(&api), health_routes),
                ConnectionLimits::from_settings(&self.shared.settings),
            );
        }
        if let Some(listener) = admin {
            self.serve(listener, http::signals(api), ConnectionLimits::for_admin_listen(&self.shared.settings));
        }
        Ok(())
    }

    /// The engine and its status, for requests that report it, cancel runs or send signals.
    fn engine_parts(&self) -> http::EngineParts {
        let status = &self.engine_status;
        http::EngineParts {
            local: self.engines.engine.clone(),
            control: self.engines.control.clone(),
            breaker: status.breaker.clone(),
            findings: status.findings.clone(),
            other_engine_runs: status.other_engine_runs.clone(),
            claim_protocol: status.claim_protocol.clone(),
            describe_permits: Semaphore::new(MAX_ENGINE_QUESTIONS),
        }
    }

    /// Accepts connections at one address until `stop` is cancelled.
    fn serve(&self, listener: TcpListener, router: Router, limits: ConnectionLimits) {
        self.shared.tasks.spawn(connection::serve(listener, router, limits, self.shared.stop.clone()));
    }
}
