//! Replays a run and says which promises it broke. Values in, values out.
//!
//! Two witnesses: the log of the database's triggers, in its order, and the receiver's list of
//! requests. They meet by time, which both read from one clock.
//!
//! Invariants it judges
//! - No claim makes a workspace's, a definition's or a key's slot holders exceed the limit in force then.
//! - A request is in flight only while its execution holds a slot; so those in flight in a workspace
//!   are no more than the limit was when the last of them was admitted.
//! - An execution begins once, ends once, and only its owner writes facts of it.
//! - One request number runs under one execution id.
//!
//! Attempts are counted; whether there should have been any is the run's to say.
//!
//! What a process that was paused beyond its lease had already sent, or sends in the moment it
//! wakes, cannot be called back: it is counted apart.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use uuid::Uuid;

use super::log::{Entry, Ticket, What};
use super::zombies::Zombies;
use crate::receiver::Delivery;
use crate::service::Pause;

/// How many findings are told one by one.
const TOLD: usize = 8;

/// All that a run left to be judged.
#[derive(Debug)]
pub(super) struct Evidence<'a> {
    pub(super) log: &'a [Entry],
    pub(super) deliveries: &'a [Delivery],
    pub(super) pauses: &'a [Pause],
    /// Process ids, by the names of their starts.
    pub(super) processes: &'a HashMap<Uuid, String>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) over_workspace: usize,
    pub(super) over_definition: usize,
    pub(super) over_key: usize,
    /// More executions in flight at the receiver than the limit allowed.
    pub(super) over_seen: usize,
    /// Requests in flight without a slot.
    pub(super) outside_slot: usize,
    pub(super) zombie_sends: usize,
    /// Facts accepted from a process that did not own the run.
    pub(super) zombie_facts: usize,
    pub(super) begun_twice: usize,
    pub(super) number_twice: usize,
    /// Rewound, or changed after the end.
    pub(super) illegal: usize,
    /// Starts that were held against their items.
    pub(super) attempts: usize,
    pub(super) slots_taken: usize,
    /// The first findings, in words.
    pub(super) told: Vec<String>,
}

impl Verdict {
    pub(super) fn over_cap(&self) -> usize {
        self.over_workspace + self.over_definition + self.over_key + self.over_seen
    }

    pub(super) fn double_started(&self) -> usize {
        self.begun_twice + self.number_twice
    }

    fn tell(&mut self, finding: impl FnOnce() -> String) {
        if self.told.len() < TOLD {
            self.told.push(finding());
        }
    }
}

/// Judges a run.
pub(super) fn judge(evidence: &Evidence<'_>) -> Verdict {
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

/// A request's begin or end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Moment {
    at: i64,
    begins: bool,
    delivery: usize,
}

impl Moment {
    /// An end is noted before the slot is freed, a begin after it was taken: so at the same
    /// microsecond an end goes first and a begin last.
    fn is_before(&self, entry: i64) -> bool {
        if self.begins { self.at < entry } else { self.at <= entry }
    }
}

/// When each entry was written, at the latest. The log's order is that of the numbers, and a writer
/// draws its number before it reads the clock: one that had to wait in between notes a late time, and
/// was all the same before everybody with a higher number.
fn times(log: &[Entry]) -> Vec<i64> {
    let mut times: Vec<i64> = log.iter().map(|entry| entry.at).collect();
    for later in (1..times.len()).rev() {
        times[later - 1] = times[later - 1].min(times[later]);
    }
    times
}

fn moments(deliveries: &[Delivery]) -> Vec<Moment> {
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
    /// The order of taking, and the workspace's limit then.
    order: usize,
    limit: i32,
}

#[derive(Default)]
struct Replay<'a> {
    verdict: Verdict,
    zombies: Zombies<'a>,
    tiers: HashMap<String, i32>,
    workspaces: HashMap<Uuid, (String, Option<i32>, bool)>,
    definitions: HashMap<Uuid, (Option<i32>, i32)>,
    slots: HashMap<Uuid, Held>,
    by_workspace: HashMap<Uuid, i32>,
    by_definition: HashMap<Uuid, i32>,
    by_key: HashMap<(Uuid, String), i32>,
    begun: BTreeSet<Uuid>,
    /// Requests in flight in slots, by workspace and execution.
    in_flight: HashMap<Uuid, BTreeMap<Uuid, BTreeSet<usize>>>,
}

