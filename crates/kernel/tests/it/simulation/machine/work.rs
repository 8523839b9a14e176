//! The work a run ordered, piece by piece: delays, requests, remote activities.
//!
//! Invariants
//! - A remote activity begins by moving its row's fence and settles only by showing it: one that
//!   fell silent may come back beside its successor, and is refused.
//! - Right and request are one step: nothing is sent by a process whose lease is over, nor by an
//!   activity whose lease is.
//!
//! Not here: what an event does to the run (`machine`).

use kernel::orchestration::{Event, Target};
use kernel::run::attempts::AttemptEvent;
use kernel::run::node::NodeEnd;

use super::{Machine, StepContext, StepOutcome};
use crate::simulation::random::Random;
use crate::simulation::receiver::{Answer, Receiver};
use crate::simulation::store::{Fence, Fetched, Frame, row_of};

/// How long an activity may go without a sign of life before another attempt of it begins.
const ACTIVITY_LEASE: u64 = 5_000;
#[derive(Clone, Debug)]
pub(super) enum Stage {
    /// A delay, or the wait before an attempt.
    Until(u64),
    Ready,
    /// A remote activity that has begun and may send until its lease ends.
    Fetched {
        fence: u64,
        until: u64,
    },
    Sent {
        delivery: u64,
        fence: u64,
        until: u64,
    },
    Settling {
        fence: u64,
        end: NodeEnd,
    },
    /// Somebody outside is asked. `looked`: nothing had come.
    Asks {
        looked: bool,
    },
    /// A child's end is to be stored.
    Ending {
        completed: bool,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) frame: Frame,
    pub(super) at: Target,
    attempt: u32,
    pub(super) stage: Stage,
    /// Its worker gives no sign of life.
    pub(super) silent: bool,
    /// Another attempt of this activity has begun; nobody waits for this one.
    pub(super) stale: bool,
}

impl Work {
    pub(super) fn new(frame: Frame, at: Target, attempt: u32, stage: Stage) -> Work {
        Work { frame, at, attempt, stage, silent: false, stale: false }
    }

    pub(super) fn look_again(&mut self) {
        if let Stage::Asks { looked } = &mut self.stage {
            *looked = false;
        }
    }
}

impl Machine {
    /// The worker of one activity falls silent.
    pub(crate) fn silence(&mut self, random: &mut Random) {
        let at = random.below(self.work.len());
        if let Some(work) = self.work.get_mut(at) {
            work.silent = matches!(work.stage, Stage::Fetched { .. } | Stage::Sent { .. });
        }
    }

    /// Once its lease is over another attempt of a silent activity begins; it may still come back.
    pub(super) fn sit_out(&mut self, context: &mut StepContext<'_>, mut work: Work) -> StepOutcome {
        let (Stage::Fetched { until, .. } | Stage::Sent { until, .. }) = work.stage else { return StepOutcome::Going };
        if context.store.now > until {
            if let Stage::Sent { delivery, .. } = work.stage {
                // What it had handed to the network goes on, but is no longer work of ours.
                context.receiver.hang_up(delivery);
            }
            self.work.push(Work::new(work.frame, work.at, work.attempt, Stage::Ready));
            context.store.judge.saw("activity falls silent");
            work.stale = true;
        }
        self.work.push(work);
        StepOutcome::Going
    }

