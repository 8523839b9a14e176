//! One run with its children: receives facts, asks the kernel, records, and carries out the effects.
//!
//!     event ──Orchestration::apply──▶ effects ──light nodes immediately──▶ records ──commit──▶ calls, timers, children
//!
//! A run is a tree of frames, one for each execution: the root, and the children that its nodes started. One task
//! drives the whole tree, as the owner of the root. The root's owner and epoch fence the children's records too.
//!
//! Invariants
//! - A fact is stored before it is acted on. Nothing leaves this process for a node before the record that starts the
//!   node is committed. The end of one node and the start of the next are one record.
//! - A node that only computes runs first, and the next record stores its result. Repeating it after a crash is
//!   harmless. A long computation runs on its own thread, and the run keeps receiving messages meanwhile.
//! - A child's end is committed before its node receives it.
//! - When the store reports that another process owns the run, this process stops immediately and writes nothing more.
//!
//! Not here: one execution's state (`frame`), starting nodes (`perform`), stopping them (`stops`), work in flight
//! (`in_flight`). Also not here: children, loops, waits and calls made at most once, each in its module, spans and
//! durations (`spans`), building records (`record`), writing them (`writer`). Who may run is decided in `server`, and
//! all rules are in `kernel`.

mod at_most_once;
mod children;
mod frame;
mod in_flight;
mod loops;
mod perform;
mod record;
mod spans;
mod stops;
mod timers;
mod waits;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use kernel::ids::{ExecutionId, ProcessId};
use kernel::orchestration::capacity::{Need, RunLoad};
use kernel::orchestration::tree::{self, Children};
use kernel::orchestration::{Effect, Event, NodeSnapshot, Orchestration, TargetState};
use kernel::run::attempts::AttemptEvent;
use kernel::run::failure::Failure;
use kernel::run::{Stop, node};
use store::queue::claim::Begun;
use store::run::StoredNode;
use store::run::attempt::Ownership;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{LONGEST_SLEEP, RunExit, Shared};
use crate::attempt::check_output;
use crate::nodes::{self, NodeOutput};
use crate::versions::LoadedVersion;
use frame::{ExecutionFrame, FrameIx, NodeRef, ROOT};
use in_flight::{DeferredWork, InFlight};
use perform::FlightResult;
use timers::{TimerKey, Timers};

/// The approximate maximum size of one record, in bytes. Further facts go into the next record.
const RECORD_BYTES: usize = 8 << 20;
/// The maximum number of facts in one commit.
const RECORD_FACTS: usize = 1_000;

/// A message to a run from outside.
#[derive(Clone, Copy, Debug)]
pub(super) enum RunMessage {
    Cancel,
    /// Start no further work, and release the run once no work is in flight.
    Drain,
    /// Something changed for a wait or a child of the tree. The run reads the details from the store.
    CheckWaits,
}

/// Finished work: its node, its result, and how long it took.
type Finished = (NodeRef, FlightResult, Duration);

pub(super) struct TreeDriver {
    shared: Arc<Shared>,
    process: ProcessId,
    /// The owner and epoch that fence every record of the tree.
    hold: Ownership,
    inbox: mpsc::UnboundedReceiver<RunMessage>,
    /// The root's deadline.
    deadline: Instant,
    frames: BTreeMap<FrameIx, Box<ExecutionFrame>>,
    next_frame: FrameIx,
    /// The frames of children, by the nodes that started them.
    children: BTreeMap<NodeRef, FrameIx>,
    /// Effects of the kernel that are not carried out yet.
    effects: VecDeque<(FrameIx, Effect)>,
    /// The frames that have facts or an end to record, and the approximate size and the number of these facts.
    dirty: BTreeSet<FrameIx>,
    pending_bytes: usize,
    pending_facts: usize,
    /// Nodes and attempts that are ready to be performed, once there is room for them.
    ready: VecDeque<(NodeRef, u32)>,
    /// Work to launch after the next commit.
    calls: Vec<(NodeRef, DeferredWork)>,
    in_flight: JoinSet<Finished>,
    handles: BTreeMap<NodeRef, InFlight>,
    timers: Timers,
    child_slots: Children<NodeRef>,
    /// The spans of running attempts, and when they began.
    spans: BTreeMap<NodeRef, (tracing::Span, Instant)>,
    draining: bool,
    /// Children to cancel as soon as they are loaded.
    cancel_on_arrival: BTreeSet<ExecutionId>,
    /// The run must read its answers from the store.
    check_waits: bool,
    /// The next read of answers also returns answers that an earlier read already took.
    reread: bool,
    /// Another process owns this run.
    lost: bool,
}

