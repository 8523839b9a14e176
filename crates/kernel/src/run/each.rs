//! A loop in flight: one node performed for each item of a list; event in, effects out, as `run` is for a graph.
//!
//! Invariants
//! - Items begin in order, at most `parallel` of them open at once; an item that waits for its next attempt is open.
//! - A settled item never starts again; old news changes nothing.
//! - `Over` comes once, last, when nothing is open.
//! - It knows how items ended, never what they produced: it is rebuilt from the statuses of stored rows.
//!
//! Not here: the list and the outputs (the shells and `kind::for_each`), the graph around it (`run`).

use std::time::Duration;

use crate::definition::{Delivery, Node};
use crate::ids::{ExecutionId, NodeKey};
use crate::kind::for_each::OnItemError;
use crate::run::failure::{Failure, Policy};
use crate::run::node::Status;

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

/// A fact about an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Succeeded {
        index: Index,
        attempt: u32,
    },
    Failed {
        index: Index,
        attempt: u32,
        failure: Failure,
    },
    /// Its own condition does not hold.
    Skipped {
        index: Index,
        attempt: u32,
    },
    /// The wait before this attempt is over.
    RetryDue {
        index: Index,
        attempt: u32,
    },
    /// It failed and is worth this attempt after that wait, and that is stored: whoever performed it asked.
    Retrying {
        index: Index,
        attempt: u32,
        wait: Duration,
    },
    /// It settled so, and that is stored: whoever performed it kept its attempts itself.
    Settled {
        index: Index,
        status: Status,
    },
    /// It was stopped before it had a result. `begun`: something may have been done for it.
    Aborted {
        index: Index,
        begun: bool,
    },
    /// The loop is to end early.
    Stop,
}

