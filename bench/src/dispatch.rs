//! Speed measured: the whole life of an execution beside what the database alone can do.
//!
//! Invariants
//! - Commits are flushed, batches are of one size everywhere, and the ceilings come from the same run.
//! - The promise is a ratio: at least half of what plain SQL reaches that writes the same rows and
//!   keeps no limit. The other figures are told, not judged.
//!
//! Not here: whether admission is flat and fair (`admission`), faults (`chaos`).

mod ceilings;
mod graphs;
mod latency;
mod lifecycle;
mod wire;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

use crate::cluster::{Cluster, Commits, forebay};
use crate::measure::stats::round;
use crate::measure::world::World;
use crate::report::{self, say};

/// Items of one statement, in the ceilings and in Forebay's enqueues alike.
const BATCH: usize = 100;
/// Less than this of the same-rows ceiling, and the promise is broken.
const LEAST: f64 = 0.5;
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
pub const PARTS: [&str; 4] = ["throughput", "latency", "graphs", "http"];

/// How long a run is.
#[derive(Clone, Copy, Debug)]
struct Scale(f64);

impl Scale {
    fn count(self, full: usize) -> usize {
        ((full as f64 * self.0) as usize).max(BATCH * 10)
    }

    fn seconds(self, full: u32) -> u32 {
        ((f64::from(full) * self.0) as u32).max(2)
    }
}

/// Runs the measurement and prints it. True if the promise held.
pub async fn run(options: &Options) -> Result<bool> {
    if !(options.scale > 0.0 && options.scale <= 10.0) {
        bail!("--scale: above 0, at most 10");
    }
    let machine = report::machine();
    let binary = forebay(None)?;
    let cluster = Cluster::start(&binary, Commits::Flushed, CONNECTIONS).await?;
    let cluster = cluster.counting(&binary, CONNECTIONS).await?;
    let bench = Bench { scale: Scale(options.scale), cluster: &cluster };
    let measured = bench.measure(&options.parts).await;
    let settings = match &measured {
        Ok(_) => bench.settings().await,
        Err(_) => Ok(Value::Null),
    };
    cluster.stop().await?;
    let (mut figures, held) = measured?;
    figures.insert("bench".to_owned(), json!("dispatch"));
    figures.insert("machine".to_owned(), machine);
    figures.insert("settings".to_owned(), settings?);
    figures.insert("scale".to_owned(), json!(options.scale));
    figures.insert("held".to_owned(), json!(held));
    report::figures(&Value::Object(figures))?;
    Ok(held)
}

struct Bench<'a> {
    scale: Scale,
    cluster: &'a Cluster,
}

impl Bench<'_> {
    async fn measure(&self, parts: &[String]) -> Result<(Map<String, Value>, bool)> {
        let wanted = |part: &str| parts.is_empty() || parts.iter().any(|name| name == part);
        let (mut figures, mut held) = (Map::new(), true);
        if wanted("throughput") {
            held = self.throughput(&mut figures).await?;
        }
        if wanted("latency") {
            let world = self.world("latency").await?;
            let latency = latency::measure(&world, self.scale).await.context("latency")?;
            latency.tell(&mut figures);
        }
        if wanted("graphs") {
            let world = self.world("graphs").await?;
            let (chain, fan) = graphs::measure(&world).await.context("graphs")?;
            say(format!(
                "a chain of {} light nodes: {chain:.3} s; a fan-out of {}: {fan:.3} s",
                graphs::CHAIN,
                graphs::FAN
            ));
            figures.insert("chain40_s".to_owned(), json!(round(chain)));
            figures.insert("fan400_s".to_owned(), json!(round(fan)));
        }
        if wanted("http") {
            let world = self.world("wire").await?;
            let (single, bulk) = wire::measure(&world, self.scale).await.context("http")?;
            say(format!(
                "over HTTP with {} clients: {single:.0} starts/s one by one, {bulk:.0}/s in bulk",
                wire::CLIENTS
            ));
            figures.insert("http_starts_per_s".to_owned(), json!(single.round()));
            figures.insert("http_bulk_starts_per_s".to_owned(), json!(bulk.round()));
        }
        Ok((figures, held))
    }

    async fn throughput(&self, figures: &mut Map<String, Value>) -> Result<bool> {
        let world = self.world("ceilings").await?;
        let bare = ceilings::bare(&world, self.scale).await.context("the bare ceiling")?;
        say(format!("ceiling, bare insert, claim, delete: {bare:.0}/s"));
        let same_rows = ceilings::same_rows(&world, self.scale).await.context("the same-rows ceiling")?;
        say(format!("ceiling, plain SQL that writes the same rows: {same_rows:.0}/s"));
        let world = self.world("lifecycle").await?;
        let lifecycle = lifecycle::measure(&world, self.scale).await.context("the whole life")?;
        let ratio = lifecycle.per_s / same_rows;
        say(format!("forebay, the whole life: {:.0}/s, {ratio:.2} of the same rows", lifecycle.per_s));
        figures.insert("ceiling_bare_per_s".to_owned(), json!(bare.round()));
        figures.insert("ceiling_same_rows_per_s".to_owned(), json!(same_rows.round()));
        figures.insert("forebay_per_s".to_owned(), json!(lifecycle.per_s.round()));
        figures.insert("ratio".to_owned(), json!(round(ratio)));
        figures.insert("commits_per_execution".to_owned(), json!(round(lifecycle.commits)));
        figures.insert("statements_per_execution".to_owned(), json!(lifecycle.statements.map(round)));
        Ok(ratio >= LEAST)
    }

    /// A new database of the cluster.
    async fn world(&self, name: &str) -> Result<World> {
        World::create(self.cluster, name).await
    }

    async fn settings(&self) -> Result<Value> {
        let mut settings = self.cluster.settings().await?;
        settings.insert("batch".to_owned(), json!(BATCH));
        Ok(Value::Object(settings))
    }
}

/// A workflow of one light node.
fn one_node() -> Value {
    json!({ "version": 1, "name": "one", "nodes": { "say": { "kind": "LOG", "with": { "message": "hello" } } } })
}
