//! What the log, the nodes' table and the receiver prove together about runs whose process died.
//!
//! Invariants it judges
//! - No request of a node begins after that node's end was recorded.
//! - A node's request comes again at most once for each death its run lived through.
//! - A run whose process died is another's within the lease and a little.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use anyhow::Context;
use store::connect::Client;
use uuid::Uuid;

use crate::chaos::log::{Entry, What};
use crate::receiver::Delivery;
use crate::service::Kill;

/// How many findings are told one by one.
const TOLD: usize = 20;

/// When a node's end was recorded, by execution and node.
pub(super) type Completed = HashMap<(Uuid, String), i64>;

pub(super) struct Evidence<'a> {
    pub(super) log: &'a [Entry],
    pub(super) processes: &'a HashMap<Uuid, String>,
    pub(super) deliveries: &'a [Delivery],
    pub(super) kills: &'a [Kill],
    pub(super) completed: &'a Completed,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Runs in flight whose process was killed, once for each kill.
    pub(super) interrupted: usize,
    pub(super) resumed_max: Option<Duration>,
    pub(super) repeats: usize,
    pub(super) repeats_over_kills: usize,
    pub(super) repeats_after_complete: usize,
    pub(super) begun_twice: usize,
    pub(super) told: Vec<String>,
}

impl Verdict {
    fn tell(&mut self, finding: String) {
        if self.told.len() < TOLD {
            self.told.push(finding);
        }
    }
}

/// When completed nodes were recorded as such.
pub(super) async fn completed(client: &Client) -> anyhow::Result<Completed> {
    let rows = client
        .query(
            "SELECT execution_id, node, (extract(epoch FROM completed_at) * 1000000)::bigint
               FROM workflow_execution_node WHERE status = 'COMPLETED'",
            &[],
        )
        .await
        .context("read the nodes")?;
    Ok(rows.iter().map(|row| ((row.get(0), row.get(1)), row.get(2))).collect())
}

pub(super) fn check(evidence: &Evidence<'_>) -> Verdict {
    let mut verdict = Verdict::default();
    let lives = lives(evidence, &mut verdict);
    let mut deaths: HashMap<Uuid, usize> = HashMap::new();
    for kill in evidence.kills {
        for (execution, life) in &lives {
            if let Some(next) = life.interrupted_by(kill) {
                *deaths.entry(*execution).or_default() += 1;
                verdict.interrupted += 1;
                let took = next.map(|at| Duration::from_micros(u64::try_from(at - kill.at).unwrap_or_default()));
                verdict.resumed_max = verdict.resumed_max.max(took);
            }
        }
    }
    requests(evidence, &deaths, &mut verdict);
    verdict
}

/// Who owned a run from when: a process by name, or nobody (parked, ended).
#[derive(Default)]
struct Life {
    owners: Vec<(i64, Option<String>)>,
}

impl Life {
    /// Was it in this process's hands when it died? Then when it was in another's, if ever.
    fn interrupted_by(&self, kill: &Kill) -> Option<Option<i64>> {
        let at = self.owners.iter().rposition(|(at, _)| *at <= kill.at)?;
        if self.owners[at].1.as_deref() != Some(kill.name.as_str()) {
            return None;
        }
        match self.owners.get(at + 1) {
            // Its last record was on its way: it needed nobody else.
            Some((_, None)) => None,
            Some((next, Some(_))) => Some(Some(*next)),
            None => Some(None),
        }
    }
}

fn lives(evidence: &Evidence<'_>, verdict: &mut Verdict) -> HashMap<Uuid, Life> {
    let mut lives: HashMap<Uuid, Life> = HashMap::new();
    let mut begun: BTreeSet<Uuid> = BTreeSet::new();
    for entry in evidence.log {
        let (execution, owner) = match &entry.what {
            What::Begun { execution, owner } => {
                if !begun.insert(*execution) {
                    verdict.begun_twice += 1;
                    verdict.tell(format!("execution {execution} began twice"));
                }
                (execution, *owner)
            }
            What::Owned { execution, owner } => (execution, *owner),
            What::Ended { execution } => (execution, None),
            _ => continue,
        };
        let name = owner.map(|owner| evidence.processes.get(&owner).cloned().unwrap_or_default());
        lives.entry(*execution).or_default().owners.push((entry.at, name));
    }
    lives
}

