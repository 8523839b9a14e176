//! What happened, and what follows from it for the run and its loops; and stopping what is under way.
//!
//! Invariants
//! - Old news changes nothing: whoever was stopped on the way goes on with nothing.
//! - What a stop aborted is told together, when it is all gone.
//!
//! Not here: who is to stop and what comes next (`kernel::orchestration`).

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use kernel::definition::plan::NodeIx;
use kernel::definition::{Delivery, Manner};
use kernel::ids::Label;
use kernel::orchestration::{Event, Target};
use kernel::run::Stop;
use kernel::run::attempts::Fact;
use kernel::run::each;
use kernel::run::failure::Policy;
use kernel::run::node::Status;
use temporalio_sdk::{TimerResult, WorkflowCancellationToken};

use super::drive::Driver;
use super::options;
use crate::message::{Ended, Looping};
#[cfg(feature = "testing")]
use crate::testing;

/// Why a child is canceled whose parent runs longer than it may.
pub(super) const DEADLINE: &str = "deadline";

/// Something that happened.
pub(super) enum News<'a> {
    Ended(Target, Ended),
    /// A child runs by itself; its end comes so.
    Attached(Target, LocalBoxFuture<'a, News<'a>>),
    /// Temporal could not have it performed, for ever.
    Unperformed(Target),
    /// A wait is over.
    Waited(Target),
    /// Its next attempt is due.
    Due(Target, u32),
    /// Stopped before it had a result.
    Aborted(Target),
    /// The time of an ask is up, by this clock.
    Expired(Target),
    /// Something came for those that asked.
    Answered,
    /// Nothing was heard for a while.
    Unheard,
    CancelRequested(Option<String>),
    DeadlinePassed,
    /// A timer was taken back.
    Nothing,
}

impl<'a> Driver<'a> {
    pub(super) fn heard(&mut self, news: News<'a>) {
        match news {
            // A parent's deadline is its children's.
            News::CancelRequested(why) if why.as_deref() == Some(DEADLINE) => {
                self.apply(Event::Stopped(Stop::Deadline))
            }
            News::CancelRequested(_) => self.apply(Event::Stopped(Stop::Cancel)),
            News::DeadlinePassed => self.apply(Event::Stopped(Stop::Deadline)),
            News::Nothing => {}
            News::Attached(at, ended) => {
                self.apply(Event::ChildStarted { at });
                self.news.push(ended);
            }
            // Stopped on the way: it goes on with nothing.
            News::Ended(at, ended) if self.is_stopped(at) && !ended.is_final() => {
                self.gone(at);
                self.aborted.insert(at);
            }
            News::Ended(at, ended) => {
                self.gone(at);
                self.ended(at, ended);
            }
            News::Waited(at) => {
                self.gone(at);
                self.settled(at, Status::Completed, None);
            }
            News::Due(at, attempt) => {
                self.gone(at);
                self.apply(Event::Of(at, Fact::RetryDue { attempt }));
            }
            News::Unperformed(at) => {
                self.gone(at);
                self.settled(at, Status::Failed, None);
            }
            News::Aborted(at) => {
                self.gone(at);
                self.aborted.insert(at);
            }
            News::Expired(_) | News::Answered | News::Unheard => self.asks.hear(&news),
        }
        self.tell_aborted();
    }

    /// Was it told to stop?
    fn is_stopped(&self, at: Target) -> bool {
        self.calling.get(&at).or_else(|| self.waiting.get(&at)).is_some_and(WorkflowCancellationToken::is_cancelled)
    }

    pub(super) fn gone(&mut self, at: Target) {
        self.calling.remove(&at);
        self.waiting.remove(&at);
    }

