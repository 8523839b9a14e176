//! Processes that were paused beyond their lease. Requests that such a process sent before the pause, or sends when it
//! wakes, cannot be recalled.
//!
//! Not here: how such a request is judged (`judge`, `long::judge`).

use std::collections::HashMap;

use uuid::Uuid;

use super::log::{Entry, SlotChange};
use crate::service::Pause;

/// How long after waking a paused process may still send what it was about to send, in µs.
const WAKING: i64 = 250_000;

/// Which process owned each run from which time on, and when each process was paused.
#[derive(Default)]
pub(super) struct Zombies<'a> {
    /// By execution, in order: the owner from this time on.
    owners: HashMap<Uuid, Vec<(i64, Option<&'a str>)>>,
    pauses: &'a [Pause],
}

impl<'a> Zombies<'a> {
    /// `processes` maps each process id to the name of that start.
    pub(super) fn new(log: &[Entry], pauses: &'a [Pause], processes: &'a HashMap<Uuid, String>) -> Zombies<'a> {
        let mut owners: HashMap<Uuid, Vec<(i64, Option<&str>)>> = HashMap::new();
        for entry in log {
            if let SlotChange::Begun { execution, owner } | SlotChange::Owned { execution, owner } = &entry.what {
                let name = owner.and_then(|owner| processes.get(&owner)).map(String::as_str);
                owners.entry(*execution).or_default().push((entry.at, name));
            }
        }
        Zombies { owners, pauses }
    }

    /// True if a process sent this execution's request although it had lost the run: it owned the run when it was
    /// paused, and lost it during the pause.
    pub(super) fn sent(&self, execution: Uuid, begin: i64, end: Option<i64>) -> bool {
        let Some(owners) = self.owners.get(&execution) else { return false };
        self.pauses.iter().any(|pause| {
            let (from, to) = (pause.from, pause.to.unwrap_or(i64::MAX - WAKING));
            let before = owners.iter().rev().find(|(at, _)| *at <= from).and_then(|(_, owner)| *owner);
            let lost_it = owners.iter().any(|(at, _)| (from..=to).contains(at));
            before == Some(pause.name.as_str()) && lost_it && begin <= to + WAKING && end.is_none_or(|end| end >= from)
        })
    }
}
