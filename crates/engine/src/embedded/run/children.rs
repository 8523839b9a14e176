//! Children: executions that nodes of this tree start. Each is a frame of the same run.
//!
//! Invariants
//! - The node's start is recorded before its child is started, as for a call. Starting the child again finds the same
//!   child, running or ended.
//! - A child's end is committed before its node receives it. The kernel decides what that end means for the node.
//! - A frame is removed with everything that belongs to it. Work in flight below it is aborted.
//!
//! What happens if this process dies: the node is performed again and finds its child as the rows describe it.
//!
//! Not here: starting or finding the row (`attempt::child`), the end of a root (`record`).

use std::ops::RangeInclusive;
use std::sync::Arc;

use kernel::definition::plan::NodeIx;
use kernel::ids::ExecutionId;
use kernel::orchestration::TargetState;
use kernel::run::Stop;
use kernel::run::failure::{Class, Failure};
use store::queue::claim::Begun;
use store::run::attempt::Ownership;
use store::run::child::{ChildState, ParentAttempt};
use store::run::{End, Record, StoredNode};
use tokio::time::Instant;

use super::TreeDriver;
use super::frame::{ExecutionFrame, FrameIx, NodeRef};
use super::perform::FlightResult;
use super::timers::TimerKey;
use crate::attempt::child::{ChildStart, ended, load_version};
use crate::attempt::retry_until_answered;
use crate::embedded::writer::RecordReply;
use crate::embedded::{LONGEST_SLEEP, NAME, Shared};
use crate::ending;
use crate::nodes::NodeOutput;
use crate::versions::LoadedVersion;

/// A child that exists, as the store returned it.
pub(super) enum LoadedChild {
    Running {
        begun: Begun,
        version: Arc<LoadedVersion>,
        stored: Vec<StoredNode>,
        canceling: bool,
        inherits: bool,
    },
    /// `unknown`: one of the child's nodes ended as UNKNOWN.
    Ended {
        execution: ExecutionId,
        end: End,
        unknown: bool,
    },
}

impl ExecutionFrame {
    /// The key under which the store finds the child of a node.
    pub(super) fn parent_attempt(&self, at: NodeRef, attempt: u32) -> ParentAttempt {
        ParentAttempt { execution: self.execution(), node: self.key(at).clone(), iteration: at.iteration, attempt }
    }
}

impl Shared {
    /// Starts the child of a node, or finds the child that was already started.
    pub(super) async fn start_child(&self, hold: Ownership, child_start: &ChildStart) -> Result<FlightResult, Failure> {
        if child_start.is_detached() {
            return self.detach(child_start).await.map(|done| FlightResult::Result(Ok(done)));
        }
        let spawn = || child_start.spawn(&self.store, &self.versions, hold, (NAME, true));
        let spawned = retry_until_answered(spawn).await?;
        Ok(self.load_spawned(hold, spawned).await)
    }

    /// Finds the child of a node that is being stopped.
    pub(super) async fn find_child(&self, hold: Ownership, parent: &ParentAttempt) -> Result<FlightResult, Failure> {
        let found = retry_until_answered(|| self.store.find_child(hold, parent)).await?;
        Ok(self.load_spawned(hold, found).await)
    }

    /// Starts a detached execution for a node.
    async fn detach(&self, child_start: &ChildStart) -> Result<NodeOutput, Failure> {
        let max_generations = self.settings.max_generations;
        let (done, ready) =
            retry_until_answered(|| child_start.detach(&self.store, &self.versions, max_generations)).await?;
        if let (true, Some(on_ready)) = (ready, self.on_ready.get()) {
            on_ready(child_start.workspace());
        }
        Ok(done)
    }

    /// Loads a child that was started or found.
    async fn load_spawned(&self, hold: Ownership, spawned: Option<ChildState>) -> FlightResult {
        let found = match spawned {
            None => return FlightResult::Lost,
            Some(ChildState::Missing | ChildState::Refused(_)) => return FlightResult::NoChild,
            Some(ChildState::Ended { execution, end, unknown }) => LoadedChild::Ended { execution, end, unknown },
            Some(ChildState::Running { begun, canceling, made, inherits }) => match self.load_child(&begun, made).await
            {
                Ok((version, stored)) => LoadedChild::Running { begun: *begun, version, stored, canceling, inherits },
                Err(failure) => return self.fail_child(hold, &begun, failure).await,
            },
        };
        FlightResult::Child(Box::new(found))
    }

    /// Loads the version and the stored nodes of a child, or returns why they cannot be loaded.
    async fn load_child(&self, begun: &Begun, made: bool) -> Result<(Arc<LoadedVersion>, Vec<StoredNode>), Failure> {
        let version = retry_until_answered(|| load_version(&self.store, &self.versions, begun.version)).await?;
        if made {
            return Ok((version, Vec::new()));
        }
        let message = "the child's stored nodes cannot be read; ask the operator to check the log";
        let stored = retry_until_answered(|| self.store.run_nodes(begun.execution)).await;
        Ok((version, stored.map_err(|_| Failure::new(Class::BadGraph, message))?))
    }

