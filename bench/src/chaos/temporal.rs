//! Temporal: executions on a real cluster. Dispatchers die between Temporal's answer and their commit, workers die
//! during a node, the server is killed or unavailable, or its answers are lost. Three acts, each on its own service and
//! server: `kills`, `away` and `cuts`.
//!
//! Invariants
//! - Accepted means that the client saw a 202. The client repeats the request with the same key until it does.
//! - Each execution has one run and one result. The runs are counted in Temporal, and the results compared with the
//!   expected ones.
//! - Attempts that a crash or an outage costs are counted by triggers and on the nodes' rows.
//! - No workflow of this run fails by itself. So if an execution did not complete, a fault made it fail.
//!
//! Not here: judging limits and slots (`judge`), the embedded engine (`strict`, `durable`).

mod away;
mod cuts;
mod kills;
mod proxy;
mod server;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::judge::{SlotEvidence, judge};
use super::load::{Burst, Load};
use super::mutant::Mutant;
use super::outage::wait_until_ended;
use super::setup::{Setup, Stage, Tenant};
use super::{ChaosOptions, Leases, Outcome, log, ms, seconds};
use crate::random::Random;
use crate::receiver::{Policy, Receiver, output_of};
use crate::report::{machine, say};
use server::{Runs, TemporalServer};

const DISPATCHERS: usize = 3;
const WORKERS: usize = 3;
const TENANTS: usize = 12;
/// The slot limit of a workspace: low enough that it is reached.
const LIMIT: i32 = 4;
/// Calls with a time limit of at most this are local activities.
const LOCAL_BELOW: u64 = 5_000;

/// How big a run is.
#[derive(Clone, Copy, Debug)]
struct Size {
    /// Dispatchers killed between the engine's answer and their commit.
    kills: usize,
    /// At one in this many of these kills, a worker dies during a node too.
    worker_every: usize,
    /// At one in this many of these kills, all workers are killed first, so that the start is repeated.
    alone_every: usize,
    /// How often the server is killed and restarted immediately, and after how long, in ms.
    restarts: usize,
    restart_every: (u64, u64),
    /// How long the server is unavailable.
    away: Duration,
    /// How long answers are cut.
    cuts: Duration,
    /// The interval at which each dispatcher gets a start of a workflow that ends immediately.
    instant_every: Duration,
    /// The interval of executions that make a call.
    call_every: Duration,
    /// A worker that is silent for this long loses its calls, in ms.
    heartbeat: u64,
    /// Temporal is asked about runs that are older than this, in ms.
    reconcile: u64,
}

impl Size {
    fn of(options: &ChaosOptions, mutant: Option<Mutant>) -> Size {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of times")]
        let scaled = |full: f64| ((full * options.scale).ceil() as usize).max(1);
        let scaled_s =
            |full: u64, least: u64| Duration::from_secs(full).mul_f64(options.scale).max(Duration::from_secs(least));
        match options.short {
            false => Size {
                kills: scaled(200.0),
                worker_every: 5,
                alone_every: 20,
                restarts: scaled(5.0),
                restart_every: (6_000, 12_000),
                away: scaled_s(120, 10),
                cuts: scaled_s(60, 10),
                instant_every: ms(200),
                call_every: ms(800),
                heartbeat: 10_000,
                reconcile: 30_000,
            },
            true => Size {
                // The mutant needs worker deaths.
                kills: if mutant.is_some() { 6 } else { 20 },
                worker_every: if mutant.is_some() { 1 } else { 3 },
                alone_every: if mutant.is_some() { 6 } else { 10 },
                restarts: 1,
                restart_every: (2_000, 3_000),
                away: Duration::from_secs(10),
                cuts: Duration::from_secs(8),
                instant_every: ms(250),
                call_every: ms(800),
                heartbeat: 1_000,
                reconcile: 3_000,
            },
        }
    }
}

/// The result of an act: its counts, its own figures, and what did not hold.
#[derive(Debug, Default)]
struct Act {
    tally: Tally,
    figures: Value,
    broken: Vec<String>,
}

