//! Which claims go out, and when.
//!
//! Invariants
//! - A shard is part of one claim at a time.
//! - A claim of several shards waits for none of them; a shard that was busy is asked on its own, and that claim waits.
//! - One workspace whose data cannot be claimed keeps no other waiting, of whatever shard.
//!
//! Not here: who is asked (`queue::dispatch`), the claim itself (`starter`).

use std::time::{Duration, Instant};

use kernel::ids::{ProcessId, WorkspaceId};
use kernel::queue::ring::Ask;
use tracing::Span;

use super::turn::Planned;
use super::{Dispatcher, Done};
use crate::queue::starter::Starter;

/// How many claims may be under way at once.
const PARALLEL_CLAIMS: usize = 4;
/// How many may wait for a shard beside them. Together with records they leave connections for the rest.
const WAITING_CLAIMS: usize = 2;
/// A claim that takes longer than this is not waited for by the next.
pub(super) const SLOW: Duration = Duration::from_millis(20);

impl Dispatcher {
    /// Is more waiting than a turn may ask for?
    pub(super) fn is_saturated(&self) -> bool {
        self.batch >= self.starter.settings.batch_max
    }

    /// May another claim go out now?
    pub(super) fn may_claim(&self) -> bool {
        match self.claims {
            0 => true,
            1 if self.is_saturated() => true,
            1..PARALLEL_CLAIMS => self.last_claim.elapsed() >= SLOW,
            _ => false,
        }
    }

    /// Somebody is to be asked as soon as the claim under way ends, or turns out to be slow.
    pub(super) fn gathers(&self) -> bool {
        let waits = !self.ring.is_empty() || self.next.keys().any(|shard| !self.claiming.contains(shard));
        waits && (1..PARALLEL_CLAIMS).contains(&self.claims) && !self.may_claim()
    }

    /// Sends the claim of all shards that have none under way; of contended ones, each its own.
    pub(super) fn claim(&mut self) {
        let Some(process) = self.alive.borrow().as_ref().map(|alive| alive.process) else { return };
        let free: Vec<i16> = self.next.keys().copied().filter(|shard| !self.claiming.contains(shard)).collect();
        let (alone, together): (Vec<i16>, Vec<i16>) =
            free.into_iter().partition(|shard| self.contended.contains(shard));
        for shard in alone {
            if self.waiting < WAITING_CLAIMS {
                self.contended.remove(&shard);
                self.waiting += 1;
                self.send(process, &[shard], true);
            }
        }
        if !together.is_empty() && self.may_claim() {
            self.last_claim = Instant::now();
            self.claims += 1;
            self.send(process, &together, false);
        }
    }

    fn send(&mut self, process: ProcessId, shards: &[i16], alone: bool) {
        let planned: Vec<Planned> = shards.iter().flat_map(|shard| self.due(*shard)).collect();
        self.claiming.extend(shards);
        let turn = planned.first().and_then(|planned| self.turns.get(&planned.turn));
        let flow = turn.map_or_else(Span::none, |turn| turn.span.clone());
        self.under_way.push(Box::pin(claim(self.starter.clone(), process, alone, planned, flow)));
    }

    /// Who of a shard is asked by its next claim: everybody, or one of them.
    fn due(&mut self, shard: i16) -> Vec<Planned> {
        let mut due = self.next.remove(&shard).unwrap_or_default();
        if self.singly.contains(&shard) && due.len() > 1 {
            self.next.insert(shard, due.split_off(1));
            self.contended.insert(shard);
        } else {
            self.singly.remove(&shard);
        }
        due
    }

    /// Plans anew those of a claim that somebody's data spoilt: by shards, and within a shard one by one.
    pub(super) fn ask_apart(&mut self, planned: Vec<Planned>, alone: bool) -> Vec<Planned> {
        let all: Vec<WorkspaceId> = planned.iter().map(|planned| planned.ask.workspace).collect();
        if alone {
            self.singly.extend(all.iter().map(|workspace| workspace.shard()));
        }
        self.ask_again(planned, &all)
    }

    /// Plans those of busy shards anew, each shard on its own; answers the others.
    pub(super) fn ask_again(&mut self, planned: Vec<Planned>, busy: &[WorkspaceId]) -> Vec<Planned> {
        let (again, answered): (Vec<_>, Vec<_>) =
            planned.into_iter().partition(|planned| busy.contains(&planned.ask.workspace));
        for planned in again {
            let shard = planned.ask.workspace.shard();
            self.contended.insert(shard);
            self.next.entry(shard).or_default().push(planned);
        }
        answered
    }
}

async fn claim(starter: Starter, process: ProcessId, alone: bool, planned: Vec<Planned>, flow: Span) -> Done {
    let asks: Vec<Ask> = planned.iter().map(|planned| planned.ask).collect();
    let answer = starter.claim(process, &asks, &flow).await;
    Done::Claim { alone, planned, answer }
}
