//! Measures whether retention deletes as fast as executions end, while the service runs at full speed.
//!
//! Invariants
//! - Executions are kept for seconds. 100,000 older executions that still wait come before all executions that end.
//! - Both rates are counted in the tables, not by the service. Ended means accepted minus waiting. Deleted
//!   means accepted minus existing.
//! - For a minute before the measurement, a dead process holds the retention lease. Nothing is deleted, and a backlog
//!   grows at full speed. Without a backlog, retention could not delete faster than executions end, and noise would
//!   decide which rate is higher.
//! - The measurement begins with the first deletion and lasts five minutes, under the same load.
//! - One promise is judged: deleted ÷ ended is at least 1. This holds exactly if the backlog has not grown.
//!
//! Not here: which executions may be deleted (the store's tests).

mod churn;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};
use store::process::lease::Lease;

use crate::cluster::{Cluster, Commits, forebay_binary};
use crate::measure::served::Service;
use crate::measure::stats::round;
use crate::measure::world::{Backlog, READY, Tenant, World};
use crate::report::{self, progress, say};
use churn::Churn;

/// How long an execution is kept after its end.
const KEPT: Duration = Duration::from_secs(10);
const FULL: Duration = Duration::from_secs(300);
const SHORTEST: Duration = Duration::from_secs(20);
/// How long the lease of the dead process still lasts.
const HELD: Duration = Duration::from_secs(60);
/// How long to wait for the first deletion.
const PATIENCE: Duration = Duration::from_secs(180);
const LOOK: Duration = Duration::from_millis(500);
/// Retention runs every few seconds. Between two passes, fewer executions are overdue than end in this time.
const CAUGHT_UP: Duration = Duration::from_secs(10);
/// The retention lease's name in the table of leases.
const LEASE: &str = "forebayRetention";
const TENANTS: usize = 40;
/// The slot limit of a workspace, as in the tier ENTERPRISE.
const LIMIT: i32 = 20;
const WAITING: f64 = 100_000.0;
const CONNECTIONS: u32 = 100;

/// What a run measures.
#[derive(Clone, Copy, Debug)]
pub struct RetentionOptions {
    /// 1 means the full length. Use less to try the harness.
    pub scale: f64,
}

/// Runs the measurement and prints it. True if the promise held.
pub async fn run(options: &RetentionOptions) -> Result<bool> {
    if !(options.scale > 0.0 && options.scale <= 1.0) {
        bail!("--scale must be greater than 0 and at most 1");
    }
    let machine = report::machine();
    let cluster = Cluster::start(&forebay_binary(None)?, Commits::Flushed, CONNECTIONS).await?;
    let measured = measure(&cluster, options.scale).await;
    let settings = cluster.settings().await;
    cluster.stop().await?;
    let figures = measured?;
    let held = figures.ratio() >= 1.0;
    say(format!(
        "over {:.0} s: {:.0} ended a second, {:.0} deleted a second, ratio {:.4}; overdue: {} at the beginning, {} at \
         the end; {}",
        figures.took_s,
        figures.per_s(figures.ended),
        figures.per_s(figures.retired),
        figures.ratio(),
        figures.overdue.0,
        figures.overdue.1,
        figures.caught_up_s.map_or("did not catch up".to_owned(), |after| format!("caught up after {after:.0} s")),
    ));
    report::print_figures(&figures.json(machine, settings?, options.scale, held))?;
    Ok(held)
}

/// The figures of the measurement.
struct Figures {
    took_s: f64,
    ended: i64,
    retired: i64,
    /// Executions that could have been deleted and were not, at its beginning and its end.
    overdue: (i64, i64),
    /// When the number of overdue executions first fell below what ends within `CAUGHT_UP`.
    caught_up_s: Option<f64>,
    waiting: i64,
}

impl Figures {
    fn per_s(&self, count: i64) -> f64 {
        count as f64 / self.took_s
    }

    fn ratio(&self) -> f64 {
        self.retired as f64 / self.ended as f64
    }

    fn json(&self, machine: Value, mut settings: Map<String, Value>, scale: f64, held: bool) -> Value {
        settings.insert("kept_s".to_owned(), json!(KEPT.as_secs()));
        json!({
            "bench": "retention",
            "ended_per_s": round(self.per_s(self.ended)),
            "retired_per_s": round(self.per_s(self.retired)),
            "ratio": (self.ratio() * 10_000.0).round() / 10_000.0,
            "measured_s": round(self.took_s),
            "overdue_at_begin": self.overdue.0,
            "overdue_at_end": self.overdue.1,
            "caught_up_s": self.caught_up_s.map(round),
            "waiting_in_front": self.waiting,
            "machine": machine,
            "settings": settings,
            "scale": scale,
            "held": held,
        })
    }
}

