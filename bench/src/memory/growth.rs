//! Measures by how much a process grows for each run that it holds, for each run that sleeps, and for each subscriber.
//!
//! Invariants
//! - What is counted exists for the whole time of both readings: the calls do not answer, nobody answers a wait, and
//!   every socket stays open. For calls this is checked.
//! - A sleeping run is also measured in a process that started after all runs were parked. It never held one of them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::dispatch::{BATCH, lifecycle};
use crate::events::latency::subscribe;
use crate::long::sleeping::{self, parked};
use crate::measure::served::Service;
use crate::measure::world::{Tenant, World};
use crate::receiver::{Policy, Receiver};
use crate::report::progress;

const HELD: f64 = 1_000.0;
const SLEEPING: f64 = 20_000.0;
const SUBSCRIBERS: f64 = 1_000.0;

/// The workspaces that share the runs.
const TENANTS: usize = 4;
/// The slots of a workspace: more than a measurement needs.
const LIMIT: i32 = 10_000;
/// Runs and subscribers that a process already has when the count begins. Every workspace gets a batch of the runs, so
/// its HTTP client exists.
const FIRST_RUNS: usize = TENANTS * BATCH;
const FIRST_SUBSCRIBERS: usize = 100;
/// The most runs and calls of a process: more than a measurement needs, because a part of the runs is reserved and a
/// workspace gets only a quarter of the calls.
const MOST: usize = 4_000;
/// How long a call takes that outlasts the measurement.
const HOUR: Duration = Duration::from_secs(3_600);
const PATIENCE: Duration = Duration::from_secs(120);
/// How often the calls in flight are counted.
const LOOK: Duration = Duration::from_millis(100);

/// The memory of a process before and after it got this many more of a thing.
pub(super) struct Growth {
    pub(super) count: usize,
    pub(super) before_mb: f64,
    pub(super) after_mb: f64,
}

impl Growth {
    /// May be below zero if one needs almost nothing.
    pub(super) fn bytes_each(&self) -> f64 {
        (self.after_mb - self.before_mb) * 1_024.0 * 1_024.0 / self.count as f64
    }
}

/// The growth for runs that sleep.
pub(super) struct Sleeping {
    /// In the process that ran them until they were parked.
    pub(super) same_process: Growth,
    /// Of a process that started when they slept, compared with one that started before they existed.
    pub(super) new_process: Growth,
}

/// The growth for subscribers.
pub(super) struct Subscribers {
    pub(super) growth: Growth,
    /// The memory after all of them left.
    pub(super) left_mb: f64,
}

/// Holds runs whose calls do not answer.
pub(super) async fn held(cluster: &Cluster, scale: f64) -> Result<Growth> {
    let world = World::create(cluster, "held").await?;
    let receiver = slow_receiver(HOUR).await?;
    let tenants = tenants(&world, &call(&receiver)).await?;
    world.leave_to_service().await?;
    let service = Service::start(&world, &settings_for_calls(&receiver)).await?;
    lifecycle::accept(&world, &tenants, FIRST_RUNS).await?;
    in_flight(&receiver, FIRST_RUNS).await?;
    let before_mb = service.resident_mb_at_rest().await?;
    let count = batches(HELD, scale);
    lifecycle::accept(&world, &tenants, count).await?;
    in_flight(&receiver, FIRST_RUNS + count).await?;
    let after_mb = service.resident_mb_at_rest().await?;
    let held = receiver.in_flight();
    ensure!(held == FIRST_RUNS + count, "{held} calls were in flight at the end of the measurement");
    // The calls would keep a process busy that is asked to stop.
    service.kill().await?;
    Ok(Growth { count, before_mb, after_mb })
}

