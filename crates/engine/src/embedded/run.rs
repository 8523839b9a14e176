//! One run: takes facts in, asks the kernel, records, and carries out.
//!
//!     event ──Run::apply──▶ effects ──light nodes at once──▶ one record ──commit──▶ calls, timers
//!
//! Invariants
//! - A fact is stored before it is acted on: nothing leaves this process for a node before the
//!   record that starts it is committed, and the end of one node and the start of the next are one
//!   record.
//! - Nodes that only compute are done before that record and stored with it: repeating them after a
//!   crash is harmless.
//! - When the store says that the run is another's by now, this one stops at once and says nothing more.
//!
//! Not here: what is told of an attempt (`attempt`), what is stored and remembered (`record`), writing (`writer`), who may run (`server`), rules of any kind (`kernel`).

mod attempt;
mod record;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kernel::expression::Scope;
use kernel::failure::{Class, Failure};
use kernel::ids::ProcessId;
use kernel::plan::NodeIx;
use kernel::run::{Effect, Event, Open, Run, Stop};
use kernel::{kind, node};
use serde_json::Value;
use store::admission::Begun;
use store::run::{End, NodeFact, StoredNode};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::{LONGEST_SLEEP, Left, Shared};
use crate::nodes::{self, Call, Done, Emit, Work};
use crate::scope::scope;
use crate::trace;
use crate::versions::Version;

/// A run is given up by its process when nothing happens for longer than this.
const PARK_AFTER: Duration = Duration::from_secs(5);
/// About the most bytes of one record; what comes after goes into the next.
const RECORD_BYTES: usize = 8 << 20;
/// How many nodes of one run may be in flight at once.
const IN_FLIGHT: usize = 64;

/// What reaches a run from outside.
#[derive(Clone, Copy, Debug)]
pub(super) enum Message {
    Cancel,
    /// Begin nothing more, and leave once nothing is in flight.
    Drain,
}

/// What leaves this process for a node, once its start is recorded.
enum Outgoing {
    Call(Box<Call>),
    Emit(Box<Emit>),
}

/// A call that came to its end, and how long it took.
type Ended = (NodeIx, Result<Done, Failure>, Duration);