impl Replay<'_> {
    fn entry(&mut self, evidence: &Evidence<'_>, entry: &Entry) {
        match &entry.what {
            What::Taken(ticket) => self.taken(ticket),
            What::Freed(ticket) => self.freed(evidence, ticket),
            What::Begun { execution, .. } => {
                if !self.begun.insert(*execution) {
                    self.verdict.begun_twice += 1;
                    self.verdict.tell(|| format!("execution {execution} began twice"));
                }
            }
            What::Owned { .. } | What::Ended { .. } => {}
            What::Rewound { execution } | What::Revived { execution } => {
                self.verdict.illegal += 1;
                self.verdict.tell(|| format!("execution {execution} went back: {:?}", entry.what));
            }
            What::Attempt { execution } => {
                self.verdict.attempts += 1;
                self.verdict.tell(|| format!("execution {execution} was counted an attempt"));
            }
            What::Zombie { execution, name } => {
                self.verdict.zombie_facts += 1;
                self.verdict.tell(|| format!("{name} wrote a fact of execution {execution}, which it did not own"));
            }
            What::Workspace { id, tier, limit, closed } => {
                self.workspaces.insert(*id, (tier.clone(), *limit, *closed));
            }
            What::Definition { id, concurrency, key_concurrency } => {
                self.definitions.insert(*id, (*concurrency, *key_concurrency));
            }
            What::Tier { name, limit } => {
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

    fn taken(&mut self, ticket: &Ticket) {
        self.verdict.slots_taken += 1;
        let limit = self.limit_of(ticket.workspace);
        let (concurrency, key_concurrency) = self.definitions.get(&ticket.definition).copied().unwrap_or((None, 1));
        let held = add(&mut self.by_workspace, ticket.workspace, 1);
        if held > limit {
            self.verdict.over_workspace += 1;
            self.verdict.tell(|| format!("workspace {} took slot {held} of {limit}", ticket.workspace));
        }
        let held = add(&mut self.by_definition, ticket.definition, 1);
        if concurrency.is_some_and(|limit| held > limit) {
            self.verdict.over_definition += 1;
            self.verdict.tell(|| format!("definition {} took slot {held} of {concurrency:?}", ticket.definition));
        }
        if let Some(key) = &ticket.key {
            let held = add(&mut self.by_key, (ticket.definition, key.clone()), 1);
            if held > key_concurrency {
                self.verdict.over_key += 1;
                self.verdict
                    .tell(|| format!("key {key} of {} took slot {held} of {key_concurrency}", ticket.definition));
            }
        }
        self.slots.insert(ticket.item, Held { order: self.verdict.slots_taken, limit });
    }

    fn freed(&mut self, evidence: &Evidence<'_>, ticket: &Ticket) {
        self.slots.remove(&ticket.item);
        add(&mut self.by_workspace, ticket.workspace, -1);
        add(&mut self.by_definition, ticket.definition, -1);
        if let Some(key) = &ticket.key {
            add(&mut self.by_key, (ticket.definition, key.clone()), -1);
        }
        let left = self.in_flight.get_mut(&ticket.workspace).and_then(|open| open.remove(&ticket.item));
        for delivery in left.into_iter().flatten() {
            self.outside(evidence, delivery, "was in flight when its slot was freed");
        }
    }

    fn moment(&mut self, evidence: &Evidence<'_>, moment: &Moment) {
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
            self.verdict.tell(|| format!("workspace {} had {seen} in flight of {limit}", delivery.workspace));
        }
    }

    fn outside(&mut self, evidence: &Evidence<'_>, delivery: usize, how: &str) {
        let delivery = &evidence.deliveries[delivery];
        if self.zombies.sent(delivery.execution, delivery.begin, delivery.end) {
            self.verdict.zombie_sends += 1;
            return;
        }
        self.verdict.outside_slot += 1;
        self.verdict.tell(|| format!("request {}/{} {how}", delivery.execution, delivery.node));
    }

    fn numbers(&mut self, deliveries: &[Delivery]) {
        let mut ids: HashMap<i64, Uuid> = HashMap::new();
        let mut told: BTreeSet<i64> = BTreeSet::new();
        for delivery in deliveries {
            let first = *ids.entry(delivery.n).or_insert(delivery.execution);
            if first != delivery.execution && told.insert(delivery.n) {
                self.verdict.number_twice += 1;
                let (n, other) = (delivery.n, delivery.execution);
                self.verdict.tell(|| format!("request number {n} ran as {first} and as {other}"));
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
