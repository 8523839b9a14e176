//! The state machine of one execution's graph. `orchestration` passes events to it and translates the effects that it
//! returns.
//!
//!     INITIALIZING ──first node──▶ EXECUTING_NODES ──all settled──▶ COMPLETED | FAILED
//!
//! Invariants
//! - A run knows which nodes settled and how they ended, but not their outputs. So it can be rebuilt from the stored
//!   node rows in microseconds, and it is small enough to live inside a Temporal workflow.
//! - A late or repeated event changes nothing: it gives no effects.
//! - A node starts or is skipped as soon as all nodes before it have settled. A settled node never starts again.
//! - A run gives `Finish` once, as its last effect, and only when every node has settled (except for `Stalled`, a bug).
//! - Between two events, the stored rows determine the run: a run that is resumed from them continues the same way.
//!
//! Not here: storing facts, performing nodes and timers (the shells), what an event means for one node (`attempts`),
//! whether a failure is retried (`failure`), the shape of the graph (`plan`).

pub mod attempts;
pub mod crash;
pub mod failure;
pub mod item_loop;
pub mod node;
pub mod reconcile;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::definition::Join;
use crate::definition::plan::{NodeIx, Plan, PlanNode};
use crate::ids::{ExecutionId, Label, NodeKey};
use crate::run::attempts::{AttemptEffect, AttemptEvent, AttemptRules, AttemptState, AttemptStates};

/// A fact about a run, named in the past tense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Node(NodeIx, AttemptEvent),
    /// The execution must end early.
    Stopped(Stop),
}

/// An order that the shell must carry out, named in the imperative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Node(NodeIx, AttemptEffect),
    /// The run is over.
    Finish(Outcome),
}

/// How an execution ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    Completed,
    /// `node` is the first node whose failure made the execution fail.
    Failed {
        node: NodeIx,
    },
    Canceled,
    TimedOut,
    /// No node is in flight or waiting, but some node has not settled. Only a bug in Forebay causes this outcome.
    Stalled,
}

/// The phase of a run, as shown to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Phase {
    Initializing,
    ExecutingNodes,
    Completed,
    Failed,
}

/// A node that has not settled, as its stored row describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenNode {
    pub node: NodeIx,
    pub attempt: u32,
    /// The node waits to begin this attempt. If false, the attempt was in flight.
    pub waiting: bool,
}

/// Why a run ends early. The execution's row stores this reason; no node row does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    Cancel,
    Deadline,
}

impl Stop {
    /// Why a run ends when it is resumed; none if it continues. `inherits`: the run has its parent's deadline, so its
    /// parent stops it.
    pub fn at_resume(canceling: bool, overdue: bool, inherits: bool) -> Option<Stop> {
        match canceling {
            true => Some(Stop::Cancel),
            false => (overdue && !inherits).then_some(Stop::Deadline),
        }
    }
}

/// The state machine of one execution's graph.
#[derive(Clone, Debug)]
pub struct Run {
    plan: Arc<Plan>,
    execution: ExecutionId,
    states: AttemptStates,
    /// For each node, how many of its incoming edges come from a node that has not settled.
    unsettled: Vec<usize>,
    first_failed: Option<NodeIx>,
    stop: Option<Stop>,
    finished: Option<Outcome>,
}

impl Run {
    /// Begins a run. The effects perform the nodes without incoming edges, or finish the run if it has no nodes.
    pub fn start(plan: Arc<Plan>, execution: ExecutionId) -> (Run, Vec<Effect>) {
        Self::resume(plan, execution, None, [], [])
    }

