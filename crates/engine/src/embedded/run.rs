//! One run with all that it made: takes facts in, asks the kernel, records, and carries out.
//!
//!     event ──Orchestration::apply──▶ effects ──light nodes at once──▶ records ──commit──▶ calls, timers, children
//!
//! A run is a tree of frames, one for each execution: the root's, and those of the children that its nodes made. One
//! task drives all of it, as the root's owner; what is recorded of a child is fenced by the root.
//!
//! Invariants
//! - A fact is stored before it is acted on: nothing leaves this process for a node before the
//!   record that starts it is committed, and the end of one node and the start of the next are one
//!   record.
//! - Nodes that only compute are done before that record and stored with it: repeating them after a
//!   crash is harmless. What may take long to compute is in flight meanwhile, and the run hears everything else.
//! - A child's end is committed before its node hears of it.
//! - When the store says that the run is another's by now, this one stops at once and says nothing more.
//!
//! Not here: one execution's state (`frame`), starting nodes (`perform`), stopping them (`stops`), children
//! (`children`), loops (`loops`), what is asked outside (`asks`), calls made at most once (`once`), what is in flight
//! (`flight`), spans and durations (`spans`), what is stored and remembered (`record`), writing (`writer`),
//! who may run (`server`), rules of any kind (`kernel`).

mod asks;
mod children;
mod due;
mod flight;
mod frame;
mod loops;
mod once;
mod perform;
mod record;
mod spans;
mod stops;
mod timers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use kernel::ids::{ExecutionId, ProcessId};
use kernel::orchestration::room::{Load, Needs};
use kernel::orchestration::tree::{self, Children};
use kernel::orchestration::{Effect, Event, Orchestration, Row};
use kernel::run::attempts::Fact;
use kernel::run::failure::Failure;
use kernel::run::{Stop, node};
use store::queue::claim::Begun;
use store::run::StoredNode;
use store::run::attempt::Hold;
use store::wait::Standing;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{LONGEST_SLEEP, Left, Shared};
use crate::nodes::{self, Done};
use crate::versions::Version;
use flight::{Flight, Outgoing};
use frame::{At, Frame, FrameIx, ROOT};
use perform::Brought;
use timers::{Due, Timers};

/// About the most bytes of one record; what comes after goes into the next.
const RECORD_BYTES: usize = 8 << 20;
/// The most facts that are gathered for one commit.
const RECORD_FACTS: usize = 1_000;

/// What reaches a run from outside.
#[derive(Clone, Copy, Debug)]
pub(super) enum Message {
    Cancel,
    /// Begin nothing more, and leave once nothing is in flight.
    Drain,
    /// Something came for it, or for something below it.
    Look,
}

/// Something that was in flight and came to its end: where, with what, and how long it took.
type Ended = (At, Brought, Duration);

pub(super) struct Driver {
    shared: Arc<Shared>,
    process: ProcessId,
    /// What every record of the tree shows.
    hold: Hold,
    inbox: mpsc::UnboundedReceiver<Message>,
    /// The root's.
    deadline: Instant,
    frames: BTreeMap<FrameIx, Box<Frame>>,
    next_frame: FrameIx,
    /// The frames of children, by the nodes that made them.
    children: BTreeMap<At, FrameIx>,
    /// Orders of the kernel not yet carried out.
    orders: VecDeque<(FrameIx, Effect)>,
    /// The frames with something to be recorded, and about how much that is.
    dirty: BTreeSet<FrameIx>,
    gathered: usize,
    facts: usize,
    /// Ready to be performed, once there is room for them.
    ready: VecDeque<(At, u32)>,
    /// Recorded as running, to be called after the commit.
    calls: Vec<(At, Outgoing)>,
    in_flight: JoinSet<Ended>,
    handles: BTreeMap<At, Flight>,
    timers: Timers,
    turns: Children<At>,
    /// Attempts under way: their spans, and since when.
    spans: BTreeMap<At, (tracing::Span, Instant)>,
    draining: bool,
    /// Children that are to end, and are not here yet.
    doomed: BTreeSet<ExecutionId>,
    /// What came for asks that are still under way, and for which attempt.
    news: BTreeMap<At, (u32, Standing)>,
    /// It is to look for what came for it.
    look: bool,
    /// The last look broke off: what it took is read again.
    look_broke: bool,
    /// It is another's by now.
    lost: bool,
}

