//! Long: children, loops, approvals, events and tasks, while servers and workers are killed and paused. Each execution
//! ends once, as planned. No completed node is performed again, no wait is answered twice, and limits hold.
//!
//!     plans ──▶ starts, answers, events, cancels │ servers │ workers of tasks ──▶ quiet ──▶ audit
//!
//! Invariants
//! - The end of each execution is planned before it starts.
//! - A run continues until servers and workers were killed, and one of each was paused until others had taken its work.
//!
//! Not here: judging (`judge`), the faults (`nemesis`), the workflows (`documents`, `plan`).

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

use anyhow::Context;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::approver::Approver;
use self::audit::Audit;
use self::documents::WaitTimes;
use self::judge::LongVerdict;
use self::load::LongLoad;
use self::nemesis::{Faults, Late};
use self::plan::Bounds;
use self::worker::Order;
use super::mutant::{self, Mutant};
use super::nemesis::{Bases, Nemesis};
use super::phases::{self, Shown};
use super::retrying_client::tell_bases;
use super::setup::{Setup, Stage};
use super::{ChaosOptions, Leases, Outcome, ms, seconds};
use crate::random::Random;
use crate::receiver::Policy;
use crate::report::{machine, say};
use crate::service::{Fleet, History, Part, Spec};

const SERVERS: usize = 3;
const WORKERS: usize = 3;
/// Tasks that a worker performs at a time.
const LANES: usize = 4;
/// How long a worker may still write after its last task has ended.
const LAST_WORD: Duration = Duration::from_millis(500);

/// How large a run is.
#[derive(Clone, Copy, Debug)]
struct Size {
    executions: usize,
    tenants: usize,
    /// Items of the one large loop.
    big: i64,
    /// How long the load lasts.
    faults: Duration,
    faults_at_most: Duration,
    /// From one fault to the next, in ms.
    fault_every: (u64, u64),
    /// How long a worker of tasks may be silent.
    lease: &'static str,
    lease_ms: u64,
    /// How long a wait waits that nobody answers.
    patience_of_waits: &'static str,
    /// The run is over when no execution ended for this long.
    patience: Duration,
}

