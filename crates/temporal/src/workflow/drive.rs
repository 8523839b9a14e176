//! Carries out what the kernel orders of one run, and tells it what came of it.
//!
//! Invariants
//! - Nodes settle in the order in which the embedded engine settles them; what a stop aborts, in the plan's order.
//! - What is begun, and when this history is continued as new, is the kernel's to say (`room`, `history`).
//!
//! Not here: beginning what is ready (`begin`), children (`children`), what follows from news (`news`), what is asked
//! (`asks`), rules (`kernel::orchestration`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, select_all};
use kernel::definition::Manner;
use kernel::definition::plan::NodeIx;
use kernel::ids::{NodeKey, ProcessId};
use kernel::orchestration::history::{self, History};
use kernel::orchestration::room::{Load, Needs};
use kernel::orchestration::{Effect, Event, Orchestration, Row, Target};
use kernel::run::each::Index;
use kernel::run::node::{self, Status};
use kernel::run::{Outcome, Stop};
use store::run::attempt::Hold;
use temporalio_sdk::{TimerResult, WorkflowCancellationToken, WorkflowContext, WorkflowTermination};

use super::asks::Asks;
use super::news::News;
use super::{WorkflowOrchestration, options};
use crate::activities::Kit;
use crate::message::{Granted, Input, Order, Shape, ShapeNode, Step, Stepped};
#[cfg(feature = "testing")]
use crate::testing;

/// The most light nodes of one step.
const COMPUTED: usize = 100;
/// How a run left this history.
pub(super) enum Left {
    Over(Outcome),
    /// It is another's by now, or over.
    Lost,
    /// Goes on in a new one.
    Continues,
}

pub(super) struct Driver<'a> {
    pub(super) context: &'a WorkflowContext<WorkflowOrchestration>,
    pub(super) hold: Hold,
    pub(super) shape: Shape,
    pub(super) heartbeat: Duration,
    pub(super) deadline: Duration,
    pub(super) machine: Orchestration,
    effects: VecDeque<Effect>,
    /// Settled and stored by whoever performed it.
    pub(super) stored: BTreeSet<Target>,
    /// To be stored, in this order.
    pub(super) orders: Vec<Order>,
    /// Ready to be performed, once there is room.
    pub(super) ready: VecDeque<Target>,
    /// What is waited for.
    pub(super) news: Vec<LocalBoxFuture<'a, News<'a>>>,
    pub(super) calling: BTreeMap<Target, WorkflowCancellationToken>,
    pub(super) waiting: BTreeMap<Target, WorkflowCancellationToken>,
    /// Stopped; told to the kernel when nothing is in flight any more.
    pub(super) aborted: BTreeSet<Target>,
    /// To be performed one by one: a step looked at them, and left them.
    pub(super) single: BTreeSet<Target>,
    /// Loops that are over, and which item failed them: what they produced is to be gathered.
    pub(super) collecting: BTreeMap<NodeIx, Option<Index>>,
    pub(super) asks: Asks,
    outcome: Option<Outcome>,
    pub(super) lost: bool,
}

