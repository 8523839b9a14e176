//! Durable: a process that dies at any point of a graph is replaced within its lease, and its runs are resumed where
//! they were.
//!
//! Rounds: many executions run at once. In each round several processes are killed, each at a chosen point: when one of
//! its executions has settled k nodes. The rounds cover every possible k. The next round begins when all executions
//! have ended.
//!
//! Not here: what the log and the receiver prove (`check`).

mod check;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};
use uuid::Uuid;

use super::api::StartRequest;
use super::setup::{Setup, Stage, Tenant};
use super::{ChaosOptions, Leases, Outcome, log, ms, seconds};
use crate::random::Random;
use crate::receiver::{Policy, Receiver, output_of};
use crate::report::{machine, progress, rss_mb, say};
use check::{DurableEvidence, DurableVerdict};

const PROCESSES: usize = 5;
/// Processes killed in one round; the others take over.
const KILLS: usize = 3;
/// How many nodes of the graph settle. One of them is skipped.
const NODES: usize = 9;
const TENANTS: usize = 4;
/// How often the nodes' table is polled.
const LOOK: Duration = Duration::from_millis(5);
/// How often a round is repeated if a point was not reached.
const TRIES: usize = 5;

/// Runs the durable run.
pub async fn run(options: &ChaosOptions) -> anyhow::Result<Outcome> {
    let leases = Leases::of(options.short);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of times")]
    let times = if options.short { 1 } else { ((3.0 * options.scale).ceil() as usize).max(1) };
    let executions = if options.short { 20 } else { 60 };
    say(format!(
        "durable: {PROCESSES} processes, each of {NODES} points of a graph {times} times, {executions} executions a \
         round, seed {}",
        options.seed
    ));
    let policy = Policy { seed: options.seed, fast: (40, 120), slow: (40, 120), slow_every: 1, repeat: ms(60) };
    let machine = machine();
    let setup = Setup::start(options, Stage::new(PROCESSES, leases, policy)).await?;
    let delay = if options.short { "300ms" } else { "6s" };
    let tenants = setup.tenants(TENANTS, &[document(&setup.receiver, delay)]).await?;
    setup.client.batch_execute("UPDATE workspace SET limit_override = 1000").await.context("lift the limits")?;
    let mut run = Run {
        setup,
        tenants,
        leases,
        executions,
        short: options.short,
        random: Random::new(options.seed),
        next: 0,
        all: BTreeMap::new(),
        began: Instant::now(),
    };
    for time in 0..times {
        for round in 0..NODES / KILLS {
            let points = (0..KILLS).map(|kill| round + kill * (NODES / KILLS)).collect();
            run.round(time * (NODES / KILLS) + round + 1, points).await?;
        }
    }
    let outcome = run.judged(options, machine).await?;
    if let Some(logs) = run.setup.stop(options.keep_logs || !outcome.broken.is_empty()).await? {
        say(format!("the processes' logs are in {}", logs.display()));
    }
    Ok(outcome)
}

/// Chains, a branch, joins, a call that fails first, and a wait.
fn document(receiver: &Receiver, delay: &str) -> Value {
    let call = |node: &str, needs: Value| {
        let mut call = json!({ "kind": "HTTP_REQUEST", "with": receiver.node(node, false) });
        if !needs.is_null() {
            call["needs"] = needs;
        }
        call
    };
    let mut flaky = call("flaky", json!("join"));
    flaky["with"] = receiver.node("flaky", true);
    flaky["retry"] = json!({ "max_attempts": 5, "initial": "100ms", "max": "200ms" });
    json!({
        "version": 1,
        "name": "durable",
        "nodes": {
            "a": call("a", Value::Null),
            "pick": { "kind": "CONDITION", "needs": "a", "with": { "if": "inputs.left == true" } },
            "left": call("left", json!("pick.true")),
            "right": call("right", json!("pick.false")),
            "join": {
                "kind": "TRANSFORM", "needs": ["left", "right"], "when": "any_success",
                "with": { "value": { "a": "${{ nodes.a.output.body.value }}" } },
            },
            "flaky": flaky,
            "b": call("b", json!("a")),
            "wait": { "kind": "DELAY", "needs": "b", "with": { "for": delay } },
            "end": call("end", json!(["flaky", "wait"])),
        },
        "outputs": {
            "joined": "${{ nodes.join.output.a }}",
            "picked": "${{ nodes.pick.output.branch }}",
            "left": "${{ nodes.left.status }}",
            "flaky": "${{ nodes.flaky.output.body.value }}",
            "b": "${{ nodes.b.output.body.value }}",
            "end": "${{ nodes.end.output.body.value }}",
        },
    })
}

