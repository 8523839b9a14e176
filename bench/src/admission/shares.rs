//! Measures how a saturated process divides its capacity: equal workspaces get equal shares, and weights count.

use std::time::Duration;

use anyhow::{Result, ensure};
use kernel::ids::WorkspaceId;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Scale, log_document};
use crate::measure::served::Service;
use crate::measure::stats::{jain_index, round};
use crate::measure::world::{Backlog, READY, Tenant, World};

const EQUALS: usize = 20;
const HEAVY: i16 = 3;
/// How many runs the process may hold. No workspace has a lower limit, so that workspaces compete for the process. With
/// a lower limit, weights would have no effect.
const MAX_RUNS: i32 = 100;

/// How many starts each workspace got during the measurement.
#[derive(Debug)]
pub(super) struct Shares {
    pub(super) equals: Vec<f64>,
    pub(super) heavy: f64,
    pub(super) per_s: f64,
}

impl Shares {
    pub(super) fn jain(&self) -> f64 {
        jain_index(&self.equals)
    }

    /// The share of the workspace with weight 3, relative to an equal one.
    pub(super) fn heavy_share(&self) -> f64 {
        self.heavy / (self.equals.iter().sum::<f64>() / self.equals.len() as f64)
    }

    pub(super) fn json(&self) -> Value {
        json!({ "jain": round(self.jain()), "weight_3_share": round(self.heavy_share()),
            "started_per_s": self.per_s.round() })
    }
}

/// Lets twenty equal workspaces and one of weight 3 saturate a process.
pub(super) async fn measure(world: &World, scale: Scale) -> Result<Shares> {
    let mut tenants: Vec<Tenant> = Vec::new();
    for _ in 0..EQUALS {
        tenants.push(world.tenant_in(None, MAX_RUNS, 1, &log_document()).await?);
    }
    let heavy = world.tenant_in(None, MAX_RUNS, HEAVY, &log_document()).await?;
    world.load(&tenants, Backlog { waiting: scale.million() / 50, ..READY }).await?;
    world.load(&[heavy], Backlog { waiting: scale.million() / 20, ..READY }).await?;
    world.leave_to_service().await?;
    world.settle().await?;

    let service = Service::start(world, &[format!("engine.max_runs={MAX_RUNS}")]).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let seconds = scale.seconds(15);
    let from: jiff::Timestamp = world.client.query_one("SELECT clock_timestamp()", &[]).await?.try_get(0)?;
    tokio::time::sleep(Duration::from_secs(seconds.into())).await;
    let to: jiff::Timestamp = world.client.query_one("SELECT clock_timestamp()", &[]).await?.try_get(0)?;
    service.stop().await?;

    let sql = "SELECT workspace_id, count(*) FROM workflow_execution WHERE started_at BETWEEN $1 AND $2 GROUP BY 1";
    let rows = world.client.query(sql, &[&from, &to]).await?;
    let of = |workspace: WorkspaceId| {
        rows.iter().find(|row| row.get::<_, Uuid>(0) == workspace.0).map_or(0.0, |row| row.get::<_, i64>(1) as f64)
    };
    let equals: Vec<f64> = tenants.iter().map(|tenant| of(tenant.workspace)).collect();
    for tenant in tenants.iter().chain([&heavy]) {
        let left = world
            .number("SELECT count(*) FROM execution_queue WHERE workspace_id = $1 AND stage = 0", tenant.workspace)
            .await?;
        ensure!(left > 0, "a workspace ran out of items, so its share means nothing");
    }
    let heavy = of(heavy.workspace);
    let per_s = (equals.iter().sum::<f64>() + heavy) / f64::from(seconds);
    Ok(Shares { equals, heavy, per_s })
}
