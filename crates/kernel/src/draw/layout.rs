//! The layout of a graph: layers from top to bottom, few crossings, no line under a box.
//!
//!     layers ──▶ rows of items ──order──▶ few crossings ──place──▶ columns ──▶ points
//!
//! A row contains boxes, or the labels of the lines that leave the boxes above it. A line that passes through a row has
//! an item of its own there, called a bend. Items of a row never overlap, so a line never crosses a box.
//!
//! Invariants
//! - The layout is a pure function of the graph. It uses whole numbers, and orders by index if nothing else decides.
//! - Items of a row never overlap. A line only goes down. Inside a row, it stays in the column of its own item.
//! - The number of bends is limited. The longest lines beyond `MAX_BENDS` go around the graph in lanes on its right,
//!   one lane for each source box. So the work is limited for every valid definition.
//!
//! Not here: writing a drawing in a format (`svg`, `dot`, `mermaid`, `text`), ordering items (`order`), choosing their
//! columns (`place`).

mod order;
mod place;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::Point;

/// The size of every box.
pub(super) const BOX: (i32, i32) = (208, 52);
/// The margin around the drawing.
pub(super) const MARGIN: i32 = 16;
const LABEL_HEIGHT: i32 = 18;
const BEND_WIDTH: i32 = 8;
/// The vertical distance between two rows of boxes, and between a row of labels and its neighbours.
const GAP: i32 = 44;
const GAP_OF_LABELS: i32 = 22;
/// The horizontal distance between neighbours in a row.
const APART: i32 = 24;
/// The horizontal distance between lanes.
const LANE: i32 = 10;
/// The most bends; lines that would need more go around the graph.
const MAX_BENDS: usize = 20_000;

/// An edge to be drawn: from, to, and the width of its label if it has one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) label: Option<i32>,
}

/// The result of the layout.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    /// For each node: its layer, and the upper left corner of its box.
    pub(super) nodes: Vec<(usize, Point)>,
    /// For each edge: the points of its line, and the middle of its label.
    pub(super) lines: Vec<(Vec<Point>, Option<Point>)>,
    pub(super) size: Point,
}

/// A box, a label or a bend in a row.
#[derive(Clone, Debug)]
struct Item {
    row: usize,
    width: i32,
    is_box: bool,
    /// How strongly the item is aligned with its neighbours. Bends have a high weight, so that lines are straight.
    weight: i64,
    up: Vec<usize>,
    down: Vec<usize>,
}

/// The way of an edge: the items that it goes through, and perhaps a lane before the last item.
struct Way {
    items: Vec<usize>,
    is_far: bool,
}

/// The graph while it is being laid out.
struct Graph {
    items: Vec<Item>,
    /// The items of each row, from left to right.
    rows: Vec<Vec<usize>>,
    /// Each item's number in its row.
    place: Vec<usize>,
    /// The horizontal middle of each item.
    middle: Vec<i64>,
    /// How many items and lines were processed. Tests use this as the cost, because it does not depend on the computer.
    steps: usize,
}

/// Computes the layout of a graph. `order` lists every node after its ancestors.
pub(super) fn lay_out(nodes: usize, links: &[Link], order: &[usize]) -> Layout {
    let layers = layers(nodes, links, order);
    let rows = Rows::new(&layers, links);
    let (graph, ways, right) = arrange(&layers, links, &rows);
    let (lanes, right) = lanes(&graph, &ways, right);
    let node = |at: usize| {
        let (left, top) = (graph.middle[at] as i32 - BOX.0 / 2, rows.top[graph.items[at].row]);
        (layers[at], Point { x: left, y: top })
    };
    Layout {
        nodes: (0..nodes).map(node).collect(),
        lines: ways.iter().map(|way| line(&graph, &rows, way, &lanes)).collect(),
        size: Point { x: right + MARGIN, y: rows.bottom + MARGIN },
    }
}

/// Orders and places all items. Also returns the right edge of the rightmost item.
fn arrange(layers: &[usize], links: &[Link], rows: &Rows) -> (Graph, Vec<Way>, i32) {
    let (items, ways) = items(layers, links, rows);
    let (place, middle) = (vec![0; items.len()], vec![0; items.len()]);
    let mut graph = Graph { items, rows: Vec::new(), place, middle, steps: 0 };
    order::order(&mut graph, rows.is_label.len());
    let right = place::place(&mut graph, &ways);
    (graph, ways, right)
}