/// The expected output of an execution.
fn expected(n: i64) -> Value {
    let left = n % 2 == 0;
    json!({
        "joined": output_of("a", n),
        "picked": if left { "true" } else { "false" },
        "left": if left { "COMPLETED" } else { "SKIPPED" },
        "flaky": output_of("flaky", n),
        "b": output_of("b", n),
        "end": output_of("end", n),
    })
}

struct Run {
    setup: Setup,
    tenants: Vec<Tenant>,
    leases: Leases,
    executions: usize,
    short: bool,
    random: Random,
    next: i64,
    /// Every accepted execution and its number.
    all: BTreeMap<Uuid, i64>,
    began: Instant,
}

impl Run {
    /// Kills a process at each of these points, and waits until everything has ended.
    async fn round(&mut self, number: usize, mut points: Vec<usize>) -> anyhow::Result<()> {
        say(format!("round {number}: processes die when {points:?} nodes have settled"));
        for _ in 0..TRIES {
            let ids = self.start().await?;
            self.strike(&ids, &mut points).await?;
            self.setup.fleet.heal().await?;
            self.see_through(&ids).await?;
            if points.is_empty() {
                return Ok(());
            }
        }
        anyhow::bail!("no execution was ever seen with {points:?} settled nodes")
    }

    /// Starts a round's executions at all processes at once.
    async fn start(&mut self) -> anyhow::Result<Vec<Uuid>> {
        let requests: Vec<(usize, i64, StartRequest)> = (0..self.executions)
            .map(|place| {
                let (n, tenant) = (self.next, &self.tenants[self.random.below(TENANTS)]);
                self.next += 1;
                let input = json!({ "n": n, "left": n % 2 == 0 });
                let (workspace, definition) = (tenant.id, tenant.definitions[0].id);
                (place % PROCESSES, n, StartRequest { workspace, definition, input, key: format!("n{n}") })
            })
            .collect();
        let api = self.setup.api.clone();
        let starts = requests.into_iter().map(|(place, n, request)| {
            let api = api.clone();
            tokio::spawn(async move { (api.start(place, &request).await, n) })
        });
        let mut ids = Vec::new();
        for started in futures_util::future::join_all(starts).await {
            let (id, n) = started.context("start an execution")?;
            self.all.insert(id, n);
            ids.push(id);
        }
        Ok(ids)
    }

