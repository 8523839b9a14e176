//! Measures admission: claims must stay fast next to any backlog, and fair while a workspace floods the queue.
//!
//! Invariants
//! - Commits are flushed, as in production. Every figure has a baseline from the same run.
//! - A slow claim or a delayed quiet workspace is reported as a broken promise. This result differs from an error of
//!   the measurement itself.
//!
//! Not here: throughput, faults (`chaos`).

mod cases;
mod claims;
mod moves;
mod quiet;
mod shares;
mod snapshot;
mod table;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::cluster::{Cluster, Commits, forebay_binary};
use crate::measure::stats::round;
use crate::measure::world::World;
use crate::report::{self, say};
use cases::Case;
use claims::Probe;
use moves::Moved;
use quiet::{ALONE, Arm, CHURNING, ELSEWHERE, HELD, SlowServer};

/// The promise is broken above this ratio.
const MOST: f64 = 2.0;
/// And above this one for a claim beside a million waiting items, and for one under an old snapshot.
const MOST_WAITING: f64 = 1.2;
const MOST_UNDER_SNAPSHOT: f64 = 1.5;
const ROUNDS: usize = 300;
const QUIET_RUNS: usize = 5;
const QUIET_SECONDS: u32 = 15;

/// What a run measures.
#[derive(Clone, Debug)]
pub struct AdmissionOptions {
    /// 1 means a million items. Use less to try the harness.
    pub scale: f64,
    /// Parts to measure: claims, moves, snapshot, quiet, shares.
    pub parts: Vec<String>,
}

/// The names of the parts.
pub const PARTS: [&str; 5] = ["claims", "moves", "snapshot", "quiet", "shares"];

/// How large a run is.
#[derive(Clone, Copy, Debug)]
struct Scale(f64);

impl Scale {
    /// A million, at full scale.
    fn million(self) -> i64 {
        ((1_000_000.0 * self.0) as i64).max(10_000)
    }

    fn rounds(self) -> usize {
        ((ROUNDS as f64 * self.0.max(0.1)) as usize).max(30)
    }

    fn seconds(self, full: u32) -> u32 {
        ((f64::from(full) * self.0.max(0.2)) as u32).max(3)
    }
}

/// Runs the measurement and prints it. True if the promises held.
pub async fn run(options: &AdmissionOptions) -> Result<bool> {
    if !(options.scale > 0.0 && options.scale <= 10.0) {
        bail!("--scale must be greater than 0 and at most 10");
    }
    let machine = report::machine();
    let cluster = Cluster::start(&forebay_binary(None)?, Commits::Flushed, 200).await?;
    let bench = Bench { scale: Scale(options.scale), cluster: &cluster };
    let measured = async {
        bench.prepare().await?;
        bench.measure(&options.parts).await
    }
    .await;
    let settings = match &measured {
        Ok(_) => bench.settings().await,
        Err(_) => Ok(Value::Null),
    };
    cluster.stop().await?;
    let (figures, held) = measured?;
    let line = json!({
        "bench": "admission", "machine": machine, "postgres": settings?, "scale": options.scale,
        "figures": figures, "held": held,
    });
    report::print_figures(&line)?;
    Ok(held)
}

struct Bench<'a> {
    scale: Scale,
    cluster: &'a Cluster,
}

