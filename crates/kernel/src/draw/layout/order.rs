//! The order of the items in each row. A depth-first search gives the first order; sweeps then reduce the crossings.
//!
//! Invariants
//! - The number of sweeps is limited, and they stop when they no longer reduce the crossings. The best order is kept.

use super::Graph;

const MAX_SWEEPS: usize = 8;
/// Positions are averaged as whole numbers of this fraction.
const FRACTION: usize = 1_024;

/// Puts every item into its row, in a good order.
pub(super) fn order(graph: &mut Graph, rows: usize) {
    graph.rows = visited(graph, rows);
    number(graph);
    let (mut best, mut fewest) = (graph.rows.clone(), crossings(graph));
    let mut in_vain = 0;
    for sweep in 0..MAX_SWEEPS {
        if fewest == 0 || in_vain == 2 {
            break;
        }
        let is_down = sweep % 2 == 0;
        for at in 0..rows {
            sort(graph, if is_down { at } else { rows - 1 - at }, is_down);
        }
        let left = crossings(graph);
        in_vain += 1;
        if left < fewest {
            (best, fewest, in_vain) = (graph.rows.clone(), left, 0);
        }
    }
    graph.rows = best;
    number(graph);
}

/// A depth-first search, with branches in their author's order: a tree is drawn without a crossing.
fn visited(graph: &mut Graph, rows: usize) -> Vec<Vec<usize>> {
    let mut found = vec![Vec::new(); rows];
    let mut seen = vec![false; graph.items.len()];
    let mut open: Vec<usize> = (0..graph.items.len()).rev().filter(|at| graph.items[*at].up.is_empty()).collect();
    while let Some(at) = open.pop() {
        graph.steps += 1;
        if !seen[at] {
            seen[at] = true;
            found[graph.items[at].row].push(at);
            open.extend(graph.items[at].down.iter().rev().filter(|to| !seen[**to]));
        }
    }
    found
}

fn number(graph: &mut Graph) {
    for (place, item) in graph.rows.iter().flat_map(|row| row.iter().enumerate()) {
        graph.place[*item] = place;
    }
}

/// Sorts the items of a row by the average position of their neighbours. An item without neighbours keeps its position.
fn sort(graph: &mut Graph, row: usize, by_upper: bool) {
    let mut keyed: Vec<(usize, usize)> = Vec::with_capacity(graph.rows[row].len());
    for &at in &graph.rows[row] {
        let item = &graph.items[at];
        let near = if by_upper { &item.up } else { &item.down };
        graph.steps += near.len() + 1;
        let sum: usize = near.iter().map(|near| graph.place[*near]).sum();
        let key = if near.is_empty() { graph.place[at] * FRACTION } else { sum * FRACTION / near.len() };
        keyed.push((key, at));
    }
    keyed.sort_by_key(|(key, _)| *key);
    for (place, (_, at)) in keyed.iter().enumerate() {
        graph.place[*at] = place;
    }
    graph.rows[row] = keyed.into_iter().map(|(_, at)| at).collect();
}

/// How many pairs of lines cross, all rows together.
fn crossings(graph: &mut Graph) -> usize {
    let mut all = 0;
    for pair in graph.rows.windows(2) {
        let mut passed = Counts::new(pair[1].len());
        let mut count = 0;
        for &from in &pair[0] {
            let mut ends: Vec<usize> = graph.items[from].down.iter().map(|to| graph.place[*to]).collect();
            graph.steps += ends.len() + 1;
            ends.sort_unstable();
            // A line crosses every earlier line that ends further right. Lines of one item do not cross.
            all += ends.iter().map(|end| count - passed.up_to(*end)).sum::<usize>();
            for end in ends {
                passed.add(end);
                count += 1;
            }
        }
    }
    all
}

/// A Fenwick tree: counts by position, and the sum of all counts up to a position.
struct Counts(Vec<usize>);

impl Counts {
    fn new(positions: usize) -> Counts {
        Counts(vec![0; positions + 1])
    }

    fn add(&mut self, position: usize) {
        let mut at = position + 1;
        while at < self.0.len() {
            self.0[at] += 1;
            at += at & at.wrapping_neg();
        }
    }

    /// The sum of the counts at this position and before it.
    fn up_to(&self, position: usize) -> usize {
        let (mut at, mut sum) = (position + 1, 0);
        while at > 0 {
            sum += self.0[at];
            at -= at & at.wrapping_neg();
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::layout::Item;

    /// Two rows with lines between them. Each line is a pair of item numbers.
    fn between(upper: usize, lower: usize, lines: &[(usize, usize)]) -> Graph {
        let item = |row| Item { row, width: 1, is_box: true, weight: 1, up: Vec::new(), down: Vec::new() };
        let mut items: Vec<Item> = (0..upper).map(|_| item(0)).chain((0..lower).map(|_| item(1))).collect();
        for (from, to) in lines {
            items[*from].down.push(upper + to);
            items[upper + to].up.push(*from);
        }
        let count = items.len();
        let rows = vec![(0..upper).collect(), (upper..count).collect()];
        let mut graph = Graph { items, rows, place: vec![0; count], middle: vec![0; count], steps: 0 };
        number(&mut graph);
        graph
    }

    #[test]
    fn crossings_are_counted() {
        assert_eq!(crossings(&mut between(2, 2, &[(0, 0), (1, 1)])), 0);
        assert_eq!(crossings(&mut between(2, 2, &[(0, 1), (1, 0)])), 1);
        assert_eq!(crossings(&mut between(3, 3, &[(0, 2), (1, 1), (2, 0)])), 3);
        assert_eq!(crossings(&mut between(2, 2, &[(0, 0), (0, 1), (1, 0), (1, 1)])), 1);
    }

    #[test]
    fn crossings_that_need_not_be_are_taken_out() {
        let mut graph = between(3, 3, &[(0, 2), (1, 1), (2, 0), (2, 1)]);
        order(&mut graph, 2);
        assert_eq!(crossings(&mut graph), 0, "{:?}", graph.rows);
    }
}