    pub(super) fn ended(&mut self, at: Target, ended: Ended) {
        match ended {
            Ended::Settled { status, label, .. } => {
                self.stored.insert(at);
                self.settled(at, status, label);
            }
            Ended::Later | Ended::Waiting { .. } => {
                self.single.insert(at);
                self.ready.push_front(at);
            }
            Ended::Again { attempt, ms } => {
                self.apply(Event::Of(at, Fact::RetryStored { attempt, wait: Duration::from_millis(ms) }));
            }
            Ended::Asked { expires_ms } => self.asked(at, expires_ms.map(Duration::from_millis)),
            Ended::Looping(looping) => self.open_loop(at.node, *looping),
            Ended::Stopped => {
                self.aborted.insert(at);
            }
            // What begins them goes on with them.
            Ended::Child(_) | Ended::Handed(_) => self.ready.push_back(at),
            Ended::Lost => self.lose(),
        }
    }

    /// A node settled, or an item of a loop did.
    fn settled(&mut self, at: Target, status: Status, label: Option<Label>) {
        #[cfg(feature = "testing")]
        let (status, label) = testing::bent(status, label);
        self.apply(Event::Of(at, Fact::Settled { status, label }));
    }

    /// A loop begins, or goes on where its rows say. Its list stays in its row.
    fn open_loop(&mut self, node: NodeIx, looping: Looping) {
        self.machine.take_up(Target::node(node));
        let Looping { count, parallel, on_item_error, stand } = looping;
        let parallel = usize::try_from(parallel).unwrap_or(1).max(1);
        let (execution, key) = (self.hold.execution, self.shape(Target::node(node)).key.clone());
        // Attempts are counted, and what is lost is found out, by whoever performs an item.
        let (retry, delivery) = (Policy::ONCE, Delivery::default());
        let shape = each::Shape { execution, key, count, parallel, on_item_error, retry, delivery };
        let items = stand.into_iter().flat_map(|(from, to, status)| {
            // One that waits for its next attempt is performed like any other: its row keeps the time.
            let status = if status == Status::Retrying { Status::Running } else { status };
            (from..=to).map(move |index| each::Stored { index, status, attempt: 1 })
        });
        let does = self.shape(Target::item(node, 0)).kind;
        self.apply(Event::LoopOpened { node, shape, does, items: items.collect() });
    }

    pub(super) fn wait_for_attempt(&mut self, at: Target, attempt: u32, wait: Duration) {
        let token = WorkflowCancellationToken::new();
        let due = self.context.timer(options::timer(wait, &token)).map(move |result| match result {
            TimerResult::Fired => News::Due(at, attempt),
            TimerResult::Cancelled => News::Aborted(at),
        });
        self.waiting.insert(at, token);
        self.news.push(due.boxed_local());
    }

    /// Stops everything: none of it counts any more.
    pub(super) fn lose(&mut self) {
        self.lost = true;
        for at in self.asks.forget_all() {
            self.gone(at);
        }
        for token in self.calling.values().chain(self.waiting.values()) {
            token.cancel();
        }
    }

    pub(super) fn abort(&mut self, at: Target) {
        #[cfg(feature = "testing")]
        if testing::is(testing::Mutant::LeavesBehind) {
            return self.tell_abort(at);
        }
        if self.asks.forget(at)
            && let Some(token) = self.waiting.remove(&at)
        {
            token.cancel();
        }
        let token = self.calling.get(&at).or_else(|| self.waiting.get(&at)).cloned();
        match token {
            Some(token) if self.shape(at).kind.manner() == Manner::Spawns => self.cancel_child(&token),
            Some(token) => token.cancel(),
            None => {
                self.ready.retain(|ready| *ready != at);
                self.collecting.retain(|node, _| at.iteration != 0 || *node != at.node);
                self.aborted.insert(at);
                self.tell_aborted();
            }
        }
    }

    /// What a stop aborted is told together, when it is all gone: in the plan's order, whichever was faster.
    pub(super) fn tell_aborted(&mut self) {
        if self.calling.is_empty() && self.waiting.is_empty() {
            for at in std::mem::take(&mut self.aborted) {
                self.tell_abort(at);
            }
        }
    }

    /// What may be performed at most once, and was begun, is settled by its row (`begin::once`): this is of the rest.
    fn tell_abort(&mut self, at: Target) {
        self.apply(Event::Of(at, Fact::Aborted { begun: false }));
    }
}
