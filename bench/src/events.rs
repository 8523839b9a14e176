//! Measures the feed: how soon subscribers receive a change, and how much throughput the change log costs.
//!
//! Invariants
//! - A latency runs from just before the statement is sent until a subscriber has received the message. So it includes
//!   the time of the statement and its commit.
//! - The cost is measured by the dispatch benchmark, with the change log and without, in turns in one run. For the
//!   variant without, a separate database has functions from which the statements that write the log are removed.
//! - Both promises are judged: the p99 of 100 subscribers at 100 changes per second, and the loss of throughput.
//!
//! Not here: that no change is missed or delivered twice (the tests check this).

mod cost;
pub(crate) mod latency;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use crate::cluster::Cluster;
use crate::dispatch::Scale;
use crate::measure::run;
use crate::measure::stats::round;
use crate::measure::world::World;
use crate::report::say;

/// The limit for the p99 of 100 subscribers at 100 changes per second, in ms.
const SOON: f64 = 50.0;
/// The limit for the share of throughput that is lost.
const DEAREST: f64 = 0.15;

/// What a run measures.
#[derive(Clone, Debug)]
pub struct EventsOptions {
    /// 1 means the full length. Use less to try the harness.
    pub scale: f64,
    /// Parts to measure. Empty for all.
    pub parts: Vec<String>,
}

/// The names of the parts.
pub const PARTS: [&str; 2] = ["latency", "cost"];

/// Runs the measurement and prints it. True if the promises held.
pub async fn run(options: &EventsOptions) -> Result<bool> {
    run::run("events", (options.scale, 10.0), async |cluster| measure(cluster, options).await).await
}

async fn measure(cluster: &Cluster, options: &EventsOptions) -> Result<(Map<String, Value>, bool)> {
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
        let values: Map<String, Value> = cases.iter().map(|(case, sample)| (case.to_string(), sample.json())).collect();
        figures.insert("latency_ms".to_owned(), Value::Object(values));
    }
    if wanted("cost") {
        let cost = cost::measure(cluster, Scale(options.scale)).await.context("cost")?;
        say(format!("the log costs {:.1} % of throughput, {:.1} % with a reader", cost.log * 100.0, cost.read * 100.0));
        held &= cost.log <= DEAREST;
        figures.insert("write_cost_ratio".to_owned(), json!(round(cost.log)));
        figures.insert("write_and_read_cost_ratio".to_owned(), json!(round(cost.read)));
        figures.insert("per_s".to_owned(), cost.per_s);
        figures.insert("cpu_us_per_execution".to_owned(), cost.cpu_us);
    }
    Ok((figures, held))
}