/// Runs the acts. With a mutant, runs only the act that must detect the mutant.
pub async fn run(options: &ChaosOptions, mutant: Option<Mutant>) -> anyhow::Result<Outcome> {
    let (size, machine) = (Size::of(options, mutant), machine());
    let name = mutant.map_or("none", Mutant::name);
    say(format!("temporal: {DISPATCHERS} dispatchers, {WORKERS} workers, seed {}, mutant {name}", options.seed));
    let began = Instant::now();
    let mut acts = Vec::new();
    if mutant.is_none_or(|mutant| mutant == Mutant::CrashIsAttempt) {
        acts.push(kills::act(options, size, mutant).await?);
    }
    if mutant.is_none() {
        acts.push(away::act(options, size).await?);
    }
    if mutant.is_none_or(|mutant| mutant == Mutant::AllowDuplicates) {
        acts.push(cuts::act(options, size, mutant).await?);
    }
    let broken: Vec<String> = acts.iter().flat_map(|act| act.broken.clone()).collect();
    let tally = acts.iter().fold(Tally::default(), |sum, act| sum.and(&act.tally));
    let mut figures = json!({
        "run": "temporal",
        "executions": tally.executions, "kills": 0, "cut_answers": 0, "outages": 0,
        "over_cap": tally.over_cap, "double_started": tally.double_started, "lost": tally.lost,
        "failed_by_outage": tally.failed, "attempts_by_crash": tally.attempts, "slots_left": tally.slots_left,
        "outside_slot": tally.outside_slot, "wrong_results": tally.wrong_results, "illegal": tally.illegal,
        "not_run_once": tally.not_run_once, "runs_left_open": tally.left_open,
        "seconds": seconds(began.elapsed()), "seed": options.seed, "mutant": mutant.map(Mutant::name),
        "machine": machine,
        "settings": {
            "dispatchers": DISPATCHERS, "workers": WORKERS, "workspaces": TENANTS, "limit": LIMIT,
            "short": options.short, "scale": options.scale, "leases": Leases::of(options.short).json(),
            "heartbeat_ms": size.heartbeat,
        },
    });
    for (name, value) in acts.iter().filter_map(|act| act.figures.as_object()).flatten() {
        figures[name] = value.clone();
    }
    Ok(Outcome { broken, figures })
}

/// Three workflows: one ends immediately, one makes a call as an activity, and one makes a call as a local activity.
fn documents(receiver: &Receiver) -> Vec<Value> {
    let call = |timeout: &str| {
        json!({ "a": { "kind": "HTTP_REQUEST", "timeout": timeout,
        "with": receiver.node("a", false) } })
    };
    let brought = json!({ "value": "${{ nodes.a.output.body.value }}" });
    let say = json!({ "say": { "kind": "LOG", "with": { "message": "hello" } } });
    vec![
        json!({ "version": 1, "name": "instant", "nodes": say, "outputs": { "value": "${{ inputs.n }}" } }),
        json!({ "version": 1, "name": "call", "nodes": call("30s"), "outputs": brought }),
        json!({ "version": 1, "name": "local", "nodes": call("5s"), "outputs": brought }),
    ]
}

/// The expected output of an execution of that definition.
fn expected(definition: &str, n: i64) -> Value {
    json!({ "value": if definition == "instant" { n } else { output_of("a", n) } })
}

/// The service on its Temporal, and the load on both.
struct Stand {
    server: TemporalServer,
    setup: Setup,
    tenants: Vec<Tenant>,
    load: Arc<Load>,
    size: Size,
    seed: u64,
}

impl Stand {
    /// `port`: where the service finds the server.
    async fn start(options: &ChaosOptions, size: Size, server: TemporalServer, port: u16) -> anyhow::Result<Stand> {
        let policy = Policy { seed: options.seed, fast: (50, 300), slow: (700, 1_500), slow_every: 3, repeat: ms(100) };
        let settings = vec![
            "engine.kind=temporal".to_owned(),
            format!("engine.temporal.address=http://127.0.0.1:{port}"),
            format!("engine.temporal.heartbeat_ms={}", size.heartbeat),
            format!("engine.temporal.local_activity_below_ms={LOCAL_BELOW}"),
            format!("engine.reconcile_after_ms={}", size.reconcile),
        ];
        let stage = Stage::new(DISPATCHERS, Leases::of(options.short), policy);
        let setup = Setup::start(options, Stage { workers: WORKERS, settings, ..stage }).await?;
        let tenants = setup.tenants(TENANTS, &documents(&setup.receiver)).await?;
        setup.client.execute("UPDATE workspace SET limit_override = $1", &[&LIMIT]).await.context("set the limits")?;
        Ok(Stand { server, setup, tenants, load: Arc::new(Load::new(0)), size, seed: options.seed })
    }

