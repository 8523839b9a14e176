//! Decides when the history of a Temporal workflow is continued as new.
//!
//! Invariants
//! - A history is continued as new only when no call is in flight, because the call would be lost. The next history
//!   resumes waiting nodes and children from their rows. The children keep running meanwhile.
//! - In a long history no more nodes begin until it is continued as new, so that the history never reaches the length
//!   at which Temporal terminates the workflow.
//!
//! Not here: continuing it (`temporal::workflow`).

/// In a history with this many events no more nodes begin. Temporal terminates a workflow at 51,200 events.
pub const LONG_HISTORY: u32 = 20_000;

/// A history, and what is in flight in it.
#[derive(Clone, Copy, Debug)]
pub struct History {
    /// How many events the history has.
    pub length: u32,
    /// The length from which on no more nodes begin, usually [`LONG_HISTORY`].
    pub long: u32,
    /// The Temporal server suggests that the workflow continues as new.
    pub suggested: bool,
    /// Calls in flight, not counting children. The next history cannot take over these calls.
    pub calls: usize,
    /// One of the calls in flight is a user's own activity, which may take days.
    pub foreign: bool,
    /// Child executions that are running. They continue without this history.
    pub children: usize,
    /// The execution is being stopped.
    pub stopped: bool,
}

impl History {
    /// May another node begin in this history? The history cannot be continued as new while a user's own activity is in
    /// flight, or while the run is being stopped. Then the limit is more than twice as high.
    pub fn may_begin(&self) -> bool {
        self.length < self.long || ((self.foreign || self.stopped) && !self.is_full())
    }

    fn is_full(&self) -> bool {
        self.length >= self.long / 4 * 9
    }

    /// Must the history be continued as new now? While the run is being stopped, this waits until the history is full
    /// and no child is running, because only this history knows which children were asked to stop.
    pub fn should_continue_as_new(&self) -> bool {
        let may_be_left = !self.stopped || (self.children == 0 && self.is_full());
        self.calls == 0 && may_be_left && (self.suggested || !self.may_begin())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: History = History {
        length: 10,
        long: LONG_HISTORY,
        suggested: false,
        calls: 0,
        foreign: false,
        children: 0,
        stopped: false,
    };

    #[test]
    fn a_long_history_begins_no_more_nodes_and_is_continued_when_no_call_is_in_flight() {
        let long = History { length: LONG_HISTORY, ..SHORT };
        let table = [
            (SHORT, true, false),
            (History { suggested: true, ..SHORT }, true, true),
            (long, false, true),
            (History { calls: 1, ..long }, false, false),
            (History { children: 3, ..long }, false, true),
            (History { children: 3, stopped: true, ..long }, true, false),
            (History { stopped: true, ..long }, true, false),
            (History { stopped: true, suggested: true, ..SHORT }, true, false),
            (History { stopped: true, length: LONG_HISTORY / 4 * 9, ..long }, false, true),
            (History { calls: 1, foreign: true, ..long }, true, false),
            (History { calls: 1, foreign: true, length: LONG_HISTORY / 4 * 9, ..long }, false, false),
        ];
        for (history, begins, continues) in table {
            assert_eq!((history.may_begin(), history.should_continue_as_new()), (begins, continues), "{history:?}");
        }
    }
}
