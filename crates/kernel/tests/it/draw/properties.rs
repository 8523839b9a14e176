//! Tests what is true for the drawing of every graph, with generated graphs.
//!
//! Invariants
//! - The cases are the same on every machine, because the generator's seed is fixed.

use std::collections::{BTreeMap, BTreeSet};

use kernel::definition::plan::Plan;
use kernel::definition::{Definition, Edge, Kind, Node};
use kernel::draw::{self, Drawing, Format};
use kernel::ids::{Label, NodeKey};
use kernel::run::failure::Policy;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use serde_json::json;

fn key(at: usize) -> NodeKey {
    NodeKey::new(&format!("n{at}")).expect("a key")
}

/// Nodes that all decide, and these edges between them: from, to, and which branch.
fn definition(nodes: usize, edges: &[(usize, usize, u8)]) -> Definition {
    let node = |at: usize| {
        let json = json!({ "key": key(at), "kind": Kind::Condition, "retry": Policy::DEFAULT });
        serde_json::from_value::<Node>(json).expect("a node")
    };
    let label = |number: u8| [None, Some("true"), Some("false")][usize::from(number) % 3];
    let mut seen = BTreeSet::new();
    let mut kept = Vec::new();
    for (from, to, number) in edges {
        if seen.insert((*from, *to, label(*number))) {
            let label = label(*number).map(|label| Label::new(label).expect("a label"));
            kept.push(Edge { from: key(*from), to: key(*to), label });
        }
    }
    Definition { nodes: (0..nodes).map(node).collect(), edges: kept, ..Definition::default() }
}

fn drawn(definition: &Definition) -> Drawing {
    Drawing::new(definition, &Plan::new(definition).expect("an acceptable graph"), None)
}

/// Everything that must be so.
fn holds(definition: &Definition, drawing: &Drawing) {
    let known: BTreeSet<&NodeKey> = definition.nodes.iter().map(|node| &node.key).collect();
    let boxes: BTreeMap<&NodeKey, &draw::Node> = drawing.nodes.iter().map(|node| (&node.key, node)).collect();
    assert_eq!(drawing.nodes.len(), known.len(), "each node is drawn once");
    assert_eq!(boxes.keys().copied().collect::<BTreeSet<_>>(), known);
    assert_eq!(drawing.edges.len(), definition.edges.len());
    let mut rows: BTreeMap<i32, Vec<&draw::Node>> = BTreeMap::new();
    for node in &drawing.nodes {
        assert!(node.x >= 0 && node.x + node.width <= drawing.width && node.y >= 0, "{node:?}");
        assert!(node.y + node.height <= drawing.height, "{node:?}");
        rows.entry(node.y).or_default().push(node);
    }
    let tops: Vec<(&i32, i32)> = rows.iter().map(|(y, row)| (y, row[0].height)).collect();
    assert!(tops.windows(2).all(|pair| pair[0].0 + pair[0].1 < *pair[1].0), "rows are apart");
    for row in rows.values_mut() {
        row.sort_by_key(|node| node.x);
        assert!(row.windows(2).all(|pair| pair[0].x + pair[0].width < pair[1].x), "boxes are apart");
    }
    let order: Vec<(usize, i32)> = drawing.nodes.iter().map(|node| (node.layer, node.x)).collect();
    assert!(order.is_sorted(), "layer by layer, from left to right");
    for (edge, line) in definition.edges.iter().zip(&drawing.edges) {
        assert_eq!((&edge.from, &edge.to, &edge.label), (&line.from, &line.to, &line.label));
        connects(line, boxes[&edge.from], boxes[&edge.to]);
        touches_no_box(line, &rows);
        assert_eq!(line.label.is_some(), line.label_at.is_some(), "{line:?}");
        assert!(line.points.iter().all(|point| (0..=drawing.width).contains(&point.x)), "{line:?}");
    }
    let mut labels: Vec<(i32, i32)> =
        drawing.edges.iter().filter_map(|edge| edge.label_at).map(|at| (at.y, at.x)).collect();
    labels.sort_unstable();
    assert!(labels.windows(2).all(|pair| pair[0].0 != pair[1].0 || pair[1].1 - pair[0].1 >= 40), "labels are apart");
}

