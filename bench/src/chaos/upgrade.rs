//! Upgrade: a database with a long history moves to the next release under load, while a `pg_dump` is open.
//!
//!     load history ──▶ before (p99) ──▶ dump opens, the next release starts and waits ──▶ dump ends ──▶ it is ready
//!                                                            ──▶ the old processes stop, one by one ──▶ drain ──▶ audit
//!
//! Invariants
//! - No request fails, and the p99 during the upgrade is at most twice the p99 before it.
//! - Two releases really run side by side: the old release claims until its last process stops, then the new release
//!   claims.
//! - No workspace holds more slots than its limit, and everything that was accepted ends.
//!
//! The next release is synthetic (`store::release`): it adds a column and an index to the largest table, changes a
//! shared function, and has a higher protocol.
//!
//! Not here: the requests (`load`), the dump (`dump`).

mod dump;
mod load;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use store::connect::Client;
use tokio_util::sync::CancellationToken;

use super::mutant::Mutant;
use super::setup::{Setup, Stage, Tenant};
use super::{ChaosOptions, Leases, Outcome, ms, seconds};
use crate::measure::stats::round;
use crate::receiver::Policy;
use crate::report::{machine, progress, say};
use crate::service::{Fleet, Spec};
use dump::Dump;
use load::{LoadResults, UpgradeLoad};

/// Old processes, and new ones.
const PROCESSES: usize = 2;
const TENANTS: usize = 20;
/// p99 during the upgrade, as a multiple of p99 before.
const MOST: f64 = 2.0;
const LOOK: Duration = Duration::from_millis(100);

/// How large the database is, and how long the parts of the run last.
#[derive(Clone, Copy, Debug)]
struct Size {
    leases: Leases,
    executions: i64,
    before: Duration,
    dump: Duration,
    after: Duration,
    patience: Duration,
    /// A p99 below this counts as this value, because the ratio would only show the machine's noise. A short run has
    /// few requests, so it only detects waits for a lock.
    floor_ms: f64,
}

impl Size {
    fn of(options: &ChaosOptions, mutant: Option<Mutant>) -> Size {
        let leases = Leases::of(options.short);
        let (executions, before, dump, after) = match (options.short, mutant) {
            (false, _) => (1e6, 30, 30, 10),
            (true, None) => (20_000.0, 6, 5, 2),
            // By then, requests that waited behind the migration have been measured.
            (true, Some(_)) => (20_000.0, 6, 5, 0),
        };
        Size {
            leases,
            executions: (executions * options.scale) as i64,
            before: Duration::from_secs(before),
            dump: Duration::from_secs(dump),
            after: Duration::from_secs(after),
            patience: Duration::from_secs(60),
            floor_ms: if options.short { 250.0 } else { 10.0 },
        }
    }
}

/// Runs the upgrade.
pub async fn run(options: &ChaosOptions, mutant: Option<Mutant>) -> anyhow::Result<Outcome> {
    let size = Size::of(options, mutant);
    say(format!(
        "upgrade: {} executions, {PROCESSES} processes of each release, a dump of {} s, seed {}",
        size.executions,
        size.dump.as_secs(),
        options.seed
    ));
    let machine = machine();
    let policy = Policy { seed: options.seed, fast: (5, 20), slow: (5, 20), slow_every: 1, repeat: ms(20) };
    let mut stage = Stage::new(PROCESSES, size.leases, policy);
    (stage.noted, stage.later) = (false, PROCESSES);
    // The processes migrate when they start.
    stage.settings = vec!["database.migrate=true".to_owned()];
    let setup = Setup::start(options, stage).await?;
    let say_hello = json!({ "kind": "LOG", "with": { "message": "hello" } });
    let document = json!({ "version": 1, "name": "light", "nodes": { "say": say_hello } });
    let tenants = setup.tenants(TENANTS, &[document]).await?;
    let run = Run { setup, size, tenants: tenants.into(), began: Instant::now(), seed: options.seed };
    let outcome = run.played(options, mutant, machine).await?;
    if let Some(logs) = run.setup.stop(options.keep_logs || !outcome.broken.is_empty()).await? {
        say(format!("the processes' logs are in {}", logs.display()));
    }
    Ok(outcome)
}

struct Run {
    setup: Setup,
    size: Size,
    tenants: Arc<[Tenant]>,
    began: Instant,
    seed: u64,
}

/// The figures of the upgrade itself.
struct Upgraded {
    from: Instant,
    to: Instant,
    migrate_waited: Duration,
    dump_held: Duration,
    protocol: i32,
    index_valid: bool,
}

