//! Handles the workflow's events: applies them to the run and its loops, and stops work.
//!
//! Invariants
//! - An outdated event starts no work: a node that was stopped meanwhile is only reported as aborted.
//! - The nodes that a stop aborts are reported together, when no node is in flight or waiting.
//!
//! Not here: which nodes stop, and what comes next (`kernel::orchestration`).

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use kernel::definition::plan::NodeIx;
use kernel::definition::{Delivery, Manner};
use kernel::ids::Label;
use kernel::orchestration::{Event, Target, TargetState};
use kernel::run::Stop;
use kernel::run::attempts::AttemptEvent;
use kernel::run::failure::Policy;
use kernel::run::item_loop;
use kernel::run::node::Status;
use temporalio_sdk::{TimerResult, WorkflowCancellationToken};

use super::drive::WorkflowDriver;
use super::options;
use crate::message::{LoopState, PerformResult};
#[cfg(feature = "testing")]
use crate::testing;

/// The reason in the cancel request of a child whose parent passed its deadline.
pub(super) const DEADLINE: &str = "deadline";

/// An event of the workflow.
pub(super) enum WorkflowEvent<'a> {
    Ended(Target, PerformResult),
    /// A child's workflow runs. The future returns the event of its end.
    ChildStarted(Target, LocalBoxFuture<'a, WorkflowEvent<'a>>),
    /// Temporal could not run the activity of this node.
    ActivityFailed(Target),
    /// The time of a delay, a next attempt or a wait is due.
    Due(Target),
    /// A node was stopped before it had a result.
    Aborted(Target),
    /// A signal says that an answer arrived.
    Answered,
    /// No signal arrived for some time, so the waits must be checked.
    PollDue,
    CancelRequested(Option<String>),
    DeadlinePassed,
    /// A timer was canceled.
    TimerCanceled,
}

impl<'a> WorkflowDriver<'a> {
    pub(super) fn handle_event(&mut self, event: WorkflowEvent<'a>) {
        match event {
            // The parent passed its deadline, which is also the deadline of this run.
            WorkflowEvent::CancelRequested(why) if why.as_deref() == Some(DEADLINE) => {
                self.apply(Event::Stopped(Stop::Deadline))
            }
            WorkflowEvent::CancelRequested(_) => self.apply(Event::Stopped(Stop::Cancel)),
            WorkflowEvent::DeadlinePassed => self.apply(Event::Stopped(Stop::Deadline)),
            WorkflowEvent::TimerCanceled => {}
            WorkflowEvent::ChildStarted(at, ended) => {
                self.enter(at, TargetState::Child);
                self.events.push(ended);
            }
            // The node was stopped meanwhile, so no further work is started for it.
            WorkflowEvent::Ended(at, ended) if self.is_stopped(at) && !ended.is_final() => {
                self.remove_in_flight(at);
                self.aborted.insert(at);
            }
            WorkflowEvent::Ended(at, ended) => {
                self.remove_in_flight(at);
                self.handle_result(at, ended);
            }
            WorkflowEvent::Due(at) => {
                self.remove_in_flight(at);
                self.apply(Event::Due { at });
            }
            WorkflowEvent::ActivityFailed(at) => {
                self.remove_in_flight(at);
                self.report_settled(at, Status::Failed, None);
            }
            WorkflowEvent::Aborted(at) => {
                self.remove_in_flight(at);
                self.aborted.insert(at);
            }
            WorkflowEvent::Answered | WorkflowEvent::PollDue => self.waits.record(&event),
        }
        self.report_aborted();
    }

    /// True if the stop of this node was requested.
    fn is_stopped(&self, at: Target) -> bool {
        self.in_flight.get(&at).or_else(|| self.waiting.get(&at)).is_some_and(WorkflowCancellationToken::is_cancelled)
    }

    pub(super) fn remove_in_flight(&mut self, at: Target) {
        self.in_flight.remove(&at);
        self.waiting.remove(&at);
    }

    pub(super) fn handle_result(&mut self, at: Target, ended: PerformResult) {
        match ended {
            PerformResult::Settled { status, label, .. } => {
                self.stored.insert(at);
                self.report_settled(at, status, label);
            }
            PerformResult::Completed(completed) => {
                self.completed = Some(completed);
                self.stored.insert(at);
                self.report_settled(at, Status::Completed, None);
            }
            PerformResult::PerformAlone | PerformResult::Waiting { .. } => {
                self.perform_alone.insert(at);
                self.ready.push_front(at);
            }
            PerformResult::Retry { attempt, ms } => {
                self.apply(Event::Attempt(at, AttemptEvent::RetryStored { attempt, wait: Duration::from_millis(ms) }));
            }
            PerformResult::WaitStored { expires_ms } => self.add_wait(at, expires_ms.map(Duration::from_millis)),
            PerformResult::Loop(looping) => self.open_loop(at.node, *looping),
            PerformResult::Stopped => {
                self.aborted.insert(at);
            }
            // `begin` handles these itself.
            PerformResult::Child(_) | PerformResult::UserTask(_) => self.ready.push_back(at),
            PerformResult::Lost => self.give_up_ownership(),
        }
    }

