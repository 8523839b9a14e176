//! Properties of any run: generated graphs, events in any order, a stop at any time.
//!
//! Invariants
//! - The same cases on every machine: the generator's seed is fixed, nothing is read or kept.
//!
//! Not here: what exactly a graph does (the tables in `run`).

use std::collections::BTreeSet;
use std::sync::Arc;

use kernel::definition::plan::{NodeIx, Plan};
use kernel::definition::{Definition, Edge, Join, Kind, Node, OnError};
use kernel::ids::{Label, NodeKey};
use kernel::run::attempts::{AttemptEffect, AttemptEvent};
use kernel::run::failure::{Class, Failure, Policy};
use kernel::run::node::NodeEnd;
use kernel::run::{Effect, Event, Outcome, Run, Stop};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use super::graph::bare;
use super::rows::{Rows, execution};
use crate::simulation::random::Random;

#[derive(Clone, Debug)]
struct Shape {
    nodes: Vec<NodeShape>,
    /// Further edges, by any two numbers; those that make no sense are left out.
    edges: Vec<(usize, usize, u8)>,
}

#[derive(Clone, Debug)]
struct NodeShape {
    /// Its place in the order that keeps the graph acyclic.
    place: u16,
    /// The earlier node it hangs together with, in whichever direction the places say.
    joined_with: usize,
    label: u8,
    condition: bool,
    join: Join,
    continues: bool,
    attempts: u32,
}

#[test]
fn any_run_of_any_graph_keeps_its_promises() {
    let config = Config { cases: 400, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&(shape(), any::<u64>()), |(shape, seed)| {
        let plan = Plan::new(&definition(&shape)).expect("generated graphs are acceptable");
        Drive::new(Arc::new(plan), seed).run_out();
        Ok(())
    });
    if let Err(broken) = result {
        panic!("{broken}");
    }
}

fn shape() -> impl Strategy<Value = Shape> {
    let join = prop_oneof![3 => Just(Join::AllSuccess), 1 => Just(Join::AnySuccess), 1 => Just(Join::AllDone)];
    let node = (any::<u16>(), 0..30usize, any::<u8>(), any::<bool>(), join, any::<bool>(), 1..4u32).prop_map(
        |(place, joined_with, label, condition, join, continues, attempts)| NodeShape {
            place,
            joined_with,
            label,
            condition,
            join,
            continues,
            attempts,
        },
    );
    let edges = prop::collection::vec((0..30usize, 0..30usize, any::<u8>()), 0..40);
    (prop::collection::vec(node, 0..30), edges).prop_map(|(nodes, edges)| Shape { nodes, edges })
}

fn definition(shape: &Shape) -> Definition {
    let key = |at: usize| NodeKey::new(&format!("n{at}")).expect("a node key");
    let node = |(at, node): (usize, &NodeShape)| Node {
        kind: if node.condition { Kind::Condition } else { Kind::HttpRequest },
        when: node.join,
        on_error: if node.continues { OnError::Continue } else { OnError::Fail },
        retry: Policy { max_attempts: node.attempts, ..Policy::DEFAULT },
        ..bare(&key(at))
    };
    let count = shape.nodes.len();
    let tree = shape.nodes.iter().enumerate().skip(1).map(|(at, node)| (node.joined_with % at, at, node.label));
    let more = shape.edges.iter().filter(|_| count > 0).map(|(a, b, label)| (a % count, b % count, *label));
    let mut seen = BTreeSet::new();
    let mut edges = Vec::new();
    for (a, b, label) in tree.chain(more) {
        let (from, to) = if (shape.nodes[a].place, a) < (shape.nodes[b].place, b) { (a, b) } else { (b, a) };
        if from == to {
            continue;
        }
        let label = label_of(&shape.nodes[from], label);
        if seen.insert((from, to, label.clone())) {
            edges.push(Edge { from: key(from), to: key(to), label });
        }
    }
    Definition { nodes: shape.nodes.iter().enumerate().map(node).collect(), edges, ..Definition::default() }
}

fn label_of(node: &NodeShape, choice: u8) -> Option<Label> {
    let mut known = vec![None, None];
    known.extend(node.condition.then_some(["true", "false"]).into_iter().flatten().map(Some));
    known.extend(node.continues.then_some(Some("error")));
    let label: Option<&str> = known[usize::from(choice) % known.len()];
    label.map(|label| Label::new(label).expect("a label"))
}

/// One run driven to its end beside its stored rows.
struct Drive {
    plan: Arc<Plan>,
    run: Run,
    rows: Rows,
    settled: BTreeSet<NodeIx>,
    finished: Option<Outcome>,
    random: Random,
}

impl Drive {
    fn new(plan: Arc<Plan>, seed: u64) -> Drive {
        let (run, effects) = Run::start(Arc::clone(&plan), execution());
        let random = Random::new(seed);
        let mut drive = Drive { plan, run, rows: Rows::default(), settled: BTreeSet::new(), finished: None, random };
        drive.carry_out(&effects);
        drive
    }

    fn run_out(&mut self) {
        let stops = self.random.one_in(2);
        for _ in 0..2_000 {
            if self.finished.is_some() {
                break;
            }
            self.resume_anywhere();
            let event = self.next_event(stops);
            self.rows.receive(&event);
            let effects = self.run.apply(event.clone());
            if self.is_old_news(&event) {
                assert_eq!(effects, [], "{event:?} changes nothing");
            }
            self.carry_out(&effects);
        }
        assert!(self.finished.is_some(), "a run ends once its nodes do");
        assert_eq!(self.settled.len(), self.plan.nodes().len(), "every node is settled at the end");
        assert_eq!(self.run.outcome(), self.finished.as_ref());
        for node in 0..self.plan.nodes().len() {
            let again = Event::Node(node, AttemptEvent::Succeeded { attempt: self.rows.attempt(node), took: None });
            assert_eq!(self.run.apply(again), [], "the end is the end");
        }
    }

