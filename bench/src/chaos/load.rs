//! Requests for executions, in one of three ways: in batches directly into the store; over HTTP in bursts; or over HTTP
//! at a steady rate. A burst reaches every process at once, so that all of them claim for one workspace together.
//!
//! Invariants
//! - Every request has a number of its own, which the execution sends to the receiver.
//! - Only accepted requests are counted.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use kernel::ids::{DefinitionId, ExecutionId, WorkspaceId};
use kernel::queue::Priority;
use serde_json::json;
use store::Store;
use store::queue::enqueue::{EnqueueOutcome, Start};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::api::{Api, StartRequest};
use super::setup::{Tenant, TenantDefinition};
use crate::random::Random;

const BATCH: usize = 100;
const KEYS: usize = 3;

/// What was requested and accepted. Shared by all clients.
#[derive(Debug, Default)]
pub(super) struct Load {
    next: AtomicI64,
    accepted: Mutex<Vec<Uuid>>,
    /// Batches that still have to be sent.
    left: AtomicUsize,
}

impl Load {
    pub(super) fn new(batched: usize) -> Load {
        Load { left: AtomicUsize::new(batched), ..Load::default() }
    }

    pub(super) fn accepted(&self) -> Vec<Uuid> {
        self.accepted.lock().clone()
    }

    pub(super) fn count(&self) -> usize {
        self.accepted.lock().len()
    }

    /// How many of the batched requests still have to be sent.
    pub(super) fn left(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }

    fn note(&self, execution: Uuid) {
        self.accepted.lock().push(execution);
    }

    fn number(&self) -> i64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Enqueues in batches, at most `rate` executions a second, until no batch is left or the load is stopped.
    pub(super) async fn batches(
        self: Arc<Self>,
        store: Store,
        tenants: Arc<[Tenant]>,
        mut random: Random,
        rate: f64,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let began = Instant::now();
        let mut done = 0usize;
        while self.left() > 0 && !stop.is_cancelled() {
            let size = self.left().min(BATCH);
            let starts: Vec<Start> = (0..size).map(|_| self.start(&tenants, &mut random)).collect();
            let answers = store.enqueue(&starts, "harness").await.context("enqueue a batch")?;
            for answer in answers {
                match answer {
                    EnqueueOutcome::New { execution, .. } => self.note(execution.0),
                    other => anyhow::bail!("a start was answered {other:?}"),
                }
            }
            self.left.fetch_sub(size, Ordering::Relaxed);
            done += size;
            #[expect(clippy::cast_precision_loss, reason = "a time to wait")]
            let due = Duration::from_secs_f64(done as f64 / rate);
            tokio::select! { () = tokio::time::sleep_until(began + due) => {}, () = stop.cancelled() => {} }
        }
        Ok(())
    }

    fn start(&self, tenants: &[Tenant], random: &mut Random) -> Start {
        let tenant = busy(tenants, random);
        let definition = tenant.definitions[random.below(tenant.definitions.len())];
        Start {
            execution: ExecutionId(store::new_id()),
            workspace: WorkspaceId(tenant.id),
            definition: DefinitionId(definition.id),
            input: Some(json!({ "n": self.number() })),
            priority: Priority::USUAL,
            run_at: None,
            concurrency_key: key(definition, random),
            idempotency: None,
            trigger: json!({ "type": "chaos" }),
            trace: None,
            version: None,
            rerun_of: None,
        }
    }

    /// At intervals, sends one start request to each process at the same moment, all for one workspace.
    pub(super) async fn bursts(self: Arc<Self>, burst: Burst, mut random: Random, stop: CancellationToken) {
        let mut asked = JoinSet::new();
        while !stop.is_cancelled() {
            tokio::time::sleep(burst.every).await;
            let tenant = &burst.tenants[random.below(burst.tenants.len())];
            for place in burst.api.healthy() {
                let n = self.number();
                let input = json!({ "n": n });
                let request = StartRequest {
                    workspace: tenant.id,
                    definition: tenant.definitions[0].id,
                    input,
                    key: format!("n{n}"),
                };
                let (load, api) = (Arc::clone(&self), burst.api.clone());
                asked.spawn(async move { load.note(api.start(place, &request).await) });
            }
            while asked.try_join_next().is_some() {}
        }
        asked.join_all().await;
    }

    /// Sends one start request per interval, to the processes in turn, except the process at `left_alone`.
    pub(super) async fn steady(self: Arc<Self>, steady: Steady, mut random: Random, stop: CancellationToken) {
        let mut asked = JoinSet::new();
        let mut ticks = tokio::time::interval(steady.every);
        for turn in 0.. {
            tokio::select! { _ = ticks.tick() => {}, () = stop.cancelled() => break }
            let left_alone = steady.left_alone.load(Ordering::Relaxed);
            let places: Vec<usize> = steady.api.healthy().into_iter().filter(|place| *place != left_alone).collect();
            let Some(place) = places.get(turn % places.len().max(1)).copied() else { continue };
            let tenant = &steady.tenants[random.below(steady.tenants.len())];
            let (definition, n) = (tenant.definitions[0].id, self.number());
            let request =
                StartRequest { workspace: tenant.id, definition, input: json!({ "n": n }), key: format!("n{n}") };
            let (load, api) = (Arc::clone(&self), steady.api.clone());
            asked.spawn(async move { load.note(api.start(place, &request).await) });
            while asked.try_join_next().is_some() {}
        }
        asked.join_all().await;
    }
}

/// The targets of a steady load.
pub(super) struct Steady {
    pub(super) api: Api,
    pub(super) tenants: Arc<[Tenant]>,
    pub(super) every: Duration,
    /// The place of the process that gets no requests of this load.
    pub(super) left_alone: Arc<AtomicUsize>,
}

/// The targets and the interval of bursts.
pub(super) struct Burst {
    pub(super) api: Api,
    pub(super) tenants: Arc<[Tenant]>,
    pub(super) every: Duration,
}

/// A random tenant. Tenants with more slots are chosen more often.
fn busy<'a>(tenants: &'a [Tenant], random: &mut Random) -> &'a Tenant {
    loop {
        let tenant = &tenants[random.below(tenants.len())];
        let keep = match tenant.tier {
            "FREE" => random.one_in(6),
            "PRO" => random.one_in(2),
            _ => true,
        };
        if keep {
            return tenant;
        }
    }
}

fn key(definition: TenantDefinition, random: &mut Random) -> Option<String> {
    definition.keyed.then(|| format!("key {}", random.below(KEYS)))
}
