//! Strict: processes are killed and paused, and every limit changes. Meanwhile no limit is ever exceeded, no execution
//! starts twice or is lost, and no slot leaks.
//!
//! Not here: judging (`judge`), the faults (`nemesis`).

mod nemesis;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::nemesis::Faults;
use super::judge::{SlotEvidence, SlotVerdict, judge};
use super::load::{Burst, Load};
use super::mutant::{self, Mutant};
use super::nemesis::Nemesis;
use super::phases::{self, Shown};
use super::setup::{Setup, Stage, Tenant};
use super::{ChaosOptions, Leases, Outcome, limits, log, ms, seconds};
use crate::random::Random;
use crate::receiver::{Policy, Receiver};
use crate::report::{machine, say};
use crate::service::now_us;

/// A run continues until this many processes woke after others had taken over their runs.
const ZOMBIES: usize = 2;

/// How big a run is.
#[derive(Clone, Copy, Debug)]
struct Size {
    processes: usize,
    workspaces: usize,
    executions: usize,
    /// The minimum duration of the load.
    faults: Duration,
    faults_at_most: Duration,
    /// From one fault to the next, in ms.
    fault_every: (u64, u64),
    limit_every: Duration,
    burst_every: Duration,
    /// The run is over when no execution ended for this long.
    patience: Duration,
    repeat: Duration,
}

impl Size {
    fn of(options: &ChaosOptions) -> Size {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a size"
        )]
        let scaled = |full: usize| ((full as f64 * options.scale) as usize).max(100);
        match options.short {
            false => Size {
                processes: 8,
                workspaces: 200,
                executions: scaled(100_000),
                faults: Duration::from_secs(90),
                faults_at_most: Duration::from_secs(45 * 60),
                fault_every: (700, 2_500),
                limit_every: ms(20),
                burst_every: ms(500),
                patience: Duration::from_secs(120),
                repeat: Duration::from_secs(3),
            },
            true => Size {
                processes: 5,
                workspaces: 12,
                executions: scaled(900),
                faults: Duration::from_secs(6),
                faults_at_most: Duration::from_secs(15),
                fault_every: (300, 900),
                limit_every: ms(25),
                burst_every: ms(150),
                patience: Duration::from_secs(40),
                repeat: ms(700),
            },
        }
    }
}

/// Runs the strict run.
pub async fn run(options: &ChaosOptions, mutant: Option<Mutant>) -> anyhow::Result<Outcome> {
    let (size, leases) = (Size::of(options), Leases::of(options.short));
    let name = mutant.map_or("none", Mutant::name);
    say(format!(
        "strict: {} processes, {} workspaces, {} executions, seed {}, mutant {name}",
        size.processes, size.workspaces, size.executions, options.seed
    ));
    let seed = options.seed;
    let policy = Policy { seed, fast: (2, 20), slow: (100, 400), slow_every: 12, repeat: size.repeat };
    let machine = machine();
    let setup = Setup::start(options, Stage::new(size.processes, leases, policy)).await?;
    let tenants: Arc<[Tenant]> = setup.tenants(size.workspaces, &documents(&setup.receiver)).await?.into();
    let from = now_us();
    let (load, zombies, began) = (Arc::new(Load::new(size.executions)), Arc::default(), Instant::now());
    let run = Run { options, size, leases, setup, tenants, load, zombies, began, from };
    // If a mutant was detected, the run ends early: executions that are still open stay open and are not judged.
    let is_over = run.faults(mutant).await?;
    if !is_over {
        run.heal().await?;
        run.quiet().await?;
    }
    let took = run.began.elapsed();
    say("audit: replaying the log");
    let (verdict, found) = run.audit().await?;
    let broken = if is_over { for_good(&verdict) } else { broken(&verdict, &found) };
    for finding in &verdict.findings {
        say(format!("  found: {finding}"));
    }
    let mut figures = run.figures(&verdict, &found, took);
    figures["mutant"] = json!(mutant.map(Mutant::name));
    figures["machine"] = machine;
    if let Some(logs) = run.setup.stop(options.keep_logs || (!broken.is_empty() && mutant.is_none())).await? {
        say(format!("the processes' logs are in {}", logs.display()));
    }
    Ok(Outcome { broken, figures })
}