    pub(super) fn do_work(&mut self, context: &mut StepContext<'_>, mut work: Work) -> StepOutcome {
        let (ix, frame, at, now) = (self.ix, work.frame, work.at, context.store.now);
        let row = row_of(&context.store.executions[ix].plan, frame, at);
        match work.stage.clone() {
            Stage::Until(due) if due <= now => {
                self.inbox.push_back((frame, Event::Due { at }));
                return StepOutcome::Going;
            }
            Stage::Until(_) => {}
            Stage::Ready => match self.fence {
                Fence::Owner { .. } => self.send(context, &mut work, 0, u64::MAX),
                Fence::Run(run) => match context.store.fetch(ix, run, row) {
                    Fetched::Gone => return StepOutcome::Lost,
                    Fetched::Already(NodeEnd::Completed { took }) => {
                        return self.tell(
                            context,
                            frame,
                            Event::Attempt(at, AttemptEvent::Succeeded { attempt: work.attempt, took }),
                        );
                    }
                    Fetched::Already(_) => return StepOutcome::Going,
                    Fetched::Go(fence) => work.stage = Stage::Fetched { fence, until: now + ACTIVITY_LEASE },
                },
            },
            Stage::Fetched { fence, until } if now <= until && !work.stale => {
                self.send(context, &mut work, fence, until)
            }
            Stage::Fetched { .. } if work.stale => return StepOutcome::Going,
            Stage::Fetched { .. } => work.stage = Stage::Ready,
            Stage::Sent { delivery, fence, .. } => return self.answered(context, work, delivery, fence),
            Stage::Settling { fence, end } => return self.settle(context, work, fence, end),
            Stage::Asks { .. } if context.store.executions[ix].answered.contains(&row) => {
                context.store.judge.saw("answer received");
                return self.tell(
                    context,
                    frame,
                    Event::Attempt(at, AttemptEvent::Succeeded { attempt: work.attempt, took: None }),
                );
            }
            Stage::Asks { .. } => work.stage = Stage::Asks { looked: true },
            Stage::Ending { completed } => return self.end_child(context, work, completed),
        }
        self.work.push(work);
        StepOutcome::Going
    }

    fn send(&self, context: &mut StepContext<'_>, work: &mut Work, fence: u64, until: u64) {
        if context.may_send {
            let row = row_of(&context.store.executions[self.ix].plan, work.frame, work.at);
            let delivery = context.receiver.send(context.store, self.ix, row, work.attempt, self.fence);
            work.stage = Stage::Sent { delivery, fence, until };
            context.killed = !self.is_remote() && context.receiver.deadly.contains(&self.ix);
        }
    }

    fn answered(&mut self, context: &mut StepContext<'_>, mut work: Work, delivery: u64, fence: u64) -> StepOutcome {
        let Work { frame, at, attempt, .. } = work;
        let answer = if work.stale {
            let plan = &context.store.executions[self.ix].plan;
            Some(context.receiver.would_answer(plan, self.ix, row_of(plan, frame, at), attempt))
        } else {
            context.receiver.answer(context.store, delivery)
        };
        match answer {
            Some(Answer::Done(took)) if self.is_remote() => {
                work.stage = Stage::Settling { fence, end: NodeEnd::Completed { took } };
                self.work.push(work);
                StepOutcome::Going
            }
            Some(Answer::Done(took)) => {
                self.tell(context, frame, Event::Attempt(at, AttemptEvent::Succeeded { attempt, took }))
            }
            Some(Answer::Failed(failure)) if !work.stale => {
                self.tell(context, frame, Event::Attempt(at, AttemptEvent::Failed { attempt, failure }))
            }
            _ => StepOutcome::Going,
        }
    }

    fn settle(&mut self, context: &mut StepContext<'_>, work: Work, fence: u64, end: NodeEnd) -> StepOutcome {
        let Fence::Run(run) = self.fence else { return StepOutcome::Going };
        let Work { frame, at, .. } = work;
        let row = row_of(&context.store.executions[self.ix].plan, frame, at);
        let stored = context.store.settle(self.ix, run, row, fence, end.clone());
        if work.stale {
            return StepOutcome::Going;
        }
        if !stored || context.answer_is_lost() {
            self.work.push(Work::new(frame, at, work.attempt, Stage::Ready));
            return StepOutcome::Going;
        }
        let NodeEnd::Completed { took } = end else { return StepOutcome::Going };
        self.tell(context, frame, Event::Attempt(at, AttemptEvent::Succeeded { attempt: work.attempt, took }))
    }

    pub(super) fn forget(&mut self, receiver: &mut Receiver, frame: Frame, at: Target) {
        self.work.retain(|work| {
            let keep = (work.frame, work.at) != (frame, at) || work.stale;
            if let (false, Stage::Sent { delivery, .. }) = (keep, &work.stage) {
                receiver.hang_up(*delivery);
            }
            keep
        });
    }
}
