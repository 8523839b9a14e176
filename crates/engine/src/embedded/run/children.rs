//! Children: executions that nodes of this tree make, each a frame of the same run.
//!
//! Invariants
//! - Making a child is the node's call: its start is stored first, and made again it finds the same child, running or
//!   ended.
//! - A child's end is committed before its node hears of it; what its node makes of it is the kernel's to say.
//! - A frame leaves with everything that belongs to it: what is in flight below it is broken off.
//!
//! What happens if this process dies: the node is performed again and finds its child where its rows left it.
//!
//! Not here: making or finding one (`attempt::child`), the end of a root (`record`).

use std::ops::RangeInclusive;
use std::sync::Arc;

use kernel::definition::plan::NodeIx;
use kernel::ids::ExecutionId;
use kernel::kind::workflow;
use kernel::orchestration::Event;
use kernel::run::Stop;
use kernel::run::failure::{Class, Failure};
use store::queue::claim::Begun;
use store::run::attempt::Hold;
use store::run::child::{Place, Spawned};
use store::run::{End, Record, StoredNode};
use tokio::time::Instant;

use super::Driver;
use super::frame::{At, Frame, FrameIx};
use super::perform::Brought;
use super::timers::Due;
use crate::attempt::child::{Starting, readable};
use crate::attempt::until_answered;
use crate::embedded::{LONGEST_SLEEP, NAME, Shared};
use crate::ending;
use crate::nodes::Done;
use crate::versions::Version;

/// A child that is there.
pub(super) enum Found {
    Running {
        begun: Begun,
        version: Arc<Version>,
        stored: Vec<StoredNode>,
        canceling: bool,
        inherits: bool,
    },
    /// `unknown`: of one of its nodes it is not known whether it took effect.
    Ended {
        execution: ExecutionId,
        end: End,
        unknown: bool,
    },
}

impl Frame {
    /// Where the child of a node is.
    pub(super) fn place(&self, at: At, attempt: u32) -> Place {
        Place { parent: self.execution(), node: self.key(at).clone(), iteration: at.iteration, attempt }
    }
}

impl Shared {
    /// Makes the child of a node, or finds it.
    pub(super) async fn child(&self, hold: Hold, starting: &Starting) -> Brought {
        if starting.is_detached() {
            return Brought::Result(self.detach(starting).await);
        }
        let spawning = || starting.spawn(&self.store, &self.versions, hold, (NAME, true));
        let spawned = until_answered(spawning).await;
        self.take_up_spawned(hold, spawned).await
    }

    /// Finds the child of a node that is to be stopped.
    pub(super) async fn find(&self, hold: Hold, place: &Place) -> Brought {
        let found = until_answered(|| self.store.find_child(hold, place)).await;
        self.take_up_spawned(hold, found).await
    }

    /// Starts an execution of its own for a node.
    async fn detach(&self, starting: &Starting) -> Result<Done, Failure> {
        let most = self.settings.max_generations;
        let (done, ready) = until_answered(|| starting.detach(&self.store, &self.versions, most)).await?;
        if let (true, Some(tell)) = (ready, self.on_ready.get()) {
            tell(starting.workspace());
        }
        Ok(done)
    }

    /// A child as it is here.
    async fn take_up_spawned(&self, hold: Hold, spawned: Result<Option<Spawned>, Failure>) -> Brought {
        let found = match spawned {
            Err(failure) => return Brought::Result(Err(failure)),
            Ok(None) => None,
            Ok(Some(Spawned::Missing | Spawned::Refused(_))) => return Brought::Nothing,
            Ok(Some(Spawned::Ended { execution, end, unknown })) => Some(Found::Ended { execution, end, unknown }),
            Ok(Some(Spawned::Running { begun, canceling, made, inherits })) => {
                match self.take_up_child(*begun, made).await {
                    Ok((begun, version, stored)) => {
                        Some(Found::Running { begun, version, stored, canceling, inherits })
                    }
                    Err((begun, failure)) => self.give_child_up(hold, &begun, failure).await,
                }
            }
        };
        found.map_or(Brought::Lost, |found| Brought::Child(Box::new(found)))
    }

    /// Everything that a child needs to go on; or why it cannot.
    async fn take_up_child(
        &self,
        begun: Begun,
        made: bool,
    ) -> Result<(Begun, Arc<Version>, Vec<StoredNode>), (Box<Begun>, Failure)> {
        let version = match until_answered(|| readable(&self.store, &self.versions, begun.version)).await {
            Ok(version) => version,
            Err(failure) => return Err((Box::new(begun), failure)),
        };
        let stored = if made { Ok(Vec::new()) } else { until_answered(|| self.store.run_nodes(begun.execution)).await };
        match stored {
            Ok(stored) => Ok((begun, version, stored)),
            Err(_) => {
                let failure = Failure::new(Class::BadGraph, "what is stored of it cannot be read");
                Err((Box::new(begun), failure))
            }
        }
    }