/// The layer of each node: the length of the longest path from a root. A root is in the layer directly above its first
/// successor.
fn layers(nodes: usize, links: &[Link], order: &[usize]) -> Vec<usize> {
    let mut layers = vec![0; nodes];
    let (mut above, mut below) = (vec![Vec::new(); nodes], vec![Vec::new(); nodes]);
    for link in links {
        above[link.to].push(link.from);
        below[link.from].push(link.to);
    }
    for &at in order {
        layers[at] = above[at].iter().map(|from| layers[*from] + 1).max().unwrap_or(0);
    }
    for at in (0..nodes).filter(|at| above[*at].is_empty()) {
        layers[at] = below[at].iter().map(|to| layers[*to] - 1).min().unwrap_or(0);
    }
    layers
}

/// Rows of boxes. Below a row of boxes there is a row of labels, if any line that leaves these boxes has a label.
struct Rows {
    /// The row of each layer.
    of_layer: Vec<usize>,
    is_label: Vec<bool>,
    top: Vec<i32>,
    bottom: i32,
}

impl Rows {
    fn new(layers: &[usize], links: &[Link]) -> Rows {
        let count = layers.iter().max().map_or(0, |last| last + 1);
        let mut labelled = vec![false; count];
        for link in links.iter().filter(|link| link.label.is_some()) {
            labelled[layers[link.from]] = true;
        }
        let mut rows = Rows { of_layer: Vec::new(), is_label: Vec::new(), top: Vec::new(), bottom: MARGIN };
        for has_labels in labelled {
            rows.of_layer.push(rows.is_label.len());
            rows.add(false);
            if has_labels {
                rows.add(true);
            }
        }
        rows
    }

    fn add(&mut self, is_label: bool) {
        if let Some(before) = self.is_label.last() {
            self.bottom += if *before || is_label { GAP_OF_LABELS } else { GAP };
        }
        self.top.push(self.bottom);
        self.is_label.push(is_label);
        self.bottom += if is_label { LABEL_HEIGHT } else { BOX.1 };
    }

    fn end(&self, row: usize) -> i32 {
        self.top[row] + if self.is_label[row] { LABEL_HEIGHT } else { BOX.1 }
    }
}

/// The items of the nodes, with the same numbers as the nodes, then the items of the lines. Also returns the way of
/// each edge through the items.
fn items(layers: &[usize], links: &[Link], rows: &Rows) -> (Vec<Item>, Vec<Way>) {
    let item = |row, width, is_box, weight| Item { row, width, is_box, weight, up: Vec::new(), down: Vec::new() };
    let mut items: Vec<Item> = layers.iter().map(|layer| item(rows.of_layer[*layer], BOX.0, true, 2)).collect();
    let row = |node: usize| rows.of_layer[layers[node]];
    let bends = |link: &Link| row(link.to) - row(link.from) - 1 - usize::from(link.label.is_some());
    let mut shortest: Vec<usize> = (0..links.len()).collect();
    shortest.sort_by_key(|at| bends(&links[*at]));
    let mut is_far = vec![false; links.len()];
    let mut used = 0;
    for at in shortest {
        used += bends(&links[at]);
        is_far[at] = used > MAX_BENDS && bends(&links[at]) > 0;
    }
    let mut ways = Vec::with_capacity(links.len());
    for (link, is_far) in links.iter().zip(is_far) {
        let mut way = vec![link.from];
        for row in row(link.from) + 1..row(link.to) {
            let label = link.label.filter(|_| way.len() == 1);
            if label.is_some() || !is_far {
                way.push(items.len());
                items.push(item(row, label.unwrap_or(BEND_WIDTH), false, if label.is_some() { 3 } else { 8 }));
            }
        }
        way.push(link.to);
        let joined = if is_far { way.len() - 1 } else { way.len() };
        for pair in way[..joined].windows(2) {
            items[pair[0]].down.push(pair[1]);
            items[pair[1]].up.push(pair[0]);
        }
        ways.push(Way { items: way, is_far });
    }
    (items, ways)
}

