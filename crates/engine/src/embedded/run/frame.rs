//! One execution of a tree: its machine, what its nodes see, and what is still to be recorded of it.
//!
//! Invariants
//! - A frame is of one execution; nothing of it is visible to another frame but its end.
//! - What is kept of an iteration is forgotten when it settles: a loop costs what is in flight.
//!
//! Not here: driving frames (`super`), recording (`record`).

use std::collections::BTreeMap;
use std::sync::Arc;

use kernel::definition;
use kernel::definition::plan::NodeIx;
use kernel::expression::Scope;
use kernel::ids::{ExecutionId, NodeKey};
use kernel::orchestration::{Orchestration, Target};
use kernel::run::failure::Failure;
use kernel::run::node;
use serde_json::Value;
use store::queue::claim::Begun;
use store::run::attempt::Hold;
use store::run::{End, NodeFact, Record};

use super::loops::Loop;
use crate::attempt;
use crate::attempt::wait::Awaited;
use crate::embedded::held::span;
use crate::embedded::writer::size;
use crate::nodes::Done;
use crate::scope::{self, scope};
use crate::versions::Version;

/// A frame of a tree. The root's is the first.
pub(super) type FrameIx = u32;

/// The frame of the root.
pub(super) const ROOT: FrameIx = 0;

/// A node of a tree, and which of its iterations: 0 is the node itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At {
    pub(super) frame: FrameIx,
    pub(super) node: NodeIx,
    pub(super) iteration: i32,
}

impl At {
    pub(super) fn node(frame: FrameIx, node: NodeIx) -> At {
        At { frame, node, iteration: 0 }
    }

    pub(super) fn of(frame: FrameIx, Target { node, iteration }: Target) -> At {
        At { frame, node, iteration }
    }

    /// The same within its frame.
    pub(super) fn target(self) -> Target {
        Target { node: self.node, iteration: self.iteration }
    }
}

pub(super) struct Frame {
    pub(super) begun: Begun,
    pub(super) version: Arc<Version>,
    pub(super) machine: Orchestration,
    pub(super) scope: Scope,
    /// The node that made it; none for the root.
    pub(super) parent: Option<At>,
    /// How far below the root it is.
    pub(super) depth: u32,
    /// Its span; none for the root, which runs in its own.
    pub(super) span: Option<tracing::Span>,
    /// What is to be recorded, at most one fact a node and iteration.
    pub(super) facts: Vec<NodeFact>,
    pub(super) end: Option<End>,
    /// What nodes brought, until their end is recorded.
    pub(super) results: BTreeMap<Target, Result<Done, Failure>>,
    attempts: BTreeMap<Target, u32>,
    pub(super) failures: BTreeMap<NodeIx, Failure>,
    pub(super) loops: BTreeMap<NodeIx, Loop>,
    pub(super) asks: BTreeMap<Target, Awaited>,
}

impl Frame {
    pub(super) fn new(mut begun: Begun, version: Arc<Version>, parent: Option<At>, depth: u32) -> Frame {
        let span = parent.map(|_| span(&begun));
        // Held once: what nodes see.
        let inputs = Arc::new(std::mem::take(&mut begun.input));
        Frame {
            scope: Scope { inputs, ..scope(&begun, &version) },
            machine: Orchestration::resume(Arc::clone(&version.plan), begun.execution, None, []).0,
            begun,
            version,
            parent,
            depth,
            span,
            facts: Vec::new(),
            end: None,
            results: BTreeMap::new(),
            attempts: BTreeMap::new(),
            failures: BTreeMap::new(),
            loops: BTreeMap::new(),
            asks: BTreeMap::new(),
        }
    }

    pub(super) fn execution(&self) -> ExecutionId {
        self.begun.execution
    }

    pub(super) fn key(&self, at: At) -> &NodeKey {
        self.machine.key(at.node)
    }

    /// What is to be done there: the node itself, or what a loop does for each item.
    pub(super) fn kind(&self, at: At) -> definition::Kind {
        let own = self.version.plan.node(at.node).kind;
        match at.iteration {
            0 => own,
            _ => self.loops.get(&at.node).map_or(own, |each| each.action.kind),
        }
    }

    /// What is to be done there, as it is defined.
    pub(super) fn spec(&self, at: At) -> &definition::Node {
        let action = at.target().index().and_then(|_| self.loops.get(&at.node)).map(|each| each.action.as_ref());
        action.unwrap_or(&self.version.definition.nodes[at.node])
    }

    /// May it be performed at most once?
    pub(super) fn is_once(&self, at: At) -> bool {
        let own = self.version.plan.node(at.node).delivery;
        let delivery = match at.iteration {
            0 => own,
            _ => self.loops.get(&at.node).map_or(own, |each| each.action.delivery),
        };
        delivery == definition::Delivery::AtMostOnce
    }

    pub(super) fn attempt(&self, at: At) -> Option<u32> {
        self.attempts.get(&at.target()).copied()
    }

    pub(super) fn attempted(&mut self, at: At, attempt: u32) {
        self.attempts.insert(at.target(), attempt);
    }

    pub(super) fn forget(&mut self, at: At) {
        self.attempts.remove(&at.target());
    }

    pub(super) fn fact(&self, at: At, status: node::Status) -> NodeFact {
        attempt::fact(self.key(at), at.iteration, status, self.attempt(at).unwrap_or(0))
    }

    /// Keeps one fact a node and iteration: the last, with the input an earlier one brought. Answers its size.
    pub(super) fn note(&mut self, mut fact: NodeFact) -> usize {
        #[cfg(feature = "mutants")]
        crate::mutant::fact(&mut fact);
        let same = |known: &NodeFact| known.iteration == fact.iteration && known.node == fact.node;
        if let Some(at) = self.facts.iter().position(same) {
            let earlier = self.facts.remove(at);
            fact.input = fact.input.or(earlier.input);
            fact.once |= earlier.once;
        }
        let size = size(&fact);
        self.facts.push(fact);
        size
    }

    /// Does anything look at what this node produces, or why it failed?
    pub(super) fn is_looked_at(&self, node: NodeIx) -> bool {
        self.version.looked_at.contains(self.machine.key(node))
    }

    pub(super) fn remember(&mut self, node: NodeIx, end: &node::End, output: Value, error: Option<&Failure>) {
        let (key, kept) = (self.machine.key(node).clone(), self.is_looked_at(node));
        let output = if kept { output } else { Value::Null };
        self.scope.nodes.insert(key, scope::seen(end.status(), output, error.filter(|_| kept)));
    }

    /// What is to be recorded of it, if anything is.
    pub(super) fn record(&mut self, hold: Hold) -> Option<Record> {
        if self.facts.is_empty() && self.end.is_none() {
            return None;
        }
        let (facts, end) = (std::mem::take(&mut self.facts), self.end.take());
        Some(Record { facts, end, ..Record::new(self.execution(), hold) })
    }
}
