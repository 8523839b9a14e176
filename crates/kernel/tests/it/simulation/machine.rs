//! One run in the hands of an engine: the kernel's `Orchestration` for it and each child, and the work they ordered.
//!
//! Invariants
//! - A fact is stored before it is acted on: effects wait in `unsaved` until the store has them.
//! - Nothing is sent without the right to send, looked at in the same step.
//! - The embedded engine drops a run whose store answers no, or not at all; what is stored decides.
//!   A remote engine is durable and repeats the step.
//!
//! Not here: doing the work (`work`), loops and children (`below`), who steps a machine and what takes it away
//! (`process`, `remote`).

mod below;
mod work;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use kernel::definition::Kind;
use kernel::execution;
use kernel::orchestration::tree;
use kernel::orchestration::{Effect, Event, Orchestration, Target};
use kernel::run::attempts::AttemptEvent;
use kernel::run::node::{self, NodeEnd};
use kernel::run::{Outcome, Stop};

use super::mutant::Mutant;
use super::random::{Random, mix};
use super::receiver::Receiver;
use super::store::{EndReason, Fence, Fetched, Frame, Guard, Ix, NodeChange, NodeRow, Store, row_of};
pub(crate) use below::{child_result, kind_of, opened};
use work::{Stage, Work};

/// Only somebody from outside ends a wait.
const NEVER: u64 = u64::MAX / 2;

/// What a step may touch.
#[derive(Debug)]
pub(crate) struct StepContext<'a> {
    pub(crate) store: &'a mut Store,
    pub(crate) receiver: &'a mut Receiver,
    pub(crate) random: &'a mut Random,
    /// Answers may get lost.
    pub(crate) faults: bool,
    /// The holder's lease still allows requests to be sent.
    pub(crate) may_send: bool,
    /// The step killed the process that took it.
    pub(crate) killed: bool,
}

impl StepContext<'_> {
    /// Does the answer to what was just done get lost?
    pub(crate) fn answer_is_lost(&mut self) -> bool {
        self.faults && self.random.one_in(12)
    }
}

/// What became of the machine in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepOutcome {
    Going,
    /// Dropped: fenced out, or in doubt about what is stored.
    Lost,
    Parked,
    Closed,
}

#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) ix: Ix,
    fence: Fence,
    /// The root's, and those of its children.
    runs: BTreeMap<Frame, Orchestration>,
    work: Vec<Work>,
    inbox: VecDeque<(Frame, Event)>,
    /// Events on their way a second time.
    echoes: Vec<(Frame, Event)>,
    unsaved: Option<Vec<(Frame, Effect)>>,
    closing: Option<execution::Step>,
    received_cancel: bool,
}

impl Machine {
    /// A run from its stored rows, which for a new one say nothing.
    pub(crate) fn from_rows(store: &Store, ix: Ix, fence: Fence) -> Machine {
        let mut machine = Machine {
            ix,
            fence,
            runs: BTreeMap::new(),
            work: Vec::new(),
            inbox: VecDeque::new(),
            echoes: Vec::new(),
            unsaved: None,
            closing: None,
            received_cancel: false,
        };
        machine.take_up(store, None);
        machine.received_cancel = machine.runs[&None].stop().is_some();
        machine
    }

    /// One step: save, close, receive, apply or work.
    pub(crate) fn step(&mut self, context: &mut StepContext<'_>) -> StepOutcome {
        if let Some(effects) = self.unsaved.take() {
            return self.save(context, effects);
        }
        if let Some(step) = self.closing {
            return self.close(context, step);
        }
        if context.store.executions[self.ix].forced && context.random.one_in(2) {
            return StepOutcome::Lost;
        }
        if context.store.executions[self.ix].cancel_requested && !self.received_cancel && context.random.one_in(2) {
            self.received_cancel = true;
            self.inbox.push_back((None, Event::Stopped(Stop::Cancel)));
        }
        if !self.echoes.is_empty() && context.random.one_in(4) {
            let echo = self.echoes.swap_remove(context.random.below(self.echoes.len()));
            let echo = if context.store.is(Mutant::EchoIsNews) { self.as_news(context.store, echo) } else { echo };
            self.inbox.push_back(echo);
        }
        if !self.inbox.is_empty() && (self.work.is_empty() || context.random.one_in(2)) {
            let (frame, event) = self.inbox.pop_front().expect("an event is there");
            // Of a child that has ended meanwhile nothing is reported.
            let effects = self.runs.get_mut(&frame).map(|run| run.apply(event)).unwrap_or_default();
            self.unsaved = Some(effects.into_iter().map(|effect| (frame, effect)).collect());
            return StepOutcome::Going;
        }
        if self.work.is_empty() {
            return StepOutcome::Going;
        }
        if context.random.one_in(8) {
            // Something may have come.
            self.work.iter_mut().for_each(Work::look_again);
        }
        if let Some(until) = self.idle_until(context.store.now) {
            return self.park(context, until);
        }
        let at = context.random.below(self.work.len());
        let work = self.work.swap_remove(at);
        if work.silent && !work.stale { self.sit_out(context, work) } else { self.do_work(context, work) }
    }

