//! What happens when its time has come: deadlines, the ends of delays, next attempts, answers that did not come.
//!
//! Not here: which times there are (`timers`), waiting for them (`run`).

use kernel::run::Event;
use kernel::run::each;
use tokio::time::Instant;

use super::frame::At;
use super::timers::Due;
use super::{Driver, LONGEST_SLEEP, ROOT};
use crate::nodes::Done;

impl Driver {
    /// Takes in whatever the time has come for.
    pub(super) fn due(&mut self) {
        let now = Instant::now();
        if now >= self.deadline {
            // Once: what it stops ends by itself.
            self.deadline = now + LONGEST_SLEEP;
            self.apply(ROOT, Event::DeadlinePassed);
        }
        while let Some(due) = self.timers.pop(now) {
            match due {
                Due::Deadline(ix) => self.apply(ix, Event::DeadlinePassed),
                Due::Node(at) => self.node_due(at),
            }
        }
    }

    /// The time of a node has come: its delay is over, its next attempt is due, or nobody answered it.
    fn node_due(&mut self, at: At) {
        let frame = self.frame(at.frame);
        let attempt = frame.attempt(at).unwrap_or(1);
        if frame.asks.contains_key(&(at.node, at.iteration)) {
            return self.ask_due(at);
        }
        let waits = match at.index() {
            None => !frame.run.in_flight().any(|running| running == at.node),
            Some(index) => frame.loops.get(&at.node).is_some_and(|each| each.is_waiting(index)),
        };
        match (waits, at.index()) {
            (false, _) => {
                self.stop_computing(at);
                self.ended(at, Ok(Done::waited()));
            }
            (true, None) => self.apply(at.frame, Event::RetryDue { node: at.node, attempt }),
            (true, Some(index)) => self.apply_each(at, each::Event::RetryDue { index, attempt }),
        }
    }
}
