//! Which light nodes are performed in one step. In these graphs a node is light, unless its name begins with `call`, or
//! with `if` (light too, but it branches).

use std::sync::Arc;

use kernel::ids::NodeKey;
use kernel::orchestration::ahead::{Ahead, Foresight};
use kernel::orchestration::{Effect, NodeSnapshot, Orchestration, Target};
use kernel::run::Outcome;
use kernel::run::node::Status;

use crate::run::graph;
use crate::run::rows::execution;

fn check(text: &str, settled: &[&str], most: usize, expected: &str) {
    let plan = Arc::new(graph::plan(text));
    let node = |name: &&str| plan.index_of(&NodeKey::new(name).expect("a name")).expect("a node of the graph");
    let row = |node| NodeSnapshot { node, status: Status::Completed, label: None, attempt: 1 };
    let rows = settled.iter().map(node).map(row);
    let (machine, effects) = Orchestration::resume(Arc::clone(&plan), execution(), None, rows);
    let ready = effects.iter().filter_map(|effect| match effect {
        Effect::Perform { at, .. } => Some(*at),
        _ => None,
    });
    let name = |at: &Target| plan.node(at.node).key.as_str();
    let foresight = |at: Target| match name(&at) {
        name if name.starts_with("call") => Foresight::Heavy,
        name if name.starts_with("if") => Foresight::Branches,
        _ => Foresight::Completes,
    };
    let Ahead { nodes, outcome } = machine.ahead(ready, foresight, most);
    let mut found: Vec<&str> = nodes.iter().map(name).collect();
    match outcome {
        Some(Outcome::Completed) => found.push("over"),
        Some(outcome) => panic!("{outcome:?}"),
        None => {}
    }
    assert_eq!(found.join(" "), expected, "{text}");
}

#[test]
fn a_chain_of_light_nodes_is_one_step_with_its_end() {
    check("a -> b -> c", &[], 9, "a b c over");
    check("a -> b -> c", &[], 2, "a b");
    check("a -> b -> c", &["a"], 9, "b c over");
}

#[test]
fn light_nodes_come_in_the_order_in_which_they_would_be_performed_one_by_one() {
    check("a -> c, d -> f; b -> e -> f", &[], 9, "a b c d e f over");
}

#[test]
fn a_step_goes_past_a_call_but_not_through_it() {
    check("a -> call -> b; a -> c", &[], 9, "a c");
    check("call -> a", &[], 9, "");
}

#[test]
fn a_node_that_branches_is_the_last_of_its_step() {
    check("a -> if -true-> b; a -> c -> d", &[], 9, "a if");
    check("if -true-> b", &[], 9, "if");
}

#[test]
fn a_skip_ends_the_step_before_what_it_skips() {
    check("a -error-> b; a -> c; a: continue", &[], 9, "a");
}

#[test]
fn a_node_is_the_last_one_if_nothing_else_is_open() {
    let last = |text: &str, settled: &[&str], name: &str| {
        let plan = Arc::new(graph::plan(text));
        let node = |name: &str| plan.index_of(&NodeKey::new(name).expect("a name")).expect("a node of the graph");
        let rows = settled.iter().map(|name| node(name));
        let rows = rows.map(|node| NodeSnapshot { node, status: Status::Completed, label: None, attempt: 1 });
        let (machine, _) = Orchestration::resume(Arc::clone(&plan), execution(), None, rows);
        machine.outcome_after(Target::node(node(name)))
    };
    assert_eq!(last("a -> b", &["a"], "b"), Some(Outcome::Completed));
    assert_eq!(last("a -> b", &[], "a"), None, "b follows");
    assert_eq!(last("a, b -> c", &["a"], "b"), None, "c follows");
    assert_eq!(last("s -> a; s -> b", &["s", "a"], "b"), Some(Outcome::Completed));
    assert_eq!(last("s -> a; s -> b", &["s"], "b"), None, "a runs");
    assert_eq!(last("a -error-> b; a: continue", &[], "a"), None, "b is skipped, which has to be stored");
}
