//! Measures the memory of one process of the service, and how soon it is ready.
//!
//! Invariants
//! - Memory is the resident memory that Linux reports in `/proc/PID/status`: `VmRSS`, and `VmHWM` for a peak. A process
//!   is idle for some seconds before its memory is read. After a burst it is read each second.
//! - Every part has its own database and its own server processes.
//! - What one run or subscriber needs is a difference within one process. A first part of the load is not counted: it
//!   fills caches and pools, which a process has once.
//! - Nothing is judged: no promise about memory is made.
//!
//! Not here: how the memory of a loop depends on its length (`long`).

mod burst;
mod growth;
mod start;

use anyhow::{Context, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::{Map, Value, json};

use crate::cluster::Cluster;
use crate::measure::run;
use crate::measure::stats::round;
use crate::report::say;
use growth::Growth;

/// Files that this program and each server process may open, if the hard limit allows it. Every call and every
/// subscriber needs one in each of the two.
const FILES: u64 = 8_192;

/// What a run measures.
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// 1 means the full counts. Use less to try the harness.
    pub scale: f64,
    /// Parts to measure. Empty for all.
    pub parts: Vec<String>,
}

/// The names of the parts.
pub const PARTS: [&str; 6] = ["idle", "held", "sleeping", "subscribers", "ready", "burst"];

/// Runs the measurement and prints it. Always true, because nothing is judged.
pub async fn run(options: &MemoryOptions) -> Result<bool> {
    raise_file_limit().context("raise the limit of open files")?;
    run::run("memory", (options.scale, 1.0), async |cluster| measure(cluster, options).await).await
}

/// Raises this program's limit of open files. The server processes inherit it.
fn raise_file_limit() -> Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let wanted = FILES.min(hard);
    if soft < wanted {
        setrlimit(Resource::RLIMIT_NOFILE, wanted, hard)?;
    }
    Ok(())
}

async fn measure(cluster: &Cluster, options: &MemoryOptions) -> Result<(Map<String, Value>, bool)> {
    let wanted = |part: &str| options.parts.is_empty() || options.parts.iter().any(|name| name == part);
    let mut figures = Map::new();
    figures.insert("memory_from".to_owned(), json!("VmRSS in /proc/PID/status"));
    if wanted("idle") {
        let idle_mb = start::idle_mb(cluster).await.context("idle")?;
        say(format!("an idle process: {idle_mb:.1} MB"));
        figures.insert("idle_rss_mb".to_owned(), json!(idle_mb));
    }
    if wanted("held") {
        let held = growth::held(cluster, options.scale).await.context("held")?;
        tell_growth("held_run", "kb", &held, &mut figures);
    }
    if wanted("sleeping") {
        let sleeping = growth::sleeping(cluster, options.scale).await.context("sleeping")?;
        tell_growth("sleeping_run", "bytes", &sleeping.same_process, &mut figures);
        tell_growth("sleeping_run_new_process", "bytes", &sleeping.new_process, &mut figures);
    }
    if wanted("subscribers") {
        let subscribers = growth::subscribers(cluster, options.scale).await.context("subscribers")?;
        tell_growth("subscriber", "kb", &subscribers.growth, &mut figures);
        say(format!("after they left: {:.1} MB", subscribers.left_mb));
        figures.insert("subscribers_left_rss_mb".to_owned(), json!(subscribers.left_mb));
    }
    if wanted("ready") {
        tell_ready(&start::ready(cluster).await.context("ready")?, &mut figures);
    }
    if wanted("burst") {
        tell_burst(&burst::measure(cluster, options.scale).await.context("burst")?, &mut figures);
    }
    Ok((figures, true))
}

/// Adds `NAME_UNIT`, which is the growth per thing, and `NAME`, which holds the values that it comes from.
fn tell_growth(name: &str, unit: &str, growth: &Growth, figures: &mut Map<String, Value>) {
    let each = growth.bytes_each() / if unit == "kb" { 1_024.0 } else { 1.0 };
    say(format!(
        "{name}: {each:.1} {unit} each: {} more took the process from {:.1} MB to {:.1} MB",
        growth.count, growth.before_mb, growth.after_mb
    ));
    figures.insert(format!("{name}_{unit}"), json!(round(each)));
    let from = json!({ "count": growth.count, "before_mb": growth.before_mb, "after_mb": growth.after_mb });
    figures.insert(name.to_owned(), from);
}

fn tell_ready(ready: &start::ReadyTimes, figures: &mut Map<String, Value>) {
    let (migrated, empty) = (&ready.migrated, &ready.empty);
    say(format!(
        "ready after {:.0} ms on a migrated database, {:.0} ms on an empty one (medians of {} and {})",
        migrated.p50(),
        empty.p50(),
        migrated.len(),
        empty.len()
    ));
    figures.insert("ready_ms".to_owned(), json!(round(migrated.p50())));
    figures.insert("ready_after_migration_ms".to_owned(), json!(round(empty.p50())));
    figures.insert("ready".to_owned(), json!({ "migrated": migrated.json(), "empty": empty.json() }));
}

fn tell_burst(burst: &burst::Burst, figures: &mut Map<String, Value>) {
    say(format!(
        "a burst of {} executions: {:.1} MB before, {:.1} MB at the peak, {:.1} MB {} s after the last one ended",
        burst.executions,
        burst.before_mb,
        burst.peak_mb,
        burst.after_mb(),
        burst.each_second_mb.len() - 1
    ));
    figures.insert("after_burst_rss_mb".to_owned(), json!(burst.after_mb()));
    let burst = json!({ "executions": burst.executions, "before_mb": burst.before_mb, "peak_mb": burst.peak_mb,
        "each_second_mb": burst.each_second_mb });
    figures.insert("burst".to_owned(), burst);
}
