//! Replays the log of a run and reports which promises the service broke. A pure function of its inputs.
//!
//! The judge has two sources: the log that the database's triggers wrote, in order, and the receiver's list of
//! requests. It joins them by time, because both use the same clock.
//!
//! Invariants it judges
//! - No claim makes the slot holders of a workspace, a definition or a key exceed the limit in force at that time.
//! - A request is in flight only while its execution holds a slot. So the requests in flight in a workspace never
//!   exceed the limit at the time when the last of them was admitted.
//! - An execution begins once and ends once, and only its owner writes its events.
//! - One request number runs under one execution id.
//!
//! The judge counts attempts. Each run decides how many attempts are correct.
//!
//! A process that was paused beyond its lease may have sent requests before the pause, or may send them when it wakes.
//! Such requests cannot be recalled, so they are counted separately.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use uuid::Uuid;

use super::log::{Entry, LimitedItem, SlotChange};
use super::zombies::Zombies;
use crate::receiver::ReceivedRequest;
use crate::service::Pause;

/// How many findings are printed one by one.
const MOST_FINDINGS: usize = 8;

/// Everything that a run left to be judged.
#[derive(Debug)]
pub(super) struct SlotEvidence<'a> {
    pub(super) log: &'a [Entry],
    pub(super) deliveries: &'a [ReceivedRequest],
    pub(super) pauses: &'a [Pause],
    /// Process ids, with the name of each start.
    pub(super) processes: &'a HashMap<Uuid, String>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotVerdict {
    pub(super) over_workspace: usize,
    pub(super) over_definition: usize,
    pub(super) over_key: usize,
    /// More executions in flight at the receiver than the limit allowed.
    pub(super) over_seen: usize,
    /// Requests in flight without a slot.
    pub(super) outside_slot: usize,
    pub(super) zombie_sends: usize,
    /// Events that were stored for a process that did not own the run.
    pub(super) zombie_facts: usize,
    pub(super) begun_twice: usize,
    pub(super) number_twice: usize,
    /// Executions that went back to PENDING, or changed after their end.
    pub(super) illegal: usize,
    /// Starts that counted as attempts of their items.
    pub(super) attempts: usize,
    pub(super) slots_taken: usize,
    /// The first findings, as text.
    pub(super) findings: Vec<String>,
}

impl SlotVerdict {
    pub(super) fn over_cap(&self) -> usize {
        self.over_workspace + self.over_definition + self.over_key + self.over_seen
    }

    pub(super) fn double_started(&self) -> usize {
        self.begun_twice + self.number_twice
    }

    fn find(&mut self, finding: impl FnOnce() -> String) {
        if self.findings.len() < MOST_FINDINGS {
            self.findings.push(finding());
        }
    }
}

/// Judges a run.
pub(super) fn judge(evidence: &SlotEvidence<'_>) -> SlotVerdict {
    let mut replay =
        Replay { zombies: Zombies::new(evidence.log, evidence.pauses, evidence.processes), ..Replay::default() };
    let mut moments = moments(evidence.deliveries).into_iter().peekable();
    for (entry, at) in evidence.log.iter().zip(times(evidence.log)) {
        while let Some(moment) = moments.next_if(|moment| moment.is_before(at)) {
            replay.moment(evidence, &moment);
        }
        replay.entry(evidence, entry);
    }
    for moment in moments {
        replay.moment(evidence, &moment);
    }
    replay.numbers(evidence.deliveries);
    replay.verdict
}

/// The time at which a request began or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Moment {
    at: i64,
    begins: bool,
    delivery: usize,
}

impl Moment {
    /// The receiver records the end of a request before the slot is freed, and its begin after the slot was taken. So
    /// at the same microsecond, an end comes before the log's entry and a begin after it.
    fn is_before(&self, entry: i64) -> bool {
        if self.begins { self.at < entry } else { self.at <= entry }
    }
}

