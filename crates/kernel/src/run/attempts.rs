//! The attempts of one piece of work (a node, or one item of a loop): its events, and the effects that follow.
//!
//!     pending ──▶ running ──fails──▶ waiting ──due──▶ running
//!                    └──▶ settled ◀──given up──┘
//!
//! Invariants
//! - A late or repeated event changes nothing: it gives no effect.
//! - Work that may be performed at most once ends UNKNOWN if it is stopped or resumed after it has begun.
//!
//! Not here: when work begins (`run` for a graph, `item_loop` for a loop), whether a failure is retried (`failure`).

use std::time::Duration;

use crate::definition::{Delivery, Node, OnError};
use crate::ids::{ExecutionId, Label, NodeKey};
use crate::run::failure::{Failure, Policy};
use crate::run::node::{NodeEnd, Status};

/// A fact about one piece of work, named in the past tense. Most events carry their attempt, so that a late or repeated
/// event is not mistaken for an event of the next attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptEvent {
    /// The attempt succeeded. `took` is the label of the branch that a branching node chose.
    Succeeded { attempt: u32, took: Option<Label> },
    /// This attempt failed.
    Failed { attempt: u32, failure: Failure },
    /// The condition of the node or item is false, so its work was not performed.
    Skipped { attempt: u32 },
    /// The wait before this attempt is over.
    RetryDue { attempt: u32 },
    /// The work failed, and the shell has already stored that this next attempt begins after `wait`. Sent by a shell
    /// that counts attempts itself (Temporal).
    RetryStored { attempt: u32, wait: Duration },
    /// The work settled with this status. Sent by a shell that counts attempts itself (Temporal) after it stored the
    /// status, and by `orchestration` for a delay that is over or a loop that ends UNKNOWN.
    Settled { status: Status, label: Option<Label> },
    /// The work was stopped before it had a result. `begun`: the work may already have taken effect.
    Aborted { begun: bool },
}

/// An order that the shell must carry out, named in the imperative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptEffect {
    /// Record how the work ended.
    Settle(NodeEnd),
    /// Perform this attempt.
    Perform { attempt: u32 },
    /// Record that the work waits for this attempt. When the wait is over, the shell sends `orchestration::Event::Due`,
    /// and `orchestration` makes it `RetryDue`.
    Wait { attempt: u32, wait: Duration },
    /// Stop the attempt in flight. Then send `Aborted`, or the result if the attempt ended first.
    Abort,
}

