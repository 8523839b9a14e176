//! Outage: the database or the engine becomes unavailable and comes back. Every accepted execution ends once, with the
//! same result as without the outage. Two acts, each on its own service: `database` and `engine`.
//!
//! Invariants
//! - Accepted means that the client saw a 202. The client repeats the request with the same key until it does.
//! - No process is restarted: the service recovers by itself.
//! - Triggers count the attempts that an outage causes, because the queue item is deleted when its execution ends.
//!
//! Not here: killed processes of the service (`strict`, `durable`).

mod database;
mod engine;
pub(super) mod readiness;
mod remote;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use store::connect::Client;

use super::judge::{SlotEvidence, judge};
use super::load::Load;
use super::mutant::Mutant;
use super::setup::Setup;
use super::{ChaosOptions, Leases, Outcome, log, ms, seconds};
use crate::report::{machine, say};

const PROCESSES: usize = 3;
const TENANTS: usize = 12;
/// The run is over when no execution ended for this long.
const PATIENCE: Duration = Duration::from_secs(60);
/// After an outage an execution must end within this time.
const RECOVERY: Duration = Duration::from_secs(30);

/// How big a run is.
#[derive(Clone, Copy, Debug)]
struct Size {
    restarts: usize,
    /// From one crash to the next, in ms.
    every: (u64, u64),
    /// Connections are cut this often, in ms.
    cut_every: (u64, u64),
    burst_every: Duration,
    /// How long the engine is unavailable.
    away: Duration,
    /// How long the load lasts before the engine is unavailable, and after it.
    around: Duration,
}