/// The latest time at which each entry can have been written. A writer draws its number before it reads the clock, and
/// the log is in the order of the numbers. A writer that had to wait in between records a time that is too late, so
/// each time is lowered to the earliest later one.
fn times(log: &[Entry]) -> Vec<i64> {
    let mut times: Vec<i64> = log.iter().map(|entry| entry.at).collect();
    for later in (1..times.len()).rev() {
        times[later - 1] = times[later - 1].min(times[later]);
    }
    times
}

fn moments(deliveries: &[ReceivedRequest]) -> Vec<Moment> {
    let mut moments: Vec<Moment> = deliveries
        .iter()
        .enumerate()
        .flat_map(|(delivery, it)| {
            let begin = Moment { at: it.begin, begins: true, delivery };
            let end = it.end.map(|at| Moment { at, begins: false, delivery });
            std::iter::once(begin).chain(end)
        })
        .collect();
    moments.sort_by_key(|moment| (moment.at, moment.begins, moment.delivery));
    moments
}

struct Held {
    /// The number of the slot in the order of taking, and the workspace's limit at that time.
    order: usize,
    limit: i32,
}

#[derive(Default)]
struct Replay<'a> {
    verdict: SlotVerdict,
    zombies: Zombies<'a>,
    tiers: HashMap<String, i32>,
    workspaces: HashMap<Uuid, (String, Option<i32>, bool)>,
    definitions: HashMap<Uuid, (Option<i32>, i32)>,
    slots: HashMap<Uuid, Held>,
    by_workspace: HashMap<Uuid, i32>,
    by_definition: HashMap<Uuid, i32>,
    by_key: HashMap<(Uuid, String), i32>,
    begun: BTreeSet<Uuid>,
    /// Requests in flight whose execution holds a slot, by workspace and execution.
    in_flight: HashMap<Uuid, BTreeMap<Uuid, BTreeSet<usize>>>,
}

