//! The feed measured: how soon a change is told to those who follow it, and what it costs those who do not.
//!
//! Invariants
//! - A latency is from just before the statement is sent to when a subscriber has its message: more than from the
//!   commit.
//! - The cost is the dispatch benchmark's, with the log and without, in turns in one run. Without means without: the
//!   statements that write it are taken out of the functions, in a database made for that.
//! - Both promises are judged: p99 of 100 subscribers at 100 changes a second, and the share of throughput that is
//!   lost.
//!
//! Not here: that nothing is missed or told twice (tests).

mod cost;
mod latency;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

use crate::cluster::{Cluster, Commits, forebay};
use crate::dispatch::Scale;
use crate::measure::stats::round;
use crate::measure::world::World;
use crate::report::{self, say};

/// What 100 subscribers may wait at 100 changes a second, in ms, of 99 in 100.
const SOON: f64 = 50.0;
/// The share of throughput that may be lost.
const DEAREST: f64 = 0.15;
const CONNECTIONS: u32 = 100;

/// What a run measures.
#[derive(Clone, Debug)]
pub struct Options {
    /// 1 is the full length; less is for trying the harness out.
    pub scale: f64,
    /// Parts to measure; none: all.
    pub parts: Vec<String>,
}

/// The names of the parts.
pub const PARTS: [&str; 2] = ["latency", "cost"];

/// Runs the measurement and prints it. True if the promises held.
pub async fn run(options: &Options) -> Result<bool> {
    if !(options.scale > 0.0 && options.scale <= 10.0) {
        bail!("--scale: above 0, at most 10");
    }
    let machine = report::machine();
    let cluster = Cluster::start(&forebay(None)?, Commits::Flushed, CONNECTIONS).await?;
    let measured = measure(&cluster, options).await;
    let settings = cluster.settings().await;
    cluster.stop().await?;
    let (mut figures, held) = measured?;
    figures.insert("bench".to_owned(), json!("events"));
    figures.insert("machine".to_owned(), machine);
    figures.insert("settings".to_owned(), Value::Object(settings?));
    figures.insert("scale".to_owned(), json!(options.scale));
    figures.insert("held".to_owned(), json!(held));
    report::figures(&Value::Object(figures))?;
    Ok(held)
}

async fn measure(cluster: &Cluster, options: &Options) -> Result<(Map<String, Value>, bool)> {
    let wanted = |part: &str| options.parts.is_empty() || options.parts.iter().any(|name| name == part);
    let (mut figures, mut held) = (Map::new(), true);
    if wanted("latency") {
        let world = World::create(cluster, "latency").await?;
        let cases = latency::measure(&world, options.scale).await.context("latency")?;
        let of_100 = cases.iter().find(|(case, _)| case.subscribers == 100 && case.rate == 100);
        if let Some((_, sample)) = of_100 {
            held &= sample.p99() <= SOON;
            figures.insert("p99_100_subscribers_ms".to_owned(), json!(round(sample.p99())));
        }
        let told: Map<String, Value> = cases.iter().map(|(case, sample)| (case.to_string(), sample.json())).collect();
        figures.insert("latency_ms".to_owned(), Value::Object(told));
    }
    if wanted("cost") {
        let cost = cost::measure(cluster, Scale(options.scale)).await.context("cost")?;
        say(format!(
            "{:.1} % of throughput go into the log, {:.1} % with a reader",
            cost.log * 100.0,
            cost.read * 100.0
        ));
        held &= cost.log <= DEAREST;
        figures.insert("write_cost_ratio".to_owned(), json!(round(cost.log)));
        figures.insert("write_and_read_cost_ratio".to_owned(), json!(round(cost.read)));
        figures.insert("per_s".to_owned(), cost.per_s);
        figures.insert("cpu_us_per_execution".to_owned(), cost.cpu_us);
    }
    Ok((figures, held))
}
