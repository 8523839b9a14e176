//! Strict: no limit is ever exceeded, nothing starts twice, nothing is lost, no slot leaks, while
//! processes are killed and paused and every limit changes.
//!
//! Not here: how it is judged (`judge`), what is done to the processes (`nemesis`).

mod nemesis;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::nemesis::Faults;
use super::judge::{Evidence, Verdict, judge};
use super::load::{Burst, Load};
use super::mutant::{self, Mutant};
use super::nemesis::Nemesis;
use super::setup::{Setup, Stage, Tenant};
use super::{Leases, Outcome, Request, limits, log, ms, seconds};
use crate::random::Random;
use crate::receiver::{Policy, Receiver};
use crate::report::{machine, progress, say};
use crate::service::now_us;

/// A run goes on until so many processes woke after their runs had been taken over.
const ZOMBIES: usize = 2;

/// How big a run is.
#[derive(Clone, Copy, Debug)]
struct Size {
    processes: usize,
    workspaces: usize,
    executions: usize,
    /// The load is spread over at least so long.
    faults: Duration,
    faults_at_most: Duration,
    /// From one fault to the next, in ms.
    fault_every: (u64, u64),
    limit_every: Duration,
    burst_every: Duration,
    /// The run is over when nothing ended for so long.
    patience: Duration,
    repeat: Duration,
}

impl Size {
    fn of(request: &Request) -> Size {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a size"
        )]
        let scaled = |full: usize| ((full as f64 * request.scale) as usize).max(100);
        match request.short {
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

/// Runs it.
pub async fn run(request: &Request, mutant: Option<Mutant>) -> anyhow::Result<Outcome> {
    let (size, leases) = (Size::of(request), Leases::of(request.short));
    let name = mutant.map_or("none", Mutant::name);
    say(format!(
        "strict: {} processes, {} workspaces, {} executions, seed {}, mutant {name}",
        size.processes, size.workspaces, size.executions, request.seed
    ));
    let seed = request.seed;
    let policy = Policy { seed, fast: (2, 20), slow: (100, 400), slow_every: 12, repeat: size.repeat };
    let machine = machine();
    let setup = Setup::start(request, Stage::new(size.processes, leases, policy)).await?;
    let tenants: Arc<[Tenant]> = setup.tenants(size.workspaces, &documents(&setup.receiver)).await?.into();
    let from = now_us();
    let (load, zombies, began) = (Arc::new(Load::new(size.executions)), Arc::default(), Instant::now());
    let run = Run { request, size, leases, setup, tenants, load, zombies, began, from };
    run.faults(mutant).await?;
    run.quiet().await?;
    let took = run.began.elapsed();
    let (verdict, found) = run.audit().await?;
    let broken = broken(&verdict, &found);
    for finding in &verdict.told {
        say(format!("  found: {finding}"));
    }
    let mut figures = run.figures(&verdict, &found, took);
    figures["mutant"] = json!(mutant.map(Mutant::name));
    figures["machine"] = machine;
    if let Some(logs) = run.setup.stop(request.keep_logs || (!broken.is_empty() && mutant.is_none())).await? {
        say(format!("the processes' logs are in {}", logs.display()));
    }
    Ok(Outcome { broken, figures })
}

/// One or two calls; free, limited by definition, limited by key, limited by both.
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

/// What only a look at the end shows.
struct Found {
    lost: i64,
    slots_left: i64,
    /// Ended other than COMPLETED, though nothing here fails.
    failed: i64,
    limit_changes: usize,
}

struct Run<'a> {
    request: &'a Request,
    size: Size,
    leases: Leases,
    setup: Setup,
    tenants: Arc<[Tenant]>,
    load: Arc<Load>,
    zombies: Arc<AtomicUsize>,
    began: Instant,
    /// The same moment, by the log's clock.
    from: i64,
}

