//! Whose turn it is to have a child: a tree has a bounded number of them in memory.
//!
//! Invariants
//! - At most `MOST` children of one depth are open at once; more wait their turn. The bound is of a depth, so that
//!   whoever waits for children of its own never keeps them from their turn.
//! - What was begun before this process had the run has its turn already: it is found before anything new begins, and
//!   the wait for that is nobody's.
//!
//! Not here: how many calls are in flight (`super`), how many descendants a root may have (`kernel::kind::workflow`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::children::of;
use super::frame::{At, FrameIx};

/// The most open children of one depth.
const MOST: usize = 256;

/// A node with its attempt.
type Due = (At, u32);

#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The nodes that have a child, or are about to, with how deep they are.
    open: BTreeMap<At, u32>,
    /// How many of them there are, by depth.
    counts: BTreeMap<u32, usize>,
    waiting: BTreeMap<u32, VecDeque<Due>>,
    /// Nodes that were begun before, and of which it is not known yet what they made.
    sought: BTreeSet<At>,
}

impl Turns {
    /// It was begun before: what it made is to be found.
    pub(super) fn seek(&mut self, at: At) {
        self.sought.insert(at);
    }

    /// May a node at this depth have its child now? If not, it is told when its turn comes. `again`: it has one
    /// already.
    pub(super) fn take(&mut self, (at, attempt): Due, depth: u32, again: bool) -> bool {
        if self.open.contains_key(&at) {
            return true;
        }
        if !again && !self.has_room(depth) {
            self.waiting.entry(depth).or_default().push_back((at, attempt));
            return false;
        }
        self.open(at, depth);
        true
    }

    /// Does a node wait for its turn?
    pub(super) fn is_waiting(&self, at: At) -> bool {
        self.waiting.values().flatten().any(|(waiting, _)| *waiting == at)
    }

    /// What it made before is here. Answers whose turn it is now.
    pub(super) fn found(&mut self, at: At) -> Vec<Due> {
        self.sought.remove(&at);
        self.next()
    }

    /// It has no child any more, and wants none. Answers whose turn it is now.
    pub(super) fn leave(&mut self, at: At) -> Vec<Due> {
        let sought = self.sought.remove(&at);
        let Some(depth) = self.open.remove(&at) else {
            if self.is_waiting(at) {
                self.waiting.values_mut().for_each(|waiting| waiting.retain(|(waiting, _)| *waiting != at));
            }
            return if sought { self.next() } else { Vec::new() };
        };
        if let Some(count) = self.counts.get_mut(&depth) {
            *count -= 1;
        }
        self.next()
    }

    /// Forgets everything of a frame. Answers whose turn it is now.
    pub(super) fn forget(&mut self, frame: FrameIx) -> Vec<Due> {
        self.waiting.values_mut().for_each(|waiting| waiting.retain(|(at, _)| at.frame != frame));
        let open: Vec<At> = self.open.range(of(frame)).map(|(at, _)| *at).collect();
        let sought: Vec<At> = self.sought.range(of(frame)).copied().collect();
        open.into_iter().chain(sought).flat_map(|at| self.leave(at)).collect()
    }

    fn has_room(&self, depth: u32) -> bool {
        self.sought.is_empty() && self.counts.get(&depth).is_none_or(|count| *count < MOST)
    }

    fn open(&mut self, at: At, depth: u32) {
        self.open.insert(at, depth);
        *self.counts.entry(depth).or_default() += 1;
    }

    fn next(&mut self) -> Vec<Due> {
        let mut due = Vec::new();
        let depths: Vec<u32> = self.waiting.keys().copied().collect();
        for depth in depths {
            while self.has_room(depth) {
                let Some(next) = self.waiting.get_mut(&depth).and_then(VecDeque::pop_front) else { break };
                self.open(next.0, depth);
                due.push(next);
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(frame: FrameIx, iteration: i32) -> At {
        At { frame, node: 0, iteration }
    }

    fn count(turns: &Turns, depth: u32) -> usize {
        turns.counts.get(&depth).copied().unwrap_or_default()
    }

    fn full() -> Turns {
        let mut turns = Turns::default();
        for iteration in 1..=300 {
            assert_eq!(turns.take((at(0, iteration), 1), 1, false), iteration <= 256);
        }
        turns
    }

    #[test]
    fn who_leaves_makes_room_for_the_next_of_its_depth() {
        let mut turns = full();
        assert!(turns.take((at(1, 1), 1), 2, false), "another depth has turns of its own");
        assert_eq!(turns.leave(at(1, 1)), []);
        assert_eq!(turns.leave(at(0, 7)), [(at(0, 257), 1)]);
        assert_eq!(turns.leave(at(0, 7)), [], "once");
        assert_eq!(turns.leave(at(0, 258)), [], "one that waited, and waits no more");
        assert_eq!(turns.leave(at(0, 8)), [(at(0, 259), 1)]);
        assert_eq!(count(&turns, 1), MOST);
    }

    #[test]
    fn what_a_frame_had_is_forgotten_with_it() {
        let mut turns = full();
        assert!(!turns.take((at(5, 1), 1), 1, false));
        assert_eq!(turns.forget(0), [(at(5, 1), 1)]);
        assert_eq!(count(&turns, 1), 1);
    }

    #[test]
    fn what_was_begun_before_comes_first() {
        let mut turns = Turns::default();
        for iteration in 1..=2 {
            turns.seek(at(0, iteration));
        }
        assert!(!turns.take((at(0, 3), 1), 1, false), "something new");
        assert!(turns.take((at(0, 1), 1), 1, true));
        assert_eq!(turns.found(at(0, 1)), []);
        assert!(turns.take((at(0, 2), 1), 1, true));
        assert_eq!(turns.found(at(0, 2)), [(at(0, 3), 1)]);
    }
}
