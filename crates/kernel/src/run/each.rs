//! A loop in flight: one node performed for each item of a list; event in, effects out, as `run` is for a graph.
//!
//! Invariants
//! - Items begin in order, at most `parallel` of them open at once; an item that waits for its next attempt is open.
//! - A settled item never starts again; old news changes nothing.
//! - `Over` comes once, last, when nothing is open.
//! - It knows how items ended, never what they produced: it is rebuilt from the statuses of stored rows.
//!
//! Not here: the list and the outputs (the shells and `kind::for_each`), what a fact means for one item (`attempts`),
//! the graph around it (`run`).

use crate::definition::{Delivery, Node, OnError};
use crate::ids::{ExecutionId, NodeKey};
use crate::kind::for_each::OnItemError;
use crate::run::attempts::{Fact, Order, State, States, Terms};
use crate::run::failure::Policy;
use crate::run::node::{self, Status};

/// An item's place in the list, from 0. Its row has the iteration after it.
pub type Index = usize;

/// The iteration under which an item is stored.
pub fn iteration(index: Index) -> i32 {
    i32::try_from(index + 1).unwrap_or(i32::MAX)
}

/// The item of a stored iteration; none for the loop's own row.
pub fn index(iteration: i32) -> Option<Index> {
    usize::try_from(iteration).ok()?.checked_sub(1)
}

/// An order to the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Item(Index, Order),
    Over(End),
}

/// How a loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Completed,
    /// The first item, by its place, whose failure failed it.
    Failed {
        index: Index,
    },
    /// Whether this item took effect is not known, and it may not be performed again.
    Lost {
        index: Index,
    },
    Stopped,
}

/// A stored item: how it stood, and in which attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    pub index: Index,
    pub status: Status,
    pub attempt: u32,
}

/// What holds for all items of a loop.
#[derive(Clone, Debug)]
pub struct Shape {
    pub execution: ExecutionId,
    pub key: NodeKey,
    pub count: usize,
    pub parallel: usize,
    pub on_item_error: OnItemError,
    pub retry: Policy,
    pub delivery: Delivery,
}

