//! Soak: a steady load for minutes, with kills and an old open snapshot. Throughput and memory must stay stable.
//!
//! Invariants
//! - There is always a backlog, so the run measures the speed of the service, not that of the load.
//! - One process is never killed; the run measures the memory of that process.
//! - The snapshot is open for the middle third. During that time no dead row can be removed.
//!
//! Not here: whether limits hold (`strict`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use kernel::ids::{DefinitionId, ExecutionId, WorkspaceId};
use kernel::queue::Priority;
use serde_json::{Value, json};
use store::Store;
use store::connect::Client;
use store::queue::enqueue::Start;
use tokio_util::sync::CancellationToken;

use super::setup::{Setup, Stage, Tenant};
use super::{ChaosOptions, Leases, Outcome, ms, seconds};
use crate::random::Random;
use crate::receiver::Policy;
use crate::report::{machine, progress, rss_mb, say};

const PROCESSES: usize = 3;
const TENANTS: usize = 20;
/// The minimum number of waiting items; below it, a batch is added. A short run keeps fewer, so that it drains sooner.
const WAITING: i64 = 4_000;
const WAITING_SHORT: i64 = 1_000;
const BATCH: usize = 200;
/// The throughput at the end must be at least this share of that at the start. Short runs depend more on the machine's
/// other load, so less is required of them.
const LEAST: f64 = 0.8;
const LEAST_SHORT: f64 = 0.5;
/// The maximum growth of memory.
const MOST_GROWTH: f64 = 1.5;
/// Dead rows that may be left at the end: those of the seconds between two vacuums.
const DEAD_AT_THE_END: f64 = 200_000.0;
/// The maximum time between two vacuums (autovacuum runs once a minute), and how many dead rows an execution leaves.
const BETWEEN_VACUUMS_S: f64 = 75.0;
const DEAD_OF_ONE: f64 = 4.0;
const HOT: &str = "'execution_queue', 'workflow_execution', 'workflow_execution_node'";

/// Runs the soak for this many minutes.
pub async fn run(options: &ChaosOptions, minutes: f64) -> anyhow::Result<Outcome> {
    let length = if options.short { Duration::from_secs(18) } else { Duration::from_secs_f64(minutes * 60.0) };
    say(format!("soak: {PROCESSES} processes, {TENANTS} workspaces, {} s, seed {}", length.as_secs(), options.seed));
    let machine = machine();
    let policy = Policy { seed: options.seed, fast: (0, 0), slow: (0, 0), slow_every: 1, repeat: ms(0) };
    let leases = Leases::of(options.short);
    let stage = Stage { noted: false, ..Stage::new(PROCESSES, leases, policy) };
    let setup = Setup::start(options, stage).await?;
    let document =
        json!({ "version": 1, "name": "one", "nodes": { "say": { "kind": "LOG", "with": { "message": "hello" } } } });
    let tenants = setup.tenants(TENANTS, &[document]).await?;
    setup.client.batch_execute("UPDATE workspace SET limit_override = 20").await.context("set the limits")?;
    let waiting = if options.short { WAITING_SHORT } else { WAITING };
    let soak = Soak { setup: &setup, length, waiting, began: Instant::now() };
    let (samples, lost) = setup.while_all_live(soak.run(tenants.into(), Random::new(options.seed))).await?;
    let kills = setup.fleet.history().kills.len();
    let least = if options.short { LEAST_SHORT } else { LEAST };
    let (mut figures, broken) = judge(&samples, length, lost, least);
    figures["run"] = json!("soak");
    figures["seed"] = json!(options.seed);
    figures["minutes"] = json!(seconds(length) / 60.0);
    figures["kills"] = json!(kills);
    figures["machine"] = machine;
    figures["settings"] = json!({
        "processes": PROCESSES, "workspaces": TENANTS, "limit": 20, "waiting": waiting, "short": options.short,
        "leases": leases.json(), "fsync": "off: the database server itself is not killed",
    });
    if let Some(logs) = setup.stop(options.keep_logs || !broken.is_empty()).await? {
        say(format!("the processes' logs are in {}", logs.display()));
    }
    Ok(Outcome { broken, figures })
}

