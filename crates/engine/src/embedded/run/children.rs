//! Children: executions that nodes of this tree make, each a frame of the same run.
//!
//! Invariants
//! - Making a child is the node's call: its start is stored first, and made again it finds the same child, running or ended.
//! - A child's end is committed before its node hears of it; what its node makes of it is the kernel's to say.
//! - A frame leaves with everything that belongs to it: what is in flight below it is broken off.
//!
//! What happens if this process dies: the node is performed again and finds its child where its rows left it.
//!
//! Not here: making the row (`store::run::child`), the end of a root (`record`).

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use kernel::definition::inputs::Inputs;
use kernel::definition::plan::NodeIx;
use kernel::definition::{Kind, Node};
use kernel::execution;
use kernel::execution::generation;
use kernel::ids::{ExecutionId, WorkspaceId};
use kernel::kind::workflow::{self, Config, MAX_DEPTH, MAX_DESCENDANTS};
use kernel::orchestration::Event;
use kernel::queue::Priority;
use kernel::run::Stop;
use kernel::run::failure::{Class, Failure};
use kernel::signals::trace::TraceParent;
use serde_json::Value;
use store::new_id;
use store::queue::claim::Begun;
use store::queue::enqueue::{Accepted, Judged, Start};
use store::run::attempt::Hold;
use store::run::child::{Named, NewChild, Place, Refusal, Spawned};
use store::run::{End, Record, StoredNode};
use tokio::time::Instant;
use uuid::Uuid;

use super::Driver;
use super::frame::{At, Frame, FrameIx};
use super::insist::insist;
use super::perform::{Brought, Outgoing};
use super::timers::Due;
use crate::embedded::{LONGEST_SLEEP, NAME, Shared};
use crate::nodes::Done;
use crate::versions::{self, Version};

/// A child that is to be made, or found.
pub(super) struct Starting {
    place: Place,
    workspace: WorkspaceId,
    config: Config,
    timeout: Option<Duration>,
    trace: TraceParent,
    /// Why the execution runs that makes it.
    cause: Value,
}

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

impl Starting {
    pub(super) fn new(config: Config, spec: &Node, of: &Frame, at: At, attempt: u32, trace: TraceParent) -> Starting {
        let place = of.place(at, attempt);
        let timeout = spec.timeout_ms.map(Duration::from_millis);
        let cause = of.begun.trigger.clone();
        Starting { place, workspace: of.begun.workspace, config, timeout, trace, cause }
    }

    /// Is it a start of its own, which nobody waits for?
    pub(super) fn is_detached(&self) -> bool {
        self.config.detached
    }

    /// What the child is told of why it runs.
    fn trigger(&self, generation: u32) -> Value {
        let Place { parent, node, iteration, .. } = &self.place;
        workflow::trigger(*parent, node, *iteration, generation)
    }
}

impl Frame {
    /// Where the child of a node is.
    pub(super) fn place(&self, at: At, attempt: u32) -> Place {
        Place { parent: self.execution(), node: self.key(at).clone(), iteration: at.iteration, attempt }
    }

    /// What is to be done for a node that was begun before, if it is to be sought: how the items of a loop stand, and what a node
    /// made that is to be stopped.
    pub(super) fn sought(&self, at: At, attempt: u32, kind: Kind) -> Option<Outgoing> {
        match kind {
            Kind::ForEach => Some(Outgoing::Reload),
            Kind::Workflow if self.machine.stop().is_some() => Some(Outgoing::Find(Box::new(self.place(at, attempt)))),
            _ => None,
        }
    }
}

impl Shared {
    /// Makes the child of a node, or finds it.
    pub(super) async fn child(&self, hold: Hold, starting: Starting) -> Brought {
        match self.find_or_make(hold, &starting).await {
            Ok(Some(found)) => Brought::Child(Box::new(found)),
            Ok(None) => Brought::Lost,
            Err(failure) => Brought::Result(Err(failure)),
        }
    }

    /// Finds the child of a node that is to be stopped.
    pub(super) async fn find(&self, hold: Hold, place: &Place) -> Brought {
        match insist(|| self.store.find_child(hold, place)).await {
            Ok(None) => Brought::Lost,
            Ok(Some(spawned)) => match self.take_up_found(hold, spawned).await {
                Ok(Some(found)) => Brought::Child(Box::new(found)),
                Ok(None) => Brought::Lost,
                Err(_) => Brought::Nothing,
            },
            Err(failure) => Brought::Result(Err(failure)),
        }
    }

    /// Starts an execution of its own for a node, and waits for its acceptance alone. Repeated, it finds the first.
    pub(super) async fn detach(&self, starting: Starting) -> Result<Done, Failure> {
        let generation = generation::next(&starting.cause, self.settings.max_generations)?;
        let Place { parent, node, iteration, .. } = &starting.place;
        let key = format!("node/{parent}/{node}/{iteration}");
        let (named, input) = match self.named(&starting).await {
            Ok(named) => named,
            Err(failure) => {
                // What was accepted before stands, whatever became of its definition.
                let none = (Uuid::max(), Uuid::nil());
                let found = insist(|| self.store.search_executions(starting.workspace, none, &key, 1)).await?;
                return found.first().map(|known| Done::plain(workflow::detached(*known))).ok_or(failure);
            }
        };
        let start = Start {
            execution: ExecutionId(new_id()),
            workspace: starting.workspace,
            definition: named.definition,
            input,
            priority: Priority::USUAL,
            run_at: None,
            concurrency_key: None,
            // One start a node: its content is the node's own business.
            idempotency: Some((key.clone(), key.into_bytes())),
            trigger: starting.trigger(generation),
            trace: Some(starting.trace),
            version: Some(named.version),
            rerun_of: None,
        };
        let judged = [Judged { start: &start, published: None }];
        let accepted = insist(|| self.store.enqueue_judged(&judged, None, "engine")).await?;
        match accepted.first() {
            Some(Accepted::New { execution, ready }) => {
                if let (true, Some(tell)) = (*ready, self.on_ready.get()) {
                    tell(starting.workspace);
                }
                Ok(Done::plain(workflow::detached(*execution)))
            }
            Some(Accepted::Existing { execution }) => Ok(Done::plain(workflow::detached(*execution))),
            // Worth another try: others' work makes room.
            Some(Accepted::Full) => Err(Failure::new(Class::ExecutionError, "the workspace's backlog is full")),
            _ => Err(unknown(&starting.config)),
        }
    }

