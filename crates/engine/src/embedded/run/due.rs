//! What happens when its time has come: deadlines, the ends of delays, next attempts, answers that did not come.
//!
//! Not here: which times there are (`timers`), waiting for them (`run`).

use kernel::orchestration::Event;
use kernel::run::Stop;
use kernel::run::attempts::Fact;
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
            self.apply(ROOT, Event::Stopped(Stop::Deadline));
        }
        while let Some(due) = self.timers.pop(now) {
            match due {
                Due::Deadline(ix) => self.apply(ix, Event::Stopped(Stop::Deadline)),
                Due::Node(at) => self.node_due(at),
            }
        }
    }

    /// The time of a node has come: its delay is over, its next attempt is due, or nobody answered it.
    fn node_due(&mut self, at: At) {
        let frame = self.frame(at.frame);
        let attempt = frame.attempt(at).unwrap_or(1);
        if frame.asks.contains_key(&at.target()) {
            return self.ask_due(at);
        }
        if frame.machine.is_waiting(at.target()) {
            return self.apply(at.frame, Event::Of(at.target(), Fact::RetryDue { attempt }));
        }
        self.stop_computing(at);
        self.ended(at, Ok(Done::waited()));
    }
}
