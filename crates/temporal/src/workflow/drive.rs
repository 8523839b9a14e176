//! Carries out what the kernel orders of one run, and tells it what came of it.
//!
//! Invariants
//! - Nodes settle in the order in which the embedded engine settles them; what a stop aborts, in the plan's order.
//! - A bounded number of nodes is in flight; what is only waiting does not count.
//! - A run is continued as new only when no call in flight would be lost by it. What waits, for a time or for an answer, is taken up
//!   by the next history from its row, and so are children, which go on meanwhile.
//!
//! Not here: beginning what is ready (`begin`), children (`children`), what follows from news (`news`), loops (`loops`), what is asked (`asks`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, select_all};
use kernel::definition::Manner;
use kernel::definition::plan::NodeIx;
use kernel::ids::{NodeKey, ProcessId};
use kernel::run::each::{self, Each};
use kernel::run::node::{self, Status};
use kernel::run::{Effect, Event, Open, Outcome, Run, Stop};
use store::run::attempt::Hold;
use temporalio_sdk::{TimerResult, WorkflowCancellationToken, WorkflowContext, WorkflowTermination};

use super::asks::Asks;
use super::news::News;
use super::{WorkflowOrchestration, options};
use crate::activities::Kit;
use crate::message::{Granted, Input, LoopEnd, Order, Shape, ShapeNode, Step, Stepped};
#[cfg(feature = "testing")]
use crate::testing;

/// How many nodes of one run may be in flight at once, as with the embedded engine; Temporal's own wall is at 2,000.
const IN_FLIGHT: usize = 64;
/// The most light nodes of one step.
const COMPUTED: usize = 100;
/// A history this long begins nothing more until it can be continued as new. Temporal ends it at 51,200.
const LONG: u32 = 20_000;
/// The same in quarters of that, while an activity of the user's own is in flight: no other history can take it over, and it may take days.
const LONGER: u32 = 9;

/// How a run left this history.
pub(super) enum Left {
    Over(Outcome),
    /// It is another's by now, or over.
    Lost,
    /// Goes on in a new one.
    Continues,
}

/// What is performed: a node, or one item of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At {
    pub(super) node: NodeIx,
    /// 0 is the node itself.
    pub(super) iteration: i32,
}

/// What is to be carried out: for the run, or for a loop of it.
pub(super) enum Ordered {
    Run(Effect),
    Each(NodeIx, each::Effect),
}

pub(super) struct Driver<'a> {
    pub(super) context: &'a WorkflowContext<WorkflowOrchestration>,
    pub(super) hold: Hold,
    pub(super) shape: Shape,
    pub(super) heartbeat: Duration,
    pub(super) deadline: Duration,
    run: Run,
    pub(super) effects: VecDeque<Ordered>,
    /// Settled and stored by whoever performed it.
    pub(super) stored: BTreeSet<At>,
    /// To be stored, in this order.
    pub(super) orders: Vec<Order>,
    /// Ready to be performed, once there is room.
    pub(super) ready: VecDeque<At>,
    /// What is waited for.
    pub(super) news: Vec<LocalBoxFuture<'a, News<'a>>>,
    pub(super) calling: BTreeMap<At, WorkflowCancellationToken>,
    pub(super) waiting: BTreeMap<At, WorkflowCancellationToken>,
    /// Of those, the ones whose child runs by itself.
    pub(super) attached: BTreeSet<At>,
    /// Begun by an earlier history, and not yet here: what they made is found before they are stopped.
    pub(super) resumed: BTreeSet<At>,
    /// Stopped; told to the kernel when nothing is in flight any more.
    pub(super) aborted: BTreeSet<At>,
    /// To be performed one by one: a step looked at them, and left them.
    pub(super) single: BTreeSet<At>,
    pub(super) loops: BTreeMap<NodeIx, Each>,
    /// Loops that are over, and how.
    pub(super) over: BTreeMap<NodeIx, LoopEnd>,
    pub(super) asks: Asks,
    outcome: Option<Outcome>,
    /// It runs longer than it may.
    pub(super) overdue: bool,
    /// It is to end early.
    pub(super) stopped: bool,
    /// Its children go on in its next history.
    pub(super) outlived: bool,
    pub(super) lost: bool,
}

