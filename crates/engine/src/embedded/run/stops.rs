//! Stops nodes: aborts their work in flight. A child or a loop receives the stop, and the run waits for its end.
//!
//! Invariants
//! - The kernel receives `Aborted` for a node once no work for it is left.
//! - A child ends before the node that started it, and with the same stop. A child or a loop that is not loaded yet is
//!   loaded first, because one of its nodes may have been in flight and must be settled.
//!
//! Not here: which nodes stop, and how (`kernel::orchestration`), terminating a run (`embedded`).

use kernel::orchestration::Event;
use kernel::run::Stop;
use kernel::run::attempts::AttemptEvent;

use super::TreeDriver;
use super::frame::NodeRef;
use super::timers::TimerKey;

impl TreeDriver {
    /// Stops a node's work. A child or a loop that is being loaded is stopped only when it is loaded.
    pub(super) fn abort(&mut self, at: NodeRef) {
        let frame = self.frame(at.frame);
        let makes_more = frame.kind(at).makes_more() && !(at.iteration == 0 && frame.loops.contains_key(&at.node));
        if makes_more && self.handles.get(&at).is_some_and(|flight| !flight.stage.is_preparing()) {
            return;
        }
        let flight = self.handles.remove(&at);
        if let Some(flight) = &flight {
            flight.handle.abort();
        }
        self.end_attempt_span(at, "canceled", None);
        self.timers.remove(TimerKey::Node(at));
        self.ready.retain(|(ready, _)| *ready != at);
        self.calls.retain(|(call, _)| *call != at);
        self.frame(at.frame).waits.remove(&at.target());
        self.aborted(at, flight.is_some_and(|flight| flight.has_begun()));
    }

    /// Loads the child or the loop that a node started earlier, so that it can be stopped. Drops the node's
    /// preparation, which is not needed for that.
    pub(super) fn find_begun_earlier(&mut self, at: NodeRef) {
        self.stop_computing(at);
        if !self.ready.iter().any(|(ready, _)| *ready == at) {
            let attempt = self.frame(at.frame).attempt(at).unwrap_or(1);
            self.ready.push_back((at, attempt));
        }
    }

    /// Stops the child of a node. The node ends when its child has ended.
    pub(super) fn stop_child(&mut self, at: NodeRef, stop: Stop) {
        if let Some(child) = self.children.get(&at).copied() {
            self.apply(child, Event::Stopped(stop));
        }
    }

    /// Reports to the kernel that no work is left for a stopped node. `begun`: its work had begun.
    pub(super) fn aborted(&mut self, at: NodeRef, begun: bool) {
        self.release_child_slot(at);
        self.apply(at.frame, Event::Attempt(at.target(), AttemptEvent::Aborted { begun }));
    }

    /// Frees the child slot of a node, so that another node may start its child.
    pub(super) fn release_child_slot(&mut self, at: NodeRef) {
        let next = self.child_slots.release(at);
        self.ready.extend(next);
    }
}
