//! Rules of the embedded engine to break on purpose, to see whether the scenarios notice.
//!
//! Invariants
//! - None of it is in a release: the feature is turned on by tests alone.

use std::sync::atomic::{AtomicU8, Ordering};

use kernel::run::node::Status;
use store::run::NodeFact;

use crate::nodes::Done;

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mutant {
    None = 0,
    /// Takes no branch.
    ForgetsLabels,
    /// Stores what is skipped as if it were canceled.
    CancelsSkips,
    /// Counts every attempt as the first.
    ForgetsAttempts,
}

static MUTANT: AtomicU8 = AtomicU8::new(Mutant::None as u8);

/// Breaks one rule for the whole process from now on.
pub fn mutate(mutant: Mutant) {
    MUTANT.store(mutant as u8, Ordering::SeqCst);
}

fn is(mutant: Mutant) -> bool {
    MUTANT.load(Ordering::SeqCst) == mutant as u8
}

/// What a broken rule makes of a node's result.
pub(crate) fn done(done: Done) -> Done {
    Done { took: done.took.filter(|_| !is(Mutant::ForgetsLabels)), ..done }
}

/// What a broken rule makes of what is stored.
pub(crate) fn fact(fact: &mut NodeFact) {
    if is(Mutant::CancelsSkips) && fact.status == Status::Skipped {
        fact.status = Status::Canceled;
    }
    if is(Mutant::ForgetsAttempts) && fact.attempt > 1 {
        fact.attempt = 1;
    }
}
