//! Outage: what the service stands on goes away and comes back, and whatever was accepted ends once, as if
//! nothing had happened. Two acts, each on a service of its own: `database` and `engine`.
//!
//! Invariants
//! - Accepted means that the client saw a 202. It asks again, with the same key, until it does.
//! - Nobody helps: no process is restarted.
//! - What an outage cost is counted by triggers: an attempt leaves no trace on an item that is gone.
//!
//! Not here: killed processes of ours (`strict`, `durable`).

mod database;
mod engine;
mod remote;
pub(super) mod told;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use store::connect::Client;

use super::judge::{Evidence, judge};
use super::load::Load;
use super::mutant::Mutant;
use super::setup::Setup;
use super::{Leases, Outcome, Request, log, ms, seconds};
use crate::report::{machine, say};

const PROCESSES: usize = 3;
const TENANTS: usize = 12;
/// The run is over when nothing ended for so long.
const PATIENCE: Duration = Duration::from_secs(60);
/// After an outage something must end within so long.
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
    /// The engine is away for so long.
    away: Duration,
    /// The load before that, and after.
    around: Duration,
}

impl Size {
    fn of(request: &Request) -> Size {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of times")]
        let restarts = ((20.0 * request.scale).ceil() as usize).max(1);
        match request.short {
            false => Size {
                restarts,
                every: (5_000, 9_000),
                cut_every: (300, 1_500),
                burst_every: ms(40),
                away: Duration::from_secs(120).mul_f64(request.scale).max(Duration::from_secs(10)),
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

/// What an act came to: what it counted, what it alone has to tell, and what did not hold.
#[derive(Debug, Default)]
struct Act {
    tally: Tally,
    told: Value,
    broken: Vec<String>,
}

/// Runs it; of a mutant, the act that is to find it.
pub async fn run(request: &Request, mutant: Option<Mutant>) -> anyhow::Result<Outcome> {
    let (size, leases, machine) = (Size::of(request), Leases::of(request.short), machine());
    let name = mutant.map_or("none", Mutant::name);
    say(format!("outage: {PROCESSES} processes, seed {}, mutant {name}", request.seed));
    let began = Instant::now();
    let database = match mutant {
        None => database::act(request, size).await?,
        Some(_) => Act::default(),
    };
    let engine = engine::act(request, size, mutant).await?;
    let broken = [database.broken, engine.broken].concat();
    let tally = database.tally.and(&engine.tally);
    let mut figures = json!({
        "run": "outage",
        "restarts": 0, "cuts": 0, "accepted": tally.accepted, "terminal": tally.accepted - tally.lost,
        "lost": tally.lost,
        "doubled": tally.doubled, "failed_by_outage": tally.failed, "recovery_max_s": tenths(tally.recovery_s),
        "attempts": tally.attempts, "slots_left": tally.slots_left, "over_cap": tally.over_cap,
        "seconds": seconds(began.elapsed()), "seed": request.seed, "mutant": mutant.map(Mutant::name),
        "machine": machine,
        "settings": {
            "processes": PROCESSES, "workspaces": TENANTS, "short": request.short, "scale": request.scale,
            "leases": leases.json(),
        },
    });
    for (name, value) in [database.told, engine.told].iter().filter_map(Value::as_object).flatten() {
        figures[name] = value.clone();
    }
    Ok(Outcome { broken, figures })
}

/// What an act left behind.
#[derive(Clone, Debug, Default, PartialEq)]
struct Tally {
    accepted: i64,
    lost: i64,
    doubled: i64,
    /// Ended otherwise than they would have without the outage.
    failed: i64,
    attempts: i64,
    slots_left: i64,
    over_cap: i64,
    /// The longest time from an outage's end, or a crash, to the next end of an execution.
    recovery_s: f64,
}

impl Tally {
    /// Counts. `outages` are the moments from which recovery counts, in µs.
    async fn of(setup: &Setup, client: &Client, load: &Load, outages: &[i64]) -> anyhow::Result<Tally> {
        say("audit: replaying the log");
        let accepted = load.accepted();
        let unended = "SELECT count(*) FROM unnest($1::uuid[]) AS a (id) LEFT JOIN workflow_execution e ON e.id = a.id
                        WHERE e.completed_at IS NULL";
        let failed = "SELECT count(*) FROM workflow_execution WHERE completed_at IS NOT NULL AND status <> 'COMPLETED'";
        let slots = "SELECT count(*) FROM execution_queue WHERE stage = 5";
        let (entries, processes) = (log::load(client).await?, log::processes(client).await?);
        let deliveries = setup.receiver.deliveries();
        let verdict = judge(&Evidence { log: &entries, deliveries: &deliveries, pauses: &[], processes: &processes });
        for finding in &verdict.told {
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
            recovery_s: recovery(client, outages).await?,
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

    /// What does not hold, with what the act itself found.
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
pub(super) async fn recovery(client: &Client, outages: &[i64]) -> anyhow::Result<f64> {
    let sql = "SELECT coalesce(max(extract(epoch FROM n.at) - o.at / 1000000.0), 0)::float8
                 FROM unnest($1::bigint[]) AS o (at)
                CROSS JOIN LATERAL (SELECT coalesce(min(e.completed_at), now()) AS at FROM workflow_execution e
                                     WHERE e.completed_at > to_timestamp(o.at / 1000000.0)) n";
    Ok(client.query_one(sql, &[&outages]).await?.get(0))
}

/// Waits until whatever was accepted has ended, or nothing ends any more.
pub(super) async fn quiet(client: &Client) -> anyhow::Result<()> {
    say("quiet: whatever was accepted ends");
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

/// The load is even over the workspaces: a smaller tier's would only wait.
pub(super) async fn even_limits(setup: &Setup) -> anyhow::Result<()> {
    Ok(setup.client.batch_execute("UPDATE workspace SET limit_override = 10").await?)
}

/// Stops an act; its processes' logs are kept if something is to be found out.
pub(super) async fn stop(setup: Setup, keep_logs: bool) -> anyhow::Result<()> {
    if let Some(logs) = setup.stop(keep_logs).await? {
        say(format!("the processes' logs are in {}", logs.display()));
    }
    Ok(())
}

pub(super) fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_an_outage_cost_is_told_with_the_act_that_found_it() {
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