    /// Watches the nodes settle and kills another process at each point. Removes reached points from the list.
    async fn strike(&mut self, ids: &[Uuid], points: &mut Vec<usize>) -> anyhow::Result<()> {
        let watch = "SELECT p.name, max(e.last_seq) FROM workflow_execution e JOIN chaos_process p ON p.id = e.owner
                      WHERE e.id = ANY ($1) AND e.status = 'RUNNING' GROUP BY p.name ORDER BY p.name";
        let open = "SELECT count(*) FROM workflow_execution WHERE id = ANY ($1) AND completed_at IS NULL";
        while !points.is_empty() {
            for row in self.setup.client.query(watch, &[&ids]).await.context("watch the nodes")? {
                let (name, settled): (String, i64) = (row.get(0), row.get(1));
                let settled = usize::try_from(settled).unwrap_or_default();
                let Some(place) = self.setup.fleet.place_of(&name) else { continue };
                // The largest point that this execution has reached. Other executions reach the smaller points later.
                let Some(met) = points.iter().rposition(|point| settled >= *point) else { continue };
                self.setup.fleet.kill(place);
                points.remove(met);
            }
            let row =
                self.setup.client.query_one(open, &[&ids]).await.context("count the executions that have not ended")?;
            if row.get::<_, i64>(0) == 0 {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
        tokio::time::sleep(ms(self.random.between(0, self.leases.shards / 3))).await;
        Ok(())
    }

    /// Waits until a round's executions have ended. An execution that does not is lost, and reported at the end.
    async fn see_through(&self, ids: &[Uuid]) -> anyhow::Result<()> {
        let patience = ms(4 * self.leases.runs) + Duration::from_secs(30);
        let began = Instant::now();
        loop {
            let open = self.setup.count_unended(ids).await?;
            if open == 0 || began.elapsed() > patience {
                return Ok(());
            }
            let kills = self.setup.fleet.history().kills.len();
            progress(format!("{:>4} s  open {open}  kills {kills}", self.began.elapsed().as_secs()));
            tokio::time::sleep(ms(50)).await;
        }
    }

    async fn judged(&self, options: &ChaosOptions, machine: Value) -> anyhow::Result<Outcome> {
        say("audit: comparing the log, the nodes and the receiver");
        let took = self.began.elapsed();
        let (setup, history) = (&self.setup, self.setup.fleet.history());
        let accepted: Vec<Uuid> = self.all.keys().copied().collect();
        let (lost, slots_left) = (setup.count_unended(&accepted).await?, setup.slots().await?);
        let evidence = DurableEvidence {
            log: &log::load(&setup.client).await?,
            processes: &log::processes(&setup.client).await?,
            deliveries: &setup.receiver.deliveries(),
            kills: &history.kills,
            completed: &check::read_completed(&setup.client).await?,
        };
        let verdict = check::check(&evidence);
        let wrong = self.wrong_outputs().await?;
        for finding in &verdict.findings {
            say(format!("  found: {finding}"));
        }
        let within = if self.short { self.leases.runs + 5_000 } else { self.leases.runs + 2_000 };
        let broken = broken(&verdict, within, lost, slots_left, wrong);
        let rss = Arc::clone(&setup.fleet).pids().into_iter().filter_map(rss_mb).max();
        let figures = json!({
            "run": "durable",
            "executions": accepted.len(),
            "kills": history.kills.len(),
            "interrupted": verdict.interrupted,
            "resumed_max_s": verdict.resumed_max.map(seconds),
            "resumed_within_s": seconds(ms(within)),
            "repeats": verdict.repeats,
            "repeats_over_kills": verdict.repeats_over_kills,
            "repeats_after_complete": verdict.repeats_after_complete,
            "begun_twice": verdict.begun_twice,
            "wrong_outputs": wrong,
            "lost": lost,
            "slots_left": slots_left,
            "rss_end_mb": rss,
            "seconds": seconds(took),
            "seed": options.seed,
            "settings": {
                "processes": PROCESSES,
                "points": NODES,
                "scale": options.scale,
                "short": options.short,
                "leases": self.leases.json(),
                "synchronous_commit": "off: the database server itself is not killed",
            },
            "machine": machine,
        });
        Ok(Outcome { broken, figures })
    }

    /// Executions with a wrong status or output.
    async fn wrong_outputs(&self) -> anyhow::Result<usize> {
        let ids: Vec<Uuid> = self.all.keys().copied().collect();
        let ended =
            "SELECT id, status, output FROM workflow_execution WHERE id = ANY ($1) AND completed_at IS NOT NULL";
        let mut wrong = 0;
        for row in self.setup.client.query(ended, &[&ids]).await.context("read the outputs")? {
            let (id, status, output): (Uuid, String, Option<Value>) = (row.get(0), row.get(1), row.get(2));
            let expected = self.all.get(&id).map(|n| expected(*n));
            if status != "COMPLETED" || output != expected {
                wrong += 1;
                say(format!("  found: execution {id} ended {status} with {output:?}, expected {expected:?}"));
            }
        }
        Ok(wrong)
    }
}

fn broken(verdict: &DurableVerdict, within: u64, lost: i64, slots_left: i64, wrong: usize) -> Vec<String> {
    [
        ("resumed_max_s", verdict.resumed_max.is_some_and(|longest| longest > ms(within))),
        ("never_interrupted", verdict.interrupted == 0),
        ("repeats_over_kills", verdict.repeats_over_kills > 0),
        ("repeats_after_complete", verdict.repeats_after_complete > 0),
        ("begun_twice", verdict.begun_twice > 0),
        ("wrong_outputs", wrong > 0),
        ("lost", lost > 0),
        ("slots_left", slots_left > 0),
    ]
    .into_iter()
    .filter(|(_, is)| *is)
    .map(|(name, _)| name.to_owned())
    .collect()
}
