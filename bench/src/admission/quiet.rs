//! Measures what a flooding workspace does to a quiet one: enqueue-to-start through the real service.
//!
//! Invariants
//! - Arms (the conditions that are compared) take turns: alone, next to a flood whose slots stay occupied, and next to
//!   a flood whose runs end quickly. Each arm has its own database and its own service. One arm runs at a time.
//! - A flood of short runs loads the machine as well as the queue. So there is a control: the same flood in another
//!   database, under another service, on the same machine. The difference between the two is the cost of sharing a
//!   queue with the flood.
//! - Times come from the database: from the execution's row to its start.
//! - The measurement fails if the flood does not really run: its slots are counted during the whole run.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::routing::get;
use jiff::Timestamp;
use kernel::ids::{ExecutionId, WorkspaceId};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Scale, log_document};
use crate::measure::served::Service;
use crate::measure::stats::{Sample, mean, median, round};
use crate::measure::world::{Backlog, READY, Tenant, World};

pub(super) const ALONE: &str = "alone";
pub(super) const HELD: &str = "held";
pub(super) const ELSEWHERE: &str = "elsewhere";
pub(super) const CHURNING: &str = "churning";
/// The flooding workspace's slot limit.
const FLOOD_LIMIT: i64 = 20;
/// Requests of the quiet workspace per second.
const RATE: u32 = 20;
/// Enough for a flood of short runs to outlast the measurement at any scale.
const LEAST_FLOOD: i64 = 200_000;
/// How long each run of the flood occupies its slot.
const HOLD: Duration = Duration::from_secs(1);
const IN_USE: &str = "SELECT count(*) FROM execution_queue WHERE workspace_id = $1 AND stage = 5";
const READY_LEFT: &str =
    "SELECT count(*) FROM (SELECT 1 FROM execution_queue WHERE workspace_id = $1 AND stage = 0 LIMIT 1) one";
const ENDED: &str = "SELECT count(*) FROM workflow_execution WHERE workspace_id = $1 AND completed_at IS NOT NULL";

/// One condition under which the quiet workspace is measured.
#[derive(Debug)]
pub(super) struct Arm {
    pub(super) name: &'static str,
    world: World,
    quiet: Tenant,
    flood: Option<Tenant>,
    /// The database of the flood, if it is not the quiet workspace's.
    elsewhere: Option<World>,
    allow: String,
    /// Enqueue-to-start in ms, one sample per run.
    pub(super) runs: Vec<Sample>,
    /// The mean number of slots that the flood used in each run.
    pub(super) in_use: Vec<f64>,
    /// Executions of the flood that ended, per second.
    pub(super) ended_per_s: Vec<f64>,
}

impl Arm {
    /// Builds an arm's database. `flood` is what the flooding workspace runs, if there is one. `elsewhere` is the
    /// database it floods, if not the quiet workspace's.
    pub(super) async fn build(
        name: &'static str,
        world: World,
        elsewhere: Option<World>,
        flood: Option<&Value>,
        slow: &SlowServer,
        scale: Scale,
    ) -> Result<Arm> {
        let quiet = world.tenant(FLOOD_LIMIT as i32, &log_document()).await?;
        let flood = match flood {
            Some(document) => {
                let flooded = elsewhere.as_ref().unwrap_or(&world);
                let tenant = flooded.tenant(FLOOD_LIMIT as i32, document).await?;
                flooded.load(&[tenant], Backlog { waiting: scale.million().max(LEAST_FLOOD), ..READY }).await?;
                Some(tenant)
            }
            None => None,
        };
        for world in [Some(&world), elsewhere.as_ref()].into_iter().flatten() {
            world.leave_to_service().await?;
            world.settle().await?;
        }
        let allow = format!("outbound.allow={}", slow.address);
        let (runs, in_use, ended_per_s) = Default::default();
        Ok(Arm { name, world, quiet, flood, elsewhere, allow, runs, in_use, ended_per_s })
    }

