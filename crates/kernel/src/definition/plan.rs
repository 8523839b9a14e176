//! The checked graph of a version: its nodes in an order in which every node comes after its ancestors.
//!
//! Invariants
//! - Every edge connects two known nodes. There are no cycles. A node without incoming edges is a root.
//! - A plan contains no configuration and no payload, so a run, which contains its plan, is small.
//!
//! Not here: reading documents (`parse`), executing the plan (`run`).

use std::collections::{BTreeMap, BTreeSet};

use crate::definition::{Definition, Delivery, Join, Kind, OnError};
use crate::ids::{Label, NodeKey};
use crate::kind;
use crate::run::failure::Policy;

/// The index of a node in its plan.
pub type NodeIx = usize;

/// Why a definition cannot become a plan; each case names the nodes to show.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("two nodes have the key {0}")]
    DuplicateNode(NodeKey),
    #[error("edge {from} -> {to} names an unknown node {missing}")]
    Dangling { from: NodeKey, to: NodeKey, missing: NodeKey },
    #[error("the edge {from} -> {to} is given twice")]
    DuplicateEdge { from: NodeKey, to: NodeKey },
    #[error("nodes {} form a cycle", arrows(.0))]
    Cycle(Vec<NodeKey>),
    #[error("nodes {} are not connected with the rest of the graph", list(.0))]
    Disconnected(Vec<NodeKey>),
    #[error("{node} has no branch {label}{}", branches(.label, .known))]
    UnknownLabel { node: NodeKey, to: NodeKey, label: Label, known: Vec<String> },
}

fn arrows(nodes: &[NodeKey]) -> String {
    let closed = nodes.iter().chain(nodes.first());
    closed.map(NodeKey::as_str).collect::<Vec<_>>().join(" -> ")
}

fn list(nodes: &[NodeKey]) -> String {
    nodes.iter().map(NodeKey::as_str).collect::<Vec<_>>().join(", ")
}

fn branches(label: &Label, known: &[String]) -> String {
    if label.as_str() == crate::definition::ERROR_LABEL {
        return "; with on_error: continue it takes the branch error when it fails".to_owned();
    }
    if known.is_empty() { "; it does not branch".to_owned() } else { format!("; it takes {}", known.join(" or ")) }
}

/// An incoming edge of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    pub from: NodeIx,
    pub label: Option<Label>,
}

/// A node of a plan, with its edges by index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanNode {
    pub key: NodeKey,
    pub kind: Kind,
    pub join: Join,
    pub on_error: OnError,
    pub retry: Policy,
    pub delivery: Delivery,
    pub incoming: Vec<Incoming>,
    /// The nodes with an edge from this node, each once, in order.
    pub successors: Vec<NodeIx>,
}

/// A checked graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    nodes: Vec<PlanNode>,
    order: Vec<NodeIx>,
    by_key: BTreeMap<NodeKey, NodeIx>,
}

impl Plan {
    /// Checks a definition's graph. An error has every problem, not only the first.
    pub fn new(definition: &Definition) -> Result<Plan, Vec<Invalid>> {
        Plan::with_labels(definition, |at| {
            let node = &definition.nodes[at];
            kind::labels(node.kind, &node.with)
        })
    }

    /// The same as [`Plan::new`] for a definition without configurations. `labels` returns the branches of each node.
    pub fn with_labels(definition: &Definition, labels: impl Fn(NodeIx) -> Vec<String>) -> Result<Plan, Vec<Invalid>> {
        let mut problems = Vec::new();
        let by_key = index(definition, &mut problems);
        let mut nodes = skeleton(definition);
        connect(definition, &by_key, labels, &mut nodes, &mut problems);
        let order = sort(&nodes, &mut problems);
        if problems.is_empty() {
            disconnected(&nodes, &mut problems);
        }
        if problems.is_empty() { Ok(Plan { nodes, order, by_key }) } else { Err(problems) }
    }

    pub fn nodes(&self) -> &[PlanNode] {
        &self.nodes
    }

