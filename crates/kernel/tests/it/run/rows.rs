//! The rows that a store would hold for a run: its node rows, and whether a stop was requested.
//!
//! Invariants
//! - Rows change only by a run's effects and by writes to the execution's row, as in a real engine. Every change of a
//!   node's row is a legal step of the node's lifecycle.
//!
//! Not here: the promises of a whole store (`simulation`).

use std::collections::BTreeMap;
use std::sync::Arc;

use kernel::definition::plan::{NodeIx, Plan};
use kernel::ids::ExecutionId;
use kernel::run::attempts::AttemptEffect;
use kernel::run::node::{NodeEnd, Status, Step};
use kernel::run::{Effect, Event, OpenNode, Run, Stop};
use uuid::Uuid;

#[derive(Debug, Default)]
pub(crate) struct Rows {
    settled: Vec<(NodeIx, NodeEnd)>,
    open: BTreeMap<NodeIx, OpenNode>,
    statuses: BTreeMap<NodeIx, Status>,
    attempts: BTreeMap<NodeIx, u32>,
    stop: Option<Stop>,
}

impl Rows {
    /// Notes what is written to the execution's own row.
    pub(crate) fn receive(&mut self, event: &Event) {
        let stop = match event {
            Event::Stopped(stop) => *stop,
            Event::Node(..) => return,
        };
        self.stop.get_or_insert(stop);
    }

    /// Stores what the effects say of nodes.
    pub(crate) fn store(&mut self, effects: &[Effect]) {
        for effect in effects {
            match effect {
                Effect::Node(node, AttemptEffect::Settle(end)) => {
                    let step = match end {
                        NodeEnd::Completed { .. } => Step::Succeed,
                        NodeEnd::Failed { .. } => Step::Fail,
                        NodeEnd::Skipped => Step::Skip,
                        NodeEnd::Canceled => Step::Cancel,
                        NodeEnd::Lost => Step::Lose,
                    };
                    self.step(*node, step);
                    self.open.remove(node);
                    self.settled.push((*node, end.clone()));
                }
                Effect::Node(node, AttemptEffect::Perform { attempt }) => {
                    self.step(*node, Step::Perform);
                    self.attempts.insert(*node, *attempt);
                    self.open.insert(*node, OpenNode { node: *node, attempt: *attempt, waiting: false });
                }
                Effect::Node(node, AttemptEffect::Wait { attempt, .. }) => {
                    self.step(*node, Step::Wait);
                    self.attempts.insert(*node, *attempt);
                    self.open.insert(*node, OpenNode { node: *node, attempt: *attempt, waiting: true });
                }
                Effect::Node(_, AttemptEffect::Abort) | Effect::Finish(_) => {}
            }
        }
    }

    /// The run as another process would take it up.
    pub(crate) fn resume(&self, plan: &Arc<Plan>) -> (Run, Vec<Effect>) {
        Run::resume(Arc::clone(plan), execution(), self.stop, self.settled.clone(), self.open.values().copied())
    }

    /// The nodes being performed, and those waiting for an attempt.
    pub(crate) fn open(&self) -> impl Iterator<Item = &OpenNode> {
        self.open.values()
    }

    /// The node's latest attempt; 0 before the first.
    pub(crate) fn attempt(&self, node: NodeIx) -> u32 {
        self.attempts.get(&node).copied().unwrap_or(0)
    }

    pub(crate) fn settled(&self) -> &[(NodeIx, NodeEnd)] {
        &self.settled
    }

    /// What taking the run up orders while it goes on: the nodes in flight once more, or their end.
    pub(crate) fn expected_again(&self) -> Vec<Effect> {
        let in_flight = self.open.values().filter(|open| !open.waiting);
        let again = |open: &OpenNode| match self.stop {
            None => Effect::Node(open.node, AttemptEffect::Perform { attempt: open.attempt }),
            Some(_) => Effect::Node(open.node, AttemptEffect::Abort),
        };
        in_flight.map(again).collect()
    }

    fn step(&mut self, node: NodeIx, step: Step) {
        let status = self.statuses.entry(node).or_insert(Status::Pending);
        *status = status.after(step).expect("a run takes legal steps only");
    }
}

/// The execution of every test here; it decides nothing but the jitter of waits.
pub(crate) fn execution() -> ExecutionId {
    ExecutionId(Uuid::from_u128(7))
}
