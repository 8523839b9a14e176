//! The promises of the service, which step broke a promise, and the last steps before it.
//!
//! Invariants
//! - Only the first broken promise is reported, not its consequences.
//! - Steps are described in words only if the description is needed: a seed that fails runs a second time.
//!
//! Not here: the checks themselves (`store`, `receiver` and `process` during the simulation, `audit` at its end).

use std::collections::{BTreeSet, VecDeque};
use std::fmt;

/// How many steps are reported with a failure.
const MOST_STEPS: usize = 60;

/// What the service promises, as far as a model of its store and engines can break it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Every accepted execution reaches a terminal state.
    P1Kept,
    /// No more slots than the limit, and no node outside a slot.
    P2Slots,
    /// One request, one engine run, one result; a completed node never runs again.
    P3Once,
    /// No workspace delays another.
    P4Fair,
    /// Waiting, crashes and outages cost time, never attempts, never work.
    P5NeverAttempts,
    /// However a run ends, its slot is free.
    P6NoLeak,
}

/// A promise and what broke it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) promise: Promise,
    pub(crate) what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.promise, self.what)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Judge {
    pub(crate) broken: Option<Broken>,
    pub(crate) tells: bool,
    pub(crate) steps: VecDeque<String>,
    /// The rarer ways that were gone, so that a test can tell whether the simulation goes them all.
    pub(crate) seen: BTreeSet<&'static str>,
}

impl Judge {
    pub(crate) fn breaks(&mut self, promise: Promise, what: impl FnOnce() -> String) {
        if self.broken.is_none() {
            let what = what();
            self.note(|| format!("BROKEN {promise:?}: {what}"));
            self.broken = Some(Broken { promise, what });
        }
    }

    pub(crate) fn saw(&mut self, way: &'static str) {
        self.seen.insert(way);
    }

    pub(crate) fn note(&mut self, step: impl FnOnce() -> String) {
        if self.tells && self.broken.is_none() {
            if self.steps.len() == MOST_STEPS {
                self.steps.pop_front();
            }
            self.steps.push_back(step());
        }
    }
}
