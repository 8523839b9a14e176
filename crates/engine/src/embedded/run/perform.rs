//! Starts a node's work, and handles the result.
//!
//! Invariants
//! - Only computing happens before the record that starts the node is committed. Calls, children and waits come after.
//! - A delay, a wait or a child that was begun before this process resumed the run is not recorded as begun again.
//!
//! Not here: the work behind a kind (`nodes`), children (`children`), loops (`loops`), waits (`waits`), calls made at
//! most once (`at_most_once`).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kernel::definition::{Manner, Node};
use kernel::kind;
use kernel::orchestration::{Event, TargetState};
use kernel::run::attempts::AttemptEvent;
use kernel::run::failure::Failure;
use kernel::run::node;
use serde_json::Value;
use store::run::NodeFact;
use tokio::time::Instant;

use super::TreeDriver;
use super::at_most_once::ReadyCall;
use super::children::LoadedChild;
use super::frame::NodeRef;
use super::in_flight::{DeferredWork, FlightStage};
use super::loops::StoredLoop;
use super::timers::TimerKey;
use super::waits::WaitUpdates;
use crate::attempt::child::ChildStart;
use crate::attempt::wait::wait;
use crate::compute;
use crate::nodes::call::Caller;
use crate::nodes::{self, NodeOutput, Work};
use crate::trace;

/// The result of work in flight.
pub(super) enum FlightResult {
    /// A node was prepared for this attempt.
    Prepared(u32, Box<PrepareResult>),
    Result(Result<NodeOutput, Failure>),
    /// A call that waited is ready to be sent.
    Ready(Box<ReadyCall>),
    Child(Box<LoadedChild>),
    /// The node has no child.
    NoChild,
    Loop(Box<StoredLoop>),
    WaitState(store::wait::WaitState),
    WaitUpdates(WaitUpdates),
    /// Another process owns the run.
    Lost,
}

/// The result of preparing a node: its input and the work that remains.
pub(super) type PrepareResult = Result<(Value, Work), Failure>;

impl TreeDriver {
    /// Performs a node that is ready. If its preparation may take long, that first runs on its own thread. Until it
    /// ends, nothing is recorded of the node, and the run keeps receiving messages.
    pub(super) fn start_ready(&mut self, at: NodeRef, attempt: u32) {
        let frame = self.frame(at.frame);
        let spec = frame.spec(at);
        if !nodes::may_take_long(spec) {
            return self.perform(at, attempt, None);
        }
        let (spec, workspace) = (spec.clone(), frame.begun.workspace);
        let scope = match at.target().index() {
            None => frame.version.view(at.node, &frame.scope).into_owned(),
            Some(index) => frame.item_scope(at.node, index),
        };
        let preparing = async move {
            let prepared = compute::run(workspace, move || nodes::prepare(&spec, &scope)).await;
            FlightResult::Prepared(attempt, Box::new(prepared))
        };
        self.calls.push((at, DeferredWork::new(FlightStage::Preparing, preparing)));
    }

    fn perform(&mut self, at: NodeRef, attempt: u32, prepared: Option<PrepareResult>) {
        let frame = self.frame(at.frame);
        let version = Arc::clone(&frame.version);
        let action =
            at.target().index().and_then(|_| frame.loops.get(&at.node)).map(|running| Arc::clone(&running.action));
        let spec = action.as_deref().unwrap_or(&version.definition.nodes[at.node]);
        if !self.may_start_child(at, attempt, spec) {
            return;
        }
        self.frame(at.frame).set_attempt(at, attempt);
        let span = self.begin_attempt_span(at, attempt);
        let (_within, frame) = (span.clone().entered(), self.frame(at.frame));
        let begun_earlier = frame.machine.take_begun_earlier(at.target());
        if begun_earlier && spec.kind.manner() == Manner::Loops {
            return self.reload(at, attempt);
        }
        if begun_earlier && spec.kind.manner() == Manner::Spawns && frame.machine.stop().is_some() {
            let parent = frame.parent_attempt(at, attempt);
            return self.launch_after_commit(at, |shared, hold| async move { shared.find_child(hold, &parent).await });
        }
        let scope = match at.target().index() {
            None => version.view(at.node, &frame.scope),
            Some(index) => Cow::Owned(frame.item_scope(at.node, index)),
        };
        let (place, trace) = ((at.iteration, attempt), trace::of(&span).unwrap_or(frame.begun.trace));
        let (input, work) = match prepared.unwrap_or_else(|| nodes::prepare(spec, &scope)) {
            Ok(ready) => ready,
            Err(failure) => return self.attempt_ended(at, Err(failure)),
        };
        match work {
            Work::Done(done) => self.attempt_ended(at, Ok(done)),
            Work::Skip => self.skip(at, attempt),
            Work::Delay(config) => self.delay(at, attempt, input, &config),
            Work::ForEach(config) => self.begin_loop(at, attempt, input, config),
            Work::Call(make) => {
                let caller = Caller { spec, scope: &scope, begun: &frame.begun, iteration: at.iteration, trace };
                let call = make.call(&caller);
                if frame.is_at_most_once(at) {
                    return self.call_at_most_once(at, attempt, call, input);
                }
                self.record_running(at, attempt, Some(input), None);
                self.call_repeatable(at, call);
            }
            Work::Workflow(config) => {
                let child = ChildStart::new(config, spec, &frame.begun, place, trace);
                self.record_running_once(at, attempt, input, begun_earlier);
                self.launch_after_commit(at, |shared, hold| async move { shared.start_child(hold, &child).await });
            }
            waiting @ (Work::Wait(_) | Work::Task(_)) => match wait(waiting, spec, &input, &frame.begun, place) {
                Ok((row, awaited)) => {
                    frame.waits.insert(at.target(), awaited);
                    self.record_running_once(at, attempt, input, begun_earlier);
                    self.launch_after_commit(at, |shared, hold| async move { shared.store_wait(hold, &row).await });
                }
                Err(failure) => self.attempt_ended(at, Err(failure)),
            },
        }
    }

