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
//! Not here: storing, performing, keeping time (the shells), whether a failure is worth another
//! try (`failure`), the graph's shape (`plan`).

pub mod crash;
pub mod each;
pub mod failure;
pub mod node;
pub mod reconcile;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::definition::plan::{NodeIx, Plan};
use crate::definition::{Delivery, Join, OnError};
use crate::ids::{ExecutionId, Label, NodeKey};
use crate::run::failure::Failure;

/// A fact about a run, in the past tense. A node's fact says of which attempt, so that one that
/// comes late or twice is told from news of the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The node's work is done; a branching node says which label it took.
    NodeSucceeded { node: NodeIx, attempt: u32, took: Option<Label> },
    /// One attempt at the node failed.
    NodeFailed { node: NodeIx, attempt: u32, failure: Failure },
    /// The node's own condition does not hold: it is not performed.
    NodeSkipped { node: NodeIx, attempt: u32 },
    /// The wait before this attempt at the node is over.
    RetryDue { node: NodeIx, attempt: u32 },
    /// It failed and is tried again after that wait, and that is stored: whoever performed it kept its attempts itself.
    RetryStored { node: NodeIx, attempt: u32, wait: Duration },
    /// The node settled so, and that is stored: whoever performed it kept its attempts itself.
    NodeSettled { node: NodeIx, end: node::End },
    /// A node in flight was stopped before it had a result. `begun`: something may have been done for it.
    NodeAborted { node: NodeIx, begun: bool },
    /// Somebody wants the execution to end early.
    CancelRequested,
    /// The execution may not run any longer.
    DeadlinePassed,
}

/// An order to the shell, in the imperative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Record the node's end.
    Settle { node: NodeIx, end: node::End },
    /// Do the node's work.
    Perform { node: NodeIx, attempt: u32 },
    /// Record that the node waits for this attempt, and say `RetryDue` when the wait is over.
    Wait { node: NodeIx, attempt: u32, wait: Duration },
    /// Stop the node's work, and say `NodeAborted` (or how it ended).
    Abort { node: NodeIx },
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

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Pending,
    Running { attempt: u32 },
    Waiting { attempt: u32 },
    Settled(node::End),
}

/// The machine of one execution.
#[derive(Clone, Debug)]
pub struct Run {
    plan: Arc<Plan>,
    execution: ExecutionId,
    states: Vec<State>,
    /// How many incoming edges of each node have an unsettled source.
    unsettled: Vec<usize>,
    /// How many nodes are in flight or waiting for an attempt.
    open: usize,
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
    /// flight is to be aborted, and a shell that does not perform it says `NodeAborted` at once.
    pub fn resume(
        plan: Arc<Plan>,
        execution: ExecutionId,
        stop: Option<Stop>,
        settled: impl IntoIterator<Item = (NodeIx, node::End)>,
        open: impl IntoIterator<Item = Open>,
    ) -> (Run, Vec<Effect>) {
        let mut run = Run::blank(plan, execution);
        for (node, end) in settled {
            if !matches!(run.states[node], State::Settled(_)) {
                run.mark(node, end);
            }
        }
        let mut effects = Vec::new();
        for Open { node, attempt, waiting } in open {
            if run.states[node] != State::Pending {
                continue;
            }
            run.open += 1;
            if waiting {
                run.states[node] = State::Waiting { attempt };
                continue;
            }
            run.states[node] = State::Running { attempt };
            if run.plan.node(node).delivery == Delivery::AtMostOnce {
                effects.push(Effect::Settle { node, end: node::End::Lost });
                run.mark(node, node::End::Lost);
                continue;
            }
            if stop.is_none() {
                effects.push(Effect::Perform { node, attempt });
            }
        }
        if let Some(stop) = stop {
            run.stop(stop, &mut effects);
        }
        let ready: Vec<NodeIx> = (0..run.states.len()).filter(|node| run.is_due(*node)).collect();
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
            Event::NodeSucceeded { node, attempt, took } if self.is_in(node, attempt) => {
                self.settle(node, node::End::Completed { took }, &mut effects);
            }
            Event::NodeFailed { node, attempt, failure } if self.is_in(node, attempt) => {
                self.failed(node, attempt, &failure, &mut effects);
            }
            Event::NodeSkipped { node, attempt } if self.is_in(node, attempt) => {
                self.settle(node, node::End::Skipped, &mut effects);
            }
            Event::RetryStored { node, attempt, wait } if self.is_open(node) => {
                self.retry(node, attempt, Some(wait), &mut effects);
            }
            Event::NodeSettled { node, end } if self.is_open(node) => self.settle(node, end, &mut effects),
            Event::NodeAborted { node, begun } if self.stop.is_some() && self.is_running(node) => {
                let once = self.plan.node(node).delivery == Delivery::AtMostOnce;
                let end = if begun && once { node::End::Lost } else { node::End::Canceled };
                self.settle(node, end, &mut effects);
            }
            Event::RetryDue { node, attempt } if self.states[node] == (State::Waiting { attempt }) => {
                self.states[node] = State::Running { attempt };
                effects.push(Effect::Perform { node, attempt });
            }
            Event::CancelRequested => self.stop(Stop::Cancel, &mut effects),
            Event::DeadlinePassed => self.stop(Stop::Deadline, &mut effects),
            // Old news.
            _ => {}
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
        match &self.states[node] {
            State::Settled(end) => Some(end),
            _ => None,
        }
    }