impl Run {
    async fn played(&self, options: &ChaosOptions, mutant: Option<Mutant>, machine: Value) -> anyhow::Result<Outcome> {
        self.fill().await?;
        let stop = CancellationToken::new();
        let load = Arc::new(UpgradeLoad::new(&self.setup, Arc::clone(&self.tenants), self.seed)?);
        let loading = tokio::spawn(Arc::clone(&load).run(stop.clone()));
        let watching = tokio::spawn(watch(self.setup.cluster.target()?.connect().await?, stop.clone()));
        tokio::time::sleep(Duration::from_secs(3)).await;
        let from = Instant::now();
        tokio::time::sleep(self.size.before).await;
        let before = (from, Instant::now());
        let upgraded = self.upgrade(&load, mutant).await;
        stop.cancel();
        let over_cap = watching.await.context("watch the slots")??;
        loading.await.context("load")?;
        let upgraded = upgraded?;
        let seen = load.seen();
        self.drain(&seen).await?;
        let lost = self.setup.count_unended(&seen.accepted).await?;
        Ok(self.judged(options, mutant, machine, &seen, before, &upgraded, over_cap, lost))
    }

    /// Loads executions that ended long ago, as the service would have written them.
    async fn fill(&self) -> anyhow::Result<()> {
        let (workspaces, definitions): (Vec<_>, Vec<_>) =
            self.tenants.iter().map(|tenant| (tenant.id, tenant.definitions[0].id)).unzip();
        let client = &self.setup.client;
        client.batch_execute("SET statement_timeout = 0").await?;
        let mut from = 0;
        while from < self.size.executions {
            let to = (from + 100_000).min(self.size.executions);
            client.execute(HISTORY, &[&workspaces, &definitions, &from, &to]).await.context("load the history")?;
            progress(format!("{:>4} s  loaded {to}", self.began.elapsed().as_secs()));
            from = to;
        }
        client.batch_execute("VACUUM (ANALYZE) workflow_execution").await.context("vacuum")?;
        say(format!("{:>4} s  {} executions are loaded", self.began.elapsed().as_secs(), self.size.executions));
        Ok(())
    }

    async fn upgrade(&self, load: &UpgradeLoad, mutant: Option<Mutant>) -> anyhow::Result<Upgraded> {
        let from = Instant::now();
        let dump = Dump::open(&self.setup.cluster).await?;
        say(format!("{:>4} s  a dump is open", self.began.elapsed().as_secs()));
        let naive = match mutant {
            Some(Mutant::MigrateWaits) => Some(tokio::spawn(naive(self.setup.cluster.target()?.connect().await?))),
            _ => None,
        };
        let spec =
            Spec { environment: vec![("FOREBAY_TEST_RELEASE".to_owned(), "2".to_owned())], ..self.setup.spec.clone() };
        let spec = Spec { logs: spec.logs.join("next"), ..spec };
        let started = Instant::now();
        let new = tokio::spawn(Fleet::start(spec, PROCESSES));
        tokio::time::sleep(self.size.dump).await;
        ensure!(mutant.is_some() || !new.is_finished(), "the next release did not wait for the dump");
        let dump_held = from.elapsed();
        dump.close().await?;
        say(format!("{:>4} s  the dump is over", self.began.elapsed().as_secs()));
        let new = Arc::new(new.await.context("start the next release")??);
        let migrate_waited = started.elapsed();
        if let Some(naive) = naive {
            naive.await.context("run the naive migration")??;
        }
        say(format!("{:>4} s  the next release is ready", self.began.elapsed().as_secs()));
        load.add(&new);
        tokio::time::sleep(self.size.after).await;
        for place in 0..PROCESSES {
            load.remove(&self.setup.fleet, place).await;
            self.setup.fleet.terminate(place).await?;
            say(format!("{:>4} s  an old process has stopped", self.began.elapsed().as_secs()));
            tokio::time::sleep(self.size.after / 2).await;
        }
        let protocol = self.raised().await?;
        tokio::time::sleep(self.size.after).await;
        let to = Instant::now();
        let valid = "SELECT coalesce(bool_and(indisvalid), false) FROM pg_index
                      WHERE indexrelid = to_regclass('workflow_execution_next_release')";
        let index_valid = self.setup.client.query_one(valid, &[]).await?.get(0);
        load.keep(new);
        Ok(Upgraded { from, to, migrate_waited, dump_held, protocol, index_valid })
    }

