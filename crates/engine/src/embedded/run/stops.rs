//! Stopping: what is in flight for a node is broken off; a child and a loop are told to stop, and are waited for.
//!
//! Invariants
//! - A node that was to be stopped is told so to the kernel once nothing is done for it any more.
//! - A child ends before the node that made it: it is stopped as its parent was, and its end comes first.
//!
//! Not here: who is to stop (`kernel::run`, `kernel::each`), a forced end (`embedded`).

use kernel::each;
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
        let calls = self.handles.contains_key(&at) || self.calls.iter().any(|(call, _)| *call == at);
        if !calls && at.iteration == 0 && self.frame(at.frame).loops.contains_key(&at.node) {
            return self.apply_each(at, each::Event::Stop);
        }
        if let Some(handle) = self.handles.remove(&at) {
            handle.abort();
        }
        self.tell(at, "canceled", None);
        self.timers.remove(Due::Node(at));
        self.ready.retain(|(ready, _)| *ready != at);
        self.calls.retain(|(call, _)| *call != at);
        self.frame(at.frame).asks.remove(&(at.node, at.iteration));
        self.aborted(at);
    }

    /// Nothing is done for a node any more that was to be stopped.
    pub(super) fn aborted(&mut self, at: At) {
        match at.index() {
            None => {
                self.frame(at.frame).loops.remove(&at.node);
                self.apply(at.frame, Event::NodeAborted { node: at.node });
            }
            Some(index) => self.apply_each(at, each::Event::Aborted { index }),
        }
    }

    pub(super) fn stop(&mut self, ix: FrameIx, stop: Stop) {
        let event = match stop {
            Stop::Cancel => Event::CancelRequested,
            Stop::Deadline => Event::DeadlinePassed,
        };
        self.apply(ix, event);
    }
}