impl Driver {
    /// A run that takes up where its stored nodes left it; a new one has none.
    pub(super) fn new(
        shared: Arc<Shared>,
        process: ProcessId,
        begun: Begun,
        version: Arc<Version>,
        stored: Vec<StoredNode>,
        canceling: bool,
        inbox: mpsc::UnboundedReceiver<Message>,
    ) -> Driver {
        let overdue = begun.deadline_in.is_zero();
        let stop = if canceling { Some(Stop::Cancel) } else { overdue.then_some(Stop::Deadline) };
        let mut driver = Driver {
            shared,
            process,
            hold: Hold { execution: begun.execution, owner: process, epoch: begun.epoch },
            inbox,
            deadline: Instant::now() + begun.deadline_in.min(LONGEST_SLEEP),
            frames: BTreeMap::from([(ROOT, Box::new(Frame::new(begun, version, None, 0)))]),
            next_frame: ROOT + 1,
            children: BTreeMap::new(),
            orders: VecDeque::new(),
            dirty: BTreeSet::new(),
            gathered: 0,
            facts: 0,
            ready: VecDeque::new(),
            calls: Vec::new(),
            in_flight: JoinSet::new(),
            handles: BTreeMap::new(),
            timers: Timers::default(),
            turns: Children::default(),
            spans: BTreeMap::new(),
            draining: false,
            doomed: BTreeSet::new(),
            news: BTreeMap::new(),
            look: false,
            look_broke: false,
            lost: false,
        };
        driver.restore(ROOT, stored, stop);
        driver
    }

    /// Takes a frame up where its stored nodes left it.
    fn restore(&mut self, ix: FrameIx, stored: Vec<StoredNode>, stop: Option<Stop>) {
        let now = Instant::now();
        let mut rows = Vec::new();
        let frame = frame(&mut self.frames, ix);
        for row in stored {
            let Some(node) = frame.version.plan.index_of(&row.node) else { continue };
            let at = At::node(ix, node);
            frame.attempted(at, row.attempt);
            rows.push(Row { node, status: row.status, label: row.label.clone(), attempt: row.attempt });
            let on_error = frame.version.plan.node(node).on_error;
            let Some(end) = node::End::stored(row.status, row.label, on_error) else {
                if let Some(wait) = row.next_in {
                    self.timers.set(Due::Node(at), now + wait);
                }
                if row.status != node::Status::Retrying && frame.kind(at).makes_more() {
                    self.turns.seek(at);
                }
                continue;
            };
            frame.remember(node, &end, row.output.unwrap_or_default(), row.error.as_ref());
            if let (node::End::Failed { .. } | node::End::Lost, Some(failure)) = (&end, row.error) {
                frame.failures.insert(node, failure);
            }
        }
        let (plan, execution) = (Arc::clone(&frame.version.plan), frame.execution());
        let (machine, effects) = Orchestration::resume(plan, execution, stop, rows);
        frame.machine = machine;
        self.orders.extend(effects.into_iter().map(|effect| (ix, effect)));
    }

    /// Drives the run until it ends, is parked or released, or is another's.
    pub(super) async fn drive(mut self) -> Left {
        loop {
            self.carry_out().await;
            if let Some(left) = self.commit().await {
                return left;
            }
            for (at, call) in std::mem::take(&mut self.calls) {
                self.launch(at, call);
            }
            if self.has_more_to_do() {
                continue;
            }
            self.look_if_told();
            if self.draining && self.in_flight.is_empty() {
                return Left::Released;
            }
            self.wait().await;
            if self.lost {
                return Left::Lost;
            }
        }
    }

    fn frame(&mut self, ix: FrameIx) -> &mut Frame {
        frame(&mut self.frames, ix)
    }

    fn apply(&mut self, ix: FrameIx, event: Event) {
        let effects = self.frame(ix).machine.apply(event);
        self.orders.extend(effects.into_iter().map(|effect| (ix, effect)));
    }

    /// Carries out every order that needs no commit first, and gathers what is to be recorded, up to
    /// what one record may hold.
    async fn carry_out(&mut self) {
        while self.gathered < RECORD_BYTES && self.facts < RECORD_FACTS {
            while let Some((ix, effect)) = self.orders.pop_front() {
                self.carry_out_one(ix, effect).await;
            }
            if !self.has_more_to_do() {
                return;
            }
            if let Some((at, attempt)) = self.ready.pop_front() {
                self.start_ready(at, attempt);
            }
            // A graph that only computes must not keep a thread from everybody else's.
            tokio::task::yield_now().await;
        }
    }

