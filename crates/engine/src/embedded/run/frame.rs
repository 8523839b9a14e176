//! One execution of a run's tree: its state machine, the scope of its nodes, and the facts that are not recorded yet.
//!
//! Invariants
//! - A frame belongs to one execution. Other frames see only its end.
//! - The state of an iteration is dropped when it settles, so a loop uses memory only for items in flight.
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
use store::run::attempt::Ownership;
use store::run::{End, NodeFact, Record};

use super::loops::RunningLoop;
use crate::attempt;
use crate::attempt::wait::WaitConfig;
use crate::embedded::run_task::span;
use crate::embedded::writer::size;
use crate::nodes::NodeOutput;
use crate::scope::{self, scope};
use crate::versions::LoadedVersion;

/// The index of a frame in its tree. The root's is 0.
pub(super) type FrameIx = u32;

/// The root's frame.
pub(super) const ROOT: FrameIx = 0;

/// A node in a tree, and one of its iterations. Iteration 0 is the node itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeRef {
    pub(super) frame: FrameIx,
    pub(super) node: NodeIx,
    pub(super) iteration: i32,
}

impl NodeRef {
    pub(super) fn node(frame: FrameIx, node: NodeIx) -> NodeRef {
        NodeRef { frame, node, iteration: 0 }
    }

    pub(super) fn of(frame: FrameIx, Target { node, iteration }: Target) -> NodeRef {
        NodeRef { frame, node, iteration }
    }

    /// The same node within its frame.
    pub(super) fn target(self) -> Target {
        Target { node: self.node, iteration: self.iteration }
    }
}

pub(super) struct ExecutionFrame {
    pub(super) begun: Begun,
    pub(super) version: Arc<LoadedVersion>,
    pub(super) machine: Orchestration,
    pub(super) scope: Scope,
    /// The node that started this execution. None for the root.
    pub(super) parent: Option<NodeRef>,
    /// The distance of this execution from the root.
    pub(super) depth: u32,
    /// The span of this execution. None for the root, because its task already has a span.
    pub(super) span: Option<tracing::Span>,
    /// The facts to record, at most one per node and iteration.
    pub(super) facts: Vec<NodeFact>,
    pub(super) end: Option<End>,
    /// Results of nodes whose end is not recorded yet.
    pub(super) results: BTreeMap<Target, Result<NodeOutput, Failure>>,
    attempts: BTreeMap<Target, u32>,
    pub(super) failures: BTreeMap<NodeIx, Failure>,
    pub(super) loops: BTreeMap<NodeIx, RunningLoop>,
    pub(super) waits: BTreeMap<Target, WaitConfig>,
}

impl ExecutionFrame {
    pub(super) fn new(
        mut begun: Begun,
        version: Arc<LoadedVersion>,
        parent: Option<NodeRef>,
        depth: u32,
    ) -> ExecutionFrame {
        let span = parent.map(|_| span(&begun));
        // Only the scope keeps the input, because it may be large.
        let inputs = Arc::new(std::mem::take(&mut begun.input));
        ExecutionFrame {
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
            waits: BTreeMap::new(),
        }
    }

    pub(super) fn execution(&self) -> ExecutionId {
        self.begun.execution
    }

    pub(super) fn key(&self, at: NodeRef) -> &NodeKey {
        self.machine.key(at.node)
    }

    /// The kind that is performed: that of the node itself, or of a loop's item.
    pub(super) fn kind(&self, at: NodeRef) -> definition::Kind {
        let own = self.version.plan.node(at.node).kind;
        match at.iteration {
            0 => own,
            _ => self.loops.get(&at.node).map_or(own, |running| running.action.kind),
        }
    }

    /// The definition that is performed: the node itself, or a loop's item.
    pub(super) fn spec(&self, at: NodeRef) -> &definition::Node {
        let action = at.target().index().and_then(|_| self.loops.get(&at.node)).map(|running| running.action.as_ref());
        action.unwrap_or(&self.version.definition.nodes[at.node])
    }

    /// True if the node, or the loop's item, may be performed at most once.
    pub(super) fn is_at_most_once(&self, at: NodeRef) -> bool {
        let own = self.version.plan.node(at.node).delivery;
        let delivery = match at.iteration {
            0 => own,
            _ => self.loops.get(&at.node).map_or(own, |running| running.action.delivery),
        };
        delivery == definition::Delivery::AtMostOnce
    }

    pub(super) fn attempt(&self, at: NodeRef) -> Option<u32> {
        self.attempts.get(&at.target()).copied()
    }

    pub(super) fn set_attempt(&mut self, at: NodeRef, attempt: u32) {
        self.attempts.insert(at.target(), attempt);
    }

    pub(super) fn forget_attempt(&mut self, at: NodeRef) {
        self.attempts.remove(&at.target());
    }

    pub(super) fn fact(&self, at: NodeRef, status: node::Status) -> NodeFact {
        attempt::fact(self.key(at), at.iteration, status, self.attempt(at).unwrap_or(0))
    }

    /// Adds a fact, and returns its size. The fact replaces an earlier one of the same node and iteration, and keeps
    /// the earlier input if it has none itself.
    pub(super) fn record_fact(&mut self, mut fact: NodeFact) -> usize {
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

    /// True if an expression reads this node's output or error.
    pub(super) fn is_read(&self, node: NodeIx) -> bool {
        self.version.read_nodes.contains(self.machine.key(node))
    }

    pub(super) fn add_to_scope(&mut self, node: NodeIx, end: &node::NodeEnd, output: Value, error: Option<&Failure>) {
        let (key, kept) = (self.machine.key(node).clone(), self.is_read(node));
        let output = if kept { output } else { Value::Null };
        self.scope.nodes.insert(key, scope::seen(end.status(), output, error.filter(|_| kept)));
    }

    /// Takes the facts and the end to record, if there are any.
    pub(super) fn take_record(&mut self, hold: Ownership) -> Option<Record> {
        if self.facts.is_empty() && self.end.is_none() {
            return None;
        }
        let (facts, end) = (std::mem::take(&mut self.facts), self.end.take());
        Some(Record { facts, end, ..Record::new(self.execution(), hold) })
    }
}