    pub fn node(&self, at: NodeIx) -> &PlanNode {
        &self.nodes[at]
    }

    /// Every node, after all of its ancestors.
    pub fn order(&self) -> &[NodeIx] {
        &self.order
    }

    pub fn index_of(&self, key: &NodeKey) -> Option<NodeIx> {
        self.by_key.get(key).copied()
    }

    /// Every node from which this one can be reached.
    pub fn ancestors(&self, of: NodeIx) -> BTreeSet<NodeIx> {
        let mut seen = BTreeSet::new();
        let mut open = vec![of];
        while let Some(at) = open.pop() {
            open.extend(self.nodes[at].incoming.iter().map(|edge| edge.from).filter(|from| seen.insert(*from)));
        }
        seen
    }
}

fn index(definition: &Definition, problems: &mut Vec<Invalid>) -> BTreeMap<NodeKey, NodeIx> {
    let mut by_key = BTreeMap::new();
    for (at, node) in definition.nodes.iter().enumerate() {
        if by_key.insert(node.key.clone(), at).is_some() {
            problems.push(Invalid::DuplicateNode(node.key.clone()));
        }
    }
    by_key
}

fn skeleton(definition: &Definition) -> Vec<PlanNode> {
    let bare = |node: &crate::definition::Node| PlanNode {
        key: node.key.clone(),
        kind: node.kind,
        join: node.when,
        on_error: node.on_error,
        retry: node.retry,
        delivery: node.delivery,
        incoming: Vec::new(),
        successors: Vec::new(),
    };
    definition.nodes.iter().map(bare).collect()
}

fn connect(
    definition: &Definition,
    by_key: &BTreeMap<NodeKey, NodeIx>,
    labels: impl Fn(NodeIx) -> Vec<String>,
    nodes: &mut [PlanNode],
    problems: &mut Vec<Invalid>,
) {
    let mut seen = BTreeSet::new();
    for edge in &definition.edges {
        let (from, to) = (by_key.get(&edge.from), by_key.get(&edge.to));
        for (end, key) in [(from, &edge.from), (to, &edge.to)] {
            if end.is_none() {
                let (from, to) = (edge.from.clone(), edge.to.clone());
                problems.push(Invalid::Dangling { from, to, missing: key.clone() });
            }
        }
        let (Some(&from), Some(&to)) = (from, to) else { continue };
        if !seen.insert((from, to, edge.label.clone())) {
            problems.push(Invalid::DuplicateEdge { from: edge.from.clone(), to: edge.to.clone() });
            continue;
        }
        if let Some(label) = &edge.label {
            let source = &nodes[from];
            let mut known = labels(from);
            if source.on_error == OnError::Continue {
                known.extend([crate::definition::ERROR_LABEL.to_owned()]);
            }
            if !known.iter().any(|name| name == label.as_str()) {
                let (node, to) = (source.key.clone(), edge.to.clone());
                problems.push(Invalid::UnknownLabel { node, to, label: label.clone(), known });
            }
        }
        nodes[to].incoming.push(Incoming { from, label: edge.label.clone() });
        if !nodes[from].successors.contains(&to) {
            nodes[from].successors.push(to);
        }
    }
}

/// Kahn's algorithm. Nodes that cannot be sorted are on a cycle or after one, and each cycle is reported.
fn sort(nodes: &[PlanNode], problems: &mut Vec<Invalid>) -> Vec<NodeIx> {
    let mut missing: Vec<usize> = nodes.iter().map(|node| node.incoming.len()).collect();
    let mut ready: BTreeSet<NodeIx> = (0..nodes.len()).filter(|at| missing[*at] == 0).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(at) = ready.pop_first() {
        order.push(at);
        for &to in &nodes[at].successors {
            missing[to] -= nodes[to].incoming.iter().filter(|edge| edge.from == at).count();
            if missing[to] == 0 {
                ready.insert(to);
            }
        }
    }
    let mut left: BTreeSet<NodeIx> = (0..nodes.len()).filter(|at| missing[*at] > 0).collect();
    while let Some(&start) = left.first() {
        let cycle = walk_back(nodes, &left, start);
        problems.push(Invalid::Cycle(cycle.iter().map(|at| nodes[*at].key.clone()).collect()));
        drop_with_successors(nodes, &mut left, cycle);
    }
    order
}

