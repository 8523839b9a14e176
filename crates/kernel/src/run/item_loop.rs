//! The state machine of a running FOR_EACH loop, which performs one action for each item of a list. Like `run`, it
//! receives events and returns effects.
//!
//! Invariants
//! - Items begin in the order of the list. At most `parallel` items are open at once. An item that waits for its next
//!   attempt is open, too.
//! - A settled item never starts again; a late or repeated event changes nothing.
//! - The loop gives `Finish` once, as its last effect, when no item is open.
//! - The loop knows how its items ended, but not their outputs. So it can be rebuilt from the statuses of stored rows.
//!
//! Not here: the list and the outputs (the shells and `kind::for_each`), what an event means for one item (`attempts`),
//! the graph around it (`run`).

use crate::definition::{Delivery, Node, OnError};
use crate::ids::{ExecutionId, NodeKey};
use crate::kind::for_each::OnItemError;
use crate::run::attempts::{AttemptEffect, AttemptEvent, AttemptRules, AttemptState, AttemptStates};
use crate::run::failure::Policy;
use crate::run::node::{self, Status};

/// The index of an item in the list, from 0. Its row stores index + 1 as the iteration.
pub type Index = usize;

/// The iteration under which an item is stored.
pub fn iteration(index: Index) -> i32 {
    i32::try_from(index + 1).unwrap_or(i32::MAX)
}

/// The index of the item with this stored iteration; none for the row of the loop's node.
pub fn index(iteration: i32) -> Option<Index> {
    usize::try_from(iteration).ok()?.checked_sub(1)
}

/// An order that the shell must carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Item(Index, AttemptEffect),
    Finish(LoopEnd),
}

/// How a loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopEnd {
    Completed,
    /// A failed item made the loop fail. `index` is the lowest index of a failed item.
    Failed {
        index: Index,
    },
    /// It is not known whether this item took effect, and it must not be performed again.
    Lost {
        index: Index,
    },
    Stopped,
}

/// An item of a loop, as its row stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredItem {
    pub index: Index,
    pub status: Status,
    pub attempt: u32,
}

/// The properties that all items of a loop share.
#[derive(Clone, Debug)]
pub struct LoopSpec {
    pub execution: ExecutionId,
    pub key: NodeKey,
    pub count: usize,
    pub parallel: usize,
    pub on_item_error: OnItemError,
    pub retry: Policy,
    pub delivery: Delivery,
}

impl LoopSpec {
    /// A loop over `count` items that performs `action` for each.
    pub fn new(
        execution: ExecutionId,
        action: &Node,
        count: usize,
        parallel: u32,
        on_item_error: OnItemError,
    ) -> LoopSpec {
        LoopSpec {
            execution,
            key: action.key.clone(),
            count,
            parallel: parallel.max(1) as usize,
            on_item_error,
            retry: action.retry,
            delivery: action.delivery,
        }
    }
}

/// The state machine of one loop.
#[derive(Clone, Debug)]
pub struct ItemLoop {
    shape: LoopSpec,
    states: AttemptStates,
    /// No item before this index is pending.
    next: Index,
    first_failed: Option<Index>,
    lost: Option<Index>,
    stopped: bool,
    over: bool,
}

impl ItemLoop {
    /// Begins a loop, or resumes one from its stored items. An item that was in flight is performed again under the
    /// same attempt; if it may be performed at most once, it becomes UNKNOWN instead. An item that waits for its next
    /// attempt gives no effect. `stopped`: the loop must end early, so no item is performed again, and items in flight
    /// are aborted.
    pub fn resume(
        shape: LoopSpec,
        stored: impl IntoIterator<Item = StoredItem>,
        stopped: bool,
    ) -> (ItemLoop, Vec<Effect>) {
        let states = AttemptStates::new(shape.count);
        let mut each = ItemLoop { shape, states, next: 0, first_failed: None, lost: None, stopped: false, over: false };
        let mut effects = Vec::new();
        for StoredItem { index, status, attempt } in stored {
            let attempt = attempt.max(1);
            if each.states.all().get(index) != Some(&AttemptState::Pending) || status == Status::Pending {
                continue;
            }
            if let Some(end) = node::NodeEnd::stored(status, None, OnError::Fail) {
                each.states.set(index, AttemptState::Settled(end));
                each.mark(index, status);
            } else if status == Status::Retrying {
                each.states.set(index, AttemptState::Waiting { attempt });
            } else {
                each.states.set(index, AttemptState::Running { attempt });
                let order = AttemptRules { stopped, ..each.terms(index) }.resume(attempt);
                order.into_iter().for_each(|order| each.order(index, order, &mut effects));
            }
        }
        if stopped {
            each.stop_items(&mut effects);
        }
        each.start_items(&mut effects);
        (each, effects)
    }

