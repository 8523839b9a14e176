//! One run in the hands of an engine: the kernel's `Orchestration`, and the work it ordered.
//!
//! Invariants
//! - A fact is stored before it is acted on: effects wait in `unsaved` until the store has them.
//! - Nothing is sent without the right to send, looked at in the same step.
//! - The embedded engine drops a run whose store answers no, or not at all; what is stored decides.
//!   A remote engine is durable and repeats the step.
//!
//! Not here: doing the work (`work`), who steps a machine and what takes it away (`process`, `remote`), loops and
//! children (`orchestration::tree`).

mod work;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use kernel::definition::Kind;
use kernel::definition::plan::NodeIx;
use kernel::execution;
use kernel::orchestration::tree;
use kernel::orchestration::{Effect, Event, Orchestration, Row, Target};
use kernel::run::attempts::Fact;
use kernel::run::node::{self, End};
use kernel::run::{Open, Outcome, Stop};

use super::mutant::Mutant;
use super::random::{Random, mix};
use super::receiver::Receiver;
use super::store::{Change, Fence, Fetched, Guard, Ix, Store, Why, execution_id};
use work::{Stage, Work};

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
    run: Orchestration,
    work: Vec<Work>,
    inbox: VecDeque<Event>,
    /// Events on their way a second time.
    echoes: Vec<Event>,
    unsaved: Option<Vec<Effect>>,
    closing: Option<execution::Step>,
    heard_cancel: bool,
}

