//! Waits and tasks of this tree's nodes: storing them, and reading their answers.
//!
//! Invariants
//! - The node's start is recorded before its wait is stored, as for a call. Storing a wait again returns its current
//!   state. Only the store decides whether a wait was answered or has expired, never this process's clock.
//! - A notification only makes the run read its answers from the store. If an answer comes while its wait is still
//!   being stored, or the reply to a read may be lost, the next read also returns the answers already taken.
//! - A run that only waits for answers needs no process: it is parked, and an answer wakes it.
//!
//! What happens if this process dies: before the wait's commit there is no wait. After it, or after the answer, the
//! node is performed again and gets the wait's current state.
//!
//! Not here: storing waits and answers (`store::wait`), what an answer means for its node (`kernel::kind`).

use std::collections::BTreeMap;
use std::sync::Arc;

use kernel::definition::plan::NodeIx;
use kernel::ids::ExecutionId;
use kernel::orchestration::{Event, TargetState};
use kernel::run::Stop;
use kernel::run::failure::Failure;
use kernel::wait::RECHECK_AFTER;
use store::run::attempt::Ownership;
use store::wait::{FinishedWait, NewWait, WaitState};
use tokio::time::Instant;

use super::frame::{FrameIx, NodeRef, ROOT};
use super::in_flight::{DeferredWork, FlightStage};
use super::perform::FlightResult;
use super::timers::TimerKey;
use super::{TreeDriver, frame};
use crate::attempt::retry_until_answered;
use crate::embedded::Shared;

/// The key of the read of answers among the work in flight. No node has this key.
pub(super) const CHECK_WAITS: NodeRef = NodeRef { frame: ROOT, node: NodeIx::MAX, iteration: 0 };

/// What changed for the waits and children of the tree.
pub(super) struct WaitUpdates {
    answers: Vec<FinishedWait>,
    /// Children whose cancellation was requested.
    canceling: Vec<ExecutionId>,
}

impl Shared {
    pub(super) async fn store_wait(&self, hold: Ownership, new_wait: &NewWait) -> Result<FlightResult, Failure> {
        let stored = retry_until_answered(|| self.store.open_wait(hold, new_wait)).await?;
        Ok(stored.map_or(FlightResult::Lost, FlightResult::WaitState))
    }

    /// Reads the answers for a tree. `again`: an earlier read may have taken answers and then lost them.
    async fn read_answers(&self, hold: Ownership, again: bool) -> FlightResult {
        let mut tries = 0;
        let read = || {
            tries += 1;
            self.store.read_answers(hold)
        };
        let Ok(Some(mut answers)) = retry_until_answered(read).await else { return FlightResult::Lost };
        if again || tries > 1 {
            answers
                .extend(retry_until_answered(|| self.store.reread_answers(hold.execution)).await.unwrap_or_default());
        }
        // Cancels are read last, because reading the answers also marks the notification as delivered. A later cancel
        // notifies the run again.
        let canceling = retry_until_answered(|| self.store.canceling_below(hold.execution)).await.unwrap_or_default();
        FlightResult::WaitUpdates(WaitUpdates { answers, canceling })
    }
}

impl TreeDriver {
    /// Reads the answers if the run was notified. Only one read is in flight at a time.
    pub(super) fn check_waits_if_notified(&mut self) {
        if !self.check_waits || self.handles.contains_key(&CHECK_WAITS) {
            return;
        }
        self.check_waits = false;
        let again = std::mem::take(&mut self.reread);
        let (shared, hold) = (Arc::clone(&self.shared), self.hold);
        self.launch(
            CHECK_WAITS,
            DeferredWork::new(FlightStage::Running, async move { shared.read_answers(hold, again).await }),
        );
    }

    /// Handles the state of a wait.
    pub(super) fn handle_wait_state(&mut self, at: NodeRef, state: WaitState) {
        let frame = self.frame(at.frame);
        if let WaitState::Open { expires_in } = &state {
            if let Some(expires_in) = expires_in {
                self.timers.set(TimerKey::Node(at), Instant::now() + *expires_in);
            }
            self.enter(at, TargetState::Wait);
            // An earlier read may have taken the wait's answer before this reply came. Then read it again.
            self.check_waits |= self.reread;
        } else if let Some(wait) = frame.waits.remove(&at.target()) {
            self.attempt_ended(at, wait.over(state));
        }
    }

    /// Handles answers, expired waits, and cancellations of children.
    pub(super) fn handle_wait_updates(&mut self, updates: WaitUpdates) {
        let frames: BTreeMap<ExecutionId, FrameIx> =
            self.frames.iter().map(|(ix, frame)| (frame.execution(), *ix)).collect();
        for FinishedWait { key, attempt, state } in updates.answers {
            let Some(ix) = frames.get(&key.execution) else { continue };
            let frame = frame(&mut self.frames, *ix);
            let Some(node) = frame.version.plan.index_of(&key.node) else { continue };
            let at = NodeRef { frame: *ix, node, iteration: key.iteration };
            if frame.attempt(at) != Some(attempt) {
                continue;
            }
            match frame.machine.state(at.target()) {
                Some(TargetState::Wait) => self.handle_wait_state(at, state),
                // The node's wait is still being stored, or the node is not performed yet. Read the answer again later.
                _ => self.reread = true,
            }
        }
        for child in updates.canceling {
            match frames.get(&child) {
                Some(ix) => self.apply(*ix, Event::Stopped(Stop::Cancel)),
                // The child is not loaded yet. It is canceled when it is.
                None => drop(self.cancel_on_arrival.insert(child)),
            }
        }
    }

    /// Checks a wait whose timer fired. The database decides whether the wait has expired, and how long it still lasts.
    pub(super) fn check_wait(&mut self, at: NodeRef) {
        self.timers.set(TimerKey::Node(at), Instant::now() + RECHECK_AFTER);
        self.check_waits = true;
    }
}
