//! Long: children, loops, approvals, events and tasks, while servers and workers are killed and paused: each execution
//! ends once as it was planned to, nothing that is recorded completed is performed again, no wait is answered twice,
//! limits hold.
//!
//!     plans ──▶ starts, answers, events, cancels │ servers │ workers of tasks ──▶ quiet ──▶ audit
//!
//! Invariants
//! - How an execution is to end is planned before it is there.
//! - A run goes on until servers and workers were killed, and one of each was paused until others had what it held.
//!
//! Not here: how it is judged (`judge`), what is done to the processes (`nemesis`), what is run (`documents`, `plan`).

mod approver;
mod audit;
mod documents;
mod facts;
mod judge;
mod load;
mod nemesis;
mod plan;
pub mod worker;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::approver::Approver;
use self::audit::Audit;
use self::documents::Times;
use self::judge::Verdict;
use self::load::Load;
use self::nemesis::{Faults, Late};
use self::plan::Bounds;
use self::worker::Order;
use super::asking::tell_bases;
use super::mutant::{self, Mutant};
use super::nemesis::{Bases, Nemesis};
use super::setup::{Setup, Stage};
use super::{Leases, Outcome, Request, ms, seconds};
use crate::random::Random;
use crate::receiver::Policy;
use crate::report::{machine, progress, say};
use crate::service::{Fleet, History, Part, Spec};

const SERVERS: usize = 3;
const WORKERS: usize = 3;
/// Tasks that a worker has at once.
const LANES: usize = 4;
/// What a worker may still write when its last task has ended.
const LAST_WORD: Duration = Duration::from_millis(500);

/// How big a run is.
#[derive(Clone, Copy, Debug)]
struct Size {
    executions: usize,
    tenants: usize,
    /// Items of the one large loop.
    big: i64,
    /// The load is spread over so long.
    faults: Duration,
    faults_at_most: Duration,
    /// From one fault to the next, in ms.
    fault_every: (u64, u64),
    /// How long a worker of tasks may be silent.
    lease: &'static str,
    lease_ms: u64,
    /// How long a wait waits that nobody answers.
    patience_of_waits: &'static str,
    /// The run is over when nothing ended for so long.
    patience: Duration,
}

impl Size {
    fn of(request: &Request) -> Size {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size")]
        let scaled = |full: f64| ((full * request.scale) as usize).max(40);
        match request.short {
            false => Size {
                executions: scaled(2_000.0),
                tenants: 40,
                big: 500,
                faults: Duration::from_secs_f64(240.0 * request.scale.clamp(0.1, 1.0)),
                faults_at_most: Duration::from_secs(20 * 60),
                fault_every: (600, 1_600),
                lease: "5s",
                lease_ms: 5_000,
                patience_of_waits: "8s",
                patience: Duration::from_secs(120),
            },
            true => Size {
                executions: scaled(160.0),
                tenants: 15,
                big: 300,
                faults: Duration::from_secs(9),
                faults_at_most: Duration::from_secs(25),
                fault_every: (250, 700),
                lease: "1s",
                lease_ms: 1_000,
                patience_of_waits: "2s",
                patience: Duration::from_secs(30),
            },
        }
    }
}

/// Runs it.
pub async fn run(request: &Request, mutant: Option<Mutant>) -> anyhow::Result<Outcome> {
    let (size, leases) = (Size::of(request), Leases::of(request.short));
    let name = mutant.map_or("none", Mutant::name);
    say(format!(
        "long: {SERVERS} servers, {WORKERS} workers, {} executions, seed {}, mutant {name}",
        size.executions, request.seed
    ));
    let machine = machine();
    let run = Run::start(request, size, leases).await?;
    run.faults(mutant).await?;
    run.quiet().await?;
    let took = run.began.elapsed();
    say("audit: rows, triggers, calls, journals and answers");
    let audit = Audit::of(&run.setup, &run.load.plans, &run.approver.given()).await?;
    let mut broken = audit.broken();
    // What a run did not show holds nothing against a mutant.
    if mutant.is_none() && !run.is_shown(&audit.verdict) {
        broken.push("unshown".to_owned());
    }
    for finding in audit.verdict.told.iter().chain(&audit.slots.told) {
        say(format!("  found: {finding}"));
    }
    let mut figures = run.figures(&audit, took);
    figures["seed"] = json!(request.seed);
    figures["settings"] = json!({
        "servers": SERVERS, "workers": WORKERS, "lanes": LANES, "workspaces": size.tenants, "task_lease": size.lease,
        "largest_loop": size.big, "scale": request.scale, "short": request.short, "leases": leases.json(),
        "fsync": "off: the database server itself is not killed",
    });
    figures["mutant"] = json!(mutant.map(Mutant::name));
    figures["machine"] = machine;
    drop(run.workers);
    drop(run.load);
    if let Some(logs) = run.setup.stop(request.keep_logs || (!broken.is_empty() && mutant.is_none())).await? {
        say(format!("the processes' logs and journals are in {}", logs.display()));
    }
    Ok(Outcome { broken, figures })
}

