//! Compares Forebay with other queues on PostgreSQL: same machine, same server, same run, in turns.
//!
//! Invariants
//! - Peers are installed from their registries in locked versions (`bench/peers`). Each is a small program that obeys
//!   orders of this harness.
//! - Every peer, like Forebay, has a new database for each measurement, which is vacuumed after it was filled.
//! - A rate counts from the begin of the first handler until no job is left. A pick-up counts from the call that sends
//!   a job until its handler begins.
//! - The promises are ratios to the best peer of the same run.
//!
//! Not here: how fast Forebay is compared with the database alone (`dispatch`).

mod cap;
mod forebay;
mod known;
mod program;
mod queue;
mod table;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

use self::cap::Capped;
use self::known::{PEERS, Peer};
use self::program::Programs;
use self::table::Row;
use crate::cluster::{Cluster, Commits, forebay_binary};
use crate::measure::stats::{Sample, median, round};
use crate::measure::world::World;
use crate::report::{self, say};

/// How often drain and pick-up are measured, in turns. The medians are compared.
const ROUNDS: usize = 3;
/// Eight processes of Forebay with pools of their own, or as many workers of a peer.
const CONNECTIONS: u32 = 250;
/// The promises are broken below these shares of the best peer's drain, and above this multiple of the best p99.
const LEAST_OF_BEST: f64 = 0.5;
const LEAST_OF_BEST_WITH_HISTORY: f64 = 0.7;
const MOST_LATENCY: f64 = 1.0;

/// What a run measures.
#[derive(Clone, Debug)]
pub struct PeersOptions {
    /// 1 means the full length. Use less to try the harness.
    pub scale: f64,
    /// Parts to measure. Empty for all.
    pub parts: Vec<String>,
    /// Write the table into the page about peers.
    pub write_page: bool,
}

/// The names of the parts.
pub const PARTS: [&str; 5] = ["drain", "pickup", "flood", "deep", "cap"];

/// How large a run is.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// Jobs of a drain, and of a flood.
    jobs: usize,
    /// Waiting jobs of the part `deep`.
    deep: usize,
    /// How long jobs are sent at a steady pace, after a second that does not count.
    pickup_s: usize,
    quiet_s: usize,
    cap_s: u64,
}

impl Sizes {
    fn of(scale: f64) -> Sizes {
        let scaled = |full: f64, least: usize| ((full * scale) as usize).max(least);
        Sizes {
            jobs: scaled(20_000.0, 1_000) / 1_000 * 1_000,
            deep: scaled(1_000_000.0, 20_000) / 4_000 * 4_000,
            pickup_s: scaled(20.0, 3),
            quiet_s: scaled(10.0, 2),
            cap_s: scaled(20.0, 8) as u64,
        }
    }
}

/// The result of a drain.
#[derive(Clone, Copy, Debug)]
struct Drained {
    per_s: f64,
    /// Processor time per job, in microseconds: of the server, and of the worker.
    server_us: f64,
    worker_us: f64,
}

/// How soon sent jobs began, in ms. A job that did not begin in time counts with the time it was waited for.
#[derive(Clone, Debug)]
struct PickUp {
    sample: Sample,
    never: usize,
}

/// Runs the measurement and prints it. True if the promises held.
pub async fn run(options: &PeersOptions) -> Result<bool> {
    if !(options.scale > 0.0 && options.scale <= 10.0) {
        bail!("--scale must be greater than 0 and at most 10");
    }
    let machine = report::machine();
    let binary = forebay_binary(None)?;
    let programs = Programs::find()?;
    let cluster = Cluster::start(&binary, Commits::Flushed, CONNECTIONS).await?;
    let cluster = cluster.counting(&binary, CONNECTIONS).await?;
    let bench = Bench {
        binary,
        sizes: Sizes::of(options.scale),
        cluster: &cluster,
        programs: &programs,
        rows: Rows::default(),
    };
    let measured = bench.measure(&options.parts).await;
    let settings = cluster.settings().await;
    cluster.stop().await?;
    let (rows, settings) = (measured?, settings?);
    programs.remove_logs()?;
    let figures = [("bench", json!("peers")), ("machine", machine), ("settings", Value::Object(settings))];
    let mut figures: Map<String, Value> = figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    figures.insert("scale".to_owned(), json!(options.scale));
    let held = add_ratios(&rows, &mut figures);
    figures.insert("held".to_owned(), json!(held));
    let table = table::text(&rows);
    say(&table);
    if options.write_page {
        table::write_page(&table, &figures)?;
    }
    figures.insert("table".to_owned(), rows.values().map(Row::json).collect());
    report::print_figures(&Value::Object(figures))?;
    Ok(held)
}

