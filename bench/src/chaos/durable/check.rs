//! Checks the log, the nodes' table and the receiver's requests of runs whose process died.
//!
//! Invariants it judges
//! - No request of a node begins after that node's end was recorded.
//! - A node's request is repeated at most once for each death of its run's owner.
//! - A run whose process died has another owner within the lease and a short margin.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use anyhow::Context;
use store::connect::Client;
use uuid::Uuid;

use crate::chaos::log::{Entry, SlotChange};
use crate::receiver::ReceivedRequest;
use crate::service::Kill;

/// How many findings are printed one by one.
const MOST_FINDINGS: usize = 20;

/// When a node's end was recorded, by execution and node.
pub(super) type Completed = HashMap<(Uuid, String), i64>;

pub(super) struct DurableEvidence<'a> {
    pub(super) log: &'a [Entry],
    pub(super) processes: &'a HashMap<Uuid, String>,
    pub(super) deliveries: &'a [ReceivedRequest],
    pub(super) kills: &'a [Kill],
    pub(super) completed: &'a Completed,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct DurableVerdict {
    /// Runs in flight whose process was killed, counted once for each kill.
    pub(super) interrupted: usize,
    pub(super) resumed_max: Option<Duration>,
    pub(super) repeats: usize,
    pub(super) repeats_over_kills: usize,
    pub(super) repeats_after_complete: usize,
    pub(super) begun_twice: usize,
    pub(super) findings: Vec<String>,
}

impl DurableVerdict {
    fn find(&mut self, finding: String) {
        if self.findings.len() < MOST_FINDINGS {
            self.findings.push(finding);
        }
    }
}

/// Reads when each completed node was recorded.
pub(super) async fn read_completed(client: &Client) -> anyhow::Result<Completed> {
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

pub(super) fn check(evidence: &DurableEvidence<'_>) -> DurableVerdict {
    let mut verdict = DurableVerdict::default();
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

/// Which process owned a run from which time on, by name. None while the run was parked, and after its end.
#[derive(Default)]
struct Life {
    owners: Vec<(i64, Option<String>)>,
}

impl Life {
    /// If this process owned the run when it was killed, returns when another process owned it, if ever.
    fn interrupted_by(&self, kill: &Kill) -> Option<Option<i64>> {
        let at = self.owners.iter().rposition(|(at, _)| *at <= kill.at)?;
        if self.owners[at].1.as_deref() != Some(kill.name.as_str()) {
            return None;
        }
        match self.owners.get(at + 1) {
            // The process had sent the run's last record before it died, so the run needed no other owner.
            Some((_, None)) => None,
            Some((next, Some(_))) => Some(Some(*next)),
            None => Some(None),
        }
    }
}

fn lives(evidence: &DurableEvidence<'_>, verdict: &mut DurableVerdict) -> HashMap<Uuid, Life> {
    let mut lives: HashMap<Uuid, Life> = HashMap::new();
    let mut begun: BTreeSet<Uuid> = BTreeSet::new();
    for entry in evidence.log {
        let (execution, owner) = match &entry.what {
            SlotChange::Begun { execution, owner } => {
                if !begun.insert(*execution) {
                    verdict.begun_twice += 1;
                    verdict.find(format!("execution {execution} began twice"));
                }
                (execution, *owner)
            }
            SlotChange::Owned { execution, owner } => (execution, *owner),
            SlotChange::Ended { execution } => (execution, None),
            _ => continue,
        };
        let name = owner.map(|owner| evidence.processes.get(&owner).cloned().unwrap_or_default());
        lives.entry(*execution).or_default().owners.push((entry.at, name));
    }
    lives
}

fn requests(evidence: &DurableEvidence<'_>, deaths: &HashMap<Uuid, usize>, verdict: &mut DurableVerdict) {
    let mut counts: HashMap<(Uuid, &str), usize> = HashMap::new();
    for delivery in evidence.deliveries {
        *counts.entry((delivery.execution, &delivery.node)).or_default() += 1;
        let ended = evidence.completed.get(&(delivery.execution, delivery.node.clone()));
        if ended.is_some_and(|ended| delivery.begin > *ended) {
            verdict.repeats_after_complete += 1;
            verdict.find(format!("{}/{} was called after its end", delivery.execution, delivery.node));
        }
    }
    for ((execution, node), count) in counts {
        // The flaky node's first response asks for a second attempt.
        let repeats = count.saturating_sub(if node == "flaky" { 2 } else { 1 });
        verdict.repeats += repeats;
        let lived_through = deaths.get(&execution).copied().unwrap_or_default();
        if repeats > lived_through {
            verdict.repeats_over_kills += 1;
            verdict.find(format!("{execution}/{node} was repeated {repeats} times after {lived_through} deaths"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: Uuid = Uuid::from_u128(1);
    const P: Uuid = Uuid::from_u128(10);
    const Q: Uuid = Uuid::from_u128(11);

    fn hit(begin: i64, node: &str) -> ReceivedRequest {
        let node = node.to_owned();
        ReceivedRequest {
            execution: RUN,
            workspace: RUN,
            n: 1,
            node,
            iteration: 0,
            begin,
            end: Some(begin + 1),
            nth: 0,
        }
    }

    fn verdict(log: &[(i64, SlotChange)], hits: &[ReceivedRequest], completed: &[(&str, i64)]) -> DurableVerdict {
        let log: Vec<Entry> = log.iter().map(|(at, what)| Entry { at: *at, what: what.clone() }).collect();
        let processes = HashMap::from([(P, "p".to_owned()), (Q, "q".to_owned())]);
        let completed = completed.iter().map(|(node, at)| ((RUN, (*node).to_owned()), *at)).collect();
        let kills = [Kill { name: "p".to_owned(), at: 100 }];
        check(&DurableEvidence {
            log: &log,
            processes: &processes,
            deliveries: hits,
            kills: &kills,
            completed: &completed,
        })
    }

    fn begun(at: i64) -> (i64, SlotChange) {
        (at, SlotChange::Begun { execution: RUN, owner: Some(P) })
    }

    #[test]
    fn a_run_that_another_took_up_was_interrupted_for_as_long_as_that_took() {
        let log = [begun(50), (300, SlotChange::Owned { execution: RUN, owner: Some(Q) })];
        let found = verdict(&log, &[hit(60, "a"), hit(310, "a")], &[("a", 320)]);
        assert_eq!((found.interrupted, found.repeats, found.repeats_over_kills), (1, 1, 0));
        assert_eq!(found.resumed_max, Some(Duration::from_micros(200)));
        assert_eq!(found.repeats_after_complete, 0);
    }

    #[test]
    fn a_repeat_without_a_death_or_after_the_end_is_found() {
        let log = [begun(50), (90, SlotChange::Ended { execution: RUN })];
        let found = verdict(&log, &[hit(60, "a"), hit(80, "a")], &[("a", 70)]);
        assert_eq!((found.interrupted, found.repeats_over_kills, found.repeats_after_complete), (0, 1, 1));
    }

    #[test]
    fn the_second_attempt_of_a_call_that_fails_first_is_no_repeat() {
        let found = verdict(&[begun(50)], &[hit(60, "flaky"), hit(70, "flaky")], &[("flaky", 80)]);
        assert_eq!((found.repeats, found.repeats_over_kills), (0, 0));
    }
}
