//! What answers over HTTP, and the feed of changes behind it.
//!
//! Not here: the routes (`http`), how changes are read (`feed`).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use axum::Router;
use engine::vault::Vault;
use engine::versions::Versions;
use store::Store;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::super::StartError;
use super::super::listeners::Listeners;
use super::Parts;
use crate::access::root_keys::RootKeys;
use crate::connection::{self, Bounds};
use crate::execution::waiters::Waiters;
use crate::feed::{Feed, Source};
use crate::http;
use crate::process::pass::keep;
use crate::wait::turns::Places;

/// How many requests at once may ask an engine elsewhere about a run.
const ASKED_AT_ONCE: usize = 8;

/// The feed reads one thing at a time.
const FEED_CONNECTIONS: usize = 1;

impl Parts {
    /// Follows the changes for whoever asks this process for them.
    fn spawn_feed(&self) -> Result<Feed, StartError> {
        let feed = Feed::new(self.shared.settings.http.max_stream_backlog_bytes);
        let store = Store::new(&self.targets.pooled, FEED_CONNECTIONS)?;
        let bell = self.shared.settings.dispatch.hints.then(|| self.targets.direct.clone());
        let (stop, kept) = (self.shared.stop.clone(), Arc::default());
        let source = Source { feed: feed.clone(), store, bell, stop, kept };
        self.shared.tasks.spawn(keep("feed", self.shared.stop.clone(), source.run()));
        Ok(feed)
    }

    /// Logs at the start that secrets cannot be opened here, before a run finds out.
    pub(in crate::start) async fn check_secrets(&self) -> Result<(), StartError> {
        let vault = Vault::new(self.shared.store.clone(), crate::access::secrets::keys(&self.shared.settings)?);
        match crate::access::secrets::trouble(&vault).await {
            Ok(Some(trouble)) => tracing::warn!(trouble, "Secrets cannot be opened"),
            Ok(None) => {}
            // Readiness looks again.
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "Could not check the keys of secrets");
            }
        }
        Ok(())
    }

    /// Answers over HTTP: the API, and how this process is doing.
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
        self.shared.tasks.spawn(root_keys.clone().follow(self.shared.stop.clone()));
        let store = Store::new(&self.targets.pooled, self.shared.settings.database.api_connections)?;
        let shared = &self.shared;
        let api = Arc::new(http::ApiParts {
            vault: Vault::new(store.clone(), crate::access::secrets::keys(&shared.settings)?),
            store,
            work: shared.store.clone(),
            settings: Arc::clone(&shared.settings),
            keys: http::keys(root_keys),
            failures: http::failures(&shared.settings),
            pace: http::pace(),
            rates: http::rates(),
            hints: shared.hints.clone(),
            wakes: shared.wakes.clone(),
            waiters: shared.waiters.clone(),
            streams: Waiters::default(),
            feed: self.spawn_feed()?,
            tasks: shared.tasks.clone(),
            input_rules: http::input_rules(),
            engine: http::EngineParts {
                local: self.engines.engine.clone(),
                told: self.engines.told.clone(),
                breaker: self.engine_state.breaker.clone(),
                findings: self.engine_state.findings.clone(),
                foreign: self.engine_state.foreign.clone(),
                rules: self.engine_state.rules.clone(),
                asked: Semaphore::new(ASKED_AT_ONCE),
            },
            pulse: Arc::clone(&shared.pulse),
            health: http::health::Parts { performs: self.duties.works, polls: self.engines.worker.polls(), announced },
            calls: self.calls(),
            places: Places::default(),
            versions: Versions::default(),
            stop: shared.stop.clone(),
        });
        if let Some(listener) = public {
            let health = if admin.is_some() { http::Health::Alive } else { http::Health::All };
            self.serve(listener, http::router(Arc::clone(&api), health), Bounds::of(&self.shared.settings));
        }
        if let Some(listener) = admin {
            self.serve(listener, http::signals(api), Bounds::of_admin(&self.shared.settings));
        }
        Ok(())
    }

    /// Answers at one address until told to stop.
    fn serve(&self, listener: TcpListener, router: Router, bounds: Bounds) {
        self.shared.tasks.spawn(connection::serve(listener, router, bounds, self.shared.stop.clone()));
    }
}