impl Size {
    fn of(options: &ChaosOptions) -> Size {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size")]
        let scaled = |full: f64| ((full * options.scale) as usize).max(40);
        match options.short {
            false => Size {
                executions: scaled(2_000.0),
                tenants: 40,
                big: 500,
                faults: Duration::from_secs_f64(240.0 * options.scale.clamp(0.1, 1.0)),
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
pub async fn run(options: &ChaosOptions, mutant: Option<Mutant>) -> anyhow::Result<Outcome> {
    let (size, leases) = (Size::of(options), Leases::of(options.short));
    let name = mutant.map_or("none", Mutant::name);
    say(format!(
        "long: {SERVERS} servers, {WORKERS} workers, {} executions, seed {}, mutant {name}",
        size.executions, options.seed
    ));
    let machine = machine();
    let run = Run::start(options, size, leases).await?;
    // What was found cannot be undone, so the run has nothing more to show: what is open stays so, and is not judged.
    let is_over = run.faults(mutant, mutant.is_some() || options.short).await?;
    if !is_over {
        run.heal().await?;
        run.quiet().await?;
    }
    let took = run.began.elapsed();
    say("audit: rows, triggers, calls, journals and answers");
    let audit = run.audit().await?;
    let mut broken = if is_over { audit.for_good() } else { audit.broken() };
    // What a run did not show holds nothing against a mutant.
    if mutant.is_none() && !run.is_shown(&audit.verdict) {
        broken.push("unshown".to_owned());
    }
    for finding in audit.verdict.findings.iter().chain(&audit.slots.findings) {
        say(format!("  found: {finding}"));
    }
    let mut figures = run.figures(&audit, took);
    figures["seed"] = json!(options.seed);
    figures["settings"] = json!({
        "servers": SERVERS, "workers": WORKERS, "lanes": LANES, "workspaces": size.tenants, "task_lease": size.lease,
        "largest_loop": size.big, "scale": options.scale, "short": options.short, "leases": leases.json(),
        "fsync": "off: the database server itself is not killed",
    });
    figures["mutant"] = json!(mutant.map(Mutant::name));
    figures["machine"] = machine;
    drop(run.workers);
    drop(run.load);
    if let Some(logs) = run.setup.stop(options.keep_logs || (!broken.is_empty() && mutant.is_none())).await? {
        say(format!("the processes' logs and journals are in {}", logs.display()));
    }
    Ok(Outcome { broken, figures })
}

struct Run {
    setup: Setup,
    size: Size,
    leases: Leases,
    workers: Arc<Fleet>,
    load: Arc<LongLoad>,
    approver: Arc<Approver>,
    /// The file that says where the service listens.
    bases: PathBuf,
    late: Arc<Late>,
    seed: u64,
    began: Instant,
}

impl Run {
    async fn start(options: &ChaosOptions, size: Size, leases: Leases) -> anyhow::Result<Run> {
        let policy = Policy { seed: options.seed, fast: (5, 40), slow: (80, 300), slow_every: 10, repeat: ms(60) };
        let setup = Setup::start(options, Stage::new(SERVERS, leases, policy)).await?;
        facts::install(&setup.client).await?;
        let times = WaitTimes { patience: size.patience_of_waits, lease: size.lease };
        let tenants = setup.tenants(size.tenants, &documents::all(&setup.receiver, times)).await?;
        let bases = setup.spec.logs.join("bases.json");
        tell_bases(&setup.fleet, &bases)?;
        let workers = crew(&setup.spec, size.lease_ms, &bases).await?;
        let mut random = Random::new(options.seed);
        let bounds = Bounds { tenants: size.tenants, big: size.big, lease_ms: size.lease_ms };
        let plans = plan::draw(&mut random, size.executions, bounds);
        let workspaces: Vec<Uuid> = tenants.iter().map(|tenant| tenant.id).collect();
        let (target, key) = (setup.cluster.target()?, setup.spec.root_key.clone());
        let approver = Arc::new(Approver::new(&plans, workspaces, target, bases.clone(), key));
        let load = LongLoad::new(plans, tenants, setup.api.clone(), Arc::clone(&approver), size.faults);
        let (load, late, began) = (Arc::new(load), Arc::default(), Instant::now());
        Ok(Run { setup, size, leases, workers, load, approver, bases, late, seed: options.seed, began })
    }

    /// The load, with kills and pauses beside it. If `looks`, it is audited meanwhile; true if that found something.
    /// Short runs without a mutant look too, so that an audit which finds what is not there is noticed.
    async fn faults(&self, mutant: Option<Mutant>, looks: bool) -> anyhow::Result<bool> {
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
        let (mut shown, mut looked) = (Shown::new(), Instant::now());
        phases::faults(tasks, stop, (async || self.one_falls().await, &self.setup.spec.logs), async || {
            let open = self.setup.open().await?;
            self.show(open, &mut shown);
            if looks && looked.elapsed() > mutant::LOOK_EVERY {
                if !self.audit().await?.for_good().is_empty() {
                    return Ok(Some(true));
                }
                looked = Instant::now();
            }
            let over = self.load.is_done() && self.is_staged();
            Ok((over || self.began.elapsed() >= self.size.faults_at_most).then_some(false))
        })
        .await
    }

    async fn audit(&self) -> anyhow::Result<Audit> {
        Audit::of(&self.setup, &self.load.plans, &self.approver).await
    }

    /// Restarts or resumes every process. Only the approver goes on.
    async fn heal(&self) -> anyhow::Result<()> {
        say("heal: every process is restarted or resumed");
        mutant::whole(&self.setup.client).await?;
        self.setup.fleet.heal().await?;
        self.workers.heal().await?;
        tell_bases(&self.setup.fleet, &self.bases)
    }

    /// True if everything has happened that a run must show.
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

    /// No more faults: everything ends.
    async fn quiet(&self) -> anyhow::Result<()> {
        say("quiet: waiting for every execution to end");
        let stop = CancellationToken::new();
        let client = self.setup.cluster.target()?.connect().await?;
        let answering = tokio::spawn(Arc::clone(&self.approver).run(client, stop.clone()));
        let mut shown = Shown::new();
        let falls = (async || self.one_falls().await, self.setup.spec.logs.as_path());
        phases::quiet(("executions", self.size.patience), falls, async || {
            let open = self.setup.open().await?;
            self.show(open, &mut shown);
            Ok(open)
        })
        .await?;
        tokio::time::sleep(LAST_WORD).await;
        stop.cancel();
        answering.await.context("answering stopped early")?
    }

    fn show(&self, open: usize, shown: &mut Shown) {
        let history = self.history();
        let text = format!(
            "{:>4} s  started {}  open {open}  calls {}  kills {}  pauses {}",
            self.began.elapsed().as_secs(),
            self.load.started(),
            self.setup.receiver.count(),
            history.kills.len(),
            history.pauses.len(),
        );
        shown.show(text);
    }

    /// The faults of servers and workers.
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

    /// True if everything happened that must be judged.
    fn is_shown(&self, verdict: &LongVerdict) -> bool {
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