impl Size {
    fn of(options: &ChaosOptions) -> Size {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of times")]
        let restarts = ((20.0 * options.scale).ceil() as usize).max(1);
        match options.short {
            false => Size {
                restarts,
                every: (5_000, 9_000),
                cut_every: (300, 1_500),
                burst_every: ms(40),
                away: Duration::from_secs(120).mul_f64(options.scale).max(Duration::from_secs(10)),
                around: Duration::from_secs(10),
            },
            true => Size {
                restarts: 2,
                every: (2_000, 3_000),
                cut_every: (300, 900),
                burst_every: ms(60),
                away: Duration::from_secs(6),
                around: Duration::from_secs(2),
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

/// Runs both acts. With a mutant, runs only the act that must detect the mutant.
pub async fn run(options: &ChaosOptions, mutant: Option<Mutant>) -> anyhow::Result<Outcome> {
    let (size, leases, machine) = (Size::of(options), Leases::of(options.short), machine());
    let name = mutant.map_or("none", Mutant::name);
    say(format!("outage: {PROCESSES} processes, seed {}, mutant {name}", options.seed));
    let began = Instant::now();
    let database = match mutant {
        None => database::act(options, size).await?,
        Some(_) => Act::default(),
    };
    let engine = engine::act(options, size, mutant).await?;
    let broken = [database.broken, engine.broken].concat();
    let tally = database.tally.and(&engine.tally);
    let mut figures = json!({
        "run": "outage",
        "restarts": 0, "cuts": 0, "accepted": tally.accepted, "terminal": tally.accepted - tally.lost,
        "lost": tally.lost,
        "doubled": tally.doubled, "failed_by_outage": tally.failed, "recovery_max_s": round_to_tenths(tally.recovery_s),
        "attempts": tally.attempts, "slots_left": tally.slots_left, "over_cap": tally.over_cap,
        "seconds": seconds(began.elapsed()), "seed": options.seed, "mutant": mutant.map(Mutant::name),
        "machine": machine,
        "settings": {
            "processes": PROCESSES, "workspaces": TENANTS, "short": options.short, "scale": options.scale,
            "leases": leases.json(),
        },
    });
    for (name, value) in [database.figures, engine.figures].iter().filter_map(Value::as_object).flatten() {
        figures[name] = value.clone();
    }
    Ok(Outcome { broken, figures })
}

/// The counts of an act.
#[derive(Clone, Debug, Default, PartialEq)]
struct Tally {
    accepted: i64,
    lost: i64,
    doubled: i64,
    /// Executions that did not complete. Without the outage, all would.
    failed: i64,
    attempts: i64,
    slots_left: i64,
    over_cap: i64,
    /// The longest time from an outage's end, or a crash, to the next end of an execution.
    recovery_s: f64,
}

impl Tally {
    /// Counts the records of an act. `outages` are the times from which recovery is measured, in µs.
    async fn of(setup: &Setup, client: &Client, load: &Load, outages: &[i64]) -> anyhow::Result<Tally> {
        say("audit: replaying the log");
        let accepted = load.accepted();
        let unended = "SELECT count(*) FROM unnest($1::uuid[]) AS a (id) LEFT JOIN workflow_execution e ON e.id = a.id
                        WHERE e.completed_at IS NULL";
        let failed = "SELECT count(*) FROM workflow_execution WHERE completed_at IS NOT NULL AND status <> 'COMPLETED'";
        let slots = "SELECT count(*) FROM execution_queue WHERE stage = 5";
        let (entries, processes) = (log::load(client).await?, log::processes(client).await?);
        let deliveries = setup.receiver.deliveries();
        let verdict =
            judge(&SlotEvidence { log: &entries, deliveries: &deliveries, pauses: &[], processes: &processes });
        for finding in &verdict.findings {
            say(format!("  found: {finding}"));
        }
        Ok(Tally {
            accepted: i64::try_from(accepted.len())?,
            lost: client.query_one(unended, &[&accepted]).await?.get(0),
            doubled: i64::try_from(verdict.double_started())?,
            failed: client.query_one(failed, &[]).await?.get(0),
            attempts: i64::try_from(verdict.attempts)?,
            slots_left: client.query_one(slots, &[]).await?.get(0),
            over_cap: i64::try_from(verdict.over_cap())?,
            recovery_s: longest_recovery(client, outages).await?,
        })
    }

    fn and(self, other: &Tally) -> Tally {
        Tally {
            accepted: self.accepted + other.accepted,
            lost: self.lost + other.lost,
            doubled: self.doubled + other.doubled,
            failed: self.failed + other.failed,
            attempts: self.attempts + other.attempts,
            slots_left: self.slots_left + other.slots_left,
            over_cap: self.over_cap + other.over_cap,
            recovery_s: self.recovery_s.max(other.recovery_s),
        }
    }

    /// The names of the invariants that did not hold, including the act's own in `more`.
    fn broken(&self, act: &str, more: &[(&str, bool)]) -> Vec<String> {
        let checks = [
            ("lost", self.lost > 0 || self.accepted == 0),
            ("doubled", self.doubled > 0),
            ("failed_by_outage", self.failed > 0),
            ("attempts", self.attempts > 0),
            ("slots_left", self.slots_left > 0),
            ("over_cap", self.over_cap > 0),
            ("recovery", self.recovery_s > RECOVERY.as_secs_f64()),
        ];
        let broke = checks.iter().chain(more).filter(|(_, broke)| *broke);
        broke.map(|(name, _)| format!("{act}: {name}")).collect()
    }
}

/// The longest time from one of these moments to the next end of an execution, in seconds.
pub(super) async fn longest_recovery(client: &Client, outages: &[i64]) -> anyhow::Result<f64> {
    let sql = "SELECT coalesce(max(extract(epoch FROM n.at) - o.at / 1000000.0), 0)::float8
                 FROM unnest($1::bigint[]) AS o (at)
                CROSS JOIN LATERAL (SELECT coalesce(min(e.completed_at), now()) AS at FROM workflow_execution e
                                     WHERE e.completed_at > to_timestamp(o.at / 1000000.0)) n";
    Ok(client.query_one(sql, &[&outages]).await?.get(0))
}

/// Waits until every accepted execution has ended, or until no execution ended for `PATIENCE`.
pub(super) async fn wait_until_ended(client: &Client) -> anyhow::Result<()> {
    say("quiet: waiting for every accepted execution to end");
    let open = "SELECT count(*) FROM workflow_execution WHERE completed_at IS NULL";
    let (mut last, mut since) = (i64::MAX, Instant::now());
    loop {
        let left: i64 = client.query_one(open, &[]).await?.get(0);
        if left < last {
            (last, since) = (left, Instant::now());
        }
        if left == 0 || since.elapsed() > PATIENCE {
            return Ok(());
        }
        tokio::time::sleep(ms(100)).await;
    }
}

/// Gives all workspaces the same limit, because items of a smaller tier would only wait.
pub(super) async fn even_limits(setup: &Setup) -> anyhow::Result<()> {
    Ok(setup.client.batch_execute("UPDATE workspace SET limit_override = 10").await?)
}

/// Stops an act. Keeps the logs of its processes if something must be investigated.
pub(super) async fn stop_setup(setup: Setup, keep_logs: bool) -> anyhow::Result<()> {
    if let Some(logs) = setup.stop(keep_logs).await? {
        say(format!("the processes' logs are in {}", logs.display()));
    }
    Ok(())
}

pub(super) fn round_to_tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_an_outage_is_reported_with_the_act_that_found_it() {
        let good = Tally { accepted: 3, recovery_s: 29.0, ..Tally::default() };
        let broken = |change: fn(&mut Tally)| {
            let mut tally = good.clone();
            change(&mut tally);
            tally.broken("engine", &[("readiness", false)]).join(" ")
        };
        assert_eq!(broken(|_| {}), "");
        assert_eq!(broken(|tally| tally.accepted = 0), "engine: lost");
        assert_eq!(broken(|tally| tally.lost = 1), "engine: lost");
        assert_eq!(broken(|tally| tally.doubled = 1), "engine: doubled");
        assert_eq!(broken(|tally| tally.failed = 1), "engine: failed_by_outage");
        assert_eq!(broken(|tally| tally.attempts = 1), "engine: attempts");
        assert_eq!(broken(|tally| tally.slots_left = 1), "engine: slots_left");
        assert_eq!(broken(|tally| tally.over_cap = 1), "engine: over_cap");
        assert_eq!(broken(|tally| tally.recovery_s = 31.0), "engine: recovery");
        assert_eq!(good.broken("database", &[("readiness", true)]), ["database: readiness"]);
    }
}
