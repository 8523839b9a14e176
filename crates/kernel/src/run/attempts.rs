//! What is performed in attempts, be it a node or an item of a loop: what is heard of it, and what follows.
//!
//!     pending ──▶ running ──fails──▶ waiting ──due──▶ running
//!                    └──▶ settled ◀──given up──┘
//!
//! Invariants
//! - Old news changes nothing: a fact that no longer fits leads to no order.
//! - What may be performed at most once, and had begun, is lost when it is stopped or taken up again.
//!
//! Not here: what begins when (`run` for a graph, `each` for a loop), whether a failure is worth another try
//! (`failure`).

use std::time::Duration;

use crate::definition::{Delivery, OnError};
use crate::ids::{ExecutionId, Label, NodeKey};
use crate::run::failure::{Failure, Policy};
use crate::run::node::{End, Status};

/// A fact, in the past tense. It says of which attempt it is, so that one that comes late or twice is told from news of
/// the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// Its work is done; a branching node says which label it took.
    Succeeded { attempt: u32, took: Option<Label> },
    /// One attempt at it failed.
    Failed { attempt: u32, failure: Failure },
    /// Its own condition does not hold: it is not performed.
    Skipped { attempt: u32 },
    /// The wait before this attempt is over.
    RetryDue { attempt: u32 },
    /// It failed and is tried again after that wait, and that is stored: whoever performed it kept its attempts itself.
    RetryStored { attempt: u32, wait: Duration },
    /// It settled so, and that is stored: whoever performed it kept its attempts itself.
    Settled { status: Status, label: Option<Label> },
    /// It was stopped before it had a result. `begun`: something may have been done for it.
    Aborted { begun: bool },
}

/// An order, in the imperative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Record its end.
    Settle(End),
    /// Do its work.
    Perform { attempt: u32 },
    /// Record that it waits for this attempt, and say `RetryDue` when the wait is over.
    Wait { attempt: u32, wait: Duration },
    /// Stop its work, and say `Aborted` (or how it ended).
    Abort,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    Pending,
    Running { attempt: u32 },
    Waiting { attempt: u32 },
    Settled(End),
}

impl State {
    pub(super) fn is_open(&self) -> bool {
        matches!(self, State::Running { .. } | State::Waiting { .. })
    }
}

/// What holds for one of them when a fact comes.
#[derive(Debug)]
pub(super) struct Terms<'a> {
    pub(super) execution: ExecutionId,
    pub(super) key: &'a NodeKey,
    /// Which item of a loop, from 1.
    pub(super) iteration: u32,
    pub(super) retry: Policy,
    pub(super) delivery: Delivery,
    pub(super) on_error: OnError,
    /// It was told to stop.
    pub(super) stopped: bool,
    /// No other attempt is begun.
    pub(super) ending: bool,
}

impl Terms<'_> {
    /// What a fact leads to; none if it is old news.
    pub(super) fn order(&self, state: &State, fact: Fact) -> Option<Order> {
        let is_in = |attempt| *state == State::Running { attempt };
        match fact {
            Fact::Succeeded { attempt, took } if is_in(attempt) => Some(Order::Settle(End::Completed { took })),
            Fact::Skipped { attempt } if is_in(attempt) => Some(Order::Settle(End::Skipped)),
            Fact::Failed { attempt, failure } if is_in(attempt) => Some(match failure.leaves() {
                Status::Unknown => Order::Settle(End::Lost),
                _ => {
                    let Terms { execution, key, iteration, retry, .. } = self;
                    let wait = retry.wait_after_item(&failure, attempt, *execution, key, *iteration);
                    self.retry(attempt + 1, wait)
                }
            }),
            Fact::RetryDue { attempt } if *state == State::Waiting { attempt } => Some(Order::Perform { attempt }),
            Fact::RetryStored { attempt, wait } if state.is_open() => Some(self.retry(attempt, Some(wait))),
            Fact::Settled { status, label } if state.is_open() => {
                End::stored(status, label, self.on_error).map(Order::Settle)
            }
            Fact::Aborted { begun } if self.stopped && matches!(state, State::Running { .. }) => {
                let lost = begun && self.delivery == Delivery::AtMostOnce;
                Some(Order::Settle(if lost { End::Lost } else { End::Canceled }))
            }
            _ => None,
        }
    }

    /// What its next owner does about one that was stored in this attempt: a crash is nobody's failure. One that waits
    /// gives no order: its time is stored. What was told to stop is aborted with the rest.
    pub(super) fn take_up(&self, attempt: u32) -> Option<Order> {
        match self.delivery {
            Delivery::AtMostOnce => Some(Order::Settle(End::Lost)),
            Delivery::AtLeastOnce => (!self.stopped).then_some(Order::Perform { attempt }),
        }
    }

    /// What failed waits for its next attempt, if it has one and nothing is ending.
    fn retry(&self, attempt: u32, wait: Option<Duration>) -> Order {
        match wait.filter(|_| !self.ending) {
            Some(wait) => Order::Wait { attempt, wait },
            None => Order::Settle(End::Failed { continues: self.on_error == OnError::Continue }),
        }
    }
}

/// How each of them stands, by its place.
#[derive(Clone, Debug)]
pub(super) struct States {
    all: Vec<State>,
    /// How many are in flight or wait for an attempt.
    pub(super) open: usize,
}

impl States {
    pub(super) fn new(count: usize) -> States {
        States { all: vec![State::Pending; count], open: 0 }
    }

    pub(super) fn all(&self) -> &[State] {
        &self.all
    }

    pub(super) fn set(&mut self, at: usize, state: State) {
        self.open = self.open + usize::from(state.is_open()) - usize::from(self.all[at].is_open());
        self.all[at] = state;
    }

    /// It stands so once the order is given.
    pub(super) fn follow(&mut self, at: usize, order: &Order) {
        match order {
            Order::Settle(end) => self.set(at, State::Settled(end.clone())),
            Order::Perform { attempt } => self.set(at, State::Running { attempt: *attempt }),
            Order::Wait { attempt, .. } => self.set(at, State::Waiting { attempt: *attempt }),
            Order::Abort => {}
        }
    }
}
