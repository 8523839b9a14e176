//! Mixed workers: two of Forebay's own workers, two over HTTP and two in plain SQL work on the same jobs. All are
//! killed, and HTTP workers are paused beyond their lease. Each job ends once, and fails exactly as often as planned.
//!
//!     events by SQL and by the API ──▶ jobs ──▶ ours │ HTTP │ plain SQL ──▶ quiet ──▶ audit, rebuild
//!
//! Invariants
//! - Jobs of the shared type are for all six workers. Jobs of the other type have no definition, and are for the four
//!   HTTP and SQL workers.
//! - A run continues until a worker of each sort was killed, and two paused workers were resumed after other workers
//!   had claimed their jobs.
//! - What happens to each job is planned before it exists. The judge compares the plan with the workers' journals and
//!   the facts in the database.
//!
//! Not here: judging (`judge`), the faults (`nemesis`), what a worker does (`worker`).

mod facts;
mod http;
mod journal;
mod judge;
mod life;
mod load;
mod nemesis;
mod plan;
mod rebuild;
mod sql;
mod tries;
pub mod worker;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::judge::{JobEvidence, JobVerdict, judge};
use self::load::MixedLoad;
use self::nemesis::{Crews, Faults};
use self::plan::{FOREIGN, Plan, SHARED};
use self::tries::Tries;
use self::worker::{Order, Protocol};
use super::mutant::{self, Mutant};
use super::nemesis::{Bases, Nemesis};
use super::phases::{self, Shown};
use super::retrying_client::tell_bases;
use super::setup::{Setup, Stage, Tenant};
use super::{ChaosOptions, Leases, Outcome, ms, seconds};
use crate::random::Random;
use crate::receiver::Policy;
use crate::report::{machine, say};
use crate::service::{Fleet, Part, Spec};

/// Workers of each sort.
const WORKERS: usize = 2;
/// Jobs that an HTTP or SQL worker has at a time.
const LANES: usize = 3;
/// How many paused workers must have been resumed after they had lost their jobs.
const LATE: usize = 2;
/// How long a worker may still write after its last job has ended.
const LAST_WORD: Duration = Duration::from_millis(500);

/// How big a run is.
#[derive(Clone, Copy, Debug)]
struct Size {
    jobs: usize,
    /// How long the load lasts.
    faults: Duration,
    faults_at_most: Duration,
    /// From one fault to the next, in ms.
    fault_every: (u64, u64),
    /// The lease of the bindings and of the HTTP workers, in seconds.
    lease_s: u32,
    retry_after: Duration,
    /// One in this many jobs takes about a lease.
    long_every: u64,
    /// The run is over when no job ended for this long.
    patience: Duration,
}

impl Size {
    fn of(options: &ChaosOptions) -> Size {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size")]
        let scaled = |full: f64| (full * options.scale) as usize;
        match options.short {
            false => Size {
                jobs: scaled(20_000.0).max(100),
                faults: Duration::from_secs_f64(200.0 * options.scale.clamp(0.1, 1.0)),
                faults_at_most: Duration::from_secs(30 * 60),
                fault_every: (500, 2_000),
                lease_s: 5,
                retry_after: ms(2_000),
                long_every: 100,
                patience: Duration::from_secs(120),
            },
            true => Size {
                jobs: scaled(400.0).max(100),
                faults: Duration::from_secs(5),
                faults_at_most: Duration::from_secs(45),
                fault_every: (200, 600),
                lease_s: 2,
                retry_after: ms(300),
                long_every: 30,
                patience: Duration::from_secs(40),
            },
        }
    }

    fn lease(&self) -> Duration {
        Duration::from_secs(u64::from(self.lease_s))
    }
}

