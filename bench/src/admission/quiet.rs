//! What a flooding workspace does to a quiet one: enqueue-to-start through the real service.
//!
//! Invariants
//! - Arms take turns: alone, beside a flood whose slots are held, beside a flood that churns; each
//!   over a database of its own and with a service of its own, one at a time.
//! - Times are the database's: from the execution's row to its start.
//! - A flood counts only if it really runs: its slots are looked at all the while.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::routing::get;
use jiff::Timestamp;
use kernel::ids::{ExecutionId, WorkspaceId};
use serde_json::{Value, json};
use uuid::Uuid;

use super::service::Service;
use super::stats::{Sample, mean, median, round};
use super::world::{Backlog, READY, Tenant, World};
use super::{Scale, log_document};

/// What the flooding workspace may run at once.
const FLOOD_LIMIT: i64 = 20;
/// Requests of the quiet workspace per second.
const RATE: u32 = 20;
/// Enough that a churning flood outlasts the measurement at any scale.
const LEAST_FLOOD: i64 = 200_000;
/// How long a held slot is held.
const HOLD: Duration = Duration::from_secs(1);
const IN_USE: &str = "SELECT count(*) FROM execution_queue WHERE workspace_id = $1 AND stage = 5";
const READY_LEFT: &str =
    "SELECT count(*) FROM (SELECT 1 FROM execution_queue WHERE workspace_id = $1 AND stage = 0 LIMIT 1) one";
const ENDED: &str = "SELECT count(*) FROM workflow_execution WHERE workspace_id = $1 AND completed_at IS NOT NULL";

/// One kind of company for the quiet workspace.
#[derive(Debug)]
pub(super) struct Arm {
    pub(super) name: &'static str,
    world: World,
    quiet: Tenant,
    flood: Option<Tenant>,
    allow: String,
    /// Enqueue-to-start in ms, one sample a run.
    pub(super) runs: Vec<Sample>,
    /// Slots of the flood in use, the mean of each run.
    pub(super) in_use: Vec<f64>,
    /// Executions of the flood that ended, per second.
    pub(super) ended_per_s: Vec<f64>,
}

impl Arm {
    /// Builds an arm's database. `flood`: what the flooding workspace runs, if there is one.
    pub(super) async fn build(
        name: &'static str,
        world: World,
        flood: Option<&Value>,
        slow: &SlowServer,
        scale: Scale,
    ) -> Result<Arm> {
        let quiet = world.tenant(FLOOD_LIMIT as i32, &log_document()).await?;
        let flood = match flood {
            Some(document) => {
                let tenant = world.tenant(FLOOD_LIMIT as i32, document).await?;
                world.load(&[tenant], Backlog { waiting: scale.million().max(LEAST_FLOOD), ..READY }).await?;
                Some(tenant)
            }
            None => None,
        };
        world.leave_to_service().await?;
        world.settle().await?;
        let allow = format!("outbound.allow={}", slow.address);
        Ok(Arm { name, world, quiet, flood, allow, runs: Vec::new(), in_use: Vec::new(), ended_per_s: Vec::new() })
    }

    /// One run: a fresh service, a warm-up, then requests at a steady rate.
    pub(super) async fn run(&mut self, seconds: u32) -> Result<()> {
        let service = Service::start(&self.world, std::slice::from_ref(&self.allow)).await?;
        if let Some(flood) = self.flood {
            self.wait_until_full(flood.workspace).await?;
        }
        drop(self.send(&service, RATE * 2).await?);
        let ended = self.flood_number(ENDED).await?;
        let (ids, in_use) = self.send(&service, RATE * seconds).await?;
        let ended = self.flood_number(ENDED).await? - ended;
        let times = self.times(&ids).await?;
        service.stop().await?;
        if self.flood.is_some() {
            ensure!(self.flood_number(READY_LEFT).await? > 0, "the flood ran dry");
            ensure!(ended > 0, "the flood did not run: it held {in_use} slots of {FLOOD_LIMIT} and ended nothing");
        }
        self.runs.push(times);
        self.in_use.push(in_use);
        self.ended_per_s.push(ended as f64 / f64::from(seconds));
        Ok(())
    }

    pub(super) fn p99(&self) -> f64 {
        median(&self.runs.iter().map(Sample::p99).collect::<Vec<_>>())
    }

    pub(super) fn p50(&self) -> f64 {
        median(&self.runs.iter().map(Sample::p50).collect::<Vec<_>>())
    }