struct Run {
    setup: Setup,
    size: Size,
    leases: Leases,
    workers: Arc<Fleet>,
    load: Arc<Load>,
    approver: Arc<Approver>,
    /// The file that says where the service listens.
    bases: PathBuf,
    late: Arc<Late>,
    seed: u64,
    began: Instant,
}

impl Run {
    async fn start(request: &Request, size: Size, leases: Leases) -> anyhow::Result<Run> {
        let policy = Policy { seed: request.seed, fast: (5, 40), slow: (80, 300), slow_every: 10, repeat: ms(60) };
        let setup = Setup::start(request, Stage::new(SERVERS, leases, policy)).await?;
        facts::install(&setup.client).await?;
        let times = Times { patience: size.patience_of_waits, lease: size.lease };
        let tenants = setup.tenants(size.tenants, &documents::all(&setup.receiver, times)).await?;
        let bases = setup.spec.logs.join("bases.json");
        tell_bases(&setup.fleet, &bases)?;
        let workers = crew(&setup.spec, size.lease_ms, &bases).await?;
        let mut random = Random::new(request.seed);
        let bounds = Bounds { tenants: size.tenants, big: size.big, lease_ms: size.lease_ms };
        let plans = plan::draw(&mut random, size.executions, bounds);
        let workspaces: Vec<Uuid> = tenants.iter().map(|tenant| tenant.id).collect();
        let (target, key) = (setup.cluster.target()?, setup.spec.root_key.clone());
        let approver = Arc::new(Approver::new(&plans, workspaces, target, bases.clone(), key));
        let load = Load::new(plans, tenants, setup.api.clone(), Arc::clone(&approver), size.faults);
        let (load, late, began) = (Arc::new(load), Arc::default(), Instant::now());
        Ok(Run { setup, size, leases, workers, load, approver, bases, late, seed: request.seed, began })
    }

