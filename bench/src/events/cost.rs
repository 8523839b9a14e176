//! Measures what the change log costs over the whole life of an execution.
//!
//! Invariants
//! - Three variants take turns: without the log; with it, as in production; and with a reader of every change.
//! - In the variant without the log, the log must be empty at the end.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::cluster::Cluster;
use crate::dispatch::{Scale, lifecycle};
use crate::measure::stats::median;
use crate::measure::world::World;
use crate::report::say;

const ROUNDS: usize = 5;
/// The stream of every change of an execution.
const STREAM: &str = "/api/v1/workflow/executions/events";
/// The start of each statement part that writes the log.
const WRITES: &str = "INSERT INTO forebay.change_log";

pub(super) struct Cost {
    /// The share of throughput lost to writing the log.
    pub(super) log: f64,
    /// The share of throughput lost to writing the log and to a reader on this machine.
    pub(super) read: f64,
    pub(super) per_s: Value,
    pub(super) cpu_us: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Without,
    Written,
    Read,
}

impl Way {
    const ALL: [Way; 3] = [Way::Without, Way::Written, Way::Read];

    fn name(self) -> &'static str {
        match self {
            Way::Without => "without",
            Way::Written => "written",
            Way::Read => "read",
        }
    }
}

pub(super) async fn measure(cluster: &Cluster, scale: Scale) -> Result<Cost> {
    let mut per_s: [Vec<f64>; 3] = Default::default();
    let mut cpu: [Vec<f64>; 3] = Default::default();
    for round in 1..=ROUNDS {
        // Each round begins with another variant, so that a slow change of the machine's speed affects all variants
        // equally.
        for turn in 0..Way::ALL.len() {
            let at = (turn + round) % Way::ALL.len();
            let life = one(cluster, scale, Way::ALL[at], round).await?;
            per_s[at].push(life.per_s);
            cpu[at].push(life.database_us + life.service_us);
            say(format!(
                "{round} of {ROUNDS}, {}: {:.0}/s, {:.0} us of the server and {:.0} of the service each",
                Way::ALL[at].name(),
                life.per_s,
                life.database_us,
                life.service_us
            ));
        }
    }
    let values = |of: &[Vec<f64>; 3]| -> Value {
        Way::ALL.iter().zip(of).map(|(way, values)| (way.name().to_owned(), json!(median(values).round()))).collect()
    };
    let lost = |with: usize| 1.0 - median(&per_s[with]) / median(&per_s[0]);
    Ok(Cost { log: lost(1), read: lost(2), per_s: values(&per_s), cpu_us: values(&cpu) })
}

async fn one(cluster: &Cluster, scale: Scale, way: Way, round: usize) -> Result<lifecycle::Lifecycle> {
    let world = World::create(cluster, &format!("{}_{round}", way.name())).await?;
    let life = lifecycle::measure(&world, scale, async |service| match way {
        // The service installs its functions when it starts.
        Way::Without => {
            silence(&world.client).await.context("remove the statements that write the change log").map(|()| None)
        }
        Way::Written => Ok(None),
        Way::Read => service.follow(STREAM).await.map(Some),
    })
    .await?;
    let logged: i64 = world.client.query_one("SELECT count(*) FROM change_log", &[]).await?.try_get(0)?;
    ensure!((logged > 0) == (way != Way::Without), "{} log entries, variant {}", logged, way.name());
    Ok(life)
}

/// Removes the parts that write the log from the functions that an execution uses.
async fn silence(client: &Client) -> Result<()> {
    let sql = "SELECT pg_get_functiondef(p.oid) FROM pg_proc p WHERE p.proname = ANY ($1)";
    let names = ["enqueue_many", "claim", "record"];
    let found = client.query(sql, &[&names.as_slice()]).await?;
    ensure!(found.len() == names.len(), "found {} of the functions {names:?}", found.len());
    for row in found {
        let text = without(row.try_get(0)?).context("a function writes the log in an unknown way")?;
        client.batch_execute(&text).await?;
    }
    Ok(())
}

/// A function's text without the parts `, logged AS (INSERT INTO forebay.change_log …)`. None if it writes the log in
/// another way.
fn without(text: &str) -> Option<String> {
    let Some(write) = text.find(WRITES) else { return Some(text.to_owned()) };
    let comma = text[..write].trim_end().strip_suffix("logged AS (")?.rfind(',')?;
    let open = comma + text[comma..].find('(')?;
    let mut depth = 0_usize;
    for (at, sign) in text[open..].char_indices() {
        match sign {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return without(&format!("{}{}", &text[..comma], &text[open + at + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::without;

    #[test]
    fn only_the_part_that_writes_the_log_goes() {
        let text = "WITH e AS (SELECT 1),\n    logged AS (\n INSERT INTO forebay.change_log SELECT f(e.id) FROM e HAVING (true))\nSELECT 2";
        assert_eq!(without(text).as_deref(), Some("WITH e AS (SELECT 1)\nSELECT 2"));
        assert_eq!(without("SELECT 1").as_deref(), Some("SELECT 1"));
        assert_eq!(without("INSERT INTO forebay.change_log SELECT 1"), None);
    }
}