pub(super) struct Driver {
    shared: Arc<Shared>,
    process: ProcessId,
    begun: Begun,
    version: Arc<Version>,
    run: Run,
    scope: Scope,
    inbox: mpsc::UnboundedReceiver<Message>,
    deadline: Instant,
    /// Orders of the kernel not yet carried out.
    effects: VecDeque<Effect>,
    /// What is to be recorded, at most one fact a node.
    facts: Vec<NodeFact>,
    /// About how many bytes those are.
    gathered: usize,
    end: Option<End>,
    /// What nodes brought, until their end is recorded.
    results: BTreeMap<NodeIx, Result<Done, Failure>>,
    /// Ready to be performed, once there is room for them.
    ready: VecDeque<(NodeIx, u32)>,
    /// Recorded as running, to be called after the commit.
    calls: Vec<(NodeIx, Outgoing)>,
    in_flight: JoinSet<Ended>,
    handles: BTreeMap<NodeIx, tokio::task::AbortHandle>,
    timers: BTreeMap<NodeIx, Instant>,
    attempts: BTreeMap<NodeIx, u32>,
    failures: BTreeMap<NodeIx, Failure>,
    /// Attempts under way: their spans, and since when.
    spans: BTreeMap<NodeIx, (tracing::Span, Instant)>,
    draining: bool,
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
        let now = Instant::now();
        let deadline = now + begun.deadline_in.min(LONGEST_SLEEP);
        let mut driver = Driver {
            scope: scope(&begun, &version),
            run: Run::start(Arc::clone(&version.plan), begun.execution).0,
            shared,
            process,
            begun,
            version,
            inbox,
            deadline,
            effects: VecDeque::new(),
            facts: Vec::new(),
            gathered: 0,
            end: None,
            results: BTreeMap::new(),
            ready: VecDeque::new(),
            calls: Vec::new(),
            in_flight: JoinSet::new(),
            handles: BTreeMap::new(),
            timers: BTreeMap::new(),
            attempts: BTreeMap::new(),
            failures: BTreeMap::new(),
            spans: BTreeMap::new(),
            draining: false,
        };
        let overdue = driver.begun.deadline_in.is_zero();
        let stop = if canceling { Some(Stop::Cancel) } else { overdue.then_some(Stop::Deadline) };
        driver.restore(stored, stop, now);
        driver
    }

    fn restore(&mut self, stored: Vec<StoredNode>, stop: Option<Stop>, now: Instant) {
        let (mut settled, mut open) = (Vec::new(), Vec::new());
        for row in stored {
            let Some(node) = self.version.plan.index_of(&row.node) else { continue };
            self.attempts.insert(node, row.attempt);
            let on_error = self.version.plan.node(node).on_error;
            let Some(end) = node::End::stored(row.status, row.label, on_error) else {
                if let Some(wait) = row.next_in {
                    self.timers.insert(node, now + wait);
                }
                let waiting = row.status == node::Status::Retrying;
                open.push(Open { node, attempt: row.attempt.max(1), waiting });
                continue;
            };
            self.remember(node, &end, row.output.unwrap_or_default(), row.error.as_ref());
            if let (node::End::Failed { .. }, Some(failure)) = (&end, row.error) {
                self.failures.insert(node, failure);
            }
            settled.push((node, end));
        }
        let (run, effects) = Run::resume(Arc::clone(&self.version.plan), self.begun.execution, stop, settled, open);
        self.run = run;
        self.effects = effects.into();
    }

    /// Drives the run until it ends, is parked or released, or is another's.
    pub(super) async fn drive(mut self) -> Left {
        loop {
            self.carry_out().await;
            if let Some(left) = self.commit().await {
                return left;
            }
            for (node, call) in std::mem::take(&mut self.calls) {
                self.launch(node, call);
            }
            if self.has_more_to_do() {
                continue;
            }
            if self.draining && self.in_flight.is_empty() {
                return Left::Released;
            }
            self.wait().await;
        }
    }

    fn apply(&mut self, event: Event) {
        self.effects.extend(self.run.apply(event));
    }

    /// Carries out every order that needs no commit first, and gathers what is to be recorded, up to
    /// what one record may hold.
    async fn carry_out(&mut self) {
        while self.gathered < RECORD_BYTES {
            while let Some(effect) = self.effects.pop_front() {
                match effect {
                    Effect::Settle { node, end } => self.settle(node, end),
                    Effect::Perform { node, attempt } => self.ready.push_back((node, attempt)),
                    Effect::Wait { node, attempt, wait } => self.retry_later(node, attempt, wait),
                    Effect::Abort { node } => self.abort(node),
                    Effect::Finish(outcome) => self.end = Some(self.finish(outcome)),
                }
            }
            if !self.has_more_to_do() {
                return;
            }
            if let Some((node, attempt)) = self.ready.pop_front() {
                self.perform(node, attempt);
            }
            // A graph that only computes must not keep a thread from everybody else's.
            tokio::task::yield_now().await;
        }
    }

    /// Something can be done without waiting for anything.
    fn has_more_to_do(&self) -> bool {
        let room = self.in_flight.len() + self.calls.len() < IN_FLIGHT && !self.draining;
        let next = self.ready.front();
        !self.effects.is_empty() || next.is_some_and(|(node, _)| room || self.version.plan.node(*node).kind.is_light())
    }

    fn perform(&mut self, node: NodeIx, attempt: u32) {
        self.attempts.insert(node, attempt);
        let span = self.begin(node, attempt);
        let _within = span.clone().entered();
        let version = Arc::clone(&self.version);
        let spec = &version.definition.nodes[node];
        let scope = version.view(node, &self.scope);
        match nodes::ready(spec, &scope) {
            Err(failure) => self.ended(node, Err(failure)),
            Ok((_, Work::Done(done))) => self.ended(node, Ok(done)),
            Ok((_, Work::Skip)) => self.skip(node, attempt),
            Ok((input, Work::Delay(config))) => self.delay(node, attempt, input, config),
            Ok((input, Work::HttpRequest(config))) => {
                let trace = trace::of(&span).unwrap_or(self.begun.trace);
                let call = Call::new(config, spec, &scope, &self.begun, trace);
                self.running(node, attempt, Some(input), None);
                self.calls.push((node, Outgoing::Call(Box::new(call))));
            }
            Ok((input, Work::EmitEvent(config))) => {
                let trace = trace::of(&span).unwrap_or(self.begun.trace);
                let emit = Emit::new(config, spec, &self.begun, trace);
                self.running(node, attempt, Some(input), None);
                self.calls.push((node, Outgoing::Emit(Box::new(emit))));
            }
        }
    }

    fn skip(&mut self, node: NodeIx, attempt: u32) {
        self.tell(node, "skipped", None);
        self.attempts.remove(&node);
        self.apply(Event::NodeSkipped { node, attempt });
    }

    /// A delay is a time on the node's row; after a crash the stored time stands.
    fn delay(&mut self, node: NodeIx, attempt: u32, input: Value, config: kind::delay::Config) {
        if self.timers.contains_key(&node) {
            return;
        }
        let now = Timestamp::now();
        match config.due_at(now) {
            Err(failure) => self.ended(node, Err(failure)),
            Ok(due) => {
                let wait = Duration::try_from(due.duration_since(now)).unwrap_or_default();
                self.timers.insert(node, Instant::now() + wait);
                self.running(node, attempt, Some(input), Some(wait));
            }
        }
    }

    fn running(&mut self, node: NodeIx, attempt: u32, input: Option<Value>, next_in: Option<Duration>) {
        let fact = NodeFact { attempt, input, next_in, ..self.fact(node, node::Status::Running) };
        self.note(fact);
    }

    fn ended(&mut self, node: NodeIx, result: Result<Done, Failure>) {
        self.tell(node, if result.is_ok() { "completed" } else { "failed" }, None);
        let result = result.and_then(nodes::storable);
        #[cfg(feature = "mutants")]
        let result = result.map(crate::mutant::done);
        self.timers.remove(&node);
        let attempt = self.attempts.get(&node).copied().unwrap_or(1);
        let event = match &result {
            Ok(done) => Event::NodeSucceeded { node, attempt, took: done.took.clone() },
            Err(failure) => Event::NodeFailed { node, attempt, failure: failure.clone() },
        };
        self.results.insert(node, result);
        self.apply(event);
    }

    fn abort(&mut self, node: NodeIx) {
        if let Some(handle) = self.handles.remove(&node) {
            handle.abort();
        }
        self.tell(node, "canceled", None);
        self.timers.remove(&node);
        self.ready.retain(|(ready, _)| *ready != node);
        self.calls.retain(|(call, _)| *call != node);
        self.apply(Event::NodeAborted { node });
    }

    /// Nothing in flight, and the next thing that happens by itself is far enough away.
    fn may_park(&self) -> bool {
        let idle =
            self.in_flight.is_empty() && self.calls.is_empty() && self.ready.is_empty() && self.effects.is_empty();
        let next = self.timers.values().min();
        idle && next.is_some_and(|next| (*next).min(self.deadline) > Instant::now() + PARK_AFTER)
    }

    fn launch(&mut self, node: NodeIx, outgoing: Outgoing) {
        let (shared, workspace) = (Arc::clone(&self.shared), self.begun.workspace);
        let span = self.spans.get(&node).map_or_else(tracing::Span::none, |(span, _)| span.clone());
        let call = async move {
            let _permit = shared.permits.acquire(workspace).await;
            let started = Instant::now();
            let result = match outgoing {
                Outgoing::Call(call) => {
                    nodes::http_request(&shared.outbound, &shared.vault, &shared.pulse, *call).await
                }
                Outgoing::Emit(emit) => nodes::emit_event(&shared.store, &shared.pulse, *emit).await,
            };
            (node, result, started.elapsed())
        };
        let handle = self.in_flight.spawn(call.instrument(span));
        self.handles.insert(node, handle);
    }

    /// Waits for the next thing to happen, and takes it in.
    async fn wait(&mut self) {
        let next = self.timers.values().min().copied().unwrap_or(self.deadline).min(self.deadline);
        tokio::select! {
            Some(joined) = self.in_flight.join_next_with_id() => self.joined(joined),
            Some(message) = self.inbox.recv() => match message {
                Message::Cancel => self.apply(Event::CancelRequested),
                Message::Drain => self.draining = true,
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
            Ok((_, (node, result, took))) => {
                if self.handles.remove(&node).is_some() {
                    self.tell(node, if result.is_ok() { "completed" } else { "failed" }, Some(took));
                    self.ended(node, result);
                }
            }
            Err(error) => {
                let Some(node) =
                    self.handles.iter().find(|(_, handle)| handle.id() == error.id()).map(|(node, _)| *node)
                else {
                    return;
                };
                self.handles.remove(&node);
                tracing::error!(execution_id = %self.begun.execution, node = %self.run.key(node), "A node panicked");
                self.ended(node, Err(Failure::new(Class::ExecutionError, "the node's work broke off unexpectedly")));
            }
        }
    }

    fn due(&mut self) {
        let now = Instant::now();
        if now >= self.deadline {
            return self.apply(Event::DeadlinePassed);
        }
        let due: Vec<NodeIx> = self.timers.iter().filter(|(_, at)| **at <= now).map(|(node, _)| *node).collect();
        for node in due {
            self.timers.remove(&node);
            if self.run.in_flight().any(|running| running == node) {
                self.ended(node, Ok(Done::waited()));
            } else {
                let attempt = self.attempts.get(&node).copied().unwrap_or(1);
                self.apply(Event::RetryDue { node, attempt });
            }
        }
    }
}
