//! The look at what a run left: all witnesses are read, and both judges asked.
//!
//! Not here: what they judge (`judge`, `chaos::judge`).

use std::collections::HashMap;

use uuid::Uuid;

use super::super::log::{Entry, What};
use super::super::setup::Setup;
use super::super::zombies::Zombies;
use super::super::{journal, log};
use super::approver::Given;
use super::facts;
use super::judge::{Evidence, Verdict, judge};
use super::plan::Plan;
use crate::receiver::Delivery;

/// What a look at the end found.
pub(super) struct Audit {
    pub(super) verdict: Verdict,
    /// Of limits, slots and owners.
    pub(super) slots: super::super::judge::Verdict,
    pub(super) slots_left: i64,
    pub(super) children: usize,
}

impl Audit {
    pub(super) async fn of(setup: &Setup, plans: &[Plan], given: &[Given]) -> anyhow::Result<Audit> {
        let client = &setup.client;
        let (log, processes) = (log::load(client).await?, log::processes(client).await?);
        let executions = facts::executions(client).await?;
        let (calls, pauses) = (setup.receiver.deliveries(), setup.fleet.history().pauses);
        let evidence = Evidence {
            plans,
            executions: &executions,
            ends: &ends(&log),
            done: &facts::done(client).await?,
            asked: &facts::asked(client).await?,
            calls: &calls,
            lines: &journal::read(&setup.spec.logs)?,
            given,
            zombies: &Zombies::new(&log, &pauses, &processes),
        };
        let mut verdict = judge(&evidence);
        let asks_left = usize::try_from(facts::asks_left(client).await?)?;
        if asks_left > 0 {
            verdict.told.push(format!("{asks_left} asks are open though their execution ended"));
        }
        verdict.lost += asks_left;
        // A tree is in its root's slot: whatever is called for it is called for the root.
        let roots: HashMap<Uuid, Uuid> = executions.iter().map(|one| (one.id, one.root)).collect();
        let of_root = |call: Delivery| Delivery {
            execution: roots.get(&call.execution).copied().unwrap_or(call.execution),
            ..call
        };
        let calls: Vec<Delivery> = calls.into_iter().map(of_root).collect();
        let slots = super::super::judge::judge(&super::super::judge::Evidence {
            log: &log,
            deliveries: &calls,
            pauses: &pauses,
            processes: &processes,
        });
        let (slots_left, children) = (setup.slots().await?, executions.iter().filter(|one| !one.is_root()).count());
        Ok(Audit { verdict, slots, slots_left, children })
    }

    /// Ended otherwise than planned; begun twice, or gone back after the end.
    pub(super) fn wrong(&self) -> usize {
        self.verdict.wrong + self.slots.illegal + self.slots.double_started()
    }

    pub(super) fn broken(&self) -> Vec<String> {
        let Audit { verdict, slots, slots_left, .. } = self;
        [
            ("wrong", self.wrong()),
            ("repeated_after_complete", verdict.repeated_after_complete),
            ("token_reuse", verdict.token_reuse),
            ("over_cap", slots.over_cap()),
            ("outside_slot", slots.outside_slot),
            ("zombie_facts", slots.zombie_facts),
            ("lost", verdict.lost),
            ("slots_left", usize::try_from(*slots_left).unwrap_or_default()),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, _)| name.to_owned())
        .collect()
    }
}

/// How often each execution ended, or was changed after its end.
fn ends(log: &[Entry]) -> HashMap<Uuid, usize> {
    let mut ends: HashMap<Uuid, usize> = HashMap::new();
    for entry in log {
        if let What::Ended { execution } | What::Revived { execution } = &entry.what {
            *ends.entry(*execution).or_default() += 1;
        }
    }
    ends
}
