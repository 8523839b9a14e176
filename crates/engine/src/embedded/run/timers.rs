//! The timers of a run: ends of delays, next attempts, deadlines of children, expiries of waits.
//!
//! Invariants
//! - Each key has one time. The next time is found without reading all of them.
//!
//! Not here: what a due time means for a node (`kernel::orchestration`), waiting for it (`run`), setting the timer of a
//! node's next attempt (`record`).

use std::collections::{BTreeMap, BTreeSet};

use kernel::orchestration::Event;
use kernel::run::Stop;
use tokio::time::Instant;

use super::children::of;
use super::frame::{FrameIx, NodeRef};
use super::{LONGEST_SLEEP, ROOT, TreeDriver};

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TimerKey {
    Node(NodeRef),
    /// The deadline of a child. The root's deadline is a field of the run.
    Deadline(FrameIx),
}

#[derive(Debug, Default)]
pub(super) struct Timers {
    by_key: BTreeMap<TimerKey, Instant>,
    by_time: BTreeSet<(Instant, TimerKey)>,
}

impl Timers {
    pub(super) fn set(&mut self, due: TimerKey, at: Instant) {
        self.remove(due);
        self.by_key.insert(due, at);
        self.by_time.insert((at, due));
    }

    pub(super) fn has(&self, due: TimerKey) -> bool {
        self.by_key.contains_key(&due)
    }

    pub(super) fn remove(&mut self, due: TimerKey) {
        if let Some(at) = self.by_key.remove(&due) {
            self.by_time.remove(&(at, due));
        }
    }

    /// Removes all timers of a frame.
    pub(super) fn remove_frame(&mut self, frame: FrameIx) {
        self.remove(TimerKey::Deadline(frame));
        let nodes = of(frame);
        let nodes = TimerKey::Node(*nodes.start())..=TimerKey::Node(*nodes.end());
        let due: Vec<TimerKey> = self.by_key.range(nodes).map(|(due, _)| *due).collect();
        for due in due {
            self.remove(due);
        }
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Removes and returns the next timer that is due.
    pub(super) fn pop(&mut self, now: Instant) -> Option<TimerKey> {
        let (at, due) = self.by_time.first().copied().filter(|(at, _)| *at <= now)?;
        self.by_time.remove(&(at, due));
        self.by_key.remove(&due);
        Some(due)
    }
}

impl TreeDriver {
    /// Reports to the kernel every timer that is due.
    pub(super) fn handle_due_timers(&mut self) {
        let now = Instant::now();
        if now >= self.deadline {
            // The deadline is reported only once: the stopped nodes end by themselves.
            self.deadline = now + LONGEST_SLEEP;
            self.apply(ROOT, Event::Stopped(Stop::Deadline));
        }
        while let Some(due) = self.timers.pop(now) {
            match due {
                TimerKey::Deadline(ix) => self.apply(ix, Event::Stopped(Stop::Deadline)),
                TimerKey::Node(at) => {
                    // A resumed delay may be over before its node is performed again. The node then no longer waits
                    // to be performed.
                    self.stop_computing(at);
                    self.ready.retain(|(ready, _)| *ready != at);
                    self.apply(at.frame, Event::Due { at: at.target() });
                }
            }
        }
    }
}
