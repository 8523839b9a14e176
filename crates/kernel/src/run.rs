//! One execution in flight: event in, effects out.
//!
//!     INITIALIZING ──first node──▶ EXECUTING_NODES ──all settled──▶ COMPLETED | FAILED
//!
//! Invariants
//! - A run knows which nodes settled and how, never what they produced: it is rebuilt from stored
//!   node rows in microseconds and small enough to live inside another system's history.
//! - Old news changes nothing: an event that no longer fits gives no effects.
//! - A node starts the moment it can, never before; a settled node never starts again.
//! - `Finish` comes once, last, and only when every node is settled.
//! - Between two events a run is what its stored rows say: taken up again, it goes on the same way.
//!
//! Not here: storing, performing, keeping time (the shells), what a fact means for one node (`attempts`), whether a
//! failure is worth another try (`failure`), the graph's shape (`plan`).

pub mod attempts;
pub mod crash;
pub mod each;
pub mod failure;
pub mod node;
pub mod reconcile;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::definition::Join;
use crate::definition::plan::{NodeIx, Plan, PlanNode};
use crate::ids::{ExecutionId, Label, NodeKey};
use crate::run::attempts::{Fact, Order, State, States, Terms};

/// A fact about a run, in the past tense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Node(NodeIx, Fact),
    /// The execution is to end early.
    Stopped(Stop),
}

/// An order to the shell, in the imperative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Node(NodeIx, Order),
    /// The run is over.
    Finish(Outcome),
}

/// How an execution ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    Completed,
    /// The first node whose failure failed it.
    Failed {
        node: NodeIx,
    },
    Canceled,
    TimedOut,
    /// Nothing is in flight and yet something is unsettled: a fault of ours, made visible.
    Stalled,
}

/// Where a run stands, as people are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Phase {
    Initializing,
    ExecutingNodes,
    Completed,
    Failed,
}

/// An unsettled node as it was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    pub node: NodeIx,
    pub attempt: u32,
    /// It waits for that attempt, rather than being in it.
    pub waiting: bool,
}

/// Why a run ends early. It is a fact of the execution's row: no node row tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    Cancel,
    Deadline,
}

/// The machine of one execution.
#[derive(Clone, Debug)]
pub struct Run {
    plan: Arc<Plan>,
    execution: ExecutionId,
    states: States,
    /// How many incoming edges of each node have an unsettled source.
    unsettled: Vec<usize>,
    first_failed: Option<NodeIx>,
    stop: Option<Stop>,
    finished: Option<Outcome>,
}

impl Run {
    /// Begins a run; the effects start its roots, or finish it at once if there are none.
    pub fn start(plan: Arc<Plan>, execution: ExecutionId) -> (Run, Vec<Effect>) {
        Self::resume(plan, execution, None, [], [])
    }

