//! Rules for a whole tree (an execution with all its children), which one process owns: which nodes may start a child,
//! and whether the tree can be parked. No process holds a parked tree in memory.
//!
//! Invariants
//! - At most `MAX_OPEN_PER_DEPTH` children of one depth are open at once; further children wait for their turn. The
//!   limit is per depth, so a parent that waits for its children never takes a place that they need.
//! - Children that an earlier owner started count, too. So all of them are found before a new child starts.
//! - A tree is parked only if none of its nodes is in flight, ready or waiting to be checked.
//!
//! Not here: how many calls are in flight (`capacity`), how many descendants a root may have (`kind::workflow`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::time::Duration;

/// The maximum number of open children at one depth.
const MAX_OPEN_PER_DEPTH: usize = 256;
/// A tree is parked when nothing happens in it for longer than this.
pub const PARK_AFTER: Duration = Duration::from_secs(5);

/// How long a tree can be parked; none if parking is not worthwhile. `busy`: how many targets are in flight, ready, or
/// waiting to be checked. `next`: the time until its next timer.
pub fn may_park(busy: usize, next: Duration) -> Option<Duration> {
    (busy == 0 && next > PARK_AFTER).then_some(next)
}

/// Which nodes of a tree have a child, and which wait for their turn to start one.
#[derive(Debug)]
pub struct Children<K> {
    /// The nodes that have a child or are about to start one, with their depth.
    open: BTreeMap<K, u32>,
    /// How many nodes are open, by depth.
    counts: BTreeMap<u32, usize>,
    waiting: BTreeMap<u32, VecDeque<(K, u32)>>,
    /// Nodes that an earlier owner began, and whose children have not been found yet.
    sought: BTreeSet<K>,
}

impl<K> Default for Children<K> {
    fn default() -> Children<K> {
        let (open, counts, waiting, sought) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Children { open, counts, waiting, sought }
    }
}

impl<K: Copy + Ord> Children<K> {
    /// Records that an earlier owner began this node. No new child starts until the node's child is found.
    pub fn expect_existing(&mut self, at: K) {
        self.sought.insert(at);
    }

    /// May a node at this depth start its child now? If not, the node waits, and a later call of another method returns
    /// it when its turn comes. `begun_earlier`: an earlier owner began the node, so it may have a child already.
    pub fn admit(&mut self, (at, attempt): (K, u32), depth: u32, begun_earlier: bool) -> bool {
        if self.open.contains_key(&at) {
            return true;
        }
        if !begun_earlier && !self.has_room(depth) {
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

    /// Records that the child which an earlier owner started was found. Returns the nodes whose turn it is now.
    pub fn found_existing(&mut self, at: K) -> Vec<(K, u32)> {
        self.sought.remove(&at);
        self.next()
    }

    /// Records that the node no longer has a child. Returns the nodes whose turn it is now.
    pub fn release(&mut self, at: K) -> Vec<(K, u32)> {
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

    /// Forgets all nodes of a frame (one execution of the tree). Returns the nodes whose turn it is now.
    pub fn forget(&mut self, frame: RangeInclusive<K>) -> Vec<(K, u32)> {
        self.waiting.values_mut().for_each(|waiting| waiting.retain(|(at, _)| !frame.contains(at)));
        let open: Vec<K> = self.open.range(frame.clone()).map(|(at, _)| *at).collect();
        let sought: Vec<K> = self.sought.range(frame).copied().collect();
        open.into_iter().chain(sought).flat_map(|at| self.release(at)).collect()
    }

    fn has_room(&self, depth: u32) -> bool {
        self.sought.is_empty() && self.counts.get(&depth).is_none_or(|count| *count < MAX_OPEN_PER_DEPTH)
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
            assert_eq!(children.admit((at(0, iteration), 1), 1, false), iteration <= 256);
        }
        children
    }

    #[test]
    fn a_released_node_admits_the_next_of_its_depth() {
        let mut children = full();
        assert!(children.admit((at(1, 1), 1), 2, false), "each depth has its own limit");
        assert_eq!(children.release(at(1, 1)), []);
        assert_eq!(children.release(at(0, 7)), [(at(0, 257), 1)]);
        assert_eq!(children.release(at(0, 7)), [], "a second release changes nothing");
        assert_eq!(children.release(at(0, 258)), [], "the node only waited, so no place becomes free");
        assert_eq!(children.release(at(0, 8)), [(at(0, 259), 1)]);
        assert_eq!(count(&children, 1), MAX_OPEN_PER_DEPTH);
    }

    #[test]
    fn the_nodes_of_a_frame_are_forgotten_together() {
        let mut children = full();
        assert!(!children.admit((at(5, 1), 1), 1, false));
        assert_eq!(children.forget(at(0, i32::MIN)..=at(0, i32::MAX)), [(at(5, 1), 1)]);
        assert_eq!(count(&children, 1), 1);
    }

    #[test]
    fn existing_children_come_first() {
        let mut children = Children::default();
        for iteration in 1..=2 {
            children.expect_existing(at(0, iteration));
        }
        assert!(!children.admit((at(0, 3), 1), 1, false), "a new child waits");
        assert!(children.admit((at(0, 1), 1), 1, true));
        assert_eq!(children.found_existing(at(0, 1)), []);
        assert!(children.admit((at(0, 2), 1), 1, true));
        assert_eq!(children.found_existing(at(0, 2)), [(at(0, 3), 1)]);
    }

    #[test]
    fn a_tree_is_parked_only_if_all_of_it_waits_for_long() {
        let (soon, late) = (PARK_AFTER, PARK_AFTER * 2);
        assert_eq!(may_park(0, soon), None);
        assert_eq!(may_park(0, late), Some(late));
        assert_eq!(may_park(1, late), None);
    }
}
