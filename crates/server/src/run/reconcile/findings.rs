//! What is known of an engine's runs between passes: which do not go on, which are gone, and what is wrong as a whole.
//!
//! Invariants
//! - A run is forgotten by the first pass over its stretch of ids that does not meet it any more: nothing piles up.
//! - Runs that were not looked at closely keep what the last close look found.
//!
//! Not here: looking (`reconciler`), what is told of one run (`http::queue`, which asks the engine itself).

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::Described;
use kernel::execution;
use kernel::ids::ExecutionId;
use kernel::queue::explain::Stuck;
use kernel::run::reconcile::{self, There, Verdict};

/// The most runs that are known by name; beyond that they are not counted.
const MOST_NOTED: usize = 10_000;

/// What passes found wrong, for readiness and metrics. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings(Arc<Mutex<Found>>);

#[derive(Debug, Default)]
struct Found {
    trouble: Option<String>,
    /// Runs that do not go on.
    stuck: BTreeMap<ExecutionId, Why>,
    /// Runs that were ended from outside or are unknown there, and since when that is known.
    gone: BTreeMap<ExecutionId, Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    NotBegun,
    Idle,
    Failing,
}

/// How a pass saw a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Listed as open, and not looked at more closely.
    Listed {
        begun: bool,
    },
    /// Its work is done.
    Goes,
    /// No worker has taken it up.
    NotBegun,
    /// It waits for a worker, and there is none.
    Idle,
    /// Its workers fail.
    Failing,
    Closed,
    /// Ended from outside.
    Broken,
    Unknown,
}

/// The ids that a pass went through: behind the first, and up to the last, if it did not reach the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) after: Option<ExecutionId>,
    pub(crate) to: Option<ExecutionId>,
}

impl Stretch {
    fn holds(self, id: ExecutionId) -> bool {
        self.after.is_none_or(|after| id > after) && self.to.is_none_or(|to| id <= to)
    }
}

/// How many runs do not go on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    pub(crate) idle: usize,
    pub(crate) failing: usize,
}

impl Counted {
    /// What is wrong, if anything is.
    pub(crate) fn told(self) -> Option<String> {
        match self {
            Counted { failing: 0, idle: 0 } => None,
            Counted { failing: 0, idle } => Some(format!(
                "{idle} started executions were picked up by no worker: does any poll the engine's task queue?"
            )),
            Counted { failing, .. } => Some(format!(
                "{failing} runs do not go on, because their workers fail: are they of this version, with its keys?"
            )),
        }
    }
}

impl Seen {
    /// How a run stands, as its engine describes it and by our own status.
    pub(crate) fn of(ours: execution::Status, described: &Described) -> Seen {
        match described {
            Described::Unknown => Seen::Unknown,
            Described::Broken(_) => Seen::Broken,
            Described::Closed(_) => Seen::Closed,
            Described::Running { stuck: Some(Stuck::Failing(_)) } => Seen::Failing,
            Described::Running { stuck: Some(Stuck::Idle(_)) } => Seen::Idle,
            Described::Running { stuck: None } => match reconcile::judge(ours, There::Running) {
                Verdict::NotBegun => Seen::NotBegun,
                _ => Seen::Goes,
            },
        }
    }
}

impl Findings {
    pub(crate) fn trouble(&self) -> Option<String> {
        self.with(|found| found.trouble.clone())
    }

    pub(crate) fn set(&self, trouble: Option<String>) {
        self.with(|found| found.set(trouble));
    }

    /// How long it is known that a run is gone.
    pub(super) fn gone_for(&self, execution: ExecutionId) -> Duration {
        self.with(|found| found.gone.get(&execution).map(Instant::elapsed).unwrap_or_default())
    }

    /// Takes in what a pass saw, and answers how many of all that is known do not go on.
    pub(crate) fn note(&self, stretch: Stretch, seen: impl Iterator<Item = (ExecutionId, Seen)>) -> Counted {
        let seen: BTreeMap<ExecutionId, Seen> = seen.collect();
        self.with(|found| {
            found.take_in(stretch, &seen);
            let count = |why| found.stuck.values().filter(|known| **known == why).count();
            Counted { idle: count(Why::NotBegun) + count(Why::Idle), failing: count(Why::Failing) }
        })
    }

