//! Measures how long a claim takes next to different backlogs.
//!
//! Invariants
//! - Every case is a separate database of one cluster, and the cases take turns claim by claim. So a slow moment of the
//!   machine affects all cases equally.
//! - Only the claim is timed, not the enqueueing and the ending of its items.
//! - Sweeps of every shard run at the same time, as often as in the service.
//!
//! Not here: backlogs that change while they are measured (`moves`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kernel::execution::Status;
use kernel::ids::{ClaimId, ExecutionId, QueueItemId};
use kernel::queue::Priority;
use kernel::queue::round_robin::Quota;
use serde_json::json;
use store::queue::claim::LimitCursor;
use store::queue::enqueue::Start;
use store::run::{End, Ending};
use tokio_util::sync::CancellationToken;

use crate::measure::stats::Sample;
use crate::measure::world::{Tenant, World};

/// How many workspaces a claim covers, with one item each.
pub(super) const WORKSPACES: usize = 10;
/// How often the service sweeps a shard.
const POLL: Duration = Duration::from_secs(5);
const SHARDS: i16 = 64;

/// A database and the workspaces in it that are measured.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    pub(super) name: &'static str,
    pub(super) world: Arc<World>,
    pub(super) tenants: Vec<Tenant>,
}

impl Probe {
    /// Ten workspaces with room, and nothing waiting.
    pub(super) async fn new(name: &'static str, world: World) -> Result<Probe> {
        let mut tenants = Vec::new();
        for _ in 0..WORKSPACES {
            tenants.push(world.tenant(5, &super::log_document()).await?);
        }
        Ok(Probe { name, world: Arc::new(world), tenants })
    }

    /// Enqueues an item for each workspace, claims them, ends them. Returns the duration of the claim in ms, and how
    /// many items it returned.
    pub(super) async fn time_claim(&self) -> Result<(f64, usize)> {
        let starts: Vec<Start> = self.tenants.iter().map(start).collect();
        self.world.store.enqueue(&starts, "bench").await.context("enqueue")?;
        let quotas: Vec<Quota> =
            self.tenants.iter().map(|tenant| Quota { workspace: tenant.workspace, limit: 1 }).collect();
        let claim = ClaimId(store::new_id());
        let began = Instant::now();
        let claims = self.world.store.claim(&quotas, claim, self.world.process, Some("embedded")).await?;
        let took = ms(began.elapsed());
        ensure!(claims.items.iter().all(|item| item.begun.is_some()), "a claimed item was not begun");
        let items: Vec<QueueItemId> = claims.items.iter().map(|item| item.item).collect();
        self.end(&items).await?;
        Ok((took, items.len()))
    }

    /// Enqueues this many items for each workspace, claims and ends them. Returns how many it ended.
    pub(super) async fn pass(&self, each: i32) -> Result<usize> {
        let starts: Vec<Start> = (0..each).flat_map(|_| self.tenants.iter().map(start)).collect();
        self.world.store.enqueue(&starts, "bench").await.context("enqueue")?;
        let asks: Vec<Quota> =
            self.tenants.iter().map(|tenant| Quota { workspace: tenant.workspace, limit: each }).collect();
        let claims =
            self.world.store.claim(&asks, ClaimId(store::new_id()), self.world.process, Some("embedded")).await?;
        let items: Vec<QueueItemId> = claims.items.iter().map(|item| item.item).collect();
        self.end(&items).await?;
        Ok(items.len())
    }

    async fn end(&self, items: &[QueueItemId]) -> Result<()> {
        let ending = |item: &QueueItemId| Ending {
            execution: item.execution(),
            claim: None,
            end: End { outcome: Status::Completed, output: None, error: None },
        };
        let endings: Vec<Ending> = items.iter().map(ending).collect();
        if !endings.is_empty() {
            self.world.store.complete(&endings, Some(Status::Running), "bench").await.context("complete")?;
        }
        Ok(())
    }
}

fn start(tenant: &Tenant) -> Start {
    Start {
        execution: ExecutionId(store::new_id()),
        workspace: tenant.workspace,
        definition: tenant.definition,
        input: Some(json!({})),
        priority: Priority::default(),
        run_at: None,
        concurrency_key: None,
        idempotency: None,
        trigger: json!({ "type": "api", "actor": "bench" }),
        trace: None,
        version: None,
        rerun_of: None,
    }
}

/// Claims from every probe in turns. Returns the times by case.
pub(super) async fn claim_in_turns(probes: &[Probe], rounds: usize) -> Result<BTreeMap<&'static str, Sample>> {
    let mut times: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
    let warm_up = (rounds / 10).max(5);
    for round in 0..rounds + warm_up {
        for probe in probes {
            let (took, items) = probe.time_claim().await.with_context(|| format!("claim, case {}", probe.name))?;
            ensure!(items == WORKSPACES, "case {}: a claim returned {items} of {WORKSPACES} items", probe.name);
            if round >= warm_up {
                times.entry(probe.name).or_default().push(took);
            }
        }
    }
    Ok(times.into_iter().map(|(name, times)| (name, Sample::new(times))).collect())
}

/// How long sweeps of all shards took, by case: for workspaces with room, and for blocked items with room.
pub(super) type Sweeps = BTreeMap<&'static str, (Sample, Sample)>;

/// Sweeps every shard of every probe at each poll interval, until stopped.
pub(super) async fn sweep(probes: Vec<Probe>, stop: CancellationToken) -> Result<Sweeps> {
    let mut times: BTreeMap<&'static str, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    let mut next = tokio::time::interval(POLL);
    while tokio::select! { _ = next.tick() => true, () = stop.cancelled() => false } {
        for probe in &probes {
            let (ready, unblock) =
                sweep_once(&probe.world).await.with_context(|| format!("sweep, case {}", probe.name))?;
            let entry = times.entry(probe.name).or_default();
            entry.0.push(ready);
            entry.1.push(unblock);
        }
    }
    Ok(times.into_iter().map(|(name, (ready, unblock))| (name, (Sample::new(ready), Sample::new(unblock)))).collect())
}

/// One pass over every shard, as the dispatcher and the promoter make it.
async fn sweep_once(world: &World) -> Result<(f64, f64)> {
    let began = Instant::now();
    for shards in (0..SHARDS).collect::<Vec<_>>().chunks(4) {
        world.store.sweep(shards).await?;
    }
    let ready = ms(began.elapsed());
    let began = Instant::now();
    for shard in 0..SHARDS {
        let limits = world.store.blocking_limits(shard, &mut LimitCursor::default()).await?;
        world.store.unblock(&limits).await?;
    }
    Ok((ready, ms(began.elapsed())))
}

pub(super) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}
