//! Rules about a whole tree of executions that one owner holds: who may have a child, and whether anybody needs to hold
//! it.
//!
//! Invariants
//! - At most `MOST` children of one depth are open at once; more wait their turn. The bound is of a depth, so that
//!   whoever waits for children of its own never keeps them from their turn.
//! - What was begun before this process had the run has its turn already: it is found before anything new begins, and
//!   the wait for that is nobody's.
//! - A tree is parked only if nothing of it is in flight, ready or to be looked at.
//!
//! Not here: how many calls are in flight (`room`), how many descendants a root may have (`kind::workflow`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::time::Duration;

/// The most open children of one depth.
const MOST: usize = 256;
/// A tree is given up by its owner when nothing happens for longer than this.
pub const PARK_AFTER: Duration = Duration::from_secs(5);

/// For how long nothing of a tree needs an owner, if that is worth giving it up. `busy`: how much is in flight, ready
/// to be begun, or to be looked at. `next`: when the next thing happens by itself.
pub fn may_park(busy: usize, next: Duration) -> Option<Duration> {
    (busy == 0 && next > PARK_AFTER).then_some(next)
}

/// Which nodes of a tree have a child, and which wait until they may.
#[derive(Debug)]
pub struct Children<K> {
    /// The nodes that have a child, or are about to, with how deep they are.
    open: BTreeMap<K, u32>,
    /// How many of them there are, by depth.
    counts: BTreeMap<u32, usize>,
    waiting: BTreeMap<u32, VecDeque<(K, u32)>>,
    /// Nodes that were begun before, and of which it is not known yet what they made.
    sought: BTreeSet<K>,
}

impl<K> Default for Children<K> {
    fn default() -> Children<K> {
        let (open, counts, waiting, sought) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Children { open, counts, waiting, sought }
    }
}

impl<K: Copy + Ord> Children<K> {
    /// It was begun before: what it made is to be found.
    pub fn seek(&mut self, at: K) {
        self.sought.insert(at);
    }

    /// May a node at this depth have its child now? If not, it is told when its turn comes. `again`: it has one
    /// already.
    pub fn take(&mut self, (at, attempt): (K, u32), depth: u32, again: bool) -> bool {
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
    pub fn is_waiting(&self, at: K) -> bool {
        self.waiting.values().flatten().any(|(waiting, _)| *waiting == at)
    }

    /// What it made before is here. Answers whose turn it is now.
    pub fn found(&mut self, at: K) -> Vec<(K, u32)> {
        self.sought.remove(&at);
        self.next()
    }

    /// It has no child any more, and wants none. Answers whose turn it is now.
    pub fn leave(&mut self, at: K) -> Vec<(K, u32)> {
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
    pub fn forget(&mut self, frame: RangeInclusive<K>) -> Vec<(K, u32)> {
        self.waiting.values_mut().for_each(|waiting| waiting.retain(|(at, _)| !frame.contains(at)));
        let open: Vec<K> = self.open.range(frame.clone()).map(|(at, _)| *at).collect();
        let sought: Vec<K> = self.sought.range(frame).copied().collect();
        open.into_iter().chain(sought).flat_map(|at| self.leave(at)).collect()
    }

    fn has_room(&self, depth: u32) -> bool {
        self.sought.is_empty() && self.counts.get(&depth).is_none_or(|count| *count < MOST)
    }

    fn open(&mut self, at: K, depth: u32) {
        self.open.insert(at, depth);
        *self.counts.entry(depth).or_default() += 1;
    }

    fn next(&mut self) -> Vec<(K, u32)> {
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

    /// A frame and an item in it.
    type At = (u32, i32);

    fn at(frame: u32, iteration: i32) -> At {
        (frame, iteration)
    }

    fn count(children: &Children<At>, depth: u32) -> usize {
        children.counts.get(&depth).copied().unwrap_or_default()
    }

    fn full() -> Children<At> {
        let mut children = Children::default();
        for iteration in 1..=300 {
            assert_eq!(children.take((at(0, iteration), 1), 1, false), iteration <= 256);
        }
        children
    }

    #[test]
    fn who_leaves_makes_room_for_the_next_of_its_depth() {
        let mut children = full();
        assert!(children.take((at(1, 1), 1), 2, false), "another depth has children of its own");
        assert_eq!(children.leave(at(1, 1)), []);
        assert_eq!(children.leave(at(0, 7)), [(at(0, 257), 1)]);
        assert_eq!(children.leave(at(0, 7)), [], "once");
        assert_eq!(children.leave(at(0, 258)), [], "one that waited, and waits no more");
        assert_eq!(children.leave(at(0, 8)), [(at(0, 259), 1)]);
        assert_eq!(count(&children, 1), MOST);
    }

    #[test]
    fn what_a_frame_had_is_forgotten_with_it() {
        let mut children = full();
        assert!(!children.take((at(5, 1), 1), 1, false));
        assert_eq!(children.forget(at(0, i32::MIN)..=at(0, i32::MAX)), [(at(5, 1), 1)]);
        assert_eq!(count(&children, 1), 1);
    }

    #[test]
    fn what_was_begun_before_comes_first() {
        let mut children = Children::default();
        for iteration in 1..=2 {
            children.seek(at(0, iteration));
        }
        assert!(!children.take((at(0, 3), 1), 1, false), "something new");
        assert!(children.take((at(0, 1), 1), 1, true));
        assert_eq!(children.found(at(0, 1)), []);
        assert!(children.take((at(0, 2), 1), 1, true));
        assert_eq!(children.found(at(0, 2)), [(at(0, 3), 1)]);
    }

    #[test]
    fn a_tree_is_left_alone_only_if_all_of_it_waits_and_for_long() {
        let (soon, late) = (PARK_AFTER, PARK_AFTER * 2);
        assert_eq!(may_park(0, soon), None);
        assert_eq!(may_park(0, late), Some(late));
        assert_eq!(may_park(1, late), None);
    }
}