impl From<AfterFailure> for AttemptEffect {
    fn from(after: AfterFailure) -> AttemptEffect {
        match after {
            AfterFailure::Retry { attempt, wait } => AttemptEffect::Wait { attempt, wait },
            AfterFailure::Settle(end) => AttemptEffect::Settle(end),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AttemptState {
    Pending,
    Running { attempt: u32 },
    Waiting { attempt: u32 },
    Settled(NodeEnd),
}

impl AttemptState {
    pub(super) fn is_open(&self) -> bool {
        matches!(self, AttemptState::Running { .. } | AttemptState::Waiting { .. })
    }

    pub(super) fn waits_for(&self) -> Option<u32> {
        match self {
            AttemptState::Waiting { attempt } => Some(*attempt),
            _ => None,
        }
    }
}

/// What follows when an attempt has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// The next attempt begins after this wait.
    Retry {
        attempt: u32,
        wait: Duration,
    },
    Settle(NodeEnd),
}

/// The properties of a node or item that decide which effect an event has.
#[derive(Debug)]
pub struct AttemptRules<'a> {
    pub(super) execution: ExecutionId,
    pub(super) key: &'a NodeKey,
    /// The item of a loop, counted from 1; 0 for a node.
    pub(super) iteration: u32,
    pub(super) retry: Policy,
    pub(super) delivery: Delivery,
    pub(super) on_error: OnError,
    /// The run or the loop was stopped.
    pub(super) stopped: bool,
    /// The run or the loop is ending, so no further attempt may begin.
    pub(super) ending: bool,
}

impl<'a> AttemptRules<'a> {
    /// The rules of a node, or of one item if `spec` is a loop's action, for a shell that counts attempts itself
    /// (Temporal). The state machine decides what a stop means, once it gets the shell's event.
    pub fn new(execution: ExecutionId, spec: &'a Node, iteration: i32) -> AttemptRules<'a> {
        let Node { key, retry, delivery, on_error, .. } = spec;
        let iteration = u32::try_from(iteration).unwrap_or_default();
        let (retry, delivery, on_error) = (*retry, *delivery, *on_error);
        AttemptRules { execution, key, iteration, retry, delivery, on_error, stopped: false, ending: false }
    }

    /// What follows when this attempt has failed.
    pub fn after_failure(&self, failure: &Failure, attempt: u32) -> AfterFailure {
        if failure.node_status() == Status::Unknown {
            return AfterFailure::Settle(NodeEnd::Lost);
        }
        let AttemptRules { execution, key, iteration, retry, .. } = self;
        self.retry(attempt + 1, retry.wait_after_item(failure, attempt, *execution, key, *iteration))
    }

    /// How work ends whose attempt was interrupted: its process died, or it was stopped. `begun`: the work may have
    /// taken effect. None if it is performed again under the same attempt, because a crash is not a failure of the
    /// work.
    pub fn interrupted(&self, begun: bool, stopped: bool) -> Option<NodeEnd> {
        match self.delivery {
            Delivery::AtMostOnce if begun => Some(NodeEnd::Lost),
            Delivery::AtMostOnce | Delivery::AtLeastOnce => stopped.then_some(NodeEnd::Canceled),
        }
    }

    /// The effect of an event; none if the event is late or repeated.
    pub(super) fn decide(&self, state: &AttemptState, fact: AttemptEvent) -> Option<AttemptEffect> {
        let is_in = |attempt| *state == AttemptState::Running { attempt };
        match fact {
            AttemptEvent::Succeeded { attempt, took } if is_in(attempt) => {
                Some(AttemptEffect::Settle(NodeEnd::Completed { took }))
            }
            AttemptEvent::Skipped { attempt } if is_in(attempt) => Some(AttemptEffect::Settle(NodeEnd::Skipped)),
            AttemptEvent::Failed { attempt, failure } if is_in(attempt) => {
                Some(self.after_failure(&failure, attempt).into())
            }
            AttemptEvent::RetryDue { attempt } if *state == AttemptState::Waiting { attempt } => {
                Some(AttemptEffect::Perform { attempt })
            }
            AttemptEvent::RetryStored { attempt, wait } if state.is_open() => {
                Some(self.retry(attempt, Some(wait)).into())
            }
            AttemptEvent::Settled { status, label } if state.is_open() => {
                NodeEnd::stored(status, label, self.on_error).map(AttemptEffect::Settle)
            }
            AttemptEvent::Aborted { begun } if self.stopped && matches!(state, AttemptState::Running { .. }) => {
                self.interrupted(begun, true).map(AttemptEffect::Settle)
            }
            _ => None,
        }
    }

    /// The effect of resuming work whose attempt was in flight. If it was stopped, it gives no effect here: the caller
    /// aborts it.
    pub(super) fn resume(&self, attempt: u32) -> Option<AttemptEffect> {
        match self.interrupted(true, self.stopped) {
            Some(NodeEnd::Lost) => Some(AttemptEffect::Settle(NodeEnd::Lost)),
            Some(_) => None,
            None => Some(AttemptEffect::Perform { attempt }),
        }
    }

    /// The work waits for its next attempt. It settles as FAILED if it has no next attempt, or if the run or the loop
    /// is ending.
    fn retry(&self, attempt: u32, wait: Option<Duration>) -> AfterFailure {
        match wait.filter(|_| !self.ending) {
            Some(wait) => AfterFailure::Retry { attempt, wait },
            None => AfterFailure::Settle(NodeEnd::Failed { continues: self.on_error == OnError::Continue }),
        }
    }
}

/// The state of each node or item, by its index.
#[derive(Clone, Debug)]
pub(super) struct AttemptStates {
    all: Vec<AttemptState>,
    /// How many nodes or items are in flight or wait for their next attempt.
    pub(super) open: usize,
}

impl AttemptStates {
    pub(super) fn new(count: usize) -> AttemptStates {
        AttemptStates { all: vec![AttemptState::Pending; count], open: 0 }
    }

    pub(super) fn all(&self) -> &[AttemptState] {
        &self.all
    }

    pub(super) fn set(&mut self, at: usize, state: AttemptState) {
        self.open = self.open + usize::from(state.is_open()) - usize::from(self.all[at].is_open());
        self.all[at] = state;
    }

    /// Updates the state of a node or item for an effect that the shell will carry out.
    pub(super) fn apply(&mut self, at: usize, order: &AttemptEffect) {
        match order {
            AttemptEffect::Settle(end) => self.set(at, AttemptState::Settled(end.clone())),
            AttemptEffect::Perform { attempt } => self.set(at, AttemptState::Running { attempt: *attempt }),
            AttemptEffect::Wait { attempt, .. } => self.set(at, AttemptState::Waiting { attempt: *attempt }),
            AttemptEffect::Abort => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::failure::Class;

    #[test]
    fn only_work_that_began_and_may_not_be_repeated_is_lost() {
        use NodeEnd::{Canceled, Lost};
        let key = NodeKey::new("a").expect("a good name");
        let ends = |delivery| {
            let rules = AttemptRules {
                execution: ExecutionId(uuid::Uuid::nil()),
                key: &key,
                iteration: 0,
                retry: Policy::DEFAULT,
                delivery,
                on_error: OnError::Fail,
                stopped: false,
                ending: false,
            };
            let unknown = Failure::new(Class::ResultUnknown, "x");
            assert_eq!(rules.after_failure(&unknown, 1), AfterFailure::Settle(Lost), "never retried");
            [(false, false), (false, true), (true, false), (true, true)]
                .map(|(begun, stopped)| rules.interrupted(begun, stopped))
        };
        assert_eq!(ends(Delivery::AtLeastOnce), [None, Some(Canceled), None, Some(Canceled)]);
        assert_eq!(ends(Delivery::AtMostOnce), [None, Some(Canceled), Some(Lost), Some(Lost)]);
    }
}