    async fn carry_out_one(&mut self, ix: FrameIx, effect: Effect) {
        match effect {
            Effect::Settle { at, end } => self.settle(At::of(ix, at), end),
            Effect::Perform { at, attempt } => self.ready.push_back((At::of(ix, at), attempt)),
            Effect::Wait { at, attempt, wait } => self.retry_later(At::of(ix, at), attempt, wait),
            Effect::Abort { at } => self.abort(At::of(ix, at)),
            Effect::Find { at } => self.find_first(At::of(ix, at)),
            Effect::StopChild { at, stop } => self.stop_child(At::of(ix, at), stop),
            Effect::Collect { node, failed } => self.collect(At::node(ix, node), failed),
            Effect::Finish(outcome) => self.finish(ix, &outcome).await,
        }
    }

    /// Something can be done without waiting for anything.
    fn has_more_to_do(&self) -> bool {
        !self.orders.is_empty() || self.ready.front().is_some_and(|(at, _)| self.has_room(*at))
    }

    fn has_room(&self, at: At) -> bool {
        let in_flight = self.in_flight.len() + self.calls.len();
        let load = Load { in_flight, computing: 0, ending: self.draining };
        load.admits(Needs::Flight) || Load { computing: self.computing(), ..load }.admits(self.needs(at))
    }

    fn needs(&self, at: At) -> Needs {
        match self.frames.get(&at.frame) {
            Some(frame) if frame.kind(at).is_light() && !nodes::may_take_long(frame.spec(at)) => Needs::Nothing,
            Some(frame) if frame.kind(at).is_light() => Needs::Thread,
            _ => Needs::Flight,
        }
    }

    /// A node's attempt came to its end.
    fn ended(&mut self, at: At, result: Result<Done, Failure>) {
        self.tell(at, if result.is_ok() { "completed" } else { "failed" }, None);
        let result = result.and_then(nodes::storable);
        #[cfg(feature = "mutants")]
        let result = result.map(crate::mutant::done);
        self.timers.remove(Due::Node(at));
        self.leave(at);
        let frame = self.frame(at.frame);
        let attempt = frame.attempt(at).unwrap_or(1);
        let event = match &result {
            Ok(done) => Event::Of(at.target(), Fact::Succeeded { attempt, took: done.took.clone() }),
            Err(failure) => Event::Of(at.target(), Fact::Failed { attempt, failure: failure.clone() }),
        };
        frame.results.insert(at.target(), result);
        self.apply(at.frame, event);
    }

    /// For how long nothing of the tree needs a process, if that is worth leaving it.
    fn may_park(&self) -> Option<Duration> {
        let begun = self.in_flight.len() + self.calls.len();
        let busy = begun + self.ready.len() + self.orders.len() + usize::from(self.look);
        tree::may_park(busy, self.next().saturating_duration_since(Instant::now()))
    }

    /// When the next thing happens by itself.
    fn next(&self) -> Instant {
        self.timers.next().map_or(self.deadline, |next| next.min(self.deadline))
    }

    /// Waits for the next thing to happen, and takes it in.
    async fn wait(&mut self) {
        let next = self.next();
        tokio::select! {
            Some(joined) = self.in_flight.join_next_with_id() => self.joined(joined),
            Some(message) = self.inbox.recv() => match message {
                Message::Cancel => self.apply(ROOT, Event::Stopped(Stop::Cancel)),
                Message::Drain => self.drain(),
                Message::Look => self.look = true,
            },
            () = tokio::time::sleep_until(next) => self.due(),
        }
        // Whatever else ended meanwhile is recorded in the same commit.
        while let Some(joined) = self.in_flight.try_join_next_with_id() {
            self.joined(joined);
        }
    }

    fn joined(&mut self, joined: Result<(tokio::task::Id, Ended), tokio::task::JoinError>) {
        match joined {
            Ok((_, (at, brought, took))) => {
                if self.handles.remove(&at).is_some() {
                    self.take_in(at, brought, took);
                }
            }
            Err(error) => {
                let found = self.handles.iter().find(|(_, flight)| flight.handle.id() == error.id());
                let Some(at) = found.map(|(at, _)| *at) else { return };
                self.handles.remove(&at);
                if at == asks::LOOK {
                    (self.look, self.look_broke) = (true, true);
                } else {
                    let frame = self.frame(at.frame);
                    tracing::error!(execution_id = %frame.execution(), node = %frame.key(at), "A node panicked");
                    self.ended(at, Err(Failure::panicked()));
                }
            }
        }
    }
}

/// A frame that is there for as long as anything of it is.
fn frame(frames: &mut BTreeMap<FrameIx, Box<Frame>>, ix: FrameIx) -> &mut Frame {
    frames.get_mut(&ix).expect("what belongs to a frame leaves with it")
}
