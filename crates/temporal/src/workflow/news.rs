//! What happened, and what follows from it for the run and its loops; and stopping what is under way.
//!
//! Invariants
//! - Old news changes nothing: whoever was stopped on the way goes on with nothing.
//! - What a stop aborted is told together, when it is all gone.
//!
//! Not here: who is to stop and what comes next (`kernel::run`, `kernel::run::each`).

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use kernel::definition::Manner;
#[cfg(feature = "testing")]
use kernel::definition::OnError;
use kernel::ids::Label;
use kernel::run::Event;
use kernel::run::each;
use kernel::run::node::{self, Status};
use temporalio_sdk::{TimerResult, WorkflowCancellationToken};

use super::drive::{At, Driver};
use super::options;
use crate::message::Ended;
#[cfg(feature = "testing")]
use crate::testing;

/// Why a child is canceled whose parent runs longer than it may.
pub(super) const DEADLINE: &str = "deadline";

/// Something that happened.
pub(super) enum News<'a> {
    Ended(At, Ended),
    /// A child runs by itself; its end comes so.
    Attached(At, LocalBoxFuture<'a, News<'a>>),
    /// Temporal could not have it performed, for ever.
    Unperformed(At),
    /// A wait is over.
    Waited(At),
    /// Its next attempt is due.
    Due(At, u32),
    /// Stopped before it had a result.
    Aborted(At),
    /// The time of an ask is up, by this clock.
    Expired(At),
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
            News::CancelRequested(why) if why.as_deref() == Some(DEADLINE) => self.deadline_passed(),
            News::CancelRequested(_) => self.apply(Event::CancelRequested),
            News::DeadlinePassed => self.deadline_passed(),
            News::Nothing => {}
            News::Attached(at, ended) => {
                self.attached.insert(at);
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
                match each::index(at.iteration) {
                    None => self.ready.push_back(at),
                    Some(index) => self.apply_each(at.node, each::Event::RetryDue { index, attempt }),
                }
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
    fn is_stopped(&self, at: At) -> bool {
        self.calling.get(&at).or_else(|| self.waiting.get(&at)).is_some_and(WorkflowCancellationToken::is_cancelled)
    }

    fn deadline_passed(&mut self) {
        self.overdue = true;
        self.apply(Event::DeadlinePassed);
    }

    pub(super) fn gone(&mut self, at: At) {
        self.calling.remove(&at);
        self.waiting.remove(&at);
        self.attached.remove(&at);
    }

    pub(super) fn ended(&mut self, at: At, ended: Ended) {
        match ended {
            Ended::Settled { status, label, .. } => {
                self.stored.insert(at);
                self.settled(at, status, label);
            }
            Ended::Later | Ended::Waiting { .. } => {
                self.single.insert(at);
                self.ready.push_front(at);
            }
            Ended::Again { attempt, ms } => self.again(at, attempt, Duration::from_millis(ms)),
            Ended::Asked { expires_ms } => self.asked(at, expires_ms.map(Duration::from_millis)),
            Ended::Looping(looping) => self.go_on_with_loop(at.node, *looping),
            Ended::Stopped => {
                self.aborted.insert(at);
            }
            // What begins them goes on with them.
            Ended::Child(_) | Ended::Handed(_) => self.ready.push_back(at),
            Ended::Lost => self.lose(),
        }
    }

    /// A node settled, or an item of a loop did.
    fn settled(&mut self, at: At, status: Status, label: Option<Label>) {
        if let Some(index) = each::index(at.iteration) {
            return self.apply_each(at.node, each::Event::Settled { index, status });
        }
        let on_error = self.shape.nodes[at.node].on_error;
        #[cfg(feature = "testing")]
        let (label, on_error) = bent(label, on_error);
        if let Some(end) = node::End::stored(status, label, on_error) {
            self.apply(Event::NodeSettled { node: at.node, end });
        }
    }

    /// It failed, and its next attempt is due after that.
    fn again(&mut self, at: At, attempt: u32, wait: Duration) {
        match each::index(at.iteration) {
            None => self.wait_for_attempt(at, attempt, wait),
            Some(index) => self.apply_each(at.node, each::Event::Retrying { index, attempt, wait }),
        }
    }

    pub(super) fn wait_for_attempt(&mut self, at: At, attempt: u32, wait: Duration) {
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

    pub(super) fn abort(&mut self, at: At) {
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
            Some(token) if self.overdue && self.shape(at).kind.manner() == Manner::Spawns => {
                token.cancel_with_reason(DEADLINE);
            }
            Some(token) => token.cancel(),
            None if self.stop_resumed(at) => {}
            None => {
                self.ready.retain(|ready| *ready != at);
                self.over.retain(|node, _| at.iteration != 0 || *node != at.node);
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
    fn tell_abort(&mut self, at: At) {
        let begun = false;
        match each::index(at.iteration) {
            None => self.apply(Event::NodeAborted { node: at.node, begun }),
            Some(index) => self.apply_each(at.node, each::Event::Aborted { index, begun }),
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
