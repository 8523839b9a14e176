//! Retention measured: does it delete as fast as executions end, while the service runs at full speed?
//!
//! Invariants
//! - Executions are kept for seconds, and 100,000 old ones that wait lie in front of everything that ends.
//! - Both rates are counted in the tables, not by the service: what was accepted, less what waits, has ended; what was
//!   accepted, less what is still there, is deleted.
//! - An execution may be deleted `KEPT` after its end. So the deletions of five minutes are compared with the ends of
//!   the five minutes that began `KEPT` earlier: both count the same executions, and a change of the load in between
//!   does not count as a backlog.
//! - The measured part begins and ends at the end of a walk, found as the look at which the fewest executions are
//!   overdue. It begins some time after the first deletion, when the load has reached its full speed.
//! - One promise is judged: retired ÷ ended is at least 1, less what the ends of two walks may differ by. Then the
//!   number of overdue executions does not grow.
//!
//! Not here: which executions may be deleted (the store's tests).

mod churn;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};

use crate::cluster::{Cluster, Commits, forebay};
use crate::measure::served::Service;
use crate::measure::stats::round;
use crate::measure::world::{Backlog, READY, Tenant, World};
use crate::report::{self, progress, say};
use churn::Churn;

/// How long an execution is kept after its end.
const KEPT: Duration = Duration::from_secs(10);
const FULL: Duration = Duration::from_secs(300);
const SHORTEST: Duration = Duration::from_secs(20);
/// Longer than from one walk to the next.
const BETWEEN_WALKS: Duration = Duration::from_secs(15);
/// From the first deletion until the load has reached its full speed.
const WARM: Duration = Duration::from_secs(40);
/// Two walks end with at most so much of a difference, of all that ended.
const DIFFERENCE: f64 = 0.005;
/// How long the first deletion is waited for.
const PATIENCE: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(500);
const TENANTS: usize = 40;
/// What a workspace may run at once: an ENTERPRISE's.
const LIMIT: i32 = 20;
const WAITING: f64 = 100_000.0;
const CONNECTIONS: u32 = 100;

/// What a run measures.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// 1 is the full length; less is for trying the harness out.
    pub scale: f64,
}

/// Runs the measurement and prints it. True if the promise held.
pub async fn run(options: &Options) -> Result<bool> {
    if !(options.scale > 0.0 && options.scale <= 1.0) {
        bail!("--scale: above 0, at most 1");
    }
    let machine = report::machine();
    let cluster = Cluster::start(&forebay(None)?, Commits::Flushed, CONNECTIONS).await?;
    let measured = measure(&cluster, options.scale).await;
    let settings = cluster.settings().await;
    cluster.stop().await?;
    let figures = measured?;
    let held = figures.ratio() >= 1.0 - DIFFERENCE;
    say(format!(
        "over {:.0} s: {:.0} ended a second, {:.0} deleted a second, ratio {:.4}; overdue: {} at the beginning, {} at the end",
        figures.took_s,
        figures.per_s(figures.ended),
        figures.per_s(figures.retired),
        figures.ratio(),
        figures.overdue.0,
        figures.overdue.1
    ));
    report::figures(&figures.json(machine, settings?, options.scale, held))?;
    Ok(held)
}

/// What the measured part came to.
struct Figures {
    took_s: f64,
    ended: i64,
    retired: i64,
    /// Executions that might have been deleted and were not, at its beginning and its end.
    overdue: (i64, i64),
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
    let settings = [format!("retention.execution_days={}", KEPT.as_secs_f64() / 86_400.0)];
    let service = Service::start(&world, &settings).await?;
    let churn = Churn::start(&world, &tenants)?;
    let figures = steady(&world, &churn, waiting, FULL.mul_f64(scale).max(SHORTEST)).await;
    churn.stop().await?;
    service.stop().await?;
    figures
}

/// A workspace whose executions wait for a day: older than all that end, and never to be deleted.
async fn wait_in_front(world: &World, scale: f64) -> Result<i64> {
    let waiting = ((WAITING * scale) as i64).max(1_000);
    let tenant: Tenant = world.tenant_in(None, LIMIT, 1, &document()).await?;
    let backlog = Backlog { waiting, stage: 1, due_in_s: 86_400.0, ..READY };
    world.load(&[tenant], backlog).await?;
    Ok(waiting)
}

async fn steady(world: &World, churn: &Churn, waiting: i64, full: Duration) -> Result<Figures> {
    let began = Instant::now();
    let mut looks = Looks { world, churn, waiting, all: Vec::new() };
    while looks.next().await?.retired == 0 {
        ensure!(began.elapsed() < PATIENCE, "nothing was deleted within {PATIENCE:?}");
    }
    let first = looks.after_a_walk(Instant::now() + WARM).await?;
    let last = looks.after_a_walk(first.at + full).await?;
    Ok(Figures {
        took_s: (last.at - first.at).as_secs_f64(),
        ended: looks.due(last) - looks.due(first),
        retired: last.retired - first.retired,
        overdue: (looks.overdue(first), looks.overdue(last)),
        waiting,
    })
}

/// How far everything is.
#[derive(Clone, Copy)]
struct Look {
    at: Instant,
    ended: i64,
    retired: i64,
}

/// All looks so far, in order.
struct Looks<'a> {
    world: &'a World,
    churn: &'a Churn,
    waiting: i64,
    all: Vec<Look>,
}

impl Looks<'_> {
    async fn next(&mut self) -> Result<Look> {
        tokio::time::sleep(LOOK).await;
        let next = look(self.world, self.churn, self.waiting).await?;
        progress(format!("{} ended, {} deleted", next.ended, next.retired));
        self.all.push(next);
        Ok(next)
    }

    /// Where the fewest executions are overdue, from this time until a walk is over.
    async fn after_a_walk(&mut self, from: Instant) -> Result<Look> {
        let mut least: Option<Look> = None;
        loop {
            let next = self.next().await?;
            if next.at >= from && least.is_none_or(|least| self.overdue(next) < self.overdue(least)) {
                least = Some(next);
            }
            if next.at >= from + BETWEEN_WALKS {
                return least.context("nothing was counted");
            }
        }
    }

    /// How many might have been deleted by then: they had ended `KEPT` earlier. Between two looks executions end
    /// evenly.
    fn due(&self, look: Look) -> i64 {
        let Some(at) = look.at.checked_sub(KEPT) else { return 0 };
        let later = self.all.partition_point(|one| one.at <= at);
        let (Some(after), Some(before)) = (self.all.get(later), later.checked_sub(1).and_then(|one| self.all.get(one)))
        else {
            return 0;
        };
        let share = (at - before.at).as_secs_f64() / (after.at - before.at).as_secs_f64();
        before.ended + ((after.ended - before.ended) as f64 * share) as i64
    }

    fn overdue(&self, look: Look) -> i64 {
        self.due(look) - look.retired
    }
}

/// Counts in one statement, so that all is of one moment. What was accepted is read before it: neither count is too
/// high.
async fn look(world: &World, churn: &Churn, waiting: i64) -> Result<Look> {
    let sql = "SELECT (SELECT count(*) FROM workflow_execution), (SELECT count(*) FROM execution_queue WHERE stage IN (0, 5))";
    let accepted = churn.accepted();
    let row = world.client.query_one(sql, &[]).await.context("count what is left")?;
    let (left, open): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    Ok(Look { at: Instant::now(), ended: accepted - open, retired: (accepted - (left - waiting)).max(0) })
}

fn document() -> Value {
    json!({ "version": 1, "name": "churn", "nodes": { "say": { "kind": "LOG", "with": { "message": "hello" } } } })
}
