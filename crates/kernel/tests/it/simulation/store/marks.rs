//! The marks: from where a claim counts slots and reads ready items, so that it need not read what has ended.
//!
//! Invariants
//! - A claim draws its number under the shard's lock, and its items keep it as long as they hold their slot.
//! - The numbers may start again from a smaller one. A claim whose number is not above its mark resets the mark.
//! - What commits below a mark is found by a probe that takes no lock.
//!
//! Not here: why marks are needed (`docs/explanation/admission.md`).

use std::collections::BTreeSet;

use kernel::queue::Step;

use super::{Ix, Pid, Store};
use crate::simulation::judge::Promise;
use crate::simulation::mutant::Mutant;
use crate::simulation::random::mix;

/// How far a mark stays behind the clock.
const LAG: u64 = 250;
/// After so many numbers, on average, the next is a smaller one.
const NUMBERS: u64 = 8;

/// A workspace's mark.
#[derive(Debug, Default)]
pub(super) struct Mark {
    /// Every slot has a greater number, or one of these.
    after: u64,
    known: BTreeSet<u64>,
    /// No ready item has a lower rank, as far as is known.
    ready_from: u64,
}

/// Does the claim with this number move its workspace's mark? One in three does.
pub(crate) fn marks_move(number: u64) -> bool {
    mix(number).is_multiple_of(3)
}

/// How long after its arrival a start commits: some commit late.
pub(super) fn lateness(key: u64) -> u64 {
    if mix(key).is_multiple_of(4) { LAG * 4 } else { 0 }
}

impl Store {
    /// The number of a claim in this workspace that holds the shard's lock.
    pub(crate) fn draw(&mut self, workspace: usize) -> u64 {
        let is_reset = mix(self.now + self.drawn).is_multiple_of(NUMBERS);
        self.drawn = if is_reset { self.drawn / 2 } else { self.drawn } + 1;
        let number = self.drawn;
        if self.workspaces[workspace].mark.after >= number && !self.is(Mutant::StaleMarkKept) {
            let Mark { after, known, .. } = &mut self.workspaces[workspace].mark;
            (*after, *known) = (0, BTreeSet::new());
            self.judge.saw("number below the mark");
        }
        number
    }

    /// How many more slots the workspace has, by a count from its mark on.
    pub(crate) fn room(&self, workspace: usize) -> usize {
        let Mark { after, known, .. } = &self.workspaces[workspace].mark;
        let counted = self.numbers_held(workspace).filter(|number| number > after || known.contains(number)).count();
        self.workspaces[workspace].limit.saturating_sub(counted)
    }

    /// The ready items that a claim sees, oldest first.
    pub(super) fn ready_from_mark(&self, workspace: usize) -> impl Iterator<Item = Ix> {
        let from = self.workspaces[workspace].mark.ready_from;
        (0..self.executions.len()).filter(move |ix| {
            let execution = &self.executions[*ix];
            execution.workspace == workspace && execution.item.rank >= from && self.is_ready(*ix)
        })
    }

    /// Claims up to `count` ready items of a workspace from its mark on, oldest first, under the claim's number.
    pub(crate) fn take(&mut self, workspace: usize, count: usize, claim: u64, claimer: Pid, number: u64) {
        let items: Vec<Ix> = self.ready_from_mark(workspace).take(count).collect();
        let keeps = self.is(Mutant::NumberKept);
        for ix in &items {
            let item = &mut self.executions[*ix].item;
            item.status = item.status.after(Step::Claim).expect("a ready item can be claimed");
            (item.claim, item.claimed_by) = (claim, claimer);
            item.number = if keeps && item.number > 0 { item.number } else { number };
        }
        let (held, limit) = (self.slots_held(workspace), self.workspaces[workspace].limit);
        if held > limit && !items.is_empty() {
            self.judge
                .breaks(Promise::P2Slots, || format!("a claim makes {held} slots of w{workspace}, limit {limit}"));
        }
        self.count_allowed(workspace);
        self.note(|| format!("p{claimer} claims {items:?} of w{workspace} under c{claim}"));
    }

    /// Moves a workspace's mark, for the claim with this number, after what it took.
    pub(crate) fn move_mark(&mut self, workspace: usize, number: u64) {
        let first = self.ready_from_mark(workspace).map(|ix| self.executions[ix].item.rank).min();
        let known = self.numbers_held(workspace).filter(|held| *held < number).collect();
        let after = if self.is(Mutant::MarkCoversOwn) { number } else { number - 1 };
        let newest = self.now.saturating_sub(LAG);
        let mark = &mut self.workspaces[workspace].mark;
        let ready_from = mark.ready_from.max(first.unwrap_or(newest).min(newest));
        *mark = Mark { after, known, ready_from };
    }

    /// Lowers a workspace's mark to what is ready below it.
    pub(crate) fn probe(&mut self, workspace: usize) {
        if self.is(Mutant::NoProbe) {
            return;
        }
        let ready = (0..self.executions.len()).filter(|ix| self.executions[*ix].workspace == workspace);
        let first = ready.filter(|ix| self.is_ready(*ix)).map(|ix| self.executions[ix].item.rank).min();
        let mark = &mut self.workspaces[workspace].mark;
        if let Some(first) = first.filter(|first| *first < mark.ready_from) {
            mark.ready_from = first;
            self.judge.saw("start below the mark");
        }
    }

    fn numbers_held(&self, workspace: usize) -> impl Iterator<Item = u64> {
        let holds = move |held: &&super::Execution| held.workspace == workspace && held.item.status.holds_slot();
        self.executions.iter().filter(holds).map(|held| held.item.number)
    }
}
