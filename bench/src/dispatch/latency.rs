//! Measures how long a start takes without a backlog: paced starts, and a workspace at its limit.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::{Scale, one_node};
use crate::measure::served::Service;
use crate::measure::stats::{Sample, round};
use crate::measure::world::{Backlog, READY, World};
use crate::report::say;

const RATE: u32 = 300;
const SECONDS: u32 = 20;
const TENANTS: usize = 30;
const LIMIT: i32 = 20;
/// Executions that follow one another in a workspace with one slot.
const FOLLOWING: i64 = 1_000;
/// The promises: the longest times from enqueue to start, and from an end to the start that uses its slot.
const START_P99_MS: f64 = 4.0;
const NEXT_P99_MS: f64 = 1.5;

pub(super) struct Latency {
    enqueue_to_start: Sample,
    completion_to_next: Sample,
}

impl Latency {
    /// Adds the figures, with their 99th percentiles by themselves. True if the promises held.
    pub(super) fn add_to(&self, figures: &mut Map<String, Value>) -> bool {
        let both = [
            ("enqueue_to_start_ms", &self.enqueue_to_start, "start_p99_ms", START_P99_MS),
            ("completion_to_next_start_ms", &self.completion_to_next, "next_p99_ms", NEXT_P99_MS),
        ];
        for (name, sample, p99, most) in both {
            say(format!("{name}: p50 {:.2}, p99 {:.2}, promised {most}", sample.p50(), sample.p99()));
            figures.insert(name.to_owned(), sample.json());
            figures.insert(p99.to_owned(), json!(round(sample.p99())));
        }
        figures.insert("paced_per_s".to_owned(), json!(RATE));
        both.iter().all(|(_, sample, _, most)| sample.p99() <= *most)
    }
}

pub(super) async fn measure(world: &World, scale: Scale) -> Result<Latency> {
    let mut tenants = Vec::new();
    for _ in 0..TENANTS {
        tenants.push(world.tenant_in(None, LIMIT, 1, &one_node()).await?);
    }
    let single = world.tenant_in(None, 1, 1, &one_node()).await?;
    world.leave_to_service().await?;
    world.settle().await?;
    let service = std::sync::Arc::new(Service::start(world, &[]).await?);
    let mut ids = Vec::new();
    // The first second is a warm-up.
    for (seconds, counts) in [(1, false), (scale.seconds(SECONDS), true)] {
        let mut next = tokio::time::interval(Duration::from_secs(1) / RATE);
        let mut sending = JoinSet::new();
        for at in 0..RATE * seconds {
            next.tick().await;
            let (service, tenant) = (std::sync::Arc::clone(&service), tenants[at as usize % TENANTS]);
            sending.spawn(async move { service.enqueue(tenant).await });
        }
        while let Some(sent) = sending.join_next().await {
            let id = sent.context("a request failed")??;
            if counts {
                ids.push(id.0);
            }
        }
    }
    let enqueue_to_start = started(world, &ids).await?;
    world.load(&[single], Backlog { waiting: FOLLOWING, ..READY }).await?;
    // The service was not notified of these items. One start over HTTP makes it poll.
    service.enqueue(single).await?;
    let completion_to_next = following(world, single.workspace.0).await?;
    std::sync::Arc::into_inner(service).context("a request still holds the service")?.stop().await?;
    Ok(Latency { enqueue_to_start, completion_to_next })
}

async fn started(world: &World, ids: &[Uuid]) -> Result<Sample> {
    let sql = "SELECT created_at, started_at FROM workflow_execution WHERE id = ANY($1) AND started_at IS NOT NULL";
    for _ in 0..600 {
        let rows = world.client.query(sql, &[&ids]).await?;
        if rows.len() == ids.len() {
            let times: Result<Vec<f64>> =
                rows.iter().map(|row| Ok(between(row.try_get(0)?, row.try_get(1)?))).collect();
            return Ok(Sample::new(times?));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("some paced executions never started")
}

async fn following(world: &World, workspace: Uuid) -> Result<Sample> {
    let left = "SELECT count(*) FROM execution_queue WHERE workspace_id = $1";
    for _ in 0..3_000 {
        if world.client.query_one(left, &[&workspace]).await?.try_get::<_, i64>(0)? == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let sql =
        "SELECT started_at, completed_at FROM workflow_execution WHERE workspace_id = $1 AND completed_at IS NOT NULL
                ORDER BY started_at";
    let rows = world.client.query(sql, &[&workspace]).await?;
    let mut times = Vec::new();
    for pair in rows.windows(2) {
        times.push(between(pair[0].try_get(1)?, pair[1].try_get(0)?));
    }
    Ok(Sample::new(times))
}

fn between(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64() * 1_000.0
}
