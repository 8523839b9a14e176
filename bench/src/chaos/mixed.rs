//! Mixed workers: two of ours, two over HTTP and two in plain SQL take the same jobs, are killed, and those over HTTP
//! are paused beyond their lease: each job ends once, and fails exactly as often as it is planned to.
//!
//!     events by SQL and by the API ──▶ jobs ──▶ ours │ HTTP │ plain SQL ──▶ quiet ──▶ audit, rebuild
//!
//! Invariants
//! - Jobs of the shared type are for all six; those of the other have no definition, and are for the four that are not
//!   ours.
//! - A run goes on until each sort was killed and two paused workers woke to find their jobs gone.
//! - How a job is to go is planned before it is there; what is judged is what the workers themselves wrote down and the
//!   facts.
//!
//! Not here: how it is judged (`judge`), what is done to the workers (`nemesis`), what a worker does (`worker`).

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

use self::judge::{Evidence, Verdict, judge};
use self::load::Load;
use self::nemesis::{Crews, Faults};
use self::plan::{FOREIGN, Plan, SHARED};
use self::tries::Tries;
use self::worker::{Order, Way};
use super::asking::tell_bases;
use super::mutant::{self, Mutant};
use super::nemesis::{Bases, Nemesis};
use super::setup::{Setup, Stage, Tenant};
use super::{Leases, Outcome, Request, ms, seconds};
use crate::random::Random;
use crate::receiver::Policy;
use crate::report::{machine, progress, say};
use crate::service::{Fleet, Part, Spec};

/// Of each sort.
const WORKERS: usize = 2;
/// Jobs that a worker that is not ours has at once.
const LANES: usize = 3;
/// Paused workers that must have woken too late.
const LATE: usize = 2;
/// What a worker may still write when its last job has ended.
const LAST_WORD: Duration = Duration::from_millis(500);

/// How big a run is.
#[derive(Clone, Copy, Debug)]
struct Size {
    jobs: usize,
    /// The load is spread over so long.
    faults: Duration,
    faults_at_most: Duration,
    /// From one fault to the next, in ms.
    fault_every: (u64, u64),
    /// Of the bindings, and of the workers over HTTP, in seconds.
    lease_s: u32,
    retry_after: Duration,
    /// One job in so many takes about a lease.
    long_every: u64,
    /// The run is over when nothing ended for so long.
    patience: Duration,
}