    /// Records the start of a wait or a child, unless it was recorded before this process resumed the run.
    fn record_running_once(&mut self, at: NodeRef, attempt: u32, input: Value, begun_earlier: bool) {
        if !begun_earlier {
            self.record_running(at, attempt, Some(input), None);
        }
    }

    /// True if a node may be performed now. A node that starts a child waits for a child slot. A detached execution is
    /// no child and needs no child slot.
    fn may_start_child(&mut self, at: NodeRef, attempt: u32, spec: &Node) -> bool {
        if spec.kind.manner() != Manner::Spawns || kind::workflow::is_detached(&spec.with) {
            return true;
        }
        let frame = self.frame(at.frame);
        let (depth, begun_earlier) = (frame.depth, frame.machine.state(at.target()) == Some(TargetState::BegunEarlier));
        self.child_slots.admit((at, attempt), depth, begun_earlier)
    }

    fn skip(&mut self, at: NodeRef, attempt: u32) {
        self.end_attempt_span(at, "skipped", None);
        self.release_child_slot(at);
        self.frame(at.frame).forget_attempt(at);
        self.apply(at.frame, Event::Attempt(at.target(), AttemptEvent::Skipped { attempt }));
    }

    /// Starts a delay. The time of its end is stored on the node's row and stays valid after a crash.
    fn delay(&mut self, at: NodeRef, attempt: u32, input: Value, config: &kind::delay::Config) {
        self.enter(at, TargetState::Delay);
        if self.timers.has(TimerKey::Node(at)) {
            return;
        }
        match config.wait(Timestamp::now()) {
            Err(failure) => self.attempt_ended(at, Err(failure)),
            Ok(wait) => {
                self.timers.set(TimerKey::Node(at), Instant::now() + wait);
                self.record_running(at, attempt, Some(input), Some(wait));
            }
        }
    }

    pub(super) fn record_running(
        &mut self,
        at: NodeRef,
        attempt: u32,
        input: Option<Value>,
        next_in: Option<Duration>,
    ) {
        let frame = self.frame(at.frame);
        let (fact, once) = (frame.fact(at, node::Status::Running), frame.is_at_most_once(at));
        self.record_fact(at.frame, NodeFact { attempt, input, next_in, once, ..fact });
    }

    /// Handles the result of work in flight.
    pub(super) fn handle_result(&mut self, at: NodeRef, result: FlightResult, took: Duration) {
        match result {
            FlightResult::Result(result) => {
                self.end_attempt_span(at, if result.is_ok() { "completed" } else { "failed" }, Some(took));
                if at.iteration == 0 {
                    self.frame(at.frame).loops.remove(&at.node);
                }
                self.attempt_ended(at, result);
            }
            // This process starts no further work. The run's next owner performs the node.
            FlightResult::Prepared(..) if self.draining => {}
            FlightResult::Prepared(attempt, prepared) => self.perform(at, attempt, Some(*prepared)),
            FlightResult::Ready(ready) => self.send_once_ready(at, *ready),
            FlightResult::Child(found) => self.attach_child(at, *found),
            FlightResult::NoChild => {
                self.end_attempt_span(at, "canceled", None);
                self.aborted(at, false);
            }
            FlightResult::Loop(stored_loop) => self.resume_loop(at, *stored_loop),
            FlightResult::WaitState(state) => self.handle_wait_state(at, state),
            FlightResult::WaitUpdates(look) => self.handle_wait_updates(look),
            FlightResult::Lost => self.lost = true,
        }
    }
}