    /// One run: a new service, a warm-up, then requests at a steady rate.
    pub(super) async fn run(&mut self, seconds: u32) -> Result<()> {
        let settings = std::slice::from_ref(&self.allow);
        let service = Service::start(&self.world, settings).await?;
        let other = match &self.elsewhere {
            Some(world) => Some(Service::start(world, settings).await?),
            None => None,
        };
        if let Some(flood) = self.flood {
            self.wait_until_full(flood.workspace).await?;
        }
        drop(self.send(&service, RATE * 2).await?);
        let ended = self.flood_number(ENDED).await?;
        let (ids, in_use) = self.send(&service, RATE * seconds).await?;
        let ended = self.flood_number(ENDED).await? - ended;
        let times = self.times(&ids).await?;
        service.stop().await?;
        if let Some(other) = other {
            other.stop().await?;
        }
        if self.flood.is_some() {
            ensure!(self.flood_number(READY_LEFT).await? > 0, "the flood ran out of items");
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

    /// Sends requests at the steady rate. Returns their ids and how many slots the flood used in the meantime.
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
            Some(flood) => self.flooded().number(sql, flood.workspace).await,
            None => Ok(0),
        }
    }

    fn flooded(&self) -> &World {
        self.elsewhere.as_ref().unwrap_or(&self.world)
    }

    async fn wait_until_full(&self, workspace: WorkspaceId) -> Result<()> {
        for _ in 0..600 {
            if self.flooded().number(IN_USE, workspace).await? >= FLOOD_LIMIT / 2 {
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

/// The ratio of two arms' p99: per round, then the median. The arms of one round ran on the machine in the same state.
/// A ratio of medians would compare different states.
pub(super) fn ratio(base: &Arm, arm: &Arm) -> f64 {
    median(&ratios(base, arm))
}

fn ratios(base: &Arm, arm: &Arm) -> Vec<f64> {
    base.runs
        .iter()
        .zip(&arm.runs)
        .filter(|(base, _)| base.p99() > 0.0)
        .map(|(base, run)| run.p99() / base.p99())
        .collect()
}

/// The baseline of an arm: being alone, or for a flood of short runs the same flood elsewhere.
pub(super) fn base<'a>(arms: &'a [Arm], arm: &'a Arm) -> &'a Arm {
    let name = if arm.name == CHURNING { ELSEWHERE } else { ALONE };
    arms.iter().find(|other| other.name == name).unwrap_or(arm)
}

/// The figures of all arms, and the worst ratio to each arm's baseline. The flood elsewhere is a control and is not
/// judged.
pub(super) fn figures(arms: &[Arm]) -> (Value, f64) {
    let (mut worst, mut json) = (0f64, serde_json::Map::new());
    for arm in arms {
        let base = base(arms, arm);
        if arm.name != ELSEWHERE {
            worst = worst.max(ratio(base, arm));
        }
        let runs: Vec<f64> = arm.runs.iter().map(|run| round(run.p99())).collect();
        let by_run: Vec<f64> = ratios(base, arm).into_iter().map(round).collect();
        let mut figures = json!({
            "p50": round(arm.p50()), "p99": round(arm.p99()), "base": base.name, "ratio": round(ratio(base, arm)),
            "p99_by_run": runs, "ratio_by_run": by_run,
            "flood_slots": round(mean(&arm.in_use)), "flood_ended_per_s": round(mean(&arm.ended_per_s)),
        });
        if let Some(alone) = arms.iter().find(|other| other.name == ALONE) {
            figures["ratio_to_alone"] = json!(round(ratio(alone, arm)));
        }
        json.insert(arm.name.to_owned(), figures);
    }
    (Value::Object(json), worst)
}

/// A server that answers after a delay, for nodes that occupy their slot.
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

    /// A workflow that occupies its slot until this server answers.
    pub(super) fn document(&self) -> Value {
        json!({
            "version": 1, "name": "held",
            "nodes": { "call": { "kind": "HTTP_REQUEST",
            "with": { "method": "GET", "url": format!("http://{}/", self.address) } } }
        })
    }
}