    /// Ends a child that cannot be run.
    async fn give_child_up(&self, hold: Hold, begun: &Begun, failure: Failure) -> Option<Found> {
        tracing::warn!(execution_id = %begun.execution, reason = failure.message, "A child cannot be run");
        let end = ending::failed(failure);
        let record = Record { end: Some(end.clone()), ..Record::new(begun.execution, hold) };
        match self.writer.record(hold.owner, record).await {
            Some(crate::embedded::writer::Told::Recorded(told)) if told.held => {
                Some(Found::Ended { execution: begun.execution, end, unknown: false })
            }
            _ => None,
        }
    }
}

impl Driver {
    /// A node's child is there: it joins the tree, or has ended before.
    pub(super) fn found(&mut self, at: At, found: Found) {
        let (begun, version, stored, canceling, inherits) = match found {
            Found::Ended { execution, end, unknown } => return self.child_ended(at, execution, end, unknown),
            Found::Running { begun, version, stored, canceling, inherits } => {
                (begun, version, stored, canceling, inherits)
            }
        };
        let ix = self.next_frame;
        self.next_frame += 1;
        let canceling = self.doomed.remove(&begun.execution) || canceling;
        // A deadline that is its parent's comes from there.
        let overdue = begun.deadline_in.is_zero() && !inherits;
        let own = if canceling { Some(Stop::Cancel) } else { overdue.then_some(Stop::Deadline) };
        // Who made it was stopped meanwhile.
        let stop = self.frame(at.frame).machine.stop().or(own);
        if !inherits {
            self.timers.set(Due::Deadline(ix), Instant::now() + begun.deadline_in.min(LONGEST_SLEEP));
        }
        let depth = self.frame(at.frame).depth + 1;
        self.frames.insert(ix, Box::new(Frame::new(begun, version, Some(at), depth)));
        self.children.insert(at, ix);
        self.apply(at.frame, Event::ChildStarted { at: at.target() });
        self.restore(ix, stored, stop);
        self.ready.extend(self.turns.found(at));
    }

    /// A child's end is stored: its frame leaves, and its node hears of it.
    pub(super) fn frame_ended(&mut self, ix: FrameIx, end: End) {
        let Some(frame) = self.drop_frame(ix) else { return };
        if let Some(at) = frame.parent {
            self.children.remove(&at);
            self.child_ended(at, frame.execution(), end, frame.machine.run().has_lost());
        }
    }

    fn child_ended(&mut self, at: At, child: ExecutionId, end: End, unknown: bool) {
        let End { outcome, output, error } = end;
        let stopped = self.frame(at.frame).machine.stop().is_some();
        if workflow::was_stopped(stopped, outcome, unknown) {
            self.tell(at, "canceled", None);
            return self.aborted(at, false);
        }
        self.ended(at, workflow::ended(child, outcome, output, error, unknown).map(Done::plain));
    }

    /// Removes a frame and all that belongs to it.
    fn drop_frame(&mut self, ix: FrameIx) -> Option<Box<Frame>> {
        let below: Vec<(At, FrameIx)> = self.children.range(of(ix)).map(|(at, child)| (*at, *child)).collect();
        for (at, child) in below {
            self.children.remove(&at);
            self.drop_frame(child);
        }
        let handles: Vec<At> = self.handles.range(of(ix)).map(|(at, _)| *at).collect();
        for at in handles {
            if let Some(flight) = self.handles.remove(&at) {
                flight.handle.abort();
            }
        }
        let spans: Vec<At> = self.spans.range(of(ix)).map(|(at, _)| *at).collect();
        for at in spans {
            self.spans.remove(&at);
        }
        self.timers.forget(ix);
        let next = self.turns.forget(of(ix));
        self.ready.extend(next);
        self.ready.retain(|(at, _)| at.frame != ix);
        self.calls.retain(|(at, _)| at.frame != ix);
        self.orders.retain(|(frame, _)| *frame != ix);
        self.dirty.remove(&ix);
        self.frames.remove(&ix)
    }
}

/// Everything of a frame.
pub(super) fn of(frame: FrameIx) -> RangeInclusive<At> {
    At { frame, node: NodeIx::MIN, iteration: i32::MIN }..=At { frame, node: NodeIx::MAX, iteration: i32::MAX }
}
