//! How much may be in flight at once.
//!
//! Invariants
//! - What only computes is not held back by calls that are: it has bounds of its own, so that a graph goes on while
//!   others answer.
//! - What waits, for a time or for an answer, takes no room.
//!
//! Not here: how many calls a whole process makes (`engine::embedded::permits`), how many executions run (`queue`).

/// How many nodes of one run may be in flight at once. (Temporal's own limit is 2,000.)
pub const IN_FLIGHT: usize = 64;
/// How many nodes that only compute, and may take long, may be in flight beside them.
pub const COMPUTING: usize = 4;

/// What a ready node needs of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// It computes, at once.
    Nothing,
    /// It computes for a while, on a thread apart.
    Thread,
    /// It is in flight until somebody else is done.
    Flight,
}

/// What is in flight for a run, and whether more may be begun for it here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    pub in_flight: usize,
    pub computing: usize,
    /// Its process, or its history, begins nothing more.
    pub ending: bool,
}

impl Load {
    /// May the next ready node begin?
    pub fn admits(self, needs: Needs) -> bool {
        match needs {
            Needs::Nothing => true,
            _ if self.ending => false,
            Needs::Thread => self.in_flight < IN_FLIGHT || self.computing < COMPUTING,
            Needs::Flight => self.in_flight < IN_FLIGHT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_computes_has_room_beside_calls_and_nothing_is_begun_at_the_end() {
        let load = |in_flight, computing, ending| Load { in_flight, computing, ending };
        let all = |load: Load| [Needs::Nothing, Needs::Thread, Needs::Flight].map(|needs| load.admits(needs));
        assert_eq!(all(Load::default()), [true, true, true]);
        assert_eq!(all(load(IN_FLIGHT, 0, false)), [true, true, false]);
        assert_eq!(all(load(IN_FLIGHT, COMPUTING, false)), [true, false, false]);
        assert_eq!(all(load(0, 0, true)), [true, false, false]);
    }
}