impl Replay<'_> {
    fn entry(&mut self, evidence: &SlotEvidence<'_>, entry: &Entry) {
        match &entry.what {
            SlotChange::Taken(item) => self.slot_taken(item),
            SlotChange::Freed(item) => self.freed(evidence, item),
            SlotChange::Begun { execution, .. } => {
                if !self.begun.insert(*execution) {
                    self.verdict.begun_twice += 1;
                    self.verdict.find(|| format!("execution {execution} began twice"));
                }
            }
            SlotChange::Owned { .. } | SlotChange::Ended { .. } => {}
            SlotChange::Rewound { execution } | SlotChange::Revived { execution } => {
                self.verdict.illegal += 1;
                self.verdict.find(|| format!("execution {execution} moved backwards: {:?}", entry.what));
            }
            SlotChange::Attempt { execution } => {
                self.verdict.attempts += 1;
                self.verdict.find(|| format!("an attempt of execution {execution} was counted"));
            }
            SlotChange::Zombie { execution, name } => {
                self.verdict.zombie_facts += 1;
                self.verdict.find(|| format!("{name} wrote a fact of execution {execution}, which it did not own"));
            }
            SlotChange::Workspace { id, tier, limit, closed } => {
                self.workspaces.insert(*id, (tier.clone(), *limit, *closed));
            }
            SlotChange::Definition { id, concurrency, key_concurrency } => {
                self.definitions.insert(*id, (*concurrency, *key_concurrency));
            }
            SlotChange::Tier { name, limit } => {
                self.tiers.insert(name.clone(), *limit);
            }
        }
    }

    fn limit_of(&self, workspace: Uuid) -> i32 {
        match self.workspaces.get(&workspace) {
            Some((_, _, true)) | None => 0,
            Some((_, Some(limit), false)) => *limit,
            Some((tier, None, false)) => self.tiers.get(tier).copied().unwrap_or_default(),
        }
    }

    fn slot_taken(&mut self, item: &LimitedItem) {
        self.verdict.slots_taken += 1;
        let limit = self.limit_of(item.workspace);
        let (concurrency, key_concurrency) = self.definitions.get(&item.definition).copied().unwrap_or((None, 1));
        let held = add(&mut self.by_workspace, item.workspace, 1);
        if held > limit {
            self.verdict.over_workspace += 1;
            self.verdict.find(|| format!("workspace {} took slot {held} of {limit}", item.workspace));
        }
        let held = add(&mut self.by_definition, item.definition, 1);
        if concurrency.is_some_and(|limit| held > limit) {
            self.verdict.over_definition += 1;
            self.verdict.find(|| format!("definition {} took slot {held} of {concurrency:?}", item.definition));
        }
        if let Some(key) = &item.key {
            let held = add(&mut self.by_key, (item.definition, key.clone()), 1);
            if held > key_concurrency {
                self.verdict.over_key += 1;
                self.verdict.find(|| format!("key {key} of {} took slot {held} of {key_concurrency}", item.definition));
            }
        }
        self.slots.insert(item.item, Held { order: self.verdict.slots_taken, limit });
    }

    fn freed(&mut self, evidence: &SlotEvidence<'_>, item: &LimitedItem) {
        self.slots.remove(&item.item);
        add(&mut self.by_workspace, item.workspace, -1);
        add(&mut self.by_definition, item.definition, -1);
        if let Some(key) = &item.key {
            add(&mut self.by_key, (item.definition, key.clone()), -1);
        }
        let left = self.in_flight.get_mut(&item.workspace).and_then(|open| open.remove(&item.item));
        for delivery in left.into_iter().flatten() {
            self.outside(evidence, delivery, "was in flight when its slot was freed");
        }
    }

    fn moment(&mut self, evidence: &SlotEvidence<'_>, moment: &Moment) {
        let delivery = &evidence.deliveries[moment.delivery];
        let open = self.in_flight.entry(delivery.workspace).or_default();
        if !moment.begins {
            if let Some(requests) = open.get_mut(&delivery.execution) {
                requests.remove(&moment.delivery);
                if requests.is_empty() {
                    open.remove(&delivery.execution);
                }
            }
            return;
        }
        if !self.slots.contains_key(&delivery.execution) {
            return self.outside(evidence, moment.delivery, "began without a slot");
        }
        open.entry(delivery.execution).or_default().insert(moment.delivery);
        let last = open.keys().filter_map(|execution| self.slots.get(execution)).max_by_key(|held| held.order);
        let (seen, limit) = (open.len(), last.map_or(0, |held| usize::try_from(held.limit).unwrap_or_default()));
        if seen > limit {
            self.verdict.over_seen += 1;
            self.verdict.find(|| format!("workspace {} had {seen} in flight of {limit}", delivery.workspace));
        }
    }

    fn outside(&mut self, evidence: &SlotEvidence<'_>, delivery: usize, how: &str) {
        let delivery = &evidence.deliveries[delivery];
        if self.zombies.sent(delivery.execution, delivery.begin, delivery.end) {
            self.verdict.zombie_sends += 1;
            return;
        }
        self.verdict.outside_slot += 1;
        self.verdict.find(|| format!("request {}/{} {how}", delivery.execution, delivery.node));
    }

    fn numbers(&mut self, deliveries: &[ReceivedRequest]) {
        let mut ids: HashMap<i64, Uuid> = HashMap::new();
        let mut reported: BTreeSet<i64> = BTreeSet::new();
        for delivery in deliveries {
            let first = *ids.entry(delivery.n).or_insert(delivery.execution);
            if first != delivery.execution && reported.insert(delivery.n) {
                self.verdict.number_twice += 1;
                let (n, other) = (delivery.n, delivery.execution);
                self.verdict.find(|| format!("request number {n} ran as {first} and as {other}"));
            }
        }
    }
}

fn add<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, i32>, key: K, by: i32) -> i32 {
    let count = counts.entry(key).or_default();
    *count += by;
    *count
}

#[cfg(test)]
mod tests;