    /// The load, with kills and pauses beside it; then everybody is back, and only those who answer go on.
    async fn faults(&self, mutant: Option<Mutant>) -> anyhow::Result<()> {
        say("faults: executions start, servers and workers are killed and paused");
        mutant::mutate(&self.setup.client, mutant).await?;
        let stop = CancellationToken::new();
        let target = self.setup.cluster.target()?;
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&self.load).run());
        tasks.spawn(Arc::clone(&self.approver).run(target.connect().await?, stop.clone()));
        let faults = Faults {
            servers: Arc::clone(&self.setup.fleet),
            workers: Arc::clone(&self.workers),
            leases: self.leases,
            lease: ms(self.size.lease_ms),
            late: Arc::clone(&self.late),
        };
        let random = Random::new(self.seed.wrapping_mul(1_000));
        let bases = Bases { servers: Arc::clone(&self.setup.fleet), file: self.bases.clone() };
        let (every, client) = (self.size.fault_every, target.connect().await?);
        tasks.spawn(Nemesis::new(random, every, stop.clone(), client, Some(bases)).run(faults));
        let mut shown = Instant::now();
        loop {
            tokio::select! {
                Some(done) = tasks.join_next() => done.context("a task of the harness broke off")??,
                fallen = self.one_falls() => bail!("{fallen}; the logs are in {}", self.setup.spec.logs.display()),
                () = tokio::time::sleep(ms(200)) => {}
            }
            let open = self.setup.open().await?;
            self.show(open, &mut shown);
            if (self.load.is_done() && self.is_staged()) || self.began.elapsed() >= self.size.faults_at_most {
                break;
            }
        }
        stop.cancel();
        while let Some(done) = tasks.join_next().await {
            done.context("a task of the harness broke off")??;
        }
        say("heal: everybody is back");
        mutant::whole(&self.setup.client).await?;
        self.setup.fleet.heal().await?;
        self.workers.heal().await?;
        tell_bases(&self.setup.fleet, &self.bases)
    }

    /// Has everything happened that a run is to show?
    fn is_staged(&self) -> bool {
        let killed = |fleet: &Fleet| !fleet.history().kills.is_empty();
        let late = |count: &std::sync::atomic::AtomicUsize| count.load(Ordering::Relaxed) > 0;
        killed(&self.setup.fleet) && killed(&self.workers) && late(&self.late.servers) && late(&self.late.workers)
    }

    async fn one_falls(&self) -> String {
        tokio::select! {
            fallen = self.setup.fleet.one_falls() => fallen,
            fallen = self.workers.one_falls() => fallen,
        }
    }

    /// Nobody is struck any more: everything ends.
    async fn quiet(&self) -> anyhow::Result<()> {
        say("quiet: whatever was started ends");
        let stop = CancellationToken::new();
        let client = self.setup.cluster.target()?.connect().await?;
        let answering = tokio::spawn(Arc::clone(&self.approver).run(client, stop.clone()));
        let (mut last, mut since, mut shown) = (usize::MAX, Instant::now(), Instant::now());
        loop {
            let open = self.setup.open().await?;
            if open < last {
                (last, since) = (open, Instant::now());
            }
            if open == 0 {
                break;
            }
            if since.elapsed() > self.size.patience {
                say(format!("{open} executions do not end"));
                break;
            }
            self.show(open, &mut shown);
            tokio::select! {
                fallen = self.one_falls() => bail!("{fallen}; the logs are in {}", self.setup.spec.logs.display()),
                () = tokio::time::sleep(ms(100)) => {}
            }
        }
        tokio::time::sleep(LAST_WORD).await;
        stop.cancel();
        answering.await.context("answering broke off")?
    }

    fn show(&self, open: usize, shown: &mut Instant) {
        let history = self.history();
        let text = format!(
            "{:>4} s  started {}  open {open}  calls {}  kills {}  pauses {}",
            self.began.elapsed().as_secs(),
            self.load.started(),
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

    /// Of servers and workers.
    fn history(&self) -> History {
        let (mut all, workers) = (self.setup.fleet.history(), self.workers.history());
        all.kills.extend(workers.kills);
        all.pauses.extend(workers.pauses);
        all
    }

    fn figures(&self, audit: &Audit, took: Duration) -> Value {
        let (verdict, slots, history) = (&audit.verdict, &audit.slots, self.history());
        let late = |count: &std::sync::atomic::AtomicUsize| count.load(Ordering::Relaxed);
        json!({
            "run": "long",
            "executions": self.load.plans.len(),
            "children": audit.children,
            "kills": history.kills.len(),
            "kills_of_servers": self.setup.fleet.history().kills.len(),
            "pauses": history.pauses.len(),
            "pauses_beyond_lease": { "servers": late(&self.late.servers), "workers": late(&self.late.workers) },
            "wrong": audit.wrong(),
            "repeated_after_complete": verdict.repeated_after_complete,
            "token_reuse": verdict.token_reuse,
            "over_cap": slots.over_cap(),
            "outside_slot": slots.outside_slot,
            "zombie_facts": slots.zombie_facts,
            "lost": verdict.lost,
            "slots_left": audit.slots_left,
            "calls": self.setup.receiver.count(),
            "calls_repeated": verdict.repeats,
            "zombie_sends": verdict.zombie_sends,
            "late_refused": verdict.late_refused,
            "second_answers_refused": verdict.second_answers,
            "seconds": seconds(took),
        })
    }

    /// Did everything happen that was to be judged?
    fn is_shown(&self, verdict: &Verdict) -> bool {
        self.is_staged() && verdict.late_refused > 0 && verdict.second_answers > 0 && verdict.repeats > 0
    }
}

async fn crew(spec: &Spec, lease_ms: u64, bases: &std::path::Path) -> anyhow::Result<Arc<Fleet>> {
    let order = Order {
        worker: String::new(),
        lanes: LANES,
        lease_ms,
        journals: spec.logs.clone(),
        bases: bases.to_owned(),
        key: spec.root_key.clone(),
    };
    let program = std::env::current_exe().context("find this program's own file")?;
    let spec = Spec { program, part: Part::Tasks, order: serde_json::to_value(order)?, ..spec.clone() };
    Ok(Arc::new(Fleet::start(spec, WORKERS).await?))
}