/// The state at one moment.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Duration,
    /// Deleted queue items, by the database's own count, which costs the same at the end as at the start.
    ended: i64,
    dead: i64,
    rss_mb: u64,
}

struct Soak<'a> {
    setup: &'a Setup,
    length: Duration,
    waiting: i64,
    began: Instant,
}

impl Soak<'_> {
    async fn run(&self, tenants: Arc<[Tenant]>, mut random: Random) -> anyhow::Result<(Vec<Sample>, i64)> {
        let stop = CancellationToken::new();
        let feeding = tokio::spawn(feed(
            self.setup.store.clone(),
            self.setup.cluster.target()?.connect().await?,
            tenants,
            self.waiting,
            stop.clone(),
        ));
        let mut samples = Vec::new();
        let mut snapshot = None;
        let mut next_kill = self.length / 8;
        let mut shown = Instant::now();
        while self.began.elapsed() < self.length {
            tokio::time::sleep((self.length / 120).clamp(ms(100), ms(5_000))).await;
            let sample = self.sample().await?;
            samples.push(sample);
            let middle = (self.length / 3..self.length * 2 / 3).contains(&sample.at);
            match (&snapshot, middle) {
                (None, true) => snapshot = Some(self.open_snapshot().await?),
                (Some(_), false) => snapshot = None,
                _ => {}
            }
            if sample.at >= next_kill {
                next_kill += self.length / 12;
                // The first process is never killed, because its memory is measured.
                let place = 1 + random.below(PROCESSES - 1);
                self.setup.fleet.kill(place);
                self.setup.fleet.restart(place).await?;
            }
            let text = format!(
                "{:>4} s  ended {}  dead rows {}  memory {} MB{}",
                sample.at.as_secs(),
                sample.ended,
                sample.dead,
                sample.rss_mb,
                if snapshot.is_some() { "  (an old snapshot is open)" } else { "" }
            );
            if shown.elapsed() > Duration::from_secs(30) {
                shown = Instant::now();
                say(text);
            } else {
                progress(text);
            }
        }
        stop.cancel();
        feeding.await.context("feeding stopped early")??;
        say("draining: waiting for every accepted execution to end");
        let patience = Instant::now();
        while self.setup.open().await? > 0 && patience.elapsed() < Duration::from_secs(120) {
            tokio::time::sleep(ms(200)).await;
        }
        Ok((samples, i64::try_from(self.setup.open().await?)? + self.failed().await?))
    }

    async fn failed(&self) -> anyhow::Result<i64> {
        let sql = "SELECT count(*) FROM workflow_execution WHERE completed_at IS NOT NULL AND status <> 'COMPLETED'";
        Ok(self.setup.client.query_one(sql, &[]).await?.get(0))
    }

    async fn sample(&self) -> anyhow::Result<Sample> {
        let sql = format!(
            "SELECT (SELECT n_tup_del FROM pg_stat_user_tables WHERE relname = 'execution_queue'),
                    (SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables WHERE relname IN ({HOT}))"
        );
        let row = self.setup.client.query_one(&sql, &[]).await?;
        let first = self.setup.fleet.pids().first().copied().context("the first process")?;
        Ok(Sample { at: self.began.elapsed(), ended: row.get(0), dead: row.get(1), rss_mb: rss_mb(first).unwrap_or(0) })
    }

    /// Opens a transaction that reads a row and stays open.
    async fn open_snapshot(&self) -> anyhow::Result<Client> {
        let client = self.setup.cluster.target()?.connect().await?;
        client
            .batch_execute(
                "SET idle_in_transaction_session_timeout = 0; BEGIN ISOLATION LEVEL REPEATABLE READ;
                 SELECT count(*) FROM workspace",
            )
            .await?;
        Ok(client)
    }
}

/// Keeps items waiting in the queue.
async fn feed(
    store: Store,
    client: Client,
    tenants: Arc<[Tenant]>,
    least: i64,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let waiting = format!("SELECT count(*) FROM (SELECT 1 FROM execution_queue WHERE stage = 0 LIMIT {least}) w");
    let mut turn = 0usize;
    while !stop.is_cancelled() {
        if client.query_one(&waiting, &[]).await?.get::<_, i64>(0) >= least {
            tokio::time::sleep(ms(20)).await;
            continue;
        }
        let tenant = &tenants[turn % tenants.len()];
        turn += 1;
        let starts: Vec<Start> = (0..BATCH).map(|_| start(tenant)).collect();
        store.enqueue(&starts, "harness").await.context("enqueue a batch")?;
    }
    Ok(())
}

