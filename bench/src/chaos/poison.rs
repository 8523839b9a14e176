//! Poison: executions that break their process, one sort after the other, beside a steady load.
//!
//!     before: the load alone ──▶ nul ──▶ graph ──▶ panic ──▶ killer ──▶ quiet ──▶ audit
//!
//! Invariants
//! - A process usually claims the executions that it accepted itself. So the load goes to all processes except the one
//!   that runs the poison or will run it next.
//! - Each time the `killer` execution runs, its process is killed and restarted, but only when it holds no other run.
//!   So no other execution may count a death.
//! - The counts are judged. The times of starts are reported next to the times before the poison, but not judged,
//!   because the restarts load the same machine.
//!
//! Not here: executions in the same process as the poison (the tests of `app` cover each sort).

mod dose;
mod pace;

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::api::StartRequest;
use super::load::{Load, Steady};
use super::setup::{Setup, Stage, Tenant};
use super::{ChaosOptions, Leases, Outcome, ms, seconds};
use crate::random::Random;
use crate::receiver::Policy;
use crate::report::{machine, say};
use crate::service::now_us;
use dose::Poison;
use pace::{Pace, Poisoned, Started};

const PROCESSES: usize = 3;
/// The place of the process where poison is started. The killer is later resumed at other places too.
const POISONED: usize = 2;
/// Workspaces of the load. Each poison has its own workspace in addition.
const TENANTS: usize = 8;
/// How long to wait until the killer's process holds no other run.
const ALONE_WITHIN: Duration = Duration::from_secs(20);

/// How big a run is.
#[derive(Clone, Copy, Debug)]
struct Size {
    /// From one start of the load to the next.
    every: Duration,
    before: Duration,
    /// How long each poison except the killer is started.
    given: Duration,
    dose_every: Duration,
}

impl Size {
    fn of(options: &ChaosOptions) -> Size {
        let (every, before, given) = match options.short {
            false => (ms(10), Duration::from_secs(20), Duration::from_secs(10)),
            true => (ms(20), Duration::from_secs(3), Duration::from_secs(2)),
        };
        Size { every, before, given, dose_every: ms(100) }
    }
}

/// Runs all sorts of poison.
pub async fn run(options: &ChaosOptions) -> anyhow::Result<Outcome> {
    let (size, leases, machine) = (Size::of(options), Leases::of(options.short), machine());
    say(format!("poison: {PROCESSES} processes, {} sorts, seed {}", Poison::ALL.len(), options.seed));
    let policy = Policy { seed: options.seed, fast: (0, 0), slow: (0, 0), slow_every: 1, repeat: ms(0) };
    let setup = Setup::start(options, Stage::new(PROCESSES, leases, policy)).await?;
    let light =
        json!({ "version": 1, "name": "light", "nodes": { "say": { "kind": "LOG", "with": { "message": "hello" } } } });
    let documents: Vec<Value> =
        std::iter::once(light).chain(Poison::ALL.map(|poison| poison.document(&setup.receiver))).collect();
    let mut tenants = setup.tenants(TENANTS + Poison::ALL.len(), &documents).await?;
    setup.client.batch_execute("UPDATE workspace SET limit_override = 50").await.context("set the limits")?;
    let poisoned = tenants.split_off(TENANTS);
    let run = Run { setup, size, leases, load: Arc::default(), left_alone: Arc::default(), poisoned: Mutex::default() };
    let began = Instant::now();
    let doses = run.setup.while_all_live(run.all(tenants.into(), &poisoned, options.seed)).await?;
    let (mut figures, broken) = run.audit(&doses).await?;
    figures["run"] = json!("poison");
    figures["seed"] = json!(options.seed);
    figures["seconds"] = json!(seconds(began.elapsed()));
    figures["machine"] = machine;
    figures["settings"] = json!({
        "processes": PROCESSES, "workspaces": TENANTS, "starts_every_ms": size.every.as_millis(),
        "short": options.short,
        "leases": leases.json(), "fsync": "off: the database server itself is not killed",
    });
    if let Some(logs) = run.setup.stop(options.keep_logs || !broken.is_empty()).await? {
        say(format!("the processes' logs are in {}", logs.display()));
    }
    Ok(Outcome { broken, figures })
}

struct Run {
    setup: Setup,
    size: Size,
    leases: Leases,
    load: Arc<Load>,
    /// The place that the load avoids.
    left_alone: Arc<AtomicUsize>,
    poisoned: Mutex<Poisoned>,
}

/// The poison that was started, and when.
struct Doses {
    before: (i64, i64),
    given: Vec<Given>,
    /// Processes that ended before they were killed.
    fell: i64,
}