    /// Applies an event of an item and returns the effects to carry out.
    pub fn apply(&mut self, index: Index, fact: AttemptEvent) -> Vec<Effect> {
        let mut effects = Vec::new();
        let state = self.states.all().get(index).filter(|_| !self.over);
        if let Some(order) = state.and_then(|state| self.terms(index).decide(state, fact)) {
            let fails = order == AttemptEffect::Settle(node::NodeEnd::Failed { continues: false });
            self.order(index, order, &mut effects);
            if fails && self.shape.on_item_error == OnItemError::Fail {
                self.cancel_waiting(&mut effects);
            }
            self.start_items(&mut effects);
        }
        effects
    }

    /// Ends the loop early.
    pub fn stop(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        if !self.over && !self.stopped {
            self.stop_items(&mut effects);
            self.start_items(&mut effects);
        }
        effects
    }

    /// The attempt that the item waits to begin; none if the item does not wait.
    pub fn waits_for(&self, index: Index) -> Option<u32> {
        self.states.all().get(index).and_then(AttemptState::waits_for)
    }

    fn terms(&self, index: Index) -> AttemptRules<'_> {
        let LoopSpec { execution, key, retry, delivery, .. } = &self.shape;
        let iteration = u32::try_from(index + 1).unwrap_or(u32::MAX);
        let (execution, retry, delivery, on_error) = (*execution, *retry, *delivery, OnError::Fail);
        let (stopped, ending) = (self.stopped, self.is_ending());
        AttemptRules { execution, key, iteration, retry, delivery, on_error, stopped, ending }
    }

    fn order(&mut self, index: Index, order: AttemptEffect, effects: &mut Vec<Effect>) {
        self.states.apply(index, &order);
        if let AttemptEffect::Settle(end) = &order {
            self.mark(index, end.status());
        }
        effects.push(Effect::Item(index, order));
    }

    /// Remembers the lowest index of a FAILED item, and the lowest index of an UNKNOWN item.
    fn mark(&mut self, index: Index, status: Status) {
        let first = match status {
            Status::Failed => &mut self.first_failed,
            Status::Unknown => &mut self.lost,
            _ => return,
        };
        *first = Some(first.map_or(index, |first| first.min(index)));
    }

    /// Cancels the items that wait for their next attempt, because the loop fails or is stopped.
    fn cancel_waiting(&mut self, effects: &mut Vec<Effect>) {
        for index in 0..self.states.all().len() {
            if self.waits_for(index).is_some() {
                self.order(index, AttemptEffect::Settle(node::NodeEnd::Canceled), effects);
            }
        }
    }

    fn stop_items(&mut self, effects: &mut Vec<Effect>) {
        self.stopped = true;
        self.cancel_waiting(effects);
        let running = self.states.all().iter().enumerate().filter(|(_, state)| state.is_open());
        effects.extend(running.map(|(index, _)| Effect::Item(index, AttemptEffect::Abort)));
    }

    /// True if no further item may begin: the loop is stopped, a failed item fails it, or an item ended UNKNOWN.
    fn is_ending(&self) -> bool {
        let fails = self.shape.on_item_error == OnItemError::Fail && self.first_failed.is_some();
        self.stopped || fails || self.lost.is_some()
    }

    fn start_items(&mut self, effects: &mut Vec<Effect>) {
        while !self.is_ending() && self.states.open < self.shape.parallel && self.next < self.shape.count {
            let index = self.next;
            self.next += 1;
            if self.states.all()[index] == AttemptState::Pending {
                self.order(index, AttemptEffect::Perform { attempt: 1 }, effects);
            }
        }
        let done = self.states.open == 0 && (self.is_ending() || self.next >= self.shape.count);
        if done && !std::mem::replace(&mut self.over, true) {
            let fails = self.first_failed.filter(|_| self.shape.on_item_error == OnItemError::Fail);
            effects.push(Effect::Finish(match (self.stopped, self.lost, fails) {
                (_, Some(index), _) => LoopEnd::Lost { index },
                (true, _, _) => LoopEnd::Stopped,
                (_, _, Some(index)) => LoopEnd::Failed { index },
                _ => LoopEnd::Completed,
            }));
        }
    }
}

#[cfg(test)]
mod tests;