    /// Is it not known of one of its nodes whether it took effect?
    pub fn has_lost(&self) -> bool {
        self.states.contains(&State::Settled(node::End::Lost))
    }

    /// Is the node's work being done?
    pub fn is_running(&self, node: NodeIx) -> bool {
        matches!(self.states[node], State::Running { .. })
    }

    /// Does the node wait for its next attempt, rather than being in one?
    pub fn is_waiting(&self, node: NodeIx) -> bool {
        matches!(self.states[node], State::Waiting { .. })
    }

    fn is_in(&self, node: NodeIx, attempt: u32) -> bool {
        self.states[node] == (State::Running { attempt })
    }

    fn is_open(&self, node: NodeIx) -> bool {
        matches!(self.states[node], State::Running { .. } | State::Waiting { .. })
    }

    fn blank(plan: Arc<Plan>, execution: ExecutionId) -> Run {
        let states = vec![State::Pending; plan.nodes().len()];
        let unsettled = plan.nodes().iter().map(|node| node.incoming.len()).collect();
        Run { plan, execution, states, unsettled, open: 0, first_failed: None, stop: None, finished: None }
    }

    fn failed(&mut self, node: NodeIx, attempt: u32, failure: &Failure, effects: &mut Vec<Effect>) {
        if failure.leaves() == node::Status::Unknown {
            return self.settle(node, node::End::Lost, effects);
        }
        let this = self.plan.node(node);
        let wait = this.retry.wait_after(failure, attempt, self.execution, &this.key);
        self.retry(node, attempt + 1, wait, effects);
    }

    /// A node that failed waits for its next attempt, if it has one and the run goes on.
    fn retry(&mut self, node: NodeIx, attempt: u32, wait: Option<Duration>, effects: &mut Vec<Effect>) {
        match wait.filter(|_| self.stop.is_none()) {
            Some(wait) => {
                self.states[node] = State::Waiting { attempt };
                effects.push(Effect::Wait { node, attempt, wait });
            }
            None => {
                let continues = self.plan.node(node).on_error == OnError::Continue;
                self.settle(node, node::End::Failed { continues }, effects);
            }
        }
    }

    fn stop(&mut self, stop: Stop, effects: &mut Vec<Effect>) {
        if self.stop.is_some() {
            return;
        }
        self.stop = Some(stop);
        for node in 0..self.states.len() {
            match self.states[node] {
                State::Pending | State::Waiting { .. } => {
                    effects.push(Effect::Settle { node, end: node::End::Canceled });
                    self.mark(node, node::End::Canceled);
                }
                State::Running { .. } => effects.push(Effect::Abort { node }),
                State::Settled(_) => {}
            }
        }
    }

    fn settle(&mut self, node: NodeIx, end: node::End, effects: &mut Vec<Effect>) {
        effects.push(Effect::Settle { node, end: end.clone() });
        self.mark(node, end);
        let next = self.plan.node(node).successors.clone();
        self.advance(next, effects);
    }

    /// Starts or skips every candidate whose incoming edges are all settled; skips spread.
    fn advance(&mut self, candidates: Vec<NodeIx>, effects: &mut Vec<Effect>) {
        let mut candidates = std::collections::VecDeque::from(candidates);
        while let Some(node) = candidates.pop_front() {
            if !self.is_due(node) {
                continue;
            }
            if self.may_start(node) {
                self.open += 1;
                self.states[node] = State::Running { attempt: 1 };
                effects.push(Effect::Perform { node, attempt: 1 });
            } else {
                effects.push(Effect::Settle { node, end: node::End::Skipped });
                self.mark(node, node::End::Skipped);
                candidates.extend(self.plan.node(node).successors.iter().copied());
            }
        }
    }

    fn mark(&mut self, node: NodeIx, end: node::End) {
        if self.is_open(node) {
            self.open -= 1;
        }
        let fails = matches!(end, node::End::Failed { continues: false } | node::End::Lost);
        if fails && self.first_failed.is_none() {
            self.first_failed = Some(node);
        }
        self.states[node] = State::Settled(end);
        let plan = Arc::clone(&self.plan);
        for &to in &plan.node(node).successors {
            self.unsettled[to] -= plan.node(to).incoming.iter().filter(|edge| edge.from == node).count();
        }
    }

    fn is_due(&self, node: NodeIx) -> bool {
        self.stop.is_none() && self.states[node] == State::Pending && self.unsettled[node] == 0
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
        if self.finished.is_some() || self.open > 0 {
            return;
        }
        let settled = self.states.iter().all(|state| matches!(state, State::Settled(_)));
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
