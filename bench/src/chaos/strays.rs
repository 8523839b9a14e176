//! Strays: rows are deleted by hand, runs belong to an engine that is no longer configured, and every statement fails
//! with database errors. Every accepted execution ends once, with the same result as without faults, and no slot stays
//! taken.
//!
//!     rounds: load, every statement fails in every way that passes ──▶ quiet ──▶ rows are deleted, engines changed ──▶ audit
//!
//! Invariants
//! - Accepted means that a client saw the answer. The client repeats its request until it does.
//! - Each call of the workflows has only one attempt. So a repeated or failed call is an error of the service.
//! - A row deleted by hand does not count as lost by the service, but its slot must be freed.
//!
//! Not here: a server that is killed (`outage`), killed processes (`strict`, `durable`).

mod load;
mod rows;
mod saboteur;
mod wire;

use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Map, Value, json};

use self::load::{Accepted, StraysLoad};
use self::saboteur::Class;
pub(super) use self::saboteur::Saboteur;
use super::mutant::Mutant;
use super::setup::{Setup, Stage};
use super::{ChaosOptions, Leases, Outcome, ms, seconds};
use crate::receiver::Policy;
use crate::report::{machine, say};

const PROCESSES: usize = 2;
/// The run is over when no execution ended for this long.
const PATIENCE: Duration = Duration::from_secs(60);
/// A slot whose row was deleted or whose run was terminated must be free within this time.
const SLOT_FREE: Duration = Duration::from_secs(60);

/// How big a run is.
#[derive(Clone, Copy, Debug)]
struct Size {
    rounds: i64,
    /// Executions of a round, and the same number of events.
    each: i64,
    /// How many execution rows are deleted, and for how many executions the stored engine is changed.
    strays: usize,
}

impl Size {
    fn of(options: &ChaosOptions) -> Size {
        #[expect(clippy::cast_possible_truncation, reason = "a number of rounds")]
        let rounds = ((10.0 * options.scale).ceil() as i64).max(1);
        match options.short {
            false => Size { rounds, each: 20, strays: 5 },
            true => Size { rounds: 2, each: 8, strays: 2 },
        }
    }
}

/// Runs all rounds.
pub async fn run(options: &ChaosOptions, mutant: Option<Mutant>) -> anyhow::Result<Outcome> {
    let (size, machine, began) = (Size::of(options), machine(), Instant::now());
    say(format!("strays: {PROCESSES} processes, {} rounds, seed {}", size.rounds, options.seed));
    // The mutant treats a database error while a node opens its wait as an answer, so the node fails.
    let saboteur = Saboteur::new(mutant.map(|_| "open_wait(")).await?;
    // The leases have their defaults, so that no transient error lasts as long as a lease.
    let leases = Leases { poll: 500, ..Leases::of(false) };
    let policy = Policy { seed: options.seed, fast: (200, 600), slow: (800, 1_500), slow_every: 6, repeat: ms(50) };
    let stage = Stage { saboteur: Some(saboteur.clone()), noted: false, ..Stage::new(PROCESSES, leases, policy) };
    let setup = Setup::start(options, stage).await?;
    let run = Run::new(setup, saboteur, size).await?;
    let found = run.setup.while_all_live(run.play(mutant)).await?;
    let broken = found.broken();
    let keep = options.keep_logs || !broken.is_empty();
    let statements = run.saboteur.statements();
    if let Some(logs) = run.setup.stop(keep).await? {
        say(format!("the processes' logs are in {}", logs.display()));
    }
    let figures = json!({
        "run": "strays",
        "slots_left": found.slots_left, "lost": found.lost, "doubled": found.doubled, "unknown": found.unknown,
        "failed_by_outage": found.failed, "injected": found.injected, "statements": statements,
        "accepted": found.accepted,
        "seconds": seconds(began.elapsed()), "seed": options.seed, "mutant": mutant.map(Mutant::name),
        "machine": machine,
        "settings": { "processes": PROCESSES, "rounds": size.rounds, "each": size.each, "short": options.short,
        "scale": options.scale },
    });
    Ok(Outcome { broken, figures })
}

struct Run {
    setup: Setup,
    saboteur: Saboteur,
    size: Size,
    load: StraysLoad,
}

/// The findings of the audit.
#[derive(Clone, Debug, Default)]
struct Found {
    accepted: usize,
    slots_left: i64,
    lost: i64,
    doubled: usize,
    unknown: i64,
    failed: i64,
    injected: Map<String, Value>,
}

impl Found {
    fn broken(&self) -> Vec<String> {
        let idle = self.injected.values().any(|count| count.as_u64() == Some(0));
        let checks = [
            ("slots_left", self.slots_left > 0),
            ("lost", self.lost > 0 || self.accepted == 0),
            ("doubled", self.doubled > 0),
            ("unknown", self.unknown > 0),
            ("failed_by_outage", self.failed > 0),
            ("injected", idle || self.injected.is_empty()),
        ];
        checks.into_iter().filter(|(_, broke)| *broke).map(|(name, _)| name.to_owned()).collect()
    }
}

impl Run {
    async fn new(setup: Setup, saboteur: Saboteur, size: Size) -> anyhow::Result<Run> {
        let tenants = setup.tenants(1, &load::documents(&setup.receiver)).await?;
        let tenant = tenants.into_iter().next().context("expected one workspace")?;
        setup.client.batch_execute("UPDATE workspace SET limit_override = 200").await.context("set the limit")?;
        let http = reqwest::Client::builder().timeout(Duration::from_secs(10)).build()?;
        let load = StraysLoad { api: setup.api.clone(), http, key: setup.spec.root_key.clone(), tenant };
        load.bind().await?;
        Ok(Run { setup, saboteur, size, load })
    }

