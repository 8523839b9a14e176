//! Measures throughput: the whole life of an execution in the service, compared with plain SQL on the same database.
//!
//! Invariants
//! - Commits are flushed, all batches have the same size, and the ceilings (rates of plain SQL) are measured in the
//!   same run.
//! - The promise is a ratio: at least a quarter of the rate of a bare queue (insert, claim, delete) that enforces no
//!   limit and keeps nothing. An execution also has a promise in bytes of the write-ahead log, and one in updates that
//!   touch no index. The other figures are reported, not judged.
//!
//! Not here: whether admission is fast and fair (`admission`), faults (`chaos`).

mod ceilings;
mod graphs;
mod latency;
pub(crate) mod lifecycle;
mod wire;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

use crate::cluster::{Cluster, Commits, forebay_binary};
use crate::measure::stats::{Sample, round};
use crate::measure::world::World;
use crate::report::{self, say};

/// Items per statement, in the ceilings and in Forebay's enqueues.
pub(crate) const BATCH: usize = 100;
/// Tenants, in the same-rows ceiling and under Forebay.
const TENANTS: usize = 40;
/// How often the ceilings and Forebay are measured, in turns. The medians are compared.
const ROUNDS: usize = 3;
/// The promise is broken if Forebay reaches less than this share of the bare ceiling.
const LEAST_OF_BARE: f64 = 0.25;
/// The promise is broken if fewer updates of executions touch no index.
const LEAST_HOT: f64 = 0.95;
/// The promise is broken if an execution writes more to the write-ahead log.
const MOST_WAL_BYTES: f64 = 2_000.0;
const CONNECTIONS: u32 = 100;

/// What a run measures.
#[derive(Clone, Debug)]
pub struct DispatchOptions {
    /// 1 means the full length. Use less to try the harness.
    pub scale: f64,
    /// Parts to measure. Empty for all.
    pub parts: Vec<String>,
}

/// The names of the parts.
pub const PARTS: [&str; 4] = ["throughput", "latency", "graphs", "http"];

/// How long a run is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale(pub(crate) f64);

impl Scale {
    fn count(self, full: usize) -> usize {
        ((full as f64 * self.0) as usize).max(BATCH * 10)
    }

    fn seconds(self, full: u32) -> u32 {
        ((f64::from(full) * self.0) as u32).max(2)
    }
}

/// Runs the measurement and prints it. True if the promise held.
pub async fn run(options: &DispatchOptions) -> Result<bool> {
    if !(options.scale > 0.0 && options.scale <= 10.0) {
        bail!("--scale must be greater than 0 and at most 10");
    }
    let machine = report::machine();
    let binary = forebay_binary(None)?;
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
    report::print_figures(&Value::Object(figures))?;
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
            held &= latency.add_to(&mut figures);
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
                "over HTTP: {single:.0} starts/s one by one from {} clients, {bulk:.0}/s in bulk",
                wire::CLIENTS
            ));
            held &= single >= wire::LEAST_PER_S;
            figures.insert("http_starts_per_s".to_owned(), json!(single.round()));
            figures.insert("http_bulk_starts_per_s".to_owned(), json!(bulk.round()));
        }
        Ok((figures, held))
    }

    async fn throughput(&self, figures: &mut Map<String, Value>) -> Result<bool> {
        let (mut bare, mut ceilings, mut lives) = (Vec::new(), Vec::new(), Vec::new());
        for round in 1..=ROUNDS {
            let world = self.world(&format!("bare_{round}")).await?;
            let ceiling = ceilings::measure_bare(&world, self.scale).await.context("the bare ceiling")?;
            say(format!("{round} of {ROUNDS}: bare insert, claim, delete: {:.0}/s", ceiling.per_s));
            bare.push(ceiling);
            let world = self.world(&format!("same_rows_{round}")).await?;
            let ceiling = ceilings::measure_same_rows(&world, self.scale).await.context("the same-rows ceiling")?;
            say(format!(
                "{round} of {ROUNDS}: plain SQL that writes the same rows: {:.0}/s, {:.0} us of the server each",
                ceiling.per_s, ceiling.cpu_us
            ));
            let world = self.world(&format!("lifecycle_{round}")).await?;
            let life = lifecycle::measure(&world, self.scale, async |_| Ok(())).await.context("the whole life")?;
            say(format!(
                "{round} of {ROUNDS}: forebay, the whole life: {:.0}/s, {:.0} us of the server and {:.0} of the \
                 service each",
                life.per_s, life.database_us, life.service_us
            ));
            ceilings.push(ceiling);
            lives.push(life);
        }
        let ceiling = |of: fn(&ceilings::Ceiling) -> f64| Sample::new(ceilings.iter().map(of).collect()).p50();
        let life = |of: fn(&lifecycle::Lifecycle) -> f64| Sample::new(lives.iter().map(of).collect()).p50();
        let bare = Sample::new(bare.iter().map(|one| one.per_s).collect()).p50();
        let (same_rows, forebay) = (ceiling(|one| one.per_s), life(|one| one.per_s));
        let (ratio, ratio_bare) = (forebay / same_rows, forebay / bare);
        let (hot, wal_bytes) = (life(|one| one.hot), life(|one| one.wal_bytes));
        say(format!("forebay at {forebay:.0}/s is {ratio_bare:.2} of a bare queue and {ratio:.2} of the same rows"));
        say(format!("{wal_bytes:.0} bytes of WAL per execution, {hot:.2} of the updates touch no index"));
        figures.insert("ratio_bare".to_owned(), json!(round(ratio_bare)));
        figures.insert("hot_ratio".to_owned(), json!(round(hot)));
        figures.insert("wal_bytes_per_execution".to_owned(), json!(wal_bytes.round()));
        figures.insert("ceiling_bare_per_s".to_owned(), json!(bare.round()));
        figures.insert("ceiling_same_rows_per_s".to_owned(), json!(same_rows.round()));
        figures.insert("forebay_per_s".to_owned(), json!(forebay.round()));
        figures.insert("ratio".to_owned(), json!(round(ratio)));
        let cpu = json!({
            "same_rows": ceiling(|one| one.cpu_us).round(),
            "database": life(|one| one.database_us).round(),
            "service": life(|one| one.service_us).round(),
        });
        figures.insert("cpu_us_per_execution".to_owned(), cpu);
        let lifecycle = &lives[0];
        figures.insert("commits_per_execution".to_owned(), json!(round(lifecycle.commits)));
        figures.insert("statements_per_execution".to_owned(), json!(lifecycle.statements.map(round)));
        Ok(ratio_bare >= LEAST_OF_BARE && hot >= LEAST_HOT && wal_bytes <= MOST_WAL_BYTES)
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
