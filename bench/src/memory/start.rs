//! Measures a process that has just started: how soon it is ready, and how much memory it uses while it is idle.
//!
//! Invariants
//! - A start runs from just before the process is launched until `/readyz` first answers 200. `/readyz` is requested
//!   when the process has printed its address, which it does when all its parts run.
//! - The first start is not counted: it reads the program from disk.

use anyhow::Result;

use crate::cluster::Cluster;
use crate::measure::served::Service;
use crate::measure::stats::{Sample, median};
use crate::measure::world::World;
use crate::report::progress;

const IDLE_PROCESSES: usize = 3;
const STARTS: usize = 9;
const STARTS_ON_EMPTY: usize = 5;

/// How long starts took, in ms.
pub(super) struct ReadyTimes {
    pub(super) migrated: Sample,
    pub(super) empty: Sample,
}

/// The median memory of several processes that had nothing to do since their start, in MB.
pub(super) async fn idle_mb(cluster: &Cluster) -> Result<f64> {
    let world = World::create(cluster, "idle").await?;
    world.leave_to_service().await?;
    let mut all_mb = Vec::new();
    for _ in 0..IDLE_PROCESSES {
        let service = Service::start(&world, &[]).await?;
        all_mb.push(service.resident_mb_at_rest().await?);
        service.stop().await?;
    }
    Ok(median(&all_mb))
}

/// Starts processes over a migrated database, and each of some others over an empty database of its own.
pub(super) async fn ready(cluster: &Cluster) -> Result<ReadyTimes> {
    let world = World::create(cluster, "ready").await?;
    world.leave_to_service().await?;
    let mut migrated = Vec::new();
    for at in 0..=STARTS {
        let took_ms = start(&world.url).await?;
        if at > 0 {
            migrated.push(took_ms);
        }
        progress(format!("start {at} of {STARTS}: ready after {took_ms:.0} ms"));
    }
    let mut empty = Vec::new();
    for at in 1..=STARTS_ON_EMPTY {
        let url = World::create_empty(cluster, &format!("empty_{at}")).await?;
        empty.push(start(&url).await?);
    }
    Ok(ReadyTimes { migrated: Sample::new(migrated), empty: Sample::new(empty) })
}

/// Starts a process and stops it again. Returns how long it took to be ready, in ms.
async fn start(url: &str) -> Result<f64> {
    let service = Service::start_over(url).await?;
    let took = service.ready_after().await?;
    service.stop().await?;
    Ok(took.as_secs_f64() * 1e3)
}