/// One or two calls: without limits, limited by definition, limited by key, limited by both.
fn documents(receiver: &Receiver) -> Vec<Value> {
    let call = |node: &str| json!({ "kind": "HTTP_REQUEST", "with": receiver.node(node, false) });
    let one = json!({ "a": call("a") });
    let mut two = json!({ "a": call("a"), "b": call("b") });
    two["b"]["needs"] = json!("a");
    vec![
        json!({ "version": 1, "name": "plain", "nodes": one }),
        json!({ "version": 1, "name": "chain", "nodes": two }),
        json!({ "version": 1, "name": "limited", "nodes": one, "concurrency": 2 }),
        json!({ "version": 1, "name": "keyed", "nodes": one, "key_concurrency": 2 }),
        json!({ "version": 1, "name": "both", "nodes": two, "concurrency": 2, "key_concurrency": 2 }),
    ]
}

/// Findings of the audit at the end.
struct Found {
    lost: i64,
    slots_left: i64,
    /// Executions that did not complete, although nothing here fails by itself.
    failed: i64,
    limit_changes: usize,
}

struct Run<'a> {
    options: &'a ChaosOptions,
    size: Size,
    leases: Leases,
    setup: Setup,
    tenants: Arc<[Tenant]>,
    load: Arc<Load>,
    zombies: Arc<AtomicUsize>,
    began: Instant,
    /// The same moment as `began`, by the clock of the log.
    from: i64,
}

