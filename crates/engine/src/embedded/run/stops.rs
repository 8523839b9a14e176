//! Stopping: what is in flight for a node is broken off; a child and a loop are told to stop, and are waited for.
//!
//! Invariants
//! - A node that was to be stopped is told so to the kernel once nothing is done for it any more.
//! - A child ends before the node that made it: it is stopped as its parent was, and its end comes first. One that is
//!   not here yet, and the items of a loop that is not, are found first: something may be in flight there of which it
//!   must be told how it stands.
//!
//! Not here: who is to stop, and how (`kernel::orchestration`), a forced end (`embedded`).

use kernel::orchestration::Event;
use kernel::run::Stop;
use kernel::run::attempts::Fact;

use super::Driver;
use super::frame::At;
use super::timers::Due;

impl Driver {
    /// Stops what is done for a node. What it is making just now is waited for, and stopped when it is here.
    pub(super) fn abort(&mut self, at: At) {
        let frame = self.frame(at.frame);
        let makes_more = frame.kind(at).makes_more() && !(at.iteration == 0 && frame.loops.contains_key(&at.node));
        if makes_more && self.handles.get(&at).is_some_and(|flight| !flight.stage.computes()) {
            return;
        }
        let flight = self.handles.remove(&at);
        if let Some(flight) = &flight {
            flight.handle.abort();
        }
        self.tell(at, "canceled", None);
        self.timers.remove(Due::Node(at));
        self.ready.retain(|(ready, _)| *ready != at);
        self.calls.retain(|(call, _)| *call != at);
        self.frame(at.frame).asks.remove(&at.target());
        self.aborted(at, flight.is_some_and(|flight| flight.has_begun()));
    }

    /// What a node made before is found, and stopped when it is here. What the node is made ready with is not needed
    /// for that.
    pub(super) fn find_first(&mut self, at: At) {
        self.stop_computing(at);
        if !self.ready.iter().any(|(ready, _)| *ready == at) {
            let attempt = self.frame(at.frame).attempt(at).unwrap_or(1);
            self.ready.push_back((at, attempt));
        }
    }

    /// Tells the child of a node to stop; its end is waited for.
    pub(super) fn stop_child(&mut self, at: At, stop: Stop) {
        if let Some(child) = self.children.get(&at).copied() {
            self.apply(child, Event::Stopped(stop));
        }
    }

    /// Nothing is done for a node any more that was to be stopped; `begun`: something had been.
    pub(super) fn aborted(&mut self, at: At, begun: bool) {
        self.leave(at);
        self.apply(at.frame, Event::Of(at.target(), Fact::Aborted { begun }));
    }

    /// A node has no child any more, and may make room for another's.
    pub(super) fn leave(&mut self, at: At) {
        let next = self.turns.leave(at);
        self.ready.extend(next);
    }
}
