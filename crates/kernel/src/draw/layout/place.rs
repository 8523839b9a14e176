//! The columns of the items: each item is as close to the middle of its neighbours as its row allows.
//!
//! Invariants
//! - In a row, the order stays as it is and items are at least `APART` from one another.
//! - The number of sweeps is fixed.

use super::{APART, Graph, MARGIN, Way};

/// The number of sweeps. They go down and up in turn; the last sweeps align items with both sides.
const SWEEPS: usize = 8;
const SWEEPS_BY_BOTH: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Upper,
    Lower,
    Both,
}

/// Places every item, and returns the right edge of the rightmost one.
pub(super) fn place(graph: &mut Graph, ways: &[Way]) -> i32 {
    for row in 0..graph.rows.len() {
        let mut right = 0;
        for &at in &graph.rows[row] {
            let width = i64::from(graph.items[at].width);
            graph.middle[at] = right + width / 2;
            right += width + i64::from(APART);
        }
    }
    let rows = graph.rows.len();
    for sweep in 0..SWEEPS + SWEEPS_BY_BOTH {
        let by = match sweep {
            SWEEPS.. => By::Both,
            _ if sweep % 2 == 0 => By::Upper,
            _ => By::Lower,
        };
        for at in 0..rows {
            settle(graph, if by == By::Lower { rows - 1 - at } else { at }, by);
        }
    }
    ways.iter().for_each(|way| straighten(graph, &way.items[1..way.items.len() - 1]));
    chains(graph).iter().for_each(|chain| straighten(graph, chain));
    let half = |at: usize| i64::from(graph.items[at].width) / 2;
    let left = (0..graph.items.len()).map(|at| graph.middle[at] - half(at)).min().unwrap_or(0);
    let right = (0..graph.items.len()).map(|at| graph.middle[at] + half(at)).max().unwrap_or(0);
    let margin = i64::from(MARGIN);
    for middle in &mut graph.middle {
        *middle += margin - left;
    }
    (right + margin - left) as i32
}

/// Adjacent items that must be moved together: the sum of their wished positions, and their weight.
struct Group {
    sum: i64,
    weight: i64,
    count: usize,
}

/// Moves the items of a row as close to their wished positions as their distances allow. This is the least sum of
/// weighted squares, found by grouping neighbours whose positions conflict.
fn settle(graph: &mut Graph, row: usize, by: By) {
    let offsets = offsets(graph, row);
    let mut groups: Vec<Group> = Vec::new();
    for (&at, offset) in graph.rows[row].iter().zip(&offsets) {
        let item = &graph.items[at];
        let (wish, weight) = wish(graph, at, by);
        graph.steps += item.up.len() + item.down.len() + 1;
        let mut group = Group { sum: (wish - offset) * weight, weight, count: 1 };
        // While the mean position of the group before is greater, merge the two groups.
        while let Some(before) = groups.pop_if(|before| before.sum * group.weight > group.sum * before.weight) {
            group.sum += before.sum;
            group.weight += before.weight;
            group.count += before.count;
        }
        groups.push(group);
    }
    let bases = groups.iter().flat_map(|group| std::iter::repeat_n(group.sum.div_euclid(group.weight), group.count));
    for ((at, offset), base) in graph.rows[row].iter().zip(offsets).zip(bases) {
        graph.middle[*at] = base + offset;
    }
}

/// The distance of each item of a row from the first, if all are as close as allowed.
fn offsets(graph: &Graph, row: usize) -> Vec<i64> {
    let (mut offsets, mut last) = (Vec::with_capacity(graph.rows[row].len()), None);
    let mut offset = 0;
    for &at in &graph.rows[row] {
        if let Some(last) = last {
            offset += apart(graph, last, at);
        }
        offsets.push(offset);
        last = Some(at);
    }
    offsets
}

/// The wished position of an item, the middle of its neighbours, and its weight. An item without neighbours stays where
/// it is. In the last sweeps, a bend follows only the other bends of its line, so that long lines become straight.
fn wish(graph: &Graph, at: usize, by: By) -> (i64, i64) {
    let item = &graph.items[at];
    let near =
        |upper: bool, lower: bool| item.up.iter().filter(move |_| upper).chain(item.down.iter().filter(move |_| lower));
    let is_inner = |near: &&usize| !item.is_box && !graph.items[**near].is_box;
    let wished = match by {
        By::Upper => mean(graph, near(true, false)),
        By::Lower => mean(graph, near(false, true)),
        By::Both => mean(graph, near(true, true).filter(is_inner)).or_else(|| mean(graph, near(true, true))),
    };
    wished.map_or((graph.middle[at], 1), |wished| (wished, item.weight))
}

fn mean<'a>(graph: &Graph, near: impl Iterator<Item = &'a usize>) -> Option<i64> {
    let (sum, count) = near.fold((0, 0), |(sum, count), near| (sum + graph.middle[*near], count + 1));
    (count > 0).then(|| sum.div_euclid(count))
}

/// Chains: items that have only each other as neighbours.
fn chains(graph: &Graph) -> Vec<Vec<usize>> {
    let next = |at: usize| match graph.items[at].down[..] {
        [to] if graph.items[to].up.len() == 1 => Some(to),
        _ => None,
    };
    let is_first = |at: &usize| !matches!(graph.items[*at].up[..], [from] if next(from).is_some());
    let firsts = (0..graph.items.len()).filter(is_first);
    firsts.map(|first| std::iter::successors(Some(first), |at| next(*at)).collect()).collect()
}

/// Aligns items in one column, if there is a column in which none of them overlaps its neighbours.
fn straighten(graph: &mut Graph, line: &[usize]) {
    let (mut left, mut right, mut sum) = (i64::MIN, i64::MAX, 0);
    for &at in line {
        let (row, place) = (&graph.rows[graph.items[at].row], graph.place[at]);
        if let Some(&before) = place.checked_sub(1).and_then(|before| row.get(before)) {
            left = left.max(graph.middle[before] + apart(graph, before, at));
        }
        if let Some(&after) = row.get(place + 1) {
            right = right.min(graph.middle[after] - apart(graph, at, after));
        }
        sum += graph.middle[at];
        graph.steps += 1;
    }
    if line.len() > 1 && left <= right {
        let column = (sum / line.len() as i64).clamp(left, right);
        line.iter().for_each(|at| graph.middle[*at] = column);
    }
}

/// How far the middles of two neighbours must be from each other. Halves are rounded up, so that odd widths do not
/// touch.
fn apart(graph: &Graph, left: usize, right: usize) -> i64 {
    i64::from((graph.items[left].width + graph.items[right].width + 1) / 2 + APART)
}
