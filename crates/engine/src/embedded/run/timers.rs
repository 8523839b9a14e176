//! What goes on by itself at a time: delays, next attempts, deadlines of children, waits that expire.
//!
//! Invariants
//! - One time a thing; the next one is found without looking at all of them.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;

use super::children::of;
use super::frame::{At, FrameIx};

/// What a time is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    Node(At),
    /// A child may not run any longer. (The root's deadline is the run's own.)
    Deadline(FrameIx),
}

#[derive(Debug, Default)]
pub(super) struct Timers {
    by_thing: BTreeMap<Due, Instant>,
    by_time: BTreeSet<(Instant, Due)>,
}

impl Timers {
    pub(super) fn set(&mut self, due: Due, at: Instant) {
        self.remove(due);
        self.by_thing.insert(due, at);
        self.by_time.insert((at, due));
    }

    pub(super) fn has(&self, due: Due) -> bool {
        self.by_thing.contains_key(&due)
    }

    pub(super) fn remove(&mut self, due: Due) {
        if let Some(at) = self.by_thing.remove(&due) {
            self.by_time.remove(&(at, due));
        }
    }

    /// Forgets everything of a frame.
    pub(super) fn forget(&mut self, frame: FrameIx) {
        self.remove(Due::Deadline(frame));
        let nodes = of(frame);
        let nodes = Due::Node(*nodes.start())..=Due::Node(*nodes.end());
        let due: Vec<Due> = self.by_thing.range(nodes).map(|(due, _)| *due).collect();
        for due in due {
            self.remove(due);
        }
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes out the next thing whose time has come.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Due> {
        let (at, due) = self.by_time.first().copied().filter(|(at, _)| *at <= now)?;
        self.by_time.remove(&(at, due));
        self.by_thing.remove(&due);
        Some(due)
    }
}