    /// Reports to the kernel that a node or an item of a loop settled.
    fn report_settled(&mut self, at: Target, status: Status, label: Option<Label>) {
        #[cfg(feature = "testing")]
        let (status, label) = testing::bent(status, label);
        self.apply(Event::Attempt(at, AttemptEvent::Settled { status, label }));
    }

    /// Begins a loop, or continues it as its rows say. Its list stays in the loop's row.
    fn open_loop(&mut self, node: NodeIx, looping: LoopState) {
        self.machine.take_begun_earlier(Target::node(node));
        let LoopState { count, parallel, on_item_error, items: ranges } = looping;
        let parallel = usize::try_from(parallel).unwrap_or(1).max(1);
        let (execution, key) = (self.hold.execution, self.shape(Target::node(node)).key.clone());
        // The activity that performs an item counts its attempts and detects lost calls.
        let (retry, delivery) = (Policy::ONCE, Delivery::default());
        let shape = item_loop::LoopSpec { execution, key, count, parallel, on_item_error, retry, delivery };
        let items = ranges.into_iter().flat_map(|(from, to, status)| {
            (from..=to).map(move |index| item_loop::StoredItem { index, status, attempt: 1 })
        });
        let does = self.shape(Target::item(node, 0)).kind;
        self.apply(Event::LoopOpened { node, shape, does, items: items.collect() });
    }

    /// Starts a timer for a node or an item. The event is `Due`, or `canceled` if the timer is canceled. Timers that
    /// fire together have all fired before the workflow handles the first. If the first cancels the others, those count
    /// as canceled.
    pub(super) fn start_timer(&mut self, at: Target, wait: Duration, canceled: WorkflowEvent<'a>) {
        let token = WorkflowCancellationToken::new();
        let timer = self.context.timer(options::timer(wait, &token));
        let canceled_first = token.clone();
        let timer = timer.map(move |result| match result {
            TimerResult::Fired if !canceled_first.is_cancelled() => WorkflowEvent::Due(at),
            TimerResult::Fired | TimerResult::Cancelled => canceled,
        });
        self.waiting.insert(at, token);
        self.events.push(timer.boxed_local());
    }

    /// Stops all work, because another run performs the execution.
    pub(super) fn give_up_ownership(&mut self) {
        self.lost = true;
        let open: Vec<Target> = self.machine.open_waits().collect();
        open.into_iter().for_each(|at| self.remove_in_flight(at));
        for token in self.in_flight.values().chain(self.waiting.values()) {
            token.cancel();
        }
    }

    pub(super) fn abort(&mut self, at: Target) {
        #[cfg(feature = "testing")]
        if testing::is(testing::Mutant::LeavesBehind) {
            return self.report_abort(at);
        }
        if self.machine.state(at) == Some(TargetState::Wait)
            && let Some(token) = self.waiting.remove(&at)
        {
            token.cancel();
        }
        let token = self.in_flight.get(&at).or_else(|| self.waiting.get(&at)).cloned();
        match token {
            Some(token) if self.shape(at).kind.manner() == Manner::Spawns => self.cancel_child(&token),
            Some(token) => token.cancel(),
            None => {
                self.ready.retain(|ready| *ready != at);
                self.collecting.retain(|node, _| at.iteration != 0 || *node != at.node);
                self.aborted.insert(at);
                self.report_aborted();
            }
        }
    }

    /// Reports the aborted nodes when no node is in flight or waiting. They are reported in the plan's order, so the
    /// order in which their work ended does not matter.
    pub(super) fn report_aborted(&mut self) {
        if self.in_flight.is_empty() && self.waiting.is_empty() {
            for at in std::mem::take(&mut self.aborted) {
                self.report_abort(at);
            }
        }
    }

    /// Reports an aborted node as not begun. A begun node that may be performed at most once is settled from its row
    /// instead (`begin::perform_at_most_once`).
    fn report_abort(&mut self, at: Target) {
        self.apply(Event::Attempt(at, AttemptEvent::Aborted { begun: false }));
    }
}
