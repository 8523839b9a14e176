//! Decides when a run reads the answers to its open waits.
//!
//! Invariants
//! - A signal is only a hint: the rows have the answers. They are read after a signal, when the timer of a wait fires,
//!   and after a growing pause, because a signal may be lost.
//! - Only one read runs at a time, and the workflow handles no other event meanwhile.
//!
//! Not here: which waits are open (`kernel::orchestration`), reading answers (`activities`), storing them
//! (`store::wait`).

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::FutureExt;
use kernel::orchestration::{Target, TargetState};
use kernel::wait::RECHECK_AFTER;
use temporalio_sdk::{WorkflowCancellationToken, WorkflowTermination};

use super::drive::WorkflowDriver;
use super::events::WorkflowEvent;
use super::{WorkflowOrchestration, options};
use crate::activities::RunActivities;
use crate::message::{CheckWaitsRequest, CheckWaitsResult};

/// The first and the longest pause before the waits are checked without a signal. It doubles each time. The server
/// repeats a signal that got no reaction (`server::wait::expire`), so this is only the last resort.
const FIRST: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(60 * 60);
/// The state that decides when the open waits of a run are checked.
#[derive(Default)]
pub(super) struct WaitChecks {
    /// Waits whose timer has fired.
    expired: BTreeSet<Target>,
    /// The waits must be checked.
    pub(super) due: bool,
    /// How many signals were handled, and whether the workflow already waits for the next one.
    handled: u64,
    listens: bool,
    /// How often the waits were checked because no signal arrived, and whether the timer of the next such check runs.
    polls: u32,
    polling: bool,
}

impl WaitChecks {
    /// Requests a check of the waits, because the timer of this wait has fired.
    pub(super) fn check(&mut self, at: Target) {
        self.due = true;
        self.expired.insert(at);
    }

    pub(super) fn record(&mut self, event: &WorkflowEvent<'_>) {
        self.due = true;
        match event {
            WorkflowEvent::Answered => self.listens = false,
            _ => {
                self.polling = false;
                self.polls = self.polls.saturating_add(1);
            }
        }
    }
}

impl<'a> WorkflowDriver<'a> {
    /// Adds a wait whose row is stored. `expires`: the time until it expires; None means never.
    pub(super) fn add_wait(&mut self, at: Target, expires: Option<Duration>) {
        self.enter(at, TargetState::Wait);
        match expires {
            Some(wait) => self.start_timer(at, wait, WorkflowEvent::TimerCanceled),
            None => drop(self.waiting.insert(at, WorkflowCancellationToken::new())),
        }
    }

    /// Listens for the next signal, and starts the timer of the next poll, while a wait is open.
    pub(super) fn listen_for_answers(&mut self) {
        if self.machine.open_waits().next().is_none() {
            return;
        }
        let context = self.context;
        if !std::mem::replace(&mut self.waits.listens, true) {
            let handled = self.waits.handled;
            let signal = context.wait_condition(move |state: &WorkflowOrchestration| state.answered != handled);
            // An error means that the workflow is canceled, so no answer is needed.
            let signal = signal
                .map(|changed| if changed.is_ok() { WorkflowEvent::Answered } else { WorkflowEvent::TimerCanceled });
            self.events.push(signal.boxed_local());
        }
        if !std::mem::replace(&mut self.waits.polling, true) {
            let wait = FIRST.saturating_mul(2u32.saturating_pow(self.waits.polls)).min(LONGEST);
            let timer = context.timer(options::timer(wait, &WorkflowCancellationToken::new()));
            self.events.push(timer.map(|_| WorkflowEvent::PollDue).boxed_local());
        }
    }

    /// Lets an activity settle answered waits, and handles the results.
    pub(super) async fn check_waits(&mut self) -> Result<(), WorkflowTermination> {
        self.waits.due = false;
        self.waits.handled = self.context.state(|state| state.answered);
        let waits = self.machine.open_waits().map(|at| (at.node, at.iteration)).collect();
        let request = CheckWaitsRequest { hold: self.hold, waits };
        match self.context.execute_local_activity(RunActivities::check_waits, request, options::recorded()).await? {
            CheckWaitsResult::Lost => self.give_up_ownership(),
            CheckWaitsResult::Done { ended, more } => {
                self.waits.due |= more;
                for (node, iteration, ended) in ended {
                    let at = Target { node, iteration };
                    if self.machine.state(at) == Some(TargetState::Wait) {
                        if let Some(token) = self.waiting.get(&at) {
                            token.cancel();
                        }
                        self.remove_in_flight(at);
                        self.handle_result(at, ended);
                    }
                }
                for at in std::mem::take(&mut self.waits.expired) {
                    if self.machine.state(at) == Some(TargetState::Wait) {
                        self.start_timer(at, RECHECK_AFTER, WorkflowEvent::TimerCanceled);
                    }
                }
            }
        }
        Ok(())
    }
}