    /// Waits until the next release has raised the protocol, or until a time limit. Returns the protocol then.
    async fn raised(&self) -> anyhow::Result<i32> {
        let began = Instant::now();
        loop {
            let number: i32 = self.setup.client.query_one("SELECT number FROM protocol", &[]).await?.get(0);
            if number == 2 || began.elapsed() > self.size.patience {
                return Ok(number);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until everything has ended. An execution that does not is lost, and reported at the end.
    async fn drain(&self, seen: &LoadResults) -> anyhow::Result<()> {
        let began = Instant::now();
        while self.setup.count_unended(&seen.accepted).await? > 0 && began.elapsed() < self.size.patience {
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "each is one figure")]
    fn judged(
        &self,
        options: &ChaosOptions,
        mutant: Option<Mutant>,
        machine: Value,
        seen: &LoadResults,
        before: (Instant, Instant),
        upgraded: &Upgraded,
        over_cap: u64,
        lost: i64,
    ) -> Outcome {
        let (calm, during) = (seen.between(before.0, before.1), seen.between(upgraded.from, upgraded.to));
        let ratio = during.p99() / calm.p99();
        let checks = [
            ("failed", seen.failed > 0),
            ("ratio", during.p99() > MOST * calm.p99().max(self.size.floor_ms)),
            ("lost", lost > 0),
            ("over_cap", over_cap > 0),
            ("protocol", upgraded.protocol != 2),
            ("index", !upgraded.index_valid),
            ("no_requests", calm.len() == 0 || during.len() == 0),
        ];
        let broken: Vec<String> = checks.iter().filter(|(_, is)| *is).map(|(name, _)| (*name).to_owned()).collect();
        let figures = json!({
            "run": "upgrade",
            "mutant": mutant.map(Mutant::name),
            "executions": self.size.executions,
            "requests": seen.requests(),
            "failed": seen.failed,
            "failures": seen.failures,
            "p50_before_ms": round(calm.p50()),
            "p50_during_ms": round(during.p50()),
            "p99_before_ms": round(calm.p99()),
            "p99_during_ms": round(during.p99()),
            "max_during_ms": round(during.percentile(1.0)),
            "ratio": round(ratio),
            "ratio_floor_ms": self.size.floor_ms,
            "dump_held_s": seconds(upgraded.dump_held),
            "migrate_waited_s": seconds(upgraded.migrate_waited),
            "protocol": upgraded.protocol,
            "index_valid": upgraded.index_valid,
            "started": seen.accepted.len(),
            "over_cap": over_cap,
            "lost": lost,
            "seconds": seconds(self.began.elapsed()),
            "seed": options.seed,
            "settings": { "processes": PROCESSES, "short": options.short, "leases": self.size.leases.json() },
            "machine": machine,
        });
        Outcome { broken, figures }
    }
}

/// Counts the polls at which a workspace held more slots than its limit.
async fn watch(client: Client, stop: CancellationToken) -> anyhow::Result<u64> {
    let over = "SELECT count(*) FROM workspace w JOIN tier t ON t.name = w.tier
                 WHERE (SELECT count(*) FROM execution_queue q WHERE q.shard = w.shard AND q.workspace_id = w.id AND \
                 q.stage = 5)
                       > coalesce(w.limit_override, t.max_running)";
    let mut seen = 0;
    while !stop.is_cancelled() {
        seen += u64::from(client.query_one(over, &[]).await?.get::<_, i64>(0) > 0);
        tokio::time::sleep(LOOK).await;
    }
    Ok(seen)
}

/// A naive migration: it waits for its lock without a timeout, and other sessions wait behind it.
async fn naive(client: Client) -> anyhow::Result<()> {
    let waits = "SET lock_timeout = 0; SET statement_timeout = 0;
        ALTER TABLE forebay.workflow_execution ADD COLUMN IF NOT EXISTS naive text";
    client.batch_execute(waits).await.context("add a column")
}

/// Parameters: $1 workspaces, $2 their definitions, $3 and $4 the first and last execution. They are spread over the
/// last month, in order of time.
const HISTORY: &str = "
    INSERT INTO workflow_execution (id, workspace_id, workflow_definition_id, version_id, status, semantics, engine,
        trigger, input, output, created_at, started_at, completed_at, duration_ms, deadline_at, owner_epoch, root)
    SELECT item.id, t.workspace, t.definition, d.published_version, 'COMPLETED', 1, 'embedded',
           '{\"type\": \"api\", \"actor\": \"chaos\"}', '{}', '{}', item.at, item.at, item.at, 5, item.at + interval \
           '30 days', 1, item.id
      FROM generate_series($3::bigint + 1, $4::bigint) AS n
      JOIN unnest($1::uuid[], $2::uuid[]) WITH ORDINALITY AS t(workspace, definition, ordinal)
        ON t.ordinal = 1 + n % cardinality($1::uuid[])
      JOIN workflow_definition d ON d.id = t.definition
     CROSS JOIN LATERAL (
        SELECT now() - interval '1 day' + make_interval(secs => n / 100.0) AS at) made
     CROSS JOIN LATERAL (
        SELECT made.at, (lpad(to_hex((extract(epoch FROM made.at) * 1000)::bigint), 12, '0') || '70008000'
               || lpad(to_hex(n), 12, '0'))::uuid AS id) item
     ORDER BY n";