    /// Rebuilt from its rows a run orders what is open once more, and goes on as if nothing had happened.
    fn resume_anywhere(&mut self) {
        let (resumed, again) = self.rows.resume(&self.plan);
        assert_eq!(again, self.rows.expected_again(), "the same nodes are open");
        if self.random.one_in(2) {
            self.run = resumed;
        }
    }

    fn next_event(&mut self, stops: bool) -> Event {
        if stops && self.random.one_in(20) {
            return if self.random.one_in(2) { Event::Stopped(Stop::Cancel) } else { Event::Stopped(Stop::Deadline) };
        }
        if self.random.one_in(10) {
            return self.old_news();
        }
        let open: Vec<_> = self.rows.open().copied().collect();
        let open = open[self.random.below(open.len())];
        let (node, attempt) = (open.node, open.attempt);
        if open.waiting {
            return Event::Node(node, AttemptEvent::RetryDue { attempt });
        }
        match self.random.below(8) {
            0 => {
                Event::Node(node, AttemptEvent::Failed { attempt, failure: Failure::new(Class::ValidationError, "no") })
            }
            1 | 2 => Event::Node(node, AttemptEvent::Failed { attempt, failure: Failure::new(Class::Timeout, "slow") }),
            3 => Event::Node(node, AttemptEvent::Aborted { begun: true }),
            4 if attempt == 1 => Event::Node(node, AttemptEvent::Skipped { attempt }),
            _ => {
                let labels = kernel::kind::labels(self.plan.node(node).kind, &serde_json::Value::Null);
                let label = (!labels.is_empty()).then(|| labels[self.random.below(labels.len())].as_str());
                Event::Node(
                    node,
                    AttemptEvent::Succeeded { attempt, took: label.map(|label| Label::new(label).expect("a label")) },
                )
            }
        }
    }

    /// News of an attempt that is over, or of none.
    fn old_news(&mut self) -> Event {
        let node = self.random.below(self.plan.nodes().len());
        let latest = self.rows.attempt(node);
        let attempt = if self.rows.open().any(|open| open.node == node) { latest - 1 } else { latest };
        match self.random.below(4) {
            0 => Event::Node(node, AttemptEvent::Succeeded { attempt, took: None }),
            1 => Event::Node(node, AttemptEvent::Failed { attempt, failure: Failure::new(Class::Timeout, "late") }),
            2 => Event::Node(node, AttemptEvent::RetryDue { attempt }),
            _ => Event::Node(node, AttemptEvent::Aborted { begun: true }),
        }
    }

    fn is_old_news(&self, event: &Event) -> bool {
        let (node, attempt) = match event {
            Event::Node(node, AttemptEvent::Succeeded { attempt, .. })
            | Event::Node(node, AttemptEvent::Failed { attempt, .. })
            | Event::Node(node, AttemptEvent::RetryDue { attempt }) => (*node, *attempt),
            _ => return false,
        };
        self.rows.open().all(|open| (open.node, open.attempt) != (node, attempt))
    }

    fn carry_out(&mut self, effects: &[Effect]) {
        for effect in effects {
            assert_eq!(self.finished, None, "finish comes last: {effects:?}");
            match effect {
                Effect::Node(node, AttemptEffect::Settle(end)) => {
                    assert!(self.settled.insert(*node), "{node} settles once: {effects:?}");
                    if *end == NodeEnd::Skipped {
                        self.sources_settled(*node);
                    }
                }
                Effect::Node(node, AttemptEffect::Perform { attempt }) => {
                    assert!(!self.settled.contains(node), "{node} was settled: {effects:?}");
                    assert!(*attempt <= self.plan.node(*node).retry.max_attempts, "{effects:?}");
                    self.sources_settled(*node);
                }
                Effect::Node(node, AttemptEffect::Wait { .. } | AttemptEffect::Abort) => {
                    assert!(!self.settled.contains(node), "{node} was settled: {effects:?}");
                }
                Effect::Finish(outcome) => {
                    assert_ne!(*outcome, Outcome::Stalled);
                    self.finished = Some(outcome.clone());
                }
            }
        }
        self.rows.store(effects);
        if self.finished.is_none() {
            assert!(self.rows.open().count() > 0, "a run that goes on has something open");
        }
        self.nobody_waits_in_vain();
    }

    fn sources_settled(&self, node: NodeIx) {
        let settled = self.plan.node(node).incoming.iter().all(|edge| self.settled.contains(&edge.from));
        assert!(settled, "{node} moves only after its predecessors");
    }

    /// No waves: a node whose predecessors have all settled is open or settled itself.
    fn nobody_waits_in_vain(&self) {
        let open: BTreeSet<NodeIx> = self.rows.open().map(|open| open.node).collect();
        for (at, node) in self.plan.nodes().iter().enumerate() {
            if node.incoming.iter().all(|edge| self.settled.contains(&edge.from)) {
                assert!(self.settled.contains(&at) || open.contains(&at), "{at} could move");
            }
        }
        assert_eq!(self.rows.settled().len(), self.settled.len());
    }
}
