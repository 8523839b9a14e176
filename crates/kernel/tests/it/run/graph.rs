//! A notation for graphs and for what happens to them, small enough to read inside a test.
//!
//!     a -> b, c -> d            edges: a before b and c, both before d
//!     cond -true-> x            an edge of one branch (cond becomes a CONDITION)
//!     d: any_success, retry 2   a node's join rule, what its failure does, its attempts
//!
//! Statements end with `;` or a line. Attributes: `any_success`, `all_done`, `continue`, `retry N`,
//! `delay`, `child`, `loop` (its kind), `once` (performed at most once).
//!
//! Not here: checking a run against its expected trace (`run`).

use kernel::definition::plan::{NodeIx, Plan};
use kernel::definition::{Definition, Delivery, Edge, Join, Kind, Node, OnError};
use kernel::ids::{Label, NodeKey};
use kernel::run::attempts::{AttemptEffect, AttemptEvent};
use kernel::run::failure::{Class, Failure, Policy};
use kernel::run::node::NodeEnd;
use kernel::run::{Effect, Event, Outcome, Stop};
use serde_json::json;

/// Reads a graph; a mistake in the notation is the test's fault.
pub(crate) fn plan(text: &str) -> Plan {
    let mut definition = Definition::default();
    for statement in text.split([';', '\n']).map(str::trim).filter(|text| !text.is_empty()) {
        match statement.split_once(':') {
            Some((node, attributes)) => attribute(&mut definition, node.trim(), attributes),
            None => chain(&mut definition, statement),
        }
    }
    Plan::new(&definition).expect("the test's graph is acceptable")
}

/// Reads what happened: `a ok`, `a takes true`, `a fails`, `a times out`, `a due`, `a aborted`,
/// `a unbegun` (aborted before anything was done for it), `a unknown`, `cancel`, `deadline`. News is of the node's
/// latest attempt unless it says otherwise: `a#1 ok`.
pub(crate) fn event(plan: &Plan, text: &str, latest: impl Fn(NodeIx) -> u32) -> Event {
    let (name, what) = text.split_once(' ').unwrap_or((text, ""));
    let (name, said) = name.split_once('#').unwrap_or((name, ""));
    let node = || plan.index_of(&key(name)).expect("the event names a node of the graph");
    let attempt = || said.parse().unwrap_or_else(|_| latest(node()));
    let failed =
        |class| Event::Node(node(), AttemptEvent::Failed { attempt: attempt(), failure: Failure::new(class, "no") });
    match (name, what) {
        ("cancel", "") => Event::Stopped(Stop::Cancel),
        ("deadline", "") => Event::Stopped(Stop::Deadline),
        (_, "ok") => Event::Node(node(), AttemptEvent::Succeeded { attempt: attempt(), took: None }),
        (_, "fails") => failed(Class::ValidationError),
        (_, "times out") => failed(Class::Timeout),
        (_, "unknown") => failed(Class::ResultUnknown),
        (_, "due") => Event::Node(node(), AttemptEvent::RetryDue { attempt: attempt() }),
        (_, "aborted") => Event::Node(node(), AttemptEvent::Aborted { begun: true }),
        (_, "unbegun") => Event::Node(node(), AttemptEvent::Aborted { begun: false }),
        (_, takes) => {
            let label = takes.strip_prefix("takes ").expect("an event of the notation");
            let took = Some(Label::new(label).expect("a label"));
            Event::Node(node(), AttemptEvent::Succeeded { attempt: attempt(), took })
        }
    }
}

