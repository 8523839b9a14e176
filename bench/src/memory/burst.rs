//! Measures whether a process gives memory back after a burst: many runs at once, each with a call, which then all end.
//!
//! Invariants
//! - The calls take longer than the starts of all runs, so the process holds almost all of them at the same time.
//! - The first reading after the burst is taken when no execution of it is left.

use std::time::Duration;

use anyhow::{Context, Result};

use super::growth::{batches, call, settings_for_calls, slow_receiver, tenants};
use crate::cluster::Cluster;
use crate::dispatch::lifecycle;
use crate::measure::served::Service;
use crate::measure::stats::round;
use crate::measure::world::World;
use crate::report::{peak_mb, resident_mb};

const EXECUTIONS: f64 = 2_000.0;
const CALL: Duration = Duration::from_secs(5);
/// How long the memory is read after the burst.
const AFTER_SECONDS: usize = 20;

/// The memory of a process before, during and after a burst.
pub(super) struct Burst {
    pub(super) executions: usize,
    pub(super) before_mb: f64,
    pub(super) peak_mb: f64,
    /// From the end of the burst.
    pub(super) each_second_mb: Vec<f64>,
}

impl Burst {
    pub(super) fn after_mb(&self) -> f64 {
        self.each_second_mb.last().copied().unwrap_or_default()
    }
}

pub(super) async fn measure(cluster: &Cluster, scale: f64) -> Result<Burst> {
    let world = World::create(cluster, "burst").await?;
    let receiver = slow_receiver(CALL).await?;
    let tenants = tenants(&world, &call(&receiver)).await?;
    world.leave_to_service().await?;
    let service = Service::start(&world, &settings_for_calls(&receiver)).await?;
    let before_mb = service.resident_mb_at_rest().await?;
    let executions = batches(EXECUTIONS, scale);
    lifecycle::run(&world, &tenants, executions).await?;
    let pid = service.pid()?;
    let mut each_second_mb = Vec::new();
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    for _ in 0..=AFTER_SECONDS {
        seconds.tick().await;
        each_second_mb.push(resident_mb(pid).map(round).context("read the memory of a process")?);
    }
    let peak_mb = peak_mb(pid).map(round).context("read the peak of a process")?;
    service.stop().await?;
    Ok(Burst { executions, before_mb, peak_mb, each_second_mb })
}
