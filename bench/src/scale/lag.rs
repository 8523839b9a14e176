//! Measures how far a standby is behind while executions run at a steady pace.
//!
//! Invariants
//! - The lag is the time from a commit's answer on the primary until a query on the standby sees the row. The standby
//!   is asked every millisecond, so a time is up to about a millisecond too long.
//! - The bytes are what the standby has not replayed when a probe begins. It is asked before the primary, so they are
//!   never too few.
//! - The baseline is the same probe on idle servers, in the same run.
//!
//! Not here: how the standby is started (`standby`).

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use store::Store;
use store::connect::Target;
use store::queue::enqueue::{EnqueueOutcome, Start};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;

use super::filled::CHAINS;
use super::meter::wal_written;
use super::standby::Standby;
use crate::cluster::Cluster;
use crate::dispatch::lifecycle::{send_notifications, start};
use crate::measure::served::Service;
use crate::measure::stats::{Sample, round};
use crate::measure::world::{Tenant, World};

/// Executions per second.
pub(super) const RATE: usize = 1_000;
/// How often executions are sent.
const TICK: Duration = Duration::from_millis(50);
const PER_TICK: usize = RATE / 20;
const TENANTS: usize = 40;
const LIMIT: i32 = 20;
/// How long is measured under load; idle servers are measured for a tenth of it.
const FULL: Duration = Duration::from_secs(60);
const SHORTEST: Duration = Duration::from_secs(5);
const WARM_UP: Duration = Duration::from_secs(2);
const BETWEEN_PROBES: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(60);

/// How far the standby was behind.
pub(super) struct Lag {
    pub(super) idle: Probed,
    pub(super) loaded: Probed,
    /// What was reached under load: executions that ended, and bytes of the log, per second.
    pub(super) ended_per_s: f64,
    pub(super) wal_per_s: f64,
}

/// Times until a commit was visible on the standby, in ms, and bytes that it had not replayed.
pub(super) struct Probed {
    pub(super) ms: Sample,
    pub(super) bytes: Sample,
}

impl Probed {
    fn json(&self) -> Value {
        json!({ "ms": self.ms.json(), "bytes": self.bytes.json() })
    }
}

impl Lag {
    pub(super) fn json(&self) -> Value {
        json!({
            "rate": RATE,
            "ended_per_s": round(self.ended_per_s),
            "wal_bytes_per_s": self.wal_per_s.round(),
            "idle": self.idle.json(),
            "loaded": self.loaded.json(),
        })
    }
}

pub(super) async fn measure(cluster: &Cluster, scale: f64) -> Result<Lag> {
    let world = World::create(cluster, "lag").await?;
    world.client.batch_execute("CREATE TABLE probe (n bigint PRIMARY KEY)").await?;
    let mut tenants = Vec::new();
    for _ in 0..TENANTS {
        tenants.push(world.tenant_in(None, LIMIT, 1, &CHAINS[0].document()).await?);
    }
    world.leave_to_service().await?;
    world.settle().await?;
    let standby = Standby::start(&world).await?;
    let lag = follow(&world, &standby, &tenants, FULL.mul_f64(scale).max(SHORTEST)).await;
    standby.stop().await?;
    lag
}

async fn follow(world: &World, standby: &Standby, tenants: &[Tenant], full: Duration) -> Result<Lag> {
    let mut probe =
        Probe { primary: Target::new(&world.url)?.connect().await?, standby: standby.connect().await?, last: 0 };
    probe.run(WARM_UP).await.context("the standby does not follow")?;
    let idle = probe.run(full / 10).await?;
    let service = Service::start(world, &[]).await?;
    let stop = CancellationToken::new();
    let load = send(world, tenants, stop.clone())?;
    probe.run(WARM_UP).await?;
    let (before, wal, began) = (ended(world).await?, wal_written(&world.client).await?, Instant::now());
    let loaded = probe.run(full).await?;
    let took_s = began.elapsed().as_secs_f64();
    let (after, wal_after) = (ended(world).await?, wal_written(&world.client).await?);
    stop.cancel();
    load.await.context("the load stopped early")??;
    service.stop().await?;
    let per_s = |count: i64| count as f64 / took_s;
    Ok(Lag { idle, loaded, ended_per_s: per_s(after - before), wal_per_s: per_s(wal_after - wal) })
}

struct Probe {
    primary: Client,
    standby: Client,
    /// The last row that was written.
    last: i64,
}

impl Probe {
    async fn run(&mut self, full: Duration) -> Result<Probed> {
        let (mut times, mut bytes, began) = (Vec::new(), Vec::new(), Instant::now());
        let replayed = "SELECT pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0')::bigint";
        let flushed = "SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')::bigint";
        while began.elapsed() < full {
            let replayed: i64 = self.standby.query_one(replayed, &[]).await?.try_get(0)?;
            let flushed: i64 = self.primary.query_one(flushed, &[]).await?.try_get(0)?;
            bytes.push((flushed - replayed).max(0) as f64);
            times.push(self.once().await?.as_secs_f64() * 1_000.0);
            tokio::time::sleep(BETWEEN_PROBES).await;
        }
        Ok(Probed { ms: Sample::new(times), bytes: Sample::new(bytes) })
    }

    /// How long it takes until the standby shows a row that the primary has just committed.
    async fn once(&mut self) -> Result<Duration> {
        self.last += 1;
        self.primary.execute("INSERT INTO forebay.probe VALUES ($1)", &[&self.last]).await?;
        let began = Instant::now();
        let visible = "SELECT EXISTS (SELECT 1 FROM forebay.probe WHERE n = $1)";
        while !self.standby.query_one(visible, &[&self.last]).await?.try_get::<_, bool>(0)? {
            ensure!(began.elapsed() < PATIENCE, "the standby is more than {PATIENCE:?} behind");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(began.elapsed())
    }
}

/// Sends executions at the steady pace until it is stopped.
fn send(world: &World, tenants: &[Tenant], stop: CancellationToken) -> Result<JoinHandle<Result<()>>> {
    let target = Target::new(&world.url)?;
    let (store, tenants) = (Store::new(&target, 1)?, tenants.to_vec());
    let (hints, inbox) = mpsc::unbounded_channel();
    let hinting = tokio::spawn(send_notifications(target, inbox));
    Ok(tokio::spawn(async move {
        let mut next = tokio::time::interval(TICK);
        for tenant in tenants.iter().cycle() {
            next.tick().await;
            if stop.is_cancelled() {
                break;
            }
            let starts: Vec<Start> = (0..PER_TICK).map(|_| start(*tenant)).collect();
            let accepted = store.enqueue(&starts, "bench").await.context("start executions")?;
            ensure!(accepted.iter().all(|one| matches!(one, EnqueueOutcome::New { .. })), "a start was not accepted");
            hints.send(tenant.workspace)?;
        }
        drop(hints);
        hinting.await.context("hinting stopped early")?
    }))
}

async fn ended(world: &World) -> Result<i64> {
    let sql = "SELECT count(*) FROM workflow_execution WHERE completed_at IS NOT NULL";
    Ok(world.client.query_one(sql, &[]).await?.try_get(0)?)
}