impl Machine {
    /// A run from its stored rows, which for a new one say nothing.
    pub(crate) fn from_rows(store: &Store, ix: Ix, fence: Fence) -> Machine {
        let (stop, settled, open) = store.load(ix);
        let plan = Arc::clone(&store.executions[ix].plan);
        let waiting: Vec<Open> = open.iter().filter(|open| open.waiting).copied().collect();
        let (run, effects) = Orchestration::resume(plan, execution_id(ix), stop, rows(settled, open));
        let mut machine = Machine {
            ix,
            fence,
            run,
            work: Vec::new(),
            inbox: VecDeque::new(),
            echoes: Vec::new(),
            unsaved: Some(effects),
            closing: None,
            heard_cancel: stop.is_some(),
        };
        if stop.is_none() {
            for Open { node, attempt, .. } in waiting {
                machine.wait(store, node, Event::Of(Target::node(node), Fact::RetryDue { attempt }));
            }
        }
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
            self.inbox.push_back(Event::Stopped(Stop::Cancel));
        }
        if !self.echoes.is_empty() && hands.random.one_in(4) {
            let echo = self.echoes.swap_remove(hands.random.below(self.echoes.len()));
            let echo = if hands.store.is(Mutant::EchoIsNews) { self.as_news(hands.store, echo) } else { echo };
            self.inbox.push_back(echo);
        }
        if !self.inbox.is_empty() && (self.work.is_empty() || hands.random.one_in(2)) {
            let event = self.inbox.pop_front().expect("an event is there");
            let effects = self.run.apply(event);
            if !effects.is_empty() {
                self.unsaved = Some(effects);
            }
            return After::Going;
        }
        if self.work.is_empty() {
            return After::Going;
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

    fn save(&mut self, hands: &mut Hands<'_>, effects: Vec<Effect>) -> After {
        let facts: Vec<Change> = effects.iter().filter_map(|effect| self.fact(hands.store, effect)).collect();
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
        effects.into_iter().for_each(|effect| self.carry_out(hands, effect));
        After::Going
    }

    fn fact(&self, store: &Store, effect: &Effect) -> Option<Change> {
        let bare = |node, step| Change { node, step, attempt: None, next_at: None, end: None };
        Some(match effect {
            Effect::Settle { at, end } => {
                let step = match end {
                    End::Completed { .. } => node::Step::Succeed,
                    End::Failed { .. } => node::Step::Fail,
                    End::Skipped => node::Step::Skip,
                    End::Canceled => node::Step::Cancel,
                    End::Lost => node::Step::Lose,
                };
                Change { end: Some(end.clone()), ..bare(at.node, step) }
            }
            Effect::Perform { at, attempt } => {
                let is_delay = self.run.run().plan().node(at.node).kind == Kind::Delay;
                let delay = 1_000 + mix(self.ix as u64 * 64 + at.node as u64) % 12_000;
                let next_at = is_delay.then_some(store.now + delay);
                Change { attempt: Some(*attempt), next_at, ..bare(at.node, node::Step::Perform) }
            }
            Effect::Wait { at, attempt, wait } => {
                let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
                let next_at = Some(store.now + wait);
                Change { attempt: Some(*attempt), next_at, ..bare(at.node, node::Step::Wait) }
            }
            _ => return None,
        })
    }

    fn carry_out(&mut self, hands: &mut Hands<'_>, effect: Effect) {
        match effect {
            Effect::Settle { at, .. } => self.forget(hands.receiver, at.node),
            Effect::Perform { at, attempt } => {
                if self.run.run().plan().node(at.node).kind == Kind::Delay {
                    self.wait(hands.store, at.node, Event::Of(at, Fact::Succeeded { attempt, took: None }));
                } else {
                    self.work.push(Work::new(at.node, attempt, Stage::Ready));
                }
            }
            Effect::Wait { at, attempt, .. } => {
                self.wait(hands.store, at.node, Event::Of(at, Fact::RetryDue { attempt }))
            }
            Effect::Abort { at } => {
                self.forget(hands.receiver, at.node);
                let event = self.aborted(hands.store, at.node);
                self.inbox.push_back(event);
            }
            Effect::Find { .. } | Effect::StopChild { .. } | Effect::Collect { .. } => {
                unreachable!("there are no children and no loops here")
            }
            Effect::Finish(outcome) => {
                self.closing = Some(match outcome {
                    Outcome::Completed => execution::Step::Complete,
                    Outcome::Canceled => execution::Step::Cancel,
                    Outcome::TimedOut => execution::Step::TimeOut,
                    Outcome::Failed { .. } | Outcome::Stalled => execution::Step::Fail,
                });
            }
        }
    }

    /// An activity may have settled its node though its run has not heard of it: moving the row's
    /// fence finds out, and keeps it from settling from now on.
    fn aborted(&self, store: &mut Store, node: NodeIx) -> Event {
        if let Fence::Run(run) = self.fence
            && let Fetched::Already(End::Completed { took }) = store.fetch(self.ix, run, node)
        {
            store.judge.saw("abort of a node that has settled");
            let attempt = store.executions[self.ix].nodes[node].attempt;
            return Event::Of(Target::node(node), Fact::Succeeded { attempt, took });
        }
        Event::Of(Target::node(node), Fact::Aborted { begun: true })
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
            _ => None,
        });
        times
            .collect::<Option<Vec<u64>>>()?
            .into_iter()
            .min()
            .filter(|at| tree::may_park(0, Duration::from_millis(at.saturating_sub(now))).is_some())
    }

    /// Hands an event in; sometimes it comes once more, later.
    fn tell(&mut self, hands: &mut Hands<'_>, event: Event) -> After {
        if hands.answer_is_lost() {
            self.echoes.push(event.clone());
        }
        self.inbox.push_back(event);
        After::Going
    }

    fn wait(&mut self, store: &Store, node: NodeIx, event: Event) {
        let row = &store.executions[self.ix].nodes[node];
        let at = row.next_at.unwrap_or(store.now);
        self.work.push(Work::new(node, row.attempt, Stage::Until(at, event)));
    }

    /// The event as if it were of the attempt that is open now: what a mutant makes of it.
    fn as_news(&self, store: &Store, mut event: Event) -> Event {
        if let Event::Of(at, Fact::Succeeded { attempt, .. })
        | Event::Of(at, Fact::Failed { attempt, .. })
        | Event::Of(at, Fact::RetryDue { attempt }) = &mut event
        {
            *attempt = store.executions[self.ix].nodes[at.node].attempt;
        }
        event
    }
}

/// What is stored, as a machine takes it up.
fn rows(settled: Vec<(NodeIx, End)>, open: Vec<Open>) -> impl Iterator<Item = Row> {
    let settled = settled.into_iter().map(|(node, end)| {
        let status = end.status();
        let label = if let End::Completed { took } = end { took } else { None };
        Row { node, status, label, attempt: 0 }
    });
    let open = open.into_iter().map(|Open { node, attempt, waiting }| {
        let status = if waiting { node::Status::Retrying } else { node::Status::Running };
        Row { node, status, label: None, attempt }
    });
    settled.chain(open)
}
