//! Carries out the kernel's effects for one run, and returns events to the kernel.
//!
//! Invariants
//! - Nodes settle in the same order as in the embedded engine. Nodes that a stop aborts settle in the plan's order.
//! - The kernel decides what may begin, and when this history is continued as new (`capacity`, `history`).
//!
//! Not here: starting ready nodes (`begin`), children (`children`), handling events (`events`), waits (`waits`), rules
//! (`kernel::orchestration`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, select_all};
use kernel::definition::Manner;
use kernel::definition::plan::NodeIx;
use kernel::ids::{NodeKey, ProcessId};
use kernel::orchestration::ahead::{Ahead, Foresight};
use kernel::orchestration::capacity::{Need, RunLoad};
use kernel::orchestration::history::{self, History};
use kernel::orchestration::{Effect, Event, Orchestration, Target, TargetState};
use kernel::run::item_loop::Index;
use kernel::run::node::{self, Status};
use kernel::run::{Outcome, Stop};
use store::run::attempt::Ownership;
use temporalio_sdk::{TimerResult, WorkflowCancellationToken, WorkflowContext, WorkflowTermination};

use super::events::WorkflowEvent;
use super::waits::WaitChecks;
use super::{WorkflowOrchestration, options};
use crate::activities::RunActivities;
use crate::message::{
    CompletedRun, GraphNode, GraphShape, Input, MAX_COMPUTED, RunState, StepAction, StepRequest, StepResult,
};
#[cfg(feature = "testing")]
use crate::testing;

/// Why a run leaves this history.
pub(super) enum DriveEnd {
    Over(Outcome),
    /// The run has ended, or another run performs the execution.
    Lost,
    /// The run continues in a new history.
    Continues,
}

pub(super) struct WorkflowDriver<'a> {
    pub(super) context: &'a WorkflowContext<WorkflowOrchestration>,
    pub(super) hold: Ownership,
    pub(super) shape: GraphShape,
    pub(super) heartbeat: Duration,
    pub(super) deadline: Duration,
    pub(super) machine: Orchestration,
    effects: VecDeque<Effect>,
    /// Nodes whose end an activity has already stored.
    pub(super) stored: BTreeSet<Target>,
    /// The actions of the next step, in this order.
    pub(super) actions: Vec<StepAction>,
    /// Nodes that are ready to be performed, once there is room.
    pub(super) ready: VecDeque<Target>,
    /// The events that are awaited.
    pub(super) events: Vec<LocalBoxFuture<'a, WorkflowEvent<'a>>>,
    pub(super) in_flight: BTreeMap<Target, WorkflowCancellationToken>,
    pub(super) waiting: BTreeMap<Target, WorkflowCancellationToken>,
    /// Stopped nodes. They are reported to the kernel when no work is in flight.
    pub(super) aborted: BTreeSet<Target>,
    /// Light nodes that a step could not finish. Each gets its own activity.
    pub(super) perform_alone: BTreeSet<Target>,
    /// Loops that are over and whose outputs must be collected, with the item that failed the loop, if one did.
    pub(super) collecting: BTreeMap<NodeIx, Option<Index>>,
    pub(super) waits: WaitChecks,
    outcome: Option<Outcome>,
    /// The end of the run, if an activity has recorded it.
    pub(super) completed: Option<CompletedRun>,
    pub(super) lost: bool,
}

