//! Carries out what the kernel orders of one run, and tells it what came of it.
//!
//! Invariants
//! - Nodes settle in the order in which the embedded engine settles them; what a stop aborts, in the plan's order.
//! - A bounded number of nodes is in flight; what is only waiting does not count.
//! - A run is continued as new only when nothing in flight would be lost by it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, select_all};
use kernel::definition::Manner;
#[cfg(feature = "testing")]
use kernel::definition::OnError;
#[cfg(feature = "testing")]
use kernel::ids::Label;
use kernel::ids::{ExecutionId, NodeKey, ProcessId};
use kernel::node::{self, Status};
use kernel::plan::NodeIx;
use kernel::run::{Effect, Event, Open, Outcome, Run, Stop};
use store::taken::Hold;
use temporalio_sdk::{
    ActivityExecutionError, TimerResult, WorkflowCancellationToken, WorkflowContext, WorkflowTermination,
};

use super::{WorkflowOrchestration, options};
use crate::activities::Kit;
use crate::message::{Call, Ended, Granted, Order, Shape, Step, Stepped};
#[cfg(feature = "testing")]
use crate::testing;

/// How many nodes of one run may be in flight at once, as with the embedded engine; Temporal's own wall is at 2,000.
const IN_FLIGHT: usize = 64;
/// The most light nodes of one step.
const COMPUTED: usize = 100;
/// A history this long begins nothing more until it can be continued as new. Temporal ends it at 51,200.
const LONG: u32 = 20_000;

/// How a run left this history.
pub(super) enum Left {
    Over(Outcome),
    /// It is another's by now, or over.
    Lost,
    /// Goes on in a new one.
    Continues,
}

/// Something that happened.
enum News {
    Ended(NodeIx, Ended),
    /// Temporal could not have it performed, for ever.
    Unperformed(NodeIx),
    /// A wait is over.
    Waited(NodeIx),
    /// Stopped before it had a result.
    Aborted(NodeIx),
    CancelRequested,
    DeadlinePassed,
    /// The deadline's own timer was taken back.
    Nothing,
}

pub(super) struct Driver<'a> {
    context: &'a WorkflowContext<WorkflowOrchestration>,
    hold: Hold,
    shape: Shape,
    heartbeat: Duration,
    run: Run,
    effects: VecDeque<Effect>,
    /// Settled and stored by whoever performed it.
    stored: BTreeSet<NodeIx>,
    /// To be stored, in this order.
    orders: Vec<Order>,
    /// Ready to be performed, once there is room.
    ready: VecDeque<NodeIx>,
    /// What is waited for.
    news: Vec<LocalBoxFuture<'a, News>>,
    calling: BTreeMap<NodeIx, WorkflowCancellationToken>,
    waiting: BTreeMap<NodeIx, WorkflowCancellationToken>,
    /// Stopped; told to the kernel when nothing is in flight any more.
    aborted: BTreeSet<NodeIx>,
    /// To be performed one by one: a step looked at them, and left them.
    single: BTreeSet<NodeIx>,
    outcome: Option<Outcome>,
    lost: bool,
}

