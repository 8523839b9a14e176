//! How many nodes of one run may be in flight at once.
//!
//! Invariants
//! - Computing nodes have a limit of their own, so that they proceed while all calls wait for replies.
//! - A node that waits for a time or for an answer counts toward no limit. Children have a limit of their own: in an
//!   embedded tree that of `tree`, in a Temporal workflow `CHILDREN`.
//!
//! Not here: how many calls a whole process makes (`engine::embedded::permits`), how many executions run (`queue`).

/// How many nodes of one run may be in flight at once. (Temporal's own limit is 2,000.)
pub const IN_FLIGHT: usize = 64;
/// How many nodes that compute for a while may run in addition to the `IN_FLIGHT` nodes.
pub const COMPUTING: usize = 4;
/// How many children of one Temporal workflow may be open. (Temporal's own limit is 2,000.)
pub const CHILDREN: usize = 256;

/// What a ready node needs of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing: it computes in microseconds.
    Nothing,
    /// A separate thread: it computes for a while.
    ComputeThread,
    /// One of the `IN_FLIGHT` places, until the called service answers.
    InFlight,
    /// One of the `IN_FLIGHT` places until its child runs, and then one of the `CHILDREN`.
    Child,
}

/// What is in flight for a run, and whether more of its nodes may begin.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunLoad {
    pub in_flight: usize,
    pub computing: usize,
    /// The children that run. They do not count as in flight.
    pub children: usize,
    /// No more nodes may begin, because the process shuts down or the Temporal history is too long.
    pub ending: bool,
}

impl RunLoad {
    /// May the next ready node begin?
    pub fn admits(self, needs: Need) -> bool {
        match needs {
            Need::Nothing => true,
            _ if self.ending => false,
            Need::ComputeThread => self.in_flight < IN_FLIGHT || self.computing < COMPUTING,
            Need::InFlight => self.in_flight < IN_FLIGHT,
            Need::Child => self.in_flight < IN_FLIGHT && self.children + self.in_flight < CHILDREN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computing_nodes_have_a_limit_of_their_own_and_an_ending_process_begins_nothing() {
        let load = |in_flight, computing, ending| RunLoad { in_flight, computing, ending, children: 0 };
        let all = |load: RunLoad| [Need::Nothing, Need::ComputeThread, Need::InFlight].map(|needs| load.admits(needs));
        assert_eq!(all(RunLoad::default()), [true, true, true]);
        assert_eq!(all(load(IN_FLIGHT, 0, false)), [true, true, false]);
        assert_eq!(all(load(IN_FLIGHT, COMPUTING, false)), [true, false, false]);
        assert_eq!(all(load(0, 0, true)), [true, false, false]);
    }

    #[test]
    fn children_that_run_hold_back_only_other_children() {
        let needs = |in_flight, children| {
            let load = RunLoad { in_flight, children, ..RunLoad::default() };
            [Need::InFlight, Need::Child].map(|needs| load.admits(needs))
        };
        assert_eq!(needs(0, IN_FLIGHT), [true, true]);
        assert_eq!(needs(0, CHILDREN - 1), [true, true]);
        assert_eq!(needs(1, CHILDREN - 1), [true, false], "one that is being started may become the last");
        assert_eq!(needs(IN_FLIGHT, 0), [false, false]);
    }
}