/// Compares Forebay with the best peers. True if no promise is broken.
fn add_ratios(rows: &BTreeMap<usize, Row>, figures: &mut Map<String, Value>) -> bool {
    let Some(ours) = rows.values().find(|row| row.is_ours) else { return true };
    let peers = || rows.values().filter(|row| !row.is_ours);
    let best = |keeping: bool| {
        peers().filter(|row| row.keeps_history || !keeping).filter_map(Row::drain_per_s).max_by(f64::total_cmp)
    };
    let soonest = peers().filter_map(Row::pick_up_p99).min_by(f64::total_cmp);
    let mut held = true;
    let mut add = |name: &str, ours: Option<f64>, best: Option<f64>, is_good: &dyn Fn(f64) -> bool| {
        let ratio = ours.zip(best).map(|(ours, best)| ours / best);
        held &= ratio.is_none_or(is_good);
        figures.insert(name.to_owned(), json!(ratio.map(round)));
    };
    let drain = ours.drain_per_s();
    add("ratio_best_peer", drain, best(false), &|ratio| ratio >= LEAST_OF_BEST);
    add("ratio_best_peer_with_history", drain, best(true), &|ratio| ratio >= LEAST_OF_BEST_WITH_HISTORY);
    add("latency_ratio_best_peer", ours.pick_up_p99(), soonest, &|ratio| ratio <= MOST_LATENCY);
    // Reported, not judged: an earlier moment, that of the claim, is what other benchmarks of Forebay call the start.
    add("latency_ratio_until_claimed", ours.claimed_p99(), soonest, &|_| true);
    held
}

/// The rows of the table, in its order. Forebay is the last.
type Rows = BTreeMap<usize, Row>;

struct Bench<'a> {
    binary: PathBuf,
    sizes: Sizes,
    cluster: &'a Cluster,
    programs: &'a Programs,
    rows: Rows,
}