impl TreeDriver {
    /// Resumes a run from its stored nodes. A new run has none.
    pub(super) fn new(
        shared: Arc<Shared>,
        process: ProcessId,
        begun: Begun,
        version: Arc<LoadedVersion>,
        stored: Vec<StoredNode>,
        canceling: bool,
        inbox: mpsc::UnboundedReceiver<RunMessage>,
    ) -> TreeDriver {
        let stop = Stop::at_resume(canceling, begun.deadline_in.is_zero(), false);
        let mut driver = TreeDriver {
            shared,
            process,
            hold: Ownership { execution: begun.execution, owner: process, epoch: begun.epoch },
            inbox,
            deadline: Instant::now() + begun.deadline_in.min(LONGEST_SLEEP),
            frames: BTreeMap::from([(ROOT, Box::new(ExecutionFrame::new(begun, version, None, 0)))]),
            next_frame: ROOT + 1,
            children: BTreeMap::new(),
            effects: VecDeque::new(),
            dirty: BTreeSet::new(),
            pending_bytes: 0,
            pending_facts: 0,
            ready: VecDeque::new(),
            calls: Vec::new(),
            in_flight: JoinSet::new(),
            handles: BTreeMap::new(),
            timers: Timers::default(),
            child_slots: Children::default(),
            spans: BTreeMap::new(),
            draining: false,
            cancel_on_arrival: BTreeSet::new(),
            check_waits: false,
            reread: false,
            lost: false,
        };
        driver.restore(ROOT, stored, stop);
        driver
    }

    /// Restores a frame from its stored nodes.
    fn restore(&mut self, ix: FrameIx, stored: Vec<StoredNode>, stop: Option<Stop>) {
        let now = Instant::now();
        let mut rows = Vec::new();
        let frame = frame(&mut self.frames, ix);
        for row in stored {
            let Some(node) = frame.version.plan.index_of(&row.node) else { continue };
            let at = NodeRef::node(ix, node);
            frame.set_attempt(at, row.attempt);
            rows.push(NodeSnapshot { node, status: row.status, label: row.label.clone(), attempt: row.attempt });
            let on_error = frame.version.plan.node(node).on_error;
            let Some(end) = node::NodeEnd::stored(row.status, row.label, on_error) else {
                if let Some(wait) = row.next_in {
                    self.timers.set(TimerKey::Node(at), now + wait);
                }
                if row.status != node::Status::Retrying && frame.kind(at).makes_more() {
                    self.child_slots.expect_existing(at);
                }
                continue;
            };
            frame.add_to_scope(node, &end, row.output.unwrap_or_default(), row.error.as_ref());
            if let (node::NodeEnd::Failed { .. } | node::NodeEnd::Lost, Some(failure)) = (&end, row.error) {
                frame.failures.insert(node, failure);
            }
        }
        let (plan, execution) = (Arc::clone(&frame.version.plan), frame.execution());
        let (machine, effects) = Orchestration::resume(plan, execution, stop, rows);
        frame.machine = machine;
        self.effects.extend(effects.into_iter().map(|effect| (ix, effect)));
    }

    /// Drives the run until it ends, is parked or released, or another process owns it.
    pub(super) async fn drive(mut self) -> RunExit {
        loop {
            self.carry_out().await;
            if let Some(exit) = self.commit().await {
                return exit;
            }
            for (at, call) in std::mem::take(&mut self.calls) {
                self.launch(at, call);
            }
            if self.has_immediate_work() {
                continue;
            }
            self.check_waits_if_notified();
            if self.draining && self.in_flight.is_empty() {
                return RunExit::Released;
            }
            self.wait().await;
            if self.lost {
                return RunExit::Lost;
            }
        }
    }

    fn frame(&mut self, ix: FrameIx) -> &mut ExecutionFrame {
        frame(&mut self.frames, ix)
    }

    fn apply(&mut self, ix: FrameIx, event: Event) {
        let effects = self.frame(ix).machine.apply(event);
        self.effects.extend(effects.into_iter().map(|effect| (ix, effect)));
    }

    fn enter(&mut self, at: NodeRef, state: TargetState) {
        self.apply(at.frame, Event::Entered { at: at.target(), state });
    }

    /// Carries out every effect that needs no commit before it, and collects facts up to the limits of one record.
    async fn carry_out(&mut self) {
        while self.pending_bytes < RECORD_BYTES && self.pending_facts < RECORD_FACTS {
            while let Some((ix, effect)) = self.effects.pop_front() {
                self.carry_out_one(ix, effect).await;
            }
            if !self.has_immediate_work() {
                return;
            }
            if let Some((at, attempt)) = self.ready.pop_front() {
                self.start_ready(at, attempt);
            }
            // Yield, because a graph that only computes must not keep a thread from other runs.
            tokio::task::yield_now().await;
        }
    }