    /// Takes a run up where its stored nodes left it: settled ones in the order in which they
    /// settled, then the open ones. A node that was in flight is performed again, under the same
    /// attempt: a crash is nobody's failure. One that may be performed at most once is lost instead. A waiting one
    /// gives no effect: its time is stored, and the shell says `RetryDue` then.
    ///
    /// A run that was told to stop must hear it here: by its nodes alone, one whose every node was
    /// canceled looks like one that completed. Nothing is performed again then; a node that was in
    /// flight is to be aborted, and a shell that does not perform it says `Aborted` at once.
    pub fn resume(
        plan: Arc<Plan>,
        execution: ExecutionId,
        stop: Option<Stop>,
        settled: impl IntoIterator<Item = (NodeIx, node::End)>,
        open: impl IntoIterator<Item = Open>,
    ) -> (Run, Vec<Effect>) {
        let states = States::new(plan.nodes().len());
        let unsettled = plan.nodes().iter().map(|node| node.incoming.len()).collect();
        let mut run = Run { plan, execution, states, unsettled, first_failed: None, stop: None, finished: None };
        let mut effects = Vec::new();
        for (node, end) in settled {
            if !matches!(run.state(node), State::Settled(_)) {
                run.order(node, Order::Settle(end), &mut Vec::new());
            }
        }
        for Open { node, attempt, waiting } in open {
            if *run.state(node) != State::Pending {
                continue;
            }
            run.states.set(node, if waiting { State::Waiting { attempt } } else { State::Running { attempt } });
            let terms = Terms { stopped: stop.is_some(), ..run.terms(node) };
            if let Some(order) = Some(terms).filter(|_| !waiting).and_then(|terms| terms.take_up(attempt)) {
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

    /// Takes a fact in and says what to do about it.
    pub fn apply(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.finished.is_some() {
            return effects;
        }
        match event {
            Event::Node(node, fact) => {
                let Some(order) = self.terms(node).order(self.state(node), fact) else { return effects };
                let settles = matches!(order, Order::Settle(_));
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

    /// How the run ended, once it did.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.finished.as_ref()
    }

    /// The node's end, if it has settled.
    pub fn end(&self, node: NodeIx) -> Option<&node::End> {
        match self.state(node) {
            State::Settled(end) => Some(end),
            _ => None,
        }
    }

    /// Is it not known of one of its nodes whether it took effect?
    pub fn has_lost(&self) -> bool {
        self.states.all().contains(&State::Settled(node::End::Lost))
    }

    /// Is the node's work being done?
    pub fn is_running(&self, node: NodeIx) -> bool {
        matches!(self.state(node), State::Running { .. })
    }

    /// Does the node wait for its next attempt, rather than being in one?
    pub fn is_waiting(&self, node: NodeIx) -> bool {
        matches!(self.state(node), State::Waiting { .. })
    }

    fn state(&self, node: NodeIx) -> &State {
        &self.states.all()[node]
    }

    fn terms(&self, node: NodeIx) -> Terms<'_> {
        let PlanNode { key, retry, delivery, on_error, .. } = self.plan.node(node);
        let (execution, stopped) = (self.execution, self.stop.is_some());
        let (retry, delivery, on_error) = (*retry, *delivery, *on_error);
        Terms { execution, key, iteration: 0, retry, delivery, on_error, stopped, ending: stopped }
    }

    fn stop(&mut self, stop: Stop, effects: &mut Vec<Effect>) {
        if self.stop.is_some() {
            return;
        }
        self.stop = Some(stop);
        for node in 0..self.states.all().len() {
            let order = match self.state(node) {
                State::Pending | State::Waiting { .. } => Order::Settle(node::End::Canceled),
                State::Running { .. } => Order::Abort,
                State::Settled(_) => continue,
            };
            self.order(node, order, effects);
        }
    }

    /// Starts or skips every candidate whose incoming edges are all settled; skips spread.
    fn advance(&mut self, candidates: Vec<NodeIx>, effects: &mut Vec<Effect>) {
        let mut candidates = std::collections::VecDeque::from(candidates);
        while let Some(node) = candidates.pop_front() {
            if !self.is_due(node) {
                continue;
            }
            if self.may_start(node) {
                self.order(node, Order::Perform { attempt: 1 }, effects);
            } else {
                self.order(node, Order::Settle(node::End::Skipped), effects);
                candidates.extend(self.plan.node(node).successors.iter().copied());
            }
        }
    }

    fn order(&mut self, node: NodeIx, order: Order, effects: &mut Vec<Effect>) {
        self.states.follow(node, &order);
        if let Order::Settle(end) = &order {
            let fails = matches!(end, node::End::Failed { continues: false } | node::End::Lost);
            self.first_failed = self.first_failed.or(fails.then_some(node));
            let plan = Arc::clone(&self.plan);
            for &to in &plan.node(node).successors {
                self.unsettled[to] -= plan.node(to).incoming.iter().filter(|edge| edge.from == node).count();
            }
        }
        effects.push(Effect::Node(node, order));
    }

    fn is_due(&self, node: NodeIx) -> bool {
        self.stop.is_none() && *self.state(node) == State::Pending && self.unsettled[node] == 0
    }

    fn may_start(&self, node: NodeIx) -> bool {
        let this = self.plan.node(node);
        let mut taken = this.incoming.iter().map(|edge| self.is_taken(edge.from, edge.label.as_ref()));
        match this.join {
            Join::AllSuccess => taken.all(|taken| taken),
            Join::AnySuccess => this.incoming.is_empty() || taken.any(|taken| taken),
            Join::AllDone => {
                let skipped = |from: NodeIx| self.end(from) == Some(&node::End::Skipped);
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
        let settled = self.states.all().iter().all(|state| matches!(state, State::Settled(_)));
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
