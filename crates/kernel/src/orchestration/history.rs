//! When the history of a durable engine is continued as new.
//!
//! Invariants
//! - A history is continued only when no call in flight would be lost by it. What waits is taken up by the next history
//!   from its row, and so are children, which go on meanwhile.
//! - A long history begins nothing more until it is continued, so that it never reaches the length at which Temporal
//!   ends it.
//!
//! Not here: continuing it (`temporal::workflow`).

/// A history this long begins nothing more. Temporal ends it at 51,200 events.
pub const LONG: u32 = 20_000;

/// A history, and what is in flight in it.
#[derive(Clone, Copy, Debug)]
pub struct History {
    /// How many events it has.
    pub length: u32,
    /// The length at which it begins nothing more, usually [`LONG`].
    pub long: u32,
    /// The server suggests to continue it as new.
    pub suggested: bool,
    /// Calls in flight, children aside: no other history can take them over.
    pub calls: usize,
    /// One of them is an activity of the user's own, which may take days.
    pub foreign: bool,
    /// Children that run by themselves.
    pub children: usize,
    /// The execution is being stopped.
    pub stopped: bool,
}

impl History {
    /// Is there room for more? While an activity of the user's own is in flight, or while it is being stopped, there is
    /// more than twice as much.
    pub fn may_begin(&self) -> bool {
        self.length < self.long || ((self.foreign || self.stopped) && !self.is_full())
    }

    fn is_full(&self) -> bool {
        self.length >= self.long / 4 * 9
    }

    /// Is it to be continued as new now? Not while it is being stopped, if there is any room left: a child's stop is
    /// known to this history alone.
    pub fn is_to_be_continued(&self) -> bool {
        let may_be_left = !self.stopped || (self.children == 0 && self.is_full());
        self.calls == 0 && may_be_left && (self.suggested || !self.may_begin())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: History =
        History { length: 10, long: LONG, suggested: false, calls: 0, foreign: false, children: 0, stopped: false };

    #[test]
    fn a_long_history_begins_nothing_more_and_is_continued_once_nothing_would_be_lost() {
        let long = History { length: LONG, ..SHORT };
        let table = [
            (SHORT, true, false),
            (History { suggested: true, ..SHORT }, true, true),
            (long, false, true),
            (History { calls: 1, ..long }, false, false),
            (History { children: 3, ..long }, false, true),
            (History { children: 3, stopped: true, ..long }, true, false),
            (History { stopped: true, ..long }, true, false),
            (History { stopped: true, suggested: true, ..SHORT }, true, false),
            (History { stopped: true, length: LONG / 4 * 9, ..long }, false, true),
            (History { calls: 1, foreign: true, ..long }, true, false),
            (History { calls: 1, foreign: true, length: LONG / 4 * 9, ..long }, false, false),
        ];
        for (history, begins, continues) in table {
            assert_eq!((history.may_begin(), history.is_to_be_continued()), (begins, continues), "{history:?}");
        }
    }
}