    /// Everything this run was doing ends with its holder's memory of it.
    pub(crate) fn drop_work(&mut self, receiver: &mut Receiver) {
        for work in self.work.drain(..) {
            if let Stage::Sent { delivery, .. } = work.stage {
                receiver.hang_up(delivery);
            }
        }
    }

    fn is_remote(&self) -> bool {
        matches!(self.fence, Fence::Run(_))
    }

    fn save(&mut self, context: &mut StepContext<'_>, effects: Vec<(Frame, Effect)>) -> StepOutcome {
        let facts = effects.iter().filter_map(|(frame, effect)| self.fact(context.store, *frame, effect));
        let facts: Vec<NodeChange> = facts.collect();
        if !facts.is_empty() {
            if !context.store.record(self.ix, self.fence, &facts) {
                return StepOutcome::Lost;
            }
            if context.answer_is_lost() {
                if self.is_remote() {
                    self.unsaved = Some(effects);
                    return StepOutcome::Going;
                }
                return StepOutcome::Lost;
            }
        }
        effects.into_iter().for_each(|(frame, effect)| self.carry_out(context, frame, effect));
        StepOutcome::Going
    }

    fn fact(&self, store: &Store, frame: Frame, effect: &Effect) -> Option<NodeChange> {
        let bare = |at: &Target, step| {
            let node = row_of(&store.executions[self.ix].plan, frame, *at);
            NodeChange { node, step, attempt: None, next_at: None, end: None }
        };
        Some(match effect {
            Effect::Settle { at, end } => {
                let step = match end {
                    NodeEnd::Completed { .. } => node::Step::Succeed,
                    NodeEnd::Failed { .. } => node::Step::Fail,
                    NodeEnd::Skipped => node::Step::Skip,
                    NodeEnd::Canceled => node::Step::Cancel,
                    NodeEnd::Lost => node::Step::Lose,
                };
                NodeChange { end: Some(end.clone()), ..bare(at, step) }
            }
            Effect::Perform { at, attempt } => {
                let is_delay = self.kind(frame, *at) == Kind::Delay;
                let delay = 1_000 + mix(self.ix as u64 * 64 + at.node as u64) % 12_000;
                let next_at = is_delay.then_some(store.now + delay);
                NodeChange { attempt: Some(*attempt), next_at, ..bare(at, node::Step::Perform) }
            }
            Effect::Wait { at, attempt, wait } => {
                let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
                let next_at = Some(store.now + wait);
                NodeChange { attempt: Some(*attempt), next_at, ..bare(at, node::Step::Wait) }
            }
            _ => return None,
        })
    }

    fn carry_out(&mut self, context: &mut StepContext<'_>, frame: Frame, effect: Effect) {
        match effect {
            Effect::Settle { at, .. } => self.forget(context.receiver, frame, at),
            Effect::Perform { at, attempt } => self.perform(context.store, frame, at, attempt),
            Effect::Wait { at, .. } => self.wait(context.store, frame, at),
            Effect::CheckWait { at } => unreachable!("no wait of the simulation has a time limit: {at:?}"),
            // It is being opened just now, and stopped then.
            Effect::Abort { at } if self.opens(at) => {}
            Effect::Abort { at } => {
                self.forget(context.receiver, frame, at);
                let event = self.aborted(context.store, frame, at);
                self.inbox.push_back((frame, event));
            }
            Effect::Find { at } => {
                context.store.judge.saw("what an earlier owner made is found");
                self.forget(context.receiver, frame, at);
                self.perform(context.store, frame, at, self.row(context.store, frame, at).attempt);
            }
            Effect::StopChild { at, stop } => {
                context.store.judge.saw("child asked to stop");
                self.inbox.push_back((Some(at.node), Event::Stopped(stop)));
            }
            Effect::Collect { node, .. } => {
                let (at, took) = (Target::node(node), None);
                let attempt = self.row(context.store, frame, at).attempt;
                self.inbox.push_back((frame, Event::Attempt(at, AttemptEvent::Succeeded { attempt, took })));
            }
            Effect::Finish(outcome) => match frame {
                Some(node) => self.child_finished(node, outcome == Outcome::Completed),
                None => {
                    self.closing = Some(match outcome {
                        Outcome::Completed => execution::Step::Complete,
                        Outcome::Canceled => execution::Step::Cancel,
                        Outcome::TimedOut => execution::Step::TimeOut,
                        Outcome::Failed { .. } | Outcome::Stalled => execution::Step::Fail,
                    });
                }
            },
        }
    }