/// Finds a cycle. Every node in `left` has a source in `left`, so following sources reaches some node twice. The nodes
/// between the two visits are the cycle.
fn walk_back(nodes: &[PlanNode], left: &BTreeSet<NodeIx>, start: NodeIx) -> Vec<NodeIx> {
    let mut path = Vec::new();
    let mut place = BTreeMap::new();
    let mut at = start;
    let seen = loop {
        if let Some(seen) = place.insert(at, path.len()) {
            break seen;
        }
        path.push(at);
        let from = nodes[at].incoming.iter().map(|edge| edge.from).find(|from| left.contains(from));
        at = from.expect("every remaining node has a remaining source");
    };
    let mut cycle = path.split_off(seen);
    cycle.reverse();
    let smallest = (0..cycle.len()).min_by_key(|at| cycle[*at]).unwrap_or(0);
    cycle.rotate_left(smallest);
    cycle
}

/// Removes a cycle, and then every node without a source in `left`. Nodes that only come after a cycle are not on a
/// cycle themselves.
fn drop_with_successors(nodes: &[PlanNode], left: &mut BTreeSet<NodeIx>, cycle: Vec<NodeIx>) {
    let mut open = cycle;
    for at in &open {
        left.remove(at);
    }
    while let Some(at) = open.pop() {
        for &to in &nodes[at].successors {
            let hangs = nodes[to].incoming.iter().any(|edge| left.contains(&edge.from));
            if !hangs && left.remove(&to) {
                open.push(to);
            }
        }
    }
}