fn start(tenant: &Tenant) -> Start {
    Start {
        execution: ExecutionId(store::new_id()),
        workspace: WorkspaceId(tenant.id),
        definition: DefinitionId(tenant.definitions[0].id),
        input: None,
        priority: Priority::USUAL,
        run_at: None,
        concurrency_key: None,
        idempotency: None,
        trigger: json!({ "type": "chaos" }),
        trace: None,
        version: None,
        rerun_of: None,
    }
}

/// Executions that ended per second between two shares of the run.
fn rate(samples: &[Sample], length: Duration, from: f64, to: f64) -> f64 {
    let within: Vec<&Sample> =
        samples.iter().filter(|sample| sample.at >= length.mul_f64(from) && sample.at <= length.mul_f64(to)).collect();
    let (Some(first), Some(last)) = (within.first(), within.last()) else { return 0.0 };
    let took = (last.at - first.at).as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let ended = (last.ended - first.ended) as f64;
    if took > 0.0 { ended / took } else { 0.0 }
}

fn judge(samples: &[Sample], length: Duration, lost: i64, least: f64) -> (Value, Vec<String>) {
    let (start, end) = (rate(samples, length, 0.05, 0.30), rate(samples, length, 0.75, 1.0));
    let ratio = if start > 0.0 { end / start } else { 0.0 };
    let rss =
        |share: f64| samples.iter().find(|sample| sample.at >= length.mul_f64(share)).map_or(0, |sample| sample.rss_mb);
    let last = samples.last().map_or(0, |sample| sample.rss_mb);
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    let growth = last as f64 / rss(0.2).max(1) as f64;
    let dead_max = samples.iter().map(|sample| sample.dead).max().unwrap_or(0);
    let dead_end = samples.iter().rev().take(10).map(|sample| sample.dead).min().unwrap_or(0);
    let broken = [
        ("throughput", ratio < least),
        ("memory", growth > MOST_GROWTH),
        ("dead_tuples", dead_end as f64 > DEAD_AT_THE_END.max(end * DEAD_OF_ONE * BETWEEN_VACUUMS_S)),
        ("lost", lost > 0),
    ];
    let round = |value: f64| (value * 1_000.0).round() / 1_000.0;
    let figures = json!({
        "start_per_s": start.round(), "end_per_s": end.round(), "ratio": round(ratio),
        // The middle third is slower, because dead rows cannot be removed. The throughput only has to recover
        // afterwards.
        "under_snapshot_per_s": rate(samples, length, 0.34, 0.66).round(),
        "dead_tuples_max": dead_max, "dead_tuples_end": dead_end, "rss_growth_ratio": round(growth),
        "rss_end_mb": last, "executions": samples.last().map_or(0, |sample| sample.ended), "lost": lost,
    });
    (figures, broken.into_iter().filter(|(_, broke)| *broke).map(|(name, _)| name.to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(rate: impl Fn(u64) -> i64, dead: i64, rss: impl Fn(u64) -> u64) -> Vec<Sample> {
        let mut ended = 0;
        (0..=100)
            .map(|at| {
                ended += rate(at);
                Sample { at: Duration::from_secs(at), ended, dead, rss_mb: rss(at) }
            })
            .collect()
    }

    #[test]
    fn what_wears_out_is_found_and_what_does_not_is_not() {
        let length = Duration::from_secs(100);
        let broken = |samples: &[Sample], lost| judge(samples, length, lost, LEAST).1;
        assert_eq!(broken(&line(|_| 100, 1_000, |_| 30), 0), Vec::<String>::new());
        assert_eq!(broken(&line(|at| 100 - i64::try_from(at / 2).expect("small"), 1_000, |_| 30), 0), ["throughput"]);
        assert_eq!(broken(&line(|_| 100, 1_000, |at| 30 + at), 0), ["memory"]);
        assert_eq!(broken(&line(|_| 100, 1_000_000, |_| 30), 1), ["dead_tuples", "lost"]);
    }
}