    async fn carry_out_one(&mut self, ix: FrameIx, effect: Effect) {
        match effect {
            Effect::Settle { at, end } => self.settle(NodeRef::of(ix, at), end),
            Effect::Perform { at, attempt } => self.ready.push_back((NodeRef::of(ix, at), attempt)),
            Effect::Wait { at, attempt, wait } => self.schedule_retry(NodeRef::of(ix, at), attempt, wait),
            Effect::CheckWait { at } => self.check_wait(NodeRef::of(ix, at)),
            Effect::Abort { at } => self.abort(NodeRef::of(ix, at)),
            Effect::Find { at } => self.find_begun_earlier(NodeRef::of(ix, at)),
            Effect::StopChild { at, stop } => self.stop_child(NodeRef::of(ix, at), stop),
            Effect::Collect { node, failed } => self.collect(NodeRef::node(ix, node), failed),
            Effect::Finish(outcome) => self.finish(ix, &outcome).await,
        }
    }

    /// True if the run can continue without waiting for a result, a message or a timer.
    fn has_immediate_work(&self) -> bool {
        !self.effects.is_empty() || self.ready.front().is_some_and(|(at, _)| self.has_room(*at))
    }

    fn has_room(&self, at: NodeRef) -> bool {
        let in_flight = self.in_flight.len() + self.calls.len();
        let load = RunLoad { in_flight, ending: self.draining, ..RunLoad::default() };
        load.admits(Need::InFlight) || RunLoad { computing: self.computing(), ..load }.admits(self.needs(at))
    }

    fn needs(&self, at: NodeRef) -> Need {
        match self.frames.get(&at.frame) {
            Some(frame) if frame.kind(at).is_light() && !nodes::may_take_long(frame.spec(at)) => Need::Nothing,
            Some(frame) if frame.kind(at).is_light() => Need::ComputeThread,
            _ => Need::InFlight,
        }
    }

    /// Handles the end of a node's attempt.
    fn attempt_ended(&mut self, at: NodeRef, result: Result<NodeOutput, Failure>) {
        self.end_attempt_span(at, if result.is_ok() { "completed" } else { "failed" }, None);
        let result = check_output(result);
        #[cfg(feature = "mutants")]
        let result = result.map(crate::mutant::output);
        self.timers.remove(TimerKey::Node(at));
        self.release_child_slot(at);
        let frame = self.frame(at.frame);
        let attempt = frame.attempt(at).unwrap_or(1);
        let event = match &result {
            Ok(output) => Event::Attempt(at.target(), AttemptEvent::Succeeded { attempt, took: output.label.clone() }),
            Err(failure) => Event::Attempt(at.target(), AttemptEvent::Failed { attempt, failure: failure.clone() }),
        };
        frame.results.insert(at.target(), result);
        self.apply(at.frame, event);
    }

    /// How long the tree needs no process. None if that is too short to park the run.
    fn may_park(&self) -> Option<Duration> {
        let begun = self.in_flight.len() + self.calls.len();
        let busy = begun + self.ready.len() + self.effects.len() + usize::from(self.check_waits);
        tree::may_park(busy, self.next().saturating_duration_since(Instant::now()))
    }

    /// When the next timer or deadline is due.
    fn next(&self) -> Instant {
        self.timers.next().map_or(self.deadline, |next| next.min(self.deadline))
    }

    /// Waits for the next result, message or timer, and handles it.
    async fn wait(&mut self) {
        let next = self.next();
        tokio::select! {
            Some(joined) = self.in_flight.join_next_with_id() => self.task_ended(joined),
            Some(message) = self.inbox.recv() => match message {
                RunMessage::Cancel => self.apply(ROOT, Event::Stopped(Stop::Cancel)),
                RunMessage::Drain => self.drain(),
                RunMessage::CheckWaits => self.check_waits = true,
            },
            () = tokio::time::sleep_until(next) => self.handle_due_timers(),
        }
        // The results of all other work that ended meanwhile go into the same commit.
        while let Some(joined) = self.in_flight.try_join_next_with_id() {
            self.task_ended(joined);
        }
    }

    fn task_ended(&mut self, joined: Result<(tokio::task::Id, Finished), tokio::task::JoinError>) {
        match joined {
            Ok((_, (at, result, took))) => {
                if self.handles.remove(&at).is_some() {
                    self.handle_result(at, result, took);
                }
            }
            Err(error) => {
                let found = self.handles.iter().find(|(_, flight)| flight.handle.id() == error.id());
                let Some(at) = found.map(|(at, _)| *at) else { return };
                self.handles.remove(&at);
                if at == waits::CHECK_WAITS {
                    (self.check_waits, self.reread) = (true, true);
                } else {
                    let frame = self.frame(at.frame);
                    let (execution_id, node) = (frame.execution(), frame.key(at));
                    tracing::error!(%execution_id, %node, "Node failed: its code panicked");
                    self.attempt_ended(at, Err(Failure::panicked()));
                }
            }
        }
    }
}

/// The frame with this index. A frame exists as long as anything refers to it.
fn frame(frames: &mut BTreeMap<FrameIx, Box<ExecutionFrame>>, ix: FrameIx) -> &mut ExecutionFrame {
    frames.get_mut(&ix).expect("everything that belongs to a frame is removed with it")
}