impl<'a> Driver<'a> {
    pub(super) fn new(
        context: &'a WorkflowContext<WorkflowOrchestration>,
        owner: ProcessId,
        granted: Granted,
        input: &Input,
    ) -> Result<Driver<'a>, String> {
        let Input { execution_id: execution, inherits, .. } = *input;
        let plan = Arc::new(granted.shape.plan()?);
        let settled = granted.settled.into_iter();
        let settled = settled.map(|(node, status, label)| Row { node, status, label, attempt: 0 });
        // A node that waits for its next attempt is performed like any other: its row keeps the time.
        let open = granted.open.into_iter();
        let open = open.map(|node| Row { node, status: Status::Running, label: None, attempt: 1 });
        // A deadline that is its parent's comes from there.
        let overdue = granted.deadline_ms == 0 && !inherits;
        let stop = if granted.canceling { Some(Stop::Cancel) } else { overdue.then_some(Stop::Deadline) };
        let (machine, effects) = Orchestration::resume(plan, execution, stop, settled.chain(open));
        let deadline = Duration::from_millis(granted.deadline_ms);
        let canceled = context.cancelled().map(News::CancelRequested);
        let mut news = vec![canceled.boxed_local()];
        if !inherits {
            let expiry = context.timer(options::timer(deadline, &WorkflowCancellationToken::new()));
            let expiry = expiry.map(|result| match result {
                TimerResult::Fired => News::DeadlinePassed,
                TimerResult::Cancelled => News::Nothing,
            });
            news.push(expiry.boxed_local());
        }
        Ok(Driver {
            context,
            hold: Hold { execution, owner, epoch: granted.epoch },
            shape: granted.shape,
            heartbeat: Duration::from_millis(granted.heartbeat_ms),
            deadline,
            machine,
            effects: effects.into(),
            stored: BTreeSet::new(),
            orders: Vec::new(),
            ready: VecDeque::new(),
            news,
            calling: BTreeMap::new(),
            waiting: BTreeMap::new(),
            aborted: BTreeSet::new(),
            single: BTreeSet::new(),
            collecting: BTreeMap::new(),
            asks: Asks::default(),
            outcome: None,
            lost: false,
        })
    }

    pub(super) fn hold(&self) -> Hold {
        self.hold
    }

    /// Every node with how it ended.
    pub(super) fn ends(&self) -> impl Iterator<Item = (NodeKey, Status)> + '_ {
        let run = self.machine.run();
        let end = |node| (run.key(node).clone(), run.end(node).map_or(Status::Pending, node::End::status));
        (0..run.plan().nodes().len()).map(end)
    }

    /// Drives the run until it is over, lost, or better continued elsewhere.
    pub(super) async fn drive(&mut self) -> Result<Left, WorkflowTermination> {
        loop {
            self.carry_out();
            if self.lost {
                if self.calling.is_empty() && self.waiting.is_empty() {
                    return Ok(Left::Lost);
                }
            } else if !self.orders.is_empty() || (self.may_begin() && self.ready.iter().any(|at| self.is_light(*at))) {
                self.step().await?;
                continue;
            } else if self.asks.is_due() {
                self.look().await?;
                continue;
            } else if let Some(outcome) = self.outcome.take() {
                return Ok(Left::Over(outcome));
            } else if self.history().is_to_be_continued() {
                return Ok(Left::Continues);
            } else {
                self.call();
                self.listen();
            }
            let (news, _, rest) = select_all(std::mem::take(&mut self.news)).await;
            self.news = rest;
            self.heard(news);
        }
    }

    /// Is there room in this history for more?
    pub(super) fn may_begin(&self) -> bool {
        self.history().may_begin()
    }

    fn history(&self) -> History {
        let children = self.calling.keys().filter(|at| self.machine.has_child(**at)).count();
        History {
            length: self.context.history_length(),
            long: long(),
            suggested: self.context.continue_as_new_suggested(),
            calls: self.calling.len() - children,
            foreign: self.calling.keys().any(|at| self.shape(*at).activity.is_some()),
            children,
            stopped: self.machine.stop().is_some(),
        }
    }

    /// What is performed there.
    pub(super) fn shape(&self, at: Target) -> &ShapeNode {
        let node = &self.shape.nodes[at.node];
        if at.iteration == 0 { node } else { node.does.as_deref().unwrap_or(node) }
    }

    pub(super) fn apply(&mut self, event: Event) {
        self.effects.extend(self.machine.apply(event));
    }

    fn carry_out(&mut self) {
        while let Some(effect) = self.effects.pop_front() {
            match effect {
                Effect::Settle { at, end } => self.settle(at, end.status()),
                Effect::Perform { at, .. } => self.ready.push_back(at),
                Effect::Wait { at, attempt, wait } => self.wait_for_attempt(at, attempt, wait),
                Effect::Abort { at } | Effect::StopChild { at, .. } => self.abort(at),
                Effect::Find { at } => self.find_first(at),
                // Gathered when what its items came to is stored.
                Effect::Collect { node, failed } => {
                    self.collecting.insert(node, failed);
                    self.ready.push_back(Target::node(node));
                }
                Effect::Finish(outcome) => self.outcome = Some(outcome),
            }
        }
    }

    /// Has an end stored, unless whoever performed it did.
    fn settle(&mut self, at: Target, status: Status) {
        #[cfg(feature = "testing")]
        let status = match status {
            Status::Skipped if testing::is(testing::Mutant::CancelsSkips) => Status::Canceled,
            status => status,
        };
        if self.stored.remove(&at) {
            return;
        }
        // One that is given up while it waits for its next attempt.
        if let Some(token) = self.waiting.get(&at) {
            token.cancel();
        }
        self.orders.push(Order::Settle { node: at.node, iteration: at.iteration, status });
    }

    fn is_light(&self, at: Target) -> bool {
        let shape = self.shape(at);
        (shape.kind.manner() == Manner::Computes || shape.conditional) && !self.single.contains(&at)
    }

    /// Stores what settled, and computes what is ready and light, in one local activity.
    async fn step(&mut self) -> Result<(), WorkflowTermination> {
        let room = if self.may_begin() { COMPUTED } else { 0 };
        let light: Vec<Target> = self.ready.iter().copied().filter(|at| self.is_light(*at)).take(room).collect();
        let mut orders = std::mem::take(&mut self.orders);
        orders.extend(light.iter().map(|at| Order::Compute { node: at.node, iteration: at.iteration }));
        let step = Step { hold: self.hold, orders };
        match self.context.execute_local_activity(Kit::step, step, options::surely()).await? {
            Stepped::Lost => self.lose(),
            Stepped::Done(ended) => {
                for (at, ended) in light.into_iter().zip(ended) {
                    self.ready.retain(|ready| *ready != at);
                    self.ended(at, ended);
                }
            }
        }
        Ok(())
    }

    /// Begins what is ready and calls out or waits, as far as there is room.
    fn call(&mut self) {
        loop {
            let load = Load { in_flight: self.calling.len(), computing: 0, ending: !self.may_begin() };
            if !load.admits(Needs::Flight) {
                return;
            }
            let Some(at) = self.next_ready() else { return };
            self.begin(at);
        }
    }

    fn next_ready(&mut self) -> Option<Target> {
        #[cfg(feature = "testing")]
        if testing::is(testing::Mutant::Backwards) {
            return self.ready.pop_back();
        }
        self.ready.pop_front()
    }
}

/// How long a history may become.
fn long() -> u32 {
    #[cfg(feature = "testing")]
    return testing::long().unwrap_or(history::LONG);
    #[cfg(not(feature = "testing"))]
    history::LONG
}
