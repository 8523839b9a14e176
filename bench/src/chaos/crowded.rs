//! Crowded: every process is full, and one after the other is killed.
//!
//!     fill ──▶ kills (one every 20 s; a quiet workspace starts something each second) ──▶ heal ──▶ drain ──▶ audit
//!
//! Invariants
//! - The runs of a dead process soon have another owner, although no process has room to spare.
//! - An item of a quiet workspace, enqueued in plain SQL, starts within a poll interval, a shard lease and one turn of
//!   the workspaces.
//! - Every shard has an owner all the time, except during the lease of a process that died.
//!
//! Not here: polling the database during the run (`watch`).

mod watch;

use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::mutant::{self, Mutant};
use super::setup::{Setup, Stage};
use super::{ChaosOptions, Leases, Outcome, ms, seconds};
use crate::receiver::{Policy, Receiver};
use crate::report::{machine, progress, say};
use watch::{Observed, Watch};

const PROCESSES: usize = 3;
/// Runs of one process: nine, and one place reserved for a run that already holds a slot.
const MAX_RUNS: usize = 10;
/// How long a call takes.
const CALL_MS: u64 = 5_000;
/// Workspaces that flood, and the slots of each: more than all processes hold.
const FLOODS: usize = 2;
const LIMIT: i32 = 20;
/// How long a quiet item may wait.
const QUIET_WITHIN: Duration = Duration::from_secs(6);

/// How long the parts of a run last.
#[derive(Clone, Copy, Debug)]
struct Size {
    leases: Leases,
    kills: u32,
    every: Duration,
    /// Items of each flood that wait at any time.
    waiting: i64,
    /// Within this time another process must own the runs of a dead one.
    taken_over_within: Duration,
    patience: Duration,
}

impl Size {
    fn of(short: bool) -> Size {
        let poll = if short { 200 } else { 1_000 };
        let leases = Leases { poll, ..Leases::of(short) };
        let (kills, every, waiting) =
            if short { (3, Duration::from_secs(6), 15) } else { (9, Duration::from_secs(20), 40) };
        let taken_over_within = ms(leases.runs + 2 * CALL_MS);
        Size { leases, kills, every, waiting, taken_over_within, patience: Duration::from_secs(120) }
    }
}

/// Runs the crowded run.
pub async fn run(options: &ChaosOptions, mutant: Option<Mutant>) -> anyhow::Result<Outcome> {
    let size = Size::of(options.short);
    say(format!(
        "crowded: {PROCESSES} processes of {MAX_RUNS} runs, calls of {CALL_MS} ms, {} kills, one every {} s, seed {}",
        size.kills,
        size.every.as_secs(),
        options.seed
    ));
    let machine = machine();
    let call = (CALL_MS, CALL_MS);
    let policy = Policy { seed: options.seed, fast: call, slow: call, slow_every: 1, repeat: ms(CALL_MS) };
    let mut stage = Stage::new(PROCESSES, size.leases, policy);
    stage.settings = vec![format!("engine.max_runs={MAX_RUNS}")];
    let setup = Setup::start(options, stage).await?;
    let tenants = setup.tenants(FLOODS + 1, &[flood(&setup.receiver), quiet()]).await?;
    let sql = format!("UPDATE workspace SET limit_override = {LIMIT}");
    setup.client.batch_execute(&sql).await.context("set the limits")?;
    mutant::mutate(&setup.client, mutant).await?;
    let run = Run {
        floods: tenants[..FLOODS].iter().map(|tenant| (tenant.id, tenant.definitions[0].id)).collect(),
        quiet: (tenants[FLOODS].id, tenants[FLOODS].definitions[1].id),
        setup,
        size,
        began: Instant::now(),
    };
    let outcome = run.played(options, mutant, machine).await?;
    if let Some(logs) = run.setup.stop(options.keep_logs || !outcome.broken.is_empty()).await? {
        say(format!("the processes' logs are in {}", logs.display()));
    }
    Ok(outcome)
}

fn flood(receiver: &Receiver) -> Value {
    let call = json!({ "kind": "HTTP_REQUEST", "with": receiver.node("call", false) });
    json!({ "version": 1, "name": "flood", "nodes": { "call": call } })
}

fn quiet() -> Value {
    let say = json!({ "kind": "LOG", "with": { "message": "here" } });
    json!({ "version": 1, "name": "quiet", "nodes": { "say": say } })
}

struct Run {
    setup: Setup,
    size: Size,
    /// Workspaces and their definitions.
    floods: Vec<(Uuid, Uuid)>,
    quiet: (Uuid, Uuid),
    began: Instant,
}

impl Run {
    async fn played(&self, options: &ChaosOptions, mutant: Option<Mutant>, machine: Value) -> anyhow::Result<Outcome> {
        self.fill().await?;
        let (stop, found) = (CancellationToken::new(), CancellationToken::new());
        let watch = Watch::new(&self.setup, self.size.leases, LIMIT).await?;
        let watching = tokio::spawn(watch.run(stop.clone(), found.clone()));
        let kills = async {
            for kill in 0..self.size.kills {
                tokio::time::sleep(self.size.every).await;
                let place = usize::try_from(kill)? % PROCESSES;
                self.setup.fleet.kill(place);
                self.setup.fleet.restart(place).await?;
            }
            tokio::time::sleep(self.size.every).await;
            anyhow::Ok(())
        };
        tokio::select! {
            killed = kills => killed?,
            fed = self.feed() => fed?,
            // A mutant that was detected ends the run early.
            () = found.cancelled(), if mutant.is_some() => {}
        }
        let is_over = mutant.is_some() && found.is_cancelled();
        if !is_over {
            self.drain().await?;
        }
        stop.cancel();
        let seen = watching.await.context("watch the database")??;
        let lost = if is_over { 0 } else { self.setup.open().await? };
        self.judged(options, mutant, machine, &seen, lost).await
    }