/// Runs the mixed workers.
pub async fn run(options: &ChaosOptions, mutant: Option<Mutant>) -> anyhow::Result<Outcome> {
    let (size, leases) = (Size::of(options), Leases::of(options.short));
    let name = mutant.map_or("none", Mutant::name);
    say(format!("mixed-workers: {WORKERS} of each sort, {} jobs, seed {}, mutant {name}", size.jobs, options.seed));
    let machine = machine();
    let run = Run::start(options, size, leases).await?;
    // If a mutant was detected, the run ends early: jobs that are still open stay open and are not judged.
    let is_over = run.faults(mutant).await?;
    if !is_over {
        run.quiet().await?;
    }
    let took = run.began.elapsed();
    say("audit: facts, journals and tries");
    let verdict = run.judged().await?;
    let rebuild_equal = is_over || run.is_rebuilt_equal(options).await?;
    let mut broken = if is_over { verdict.for_good() } else { verdict.broken(rebuild_equal) };
    // A run with too few faults does not prove that a mutant was detected.
    if mutant.is_none() && !run.is_shown(&verdict) {
        broken.push("unshown".to_owned());
    }
    for finding in &verdict.findings {
        say(format!("  found: {finding}"));
    }
    let mut figures = run.figures(&verdict, took);
    figures["rebuild_equal"] = json!(rebuild_equal);
    figures["seed"] = json!(options.seed);
    figures["settings"] = json!({
        "workers_of_each_sort": WORKERS, "lanes": LANES, "lease_s": size.lease_s, "scale": options.scale,
        "retry_after_ms": size.retry_after.as_millis(), "short": options.short, "leases": leases.json(),
        "fsync": "off: the database server itself is not killed",
    });
    figures["mutant"] = json!(mutant.map(Mutant::name));
    figures["machine"] = machine;
    drop(run.crews);
    if let Some(logs) = run.setup.stop(options.keep_logs || (!broken.is_empty() && mutant.is_none())).await? {
        say(format!("the processes' logs and journals are in {}", logs.display()));
    }
    Ok(Outcome { broken, figures })
}

struct Run {
    setup: Setup,
    size: Size,
    crews: Crews,
    tries: Tries,
    load: Arc<MixedLoad>,
    /// The file with the addresses of the service.
    bases: PathBuf,
    late: Arc<AtomicUsize>,
    seed: u64,
    began: Instant,
}

impl Run {
    async fn start(options: &ChaosOptions, size: Size, leases: Leases) -> anyhow::Result<Run> {
        let policy = Policy { seed: options.seed, fast: (0, 0), slow: (0, 0), slow_every: 1, repeat: ms(0) };
        let tries = Tries::start().await?;
        let mut stage = Stage::new(WORKERS, leases, policy);
        stage.noted = false;
        stage.settings = vec![
            format!("job.retry_after_ms={}", size.retry_after.as_millis()),
            format!("outbound.allow={}", tries.address),
        ];
        let setup = Setup::start(options, stage).await?;
        let workspace = bind(&setup, &tries, size.lease_s).await?;
        let bases = setup.spec.logs.join("bases.json");
        tell_bases(&setup.fleet, &bases)?;
        let order = |way| Order {
            worker: String::new(),
            way,
            lanes: LANES,
            lease_s: size.lease_s,
            journals: setup.spec.logs.clone(),
            bases: bases.clone(),
            key: setup.spec.root_key.clone(),
            workspace,
            database_url: setup.spec.database_url.clone(),
        };
        let crews = Crews {
            ours: Arc::clone(&setup.fleet),
            http: crew(&setup.spec, Part::JobsByHttp, &order(Protocol::Http)).await?,
            sql: crew(&setup.spec, Part::JobsBySql, &order(Protocol::Sql)).await?,
        };
        let mut random = Random::new(options.seed);
        let plans = (0..size.jobs).map(|_| Plan::draw(&mut random, size.lease(), size.long_every)).collect();
        let load = Arc::new(MixedLoad::new(plans, workspace, size.faults));
        let (late, seed, began) = (Arc::default(), options.seed, Instant::now());
        Ok(Run { setup, size, crews, tries, load, bases, late, seed, began })
    }