    fn with<T>(&self, step: impl FnOnce(&mut Found) -> T) -> T {
        step(&mut self.0.lock())
    }
}

impl Found {
    fn set(&mut self, trouble: Option<String>) {
        if self.trouble != trouble
            && let Some(trouble) = &trouble
        {
            tracing::error!(trouble, "The engine and the queue do not agree");
        }
        self.trouble = trouble;
    }

    fn take_in(&mut self, stretch: Stretch, seen: &BTreeMap<ExecutionId, Seen>) {
        let is_gone = |seen: Option<&Seen>| matches!(seen, Some(Seen::Broken | Seen::Unknown));
        self.gone.retain(|id, _| !stretch.holds(*id) || is_gone(seen.get(id)));
        self.stuck.retain(|id, _| !stretch.holds(*id) || seen.contains_key(id));
        for (id, seen) in seen {
            let before = self.stuck.get(id).copied();
            let why = match seen {
                Seen::Listed { begun: true } => before.filter(|why| *why != Why::NotBegun),
                Seen::Listed { begun: false } => before.or(Some(Why::NotBegun)),
                Seen::NotBegun => Some(Why::NotBegun),
                Seen::Idle => Some(Why::Idle),
                Seen::Failing => Some(Why::Failing),
                Seen::Goes | Seen::Closed | Seen::Broken | Seen::Unknown => None,
            };
            match why {
                Some(why) if before.is_some() || self.stuck.len() < MOST_NOTED => drop(self.stuck.insert(*id, why)),
                Some(_) => {}
                None => drop(self.stuck.remove(id)),
            }
            if is_gone(Some(seen)) && self.gone.len() < MOST_NOTED {
                self.gone.entry(*id).or_insert_with(Instant::now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u128) -> ExecutionId {
        ExecutionId(uuid::Uuid::from_u128(n))
    }

    /// What is told after a pass.
    fn note(findings: &Findings, stretch: (Option<u128>, Option<u128>), seen: &[(u128, Seen)]) -> String {
        let stretch = Stretch { after: stretch.0.map(id), to: stretch.1.map(id) };
        findings.note(stretch, seen.iter().map(|(n, seen)| (id(*n), *seen))).told().unwrap_or_default()
    }

    fn known(findings: &Findings) -> (Vec<u128>, Vec<u128>) {
        let number = |id: &ExecutionId| id.0.as_u128();
        findings.with(|found| (found.stuck.keys().map(number).collect(), found.gone.keys().map(number).collect()))
    }

    #[test]
    fn what_a_pass_does_not_meet_any_more_is_forgotten_and_the_rest_of_the_ids_is_not_touched() {
        let findings = Findings::default();
        note(&findings, (None, Some(9)), &[(1, Seen::Broken), (2, Seen::Failing), (3, Seen::Unknown), (4, Seen::Goes)]);
        note(&findings, (Some(9), None), &[(10, Seen::Unknown), (11, Seen::Idle), (12, Seen::NotBegun)]);
        assert_eq!(known(&findings), (vec![2, 11, 12], vec![1, 3, 10]));
        note(&findings, (None, Some(9)), &[(2, Seen::Listed { begun: true }), (3, Seen::Unknown)]);
        assert_eq!(known(&findings), (vec![2, 11, 12], vec![3, 10]));
        assert_eq!(note(&findings, (None, None), &[(2, Seen::Goes), (3, Seen::Goes)]), "");
        assert_eq!(known(&findings), (vec![], vec![]));
    }

    #[test]
    fn a_failure_stays_until_a_close_look_and_goes_before_idleness() {
        let findings = Findings::default();
        let told = note(&findings, (None, None), &[(1, Seen::Failing), (2, Seen::NotBegun)]);
        assert!(told.starts_with("1 runs do not go on"), "{told}");
        let unclear = [(1, Seen::Listed { begun: false }), (2, Seen::Listed { begun: true })];
        let told = note(&findings, (None, None), &unclear);
        assert!(told.starts_with("1 runs do not go on"), "{told}");
        assert_eq!(known(&findings), (vec![1], vec![]), "one was not looked at closely, the other began");
        let told = note(&findings, (None, None), &[(1, Seen::Goes), (2, Seen::Idle)]);
        assert!(told.starts_with("1 started executions"), "{told}");
    }
}
