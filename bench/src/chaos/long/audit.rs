//! The audit at the end of a run: reads all sources, and asks both judges.
//!
//! Not here: what they judge (`judge`, `chaos::judge`).

use std::collections::HashMap;

use uuid::Uuid;

use super::super::log::{Entry, SlotChange};
use super::super::setup::Setup;
use super::super::zombies::Zombies;
use super::super::{journal, log};
use super::approver::Approver;
use super::facts;
use super::judge::{LongEvidence, LongVerdict, judge};
use super::plan::Plan;
use crate::receiver::ReceivedRequest;

/// The results of the audit.
pub(super) struct Audit {
    pub(super) verdict: LongVerdict,
    /// The verdict on limits, slots and owners.
    pub(super) slots: super::super::judge::SlotVerdict,
    pub(super) slots_left: i64,
    pub(super) children: usize,
}

impl Audit {
    /// In this order it can be asked for while the run goes on: what follows from something else is read before it.
    pub(super) async fn of(setup: &Setup, plans: &[Plan], approver: &Approver) -> anyhow::Result<Audit> {
        let client = &setup.client;
        let (calls, executions) = (setup.receiver.deliveries(), facts::executions(client).await?);
        let (lines, given) = (journal::read(&setup.spec.logs)?, approver.given());
        let (waits, done) = (facts::wait_facts(client).await?, facts::done(client).await?);
        let (log, processes) = (log::load(client).await?, log::processes(client).await?);
        let pauses = setup.fleet.history().pauses;
        let evidence = LongEvidence {
            plans,
            executions: &executions,
            ends: &ends(&log),
            done: &done,
            waits: &waits,
            calls: &calls,
            lines: &lines,
            given: &given,
            zombies: &Zombies::new(&log, &pauses, &processes),
        };
        let mut verdict = judge(&evidence);
        let waits_left = usize::try_from(facts::waits_left(client).await?)?;
        if waits_left > 0 {
            verdict.findings.push(format!("{waits_left} waits are open although their execution has ended"));
        }
        verdict.lost += waits_left;
        // A tree runs in its root's slot, so every call of it belongs to the root.
        let roots: HashMap<Uuid, Uuid> = executions.iter().map(|one| (one.id, one.root)).collect();
        let of_root = |call: ReceivedRequest| ReceivedRequest {
            execution: roots.get(&call.execution).copied().unwrap_or(call.execution),
            ..call
        };
        let calls: Vec<ReceivedRequest> = calls.into_iter().map(of_root).collect();
        let slots = super::super::judge::judge(&super::super::judge::SlotEvidence {
            log: &log,
            deliveries: &calls,
            pauses: &pauses,
            processes: &processes,
        });
        let (slots_left, children) = (setup.slots().await?, executions.iter().filter(|one| !one.is_root()).count());
        Ok(Audit { verdict, slots, slots_left, children })
    }

    /// Executions that ended other than planned, began twice, or changed after their end.
    pub(super) fn wrong(&self) -> usize {
        self.verdict.wrong + self.slots.illegal + self.slots.double_started()
    }

    /// What cannot be undone, whatever still comes.
    pub(super) fn for_good(&self) -> Vec<String> {
        let Audit { verdict, slots, .. } = self;
        named(&[
            ("wrong", self.wrong()),
            ("repeated_after_complete", verdict.repeated_after_complete),
            ("token_reuse", verdict.token_reuse),
            ("over_cap", slots.over_workspace + slots.over_definition + slots.over_key),
            ("zombie_facts", slots.zombie_facts),
        ])
    }

    pub(super) fn broken(&self) -> Vec<String> {
        let Audit { verdict, slots, slots_left, .. } = self;
        named(&[
            ("wrong", self.wrong()),
            ("repeated_after_complete", verdict.repeated_after_complete),
            ("token_reuse", verdict.token_reuse),
            ("over_cap", slots.over_cap()),
            ("outside_slot", slots.outside_slot),
            ("zombie_facts", slots.zombie_facts),
            ("lost", verdict.lost),
            ("slots_left", usize::try_from(*slots_left).unwrap_or_default()),
        ])
    }
}

fn named(counts: &[(&str, usize)]) -> Vec<String> {
    counts.iter().filter(|(_, count)| *count > 0).map(|(name, _)| (*name).to_owned()).collect()
}

/// How often each execution ended, or was changed after its end.
fn ends(log: &[Entry]) -> HashMap<Uuid, usize> {
    let mut ends: HashMap<Uuid, usize> = HashMap::new();
    for entry in log {
        if let SlotChange::Ended { execution } | SlotChange::Revived { execution } = &entry.what {
            *ends.entry(*execution).or_default() += 1;
        }
    }
    ends
}