    /// Runs the load, with kills and pauses. Returns true if a mutant was detected meanwhile.
    async fn faults(&self, mutant: Option<Mutant>) -> anyhow::Result<bool> {
        say("faults: events come, workers are killed and paused");
        mutant::mutate(&self.setup.client, mutant).await?;
        let stop = CancellationToken::new();
        let target = self.setup.cluster.target()?;
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&self.load).by_sql(target.connect().await?));
        tasks.spawn(Arc::clone(&self.load).by_api(self.setup.api.clone()));
        let faults = Faults {
            crews: self.crews.clone(),
            journals: self.setup.spec.logs.clone(),
            lease: self.size.lease(),
            late: Arc::clone(&self.late),
        };
        let random = Random::new(self.seed.wrapping_mul(1_000));
        let bases = Bases { servers: Arc::clone(&self.setup.fleet), file: self.bases.clone() };
        let (every, client) = (self.size.fault_every, target.connect().await?);
        tasks.spawn(Nemesis::new(random, every, stop.clone(), client, Some(bases)).run(faults));
        let (mut shown, mut looked) = (Shown::new(), Instant::now());
        phases::faults(tasks, stop, (async || self.one_falls().await, &self.setup.spec.logs), async || {
            let open = self.open().await?;
            self.show(open, &mut shown);
            if mutant.is_some() && looked.elapsed() > mutant::LOOK_EVERY {
                if !self.judged().await?.for_good().is_empty() {
                    return Ok(Some(true));
                }
                looked = Instant::now();
            }
            let over = self.load.is_done() && self.is_staged();
            Ok((over || self.began.elapsed() >= self.size.faults_at_most).then_some(false))
        })
        .await
    }

    /// True if the run has had enough kills and late workers.
    fn is_staged(&self) -> bool {
        let killed = self.crews.all().iter().all(|fleet| !fleet.history().kills.is_empty());
        killed && self.late.load(Ordering::Relaxed) >= LATE
    }

    async fn one_falls(&self) -> String {
        let Crews { ours, http, sql } = &self.crews;
        tokio::select! {
            fallen = ours.one_falls() => fallen,
            fallen = http.one_falls() => fallen,
            fallen = sql.one_falls() => fallen,
        }
    }

    /// Restarts and resumes every process, and waits, without faults, until every job has ended.
    async fn quiet(&self) -> anyhow::Result<()> {
        say("heal: every process is restarted or resumed");
        mutant::whole(&self.setup.client).await?;
        for fleet in self.crews.all() {
            fleet.heal().await?;
        }
        tell_bases(&self.setup.fleet, &self.bases)?;
        say("quiet: waiting for every job to end");
        let mut shown = Shown::new();
        let falls = (async || self.one_falls().await, self.setup.spec.logs.as_path());
        phases::quiet(("jobs", self.size.patience), falls, async || {
            let open = self.open().await?;
            self.show(open, &mut shown);
            Ok(open)
        })
        .await?;
        tokio::time::sleep(LAST_WORD).await;
        Ok(())
    }

    /// How many jobs have not ended.
    async fn open(&self) -> anyhow::Result<usize> {
        let open = "SELECT count(*) FROM workflow_queue_projection
                     WHERE status IN ('pending', 'processing') OR status = 'failed' AND retry_count < 3";
        let row = self.setup.client.query_one(open, &[]).await.context("count the jobs that have not ended")?;
        Ok(usize::try_from(row.get::<_, i64>(0))?)
    }

    /// Judges the run. While it continues, only `JobVerdict::for_good` of the result is meaningful.
    async fn judged(&self) -> anyhow::Result<JobVerdict> {
        // Journals and tries are read first, so every end that they contain is already among the facts.
        let (journal, tries) = (super::journal::read(&self.setup.spec.logs)?, self.tries.recorded());
        let jobs = facts::load(&self.setup.client).await?;
        Ok(judge(&JobEvidence { plans: &self.load.plans, jobs: &jobs, journal: &journal, tries: &tries }))
    }

    async fn is_rebuilt_equal(&self, options: &ChaosOptions) -> anyhow::Result<bool> {
        // No worker writes meanwhile, because the table before the rebuild is compared with the table after it.
        for fleet in self.crews.all() {
            fleet.stop();
        }
        rebuild::is_equal(&self.setup.client, &options.forebay, &self.setup.cluster.url()).await
    }

    fn show(&self, open: usize, shown: &mut Shown) {
        let (kills, pauses) = self.struck();
        let text = format!(
            "{:>4} s  appended {}  open {open}  kills {kills}  pauses {pauses}  late {}",
            self.began.elapsed().as_secs(),
            self.load.done(),
            self.late.load(Ordering::Relaxed),
        );
        shown.show(text);
    }

    fn struck(&self) -> (usize, usize) {
        let histories = self.crews.all().map(|fleet| fleet.history());
        histories.iter().fold((0, 0), |(kills, pauses), one| (kills + one.kills.len(), pauses + one.pauses.len()))
    }

    fn figures(&self, verdict: &JobVerdict, took: Duration) -> Value {
        let (kills, pauses) = self.struck();
        let [ours, http, sql] = self.crews.all().map(|fleet| fleet.history().kills.len());
        let by = verdict.ended_by;
        json!({
            "run": "mixed-workers",
            "jobs": self.load.plans.len(),
            "kills": kills,
            "kills_by_sort": { "ours": ours, "http": http, "sql": sql },
            "pauses": pauses,
            "pauses_beyond_lease": self.late.load(Ordering::Relaxed),
            "ended_once": verdict.ended_once,
            "ended_twice": verdict.ended_twice,
            "lost": verdict.lost,
            "wrong_tries": verdict.wrong_tries,
            "double_runs": verdict.double_runs,
            "unasked": verdict.unasked,
            "illegal": verdict.illegal,
            "late_refused": verdict.late_refused,
            "indistinct": verdict.indistinct,
            "recovered": verdict.recovered,
            "failures": verdict.failures,
            "tries_ended_by": { "ours": by.ours, "http": by.http, "sql": by.sql },
            "seconds": seconds(took),
        })
    }

    /// True if the run had enough kills and late workers, a late end was refused, and each sort of worker ended jobs.
    fn is_shown(&self, verdict: &JobVerdict) -> bool {
        let by = verdict.ended_by;
        self.is_staged() && verdict.late_refused > 0 && by.ours.min(by.http).min(by.sql) > 0
    }
}

/// Creates the workspace and its two bindings. Returns the id of the workspace.
async fn bind(setup: &Setup, tries: &Tries, lease_s: u32) -> anyhow::Result<Uuid> {
    let tenants = setup.tenants(1, &[tries.document()]).await?;
    let [Tenant { id, definitions, .. }] = tenants.as_slice() else { bail!("expected one workspace") };
    setup.client.batch_execute("UPDATE workspace SET limit_override = 20").await.context("set the limit")?;
    let shared = json!({
        "workspaceId": id, "eventType": SHARED, "workflowDefinitionId": definitions[0].id, "leaseSeconds": lease_s,
    });
    setup.api.post(0, "bindings", &shared).await?;
    let foreign = json!({ "workspaceId": id, "eventType": FOREIGN, "leaseSeconds": lease_s });
    setup.api.post(0, "bindings", &foreign).await?;
    Ok(*id)
}

async fn crew(spec: &Spec, part: Part, order: &Order) -> anyhow::Result<Arc<Fleet>> {
    let program = std::env::current_exe().context("find this program's own file")?;
    let spec = Spec { program, part, order: serde_json::to_value(order)?, ..spec.clone() };
    Ok(Arc::new(Fleet::start(spec, WORKERS).await?))
}