impl Bench<'_> {
    /// Lets autovacuum look at the tables every 10 s instead of every minute.
    async fn prepare(&self) -> Result<()> {
        let client = self.cluster.target()?.connect().await?;
        client.batch_execute("ALTER SYSTEM SET autovacuum_naptime = '10s'").await?;
        client.batch_execute("SELECT pg_reload_conf()").await?;
        Ok(())
    }

    async fn settings(&self) -> Result<Value> {
        let client = self.cluster.target()?.connect().await?;
        let names = [
            "server_version",
            "fsync",
            "synchronous_commit",
            "shared_buffers",
            "max_wal_size",
            "checkpoint_timeout",
            "autovacuum_naptime",
            "jit",
        ];
        let rows = client
            .query("SELECT name, current_setting(name) FROM unnest($1::text[]) AS name", &[&names.as_slice()])
            .await?;
        Ok(rows.iter().map(|row| (row.get::<_, String>(0), json!(row.get::<_, String>(1)))).collect())
    }

    /// A new database of the cluster.
    async fn world(&self, name: &str) -> Result<World> {
        World::create(self.cluster, name).await
    }

    async fn drop_world(&self, name: &str) -> Result<()> {
        let client = self.cluster.target()?.connect().await?;
        client.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await.context("drop a database")
    }

    async fn checkpoint(&self) -> Result<()> {
        let client = self.cluster.target()?.connect().await?;
        client.batch_execute("SET statement_timeout = 0").await?;
        client.batch_execute("CHECKPOINT").await.context("checkpoint")
    }

    async fn measure(&self, parts: &[String]) -> Result<(Value, bool)> {
        let wanted = |part: &str| parts.is_empty() || parts.iter().any(|wanted| wanted == part);
        let (mut figures, mut held) = (Map::new(), true);
        let mut flat_ratio = 0f64;
        if wanted("claims") {
            let (ratio, waiting) = self.claims(&mut figures).await?;
            flat_ratio = flat_ratio.max(ratio);
            held &= waiting <= MOST_WAITING;
        }
        if wanted("moves") {
            flat_ratio = flat_ratio.max(self.moves(&mut figures).await?);
        }
        if flat_ratio > 0.0 {
            held &= flat_ratio <= MOST;
            figures.insert("flat_ratio".to_owned(), json!(round(flat_ratio)));
        }
        if wanted("snapshot") {
            held &= self.snapshot(&mut figures).await? <= MOST_UNDER_SNAPSHOT;
        }
        if wanted("quiet") {
            held &= self.quiet(&mut figures).await? <= MOST;
        }
        if wanted("shares") {
            self.shares(&mut figures).await?;
        }
        Ok((Value::Object(figures), held))
    }

    /// Measures claims beside backlogs that do not change. Returns the worst ratio of their p50 to that of an empty
    /// queue, and that beside a million waiting items.
    async fn claims(&self, figures: &mut Map<String, Value>) -> Result<(f64, f64)> {
        let mut probes: Vec<Probe> = Vec::new();
        for (name, case) in cases::standing(self.scale) {
            say(format!("loading {name}…"));
            probes.push(case.build(name, self.world(name).await?).await?);
        }
        self.checkpoint().await?;
        say(format!("claiming in turns, {} rounds of {} cases…", self.scale.rounds(), probes.len()));
        let stop = CancellationToken::new();
        let sweeps = tokio::spawn(claims::sweep(probes.clone(), stop.clone()));
        let claims = claims::claim_in_turns(&probes, self.scale.rounds()).await;
        stop.cancel();
        let sweeps = sweeps.await.context("the sweeps stopped early")??;
        let claims = claims?;
        let names: Vec<&'static str> = probes.iter().map(|probe| probe.name).collect();
        drop(probes);
        for name in &names {
            self.drop_world(name).await?;
        }
        let ratio = table::claims(&names, &claims, &sweeps);
        let by_case = claims.iter().map(|(name, sample)| ((*name).to_owned(), sample.json())).collect();
        let sweep_ms = sweeps.iter().map(|(name, (ready, unblock))| {
            ((*name).to_owned(), json!({ "sweep": round(ready.p50()), "unblock": round(unblock.p50()) }))
        });
        figures.insert("claim_ms".to_owned(), Value::Object(by_case));
        figures.insert("sweep_ms".to_owned(), Value::Object(sweep_ms.collect()));
        let waiting = claims["waiting_1m"].p50() / claims["empty"].p50();
        figures.insert("waiting_ratio".to_owned(), json!(round(waiting)));
        Ok((ratio, waiting))
    }

    /// Measures claims after many executions have ended under one open snapshot. Returns the ratio of their p50 to that
    /// of a database where none ended.
    async fn snapshot(&self, figures: &mut Map<String, Value>) -> Result<f64> {
        let none = Case::Empty.build("none_ended", self.world("none_ended").await?).await?;
        let ended = Case::Empty.build("snapshot", self.world("snapshot").await?).await?;
        let many = self.scale.million() / 10;
        say(format!("ending {many} executions under an open snapshot…"));
        let snapshot = snapshot::open(&ended.world).await?;
        snapshot::end_many(&ended, many).await?;
        let claims = claims::claim_in_turns(&[none, ended], self.scale.rounds()).await?;
        drop(snapshot);
        for name in ["none_ended", "snapshot"] {
            self.drop_world(name).await?;
        }
        let ratio = table::snapshot(&claims, many);
        let by_case = claims.iter().map(|(name, sample)| ((*name).to_owned(), sample.json())).collect();
        figures.insert("snapshot_claim_ms".to_owned(), Value::Object(by_case));
        figures.insert("snapshot_ratio".to_owned(), json!(round(ratio)));
        Ok(ratio)
    }

    /// Measures claims beside backlogs that change. Returns the worst ratio of their p50 to that of an empty queue at
    /// the same time.
    async fn moves(&self, figures: &mut Map<String, Value>) -> Result<f64> {
        let empty = Case::Empty.build("empty_beside", self.world("empty_beside").await?).await?;
        let (million, rounds) = (self.scale.million(), self.scale.rounds());
        say("loading pausing_1m…");
        let pausing = Case::Pausing(million).build("pausing_1m", self.world("pausing_1m").await?).await?;
        self.checkpoint().await?;
        say("pausing a definition with all of them ready…");
        let workspace = pausing.tenants[0].workspace;
        moves::pause_all(&pausing.world, workspace, &pausing.tenants).await?;
        let mover = moves::block_items(pausing.world.clone(), workspace);
        let paused = moves::measure(&pausing, &empty, rounds, mover).await?;
        drop(pausing);
        self.drop_world("pausing_1m").await?;

        say("loading due_1m…");
        let due = Case::Due(million).build("due_1m", self.world("due_1m").await?).await?;
        self.checkpoint().await?;
        say("letting all of them become due…");
        let promoted = moves::measure(&due, &empty, rounds, moves::promote(due.world.clone())).await?;
        drop((due, empty));
        self.drop_world("due_1m").await?;
        self.drop_world("empty_beside").await?;

        let all = [("paused_1m", paused), ("due_1m", promoted)];
        table::moves(&all);
        let json = all.iter().map(|(name, moved)| ((*name).to_owned(), moved.json())).collect();
        figures.insert("moves".to_owned(), Value::Object(json));
        Ok(all.iter().map(|(_, moved)| Moved::ratio(moved)).fold(0.0, f64::max))
    }

    /// Measures a quiet workspace beside a flood. Returns the worst ratio of its p99 to its baseline's.
    async fn quiet(&self, figures: &mut Map<String, Value>) -> Result<f64> {
        let slow = SlowServer::start().await?;
        let (held, churning) = (slow.document(), log_document());
        let mut arms = Vec::new();
        let floods = [(ALONE, None), (HELD, Some(&held)), (ELSEWHERE, Some(&churning)), (CHURNING, Some(&churning))];
        for (name, flood) in floods {
            say(format!("loading quiet, {name}…"));
            let world = self.world(&format!("quiet_{name}")).await?;
            let elsewhere = if name == ELSEWHERE { Some(self.world("flooded").await?) } else { None };
            arms.push(Arm::build(name, world, elsewhere, flood, &slow, self.scale).await?);
        }
        self.checkpoint().await?;
        let seconds = self.scale.seconds(QUIET_SECONDS);
        for run in 1..=QUIET_RUNS {
            say(format!("quiet beside a flood, round {run} of {QUIET_RUNS}, {seconds} s per arm…"));
            for arm in &mut arms {
                arm.run(seconds).await.with_context(|| format!("quiet, {}", arm.name))?;
            }
        }
        table::quiet(&arms);
        let names: Vec<&'static str> = arms.iter().map(|arm| arm.name).collect();
        let (json, ratio) = quiet::figures(&arms);
        drop(arms);
        for name in names {
            self.drop_world(&format!("quiet_{name}")).await?;
        }
        self.drop_world("flooded").await?;
        figures.insert("quiet".to_owned(), json);
        figures.insert("quiet_p99_ratio".to_owned(), json!(round(ratio)));
        Ok(ratio)
    }

    async fn shares(&self, figures: &mut Map<String, Value>) -> Result<()> {
        say("twenty equal workspaces and one of weight 3 saturate a process…");
        let shares = shares::measure(&self.world("shares").await?, self.scale).await?;
        table::shares(&shares);
        figures.insert("jain".to_owned(), json!(round(shares.jain())));
        figures.insert("shares".to_owned(), shares.json());
        Ok(())
    }
}

/// A workflow of one node that only computes.
fn log_document() -> Value {
    json!({ "version": 1, "name": "log", "nodes": { "say": { "kind": "LOG", "with": { "message": "hello" } } } })
}