    /// Sends requests at the steady rate; answers their ids and the flood's slots in use meanwhile.
    async fn send(&self, service: &Service, count: u32) -> Result<(Vec<Uuid>, f64)> {
        let mut next = tokio::time::interval(Duration::from_secs(1) / RATE);
        let (mut ids, mut looks) = (Vec::new(), Vec::new());
        for at in 0..count {
            next.tick().await;
            let id: ExecutionId = service.enqueue(self.quiet).await?;
            ids.push(id.0);
            if at % RATE == 0 {
                looks.push(self.flood_number(IN_USE).await? as f64);
            }
        }
        Ok((ids, mean(&looks)))
    }

    async fn flood_number(&self, sql: &str) -> Result<i64> {
        match self.flood {
            Some(flood) => self.world.number(sql, flood.workspace).await,
            None => Ok(0),
        }
    }

    async fn wait_until_full(&self, workspace: WorkspaceId) -> Result<()> {
        for _ in 0..600 {
            if self.world.number(IN_USE, workspace).await? >= FLOOD_LIMIT / 2 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        anyhow::bail!("the flooding workspace never filled its slots")
    }

    /// Enqueue-to-start of these executions, once all have started.
    async fn times(&self, ids: &[Uuid]) -> Result<Sample> {
        let sql = "SELECT created_at, started_at FROM workflow_execution WHERE id = ANY($1)";
        for _ in 0..600 {
            let rows = self.world.client.query(sql, &[&ids]).await?;
            let mut times = Vec::new();
            for row in &rows {
                if let Some(started) = row.try_get::<_, Option<Timestamp>>(1)? {
                    let created: Timestamp = row.try_get(0)?;
                    times.push(started.duration_since(created).as_secs_f64() * 1_000.0);
                }
            }
            if times.len() == ids.len() {
                return Ok(Sample::new(times));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        anyhow::bail!("some executions of the quiet workspace never started")
    }
}

/// By how much an arm's p99 exceeds that of being alone: round by round, then the median. Arms of one
/// round shared the machine's mood; a ratio of medians would compare different moods.
pub(super) fn ratio(alone: &Arm, arm: &Arm) -> f64 {
    median(&ratios(alone, arm))
}

fn ratios(alone: &Arm, arm: &Arm) -> Vec<f64> {
    alone
        .runs
        .iter()
        .zip(&arm.runs)
        .filter(|(alone, _)| alone.p99() > 0.0)
        .map(|(alone, run)| run.p99() / alone.p99())
        .collect()
}

/// The figures of all arms, the first being alone, and the worst ratio to it.
pub(super) fn figures(arms: &[Arm]) -> (Value, f64) {
    let (mut worst, mut json) = (0f64, serde_json::Map::new());
    let Some(alone) = arms.first() else { return (Value::Null, 0.0) };
    for arm in arms {
        worst = worst.max(ratio(alone, arm));
        let runs: Vec<f64> = arm.runs.iter().map(|run| round(run.p99())).collect();
        let by_run: Vec<f64> = ratios(alone, arm).into_iter().map(round).collect();
        let figures = json!({
            "p50": round(arm.p50()), "p99": round(arm.p99()), "ratio": round(ratio(alone, arm)),
            "ratio_of_medians": round(arm.p99() / alone.p99()), "p99_by_run": runs, "ratio_by_run": by_run,
            "flood_slots": round(mean(&arm.in_use)), "flood_ended_per_s": round(mean(&arm.ended_per_s)),
        });
        json.insert(arm.name.to_owned(), figures);
    }
    (Value::Object(json), worst)
}

/// A server that answers after a while, for nodes that hold their slot.
#[derive(Debug)]
pub(super) struct SlowServer {
    address: String,
}

impl SlowServer {
    pub(super) async fn start() -> Result<SlowServer> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.context("listen")?;
        let address = listener.local_addr()?.to_string();
        let answer = || async {
            tokio::time::sleep(HOLD).await;
            "done"
        };
        let router = Router::new().route("/", get(answer));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(SlowServer { address })
    }

    /// A workflow that holds its slot for as long as this server takes.
    pub(super) fn document(&self) -> Value {
        json!({
            "version": 1, "name": "held",
            "nodes": { "call": { "kind": "HTTP_REQUEST", "with": { "method": "GET", "url": format!("http://{}/", self.address) } } }
        })
    }
}