impl<'a> Driver<'a> {
    pub(super) fn new(
        context: &'a WorkflowContext<WorkflowOrchestration>,
        owner: ProcessId,
        granted: Granted,
        input: &Input,
    ) -> Result<Driver<'a>, String> {
        let Input { execution_id: execution, inherits, outlived, .. } = *input;
        let plan = Arc::new(granted.shape.plan()?);
        let end = |node: NodeIx, status, label| node::End::stored(status, label, plan.nodes().get(node)?.on_error);
        let settled = granted.settled.into_iter();
        let settled: Vec<_> =
            settled.filter_map(|(node, status, label)| Some((node, end(node, status, label)?))).collect();
        // A node that waits for its next attempt is performed like any other: its row keeps the time.
        let resumed = granted.open.iter().filter(|node| granted.shape.nodes[**node].kind.makes_more());
        let resumed = resumed.map(|node| At { node: *node, iteration: 0 }).collect();
        let open = granted.open.into_iter().map(|node| Open { node, attempt: 1, waiting: false });
        // A deadline that is its parent's comes from there.
        let overdue = granted.deadline_ms == 0 && !inherits;
        let stop = if granted.canceling { Some(Stop::Cancel) } else { overdue.then_some(Stop::Deadline) };
        let (run, effects) = Run::resume(plan, execution, stop, settled, open);
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
            run,
            effects: effects.into_iter().map(Ordered::Run).collect(),
            stored: BTreeSet::new(),
            orders: Vec::new(),
            ready: VecDeque::new(),
            news,
            calling: BTreeMap::new(),
            waiting: BTreeMap::new(),
            attached: BTreeSet::new(),
            resumed,
            aborted: BTreeSet::new(),
            single: BTreeSet::new(),
            loops: BTreeMap::new(),
            over: BTreeMap::new(),
            asks: Asks::default(),
            outcome: None,
            overdue,
            stopped: stop.is_some(),
            outlived,
            lost: false,
        })
    }

    pub(super) fn hold(&self) -> Hold {
        self.hold
    }

    /// Every node with how it ended.
    pub(super) fn ends(&self) -> impl Iterator<Item = (NodeKey, Status)> + '_ {
        let end = |node| (self.run.key(node).clone(), self.run.end(node).map_or(Status::Pending, node::End::status));
        (0..self.run.plan().nodes().len()).map(end)
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
            } else if self.may_continue() && self.is_long() {
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

    /// Is it time for a new history? A cluster may be set to suggest it later than anything is begun here.
    fn is_long(&self) -> bool {
        self.context.continue_as_new_suggested() || !self.may_begin()
    }

    /// May another history go on with it? Not while a call is in flight, nor while a child is being stopped.
    fn may_continue(&self) -> bool {
        let attached = || self.calling.keys().all(|at| self.attached.contains(at));
        self.calling.is_empty() || (self.outlived && !self.stopped && attached())
    }

    /// Is there room in this history for more?
    pub(super) fn may_begin(&self) -> bool {
        let foreign = || self.outlived && self.calling.keys().any(|at| self.shape(*at).activity.is_some());
        let length = self.context.history_length();
        length < long() || (foreign() && length < long() / 4 * LONGER)
    }

    /// What is performed there.
    pub(super) fn shape(&self, at: At) -> &ShapeNode {
        let node = &self.shape.nodes[at.node];
        if at.iteration == 0 { node } else { node.does.as_deref().unwrap_or(node) }
    }

    pub(super) fn apply(&mut self, event: Event) {
        self.stopped |= matches!(event, Event::CancelRequested | Event::DeadlinePassed);
        self.effects.extend(self.run.apply(event).into_iter().map(Ordered::Run));
    }

    fn carry_out(&mut self) {
        while let Some(ordered) = self.effects.pop_front() {
            match ordered {
                Ordered::Run(effect) => self.carry_out_for_the_run(effect),
                Ordered::Each(node, effect) => self.carry_out_for_a_loop(node, effect),
            }
        }
    }

    fn carry_out_for_the_run(&mut self, effect: Effect) {
        match effect {
            Effect::Settle { node, end } => {
                let status = end.status();
                #[cfg(feature = "testing")]
                let status = match status {
                    Status::Skipped if testing::is(testing::Mutant::CancelsSkips) => Status::Canceled,
                    status => status,
                };
                if !self.stored.remove(&At { node, iteration: 0 }) {
                    self.orders.push(Order::Settle { node, iteration: 0, status });
                }
            }
            Effect::Perform { node, .. } => self.ready.push_back(At { node, iteration: 0 }),
            Effect::Abort { node } if self.loops.contains_key(&node) => self.apply_each(node, each::Event::Stop),
            Effect::Abort { node } => self.abort(At { node, iteration: 0 }),
            // Attempts are counted by whoever performs the node: the run hears how it settled.
            Effect::Wait { .. } => {}
            Effect::Finish(outcome) => self.outcome = Some(outcome),
        }
    }

    fn is_light(&self, at: At) -> bool {
        let shape = self.shape(at);
        (shape.kind.manner() == Manner::Computes || shape.conditional) && !self.single.contains(&at)
    }

    /// Stores what settled, and computes what is ready and light, in one local activity.
    async fn step(&mut self) -> Result<(), WorkflowTermination> {
        let room = if self.may_begin() { COMPUTED } else { 0 };
        let light: Vec<At> = self.ready.iter().copied().filter(|at| self.is_light(*at)).take(room).collect();
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
        while self.calling.len() < IN_FLIGHT && self.may_begin() {
            let Some(at) = self.next_ready() else { return };
            self.begin(at);
        }
    }

    fn next_ready(&mut self) -> Option<At> {
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
    return testing::long().unwrap_or(LONG);
    #[cfg(not(feature = "testing"))]
    LONG
}