fn requests(evidence: &Evidence<'_>, deaths: &HashMap<Uuid, usize>, verdict: &mut Verdict) {
    let mut counts: HashMap<(Uuid, &str), usize> = HashMap::new();
    for delivery in evidence.deliveries {
        *counts.entry((delivery.execution, &delivery.node)).or_default() += 1;
        let ended = evidence.completed.get(&(delivery.execution, delivery.node.clone()));
        if ended.is_some_and(|ended| delivery.begin > *ended) {
            verdict.repeats_after_complete += 1;
            verdict.tell(format!("{}/{} was called after its end", delivery.execution, delivery.node));
        }
    }
    for ((execution, node), count) in counts {
        // The flaky node's first answer asks for a second attempt.
        let repeats = count.saturating_sub(if node == "flaky" { 2 } else { 1 });
        verdict.repeats += repeats;
        let lived_through = deaths.get(&execution).copied().unwrap_or_default();
        if repeats > lived_through {
            verdict.repeats_over_kills += 1;
            verdict.tell(format!("{execution}/{node} came again {repeats} times after {lived_through} deaths"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: Uuid = Uuid::from_u128(1);
    const P: Uuid = Uuid::from_u128(10);
    const Q: Uuid = Uuid::from_u128(11);

    fn hit(begin: i64, node: &str) -> Delivery {
        let node = node.to_owned();
        Delivery { execution: RUN, workspace: RUN, n: 1, node, iteration: 0, begin, end: Some(begin + 1), nth: 0 }
    }

    fn verdict(log: &[(i64, What)], hits: &[Delivery], completed: &[(&str, i64)]) -> Verdict {
        let log: Vec<Entry> = log.iter().map(|(at, what)| Entry { at: *at, what: what.clone() }).collect();
        let processes = HashMap::from([(P, "p".to_owned()), (Q, "q".to_owned())]);
        let completed = completed.iter().map(|(node, at)| ((RUN, (*node).to_owned()), *at)).collect();
        let kills = [Kill { name: "p".to_owned(), at: 100 }];
        check(&Evidence { log: &log, processes: &processes, deliveries: hits, kills: &kills, completed: &completed })
    }

    fn begun(at: i64) -> (i64, What) {
        (at, What::Begun { execution: RUN, owner: Some(P) })
    }

    #[test]
    fn a_run_that_another_took_up_was_interrupted_for_as_long_as_that_took() {
        let log = [begun(50), (300, What::Owned { execution: RUN, owner: Some(Q) })];
        let found = verdict(&log, &[hit(60, "a"), hit(310, "a")], &[("a", 320)]);
        assert_eq!((found.interrupted, found.repeats, found.repeats_over_kills), (1, 1, 0));
        assert_eq!(found.resumed_max, Some(Duration::from_micros(200)));
        assert_eq!(found.repeats_after_complete, 0);
    }

    #[test]
    fn a_repeat_without_a_death_or_after_the_end_is_found() {
        let log = [begun(50), (90, What::Ended { execution: RUN })];
        let found = verdict(&log, &[hit(60, "a"), hit(80, "a")], &[("a", 70)]);
        assert_eq!((found.interrupted, found.repeats_over_kills, found.repeats_after_complete), (0, 1, 1));
    }

    #[test]
    fn the_second_attempt_of_a_call_that_fails_first_is_no_repeat() {
        let found = verdict(&[begun(50)], &[hit(60, "flaky"), hit(70, "flaky")], &[("flaky", 80)]);
        assert_eq!((found.repeats, found.repeats_over_kills), (0, 0));
    }
}