/// An order to the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Perform {
        index: Index,
        attempt: u32,
    },
    /// Record that it waits for this attempt, and say `RetryDue` when the wait is over.
    Wait {
        index: Index,
        attempt: u32,
        wait: Duration,
    },
    Settle {
        index: Index,
        status: Status,
    },
    /// Stop its work, and say `Aborted`.
    Abort {
        index: Index,
    },
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Pending,
    Running(u32),
    Waiting(u32),
    Settled(Status),
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
    states: Vec<State>,
    /// Nothing before this is pending.
    next: Index,
    open: usize,
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
        let states = vec![State::Pending; shape.count];
        let (mut effects, mut open) = (Vec::new(), 0);
        let mut each =
            Each { shape, states, next: 0, open: 0, first_failed: None, lost: None, stopped: false, over: false };
        for Stored { index, status, attempt } in stored {
            if each.states.get(index) != Some(&State::Pending) {
                continue;
            }
            match status {
                Status::Pending => continue,
                Status::Retrying => each.states[index] = State::Waiting(attempt.max(1)),
                Status::Running if each.shape.delivery == Delivery::AtMostOnce => {
                    each.mark(index, Status::Unknown);
                    effects.push(Effect::Settle { index, status: Status::Unknown });
                    continue;
                }
                Status::Running => {
                    each.states[index] = State::Running(attempt.max(1));
                    if !stopped {
                        effects.push(Effect::Perform { index, attempt: attempt.max(1) });
                    }
                }
                settled => {
                    each.mark(index, settled);
                    continue;
                }
            }
            open += 1;
        }
        each.open = open;
        if stopped {
            each.stop(&mut effects);
        }
        each.go_on(&mut effects);
        (each, effects)
    }

    /// Takes a fact in and says what to do about it.
    pub fn apply(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.over {
            return effects;
        }
        match event {
            Event::Succeeded { index, attempt } => {
                if self.is(index, State::Running(attempt)) {
                    self.settle(index, Status::Completed, &mut effects);
                }
            }
            Event::Skipped { index, attempt } => {
                if self.is(index, State::Running(attempt)) {
                    self.settle(index, Status::Skipped, &mut effects);
                }
            }
            Event::Failed { index, attempt, failure } => {
                if self.is(index, State::Running(attempt)) {
                    self.failed(index, attempt, &failure, &mut effects);
                }
            }
            Event::RetryDue { index, attempt } => {
                if self.is(index, State::Waiting(attempt)) {
                    self.states[index] = State::Running(attempt);
                    effects.push(Effect::Perform { index, attempt });
                }
            }
            Event::Retrying { index, attempt, wait } => {
                if self.is_open(index) {
                    self.retry(index, attempt, Some(wait), &mut effects);
                }
            }
            Event::Settled { index, status } => {
                if status.is_settled() && self.is_open(index) {
                    self.settle(index, status, &mut effects);
                }
            }
            Event::Aborted { index, begun } => {
                if self.stopped && self.is_open(index) {
                    let lost = begun && self.shape.delivery == Delivery::AtMostOnce;
                    self.settle(index, if lost { Status::Unknown } else { Status::Canceled }, &mut effects);
                }
            }
            Event::Stop => self.stop(&mut effects),
        }
        self.go_on(&mut effects);
        effects
    }

    /// Does it wait for its next attempt, rather than being in one?
    pub fn is_waiting(&self, index: Index) -> bool {
        matches!(self.states.get(index), Some(State::Waiting(_)))
    }

    fn is(&self, index: Index, state: State) -> bool {
        self.states.get(index) == Some(&state)
    }

    fn is_open(&self, index: Index) -> bool {
        matches!(self.states.get(index), Some(State::Running(_) | State::Waiting(_)))
    }

    fn failed(&mut self, index: Index, attempt: u32, failure: &Failure, effects: &mut Vec<Effect>) {
        let Shape { execution, key, retry, .. } = &self.shape;
        let iteration = u32::try_from(index + 1).unwrap_or(u32::MAX);
        let wait = retry.wait_after_item(failure, attempt, *execution, key, iteration);
        match failure.leaves() {
            Status::Failed => self.retry(index, attempt + 1, wait, effects),
            status => self.settle(index, status, effects),
        }
    }

    /// An item that failed waits for its next attempt, if it has one and the loop goes on.
    fn retry(&mut self, index: Index, attempt: u32, wait: Option<Duration>, effects: &mut Vec<Effect>) {
        match wait.filter(|_| !self.is_ending()) {
            Some(wait) => {
                self.states[index] = State::Waiting(attempt);
                effects.push(Effect::Wait { index, attempt, wait });
            }
            None => self.settle(index, Status::Failed, effects),
        }
    }

    fn settle(&mut self, index: Index, status: Status, effects: &mut Vec<Effect>) {
        effects.push(Effect::Settle { index, status });
        self.open -= 1;
        self.mark(index, status);
        if status == Status::Failed && self.shape.on_item_error == OnItemError::Fail {
            self.give_up_waits(effects);
        }
    }

    fn mark(&mut self, index: Index, status: Status) {
        self.states[index] = State::Settled(status);
        if status == Status::Failed {
            self.first_failed = Some(self.first_failed.map_or(index, |first| first.min(index)));
        }
        if status == Status::Unknown {
            self.lost = Some(self.lost.map_or(index, |first| first.min(index)));
        }
    }

    /// A loop that fails does not wait for other attempts.
    fn give_up_waits(&mut self, effects: &mut Vec<Effect>) {
        for index in 0..self.states.len() {
            if matches!(self.states[index], State::Waiting(_)) {
                effects.push(Effect::Settle { index, status: Status::Canceled });
                self.open -= 1;
                self.states[index] = State::Settled(Status::Canceled);
            }
        }
    }

    fn stop(&mut self, effects: &mut Vec<Effect>) {
        if std::mem::replace(&mut self.stopped, true) {
            return;
        }
        self.give_up_waits(effects);
        let running = |(index, state): (Index, &State)| matches!(state, State::Running(_)).then_some(index);
        effects.extend(self.states.iter().enumerate().filter_map(running).map(|index| Effect::Abort { index }));
    }

    /// Nothing more is begun.
    fn is_ending(&self) -> bool {
        let fails = self.shape.on_item_error == OnItemError::Fail && self.first_failed.is_some();
        self.stopped || fails || self.lost.is_some()
    }

    fn go_on(&mut self, effects: &mut Vec<Effect>) {
        while !self.is_ending() && self.open < self.shape.parallel && self.next < self.states.len() {
            let index = self.next;
            self.next += 1;
            if self.states[index] == State::Pending {
                self.open += 1;
                self.states[index] = State::Running(1);
                effects.push(Effect::Perform { index, attempt: 1 });
            }
        }
        let done = self.open == 0 && (self.is_ending() || self.next >= self.states.len());
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