impl Run<'_> {
    /// Runs the load with all faults. Returns true if a mutant was detected meanwhile.
    async fn faults(&self, mutant: Option<Mutant>) -> anyhow::Result<bool> {
        say("faults: load, kills, pauses, changes of limits");
        let setup = &self.setup;
        mutant::prepare(&setup.client, mutant).await?;
        let stop = CancellationToken::new();
        let tasks = self.spawn_faults(mutant, &stop).await?;
        let (mut shown, mut looked) = (Shown::new(), Instant::now());
        phases::faults(tasks, stop, (std::future::pending, &setup.spec.logs), async || {
            let open = setup.open().await?;
            self.show(open, &mut shown);
            if mutant.is_some() && looked.elapsed() > mutant::LOOK_EVERY && self.load.count() > 0 {
                looked = Instant::now();
                if !for_good(&self.audit().await?.0).is_empty() {
                    return Ok(Some(true));
                }
            }
            let elapsed = self.began.elapsed();
            // A short run does not wait for its backlog here; the backlog drains afterwards.
            let drained = self.load.left() == 0 && (self.options.short || open * 20 <= self.load.count());
            let staged = self.zombies.load(Ordering::Relaxed) >= ZOMBIES;
            let over = drained && staged && elapsed >= self.size.faults;
            Ok((over || elapsed >= self.size.faults_at_most).then_some(false))
        })
        .await
    }

    async fn heal(&self) -> anyhow::Result<()> {
        let setup = &self.setup;
        say("heal: every process is restarted or resumed, every limit is restored");
        mutant::restore(&setup.client).await?;
        limits::restore(&setup.client).await?;
        setup.fleet.heal().await
    }

    async fn spawn_faults(
        &self,
        mutant: Option<Mutant>,
        stop: &CancellationToken,
    ) -> anyhow::Result<JoinSet<anyhow::Result<()>>> {
        let (setup, size, seed) = (&self.setup, self.size, self.options.seed);
        let random = move |salt: u64| Random::new(seed.wrapping_mul(1_000).wrapping_add(salt));
        let mut tasks = JoinSet::new();
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let rate = size.executions as f64 / size.faults.as_secs_f64() * 1.1;
        let tenants = || Arc::clone(&self.tenants);
        tasks.spawn(Arc::clone(&self.load).batches(setup.store.clone(), tenants(), random(1), rate, stop.clone()));
        let burst = Burst { api: setup.api.clone(), tenants: tenants(), every: size.burst_every };
        let (load, halt) = (Arc::clone(&self.load), stop.clone());
        tasks.spawn(async move {
            load.bursts(burst, random(2), halt).await;
            Ok(())
        });
        let (client, changed, halt) = (setup.cluster.target()?.connect().await?, tenants(), stop.clone());
        tasks.spawn(async move {
            limits::change(client, &changed, random(3), size.limit_every, halt).await;
            Ok(())
        });
        let client = setup.cluster.target()?.connect().await?;
        let faults = Faults {
            fleet: Arc::clone(&setup.fleet),
            receiver: setup.receiver.clone(),
            leases: self.leases,
            zombies: Arc::clone(&self.zombies),
        };
        tasks.spawn(Nemesis::new(random(4), size.fault_every, stop.clone(), client, None).run(faults));
        if let Some(mutant) = mutant {
            tasks.spawn(mutant.recover(setup.cluster.target()?, ms(self.leases.claims / 2), stop.clone()));
        }
        Ok(tasks)
    }

    /// Waits, without faults, until every accepted execution has ended.
    async fn quiet(&self) -> anyhow::Result<()> {
        say("quiet: waiting for every accepted execution to end");
        let mut shown = Shown::new();
        let falls = (std::future::pending, self.setup.spec.logs.as_path());
        phases::quiet(("executions", self.size.patience), falls, async || {
            let open = self.setup.open().await?;
            self.show(open, &mut shown);
            Ok(open)
        })
        .await
    }

    fn show(&self, open: usize, shown: &mut Shown) {
        let history = self.setup.fleet.history();
        let text = format!(
            "{:>4} s  accepted {}  open {open}  requests {}  kills {}  pauses {}",
            self.began.elapsed().as_secs(),
            self.load.count(),
            self.setup.receiver.count(),
            history.kills.len(),
            history.pauses.len(),
        );
        shown.show(text);
    }

    async fn audit(&self) -> anyhow::Result<(SlotVerdict, Found)> {
        let setup = &self.setup;
        let accepted: Vec<Uuid> = self.load.accepted();
        if accepted.is_empty() {
            bail!("no start request was accepted");
        }
        let failed = "SELECT count(*) FROM workflow_execution WHERE completed_at IS NOT NULL AND status <> 'COMPLETED'";
        let (log, processes) = (log::load(&setup.client).await?, log::processes(&setup.client).await?);
        let found = Found {
            lost: setup.count_unended(&accepted).await?,
            slots_left: setup.slots().await?,
            failed: setup.client.query_one(failed, &[]).await?.get(0),
            limit_changes: log.iter().filter(|entry| entry.at >= self.from && entry.what.is_limit()).count(),
        };
        let (deliveries, pauses) = (setup.receiver.deliveries(), setup.fleet.history().pauses);
        let evidence = SlotEvidence { log: &log, deliveries: &deliveries, pauses: &pauses, processes: &processes };
        Ok((judge(&evidence), found))
    }

    fn figures(&self, verdict: &SlotVerdict, found: &Found, took: Duration) -> Value {
        let (history, executions) = (self.setup.fleet.history(), self.load.count());
        let lease = i64::try_from(self.leases.runs * 1_000).unwrap_or(i64::MAX);
        let beyond = history.pauses.iter().filter(|pause| pause.to.is_some_and(|to| to - pause.from > lease)).count();
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let throughput = (executions as f64 / took.as_secs_f64()).round();
        json!({
            "run": "strict",
            "executions": executions,
            "kills": history.kills.len(),
            "pauses": history.pauses.len(),
            "pauses_beyond_lease": beyond,
            "zombies": self.zombies.load(Ordering::Relaxed),
            "limit_changes": found.limit_changes,
            "slots_taken": verdict.slots_taken,
            "over_cap": verdict.over_cap(),
            "over_cap_by": {
                "workspace": verdict.over_workspace,
                "definition": verdict.over_definition,
                "key": verdict.over_key,
                "receiver": verdict.over_seen,
            },
            "outside_slot": verdict.outside_slot,
            "double_started": verdict.double_started(),
            "lost": found.lost,
            "failed": found.failed,
            "slots_left": found.slots_left,
            "zombie_sends": verdict.zombie_sends,
            "zombie_facts": verdict.zombie_facts,
            "illegal": verdict.illegal,
            "requests": self.setup.receiver.count(),
            "seconds": seconds(took),
            "throughput": throughput,
            "seed": self.options.seed,
            "settings": {
                "processes": self.size.processes,
                "workspaces": self.size.workspaces,
                "scale": self.options.scale,
                "short": self.options.short,
                "leases": self.leases.json(),
                "synchronous_commit": "off: the database server itself is not killed",
            },
        })
    }
}

/// The violations that later events cannot revoke. They follow from the log alone, because requests in flight have no
/// recorded end yet.
fn for_good(verdict: &SlotVerdict) -> Vec<String> {
    named(&[
        ("over_cap", verdict.over_workspace + verdict.over_definition + verdict.over_key),
        ("double_started", verdict.double_started()),
        ("zombie_facts", verdict.zombie_facts),
        ("illegal", verdict.illegal),
    ])
}

fn broken(verdict: &SlotVerdict, found: &Found) -> Vec<String> {
    let count = |count: i64| usize::try_from(count).unwrap_or_default();
    named(&[
        ("over_cap", verdict.over_cap()),
        ("outside_slot", verdict.outside_slot),
        ("double_started", verdict.double_started()),
        ("lost", count(found.lost)),
        ("failed", count(found.failed)),
        ("slots_left", count(found.slots_left)),
        ("zombie_facts", verdict.zombie_facts),
        ("illegal", verdict.illegal),
    ])
}

fn named(counts: &[(&str, usize)]) -> Vec<String> {
    counts.iter().filter(|(_, count)| *count > 0).map(|(name, _)| (*name).to_owned()).collect()
}