    /// Ends a child whose version or nodes cannot be loaded.
    async fn fail_child(&self, hold: Ownership, begun: &Begun, failure: Failure) -> FlightResult {
        let (execution_id, reason) = (begun.execution, failure.message.as_str());
        tracing::warn!(%execution_id, reason, "Child execution failed: its version or its nodes cannot be loaded");
        let end = ending::failed(failure);
        let record = Record { end: Some(end.clone()), ..Record::new(begun.execution, hold) };
        match self.writer.record(hold.owner, record).await {
            Some(RecordReply::Recorded(recorded)) if recorded.held => {
                let execution = begun.execution;
                FlightResult::Child(Box::new(LoadedChild::Ended { execution, end, unknown: false }))
            }
            _ => FlightResult::Lost,
        }
    }
}

impl TreeDriver {
    /// Adds a node's child to the tree. If the child has already ended, its node only gets the result.
    pub(super) fn attach_child(&mut self, at: NodeRef, found: LoadedChild) {
        let (begun, version, stored, canceling, inherits) = match found {
            LoadedChild::Ended { execution, end, unknown } => return self.child_ended(at, execution, end, unknown),
            LoadedChild::Running { begun, version, stored, canceling, inherits } => {
                (begun, version, stored, canceling, inherits)
            }
        };
        let ix = self.next_frame;
        self.next_frame += 1;
        let canceling = self.cancel_on_arrival.remove(&begun.execution) || canceling;
        let own = Stop::at_resume(canceling, begun.deadline_in.is_zero(), inherits);
        // The parent may have been stopped meanwhile.
        let stop = self.frame(at.frame).machine.stop().or(own);
        if !inherits {
            self.timers.set(TimerKey::Deadline(ix), Instant::now() + begun.deadline_in.min(LONGEST_SLEEP));
        }
        let depth = self.frame(at.frame).depth + 1;
        self.frames.insert(ix, Box::new(ExecutionFrame::new(begun, version, Some(at), depth)));
        self.children.insert(at, ix);
        self.enter(at, TargetState::Child);
        self.restore(ix, stored, stop);
        self.ready.extend(self.child_slots.found_existing(at));
    }

    /// Handles a child whose end is stored: removes its frame and gives the result to the node that started it.
    pub(super) fn frame_ended(&mut self, ix: FrameIx, end: End) {
        let Some(frame) = self.drop_frame(ix) else { return };
        if let Some(at) = frame.parent {
            self.children.remove(&at);
            self.child_ended(at, frame.execution(), end, frame.machine.run().has_unknown_node());
        }
    }

    fn child_ended(&mut self, at: NodeRef, child: ExecutionId, end: End, unknown: bool) {
        let stopped = self.frame(at.frame).machine.stop().is_some();
        match ended(stopped, child, end, unknown) {
            Some(result) => self.attempt_ended(at, result),
            None => {
                self.end_attempt_span(at, "canceled", None);
                self.aborted(at, false);
            }
        }
    }

    /// Removes a frame and everything that belongs to it.
    fn drop_frame(&mut self, ix: FrameIx) -> Option<Box<ExecutionFrame>> {
        let below: Vec<(NodeRef, FrameIx)> = self.children.range(of(ix)).map(|(at, child)| (*at, *child)).collect();
        for (at, child) in below {
            self.children.remove(&at);
            self.drop_frame(child);
        }
        let handles: Vec<NodeRef> = self.handles.range(of(ix)).map(|(at, _)| *at).collect();
        for at in handles {
            if let Some(flight) = self.handles.remove(&at) {
                flight.handle.abort();
            }
        }
        let spans: Vec<NodeRef> = self.spans.range(of(ix)).map(|(at, _)| *at).collect();
        for at in spans {
            self.spans.remove(&at);
        }
        self.timers.remove_frame(ix);
        let next = self.child_slots.forget(of(ix));
        self.ready.extend(next);
        self.ready.retain(|(at, _)| at.frame != ix);
        self.calls.retain(|(at, _)| at.frame != ix);
        self.effects.retain(|(frame, _)| *frame != ix);
        self.dirty.remove(&ix);
        self.frames.remove(&ix)
    }
}

/// The range that contains every node and iteration of a frame.
pub(super) fn of(frame: FrameIx) -> RangeInclusive<NodeRef> {
    NodeRef { frame, node: NodeIx::MIN, iteration: i32::MIN }..=NodeRef {
        frame,
        node: NodeIx::MAX,
        iteration: i32::MAX,
    }
}