impl Bench<'_> {
    async fn measure(mut self, parts: &[String]) -> Result<Rows> {
        let wanted = |part: &str| parts.is_empty() || parts.iter().any(|name| name == part);
        for (at, peer) in PEERS.iter().enumerate() {
            self.rows.insert(at, Row::of(peer, self.version(peer).await?));
        }
        self.rows.insert(PEERS.len(), Row::ours());
        if wanted("drain") {
            self.drain().await.context("drain")?;
        }
        if wanted("pickup") {
            self.pick_up().await.context("pickup")?;
        }
        if wanted("flood") {
            self.flood().await.context("flood")?;
        }
        if wanted("deep") {
            self.deep().await.context("deep")?;
        }
        if wanted("cap") {
            self.cap().await.context("cap")?;
        }
        Ok(self.rows)
    }

    async fn version(&self, peer: &'static Peer) -> Result<String> {
        let queue = self.queue(peer, 0).await?;
        let version = queue.version.clone();
        queue.remove().await?;
        Ok(version)
    }

    async fn drain(&mut self) -> Result<()> {
        for round in 1..=ROUNDS {
            for (at, peer) in PEERS.iter().enumerate() {
                let queue = self.queue(peer, 0).await?;
                let drained = queue.drain(self.sizes.jobs).await.context(peer.name)?;
                queue.remove().await?;
                self.note_drain(round, at, drained);
            }
            let world = self.world(&format!("forebay_drain_{round}")).await?;
            let drained = forebay::drain(&world, self.sizes.jobs).await.context("Forebay")?;
            self.note_drain(round, PEERS.len(), drained);
        }
        Ok(())
    }

    fn note_drain(&mut self, round: usize, at: usize, drained: Drained) {
        let Some(row) = self.rows.get_mut(&at) else { return };
        say(format!(
            "{round} of {ROUNDS}: {}: {:.0} jobs/s, {:.0} us of the server and {:.0} of the worker each",
            row.name, drained.per_s, drained.server_us, drained.worker_us
        ));
        row.drains.push(drained);
    }

    async fn pick_up(&mut self) -> Result<()> {
        for round in 1..=ROUNDS {
            for (at, peer) in PEERS.iter().enumerate() {
                let queue = self.queue(peer, 0).await?;
                let picked = queue.pick_up(self.sizes.pickup_s).await.context(peer.name)?;
                queue.remove().await?;
                self.note_pick_up(round, at, picked);
            }
            let world = self.world(&format!("forebay_pickup_{round}")).await?;
            let (picked, claimed) = forebay::pick_up(&world, self.sizes.pickup_s).await.context("Forebay")?;
            self.note_pick_up(round, PEERS.len(), picked);
            if let Some(row) = self.rows.get_mut(&PEERS.len()) {
                say(format!("  until claimed: p50 {:.2} ms, p99 {:.2}", claimed.p50(), claimed.p99()));
                row.claims.push(claimed);
            }
        }
        Ok(())
    }

    fn note_pick_up(&mut self, round: usize, at: usize, picked: PickUp) {
        let Some(row) = self.rows.get_mut(&at) else { return };
        let (p50, p99) = (picked.sample.p50(), picked.sample.p99());
        say(format!("{round} of {ROUNDS}: {}: pick-up p50 {p50:.2} ms, p99 {p99:.2}", row.name));
        row.pick_ups.push(picked);
    }

    async fn flood(&mut self) -> Result<()> {
        for (at, peer) in PEERS.iter().enumerate() {
            let queue = self.queue(peer, known::LIMIT).await?;
            let (_, quiet) = queue.flood(self.sizes.jobs, self.sizes.quiet_s).await.context(peer.name)?;
            queue.remove().await?;
            self.note_quiet(at, quiet, |row, quiet| row.flood = Some(quiet));
        }
        let world = self.world("forebay_flood").await?;
        let quiet = forebay::flood(&world, self.sizes.jobs, self.sizes.quiet_s).await.context("Forebay")?;
        self.note_quiet(PEERS.len(), quiet, |row, quiet| row.flood = Some(quiet));
        Ok(())
    }

    fn note_quiet(&mut self, at: usize, quiet: PickUp, set: impl FnOnce(&mut Row, PickUp)) {
        let Some(row) = self.rows.get_mut(&at) else { return };
        let (p50, p99) = (quiet.sample.p50(), quiet.sample.p99());
        say(format!("{}: beside a flood p50 {p50:.2} ms, p99 {p99:.2}, {} never", row.name, quiet.never));
        set(row, quiet);
    }

    async fn deep(&mut self) -> Result<()> {
        let (deep, jobs, quiet_s) = (self.sizes.deep, self.sizes.jobs, self.sizes.quiet_s);
        for (at, peer) in PEERS.iter().enumerate() {
            let queue = self.queue(peer, 0).await?;
            let (waiting, per_s) = queue.drain_of(deep, jobs).await.context(peer.name)?;
            queue.remove().await?;
            self.note_deep(at, waiting, per_s);
            let queue = self.queue(peer, known::LIMIT).await?;
            let (_, quiet) = queue.flood(deep, quiet_s).await.context(peer.name)?;
            queue.remove().await?;
            self.note_quiet(at, quiet, |row, quiet| row.deep_flood = Some(quiet));
        }
        let world = self.world("forebay_deep").await?;
        let per_s = forebay::drain_of(&world, deep, jobs).await.context("Forebay")?;
        self.note_deep(PEERS.len(), deep, per_s);
        let world = self.world("forebay_deep_flood").await?;
        let quiet = forebay::flood(&world, deep, quiet_s).await.context("Forebay")?;
        self.note_quiet(PEERS.len(), quiet, |row, quiet| row.deep_flood = Some(quiet));
        Ok(())
    }

    fn note_deep(&mut self, at: usize, waiting: usize, per_s: f64) {
        let Some(row) = self.rows.get_mut(&at) else { return };
        say(format!("{}: {waiting} waiting, {per_s:.0} jobs/s", row.name));
        row.deep = Some((waiting, per_s));
    }

    async fn cap(&mut self) -> Result<()> {
        for (at, peer) in PEERS.iter().enumerate() {
            let queue = self.queue(peer, known::LIMIT).await?;
            let capped = cap::measure(&queue, self.sizes.cap_s).await.context(peer.name)?;
            queue.remove().await?;
            self.note_cap(at, capped);
        }
        let world = self.world("forebay_cap").await?;
        let capped = cap::measure_ours(&self.binary, &world, self.sizes.cap_s).await.context("Forebay")?;
        self.note_cap(PEERS.len(), capped);
        Ok(())
    }

    fn note_cap(&mut self, at: usize, capped: Capped) {
        let Some(row) = self.rows.get_mut(&at) else { return };
        say(format!(
            "{}: at most {} ran at once, {} began, {} kills",
            row.name, capped.most, capped.begun, capped.kills
        ));
        row.cap = Some(capped);
    }

    /// A new database with the tables of a peer. A limit other than zero is that of a tenant.
    async fn queue(&self, peer: &'static Peer, limit: usize) -> Result<queue::Queue<'_>> {
        queue::Queue::create(self.cluster, self.programs, peer, limit).await.context(peer.name)
    }

    /// A new database with Forebay's tables.
    async fn world(&self, name: &str) -> Result<World> {
        World::create(self.cluster, name).await
    }
}

/// The median of what each round gave. None without rounds.
fn median_of<T>(rounds: &[T], of: impl Fn(&T) -> f64) -> Option<f64> {
    (!rounds.is_empty()).then(|| median(&rounds.iter().map(of).collect::<Vec<_>>()))
}