impl<'a> Driver<'a> {
    pub(super) fn new(
        context: &'a WorkflowContext<WorkflowOrchestration>,
        execution: ExecutionId,
        owner: ProcessId,
        granted: Granted,
    ) -> Result<Driver<'a>, String> {
        let plan = Arc::new(granted.shape.plan()?);
        let settled = granted.settled.into_iter().filter_map(|(node, status, label)| {
            Some((node, node::End::stored(status, label, plan.nodes().get(node)?.on_error)?))
        });
        let settled: Vec<_> = settled.collect();
        // A node that waits for its next attempt is performed like any other: its row keeps the time.
        let open = granted.open.into_iter().map(|node| Open { node, attempt: 1, waiting: false });
        let overdue = granted.deadline_ms == 0;
        let stop = if granted.canceling { Some(Stop::Cancel) } else { overdue.then_some(Stop::Deadline) };
        let (run, effects) = Run::resume(plan, execution, stop, settled, open);
        let deadline = Duration::from_millis(granted.deadline_ms);
        let expiry = context.timer(options::timer(deadline, &WorkflowCancellationToken::new()));
        let expiry = expiry.map(|result| match result {
            TimerResult::Fired => News::DeadlinePassed,
            TimerResult::Cancelled => News::Nothing,
        });
        let canceled = context.cancelled().map(|_| News::CancelRequested);
        Ok(Driver {
            context,
            hold: Hold { execution, owner, epoch: granted.epoch },
            shape: granted.shape,
            heartbeat: Duration::from_millis(granted.heartbeat_ms),
            run,
            effects: effects.into(),
            stored: BTreeSet::new(),
            orders: Vec::new(),
            ready: VecDeque::new(),
            news: vec![canceled.boxed_local(), expiry.boxed_local()],
            calling: BTreeMap::new(),
            waiting: BTreeMap::new(),
            aborted: BTreeSet::new(),
            single: BTreeSet::new(),
            outcome: None,
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
            } else if !self.orders.is_empty() || self.ready.iter().any(|node| self.is_light(*node)) {
                self.step().await?;
                continue;
            } else if let Some(outcome) = self.outcome.take() {
                return Ok(Left::Over(outcome));
            } else if self.calling.is_empty() && self.is_long() {
                return Ok(Left::Continues);
            } else {
                self.call();
            }
            let (news, _, rest) = select_all(std::mem::take(&mut self.news)).await;
            self.news = rest;
            self.heard(news);
        }
    }

    /// Is it time for a new history? A cluster may be set to suggest it later than anything is begun here.
    fn is_long(&self) -> bool {
        self.context.continue_as_new_suggested() || self.context.history_length() >= LONG
    }

    fn apply(&mut self, event: Event) {
        self.effects.extend(self.run.apply(event));
    }

    fn carry_out(&mut self) {
        while let Some(effect) = self.effects.pop_front() {
            match effect {
                Effect::Settle { node, end } => {
                    let status = end.status();
                    #[cfg(feature = "testing")]
                    let status = match status {
                        Status::Skipped if testing::is(testing::Mutant::CancelsSkips) => Status::Canceled,
                        status => status,
                    };
                    if !self.stored.remove(&node) {
                        self.orders.push(Order::Settle { node, status });
                    }
                }
                Effect::Perform { node, .. } => self.ready.push_back(node),
                Effect::Abort { node } => self.abort(node),
                // Attempts are counted, and waited for, by whoever performs the node: the run hears how it settled.
                Effect::Wait { .. } => {}
                Effect::Finish(outcome) => self.outcome = Some(outcome),
            }
        }
    }

    fn abort(&mut self, node: NodeIx) {
        #[cfg(feature = "testing")]
        if testing::is(testing::Mutant::LeavesBehind) {
            return self.apply(Event::NodeAborted { node });
        }
        match self.calling.get(&node).or_else(|| self.waiting.get(&node)) {
            Some(token) => token.cancel(),
            None => {
                self.ready.retain(|ready| *ready != node);
                self.aborted.insert(node);
                self.tell_aborted();
            }
        }
    }

    /// What a stop aborted is told together, when it is all gone: in the plan's order, whichever was faster.
    fn tell_aborted(&mut self) {
        if self.calling.is_empty() && self.waiting.is_empty() {
            for node in std::mem::take(&mut self.aborted) {
                self.apply(Event::NodeAborted { node });
            }
        }
    }

    fn is_light(&self, node: NodeIx) -> bool {
        let shape = &self.shape.nodes[node];
        (shape.kind.manner() == Manner::Computes || shape.conditional) && !self.single.contains(&node)
    }

    /// Stores what settled, and computes what is ready and light, in one local activity.
    async fn step(&mut self) -> Result<(), WorkflowTermination> {
        let light: Vec<NodeIx> =
            self.ready.iter().copied().filter(|node| self.is_light(*node)).take(COMPUTED).collect();
        let mut orders = std::mem::take(&mut self.orders);
        orders.extend(light.iter().map(|node| Order::Compute { node: *node }));
        let step = Step { hold: self.hold, orders };
        match self.context.execute_local_activity(Kit::step, step, options::surely()).await? {
            Stepped::Lost => self.lose(),
            Stepped::Done(ended) => {
                for (node, ended) in light.into_iter().zip(ended) {
                    self.ready.retain(|ready| *ready != node);
                    self.ended(node, ended);
                }
            }
        }
        Ok(())
    }

    /// Begins what is ready and calls out or waits, as far as there is room.
    fn call(&mut self) {
        while self.calling.len() < IN_FLIGHT && self.context.history_length() < LONG {
            let Some(node) = self.next_ready() else { return };
            let token = WorkflowCancellationToken::new();
            let spec = self.shape.nodes[node].clone();
            let (context, call) = (self.context, Call { hold: self.hold, node });
            let news = match spec.kind.manner() {
                Manner::Waits => {
                    self.waiting.insert(node, token.clone());
                    let noting = context.execute_local_activity(Kit::node, call, options::surely());
                    async move {
                        match noting.await {
                            Ok(Ended::Waiting { ms }) => {
                                match context.timer(options::timer(Duration::from_millis(ms), &token)).await {
                                    TimerResult::Fired => News::Waited(node),
                                    TimerResult::Cancelled => News::Aborted(node),
                                }
                            }
                            other => news_of(node, other),
                        }
                    }
                    .boxed_local()
                }
                Manner::Calls if !spec.local => {
                    self.calling.insert(node, token.clone());
                    let options = options::node(&spec, self.heartbeat, &token);
                    context.execute_activity(Kit::node, call, options).map(move |it| news_of(node, it)).boxed_local()
                }
                Manner::Calls | Manner::Computes | Manner::Asks | Manner::Spawns | Manner::Loops => {
                    self.calling.insert(node, token.clone());
                    let options = options::local_node(&spec, &token);
                    context
                        .execute_local_activity(Kit::node, call, options)
                        .map(move |it| news_of(node, it))
                        .boxed_local()
                }
            };
            self.news.push(news);
        }
    }

    fn next_ready(&mut self) -> Option<NodeIx> {
        #[cfg(feature = "testing")]
        if testing::is(testing::Mutant::Backwards) {
            return self.ready.pop_back();
        }
        self.ready.pop_front()
    }

    fn heard(&mut self, news: News) {
        match news {
            News::CancelRequested => self.apply(Event::CancelRequested),
            News::DeadlinePassed => self.apply(Event::DeadlinePassed),
            News::Nothing => {}
            News::Ended(node, ended) => {
                self.gone(node);
                self.ended(node, ended);
            }
            News::Waited(node) => {
                self.gone(node);
                self.apply(Event::NodeSettled { node, end: node::End::Completed { took: None } });
            }
            News::Unperformed(node) => {
                self.gone(node);
                self.fail(node);
            }
            News::Aborted(node) => {
                self.gone(node);
                self.aborted.insert(node);
            }
        }
        self.tell_aborted();
    }

    fn gone(&mut self, node: NodeIx) {
        self.calling.remove(&node);
        self.waiting.remove(&node);
    }

    fn ended(&mut self, node: NodeIx, ended: Ended) {
        match ended {
            Ended::Settled { status, label, .. } => {
                let on_error = self.shape.nodes[node].on_error;
                #[cfg(feature = "testing")]
                let (label, on_error) = bent(label, on_error);
                let Some(end) = node::End::stored(status, label, on_error) else { return };
                self.stored.insert(node);
                self.apply(Event::NodeSettled { node, end });
            }
            Ended::Later | Ended::Waiting { .. } => {
                self.single.insert(node);
                self.ready.push_front(node);
            }
            Ended::Lost => self.lose(),
        }
    }

    fn fail(&mut self, node: NodeIx) {
        let on_error = self.shape.nodes[node].on_error;
        if let Some(end) = node::End::stored(Status::Failed, None, on_error) {
            self.apply(Event::NodeSettled { node, end });
        }
    }

    /// Stops everything: none of it counts any more.
    fn lose(&mut self) {
        self.lost = true;
        for token in self.calling.values().chain(self.waiting.values()) {
            token.cancel();
        }
    }
}

/// What a broken rule makes of how a node ended.
#[cfg(feature = "testing")]
fn bent(label: Option<Label>, on_error: OnError) -> (Option<Label>, OnError) {
    (
        label.filter(|_| !testing::is(testing::Mutant::ForgetsLabels)),
        if testing::is(testing::Mutant::ForgetsOnError) { OnError::Fail } else { on_error },
    )
}

fn news_of(node: NodeIx, result: Result<Ended, ActivityExecutionError>) -> News {
    match result {
        Ok(ended) => News::Ended(node, ended),
        Err(error) if error.as_cancelled().is_some() => News::Aborted(node),
        Err(_) => News::Unperformed(node),
    }
}