/// Assigns a lane to each item whose lines go around the graph. Also returns the right edge of the last lane. Another
/// item uses the same lane again below the last target of the item that used the lane before.
fn lanes(graph: &Graph, ways: &[Way], right: i32) -> (BTreeMap<usize, i32>, i32) {
    let mut spans: BTreeMap<usize, usize> = BTreeMap::new();
    for way in ways.iter().filter(|way| way.is_far) {
        let [.., from, to] = way.items[..] else { continue };
        let last = spans.entry(from).or_default();
        *last = graph.items[to].row.max(*last);
    }
    let mut spans: Vec<(usize, usize, usize)> =
        spans.into_iter().map(|(from, last)| (graph.items[from].row, last, from)).collect();
    spans.sort_unstable();
    let mut busy: BinaryHeap<Reverse<(usize, i32)>> = BinaryHeap::new();
    let (mut lanes, mut count) = (BTreeMap::new(), 0);
    for (first, last, from) in spans {
        let free = busy.peek().filter(|Reverse((end, _))| *end <= first).map(|Reverse((_, lane))| *lane);
        let lane = free.unwrap_or(count);
        match free {
            Some(_) => drop(busy.pop()),
            None => count += 1,
        }
        busy.push(Reverse((last, lane)));
        lanes.insert(from, right + APART + lane * LANE);
    }
    let end = if count == 0 { right } else { right + APART + count * LANE };
    (lanes, end)
}

/// The points of one line, from the lower side of one box to the upper side of the other, and the middle of its
/// label.
fn line(graph: &Graph, rows: &Rows, way: &Way, lanes: &BTreeMap<usize, i32>) -> (Vec<Point>, Option<Point>) {
    let last = way.items.len() - 1;
    let (mut points, mut label) = (Vec::new(), None);
    for (at, item) in way.items.iter().enumerate() {
        let (x, row) = (graph.middle[*item] as i32, graph.items[*item].row);
        if at > 0 {
            points.push(Point { x, y: rows.top[row] });
        }
        if at == 1 && at < last && rows.is_label[row] && graph.items[*item].width > BEND_WIDTH {
            label = Some(Point { x, y: rows.top[row] + LABEL_HEIGHT / 2 });
        }
        if at < last {
            points.push(Point { x, y: rows.end(row) });
        }
        if way.is_far && at + 1 == last {
            let (x, to) = (lanes.get(item).copied().unwrap_or(x), graph.items[way.items[last]].row);
            points.push(Point { x, y: rows.top[row + 1] });
            points.push(Point { x, y: rows.end(to - 1) });
        }
    }
    (straightened(&points), label)
}

/// Returns the same line without the points in the middle of a vertical piece.
fn straightened(points: &[Point]) -> Vec<Point> {
    let mut kept: Vec<Point> = Vec::with_capacity(points.len());
    for &point in points {
        if let [.., before, last] = kept[..]
            && before.x == last.x
            && last.x == point.x
        {
            kept.pop();
        }
        kept.push(point);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cost of a graph of 2,000 nodes: its items and the lines between them, and the steps.
    fn cost(edges: &[(usize, usize)], label: Option<i32>) -> (usize, usize) {
        let links: Vec<Link> = edges.iter().map(|(from, to)| Link { from: *from, to: *to, label }).collect();
        let order: Vec<usize> = (0..2_000).collect();
        let layers = layers(2_000, &links, &order);
        let rows = Rows::new(&layers, &links);
        let (graph, _, _) = arrange(&layers, &links, &rows);
        assert!(graph.items.len() <= 2_000 + links.len() + MAX_BENDS, "{}", graph.items.len());
        let lines: usize = graph.items.iter().map(|item| item.down.len()).sum();
        (graph.items.len() + lines, graph.steps)
    }

    #[test]
    fn the_work_is_bounded_whatever_the_shape() {
        let wide: Vec<_> = (1..1_999).flat_map(|at| [(0, at), (at, 1_999)]).collect();
        let deep: Vec<_> = (1..2_000).map(|at| (at - 1, at)).collect();
        let jumps = (0..8_001).map(|at| (at % 900, 1_000 + at * 7 % 1_000));
        let far: Vec<_> = deep.iter().copied().chain(jumps).collect();
        let grid = |at: usize| (0..5).map(move |next| (at, at / 20 * 20 + 20 + (at * 3 + next * 7) % 20));
        let layered: Vec<_> = (0..1_980).flat_map(grid).collect();
        for edges in [wide, deep, far, layered] {
            for label in [None, Some(40)] {
                let (size, steps) = cost(&edges, label);
                // Each item and line is processed a few dozen times at most, whatever the shape of the graph.
                assert!(steps <= size * 80, "{size} items and lines, {steps} steps");
            }
        }
    }
}