    /// Resumes a run from its stored nodes: the settled ones in the order in which they settled, then the
    /// open ones. A node that was in flight is performed again under the same attempt, because a crash is
    /// not a failure of the node. A node that may be performed at most once becomes UNKNOWN instead. A
    /// waiting node gives no effect: the time of its next attempt is stored. Then the shell sends
    /// `orchestration::Event::Due`, and `orchestration` makes it `RetryDue`.
    ///
    /// The caller must pass `stop` if the run was stopped: a run whose nodes were all canceled would otherwise
    /// look completed. A stopped run performs no node again. A node that was in flight gets the effect `Abort`;
    /// a shell that is not performing this node sends `Aborted` immediately.
    pub fn resume(
        plan: Arc<Plan>,
        execution: ExecutionId,
        stop: Option<Stop>,
        settled: impl IntoIterator<Item = (NodeIx, node::NodeEnd)>,
        open: impl IntoIterator<Item = OpenNode>,
    ) -> (Run, Vec<Effect>) {
        let states = AttemptStates::new(plan.nodes().len());
        let unsettled = plan.nodes().iter().map(|node| node.incoming.len()).collect();
        let mut run = Run { plan, execution, states, unsettled, first_failed: None, stop: None, finished: None };
        let mut effects = Vec::new();
        for (node, end) in settled {
            if !matches!(run.state(node), AttemptState::Settled(_)) {
                run.order(node, AttemptEffect::Settle(end), &mut Vec::new());
            }
        }
        for OpenNode { node, attempt, waiting } in open {
            if *run.state(node) != AttemptState::Pending {
                continue;
            }
            run.states
                .set(node, if waiting { AttemptState::Waiting { attempt } } else { AttemptState::Running { attempt } });
            let terms = AttemptRules { stopped: stop.is_some(), ..run.terms(node) };
            if let Some(order) = Some(terms).filter(|_| !waiting).and_then(|terms| terms.resume(attempt)) {
                run.order(node, order, &mut effects);
            }
        }
        if let Some(stop) = stop {
            run.stop(stop, &mut effects);
        }
        let ready: Vec<NodeIx> = (0..run.states.all().len()).filter(|node| run.is_due(*node)).collect();
        run.advance(ready, &mut effects);
        run.finish_if_done(&mut effects);
        (run, effects)
    }

    /// Applies an event and returns the effects to carry out.
    pub fn apply(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.finished.is_some() {
            return effects;
        }
        match event {
            Event::Node(node, fact) => {
                let Some(order) = self.terms(node).decide(self.state(node), fact) else { return effects };
                let settles = matches!(order, AttemptEffect::Settle(_));
                self.order(node, order, &mut effects);
                if settles {
                    let next = self.plan.node(node).successors.clone();
                    self.advance(next, &mut effects);
                }
            }
            Event::Stopped(stop) => self.stop(stop, &mut effects),
        }
        self.finish_if_done(&mut effects);
        effects
    }

    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The node's key, for people and for the store.
    pub fn key(&self, node: NodeIx) -> &NodeKey {
        &self.plan.node(node).key
    }