struct Given {
    poison: Poison,
    during: (i64, i64),
    ids: Vec<Uuid>,
    kills: usize,
}

impl Run {
    /// Runs the load, with each poison in turn.
    async fn all(&self, tenants: Arc<[Tenant]>, poisoned: &[Tenant], seed: u64) -> anyhow::Result<Doses> {
        self.poison_is_at(POISONED);
        let stop = CancellationToken::new();
        let left_alone = Arc::clone(&self.left_alone);
        let steady = Steady { api: self.setup.api.clone(), tenants, every: self.size.every, left_alone };
        let loading = tokio::spawn(Arc::clone(&self.load).steady(steady, Random::new(seed), stop.clone()));
        // The first second is a warm-up.
        tokio::time::sleep(ms(1_000)).await;
        let from = now_us();
        tokio::time::sleep(self.size.before).await;
        let before = (from, now_us());
        let (mut given, mut fell) = (Vec::new(), 0);
        for (n, (poison, tenant)) in Poison::ALL.into_iter().zip(poisoned).enumerate() {
            say(format!("starting the poison {}", poison.name()));
            let definition = tenant.definitions[n + 1].id;
            poison.spoil(&self.setup.client, definition).await?;
            let from = now_us();
            let (ids, kills) = match poison {
                Poison::Killer => {
                    let ended = "SELECT count(*) FROM process WHERE ended_at IS NOT NULL";
                    fell = self.setup.client.query_one(ended, &[]).await?.get(0);
                    self.kill(tenant, definition).await?
                }
                _ => (self.give(poison, tenant, definition).await?, 0),
            };
            given.push(Given { poison, during: (from, now_us()), ids, kills });
        }
        stop.cancel();
        loading.await.context("the load stopped early")?;
        self.quiet().await?;
        Ok(Doses { before, given, fell })
    }

    /// From now on the poison runs at this place, and the load avoids it.
    fn poison_is_at(&self, place: usize) {
        self.left_alone.store(place, Ordering::Relaxed);
        self.poisoned.lock().push((now_us(), place));
    }

    /// Starts poison executions one after the other, all at one process. Returns when they have ended, or after a time
    /// limit.
    async fn give(&self, poison: Poison, tenant: &Tenant, definition: Uuid) -> anyhow::Result<Vec<Uuid>> {
        let (began, mut ids) = (Instant::now(), Vec::new());
        while began.elapsed() < self.size.given {
            let key = format!("{} {}", poison.name(), ids.len());
            let request = StartRequest { workspace: tenant.id, definition, input: json!({}), key };
            ids.push(self.setup.api.start(POISONED, &request).await);
            tokio::time::sleep(self.size.dose_every).await;
        }
        let patience = Instant::now();
        while self.setup.count_unended(&ids).await? > 0 && patience.elapsed() < Duration::from_secs(30) {
            tokio::time::sleep(ms(50)).await;
        }
        Ok(ids)
    }

    /// One execution whose process is killed each time it runs, until it has ended or no longer runs.
    async fn kill(&self, tenant: &Tenant, definition: Uuid) -> anyhow::Result<(Vec<Uuid>, usize)> {
        let request = StartRequest { workspace: tenant.id, definition, input: json!({}), key: "killer".to_owned() };
        let killer = self.setup.api.start(POISONED, &request).await;
        let patience = ms(4 * self.leases.runs) + Duration::from_secs(30);
        let (mut kills, mut since) = (0, Instant::now());
        while self.setup.count_unended(&[killer]).await? > 0 && since.elapsed() < patience {
            tokio::time::sleep(ms(20)).await;
            if self.setup.receiver.deadly() > kills {
                self.strike(killer).await?;
                (kills, since) = (kills + 1, Instant::now());
                say(format!("death {kills}"));
            }
        }
        Ok((vec![killer], kills))
    }

    /// Kills the process that runs the killer, once it holds no other run, and starts another process in its place.
    async fn strike(&self, killer: Uuid) -> anyhow::Result<()> {
        let owner = "SELECT p.name FROM workflow_execution e JOIN chaos_process p ON p.id = e.owner WHERE e.id = $1";
        let name: String = self
            .setup
            .client
            .query_one(owner, &[&killer])
            .await
            .context("find the process that runs the killer")?
            .get(0);
        let place = self.setup.fleet.place_of(&name).with_context(|| format!("{name} is not running"))?;
        self.poison_is_at(place);
        let beside = "SELECT count(*) FROM workflow_execution e JOIN chaos_process p ON p.id = e.owner
                       WHERE e.id <> $1 AND p.name = $2 AND e.status = 'RUNNING'";
        let began = Instant::now();
        loop {
            // The process is paused before the check, so that it cannot claim items between the check and the kill.
            self.setup.fleet.pause(place);
            tokio::time::sleep(ms(20)).await;
            let others: i64 = self.setup.client.query_one(beside, &[&killer, &name]).await?.get(0);
            if others == 0 {
                break;
            }
            ensure!(began.elapsed() < ALONE_WITHIN, "{name} still holds {others} other runs");
            self.setup.fleet.resume(place, &name);
            tokio::time::sleep(ms(20)).await;
        }
        self.setup.fleet.kill(place);
        self.setup.fleet.restart(place).await
    }