impl Shape {
    /// A loop over so many items, each of which has `action` done for it.
    pub fn new(
        execution: ExecutionId,
        action: &Node,
        count: usize,
        parallel: u32,
        on_item_error: OnItemError,
    ) -> Shape {
        Shape {
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

/// The machine of one loop.
#[derive(Clone, Debug)]
pub struct Each {
    shape: Shape,
    states: States,
    /// Nothing before this is pending.
    next: Index,
    first_failed: Option<Index>,
    lost: Option<Index>,
    stopped: bool,
    over: bool,
}

impl Each {
    /// Begins a loop, or takes one up where its stored items left it: one that was in flight is performed again under
    /// the same attempt, unless it may be performed at most once; one that waits gives no effect. `stopped`: it is to
    /// end early, so that nothing is performed again, and what was in flight is to be aborted.
    pub fn resume(shape: Shape, stored: impl IntoIterator<Item = Stored>, stopped: bool) -> (Each, Vec<Effect>) {
        let states = States::new(shape.count);
        let mut each = Each { shape, states, next: 0, first_failed: None, lost: None, stopped: false, over: false };
        let mut effects = Vec::new();
        for Stored { index, status, attempt } in stored {
            let attempt = attempt.max(1);
            if each.states.all().get(index) != Some(&State::Pending) || status == Status::Pending {
                continue;
            }
            if let Some(end) = node::End::stored(status, None, OnError::Fail) {
                each.states.set(index, State::Settled(end));
                each.mark(index, status);
            } else if status == Status::Retrying {
                each.states.set(index, State::Waiting { attempt });
            } else {
                each.states.set(index, State::Running { attempt });
                let order = Terms { stopped, ..each.terms(index) }.take_up(attempt);
                order.into_iter().for_each(|order| each.order(index, order, &mut effects));
            }
        }
        if stopped {
            each.stop_items(&mut effects);
        }
        each.go_on(&mut effects);
        (each, effects)
    }

    /// Takes a fact about an item in and says what to do about it.
    pub fn apply(&mut self, index: Index, fact: Fact) -> Vec<Effect> {
        let mut effects = Vec::new();
        let state = self.states.all().get(index).filter(|_| !self.over);
        if let Some(order) = state.and_then(|state| self.terms(index).order(state, fact)) {
            let fails = order == Order::Settle(node::End::Failed { continues: false });
            self.order(index, order, &mut effects);
            if fails && self.shape.on_item_error == OnItemError::Fail {
                self.give_up_waits(&mut effects);
            }
            self.go_on(&mut effects);
        }
        effects
    }

    /// The loop is to end early.
    pub fn stop(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        if !self.over && !self.stopped {
            self.stop_items(&mut effects);
            self.go_on(&mut effects);
        }
        effects
    }

    /// Does it wait for its next attempt, rather than being in one?
    pub fn is_waiting(&self, index: Index) -> bool {
        matches!(self.states.all().get(index), Some(State::Waiting { .. }))
    }

    fn terms(&self, index: Index) -> Terms<'_> {
        let Shape { execution, key, retry, delivery, .. } = &self.shape;
        let iteration = u32::try_from(index + 1).unwrap_or(u32::MAX);
        let (execution, retry, delivery, on_error) = (*execution, *retry, *delivery, OnError::Fail);
        let (stopped, ending) = (self.stopped, self.is_ending());
        Terms { execution, key, iteration, retry, delivery, on_error, stopped, ending }
    }

    fn order(&mut self, index: Index, order: Order, effects: &mut Vec<Effect>) {
        self.states.follow(index, &order);
        if let Order::Settle(end) = &order {
            self.mark(index, end.status());
        }
        effects.push(Effect::Item(index, order));
    }

    /// The first, by its place, that failed; and the first that was lost.
    fn mark(&mut self, index: Index, status: Status) {
        let first = match status {
            Status::Failed => &mut self.first_failed,
            Status::Unknown => &mut self.lost,
            _ => return,
        };
        *first = Some(first.map_or(index, |first| first.min(index)));
    }

    /// A loop that fails does not wait for other attempts.
    fn give_up_waits(&mut self, effects: &mut Vec<Effect>) {
        for index in 0..self.states.all().len() {
            if self.is_waiting(index) {
                self.order(index, Order::Settle(node::End::Canceled), effects);
            }
        }
    }

    fn stop_items(&mut self, effects: &mut Vec<Effect>) {
        self.stopped = true;
        self.give_up_waits(effects);
        let running = self.states.all().iter().enumerate().filter(|(_, state)| state.is_open());
        effects.extend(running.map(|(index, _)| Effect::Item(index, Order::Abort)));
    }

    /// Nothing more is begun.
    fn is_ending(&self) -> bool {
        let fails = self.shape.on_item_error == OnItemError::Fail && self.first_failed.is_some();
        self.stopped || fails || self.lost.is_some()
    }

    fn go_on(&mut self, effects: &mut Vec<Effect>) {
        while !self.is_ending() && self.states.open < self.shape.parallel && self.next < self.shape.count {
            let index = self.next;
            self.next += 1;
            if self.states.all()[index] == State::Pending {
                self.order(index, Order::Perform { attempt: 1 }, effects);
            }
        }
        let done = self.states.open == 0 && (self.is_ending() || self.next >= self.shape.count);
        if done && !std::mem::replace(&mut self.over, true) {
            let fails = self.first_failed.filter(|_| self.shape.on_item_error == OnItemError::Fail);
            effects.push(Effect::Over(match (self.stopped, self.lost, fails) {
                (_, Some(index), _) => End::Lost { index },
                (true, _, _) => End::Stopped,
                (_, _, Some(index)) => End::Failed { index },
                _ => End::Completed,
            }));
        }
    }
}

#[cfg(test)]
mod tests;