    async fn play(&self, mutant: Option<Mutant>) -> anyhow::Result<Found> {
        let mut accepted = Accepted::default();
        for round in 0..self.size.rounds {
            self.saboteur.arm();
            let numbers = round * self.size.each..(round + 1) * self.size.each;
            let more = self.load.round(numbers).await?;
            accepted.executions.extend(more.executions);
            accepted.events.extend(more.events);
            self.quiet(&accepted).await?;
            self.saboteur.disarm();
            say(format!("round {} of {}: {}", round + 1, self.size.rounds, Value::from(self.injected(&[]))));
        }
        let deleted = match mutant {
            None => self.strays().await?,
            Some(_) => Vec::new(),
        };
        self.audit(&accepted, &deleted).await
    }

    /// Waits until everything accepted has ended and no slot is held, or until nothing changes any more.
    async fn quiet(&self, accepted: &Accepted) -> anyhow::Result<()> {
        let (mut last, mut since) = (i64::MAX, Instant::now());
        loop {
            let left = self.unended(accepted).await? + self.setup.slots().await?;
            if left < last {
                (last, since) = (left, Instant::now());
            }
            if left == 0 || since.elapsed() > PATIENCE {
                return Ok(());
            }
            tokio::time::sleep(ms(100)).await;
        }
    }

    /// How many accepted executions have not ended, including those that events must start.
    async fn unended(&self, accepted: &Accepted) -> anyhow::Result<i64> {
        let executions =
            "SELECT count(*) FROM unnest($1::uuid[]) AS a (id) LEFT JOIN workflow_execution e ON e.id = a.id
                           WHERE e.completed_at IS NULL";
        let events = "SELECT count(*) FROM unnest($1::uuid[]) AS a (id)
                       WHERE NOT EXISTS (SELECT 1 FROM workflow_execution e WHERE e.completed_at IS NOT NULL
                                            AND e.trigger ->> 'type' = 'event' AND e.trigger #>> '{event,id}' = \
                                            a.id::text)";
        let client = &self.setup.client;
        let left: i64 = client.query_one(executions, &[&accepted.executions]).await?.get(0);
        Ok(left + client.query_one(events, &[&accepted.events]).await?.get::<_, i64>(0))
    }

    async fn audit(&self, accepted: &Accepted, deleted: &[(&str, usize)]) -> anyhow::Result<Found> {
        let client = &self.setup.client;
        let failed = "SELECT e.status, coalesce(e.error ->> 'type', ''), coalesce(e.error ->> 'message', '') FROM \
            workflow_execution e
                       WHERE e.completed_at IS NOT NULL AND e.status <> 'COMPLETED' AND e.error ->> 'type' IS DISTINCT \
                       FROM 'TERMINATED'";
        let failed = client.query(failed, &[]).await?;
        for row in failed.iter().take(10) {
            say(format!("  found: {} {} {}", row.get::<_, &str>(0), row.get::<_, &str>(1), row.get::<_, &str>(2)));
        }
        let unknown = "SELECT count(*) FROM workflow_execution_node WHERE status = 'UNKNOWN'";
        let twice = "SELECT count(*) FROM (SELECT 1 FROM workflow_execution e WHERE e.trigger ->> 'type' = 'event'
                      GROUP BY e.trigger #>> '{event,id}' HAVING count(*) > 1) t";
        let repeated = self.setup.receiver.deliveries().into_iter().filter(|delivery| delivery.nth > 0);
        let repeated = repeated.inspect(|delivery| say(format!("  found: {} was called again", delivery.node))).count();
        let twice: i64 = client.query_one(twice, &[]).await?.get(0);
        Ok(Found {
            accepted: accepted.executions.len() + accepted.events.len(),
            slots_left: self.setup.slots().await?,
            lost: self.unended(accepted).await?,
            doubled: repeated + usize::try_from(twice)?,
            unknown: client.query_one(unknown, &[]).await?.get(0),
            failed: i64::try_from(failed.len())?,
            injected: self.injected(deleted),
        })
    }

    fn injected(&self, more: &[(&str, usize)]) -> Map<String, Value> {
        let injected = self.saboteur.injected();
        let of = |class: &Class| (class.name().to_owned(), json!(injected.get(class).copied().unwrap_or_default()));
        let more = more.iter().map(|(name, count)| ((*name).to_owned(), json!(count)));
        Class::ALL.iter().map(of).chain(more).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_every_fault_is_reported() {
        let injected = Map::from_iter([("lock_timeout".to_owned(), json!(3))]);
        let good = Found { accepted: 1, injected, ..Found::default() };
        let broken = |change: fn(&mut Found)| {
            let mut found = good.clone();
            change(&mut found);
            found.broken().join(" ")
        };
        assert_eq!(broken(|_| {}), "");
        assert_eq!(broken(|found| found.accepted = 0), "lost");
        assert_eq!(broken(|found| found.lost = 1), "lost");
        assert_eq!(broken(|found| found.slots_left = 1), "slots_left");
        assert_eq!(broken(|found| found.doubled = 1), "doubled");
        assert_eq!(broken(|found| found.unknown = 1), "unknown");
        assert_eq!(broken(|found| found.failed = 1), "failed_by_outage");
        assert_eq!(broken(|found| found.injected["lock_timeout"] = json!(0)), "injected");
    }
}
