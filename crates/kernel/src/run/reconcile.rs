//! Compares a run with the state that an external engine reports for it.
//!
//! Invariants
//! - If the engine does not know a run, its execution is ended as FAILED. The run is never started again, because its
//!   nodes may already have been performed.
//! - If the engine does not know many runs, or the runs were started on another engine, the configuration is probably
//!   wrong. Then no execution is ended.
//!
//! Not here: asking the engine (`server::run::reconcile`), ending the run (`store`).

use crate::execution::Status;

/// A pass that finds more unknown runs than this ends no execution.
pub const MOST_UNKNOWN: usize = 10;

/// What the engine reports about a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteState {
    Unknown,
    Running,
    /// The run ended with this status.
    Ended(Status),
}

/// What to do with the execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reconciliation {
    /// The run is in progress on the engine: change nothing.
    LeaveRunning,
    /// The engine accepted the run, but no worker has begun it: change nothing yet.
    AwaitBegin,
    /// The run ended on the engine: end the execution with the same outcome.
    Complete,
    /// End the execution as FAILED: the engine does not know the run, or the run completed without ever beginning.
    GiveUp,
}

/// Compares the stored status of an execution (`ours`) with the engine's report on its run (`remote`).
pub fn decide(ours: Status, remote: RemoteState) -> Reconciliation {
    match (ours, remote) {
        (_, RemoteState::Unknown) => Reconciliation::GiveUp,
        (Status::Pending, RemoteState::Running) => Reconciliation::AwaitBegin,
        (_, RemoteState::Running) => Reconciliation::LeaveRunning,
        // A run begins (status RUNNING) before it performs a node. So a run that completed without beginning performed
        // no node.
        (Status::Pending, RemoteState::Ended(Status::Completed)) => Reconciliation::GiveUp,
        (_, RemoteState::Ended(_)) => Reconciliation::Complete,
    }
}

/// Why a pass must end no execution; none if it may end some. `elsewhere`: the engine on which the runs were started,
/// and the current engine, if they differ.
pub fn halt(unknown: usize, elsewhere: Option<(&str, &str)>) -> Option<String> {
    match elsewhere {
        Some((noted, now)) => Some(format!(
            "runs were started at {noted:?}, but the engine is now {now:?}: configure the old one until these runs end"
        )),
        None if unknown > MOST_UNKNOWN => {
            Some(format!("the engine does not know {unknown} runs that it accepted: check its address and namespace"))
        }
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_run_that_is_unknown_or_completed_without_beginning_is_given_up() {
        use {Reconciliation::*, Status::*};
        let table = [
            (Running, RemoteState::Running, LeaveRunning),
            (Running, RemoteState::Ended(Completed), Complete),
            (Running, RemoteState::Ended(Failed), Complete),
            (Running, RemoteState::Ended(Canceled), Complete),
            (Running, RemoteState::Ended(TimedOut), Complete),
            (Running, RemoteState::Unknown, GiveUp),
            (Pending, RemoteState::Running, AwaitBegin),
            (Pending, RemoteState::Ended(Completed), GiveUp),
            (Pending, RemoteState::Ended(Failed), Complete),
            (Pending, RemoteState::Ended(Canceled), Complete),
            (Pending, RemoteState::Unknown, GiveUp),
        ];
        for (ours, remote, expected) in table {
            assert_eq!(decide(ours, remote), expected, "{ours:?} {remote:?}");
        }
    }

    #[test]
    fn many_unknown_runs_or_another_engine_end_nothing() {
        assert_eq!((halt(0, None), halt(10, None)), (None, None));
        assert!(halt(11, None).is_some_and(|why| why.contains("11 runs")));
        assert!(halt(0, Some(("a", "b"))).is_some_and(|why| why.contains("\"a\"") && why.contains("\"b\"")));
    }
}