    /// How the run ended; none if it has not ended.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.finished.as_ref()
    }

    /// How the node ended; none if it has not settled.
    pub fn end(&self, node: NodeIx) -> Option<&node::NodeEnd> {
        match self.state(node) {
            AttemptState::Settled(end) => Some(end),
            _ => None,
        }
    }

    /// Did a node end UNKNOWN?
    pub fn has_unknown_node(&self) -> bool {
        self.states.all().contains(&AttemptState::Settled(node::NodeEnd::Lost))
    }

    /// Is an attempt of the node in flight?
    pub fn is_running(&self, node: NodeIx) -> bool {
        matches!(self.state(node), AttemptState::Running { .. })
    }

    /// The attempt that the node waits to begin; none if the node does not wait.
    pub fn waits_for(&self, node: NodeIx) -> Option<u32> {
        self.state(node).waits_for()
    }

    fn state(&self, node: NodeIx) -> &AttemptState {
        &self.states.all()[node]
    }

    fn terms(&self, node: NodeIx) -> AttemptRules<'_> {
        let PlanNode { key, retry, delivery, on_error, .. } = self.plan.node(node);
        let (execution, stopped) = (self.execution, self.stop.is_some());
        let (retry, delivery, on_error) = (*retry, *delivery, *on_error);
        AttemptRules { execution, key, iteration: 0, retry, delivery, on_error, stopped, ending: stopped }
    }

    fn stop(&mut self, stop: Stop, effects: &mut Vec<Effect>) {
        if self.stop.is_some() {
            return;
        }
        self.stop = Some(stop);
        for node in 0..self.states.all().len() {
            let order = match self.state(node) {
                AttemptState::Pending | AttemptState::Waiting { .. } => AttemptEffect::Settle(node::NodeEnd::Canceled),
                AttemptState::Running { .. } => AttemptEffect::Abort,
                AttemptState::Settled(_) => continue,
            };
            self.order(node, order, effects);
        }
    }

    /// Starts or skips every candidate whose preceding nodes have all settled. The successors of a skipped node become
    /// candidates too.
    fn advance(&mut self, candidates: Vec<NodeIx>, effects: &mut Vec<Effect>) {
        let mut candidates = std::collections::VecDeque::from(candidates);
        while let Some(node) = candidates.pop_front() {
            if !self.is_due(node) {
                continue;
            }
            if self.may_start(node) {
                self.order(node, AttemptEffect::Perform { attempt: 1 }, effects);
            } else {
                self.order(node, AttemptEffect::Settle(node::NodeEnd::Skipped), effects);
                candidates.extend(self.plan.node(node).successors.iter().copied());
            }
        }
    }

    fn order(&mut self, node: NodeIx, order: AttemptEffect, effects: &mut Vec<Effect>) {
        self.states.apply(node, &order);
        if let AttemptEffect::Settle(end) = &order {
            let fails = matches!(end, node::NodeEnd::Failed { continues: false } | node::NodeEnd::Lost);
            self.first_failed = self.first_failed.or(fails.then_some(node));
            let plan = Arc::clone(&self.plan);
            for &to in &plan.node(node).successors {
                self.unsettled[to] -= plan.node(to).incoming.iter().filter(|edge| edge.from == node).count();
            }
        }
        effects.push(Effect::Node(node, order));
    }

    fn is_due(&self, node: NodeIx) -> bool {
        self.stop.is_none() && *self.state(node) == AttemptState::Pending && self.unsettled[node] == 0
    }

    fn may_start(&self, node: NodeIx) -> bool {
        let this = self.plan.node(node);
        let mut taken = this.incoming.iter().map(|edge| self.is_taken(edge.from, edge.label.as_ref()));
        match this.join {
            Join::AllSuccess => taken.all(|taken| taken),
            Join::AnySuccess => this.incoming.is_empty() || taken.any(|taken| taken),
            Join::AllDone => {
                let skipped = |from: NodeIx| self.end(from) == Some(&node::NodeEnd::Skipped);
                this.incoming.is_empty() || !this.incoming.iter().all(|edge| skipped(edge.from))
            }
        }
    }

    fn is_taken(&self, from: NodeIx, label: Option<&Label>) -> bool {
        self.end(from).is_some_and(|end| end.takes(label))
    }

    fn finish_if_done(&mut self, effects: &mut Vec<Effect>) {
        if self.finished.is_some() || self.states.open > 0 {
            return;
        }
        let settled = self.states.all().iter().all(|state| matches!(state, AttemptState::Settled(_)));
        let outcome = match (self.stop, self.first_failed) {
            _ if !settled => Outcome::Stalled,
            (Some(Stop::Cancel), _) => Outcome::Canceled,
            (Some(Stop::Deadline), _) => Outcome::TimedOut,
            (None, Some(node)) => Outcome::Failed { node },
            (None, None) => Outcome::Completed,
        };
        self.finished = Some(outcome.clone());
        effects.push(Effect::Finish(outcome));
    }
}