impl Size {
    fn of(request: &Request) -> Size {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size")]
        let scaled = |full: f64| (full * request.scale) as usize;
        match request.short {
            false => Size {
                jobs: scaled(20_000.0).max(100),
                faults: Duration::from_secs_f64(200.0 * request.scale.clamp(0.1, 1.0)),
                faults_at_most: Duration::from_secs(30 * 60),
                fault_every: (500, 2_000),
                lease_s: 5,
                retry_after: ms(2_000),
                long_every: 100,
                patience: Duration::from_secs(120),
            },
            true => Size {
                jobs: scaled(600.0).max(100),
                faults: Duration::from_secs(8),
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

/// Runs it.
pub async fn run(request: &Request, mutant: Option<Mutant>) -> anyhow::Result<Outcome> {
    let (size, leases) = (Size::of(request), Leases::of(request.short));
    let name = mutant.map_or("none", Mutant::name);
    say(format!("mixed-workers: {WORKERS} of each sort, {} jobs, seed {}, mutant {name}", size.jobs, request.seed));
    let machine = machine();
    let run = Run::start(request, size, leases).await?;
    run.faults(mutant).await?;
    run.quiet().await?;
    let took = run.began.elapsed();
    let (verdict, rebuild_equal) = run.audit(request).await?;
    let mut broken = broken(&verdict, rebuild_equal);
    // What a run did not show holds nothing against a mutant.
    if mutant.is_none() && !run.is_shown(&verdict) {
        broken.push("unshown".to_owned());
    }
    for finding in &verdict.told {
        say(format!("  found: {finding}"));
    }
    let mut figures = run.figures(&verdict, took);
    figures["rebuild_equal"] = json!(rebuild_equal);
    figures["seed"] = json!(request.seed);
    figures["settings"] = json!({
        "workers_of_each_sort": WORKERS, "lanes": LANES, "lease_s": size.lease_s, "scale": request.scale,
        "retry_after_ms": size.retry_after.as_millis(), "short": request.short, "leases": leases.json(),
        "fsync": "off: the database server itself is not killed",
    });
    figures["mutant"] = json!(mutant.map(Mutant::name));
    figures["machine"] = machine;
    drop(run.crews);
    if let Some(logs) = run.setup.stop(request.keep_logs || (!broken.is_empty() && mutant.is_none())).await? {
        say(format!("the processes' logs and journals are in {}", logs.display()));
    }
    Ok(Outcome { broken, figures })
}

struct Run {
    setup: Setup,
    size: Size,
    crews: Crews,
    tries: Tries,
    load: Arc<Load>,
    /// The file that says where the service listens.
    bases: PathBuf,
    late: Arc<AtomicUsize>,
    seed: u64,
    began: Instant,
}

impl Run {
    async fn start(request: &Request, size: Size, leases: Leases) -> anyhow::Result<Run> {
        let policy = Policy { seed: request.seed, fast: (0, 0), slow: (0, 0), slow_every: 1, repeat: ms(0) };
        let tries = Tries::start().await?;
        let mut stage = Stage::new(WORKERS, leases, policy);
        stage.noted = false;
        stage.settings = vec![
            format!("projection.retry_after_ms={}", size.retry_after.as_millis()),
            format!("outbound.allow={}", tries.address),
        ];
        let setup = Setup::start(request, stage).await?;
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
            http: crew(&setup.spec, Part::JobsByHttp, &order(Way::Http)).await?,
            sql: crew(&setup.spec, Part::JobsBySql, &order(Way::Sql)).await?,
        };
        let mut random = Random::new(request.seed);
        let plans = (0..size.jobs).map(|_| Plan::draw(&mut random, size.lease(), size.long_every)).collect();
        let load = Arc::new(Load::new(plans, workspace, size.faults));
        let (late, seed, began) = (Arc::default(), request.seed, Instant::now());
        Ok(Run { setup, size, crews, tries, load, bases, late, seed, began })
    }

    /// The load, with kills and pauses beside it; then everybody is back.
    async fn faults(&self, mutant: Option<Mutant>) -> anyhow::Result<()> {
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
        let mut shown = Instant::now();
        loop {
            tokio::select! {
                Some(done) = tasks.join_next() => done.context("a task of the harness broke off")??,
                fallen = self.one_falls() => bail!("{fallen}; the logs are in {}", self.setup.spec.logs.display()),
                () = tokio::time::sleep(ms(200)) => {}
            }
            let open = self.open().await?;
            self.show(open, &mut shown);
            let elapsed = self.began.elapsed();
            if (self.load.is_done() && self.is_staged()) || elapsed >= self.size.faults_at_most {
                break;
            }
        }
        stop.cancel();
        while let Some(done) = tasks.join_next().await {
            done.context("a task of the harness broke off")??;
        }
        say("heal: everybody is back");
        mutant::whole(&self.setup.client).await?;
        for fleet in self.crews.all() {
            fleet.heal().await?;
        }
        tell_bases(&self.setup.fleet, &self.bases)
    }

    /// Has everything happened that a run is to show?
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

    /// Nobody is struck any more: every job ends.
    async fn quiet(&self) -> anyhow::Result<()> {
        say("quiet: every job ends");
        let (mut last, mut since, mut shown) = (i64::MAX, Instant::now(), Instant::now());
        loop {
            let open = self.open().await?;
            if open < last {
                (last, since) = (open, Instant::now());
            }
            if open == 0 {
                break;
            }
            if since.elapsed() > self.size.patience {
                say(format!("{open} jobs do not end"));
                break;
            }
            self.show(open, &mut shown);
            tokio::select! {
                fallen = self.one_falls() => bail!("{fallen}; the logs are in {}", self.setup.spec.logs.display()),
                () = tokio::time::sleep(ms(100)) => {}
            }
        }
        tokio::time::sleep(LAST_WORD).await;
        Ok(())
    }

    /// Jobs that are still to end.
    async fn open(&self) -> anyhow::Result<i64> {
        let open = "SELECT count(*) FROM workflow_queue_projection
                     WHERE status IN ('pending', 'processing') OR status = 'failed' AND retry_count < 3";
        Ok(self.setup.client.query_one(open, &[]).await.context("count what is open")?.get(0))
    }

    async fn audit(&self, request: &Request) -> anyhow::Result<(Verdict, bool)> {
        say("audit: facts, journals and tries");
        let jobs = facts::load(&self.setup.client).await?;
        let (journal, tries) = (super::journal::read(&self.setup.spec.logs)?, self.tries.noted());
        let verdict = judge(&Evidence { plans: &self.load.plans, jobs: &jobs, journal: &journal, tries: &tries });
        // Nobody writes meanwhile: what is compared is the table before and after.
        for fleet in self.crews.all() {
            fleet.stop();
        }
        let equal = rebuild::is_equal(&self.setup.client, &request.forebay, &self.setup.cluster.url()).await?;
        Ok((verdict, equal))
    }

    fn show(&self, open: i64, shown: &mut Instant) {
        let (kills, pauses) = self.struck();
        let text = format!(
            "{:>4} s  appended {}  open {open}  kills {kills}  pauses {pauses}  late {}",
            self.began.elapsed().as_secs(),
            self.load.done(),
            self.late.load(Ordering::Relaxed),
        );
        if shown.elapsed() > Duration::from_secs(15) {
            *shown = Instant::now();
            say(text);
        } else {
            progress(text);
        }
    }

    fn struck(&self) -> (usize, usize) {
        let histories = self.crews.all().map(|fleet| fleet.history());
        histories.iter().fold((0, 0), |(kills, pauses), one| (kills + one.kills.len(), pauses + one.pauses.len()))
    }

    fn figures(&self, verdict: &Verdict, took: Duration) -> Value {
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

    /// Did everything happen that was to be judged?
    fn is_shown(&self, verdict: &Verdict) -> bool {
        let by = verdict.ended_by;
        self.is_staged() && verdict.late_refused > 0 && by.ours.min(by.http).min(by.sql) > 0
    }
}

fn broken(verdict: &Verdict, rebuild_equal: bool) -> Vec<String> {
    [
        ("ended_twice", verdict.ended_twice > 0),
        ("lost", verdict.lost > 0),
        ("wrong_tries", verdict.wrong_tries > 0),
        ("double_runs", verdict.double_runs > 0),
        ("unasked", verdict.unasked > 0),
        ("illegal", verdict.illegal > 0),
        ("rebuild_equal", !rebuild_equal),
    ]
    .into_iter()
    .filter(|(_, broke)| *broke)
    .map(|(name, _)| name.to_owned())
    .collect()
}

/// Makes the workspace and its two bindings; answers the workspace.
async fn bind(setup: &Setup, tries: &Tries, lease_s: u32) -> anyhow::Result<Uuid> {
    let tenants = setup.tenants(1, &[tries.document()]).await?;
    let [Tenant { id, definitions, .. }] = tenants.as_slice() else { bail!("one workspace was made") };
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