    async fn find_or_make(&self, hold: Hold, starting: &Starting) -> Result<Option<Found>, Failure> {
        let new = self.named(starting).await.map(|(named, input)| NewChild {
            execution: ExecutionId(new_id()),
            definition: named.definition,
            version: named.version,
            input: input.unwrap_or_default(),
            trigger: starting.trigger(generation::of(&starting.cause)),
            timeout: [named.timeout, starting.timeout].into_iter().flatten().min(),
            trace: starting.trace,
            engine: NAME,
            begins: true,
        });
        let spawned = match &new {
            Ok(new) => insist(|| self.store.spawn_child(hold, &starting.place, new)).await?,
            // What was made before stands, whatever became of its definition.
            Err(_) => insist(|| self.store.find_child(hold, &starting.place)).await?,
        };
        let Some(spawned) = spawned else { return Ok(None) };
        match (self.take_up_found(hold, spawned).await, new) {
            (Ok(found), _) => Ok(found),
            (Err(Some(refusal)), _) => Err(refused(refusal)),
            (Err(None), Err(failure)) => Err(failure),
            (Err(None), Ok(_)) => Err(unknown(&starting.config)),
        }
    }

    /// A child as it is here; none if the hold is lost, and an error if there is no child.
    async fn take_up_found(&self, hold: Hold, spawned: Spawned) -> Result<Option<Found>, Option<Refusal>> {
        match spawned {
            Spawned::Ended { execution, end, unknown } => Ok(Some(Found::Ended { execution, end, unknown })),
            Spawned::Running { begun, canceling, made, inherits } => Ok(match self.take_up_child(*begun, made).await {
                Ok((begun, version, stored)) => Some(Found::Running { begun, version, stored, canceling, inherits }),
                Err((begun, failure)) => self.give_child_up(hold, &begun, failure).await,
            }),
            Spawned::Refused(refusal) => Err(Some(refusal)),
            Spawned::Missing => Err(None),
        }
    }

    /// Everything that a child needs to go on; or why it cannot.
    async fn take_up_child(
        &self,
        begun: Begun,
        made: bool,
    ) -> Result<(Begun, Arc<Version>, Vec<StoredNode>), (Box<Begun>, Failure)> {
        let version = match self.readable(begun.version).await {
            Ok(version) => version,
            Err(failure) => return Err((Box::new(begun), failure)),
        };
        let stored = if made { Ok(Vec::new()) } else { insist(|| self.store.run_nodes(begun.execution)).await };
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
        let end = End { outcome: execution::Status::Failed, output: None, error: Some(failure) };
        let record = Record {
            execution: begun.execution,
            holder: hold.execution,
            epoch: hold.epoch,
            facts: Vec::new(),
            end: Some(end.clone()),
            park: None,
        };
        match self.writer.record(hold.owner, record).await {
            Some(crate::embedded::writer::Told::Recorded(told)) if told.held => {
                Some(Found::Ended { execution: begun.execution, end, unknown: false })
            }
            _ => None,
        }
    }

    /// Which version a node means, and what it is to start with.
    async fn named(&self, starting: &Starting) -> Result<(Named, Option<Value>), Failure> {
        let config = &starting.config;
        let named = || self.store.named_version(starting.workspace, &config.workflow, config.version);
        let named = insist(named).await?.ok_or_else(|| unknown(config))?;
        let version = self.readable(named.version).await?;
        let definition = &version.definition;
        let inputs = Inputs::read(&definition.inputs, definition.additional_inputs.unwrap_or(true));
        let input = inputs.apply(config.input.clone()).map_err(|problems| {
            let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
            let message = format!("{:?} does not take this input: {}", config.workflow, all.join("; "));
            Failure::new(Class::ValidationError, message)
        })?;
        Ok((named, input))
    }

    async fn readable(&self, id: kernel::ids::VersionId) -> Result<Arc<Version>, Failure> {
        self.versions.insist(&self.store, id).await.map_err(|error| match error {
            versions::Error::Missing(_) => Failure::new(Class::DefinitionGone, error.to_string()),
            error => Failure::new(Class::BadGraph, error.to_string()),
        })
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
        // What stopped it from above is no failure of its node.
        if self.frame(at.frame).machine.stop().is_some() && outcome != execution::Status::Completed && !unknown {
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
        let next = self.turns.forget(ix);
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

fn unknown(config: &Config) -> Failure {
    let version = config.version.map(|version| format!(" version {version} of")).unwrap_or_default();
    let message = format!("there is no{version} published workflow {:?} in this workspace", config.workflow);
    Failure::new(Class::ValidationError, message)
}

fn refused(refusal: Refusal) -> Failure {
    let message = match refusal {
        Refusal::TooDeep => format!("a child would be at depth {}; at most {MAX_DEPTH} are allowed", MAX_DEPTH + 1),
        Refusal::TooMany => format!("its root has {MAX_DESCENDANTS} descendants, the most there may be"),
    };
    Failure::new(Class::ValidationError, message)
}