/// Parks runs that wait for an answer.
pub(super) async fn sleeping(cluster: &Cluster, scale: f64) -> Result<Sleeping> {
    let world = World::create(cluster, "sleeping").await?;
    let tenants = tenants(&world, &sleeping::document()).await?;
    world.leave_to_service().await?;
    let empty_mb = of_new_process(&world).await?;
    let service = Service::start(&world, &[]).await?;
    lifecycle::accept(&world, &tenants, FIRST_RUNS).await?;
    parked(&world, i64::try_from(FIRST_RUNS)?).await?;
    let before_mb = service.resident_mb_at_rest().await?;
    let count = batches(SLEEPING, scale);
    lifecycle::accept(&world, &tenants, count).await?;
    let all = FIRST_RUNS + count;
    parked(&world, i64::try_from(all)?).await?;
    let after_mb = service.resident_mb_at_rest().await?;
    service.stop().await?;
    let full_mb = of_new_process(&world).await?;
    Ok(Sleeping {
        same_process: Growth { count, before_mb, after_mb },
        new_process: Growth { count: all, before_mb: empty_mb, after_mb: full_mb },
    })
}

/// Opens sockets that wait for changes.
pub(super) async fn subscribers(cluster: &Cluster, scale: f64) -> Result<Subscribers> {
    let world = World::create(cluster, "subscribers").await?;
    world.leave_to_service().await?;
    let service = Service::start_as("api", &world, &["http.max_streams_per_workspace=2000".to_owned()]).await?;
    let mut sockets = Vec::new();
    for number in 0..FIRST_SUBSCRIBERS {
        sockets.push(subscribe(&service.socket(), number).await?);
    }
    let before_mb = service.resident_mb_at_rest().await?;
    let count = batches(SUBSCRIBERS, scale);
    for number in 0..count {
        sockets.push(subscribe(&service.socket(), FIRST_SUBSCRIBERS + number).await?);
        progress(format!("{} subscribers", sockets.len()));
    }
    let after_mb = service.resident_mb_at_rest().await?;
    drop(sockets);
    let left_mb = service.resident_mb_at_rest().await?;
    service.stop().await?;
    Ok(Subscribers { growth: Growth { count, before_mb, after_mb }, left_mb })
}

/// Workspaces with this definition and enough slots.
pub(super) async fn tenants(world: &World, document: &Value) -> Result<Vec<Tenant>> {
    let mut tenants = Vec::new();
    for _ in 0..TENANTS {
        tenants.push(world.tenant_in(None, LIMIT, 1, document).await?);
    }
    Ok(tenants)
}

/// A receiver whose every response takes this long.
pub(super) async fn slow_receiver(delay: Duration) -> Result<Receiver> {
    let ms = u64::try_from(delay.as_millis())?;
    Receiver::start(Policy { seed: 1, fast: (ms, ms), slow: (ms, ms), slow_every: 1, repeat: delay }).await
}

/// A workflow of one node that calls the receiver.
pub(super) fn call(receiver: &Receiver) -> Value {
    let query = json!({ "execution": "${{ execution.id }}", "workspace": "${{ workspace.id }}", "n": 1,
        "node": "call" });
    let with = json!({ "url": receiver.url("/hit"), "query": query });
    let call = json!({ "kind": "HTTP_REQUEST", "timeout": "1h", "with": with });
    json!({ "version": 1, "name": "call", "nodes": { "call": call } })
}

/// Settings with which a process makes every call of a measurement at the same time.
pub(super) fn settings_for_calls(receiver: &Receiver) -> [String; 3] {
    [
        format!("outbound.allow={}", receiver.address),
        format!("engine.max_runs={MOST}"),
        format!("engine.max_calls={MOST}"),
    ]
}

/// A share of the full count, as whole batches and at least one.
pub(super) fn batches(full: f64, scale: f64) -> usize {
    ((full * scale) as usize / BATCH).max(1) * BATCH
}

/// Waits until the receiver holds this many calls.
async fn in_flight(receiver: &Receiver, count: usize) -> Result<()> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let now = receiver.in_flight();
        if now == count {
            return Ok(());
        }
        progress(format!("{now} of {count} calls in flight"));
        tokio::time::sleep(LOOK).await;
    }
    bail!("{} of {count} calls were in flight after {PATIENCE:?}", receiver.in_flight())
}

/// The memory of a process that starts over this database.
async fn of_new_process(world: &World) -> Result<f64> {
    let service = Service::start(world, &[]).await?;
    let rss_mb = service.resident_mb_at_rest().await.context("a new process")?;
    service.stop().await?;
    Ok(rss_mb)
}