    async fn quiet(&self) -> anyhow::Result<()> {
        say("quiet: waiting for every accepted execution to end");
        let began = Instant::now();
        while self.setup.open().await? > 0 && began.elapsed() < Duration::from_secs(60) {
            tokio::time::sleep(ms(100)).await;
        }
        Ok(())
    }

    async fn audit(&self, doses: &Doses) -> anyhow::Result<(Value, Vec<String>)> {
        let client = &self.setup.client;
        let accepted = self.load.accepted();
        let count = "SELECT count(*) FROM workflow_execution e WHERE e.id = ANY ($1) AND ";
        let failed: i64 = client
            .query_one(&format!("{count} e.completed_at IS NOT NULL AND e.status <> 'COMPLETED'"), &[&accepted])
            .await?
            .get(0);
        let crashed: i64 = client.query_one(&format!("{count} e.deaths > 0"), &[&accepted]).await?.get(0);
        let (lost, slots) = (self.setup.count_unended(&accepted).await?, self.setup.slots().await?);
        let starts = pace::read_starts(client, &accepted).await?;
        let poisoned = self.poisoned.lock().clone();
        let before = Pace::of(&starts, doses.before, &poisoned);
        let (mut poisons, mut wrong, mut unmeasured) = (Vec::new(), 0, before.is_empty());
        for given in &doses.given {
            let (figures, otherwise, pace) = self.dose(given, &starts, &poisoned, &before).await?;
            poisons.push(figures);
            wrong += otherwise;
            unmeasured |= pace.is_empty();
        }
        let whole = (doses.before.1, doses.given.last().map_or(0, |given| given.during.1));
        let during = Pace::of(&starts, whole, &poisoned);
        let figures = json!({
            "p99_before_ms": before.p99(), "p99_during_ms": during.p99(), "ratio": during.over(&before),
            "p50_before_ms": before.p50(), "p50_during_ms": during.p50(), "before": before.json(), "poisons": poisons,
            "accepted": accepted.len(), "lost": lost, "others_failed": failed, "others_crashed": crashed,
            "wrong_reasons": wrong, "fell": doses.fell, "slots_left": slots,
        });
        let checks = [
            ("wrong_reasons", wrong > 0),
            ("others_failed", failed > 0),
            ("others_crashed", crashed > 0),
            ("lost", lost > 0 || accepted.is_empty()),
            ("fell", doses.fell > 0),
            ("slots_left", slots > 0),
            ("unmeasured", unmeasured),
        ];
        Ok((figures, checks.into_iter().filter(|(_, broke)| *broke).map(|(name, _)| name.to_owned()).collect()))
    }

    /// The results of one sort, how many doses ended wrongly, and how the others did in the meantime.
    async fn dose(
        &self,
        given: &Given,
        starts: &[Started],
        poisoned: &Poisoned,
        before: &Pace,
    ) -> anyhow::Result<(Value, usize, Pace)> {
        let sql = "SELECT coalesce(e.error->>'type', e.status), count(*) FROM workflow_execution e
                    WHERE e.id = ANY ($1) GROUP BY 1 ORDER BY 1";
        let rows = self.setup.client.query(sql, &[&given.ids]).await.context("read the results of the poison")?;
        let ends: Vec<(String, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        let right = ends.iter().find(|(reason, _)| reason == given.poison.reason()).map_or(0, |(_, count)| *count);
        let wrong = given.ids.len().saturating_sub(usize::try_from(right)?);
        let pace = Pace::of(starts, given.during, poisoned);
        let ends: serde_json::Map<String, Value> =
            ends.into_iter().map(|(reason, count)| (reason, json!(count))).collect();
        let mut figures = pace.json();
        figures["poison"] = json!(given.poison.name());
        figures["doses"] = json!(given.ids.len());
        figures["kills"] = json!(given.kills);
        figures["ends"] = json!(ends);
        figures["ratio"] = json!(pace.over(before));
        Ok((figures, wrong, pace))
    }
}