fn connects(line: &draw::Edge, from: &draw::Node, to: &draw::Node) {
    let (first, last) = (line.points[0], line.points[line.points.len() - 1]);
    assert!(first.y == from.y + from.height && (from.x..=from.x + from.width).contains(&first.x), "{line:?} {from:?}");
    assert!(last.y == to.y && (to.x..=to.x + to.width).contains(&last.x), "{line:?} {to:?}");
    assert!(line.points.is_sorted_by_key(|point| point.y) && first.y < last.y, "{line:?} goes down");
    assert!(from.layer < to.layer);
}

/// Where a line is beside boxes it goes straight down, and between two of them.
fn touches_no_box(line: &draw::Edge, rows: &BTreeMap<i32, Vec<&draw::Node>>) {
    for pair in line.points.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        // Only rows that the stretch goes into; rows do not overlap, so their upper sides are enough to find them.
        for (top, row) in rows.range(from.y - row_height(rows) + 1..to.y) {
            assert!(*top + row_height(rows) > from.y);
            assert_eq!(from.x, to.x, "{line:?} bends at a row of boxes");
            let next = row.partition_point(|node| node.x + node.width < from.x);
            assert!(row.get(next).is_none_or(|node| from.x < node.x), "{line:?} runs under {:?}", row[next]);
        }
    }
}

fn row_height(rows: &BTreeMap<i32, Vec<&draw::Node>>) -> i32 {
    rows.values().next().map_or(0, |row| row[0].height)
}

#[test]
fn any_graph_is_drawn_whole_without_overlaps_and_always_the_same() {
    let config = Config { cases: 150, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..Config::default() };
    let graph = (1..40usize).prop_flat_map(|nodes| {
        let tree = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), nodes);
        let more = prop::collection::vec((0..nodes, 0..nodes, any::<u8>()), 0..nodes * 2);
        (Just(nodes), tree, more)
    });
    let result = TestRunner::new(config).run(&graph, |(nodes, tree, more)| {
        let tree = tree.iter().enumerate().skip(1).map(|(at, (to, label))| (to.index(at), at, *label));
        let more = more.iter().filter(|(a, b, _)| a != b).map(|(a, b, label)| (*a.min(b), *a.max(b), *label));
        let definition = definition(nodes, &tree.chain(more).collect::<Vec<_>>());
        let drawing = drawn(&definition);
        holds(&definition, &drawing);
        for format in Format::ALL {
            let text = drawing.render(format);
            assert_eq!(text, drawn(&definition).render(format));
            let named = |node: &draw::Node| text.contains(node.key.as_str());
            assert!(drawing.nodes.iter().all(named), "{format:?} names every node");
        }
        let written = drawing.render(Format::Text);
        assert!(written.lines().all(|line| line.chars().count() <= 100), "{written}");
        let read: Drawing = serde_json::from_str(&drawing.render(Format::Json)).expect("what was written");
        assert_eq!(read, drawing);
        Ok(())
    });
    if let Err(broken) = result {
        panic!("{broken}");
    }
}

/// The largest graphs that a definition may hold, each of another shape.
#[test]
fn the_largest_graphs_are_drawn() {
    let wide: Vec<_> = (1..1_999).flat_map(|at| [(0, at, 0), (at, 1_999, 0)]).collect();
    let deep: Vec<_> = (1..2_000).map(|at| (at - 1, at, 0)).collect();
    // A chain that everything else jumps over.
    let far: Vec<_> = (0..8_001).map(|at| (at % 900, 1_000 + at * 7 % 1_000, 1)).collect();
    let layered: Vec<_> = (0..1_980)
        .flat_map(|at| (0..5).map(move |next| (at, at / 20 * 20 + 20 + (at * 3 + next * 7) % 20, 0)))
        .collect();
    for edges in [wide, deep.clone(), deep.iter().chain(&far).copied().collect(), layered] {
        let definition = definition(2_000, &edges);
        assert!(definition.edges.len() <= kernel::definition::MAX_EDGES);
        let drawing = drawn(&definition);
        holds(&definition, &drawing);
        for format in Format::ALL {
            assert!(drawing.render(format).len() < 16 << 20, "{format:?}");
        }
    }
}
