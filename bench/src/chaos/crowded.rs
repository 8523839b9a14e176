//! Crowded: every process is as full as it may be, and one after the other is killed.
//!
//!     fill ──▶ kills (one every 20 s; a quiet workspace starts something each second) ──▶ heal ──▶ drain ──▶ audit
//!
//! Invariants
//! - The runs of a dead process have another owner soon, though nobody has room to spare.
//! - A quiet workspace, started in plain SQL, waits no longer than a poll, the lease of a shard and a turn.
//! - Every shard has an owner all the time, but for the lease of one that died.
//!
//! Not here: watching the database while it lasts (`watch`).

mod watch;

use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::mutant::{self, Mutant};
use super::setup::{Setup, Stage};
use super::{Leases, Outcome, Request, ms, seconds};
use crate::receiver::{Policy, Receiver};
use crate::report::{machine, progress, say};
use watch::{Seen, Watch};

const PROCESSES: usize = 3;
/// Runs of one process: nine, and one place for a run that holds a slot already.
const MAX_RUNS: usize = 10;
/// How long a call takes.
const CALL_MS: u64 = 5_000;
/// Workspaces that flood, each with so many slots: more than all processes hold.
const FLOODS: usize = 2;
const LIMIT: i32 = 20;
/// Items of each flood that wait at any time.
const WAITING: i64 = 40;
/// How long a quiet item may wait.
const QUIET_WITHIN: Duration = Duration::from_secs(6);

/// How long it lasts.
#[derive(Clone, Copy, Debug)]
struct Size {
    leases: Leases,
    kills: u32,
    every: Duration,
    /// How soon the runs of the dead must have an owner: they are told dead, and the calls of those who take them end.
    adopted_within: Duration,
    patience: Duration,
}

impl Size {
    fn of(short: bool) -> Size {
        let poll = if short { 200 } else { 1_000 };
        let leases = Leases { poll, ..Leases::of(short) };
        let (kills, every) = if short { (3, Duration::from_secs(8)) } else { (9, Duration::from_secs(20)) };
        let adopted_within = ms(leases.runs + 2 * CALL_MS);
        Size { leases, kills, every, adopted_within, patience: Duration::from_secs(120) }
    }
}

/// Runs it.
pub async fn run(request: &Request, mutant: Option<Mutant>) -> anyhow::Result<Outcome> {
    let size = Size::of(request.short);
    say(format!(
        "crowded: {PROCESSES} processes of {MAX_RUNS} runs, calls of {CALL_MS} ms, {} kills, one every {} s, seed {}",
        size.kills,
        size.every.as_secs(),
        request.seed
    ));
    let machine = machine();
    let call = (CALL_MS, CALL_MS);
    let policy = Policy { seed: request.seed, fast: call, slow: call, slow_every: 1, repeat: ms(CALL_MS) };
    let mut stage = Stage::new(PROCESSES, size.leases, policy);
    stage.settings = vec![format!("engine.max_runs={MAX_RUNS}")];
    let setup = Setup::start(request, stage).await?;
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
    let outcome = run.played(request, mutant, machine).await?;
    if let Some(logs) = run.setup.stop(request.keep_logs || !outcome.broken.is_empty()).await? {
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
    async fn played(&self, request: &Request, mutant: Option<Mutant>, machine: Value) -> anyhow::Result<Outcome> {
        self.fill().await?;
        let stop = CancellationToken::new();
        let watch = Watch::new(&self.setup, self.size.leases, LIMIT).await?;
        let watching = tokio::spawn(watch.run(stop.clone()));
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
        }
        self.drain().await?;
        stop.cancel();
        let seen = watching.await.context("watch the database")??;
        self.judged(request, mutant, machine, &seen).await
    }

    /// Fills every process, one run after the other: calls that all began together would all end together, and nobody
    /// would have room for their whole length.
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

    /// Keeps the floods high, and starts something quiet each second.
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
            self.enqueue(*flood, WAITING - waiting).await?;
        }
        Ok(())
    }

    /// In plain SQL: no process is told.
    async fn enqueue(&self, (workspace, definition): (Uuid, Uuid), many: i64) -> anyhow::Result<()> {
        let sql = "SELECT forebay.enqueue($1, $2, jsonb_build_object('n', n)) FROM generate_series(1, $3::bigint) AS n";
        self.setup.client.query(sql, &[&workspace, &definition, &many]).await.context("enqueue in SQL")?;
        Ok(())
    }

    /// Waits until everything has ended. What does not is lost, and told of at the end.
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
        request: &Request,
        mutant: Option<Mutant>,
        machine: Value,
        seen: &Seen,
    ) -> anyhow::Result<Outcome> {
        let (kills, lost) = (self.setup.fleet.history().kills, self.setup.open().await?);
        let sql =
            "SELECT count(*), max(extract(epoch FROM coalesce(started_at, clock_timestamp()) - created_at))::float8
                     FROM workflow_execution WHERE workspace_id = $1";
        let row = self.setup.client.query_one(sql, &[&self.quiet.0]).await.context("read the quiet ones")?;
        let (quiet_started, waited): (i64, Option<f64>) = (row.get(0), row.get(1));
        let quiet_wait = Duration::from_secs_f64(waited.unwrap_or_default().max(0.0));
        let adopted = seen.adopted_max(&kills);
        let broken = broken(&[
            ("adopted_max_s", adopted > self.size.adopted_within),
            ("quiet_wait_max_s", quiet_wait > QUIET_WITHIN),
            ("unowned_shards", !seen.unowned_shards.is_empty()),
            ("lost", lost > 0),
            ("over_cap", seen.over_cap > 0),
            ("never_interrupted", !seen.interrupted(&kills)),
            ("no_quiet_starts", quiet_started == 0),
        ]);
        let figures = json!({
            "run": "crowded",
            "mutant": mutant.map(Mutant::name),
            "kills": kills.len(),
            "adopted_max_s": seconds(adopted),
            "adopted_within_s": seconds(self.size.adopted_within),
            "quiet_started": quiet_started,
            "quiet_wait_max_s": seconds(quiet_wait),
            "unowned_shards": seen.unowned_shards.len(),
            "lost": lost,
            "over_cap": seen.over_cap,
            "looks": seen.looks,
            "seconds": seconds(self.began.elapsed()),
            "seed": request.seed,
            "settings": {
                "processes": PROCESSES,
                "max_runs": MAX_RUNS,
                "call_ms": CALL_MS,
                "short": request.short,
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
