//! Sends requests at a steady rate, to all available processes. Each request's time is measured from when it was due.
//!
//! Invariants
//! - No request is repeated, so every failure counts.
//! - A process that will be stopped gets no more requests, as behind a load balancer.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::super::setup::{Setup, Tenant};
use crate::measure::stats::Sample;
use crate::random::Random;
use crate::service::Fleet;

/// The interval between requests.
const EVERY: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(10);
/// How long requests to a removed process may still be in progress.
const UNDER_WAY: Duration = Duration::from_secs(1);
/// How many failures are printed in full.
const MAX_PRINTED: usize = 5;

pub(super) struct UpgradeLoad {
    http: reqwest::Client,
    key: String,
    tenants: Arc<[Tenant]>,
    bases: Mutex<Vec<String>>,
    seen: Mutex<LoadResults>,
    random: Mutex<Random>,
    /// Keeps a fleet alive while it gets requests.
    kept: Mutex<Option<Arc<Fleet>>>,
}

/// The results of the requests.
#[derive(Clone, Debug, Default)]
pub(super) struct LoadResults {
    /// When each was due, and how long it took in ms.
    times: Vec<(Instant, f64)>,
    pub(super) accepted: Vec<Uuid>,
    pub(super) failed: usize,
    pub(super) failures: Vec<String>,
}

impl LoadResults {
    pub(super) fn requests(&self) -> usize {
        self.times.len()
    }

    pub(super) fn between(&self, from: Instant, to: Instant) -> Sample {
        Sample::new(self.times.iter().filter(|(at, _)| *at >= from && *at < to).map(|(_, took)| *took).collect())
    }
}

impl UpgradeLoad {
    pub(super) fn new(setup: &Setup, tenants: Arc<[Tenant]>, seed: u64) -> anyhow::Result<UpgradeLoad> {
        let http = reqwest::Client::builder().timeout(PATIENCE).build().context("build an HTTP client")?;
        let bases = (0..setup.fleet.len()).filter_map(|place| setup.fleet.base(place)).collect();
        Ok(UpgradeLoad {
            http,
            key: setup.spec.root_key.clone(),
            tenants,
            bases: Mutex::new(bases),
            seen: Mutex::default(),
            random: Mutex::new(Random::new(seed)),
            kept: Mutex::default(),
        })
    }

    /// Sends requests to the processes of a fleet too.
    pub(super) fn add(&self, fleet: &Fleet) {
        self.bases.lock().extend((0..fleet.len()).filter_map(|place| fleet.base(place)));
    }

    /// Sends no more requests to a process. Returns when none is in progress.
    pub(super) async fn remove(&self, fleet: &Fleet, place: usize) {
        let base = fleet.base(place);
        self.bases.lock().retain(|other| Some(other) != base.as_ref());
        tokio::time::sleep(UNDER_WAY).await;
    }

    /// Keeps a fleet alive until the end.
    pub(super) fn keep(&self, fleet: Arc<Fleet>) {
        *self.kept.lock() = Some(fleet);
    }

    pub(super) fn seen(&self) -> LoadResults {
        self.seen.lock().clone()
    }

    pub(super) async fn run(self: Arc<UpgradeLoad>, stop: CancellationToken) {
        let tasks = TaskTracker::new();
        let mut due = tokio::time::interval(EVERY);
        while !stop.is_cancelled() {
            let at = due.tick().await.into_std();
            tasks.spawn(Arc::clone(&self).ask(at));
        }
        tasks.close();
        tasks.wait().await;
    }

    async fn ask(self: Arc<UpgradeLoad>, at: Instant) {
        let (base, pick, known) = {
            let (mut random, bases, seen) = (self.random.lock(), self.bases.lock(), self.seen.lock());
            let base = bases[random.below(bases.len())].clone();
            (base, random.below(self.tenants.len() * 4), seen.accepted.last().copied())
        };
        let tenant = &self.tenants[pick / 4];
        let answer = match (pick % 4, known) {
            (0, _) => self.get(&format!("{base}/api/v1/workflow/executions?workspaceId={}&limit=20", tenant.id)).await,
            (1, Some(id)) => self.get(&format!("{base}/api/v1/workflow/executions/{id}")).await,
            _ => self.start(&base, tenant).await,
        };
        let took = at.elapsed().as_secs_f64() * 1_000.0;
        let mut seen = self.seen.lock();
        seen.times.push((at, took));
        match answer {
            Ok(Some(id)) => seen.accepted.push(id),
            Ok(None) => {}
            Err(error) => {
                seen.failed += 1;
                if seen.failures.len() < MAX_PRINTED {
                    seen.failures.push(format!("{error:#}"));
                }
            }
        }
    }

    async fn get(&self, url: &str) -> anyhow::Result<Option<Uuid>> {
        let answer = self.http.get(url).bearer_auth(&self.key).send().await?.error_for_status()?;
        answer.bytes().await?;
        Ok(None)
    }

    async fn start(&self, base: &str, tenant: &Tenant) -> anyhow::Result<Option<Uuid>> {
        let body = json!({ "workflowDefinitionId": tenant.definitions[0].id, "workspaceId": tenant.id, "input": {} });
        let request = self.http.post(format!("{base}/api/v1/workflow/executions/start")).bearer_auth(&self.key);
        let answer: Value = request.json(&body).send().await?.error_for_status()?.json().await?;
        Ok(Some(answer["executionId"].as_str().and_then(|id| id.parse().ok()).context("an id")?))
    }
}