impl Run<'_> {
    /// The load, with everything that can go wrong going wrong beside it; then all is whole again.
    async fn faults(&self, mutant: Option<Mutant>) -> anyhow::Result<()> {
        say("faults: load, kills, pauses, changes of limits");
        let setup = &self.setup;
        mutant::prepare(&setup.client, mutant).await?;
        let stop = CancellationToken::new();
        let mut tasks = self.spawn_faults(mutant, &stop).await?;
        let mut shown = Instant::now();
        loop {
            tokio::select! {
                Some(done) = tasks.join_next() => done.context("a task of the harness broke off")??,
                () = tokio::time::sleep(ms(200)) => {}
            }
            let open = setup.open().await?;
            self.show(open, &mut shown);
            let elapsed = self.began.elapsed();
            // A short run drains afterwards.
            let drained = self.load.left() == 0 && (self.request.short || open * 20 <= self.load.count());
            let staged = self.zombies.load(Ordering::Relaxed) >= ZOMBIES;
            if (drained && staged && elapsed >= self.size.faults) || elapsed >= self.size.faults_at_most {
                break;
            }
        }
        stop.cancel();
        while let Some(done) = tasks.join_next().await {
            done.context("a task of the harness broke off")??;
        }
        say("heal: everybody back, every limit as it was");
        mutant::restore(&setup.client).await?;
        limits::restore(&setup.client).await?;
        setup.fleet.heal().await
    }

    async fn spawn_faults(
        &self,
        mutant: Option<Mutant>,
        stop: &CancellationToken,
    ) -> anyhow::Result<JoinSet<anyhow::Result<()>>> {
        let (setup, size, seed) = (&self.setup, self.size, self.request.seed);
        let random = move |salt: u64| Random::new(seed.wrapping_mul(1_000).wrapping_add(salt));
        let mut tasks = JoinSet::new();
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let rate = size.executions as f64 / size.faults.as_secs_f64() * 1.1;
        let tenants = || Arc::clone(&self.tenants);
        tasks.spawn(Arc::clone(&self.load).batches(setup.store.clone(), tenants(), random(1), rate));
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

    /// Nobody is struck any more: everything that was accepted ends.
    async fn quiet(&self) -> anyhow::Result<()> {
        say("quiet: whatever was accepted ends");
        let (mut last, mut since, mut shown) = (usize::MAX, Instant::now(), Instant::now());
        loop {
            let open = self.setup.open().await?;
            if open == 0 {
                return Ok(());
            }
            if open < last {
                (last, since) = (open, Instant::now());
            }
            if since.elapsed() > self.size.patience {
                say(format!("{open} executions do not end"));
                return Ok(());
            }
            self.show(open, &mut shown);
            tokio::time::sleep(ms(100)).await;
        }
    }

    fn show(&self, open: usize, shown: &mut Instant) {
        let history = self.setup.fleet.history();
        let text = format!(
            "{:>4} s  accepted {}  open {open}  requests {}  kills {}  pauses {}",
            self.began.elapsed().as_secs(),
            self.load.count(),
            self.setup.receiver.count(),
            history.kills.len(),
            history.pauses.len(),
        );
        if shown.elapsed() > Duration::from_secs(15) {
            *shown = Instant::now();
            say(text);
        } else {
            progress(text);
        }
    }

    async fn audit(&self) -> anyhow::Result<(Verdict, Found)> {
        say("audit: replaying the log");
        let setup = &self.setup;
        let accepted: Vec<Uuid> = self.load.accepted();
        if accepted.is_empty() {
            bail!("nothing was accepted");
        }
        let failed = "SELECT count(*) FROM workflow_execution WHERE completed_at IS NOT NULL AND status <> 'COMPLETED'";
        let (log, processes) = (log::load(&setup.client).await?, log::processes(&setup.client).await?);
        let found = Found {
            lost: setup.without_end(&accepted).await?,
            slots_left: setup.slots().await?,
            failed: setup.client.query_one(failed, &[]).await?.get(0),
            limit_changes: log.iter().filter(|entry| entry.at >= self.from && entry.what.is_limit()).count(),
        };
        let (deliveries, pauses) = (setup.receiver.deliveries(), setup.fleet.history().pauses);
        let evidence = Evidence { log: &log, deliveries: &deliveries, pauses: &pauses, processes: &processes };
        Ok((judge(&evidence), found))
    }

    fn figures(&self, verdict: &Verdict, found: &Found, took: Duration) -> Value {
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
            "seed": self.request.seed,
            "settings": {
                "processes": self.size.processes,
                "workspaces": self.size.workspaces,
                "scale": self.request.scale,
                "short": self.request.short,
                "leases": self.leases.json(),
                "synchronous_commit": "off: the database server itself is not killed",
            },
        })
    }
}

fn broken(verdict: &Verdict, found: &Found) -> Vec<String> {
    let count = |count: i64| usize::try_from(count).unwrap_or_default();
    [
        ("over_cap", verdict.over_cap()),
        ("outside_slot", verdict.outside_slot),
        ("double_started", verdict.double_started()),
        ("lost", count(found.lost)),
        ("failed", count(found.failed)),
        ("slots_left", count(found.slots_left)),
        ("zombie_facts", verdict.zombie_facts),
        ("illegal", verdict.illegal),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
    .map(|(name, _)| name.to_owned())
    .collect()
}
