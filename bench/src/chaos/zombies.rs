//! Processes that were paused beyond their lease: what they had sent, or send in the moment they wake, cannot be called
//! back.
//!
//! Not here: what such a request is judged as (`judge`, `long::judge`).

use std::collections::HashMap;

use uuid::Uuid;

use super::log::{Entry, What};
use crate::service::Pause;

/// How long after waking a paused process may still send what it was about to, in µs.
const WAKING: i64 = 250_000;

/// Who owned which run from when, and who was paused when.
#[derive(Default)]
pub(super) struct Zombies<'a> {
    /// By execution, in order: from then on this process.
    owners: HashMap<Uuid, Vec<(i64, Option<&'a str>)>>,
    pauses: &'a [Pause],
}

impl<'a> Zombies<'a> {
    /// `processes`: their ids, by the names of their starts.
    pub(super) fn new(log: &[Entry], pauses: &'a [Pause], processes: &'a HashMap<Uuid, String>) -> Zombies<'a> {
        let mut owners: HashMap<Uuid, Vec<(i64, Option<&str>)>> = HashMap::new();
        for entry in log {
            if let What::Begun { execution, owner } | What::Owned { execution, owner } = &entry.what {
                let name = owner.and_then(|owner| processes.get(&owner)).map(String::as_str);
                owners.entry(*execution).or_default().push((entry.at, name));
            }
        }
        Zombies { owners, pauses }
    }

    /// Was a request of this execution, from then to then, sent by a process that owned the run when it was paused, and
    /// lost it meanwhile?
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