async fn measure(cluster: &Cluster, scale: f64) -> Result<Figures> {
    let world = World::create(cluster, "retention").await?;
    let mut tenants = Vec::new();
    for _ in 0..TENANTS {
        tenants.push(world.tenant_in(None, LIMIT, 1, &document()).await?);
    }
    let waiting = wait_in_front(&world, scale).await?;
    world.leave_to_service().await?;
    world.settle().await?;
    hold_retention(&world).await?;
    let settings = [format!("retention.execution_days={}", KEPT.as_secs_f64() / 86_400.0)];
    let service = Service::start(&world, &settings).await?;
    let churn = Churn::start(&world, &tenants)?;
    let figures = steady(&world, &churn, waiting, FULL.mul_f64(scale).max(SHORTEST)).await;
    churn.stop().await?;
    service.stop().await?;
    figures
}

/// Creates a workspace whose executions wait for a day. They are older than all executions that end, and are never
/// deleted.
async fn wait_in_front(world: &World, scale: f64) -> Result<i64> {
    let waiting = ((WAITING * scale) as i64).max(1_000);
    let tenant: Tenant = world.tenant_in(None, LIMIT, 1, &document()).await?;
    let backlog = Backlog { waiting, stage: 1, due_in_s: 86_400.0, ..READY };
    world.load(&[tenant], backlog).await?;
    Ok(waiting)
}

/// Gives the retention lease to a process that does not exist, as if that process had just died.
async fn hold_retention(world: &World) -> Result<()> {
    let lease = Lease { name: LEASE, at_most: HELD, at_least: HELD };
    ensure!(world.store.lock(lease, "a dead process").await?, "the lease of retention is taken");
    Ok(())
}

async fn steady(world: &World, churn: &Churn, waiting: i64, full: Duration) -> Result<Figures> {
    let began = Instant::now();
    let mut looks = vec![look(world, churn, waiting).await?];
    while looks.last().is_none_or(|last| last.retired == 0) {
        ensure!(began.elapsed() < PATIENCE, "nothing was deleted within {PATIENCE:?}");
        looks.push(next(world, churn, waiting).await?);
    }
    // The last sample before the first deletion.
    let first = looks[looks.len() - 2];
    let mut caught_up_s = None;
    loop {
        let last = next(world, churn, waiting).await?;
        looks.push(last);
        let took_s = (last.at - first.at).as_secs_f64();
        let soon = (last.ended - first.ended) as f64 / took_s * CAUGHT_UP.as_secs_f64();
        if caught_up_s.is_none() && overdue(&looks, last) as f64 <= soon {
            caught_up_s = Some(took_s);
        }
        if last.at - first.at >= full {
            return Ok(Figures {
                took_s,
                ended: last.ended - first.ended,
                retired: last.retired - first.retired,
                overdue: (overdue(&looks, first), overdue(&looks, last)),
                caught_up_s,
                waiting,
            });
        }
    }
}

/// One sample of the progress.
#[derive(Clone, Copy)]
struct Look {
    at: Instant,
    ended: i64,
    retired: i64,
}

async fn next(world: &World, churn: &Churn, waiting: i64) -> Result<Look> {
    tokio::time::sleep(LOOK).await;
    let next = look(world, churn, waiting).await?;
    progress(format!("{} ended, {} deleted", next.ended, next.retired));
    Ok(next)
}

/// How many executions ended at least `KEPT` before this sample and still exist.
fn overdue(looks: &[Look], look: Look) -> i64 {
    let due = looks.iter().rev().find(|one| one.at + KEPT <= look.at).map_or(0, |one| one.ended);
    (due - look.retired).max(0)
}

/// Counts in one statement, so that all counts are from one moment. The number of accepted executions is read before
/// it, so neither count is too high.
async fn look(world: &World, churn: &Churn, waiting: i64) -> Result<Look> {
    let sql = "SELECT (SELECT count(*) FROM workflow_execution), (SELECT count(*) FROM execution_queue WHERE stage IN \
        (0, 5))";
    let accepted = churn.accepted();
    let row = world.client.query_one(sql, &[]).await.context("count the executions that still exist")?;
    let (left, open): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    Ok(Look { at: Instant::now(), ended: accepted - open, retired: (accepted - (left - waiting)).max(0) })
}

fn document() -> Value {
    json!({ "version": 1, "name": "churn", "nodes": { "say": { "kind": "LOG", "with": { "message": "hello" } } } })
}