    /// Starts executions of every kind, until stopped.
    fn load(&self, stop: &CancellationToken) -> JoinSet<()> {
        let mut loads = JoinSet::new();
        let pace = [self.size.instant_every, self.size.call_every, self.size.call_every];
        for (definition, (every, salt)) in pace.into_iter().zip(7u64..).enumerate() {
            let of_it =
                |tenant: &Tenant| Tenant { definitions: vec![tenant.definitions[definition]], ..tenant.clone() };
            let tenants: Arc<[Tenant]> = self.tenants.iter().map(of_it).collect();
            let burst = Burst { api: self.setup.api.clone(), tenants, every };
            loads.spawn(Arc::clone(&self.load).bursts(burst, Random::new(self.seed ^ salt << 32), stop.clone()));
        }
        loads
    }

    /// Waits until every accepted execution has ended, and counts attempts, losses and duplicates.
    async fn tally(&self) -> anyhow::Result<Tally> {
        wait_until_ended(&self.setup.client).await?;
        say("audit: replaying the log, counting the runs in Temporal");
        let (setup, client, accepted) = (&self.setup, &self.setup.client, self.load.accepted());
        let (log, processes) = (log::load(client).await?, log::processes(client).await?);
        let deliveries = setup.receiver.deliveries();
        let verdict = judge(&SlotEvidence { log: &log, deliveries: &deliveries, pauses: &[], processes: &processes });
        for finding in &verdict.findings {
            say(format!("  found: {finding}"));
        }
        let count = async |sql: &str| anyhow::Ok(client.query_one(sql, &[]).await?.get::<_, i64>(0));
        let failed = "SELECT count(*) FROM workflow_execution WHERE completed_at IS NOT NULL AND status <> 'COMPLETED'";
        let tried_again = "SELECT coalesce(sum(attempt - 1), 0) FROM workflow_execution_node WHERE attempt > 1";
        let Runs { doubled, missing, open } = self.server.runs(&accepted).await?;
        Ok(Tally {
            executions: i64::try_from(accepted.len())?,
            over_cap: i64::try_from(verdict.over_cap())?,
            double_started: i64::try_from(verdict.double_started() + doubled)?,
            lost: setup.count_unended(&accepted).await?,
            failed: count(failed).await?,
            attempts: i64::try_from(verdict.attempts)? + count(tried_again).await?,
            slots_left: setup.slots().await?,
            outside_slot: i64::try_from(verdict.outside_slot)?,
            wrong_results: self.wrong_results(&accepted).await?,
            illegal: i64::try_from(verdict.illegal + verdict.zombie_facts)?,
            not_run_once: i64::try_from(doubled + missing)?,
            left_open: i64::try_from(open)?,
        })
    }

    /// Executions that completed with a wrong output.
    async fn wrong_results(&self, accepted: &[Uuid]) -> anyhow::Result<i64> {
        let sql = "SELECT e.id, d.name, (e.input ->> 'n')::bigint, e.output
                     FROM workflow_execution e JOIN workflow_definition d ON d.id = e.workflow_definition_id
                    WHERE e.id = ANY ($1) AND e.status = 'COMPLETED'";
        let mut wrong = 0;
        for row in self.setup.client.query(sql, &[&accepted]).await.context("read the results")? {
            let (id, name, n, output): (Uuid, String, i64, Option<Value>) =
                (row.get(0), row.get(1), row.get(2), row.get(3));
            if output.as_ref() != Some(&expected(&name, n)) {
                wrong += 1;
                say(format!("  found: execution {id} of {name} with n = {n} has the output {output:?}"));
            }
        }
        Ok(wrong)
    }