impl<'a> WorkflowDriver<'a> {
    pub(super) fn new(
        context: &'a WorkflowContext<WorkflowOrchestration>,
        owner: ProcessId,
        state: RunState,
        input: &Input,
    ) -> Result<WorkflowDriver<'a>, String> {
        let Input { execution_id: execution, inherits, .. } = *input;
        let plan = Arc::new(state.shape.plan()?);
        #[cfg(feature = "testing")]
        let state = RunState { nodes: state.nodes.into_iter().map(testing::bent_snapshot).collect(), ..state };
        let stop = Stop::at_resume(state.canceling, state.deadline_ms == 0, inherits);
        let (machine, effects) = Orchestration::resume(plan, execution, stop, state.nodes);
        let deadline = Duration::from_millis(state.deadline_ms);
        let canceled = context.cancelled().map(WorkflowEvent::CancelRequested);
        let mut events = vec![canceled.boxed_local()];
        if !inherits {
            let expiry = context.timer(options::timer(deadline, &WorkflowCancellationToken::new()));
            let expiry = expiry.map(|result| match result {
                TimerResult::Fired => WorkflowEvent::DeadlinePassed,
                TimerResult::Cancelled => WorkflowEvent::TimerCanceled,
            });
            events.push(expiry.boxed_local());
        }
        Ok(WorkflowDriver {
            context,
            hold: Ownership { execution, owner, epoch: state.epoch },
            shape: state.shape,
            heartbeat: Duration::from_millis(state.heartbeat_ms),
            deadline,
            machine,
            effects: effects.into(),
            stored: BTreeSet::new(),
            actions: Vec::new(),
            ready: VecDeque::new(),
            events,
            in_flight: BTreeMap::new(),
            waiting: BTreeMap::new(),
            aborted: BTreeSet::new(),
            perform_alone: BTreeSet::new(),
            collecting: BTreeMap::new(),
            waits: WaitChecks::default(),
            outcome: None,
            completed: None,
            lost: false,
        })
    }

    /// Every node with its status at the end of the run.
    pub(super) fn ends(&self) -> impl Iterator<Item = (NodeKey, Status)> + '_ {
        let run = self.machine.run();
        let end = |node| (run.key(node).clone(), run.end(node).map_or(Status::Pending, node::NodeEnd::status));
        (0..run.plan().nodes().len()).map(end)
    }

    /// Drives the run until it is over, lost, or must continue in a new history.
    pub(super) async fn drive(&mut self) -> Result<DriveEnd, WorkflowTermination> {
        loop {
            self.carry_out();
            if self.lost {
                if self.in_flight.is_empty() && self.waiting.is_empty() {
                    return Ok(DriveEnd::Lost);
                }
            } else if !self.actions.is_empty() || (self.may_begin() && self.ready.iter().any(|at| self.is_light(*at))) {
                self.step().await?;
                continue;
            } else if self.waits.due && self.machine.open_waits().next().is_some() {
                self.check_waits().await?;
                continue;
            } else if let Some(outcome) = self.outcome.take() {
                return Ok(DriveEnd::Over(outcome));
            } else if self.history().should_continue_as_new() {
                return Ok(DriveEnd::Continues);
            } else {
                self.start_ready();
                self.listen_for_answers();
            }
            let (event, _, rest) = select_all(std::mem::take(&mut self.events)).await;
            self.events = rest;
            self.handle_event(event);
        }
    }

    /// True if this history may begin another node.
    pub(super) fn may_begin(&self) -> bool {
        self.history().may_begin()
    }

    fn history(&self) -> History {
        let children = self.in_flight.keys().filter(|at| self.machine.state(**at) == Some(TargetState::Child)).count();
        History {
            length: self.context.history_length(),
            long: long(),
            suggested: self.context.continue_as_new_suggested(),
            calls: self.in_flight.len() - children,
            foreign: self.in_flight.keys().any(|at| self.shape(*at).activity.is_some()),
            children,
            stopped: self.machine.stop().is_some(),
        }
    }

    /// The graph node to perform: the node itself, or the action of a loop.
    pub(super) fn shape(&self, at: Target) -> &GraphNode {
        self.shape.node(at)
    }

    pub(super) fn apply(&mut self, event: Event) {
        self.effects.extend(self.machine.apply(event));
    }

    pub(super) fn enter(&mut self, at: Target, state: TargetState) {
        self.apply(Event::Entered { at, state });
    }

    fn carry_out(&mut self) {
        while let Some(effect) = self.effects.pop_front() {
            match effect {
                Effect::Settle { at, end } => self.settle(at, end.status()),
                Effect::Perform { at, .. } => self.ready.push_back(at),
                Effect::Wait { at, wait, .. } => self.start_timer(at, wait, WorkflowEvent::Aborted(at)),
                Effect::CheckWait { at } => self.waits.check(at),
                Effect::Abort { at } | Effect::StopChild { at, .. } => self.abort(at),
                Effect::Find { at } => self.find_begun_earlier(at),
                // The loop's outputs are collected once the results of its items are stored.
                Effect::Collect { node, failed } => {
                    self.collecting.insert(node, failed);
                    self.ready.push_back(Target::node(node));
                }
                Effect::Finish(outcome) => self.outcome = Some(outcome),
            }
        }
    }

    /// Stores a node's end in the next step, unless its activity has stored it.
    fn settle(&mut self, at: Target, status: Status) {
        #[cfg(feature = "testing")]
        let status = match status {
            Status::Skipped if testing::is(testing::Mutant::CancelsSkips) => Status::Canceled,
            status => status,
        };
        if self.stored.remove(&at) {
            return;
        }
        // The node may be waiting for its next attempt. Its timer is then canceled.
        if let Some(token) = self.waiting.get(&at) {
            token.cancel();
        }
        self.actions.push(StepAction::Settle { node: at.node, iteration: at.iteration, status });
    }

    fn foresight(&self, at: Target) -> Foresight {
        if self.perform_alone.contains(&at) { Foresight::Heavy } else { self.shape(at).foresight() }
    }

    fn is_light(&self, at: Target) -> bool {
        self.foresight(at) != Foresight::Heavy
    }

    /// Stores settled nodes and computes light nodes, in one local activity: the ready ones, and those that follow them
    /// if each completes. If the run then ends, its end is recorded too.
    async fn step(&mut self) -> Result<(), WorkflowTermination> {
        let room = if self.may_begin() { MAX_COMPUTED } else { 0 };
        let Ahead { nodes, outcome } = self.machine.ahead(self.ready.iter().copied(), |at| self.foresight(at), room);
        let mut actions = std::mem::take(&mut self.actions);
        actions.extend(nodes.iter().map(|at| StepAction::Compute { node: at.node, iteration: at.iteration }));
        let step = StepRequest { hold: self.hold, actions, outcome: self.outcome.clone().or(outcome) };
        let ended = match self.context.execute_local_activity(RunActivities::step, step, options::recorded()).await? {
            StepResult::Lost => {
                self.give_up_ownership();
                return Ok(());
            }
            StepResult::Done(ended) => ended,
            StepResult::Completed { ended, completed } => {
                self.completed = Some(completed);
                ended
            }
        };
        for (at, ended) in nodes.into_iter().zip(ended) {
            // The nodes before it have settled, so it is ready.
            self.carry_out();
            self.ready.retain(|ready| *ready != at);
            self.handle_result(at, ended);
        }
        Ok(())
    }

    /// True if the run completes when this node completes, because nothing else is open.
    pub(super) fn is_last(&self, at: Target) -> bool {
        let alone = self.in_flight.is_empty() && self.waiting.is_empty() && self.ready.is_empty();
        alone && self.machine.outcome_after(at) == Some(Outcome::Completed)
    }

    /// Starts ready nodes, as far as there is room.
    fn start_ready(&mut self) {
        while let Some(at) = self.next_ready() {
            self.begin(at);
        }
    }

    /// The first ready node for which there is room.
    fn next_ready(&mut self) -> Option<Target> {
        let history = self.history();
        let (in_flight, children) = (history.calls, history.children);
        let load = RunLoad { in_flight, children, computing: 0, ending: !history.may_begin() };
        let is_admitted = |at: &Target| match self.shape(*at).kind.manner() {
            Manner::Spawns => load.admits(Need::Child),
            _ => load.admits(Need::InFlight),
        };
        let first = self.ready.iter().position(is_admitted);
        #[cfg(feature = "testing")]
        let first =
            if testing::is(testing::Mutant::Backwards) { self.ready.iter().rposition(is_admitted) } else { first };
        self.ready.remove(first?)
    }
}

/// The number of events from which a history counts as long.
fn long() -> u32 {
    #[cfg(feature = "testing")]
    return testing::long().unwrap_or(history::LONG_HISTORY);
    #[cfg(not(feature = "testing"))]
    history::LONG_HISTORY
}