/// Reports each part of the graph that is not connected to the first node.
fn disconnected(nodes: &[PlanNode], problems: &mut Vec<Invalid>) {
    let mut left: BTreeSet<NodeIx> = (0..nodes.len()).collect();
    let mut first = true;
    while let Some(start) = left.pop_first() {
        let mut piece = BTreeSet::from([start]);
        let mut open = vec![start];
        while let Some(at) = open.pop() {
            let around = nodes[at].incoming.iter().map(|edge| edge.from).chain(nodes[at].successors.iter().copied());
            open.extend(around.filter(|next| left.remove(next) && piece.insert(*next)));
        }
        if !first {
            problems.push(Invalid::Disconnected(piece.iter().map(|at| nodes[*at].key.clone()).collect()));
        }
        first = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{Edge, Node};
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    /// Reads a graph: `a` is a node, `c?` a condition, `e!` continues on error, `a -> b` an edge, and `c -true-> b` an
    /// edge with a label.
    fn graph(lines: &[&str]) -> Definition {
        let key = |text: &str| NodeKey::new(text).expect("a good name");
        let mut definition = Definition::default();
        for line in lines {
            match line.split_whitespace().collect::<Vec<_>>().as_slice() {
                [node] => {
                    let name = node.trim_end_matches(['?', '!']);
                    let kind = if node.ends_with('?') { Kind::Condition } else { Kind::Transform };
                    let on_error = if node.ends_with('!') { OnError::Continue } else { OnError::Fail };
                    definition.nodes.push(Node {
                        key: key(name),
                        kind,
                        description: None,
                        with: serde_json::Value::Null,
                        when: Join::default(),
                        on_error,
                        retry: Policy::DEFAULT,
                        delivery: Delivery::default(),
                        timeout_ms: None,
                        condition: None,
                    });
                }
                [from, arrow, to] => {
                    let label = arrow.trim_end_matches("->").trim_start_matches('-');
                    let label = if label.is_empty() { None } else { Some(Label::new(label).expect("a good name")) };
                    definition.edges.push(Edge { from: key(from), to: key(to), label });
                }
                _ => panic!("{line}"),
            }
        }
        definition
    }

    fn check(lines: &[&str], expected: Expect) {
        let seen = match Plan::new(&graph(lines)) {
            Ok(plan) => {
                let order: Vec<&str> = plan.order().iter().map(|at| plan.node(*at).key.as_str()).collect();
                format!("order {}", order.join(" "))
            }
            Err(invalid) => invalid.iter().map(Invalid::to_string).collect::<Vec<_>>().join("\n"),
        };
        expected.assert_eq(&seen);
    }

    #[test]
    fn an_empty_graph_is_a_plan() {
        check(&[], expect!["order "]);
    }

    #[test]
    fn nodes_come_after_what_they_wait_for() {
        check(&["d", "c", "b", "a", "a -> b", "a -> c", "b -> d", "c -> d"], expect!["order a c b d"]);
    }

    #[test]
    fn a_cycle_is_named_without_what_leads_to_it_or_hangs_behind_it() {
        check(
            &["in", "a", "b", "c", "out", "in -> a", "a -> b", "b -> c", "c -> a", "c -> out"],
            expect!["nodes a -> b -> c -> a form a cycle"],
        );
    }

    #[test]
    fn two_cycles_are_both_named() {
        check(
            &["a", "b", "x", "y", "a -> b", "b -> a", "x -> y", "y -> x"],
            expect![[r#"
            nodes a -> b -> a form a cycle
            nodes x -> y -> x form a cycle"#]],
        );
    }

    #[test]
    fn a_cycle_behind_another_is_named_too() {
        check(
            &["a", "b", "t", "x", "y", "a -> b", "b -> a", "b -> t", "t -> x", "x -> y", "y -> x"],
            expect![[r#"
            nodes a -> b -> a form a cycle
            nodes x -> y -> x form a cycle"#]],
        );
    }

    #[test]
    fn an_edge_to_itself_is_a_cycle() {
        check(&["a", "b", "a -> b", "b -> b"], expect!["nodes b -> b form a cycle"]);
    }

    #[test]
    fn parts_that_nothing_joins_are_named_piece_by_piece() {
        check(
            &["a", "b", "c", "d", "e", "a -> b", "d -> c"],
            expect![[r#"
            nodes c, d are not connected with the rest of the graph
            nodes e are not connected with the rest of the graph"#]],
        );
    }

    #[test]
    fn edges_to_nowhere_name_the_missing_node() {
        check(
            &["a", "a -> b", "c -> d"],
            expect![[r#"
            edge a -> b names an unknown node b
            edge c -> d names an unknown node c
            edge c -> d names an unknown node d"#]],
        );
    }

    #[test]
    fn nothing_may_be_given_twice() {
        check(&["a", "b", "a -> b", "a -> b"], expect!["the edge a -> b is given twice"]);
        check(&["a", "b", "a", "a -> b"], expect!["two nodes have the key a"]);
    }

    #[test]
    fn two_branches_may_lead_to_one_node() {
        check(&["c?", "b", "c -true-> b", "c -false-> b"], expect!["order c b"]);
    }

    #[test]
    fn a_label_must_be_a_branch_of_its_node() {
        check(
            &["c?", "e!", "a", "b", "c -maybe-> a", "a -true-> b", "e -error-> b", "e -eror-> a", "a -error-> b"],
            expect![[r#"
                c has no branch maybe; it takes true or false
                a has no branch true; it does not branch
                e has no branch eror; it takes error
                a has no branch error; with on_error: continue it takes the branch error when it fails"#]],
        );
    }

    #[test]
    fn ancestors_are_all_that_come_before() {
        let plan = Plan::new(&graph(&["a", "b", "c", "d", "a -> b", "b -> c", "d -> c"])).expect("a plan");
        let ancestors = |name: &str| {
            let at = plan.index_of(&NodeKey::new(name).expect("a good name")).expect("known");
            plan.ancestors(at).into_iter().map(|at| plan.node(at).key.as_str().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(ancestors("a"), Vec::<String>::new());
        assert_eq!(ancestors("c"), ["a", "b", "d"]);
    }

    fn numbered(nodes: usize, edges: &BTreeSet<(usize, usize)>) -> Definition {
        let names: Vec<String> = (0..nodes).map(|at| format!("n{at}")).collect();
        let edges: Vec<String> = edges.iter().map(|(from, to)| format!("n{from} -> n{to}")).collect();
        graph(&names.iter().chain(&edges).map(String::as_str).collect::<Vec<_>>())
    }

    /// Which nodes can be reached from each node, computed in the slow and obvious way.
    fn reach(nodes: usize, edges: impl Iterator<Item = (usize, usize)>) -> Vec<Vec<bool>> {
        let mut reach = vec![vec![false; nodes]; nodes];
        for (from, to) in edges {
            reach[from][to] = true;
        }
        for via in 0..nodes {
            for from in 0..nodes {
                for to in 0..nodes {
                    reach[from][to] |= reach[from][via] && reach[via][to];
                }
            }
        }
        reach
    }

    fn edges(nodes: usize) -> impl Strategy<Value = BTreeSet<(usize, usize)>> {
        prop::collection::btree_set((0..nodes, 0..nodes), 0..nodes * 2)
    }

    proptest! {
        #[test]
        fn a_graph_is_a_plan_if_and_only_if_it_is_acyclic_and_one_piece(
            (nodes, edges) in (1usize..9).prop_flat_map(|nodes| (Just(nodes), edges(nodes)))
        ) {
            let cyclic = reach(nodes, edges.iter().copied());
            let acyclic = (0..nodes).all(|at| !cyclic[at][at]);
            let both_ways = edges.iter().flat_map(|(from, to)| [(*from, *to), (*to, *from)]);
            let connected = reach(nodes, both_ways)[0].iter().skip(1).all(|reached| *reached);
            match Plan::new(&numbered(nodes, &edges)) {
                Ok(_) => prop_assert!(acyclic && connected),
                Err(invalid) => {
                    prop_assert!(!acyclic || !connected);
                    // Every reported cycle is a cycle, and of all cycles that share nodes at least one is reported.
                    let number = |key: &NodeKey| key.as_str()[1..].parse::<usize>().expect("a number");
                    let named: Vec<Vec<usize>> = invalid.iter().filter_map(|why| match why {
                        Invalid::Cycle(keys) => Some(keys.iter().map(number).collect()),
                        _ => None,
                    }).collect();
                    for cycle in &named {
                        let closed = cycle.iter().zip(cycle.iter().cycle().skip(1));
                        prop_assert!(closed.into_iter().all(|(from, to)| edges.contains(&(*from, *to))));
                    }
                    for at in (0..nodes).filter(|at| cyclic[*at][*at]) {
                        let knot = |other: &usize| cyclic[at][*other] && cyclic[*other][at];
                        prop_assert!(named.iter().flatten().any(knot));
                    }
                }
            }
        }

        #[test]
        fn an_order_lists_every_node_once_and_after_its_sources(
            (nodes, edges) in (1usize..20).prop_flat_map(|nodes| (Just(nodes), edges(nodes)))
        ) {
            let mut edges: BTreeSet<(usize, usize)> =
                edges.into_iter().filter(|(from, to)| from != to).map(|(a, b)| (a.max(b), a.min(b))).collect();
            edges.extend((1..nodes).map(|at| (at, at - 1)));
            let plan = Plan::new(&numbered(nodes, &edges)).expect("acyclic and one piece");
            let place: BTreeMap<NodeIx, usize> = plan.order().iter().enumerate().map(|(place, at)| (*at, place)).collect();
            prop_assert_eq!(place.len(), nodes);
            prop_assert_eq!(plan.order().len(), nodes);
            for (from, to) in &edges {
                prop_assert!(place[from] < place[to]);
                prop_assert!(plan.ancestors(*to).contains(from));
            }
        }
    }
}