    /// Stops everything. Keeps the logs of the processes if something must be investigated.
    async fn stop(self, options: &ChaosOptions, act: &Act, mutant: Option<Mutant>) -> anyhow::Result<()> {
        super::outage::stop_setup(self.setup, options.keep_logs || (!act.broken.is_empty() && mutant.is_none())).await
    }
}

/// The counts of an act.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tally {
    executions: i64,
    over_cap: i64,
    double_started: i64,
    lost: i64,
    /// Executions that did not complete. Without faults, all would.
    failed: i64,
    attempts: i64,
    slots_left: i64,
    outside_slot: i64,
    wrong_results: i64,
    illegal: i64,
    /// Executions that have no run in Temporal, or more than one.
    not_run_once: i64,
    left_open: i64,
}

impl Tally {
    fn and(self, other: &Tally) -> Tally {
        Tally {
            executions: self.executions + other.executions,
            over_cap: self.over_cap + other.over_cap,
            double_started: self.double_started + other.double_started,
            lost: self.lost + other.lost,
            failed: self.failed + other.failed,
            attempts: self.attempts + other.attempts,
            slots_left: self.slots_left + other.slots_left,
            outside_slot: self.outside_slot + other.outside_slot,
            wrong_results: self.wrong_results + other.wrong_results,
            illegal: self.illegal + other.illegal,
            not_run_once: self.not_run_once + other.not_run_once,
            left_open: self.left_open + other.left_open,
        }
    }

    /// The names of the invariants that did not hold, including the act's own in `more`. With a mutant, `more` is
    /// ignored: too few faults do not prove that the mutant was detected.
    fn broken(&self, act: &str, more: &[(&str, bool)]) -> Vec<String> {
        let checks = [
            ("over_cap", self.over_cap > 0),
            ("double_started", self.double_started > 0),
            ("lost", self.lost > 0 || self.executions == 0),
            ("failed_by_outage", self.failed > 0),
            ("attempts_by_crash", self.attempts > 0),
            ("slots_left", self.slots_left > 0),
            ("outside_slot", self.outside_slot > 0),
            ("wrong_results", self.wrong_results > 0),
            ("illegal", self.illegal > 0),
            ("not_run_once", self.not_run_once > 0),
            ("runs_left_open", self.left_open > 0),
        ];
        let broke = checks.iter().chain(more).filter(|(_, broke)| *broke);
        broke.map(|(name, _)| format!("{act}: {name}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_a_fault_is_reported_with_the_act_that_found_it() {
        let good = Tally { executions: 3, ..Tally::default() };
        let broken = |change: fn(&mut Tally)| {
            let mut tally = good.clone();
            change(&mut tally);
            tally.broken("kills", &[("never_killed", false)]).join(" ")
        };
        assert_eq!(broken(|_| {}), "");
        assert_eq!(broken(|tally| tally.executions = 0), "kills: lost");
        assert_eq!(broken(|tally| tally.over_cap = 1), "kills: over_cap");
        assert_eq!(broken(|tally| tally.double_started = 1), "kills: double_started");
        assert_eq!(broken(|tally| tally.lost = 1), "kills: lost");
        assert_eq!(broken(|tally| tally.failed = 1), "kills: failed_by_outage");
        assert_eq!(broken(|tally| tally.attempts = 1), "kills: attempts_by_crash");
        assert_eq!(broken(|tally| tally.slots_left = 1), "kills: slots_left");
        assert_eq!(broken(|tally| tally.outside_slot = 1), "kills: outside_slot");
        assert_eq!(broken(|tally| tally.wrong_results = 1), "kills: wrong_results");
        assert_eq!(broken(|tally| tally.illegal = 1), "kills: illegal");
        assert_eq!(broken(|tally| tally.not_run_once = 1), "kills: not_run_once");
        assert_eq!(broken(|tally| tally.left_open = 1), "kills: runs_left_open");
        assert_eq!(good.broken("cuts", &[("never_cut", true)]), ["cuts: never_cut"]);
    }
}
