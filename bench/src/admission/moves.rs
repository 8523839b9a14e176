//! Measures claims beside a backlog that changes: a definition with a million ready items is paused, or a million
//! delayed items become due.
//!
//! Invariants
//! - The mover makes the same calls as the service's promoter, without a pause.
//! - Claims on an empty database take turns with the measured claims. So the load that the mover puts on the machine
//!   slows both, and the ratio shows only the effect of the backlog.
//!
//! Not here: backlogs that do not change (`claims`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kernel::ids::{DefinitionId, WorkspaceId};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::claims::{Probe, WORKSPACES};
use crate::measure::stats::{Sample, round};
use crate::measure::world::{Tenant, World};

/// The maximum number of items that one statement of the promoter moves.
const BATCH: usize = 1_000;
/// How long to wait for autovacuum.
const VACUUM_PATIENCE: Duration = Duration::from_secs(120);

/// Claim times during a move, and those of an empty database at the same time.
#[derive(Debug)]
pub(super) struct Beside {
    pub(super) claims: Sample,
    pub(super) empty: Sample,
    /// How many claims returned fewer than ten items, because an item of a workspace waited behind the moving items.
    pub(super) short: usize,
}

/// The figures of a move: during it, right after it, and after autovacuum.
#[derive(Debug)]
pub(super) struct Moved {
    pub(super) items: usize,
    pub(super) took: Duration,
    pub(super) during: Beside,
    pub(super) after: Beside,
    pub(super) settled: Beside,
    /// How long after the move autovacuum had finished.
    pub(super) vacuumed_after: Duration,
}

/// Pauses a definition. The trigger takes the shard's lock.
pub(super) async fn pause(world: &World, definition: DefinitionId) -> Result<()> {
    let sql = "UPDATE workflow_definition SET status = 'PAUSED' WHERE id = $1";
    ensure!(world.client.execute(sql, &[&definition.0]).await? == 1, "no definition to pause");
    Ok(())
}

/// Pauses every definition of a workspace except the measured one.
pub(super) async fn pause_all(world: &World, workspace: WorkspaceId, measured: &[Tenant]) -> Result<()> {
    let sql = "SELECT id FROM workflow_definition WHERE workspace_id = $1";
    for row in world.client.query(sql, &[&workspace.0]).await? {
        let definition = DefinitionId(row.try_get(0)?);
        if !measured.iter().any(|tenant| tenant.definition == definition) {
            pause(world, definition).await?;
        }
    }
    Ok(())
}

/// Blocks every ready item of a workspace's paused definitions, as the promoter does.
pub(super) async fn block_items(world: Arc<World>, workspace: WorkspaceId) -> Result<usize> {
    let sql = "SELECT id FROM workflow_definition WHERE workspace_id = $1 AND status = 'PAUSED'";
    let mut all = 0;
    for row in world.client.query(sql, &[&workspace.0]).await? {
        all += world.store.block_definition(workspace, DefinitionId(row.try_get(0)?)).await?;
    }
    Ok(all)
}

/// Promotes all due items, as the promoter does.
pub(super) async fn promote(world: Arc<World>) -> Result<usize> {
    let mut all = 0;
    loop {
        let (_, moved) = world.store.promote().await?;
        all += moved;
        if moved < BATCH {
            return Ok(all);
        }
    }
}

/// Measures claims while a mover runs, right after it, and after autovacuum.
pub(super) async fn measure(
    probe: &Probe,
    empty: &Probe,
    rounds: usize,
    mover: impl Future<Output = Result<usize>> + Send + 'static,
) -> Result<Moved> {
    let vacuums = vacuums(&probe.world).await?;
    let began = Instant::now();
    let mover = tokio::spawn(async move {
        let items = mover.await?;
        Ok::<_, anyhow::Error>((items, began.elapsed()))
    });
    let during = beside(probe, empty, |_| !mover.is_finished()).await?;
    let (items, took) = finished(mover).await?;
    let moved_at = Instant::now();
    let after = beside(probe, empty, |round| round < rounds).await?;
    while self::vacuums(&probe.world).await? == vacuums && moved_at.elapsed() < VACUUM_PATIENCE {
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    // An autovacuum that began during the move leaves some dead rows to the next autovacuum.
    probe.world.settle().await?;
    let vacuumed_after = moved_at.elapsed();
    let settled = beside(probe, empty, |round| round < rounds).await?;
    Ok(Moved { items, took, during, after, settled, vacuumed_after })
}

async fn finished(mover: JoinHandle<Result<(usize, Duration)>>) -> Result<(usize, Duration)> {
    mover.await.context("the mover stopped early")?
}

async fn vacuums(world: &World) -> Result<i64> {
    let sql = "SELECT autovacuum_count FROM pg_stat_user_tables WHERE relname = 'execution_queue'";
    Ok(world.client.query_one(sql, &[]).await?.try_get(0)?)
}

async fn beside(probe: &Probe, empty: &Probe, go_on: impl Fn(usize) -> bool) -> Result<Beside> {
    let (mut claims, mut others, mut short) = (Vec::new(), Vec::new(), 0);
    while go_on(claims.len()) {
        let (took, items) = probe.time_claim().await.with_context(|| format!("claim, case {}", probe.name))?;
        short += usize::from(items < WORKSPACES);
        claims.push(took);
        others.push(empty.time_claim().await?.0);
    }
    Ok(Beside { claims: Sample::new(claims), empty: Sample::new(others), short })
}

impl Moved {
    /// The worst p50 relative to an empty database at the same time.
    pub(super) fn ratio(&self) -> f64 {
        self.phases().into_iter().map(|(_, beside)| beside.ratio()).fold(0.0, f64::max)
    }

    /// The three phases of a move, by name.
    pub(super) fn phases(&self) -> [(&'static str, &Beside); 3] {
        [("during", &self.during), ("after", &self.after), ("settled", &self.settled)]
    }

    pub(super) fn json(&self) -> Value {
        let phases = self.phases().into_iter().map(|(name, beside)| {
            let figures = json!({
                "claim_ms": beside.claims.json(), "empty_ms": beside.empty.json(), "ratio": round(beside.ratio()),
                "short": beside.short,
            });
            (name.to_owned(), figures)
        });
        let mut json: serde_json::Map<String, Value> = phases.collect();
        json.insert("items".to_owned(), json!(self.items));
        json.insert("move_s".to_owned(), json!(round(self.took.as_secs_f64())));
        json.insert("vacuumed_after_s".to_owned(), json!(round(self.vacuumed_after.as_secs_f64())));
        Value::Object(json)
    }
}

impl Beside {
    pub(super) fn ratio(&self) -> f64 {
        if self.empty.p50() > 0.0 { self.claims.p50() / self.empty.p50() } else { 0.0 }
    }
}