    /// An activity may have settled its node though its run has not received that: moving the row's
    /// fence finds out, and keeps it from settling from now on.
    fn aborted(&self, store: &mut Store, frame: Frame, at: Target) -> Event {
        let row = row_of(&store.executions[self.ix].plan, frame, at);
        if let Fence::Run(run) = self.fence
            && let Fetched::Already(NodeEnd::Completed { took }) = store.fetch(self.ix, run, row)
        {
            store.judge.saw("abort of a node that has settled");
            let attempt = store.executions[self.ix].nodes[row].attempt;
            return Event::Attempt(at, AttemptEvent::Succeeded { attempt, took });
        }
        Event::Attempt(at, AttemptEvent::Aborted { begun: true })
    }

    fn close(&mut self, context: &mut StepContext<'_>, step: execution::Step) -> StepOutcome {
        let why = if step == execution::Step::Cancel { EndReason::Canceled } else { EndReason::Ran };
        context.store.complete(self.ix, Guard::Fence(self.fence), step, why);
        match context.answer_is_lost() {
            true if self.is_remote() => StepOutcome::Going,
            true => StepOutcome::Lost,
            false => StepOutcome::Closed,
        }
    }

    fn park(&mut self, context: &mut StepContext<'_>, until: u64) -> StepOutcome {
        let parked = context.store.park(self.ix, self.fence, until);
        if parked && !context.answer_is_lost() { StepOutcome::Parked } else { StepOutcome::Lost }
    }

    /// When the next thing happens, if that is far away and nothing else is going on.
    fn idle_until(&self, now: u64) -> Option<u64> {
        if self.is_remote() || !self.inbox.is_empty() {
            return None;
        }
        let times = self.work.iter().map(|work| match work.stage {
            Stage::Until(at) => Some(at),
            Stage::Asks { looked: true } => Some(NEVER),
            _ => None,
        });
        times
            .collect::<Option<Vec<u64>>>()?
            .into_iter()
            .min()
            .filter(|at| tree::may_park(0, Duration::from_millis(at.saturating_sub(now))).is_some())
    }

    /// Hands an event in; sometimes it comes once more, later.
    fn tell(&mut self, context: &mut StepContext<'_>, frame: Frame, event: Event) -> StepOutcome {
        if context.answer_is_lost() {
            self.echoes.push((frame, event.clone()));
        }
        self.inbox.push_back((frame, event));
        StepOutcome::Going
    }

    fn wait(&mut self, store: &Store, frame: Frame, at: Target) {
        let row = self.row(store, frame, at);
        let until = row.next_at.unwrap_or(store.now);
        self.work.push(Work::new(frame, at, row.attempt, Stage::Until(until)));
    }

    fn row<'a>(&self, store: &'a Store, frame: Frame, at: Target) -> &'a NodeRow {
        let execution = &store.executions[self.ix];
        &execution.nodes[row_of(&execution.plan, frame, at)]
    }

    fn kind(&self, frame: Frame, at: Target) -> Kind {
        kind_of(self.runs[&frame].run().plan(), frame, at)
    }

    /// The event as if it were of the attempt that is open now: what a mutant makes of it.
    fn as_news(&self, store: &Store, (frame, mut event): (Frame, Event)) -> (Frame, Event) {
        if let Event::Attempt(at, AttemptEvent::Succeeded { attempt, .. })
        | Event::Attempt(at, AttemptEvent::Failed { attempt, .. }) = &mut event
        {
            *attempt = self.row(store, frame, *at).attempt;
        }
        (frame, event)
    }
}
