//! Measures how long one larger graph takes: a chain, and a fan-out with its join.

use std::time::Duration;

use anyhow::{Result, bail};
use kernel::ids::ExecutionId;
use serde_json::{Map, Value, json};

use crate::measure::served::Service;
use crate::measure::stats::median;
use crate::measure::world::World;

pub(super) const CHAIN: usize = 40;
pub(super) const FAN: usize = 400;
const RUNS: usize = 5;

/// Seconds from start to end of the chain and of the fan-out, as medians of several runs.
pub(super) async fn measure(world: &World) -> Result<(f64, f64)> {
    let tenant = world.tenant(1, &chain()).await?;
    let fan = world.definition(tenant.workspace, &fan()).await?;
    world.leave_to_service().await?;
    let service = Service::start(world, &[]).await?;
    let mut medians = Vec::new();
    for definition in [tenant.definition, fan] {
        let mut times = Vec::new();
        for run in 0..=RUNS {
            let id = service.enqueue(crate::measure::world::Tenant { definition, ..tenant }).await?;
            let took = ended(world, id).await?;
            // The first run loads the version.
            if run > 0 {
                times.push(took);
            }
        }
        medians.push(median(&times));
    }
    service.stop().await?;
    Ok((medians[0], medians[1]))
}

async fn ended(world: &World, id: ExecutionId) -> Result<f64> {
    let sql = "SELECT extract(epoch FROM completed_at - started_at)::float8, status FROM workflow_execution
                WHERE id = $1 AND completed_at IS NOT NULL";
    for _ in 0..3_000 {
        if let Some(row) = world.client.query_opt(sql, &[&id.0]).await? {
            let status: String = row.try_get(1)?;
            if status != "COMPLETED" {
                bail!("a graph of the benchmark ended {status}");
            }
            return Ok(row.try_get(0)?);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    bail!("a graph of the benchmark did not end")
}

fn light(needs: &[String]) -> Value {
    json!({ "kind": "TRANSFORM", "with": { "value": { "n": 1 } }, "needs": needs })
}

fn chain() -> Value {
    let mut nodes = Map::new();
    for at in 0..CHAIN {
        let needs = if at == 0 { Vec::new() } else { vec![format!("n{}", at - 1)] };
        nodes.insert(format!("n{at}"), light(&needs));
    }
    json!({ "version": 1, "name": "chain", "nodes": nodes })
}

fn fan() -> Value {
    let mut nodes = Map::new();
    nodes.insert("first".to_owned(), light(&[]));
    let wide: Vec<String> = (0..FAN - 2).map(|at| format!("n{at}")).collect();
    for name in &wide {
        nodes.insert(name.clone(), light(&["first".to_owned()]));
    }
    nodes.insert("last".to_owned(), light(&wide));
    json!({ "version": 1, "name": "fan", "nodes": nodes })
}
