//! What to make of a run that an engine elsewhere should know of.
//!
//! Invariants
//! - What the engine does not know is given up, never started again: it may have been performed.
//! - When much is unknown at once, or the engine is another than the one that was started, the
//!   question is wrong rather than the runs: nothing is given up.
//!
//! Not here: asking (`server::run::reconcile`), ending (`store`).

use crate::execution::Status;

/// More unknown runs than this in one pass are no coincidence.
pub const MOST_UNKNOWN: usize = 10;

/// What the engine says of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum There {
    Unknown,
    Running,
    /// It ended so.
    Closed(Status),
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It runs.
    Leave,
    /// It was accepted, and no worker has taken it up.
    NotBegun,
    /// It ended there, and so it ends here.
    Complete,
    /// It is given up.
    Lost,
}

/// Compares what the engine says with our own status of an execution that was handed to it.
pub fn judge(ours: Status, there: There) -> Verdict {
    match (ours, there) {
        (_, There::Unknown) => Verdict::Lost,
        (Status::Pending, There::Running) => Verdict::NotBegun,
        (_, There::Running) => Verdict::Leave,
        // A run begins before it performs anything: one that completed without that did nothing for us.
        (Status::Pending, There::Closed(Status::Completed)) => Verdict::Lost,
        (_, There::Closed(_)) => Verdict::Complete,
    }
}

/// Why a pass must end nothing; none if it may. `elsewhere`: runs noted at another place than the
/// engine's own.
pub fn halt(unknown: usize, elsewhere: Option<(&str, &str)>) -> Option<String> {
    match elsewhere {
        Some((noted, now)) => Some(format!("runs were started at {noted:?}, and the engine is {now:?} now")),
        None if unknown > MOST_UNKNOWN => Some(format!("the engine does not know {unknown} runs that it was given")),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_unknown_or_ended_without_beginning_is_given_up() {
        use {Status::*, Verdict::*};
        let table = [
            (Running, There::Running, Leave),
            (Running, There::Closed(Completed), Complete),
            (Running, There::Closed(Failed), Complete),
            (Running, There::Closed(Canceled), Complete),
            (Running, There::Closed(TimedOut), Complete),
            (Running, There::Unknown, Lost),
            (Pending, There::Running, NotBegun),
            (Pending, There::Closed(Completed), Lost),
            (Pending, There::Closed(Failed), Complete),
            (Pending, There::Closed(Canceled), Complete),
            (Pending, There::Unknown, Lost),
        ];
        for (ours, there, verdict) in table {
            assert_eq!(judge(ours, there), verdict, "{ours:?} {there:?}");
        }
    }

    #[test]
    fn much_unknown_at_once_or_another_engine_ends_nothing() {
        assert_eq!((halt(0, None), halt(10, None)), (None, None));
        assert!(halt(11, None).is_some_and(|why| why.contains("11 runs")));
        assert!(halt(0, Some(("a", "b"))).is_some_and(|why| why.contains("\"a\"") && why.contains("\"b\"")));
    }
}
