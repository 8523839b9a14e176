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
        let feed = Feed::new(self.settings.http.max_stream_backlog_bytes);
        let store = Store::new(&self.targets.pooled, FEED_CONNECTIONS)?;
        let bell = self.settings.dispatch.hints.then(|| self.targets.direct.clone());
        let (stop, kept) = (self.stop.clone(), Arc::default());
        let source = Source { feed: feed.clone(), store, bell, stop, kept };
        self.tasks.spawn(keep("feed", self.stop.clone(), source.run()));
        Ok(feed)
    }

    /// Logs at the start that secrets cannot be opened here, before a run finds out.
    pub(in crate::start) async fn check_secrets(&self) -> Result<(), StartError> {
        let vault = Vault::new(self.work.clone(), crate::access::secrets::keys(&self.settings)?);
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
        self.tasks.spawn(root_keys.clone().follow(self.stop.clone()));
        let store = Store::new(&self.targets.pooled, self.settings.database.api_connections)?;
        let api = Arc::new(http::ApiParts {
            vault: Vault::new(store.clone(), crate::access::secrets::keys(&self.settings)?),
            store,
            settings: self.settings.clone(),
            keys: http::keys(root_keys),
            failures: http::failures(&self.settings),
            pace: http::pace(),
            hints: self.hints.clone(),
            waiters: self.waiters.clone(),
            streams: Waiters::default(),
            feed: self.spawn_feed()?,
            tasks: self.tasks.clone(),
            input_rules: http::input_rules(),
            work: self.work.clone(),
            engine: self.engine.clone(),
            told: self.told.clone(),
            breaker: self.breaker.clone(),
            findings: self.findings.clone(),
            foreign: self.foreign.clone(),
            asked: Semaphore::new(ASKED_AT_ONCE),
            pulse: Arc::clone(&self.pulse),
            health: http::health::Parts { performs: self.duties.works, polls: self.worker.polls(), announced },
            rouse: Arc::clone(&self.rouse),
            jobs: Arc::clone(&self.jobs),
            deliveries: Arc::clone(&self.deliveries),
            schedules: Arc::clone(&self.schedules),
            calls: self.calls(),
            offered: Arc::clone(&self.offered),
            places: Places::default(),
            versions: Versions::default(),
            rates: http::rates(),
            stop: self.stop.clone(),
        });
        if let Some(listener) = public {
            let health = if admin.is_some() { http::Health::Alive } else { http::Health::All };
            self.serve(listener, http::router(Arc::clone(&api), health), Bounds::of(&self.settings));
        }
        if let Some(listener) = admin {
            self.serve(listener, http::signals(api), Bounds::of_admin(&self.settings));
        }
        Ok(())
    }

    /// Answers at one address until told to stop.
    fn serve(&self, listener: TcpListener, router: Router, bounds: Bounds) {
        self.tasks.spawn(connection::serve(listener, router, bounds, self.stop.clone()));
    }
}
