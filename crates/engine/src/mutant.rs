//! Rules of the embedded engine that tests break on purpose, to check that the scenarios detect it.
//!
//! Invariants
//! - Release builds contain none of this: only tests turn on the feature.

use std::sync::atomic::{AtomicU8, Ordering};

use kernel::run::node::Status;
use store::run::NodeFact;

use crate::nodes::NodeOutput;

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mutant {
    None = 0,
    /// Drops the labels of results, so that no branch is taken.
    ForgetsLabels,
    /// Stores skipped nodes as canceled.
    CancelsSkips,
    /// Stores every attempt as the first.
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

/// Applies the broken rule to a node's result.
pub(crate) fn output(output: NodeOutput) -> NodeOutput {
    NodeOutput { label: output.label.filter(|_| !is(Mutant::ForgetsLabels)), ..output }
}

/// Applies the broken rule to a fact before it is stored.
pub(crate) fn fact(fact: &mut NodeFact) {
    if is(Mutant::CancelsSkips) && fact.status == Status::Skipped {
        fact.status = Status::Canceled;
    }
    if is(Mutant::ForgetsAttempts) && fact.attempt > 1 {
        fact.attempt = 1;
    }
}
