//! Measures what one PostgreSQL can carry: what an execution costs and takes on disk, vacuum, a standby, partitions.
//!
//! Invariants
//! - Everything is measured in one run on one private server with flushed commits, with executions that the real
//!   service ran. What is extrapolated from it is named so (`model`).
//! - Two graphs are compared, of one node and of ten, so the cost of a node can be separated from that of an execution.
//! - Nothing is judged: the figures are for sizing, and for the question whether to partition.
//!
//! Not here: how fast the service is beside the database alone (`dispatch`), whether retention keeps up (`retention`).

mod filled;
mod lag;
mod meter;
mod model;
mod partitions;
mod sizes;
mod standby;
mod tables;
mod vacuum;

use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use self::filled::{CHAINS, Chain, Filled};
use self::lag::Lag;
use self::model::WholeCost;
use self::partitions::Partitions;
use self::sizes::KeptBytes;
use self::vacuum::Deleted;
use crate::cluster::Cluster;
use crate::dispatch::lifecycle::Lifecycle;
use crate::measure::run;
use crate::page;
use crate::report::{self, say};

const PAGE: &str = "docs/explanation/scale.md";
/// Executions of each graph that are kept, and newer ones beside which they are deleted.
const KEPT: f64 = 100_000.0;
const NEWER: f64 = 50_000.0;
/// The service is measured in batches of this size.
const BATCH: usize = 100;
const LEAST: usize = 1_000;

/// What a run measures.
#[derive(Clone, Debug)]
pub struct ScaleOptions {
    /// 1 means 100,000 executions of each graph. Use less to try the harness.
    pub scale: f64,
    /// Parts to measure. Empty for all.
    pub parts: Vec<String>,
    /// Write the tables into the page about scale.
    pub write_page: bool,
}

/// The names of the parts.
pub const PARTS: [&str; 5] = ["cost", "size", "vacuum", "lag", "partitions"];

impl ScaleOptions {
    fn wants(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|name| name == part)
    }

    fn count(&self, full: f64) -> usize {
        ((full * self.scale) as usize / BATCH * BATCH).max(LEAST)
    }
}

/// What was measured of one graph.
struct Taken {
    chain: &'static Chain,
    life: Option<Lifecycle>,
    kept: Option<KeptBytes>,
    deleted: Option<Deleted>,
    partitions: Option<Partitions>,
}

impl Taken {
    fn json(&self) -> Value {
        json!({
            "nodes": self.chain.nodes,
            "cost": self.life.as_ref().map(filled::life_json),
            "kept_bytes": self.kept.as_ref().map(KeptBytes::json),
            "deletion": self.deleted.as_ref().map(Deleted::json),
            "partitions": self.partitions.as_ref().map(Partitions::json),
            "model": WholeCost::of(self).as_ref().map(WholeCost::json),
        })
    }
}

/// Everything that was measured.
#[derive(Default)]
struct Figures {
    taken: Vec<Taken>,
    lag: Option<Lag>,
}

impl Figures {
    fn json(&self) -> Map<String, Value> {
        let mut map = Map::new();
        for taken in &self.taken {
            map.insert(taken.chain.name.to_owned(), taken.json());
        }
        map.insert("lag".to_owned(), self.lag.as_ref().map_or(Value::Null, Lag::json));
        map
    }
}

/// Runs the measurement and prints it. Always true: nothing is promised.
pub async fn run(options: &ScaleOptions) -> Result<bool> {
    let mut tables = String::new();
    let (figures, held) = run::figures("scale", (options.scale, 10.0), async |cluster| {
        let figures = measure(cluster, options).await?;
        tables = tables::text(&figures);
        Ok((figures.json(), true))
    })
    .await?;
    say(&tables);
    if options.write_page {
        page::write(PAGE, "scale", &tables, &figures)?;
    }
    report::print_figures(&Value::Object(figures))?;
    Ok(held)
}

async fn measure(cluster: &Cluster, options: &ScaleOptions) -> Result<Figures> {
    let mut figures = Figures::default();
    // The standby copies the whole server, so it comes first, while the server is small.
    if options.wants("lag") {
        let lag = lag::measure(cluster, options.scale).await.context("lag")?;
        let (p50, p99) = (lag.loaded.ms.p50(), lag.loaded.ms.p99());
        say(format!("a commit is visible on the standby after p50 {p50:.1} ms, p99 {p99:.1} ms"));
        figures.lag = Some(lag);
    }
    if ["cost", "size", "vacuum", "partitions"].iter().any(|part| options.wants(part)) {
        for chain in &CHAINS {
            figures.taken.push(of_chain(cluster, options, chain).await.context(chain.name)?);
        }
    }
    Ok(figures)
}

async fn of_chain(cluster: &Cluster, options: &ScaleOptions, chain: &'static Chain) -> Result<Taken> {
    let filled = Filled::fill(cluster, chain, options.count(KEPT)).await?;
    let mut taken = Taken { chain, life: None, kept: None, deleted: None, partitions: None };
    if options.wants("size") {
        let kept = sizes::measure(&filled).await.context("size")?;
        say(format!("{} nodes: {:.0} bytes on disk for each of {:.0}", chain.nodes, kept.bytes(), kept.executions));
        taken.kept = Some(kept);
    }
    if options.wants("vacuum") || options.wants("partitions") {
        let cut = Instant::now();
        filled.add_newer(options.count(NEWER)).await?;
        filled.stop_autovacuum().await?;
        if options.wants("partitions") {
            taken.partitions = Some(partitions::compare(&filled, options.scale).await.context("partitions")?);
        }
        let deleted = vacuum::measure(&filled, cut).await.context("vacuum")?;
        let (delete_s, vacuum_s) = (deleted.delete.took_s, deleted.vacuum.took_s);
        say(format!("{} nodes: deleted in {delete_s:.1} s, vacuumed in {vacuum_s:.1} s", chain.nodes));
        taken.deleted = Some(deleted);
        if let Some(partitions) = &mut taken.partitions {
            let dropped = partitions::drop_old(&filled).await.context("drop partitions")?;
            say(format!("{} nodes: partitions dropped in {:.3} s", chain.nodes, dropped.took_s));
            partitions.dropped = Some(dropped);
        }
    }
    let life = filled.life;
    say(format!(
        "{} nodes: {:.0} us of the server, {:.0} of the service, {:.0} bytes of WAL for each execution",
        chain.nodes, life.database_us, life.service_us, life.wal_bytes
    ));
    taken.life = options.wants("cost").then_some(life);
    Ok(taken)
}
