//! Stopping: what is in flight for a node is broken off; a child and a loop are told to stop, and are waited for.
//!
//! Invariants
//! - A node that was to be stopped is told so to the kernel once nothing is done for it any more.
//! - A child ends before the node that made it: it is stopped as its parent was, and its end comes first. One that is not here yet, and
//!   the items of a loop that is not, are found first: something may be in flight there of which it must be told how it stands.
//!
//! Not here: who is to stop (`kernel::run`, `kernel::run::each`), a forced end (`embedded`).

use kernel::run::each;
use kernel::run::{Event, Stop};

use super::Driver;
use super::frame::{At, FrameIx};
use super::timers::Due;

impl Driver {
    /// Stops what is done for a node. A child is told to stop, and its end is waited for; a loop stops its items.
    pub(super) fn abort(&mut self, at: At) {
        if let Some(child) = self.children.get(&at).copied() {
            let stop = self.frame(at.frame).stop.unwrap_or(Stop::Cancel);
            return self.stop(child, stop);
        }
        if self.is_sought(at) {
            return;
        }
        let calls = self.handles.contains_key(&at) || self.calls.iter().any(|(call, _)| *call == at);
        if !calls && at.iteration == 0 && self.frame(at.frame).loops.contains_key(&at.node) {
            return self.apply_each(at, each::Event::Stop);
        }
        let flight = self.handles.remove(&at);
        if let Some(flight) = &flight {
            flight.handle.abort();
        }
        self.tell(at, "canceled", None);
        self.timers.remove(Due::Node(at));
        self.ready.retain(|(ready, _)| *ready != at);
        self.calls.retain(|(call, _)| *call != at);
        self.frame(at.frame).asks.remove(&(at.node, at.iteration));
        self.aborted(at, flight.is_some_and(|flight| flight.has_begun()));
    }

    /// Is what a node made before, or is making now, being found? It is stopped when it is here.
    fn is_sought(&mut self, at: At) -> bool {
        let frame = self.frame(at.frame);
        let (kind, attempt) = (frame.kind(at), frame.attempt(at).unwrap_or(1));
        if !kind.makes_more() || (at.iteration == 0 && frame.loops.contains_key(&at.node)) {
            return false;
        }
        let begun = frame.resumed.contains(&(at.node, at.iteration));
        if begun && !self.turns.is_waiting(at) && !self.ready.iter().any(|(ready, _)| *ready == at) {
            // What it is made ready with is not needed to find it.
            self.stop_computing(at);
            self.ready.push_back((at, attempt));
        }
        begun || self.handles.get(&at).is_some_and(|flight| !flight.computes())
    }

    /// Nothing is done for a node any more that was to be stopped; `begun`: something had been.
    pub(super) fn aborted(&mut self, at: At, begun: bool) {
        self.leave(at);
        match at.index() {
            None => {
                self.frame(at.frame).loops.remove(&at.node);
                self.apply(at.frame, Event::NodeAborted { node: at.node, begun });
            }
            Some(index) => self.apply_each(at, each::Event::Aborted { index, begun }),
        }
    }

    /// A node has no child any more, and may make room for another's.
    pub(super) fn leave(&mut self, at: At) {
        let next = self.turns.leave(at);
        self.ready.extend(next);
    }

    pub(super) fn stop(&mut self, ix: FrameIx, stop: Stop) {
        let event = match stop {
            Stop::Cancel => Event::CancelRequested,
            Stop::Deadline => Event::DeadlinePassed,
        };
        self.apply(ix, event);
    }
}
