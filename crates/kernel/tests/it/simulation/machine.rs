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
use kernel::run::attempts::Fact;
use kernel::run::node::{self, End};
use kernel::run::{Outcome, Stop};

use super::mutant::Mutant;
use super::random::{Random, mix};
use super::receiver::Receiver;
use super::store::{Change, Fence, Fetched, Frame, Guard, Ix, NodeRow, Store, Why, row_of};
pub(crate) use below::{child_told, kind_of, opened};
use work::{Stage, Work};

/// Only somebody from outside ends a wait.
const NEVER: u64 = u64::MAX / 2;

/// What a step may touch.
#[derive(Debug)]
pub(crate) struct Hands<'a> {
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

impl Hands<'_> {
    /// Does the answer to what was just done get lost?
    pub(crate) fn answer_is_lost(&mut self) -> bool {
        self.faults && self.random.one_in(12)
    }
}

/// What became of the machine in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
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
    heard_cancel: bool,
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
            heard_cancel: false,
        };
        machine.take_up(store, None);
        machine.heard_cancel = machine.runs[&None].stop().is_some();
        machine
    }

    /// One step: save, close, hear, apply or work.
    pub(crate) fn step(&mut self, hands: &mut Hands<'_>) -> After {
        if let Some(effects) = self.unsaved.take() {
            return self.save(hands, effects);
        }
        if let Some(step) = self.closing {
            return self.close(hands, step);
        }
        if hands.store.executions[self.ix].forced && hands.random.one_in(2) {
            return After::Lost;
        }
        if hands.store.executions[self.ix].cancel_requested && !self.heard_cancel && hands.random.one_in(2) {
            self.heard_cancel = true;
            self.inbox.push_back((None, Event::Stopped(Stop::Cancel)));
        }
        if !self.echoes.is_empty() && hands.random.one_in(4) {
            let echo = self.echoes.swap_remove(hands.random.below(self.echoes.len()));
            let echo = if hands.store.is(Mutant::EchoIsNews) { self.as_news(hands.store, echo) } else { echo };
            self.inbox.push_back(echo);
        }
        if !self.inbox.is_empty() && (self.work.is_empty() || hands.random.one_in(2)) {
            let (frame, event) = self.inbox.pop_front().expect("an event is there");
            // Of a child that has ended meanwhile there is no news.
            let effects = self.runs.get_mut(&frame).map(|run| run.apply(event)).unwrap_or_default();
            self.unsaved = Some(effects.into_iter().map(|effect| (frame, effect)).collect());
            return After::Going;
        }
        if self.work.is_empty() {
            return After::Going;
        }
        if hands.random.one_in(8) {
            // Something may have come.
            self.work.iter_mut().for_each(Work::look_again);
        }
        if let Some(until) = self.idle_until(hands.store.now) {
            return self.park(hands, until);
        }
        let at = hands.random.below(self.work.len());
        let work = self.work.swap_remove(at);
        if work.silent && !work.stale { self.sit_out(hands, work) } else { self.do_work(hands, work) }
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

    fn save(&mut self, hands: &mut Hands<'_>, effects: Vec<(Frame, Effect)>) -> After {
        let facts = effects.iter().filter_map(|(frame, effect)| self.fact(hands.store, *frame, effect));
        let facts: Vec<Change> = facts.collect();
        if !facts.is_empty() {
            if !hands.store.record(self.ix, self.fence, &facts) {
                return After::Lost;
            }
            if hands.answer_is_lost() {
                if self.is_remote() {
                    self.unsaved = Some(effects);
                    return After::Going;
                }
                return After::Lost;
            }
        }
        effects.into_iter().for_each(|(frame, effect)| self.carry_out(hands, frame, effect));
        After::Going
    }

    fn fact(&self, store: &Store, frame: Frame, effect: &Effect) -> Option<Change> {
        let bare = |at: &Target, step| {
            let node = row_of(&store.executions[self.ix].plan, frame, *at);
            Change { node, step, attempt: None, next_at: None, end: None }
        };
        Some(match effect {
            Effect::Settle { at, end } => {
                let step = match end {
                    End::Completed { .. } => node::Step::Succeed,
                    End::Failed { .. } => node::Step::Fail,
                    End::Skipped => node::Step::Skip,
                    End::Canceled => node::Step::Cancel,
                    End::Lost => node::Step::Lose,
                };
                Change { end: Some(end.clone()), ..bare(at, step) }
            }
            Effect::Perform { at, attempt } => {
                let is_delay = self.kind(frame, *at) == Kind::Delay;
                let delay = 1_000 + mix(self.ix as u64 * 64 + at.node as u64) % 12_000;
                let next_at = is_delay.then_some(store.now + delay);
                Change { attempt: Some(*attempt), next_at, ..bare(at, node::Step::Perform) }
            }
            Effect::Wait { at, attempt, wait } => {
                let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
                let next_at = Some(store.now + wait);
                Change { attempt: Some(*attempt), next_at, ..bare(at, node::Step::Wait) }
            }
            _ => return None,
        })
    }

    fn carry_out(&mut self, hands: &mut Hands<'_>, frame: Frame, effect: Effect) {
        match effect {
            Effect::Settle { at, .. } => self.forget(hands.receiver, frame, at),
            Effect::Perform { at, attempt } => self.perform(hands.store, frame, at, attempt),
            Effect::Wait { at, attempt, .. } => {
                self.wait(hands.store, (frame, at), Event::Of(at, Fact::RetryDue { attempt }));
            }
            // It is being opened just now, and stopped then.
            Effect::Abort { at } if self.opens(at) => {}
            Effect::Abort { at } => {
                self.forget(hands.receiver, frame, at);
                let event = self.aborted(hands.store, frame, at);
                self.inbox.push_back((frame, event));
            }
            Effect::Find { at } => {
                hands.store.judge.saw("what an earlier owner made is found");
                self.forget(hands.receiver, frame, at);
                self.perform(hands.store, frame, at, self.row(hands.store, frame, at).attempt);
            }
            Effect::StopChild { at, stop } => {
                hands.store.judge.saw("child told to stop");
                self.inbox.push_back((Some(at.node), Event::Stopped(stop)));
            }
            Effect::Collect { node, .. } => {
                let (at, took) = (Target::node(node), None);
                let attempt = self.row(hands.store, frame, at).attempt;
                self.inbox.push_back((frame, Event::Of(at, Fact::Succeeded { attempt, took })));
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

    /// An activity may have settled its node though its run has not heard of it: moving the row's
    /// fence finds out, and keeps it from settling from now on.
    fn aborted(&self, store: &mut Store, frame: Frame, at: Target) -> Event {
        let row = row_of(&store.executions[self.ix].plan, frame, at);
        if let Fence::Run(run) = self.fence
            && let Fetched::Already(End::Completed { took }) = store.fetch(self.ix, run, row)
        {
            store.judge.saw("abort of a node that has settled");
            let attempt = store.executions[self.ix].nodes[row].attempt;
            return Event::Of(at, Fact::Succeeded { attempt, took });
        }
        Event::Of(at, Fact::Aborted { begun: true })
    }

    fn close(&mut self, hands: &mut Hands<'_>, step: execution::Step) -> After {
        let why = if step == execution::Step::Cancel { Why::Canceled } else { Why::Ran };
        hands.store.complete(self.ix, Guard::Fence(self.fence), step, why);
        match hands.answer_is_lost() {
            true if self.is_remote() => After::Going,
            true => After::Lost,
            false => After::Closed,
        }
    }

    fn park(&mut self, hands: &mut Hands<'_>, until: u64) -> After {
        let parked = hands.store.park(self.ix, self.fence, until);
        if parked && !hands.answer_is_lost() { After::Parked } else { After::Lost }
    }

    /// When the next thing happens, if that is far away and nothing else is going on.
    fn idle_until(&self, now: u64) -> Option<u64> {
        if self.is_remote() || !self.inbox.is_empty() {
            return None;
        }
        let times = self.work.iter().map(|work| match work.stage {
            Stage::Until(at, _) => Some(at),
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
    fn tell(&mut self, hands: &mut Hands<'_>, frame: Frame, event: Event) -> After {
        if hands.answer_is_lost() {
            self.echoes.push((frame, event.clone()));
        }
        self.inbox.push_back((frame, event));
        After::Going
    }

    fn wait(&mut self, store: &Store, (frame, at): (Frame, Target), event: Event) {
        let row = self.row(store, frame, at);
        let until = row.next_at.unwrap_or(store.now);
        self.work.push(Work::new(frame, at, row.attempt, Stage::Until(until, event)));
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
        if let Event::Of(at, Fact::Succeeded { attempt, .. })
        | Event::Of(at, Fact::Failed { attempt, .. })
        | Event::Of(at, Fact::RetryDue { attempt }) = &mut event
        {
            *attempt = self.row(store, frame, *at).attempt;
        }
        (frame, event)
    }
}
