//! One execution of a tree: its machine, what its nodes see, and what is still to be recorded of it.
//!
//! Invariants
//! - A frame is of one execution; nothing of it is visible to another frame but its end.
//! - What is kept of an iteration is forgotten when it settles: a loop costs what is in flight.
//!
//! Not here: driving frames (`super`), recording (`record`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kernel::definition;
use kernel::definition::plan::NodeIx;
use kernel::expression::Scope;
use kernel::ids::{ExecutionId, NodeKey};
use kernel::run::each::{self, Index};
use kernel::run::failure::Failure;
use kernel::run::node;
use kernel::run::{Run, Stop};
use serde_json::Value;
use store::queue::claim::Begun;
use store::run::attempt::Hold;
use store::run::{End, NodeFact, Record};

use super::asks::Asked;
use super::loops::Loop;
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

    pub(super) fn item(self, index: Index) -> At {
        At { iteration: each::iteration(index), ..self }
    }

    /// Which item of a loop; none for the node itself.
    pub(super) fn index(self) -> Option<Index> {
        each::index(self.iteration)
    }
}

/// A node and iteration within a frame.
type Within = (NodeIx, i32);

pub(super) struct Frame {
    pub(super) begun: Begun,
    pub(super) version: Arc<Version>,
    pub(super) run: Run,
    pub(super) scope: Scope,
    /// The node that made it; none for the root.
    pub(super) parent: Option<At>,
    /// How far below the root it is.
    pub(super) depth: u32,
    /// Its span; none for the root, which runs in its own.
    pub(super) span: Option<tracing::Span>,
    /// It was told to stop, and so.
    pub(super) stop: Option<Stop>,
    /// What is to be recorded, at most one fact a node and iteration.
    pub(super) facts: Vec<NodeFact>,
    pub(super) end: Option<End>,
    /// What nodes brought, until their end is recorded.
    pub(super) results: BTreeMap<Within, Result<Done, Failure>>,
    attempts: BTreeMap<Within, u32>,
    pub(super) failures: BTreeMap<NodeIx, Failure>,
    pub(super) loops: BTreeMap<NodeIx, Loop>,
    pub(super) asks: BTreeMap<Within, Asked>,
    /// Begun before this process had the run: what they made is there already.
    pub(super) resumed: BTreeSet<Within>,
}

impl Frame {
    pub(super) fn new(mut begun: Begun, version: Arc<Version>, parent: Option<At>, depth: u32) -> Frame {
        let span = parent.map(|_| span(&begun));
        // Held once: what nodes see.
        let inputs = Arc::new(std::mem::take(&mut begun.input));
        Frame {
            scope: Scope { inputs, ..scope(&begun, &version) },
            run: Run::start(Arc::clone(&version.plan), begun.execution).0,
            begun,
            version,
            parent,
            depth,
            span,
            stop: None,
            facts: Vec::new(),
            end: None,
            results: BTreeMap::new(),
            attempts: BTreeMap::new(),
            failures: BTreeMap::new(),
            loops: BTreeMap::new(),
            asks: BTreeMap::new(),
            resumed: BTreeSet::new(),
        }
    }

    pub(super) fn execution(&self) -> ExecutionId {
        self.begun.execution
    }

    pub(super) fn key(&self, at: At) -> &NodeKey {
        self.run.key(at.node)
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
        let action = at.index().and_then(|_| self.loops.get(&at.node)).map(|each| each.action.as_ref());
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
        self.attempts.get(&(at.node, at.iteration)).copied()
    }

    pub(super) fn attempted(&mut self, at: At, attempt: u32) {
        self.attempts.insert((at.node, at.iteration), attempt);
    }

    pub(super) fn forget(&mut self, at: At) {
        self.attempts.remove(&(at.node, at.iteration));
    }

    /// Was it begun before this process had the run? It is asked once.
    pub(super) fn was_begun(&mut self, at: At) -> bool {
        self.resumed.remove(&(at.node, at.iteration))
    }

    pub(super) fn fact(&self, at: At, status: node::Status) -> NodeFact {
        NodeFact {
            node: self.key(at).clone(),
            iteration: at.iteration,
            status,
            attempt: self.attempt(at).unwrap_or(0),
            next_in: None,
            label: None,
            input: None,
            output: None,
            error: None,
            once: false,
        }
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
        self.version.looked_at.contains(self.run.key(node))
    }

    pub(super) fn remember(&mut self, node: NodeIx, end: &node::End, output: Value, error: Option<&Failure>) {
        let (key, kept) = (self.run.key(node).clone(), self.is_looked_at(node));
        let output = if kept { output } else { Value::Null };
        self.scope.nodes.insert(key, scope::seen(end.status(), output, error.filter(|_| kept)));
    }

    /// What is to be recorded of it, if anything is.
    pub(super) fn record(&mut self, hold: Hold) -> Option<Record> {
        if self.facts.is_empty() && self.end.is_none() {
            return None;
        }
        let (facts, end) = (std::mem::take(&mut self.facts), self.end.take());
        Some(Record { execution: self.execution(), holder: hold.execution, epoch: hold.epoch, facts, end, park: None })
    }
}