    /// Fills every process, one run after the other. Calls that begin together would also end together, and then a
    /// process would have much room at once, or none.
    async fn fill(&self) -> anyhow::Result<()> {
        let full = PROCESSES * (MAX_RUNS - MAX_RUNS / 10);
        let apart = ms(CALL_MS) / u32::try_from(full)?;
        let mut next = self.floods.iter().cycle();
        while usize::try_from(self.setup.slots().await?)? < full {
            if let Some(flood) = next.next() {
                self.enqueue(*flood, 1).await?;
            }
            progress(format!("{:>4} s  filling", self.began.elapsed().as_secs()));
            anyhow::ensure!(self.began.elapsed() < self.size.patience, "the processes were never full");
            tokio::time::sleep(apart).await;
        }
        Ok(())
    }

    /// Keeps the backlogs of the flooding workspaces full, and enqueues an item of the quiet workspace each second.
    async fn feed(&self) -> anyhow::Result<()> {
        loop {
            self.top_up().await?;
            self.enqueue(self.quiet, 1).await?;
            let kills = self.setup.fleet.history().kills.len();
            progress(format!("{:>4} s  kills {kills}", self.began.elapsed().as_secs()));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn top_up(&self) -> anyhow::Result<()> {
        for flood in &self.floods {
            let sql = "SELECT count(*) FROM execution_queue WHERE workspace_id = $1 AND stage = 0";
            let waiting: i64 = self.setup.client.query_one(sql, &[&flood.0]).await.context("count a flood")?.get(0);
            self.enqueue(*flood, self.size.waiting - waiting).await?;
        }
        Ok(())
    }

    /// Enqueues in plain SQL, so that no process receives a notification.
    async fn enqueue(&self, (workspace, definition): (Uuid, Uuid), many: i64) -> anyhow::Result<()> {
        let sql = "SELECT forebay.enqueue($1, $2, jsonb_build_object('n', n)) FROM generate_series(1, $3::bigint) AS n";
        self.setup.client.query(sql, &[&workspace, &definition, &many]).await.context("enqueue in SQL")?;
        Ok(())
    }

    /// Waits until everything has ended. An execution that does not is lost, and reported at the end.
    async fn drain(&self) -> anyhow::Result<()> {
        self.setup.fleet.heal().await?;
        let began = Instant::now();
        loop {
            let open = self.setup.open().await?;
            if open == 0 || began.elapsed() > self.size.patience {
                return Ok(());
            }
            progress(format!("{:>4} s  open {open}", self.began.elapsed().as_secs()));
            tokio::time::sleep(ms(200)).await;
        }
    }

    async fn judged(
        &self,
        options: &ChaosOptions,
        mutant: Option<Mutant>,
        machine: Value,
        seen: &Observed,
        lost: usize,
    ) -> anyhow::Result<Outcome> {
        let kills = self.setup.fleet.history().kills;
        let sql =
            "SELECT count(*), max(extract(epoch FROM coalesce(started_at, clock_timestamp()) - created_at))::float8
                     FROM workflow_execution WHERE workspace_id = $1";
        let row = self
            .setup
            .client
            .query_one(sql, &[&self.quiet.0])
            .await
            .context("read the executions of the quiet workspace")?;
        let (quiet_started, waited): (i64, Option<f64>) = (row.get(0), row.get(1));
        let quiet_wait = Duration::from_secs_f64(waited.unwrap_or_default().max(0.0));
        let taken_over = seen.taken_over_max(&kills);
        let broken = broken(&[
            ("adopted_max_s", taken_over > self.size.taken_over_within),
            ("quiet_wait_max_s", quiet_wait > QUIET_WITHIN),
            ("unowned_shards", !seen.unowned_shards.is_empty()),
            ("lost", lost > 0),
            ("over_cap", seen.over_cap > 0),
            ("never_interrupted", mutant.is_none() && !seen.interrupted(&kills)),
            ("no_quiet_starts", quiet_started == 0),
        ]);
        let figures = json!({
            "run": "crowded",
            "mutant": mutant.map(Mutant::name),
            "kills": kills.len(),
            "adopted_max_s": seconds(taken_over),
            "adopted_within_s": seconds(self.size.taken_over_within),
            "quiet_started": quiet_started,
            "quiet_wait_max_s": seconds(quiet_wait),
            "unowned_shards": seen.unowned_shards.len(),
            "lost": lost,
            "over_cap": seen.over_cap,
            "looks": seen.looks,
            "seconds": seconds(self.began.elapsed()),
            "seed": options.seed,
            "settings": {
                "processes": PROCESSES,
                "max_runs": MAX_RUNS,
                "call_ms": CALL_MS,
                "short": options.short,
                "leases": self.size.leases.json(),
            },
            "machine": machine,
        });
        Ok(Outcome { broken, figures })
    }
}

fn broken(checks: &[(&str, bool)]) -> Vec<String> {
    checks.iter().filter(|(_, is)| *is).map(|(name, _)| (*name).to_owned()).collect()
}