/// Says an order in a few words; ends that only repeat the event are left out.
pub(crate) fn tell(plan: &Plan, effect: &Effect) -> Option<String> {
    let name = |node: NodeIx| plan.node(node).key.as_str();
    Some(match effect {
        Effect::Node(_, AttemptEffect::Settle(NodeEnd::Completed { .. } | NodeEnd::Failed { .. })) => return None,
        Effect::Node(node, AttemptEffect::Settle(NodeEnd::Skipped)) => format!("skip {}", name(*node)),
        Effect::Node(node, AttemptEffect::Settle(NodeEnd::Canceled)) => format!("cancel {}", name(*node)),
        Effect::Node(node, AttemptEffect::Settle(NodeEnd::Lost)) => format!("lose {}", name(*node)),
        Effect::Node(node, AttemptEffect::Perform { attempt: 1 }) => format!("perform {}", name(*node)),
        Effect::Node(node, AttemptEffect::Perform { attempt }) => {
            format!("perform {} (attempt {attempt})", name(*node))
        }
        Effect::Node(node, AttemptEffect::Wait { attempt, .. }) => {
            format!("wait for {} (attempt {attempt})", name(*node))
        }
        Effect::Node(node, AttemptEffect::Abort) => format!("abort {}", name(*node)),
        Effect::Finish(Outcome::Failed { node }) => format!("finish failed at {}", name(*node)),
        Effect::Finish(Outcome::TimedOut) => "finish timed out".to_owned(),
        Effect::Finish(outcome) => format!("finish {}", format!("{outcome:?}").to_lowercase()),
    })
}

/// A node with nothing said about it. Read from JSON, so that what definitions learn to say later
/// need not be said here.
pub(crate) fn bare(key: &NodeKey) -> Node {
    let json = json!({ "key": key, "kind": Kind::HttpRequest, "retry": Policy::DEFAULT });
    serde_json::from_value(json).expect("a bare node is a node")
}

fn chain(definition: &mut Definition, statement: &str) {
    let mut sources: Vec<NodeKey> = Vec::new();
    let mut label: Option<Label> = None;
    let mut group: Vec<NodeKey> = Vec::new();
    for word in statement.split_whitespace() {
        let Some(arrow) = word.strip_suffix("->") else {
            let node = key(word.trim_end_matches(','));
            add(definition, &node);
            group.push(node);
            continue;
        };
        connect(definition, &sources, &group, label.as_ref());
        sources = std::mem::take(&mut group);
        label = arrow.strip_prefix('-').map(|name| Label::new(name).expect("a label"));
    }
    connect(definition, &sources, &group, label.as_ref());
}

fn connect(definition: &mut Definition, sources: &[NodeKey], targets: &[NodeKey], label: Option<&Label>) {
    for from in sources {
        if label.is_some_and(|label| matches!(label.as_str(), "true" | "false")) {
            add(definition, from).kind = Kind::Condition;
        }
        for to in targets {
            definition.edges.push(Edge { from: from.clone(), to: to.clone(), label: label.cloned() });
        }
    }
}

fn attribute(definition: &mut Definition, node: &str, attributes: &str) {
    let node = add(definition, &key(node));
    for attribute in attributes.split(',').map(str::trim) {
        match attribute {
            "any_success" => node.when = Join::AnySuccess,
            "all_done" => node.when = Join::AllDone,
            "delay" => node.kind = Kind::Delay,
            "ask" => node.kind = Kind::WaitForEvent,
            "child" => node.kind = Kind::Workflow,
            "loop" => node.kind = Kind::ForEach,
            "once" => node.delivery = Delivery::AtMostOnce,
            "continue" => node.on_error = OnError::Continue,
            other => {
                let count = other.strip_prefix("retry ").expect("an attribute of the notation");
                node.retry.max_attempts = count.parse().expect("a number of attempts");
            }
        }
    }
}

fn add<'a>(definition: &'a mut Definition, key: &NodeKey) -> &'a mut Node {
    let at = definition.nodes.iter().position(|node| node.key == *key).unwrap_or_else(|| {
        definition.nodes.push(bare(key));
        definition.nodes.len() - 1
    });
    &mut definition.nodes[at]
}

fn key(text: &str) -> NodeKey {
    NodeKey::new(text).expect("a node key")
}
