//! One run with all that it made: takes facts in, asks the kernel, records, and carries out.
//!
//!     event ──Run::apply──▶ effects ──light nodes at once──▶ records ──commit──▶ calls, timers, children
//!
//! A run is a tree of frames, one for each execution: the root's, and those of the children that its nodes made. One task drives
//! all of it, as the root's owner; what is recorded of a child is fenced by the root.
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
//! Not here: one execution's state (`frame`), starting nodes (`perform`), stopping them (`stops`), children (`children`), loops (`loops`),
//! what is asked outside (`asks`), calls made at most once (`once`), who may have a child (`turns`), what is told of an attempt
//! (`attempt`), what is stored and remembered (`record`), writing (`writer`), who may run (`server`), rules of any kind (`kernel`).

mod asks;
mod attempt;
mod children;
mod due;
mod frame;
mod insist;
mod loops;
mod once;
mod perform;
mod record;
mod stops;
mod timers;
mod turns;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use kernel::definition::plan::NodeIx;
use kernel::ids::{ExecutionId, ProcessId};
use kernel::run::failure::Failure;
use kernel::run::{Effect, Event, Open, Run, Stop};
use kernel::run::{each, node};
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
use frame::{At, Frame, FrameIx, ROOT};
use once::Flight;
use perform::{Brought, Outgoing};
use timers::{Due, Timers};
use turns::Turns;

/// A run is given up by its process when nothing happens for longer than this.
const PARK_AFTER: Duration = Duration::from_secs(5);
/// About the most bytes of one record; what comes after goes into the next.
const RECORD_BYTES: usize = 8 << 20;
/// The most facts that are gathered for one commit.
const RECORD_FACTS: usize = 1_000;
/// How many nodes of one tree may be in flight at once.
const IN_FLIGHT: usize = 64;
/// How many nodes of one tree that only compute may be in flight beside them.
const COMPUTING: usize = 4;

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

/// An order of the kernel, to a run or to a loop of it.
enum Order {
    Run(Effect),
    Each(NodeIx, each::Effect),
}

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
    orders: VecDeque<(FrameIx, Order)>,
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
    turns: Turns,
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
            turns: Turns::default(),
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
        let (mut settled, mut open) = (Vec::new(), Vec::new());
        let frame = frame(&mut self.frames, ix);
        for row in stored {
            let Some(node) = frame.version.plan.index_of(&row.node) else { continue };
            frame.attempted(At::node(ix, node), row.attempt);
            let on_error = frame.version.plan.node(node).on_error;
            let Some(end) = node::End::stored(row.status, row.label, on_error) else {
                if let Some(wait) = row.next_in {
                    self.timers.set(Due::Node(At::node(ix, node)), now + wait);
                }
                let waiting = row.status == node::Status::Retrying;
                if !waiting {
                    frame.resumed.insert((node, 0));
                    if frame.kind(At::node(ix, node)).makes_more() {
                        self.turns.seek(At::node(ix, node));
                    }
                }
                open.push(Open { node, attempt: row.attempt.max(1), waiting });
                continue;
            };
            frame.remember(node, &end, row.output.unwrap_or_default(), row.error.as_ref());
            if let (node::End::Failed { .. } | node::End::Lost, Some(failure)) = (&end, row.error) {
                frame.failures.insert(node, failure);
            }
            settled.push((node, end));
        }
        frame.stop = stop;
        let (plan, execution) = (Arc::clone(&frame.version.plan), frame.execution());
        let (run, effects) = Run::resume(plan, execution, stop, settled, open);
        frame.run = run;
        self.orders.extend(effects.into_iter().map(|effect| (ix, Order::Run(effect))));
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
        let frame = frame(&mut self.frames, ix);
        match event {
            Event::CancelRequested => frame.stop = frame.stop.or(Some(Stop::Cancel)),
            Event::DeadlinePassed => frame.stop = frame.stop.or(Some(Stop::Deadline)),
            _ => {}
        }
        let effects = frame.run.apply(event);
        self.orders.extend(effects.into_iter().map(|effect| (ix, Order::Run(effect))));
    }

    /// Carries out every order that needs no commit first, and gathers what is to be recorded, up to
    /// what one record may hold.
    async fn carry_out(&mut self) {
        while self.gathered < RECORD_BYTES && self.facts < RECORD_FACTS {
            while let Some((ix, order)) = self.orders.pop_front() {
                match order {
                    Order::Run(effect) => self.carry_out_one(ix, effect).await,
                    Order::Each(node, effect) => self.carry_out_item(At::node(ix, node), effect),
                }
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
            Effect::Settle { node, end } => self.settle(At::node(ix, node), end),
            Effect::Perform { node, attempt } => self.ready.push_back((At::node(ix, node), attempt)),
            Effect::Wait { node, attempt, wait } => self.retry_later(At::node(ix, node), attempt, wait),
            Effect::Abort { node } => self.abort(At::node(ix, node)),
            Effect::Finish(outcome) => self.finish(ix, &outcome).await,
        }
    }

    /// Something can be done without waiting for anything.
    fn has_more_to_do(&self) -> bool {
        let room = self.in_flight.len() + self.calls.len() < IN_FLIGHT && !self.draining;
        let light = |at: &At| match self.frames.get(&at.frame) {
            Some(frame) if frame.kind(*at).is_light() => {
                !nodes::may_take_long(frame.spec(*at)) || (!self.draining && self.computing() < COMPUTING)
            }
            _ => false,
        };
        !self.orders.is_empty() || self.ready.front().is_some_and(|(at, _)| room || light(at))
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
        let (node, failure) = (at.node, result.as_ref().err().cloned());
        let took = result.as_ref().ok().and_then(|done| done.took.clone());
        frame.results.insert((node, at.iteration), result);
        match (at.index(), failure) {
            (None, None) => self.apply(at.frame, Event::NodeSucceeded { node, attempt, took }),
            (None, Some(failure)) => self.apply(at.frame, Event::NodeFailed { node, attempt, failure }),
            (Some(index), None) => self.apply_each(at, each::Event::Succeeded { index, attempt }),
            (Some(index), Some(failure)) => self.apply_each(at, each::Event::Failed { index, attempt, failure }),
        }
    }

    /// For how long nothing of the tree needs a process, if that is worth leaving it: nothing is in flight, and the next thing
    /// that happens by itself is far enough away.
    fn may_park(&self) -> Option<Duration> {
        let idle =
            self.in_flight.is_empty() && self.calls.is_empty() && self.ready.is_empty() && self.orders.is_empty();
        let left = self.next().saturating_duration_since(Instant::now());
        (idle && !self.look && left > PARK_AFTER).then_some(left)
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
                Message::Cancel => self.apply(ROOT, Event::CancelRequested),
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
