//! Starting a node: what its kind leaves to do, and what comes back.
//!
//! Invariants
//! - What a node does beyond computing leaves this process only after the record that starts it.
//! - A node that was begun before this process had the run is not recorded as begun again, unless it calls out.
//!
//! Not here: the work behind a kind (`nodes`), children (`children`), loops (`loops`), asks (`asks`), calls made at
//! most once (`once`).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kernel::definition::{Kind, Node};
use kernel::expression::Scope;
use kernel::kind;
use kernel::orchestration::Event;
use kernel::run::each::Index;
use kernel::run::failure::Failure;
use kernel::run::node;
use serde_json::Value;
use store::run::NodeFact;
use store::run::child::Place;
use store::wait::Ask;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::Driver;
use super::asks::Look;
use super::children::Found;
use super::frame::At;
use super::loops::Reloaded;
use super::once::{Flight, Ready, Unsent};
use super::timers::Due;
use crate::attempt::child::Starting;
use crate::attempt::wait::wait;
use crate::compute;
use crate::embedded::permits::Permit;
use crate::nodes::{self, Call, Done, Emit, Prepared, Work};
use crate::trace;

/// A node that may take long to make ready, and what it sees.
pub(super) struct Unready {
    spec: Node,
    scope: Scope,
    attempt: u32,
}

/// What leaves this process for a node, once its start is recorded.
pub(super) enum Outgoing {
    /// Nothing leaves yet, and nothing is recorded: the node is made ready on a thread apart.
    Compute(Box<Unready>),
    Call(Box<Call>),
    /// A call that may be made at most once, and waits to be sent.
    Prepare(Box<Unsent>),
    /// The same, to be sent now.
    Send(Box<Prepared>, Permit),
    Emit(Box<Emit>),
    /// Another execution is to be made, or found.
    Child(Box<Starting>),
    /// One that was made is to be found, and none to be made.
    Find(Box<Place>),
    /// The items of a loop are to be read again.
    Reload,
    /// What a loop's items produced is to be gathered, or why this one failed.
    Collect(Option<Index>),
    /// Somebody outside is to be asked.
    Ask(Box<Ask>),
}

/// What came back.
pub(super) enum Brought {
    /// A node was made ready for this attempt.
    Computed(u32, Box<Computed>),
    Result(Result<Done, Failure>),
    /// A call that waited may be sent.
    Ready(Box<Ready>),
    Child(Box<Found>),
    /// There is no child.
    Nothing,
    Loop(Box<Reloaded>),
    Standing(store::wait::Standing),
    Came(Look),
    /// The run is another's by now.
    Lost,
}

/// What making a node ready came to.
pub(super) type Computed = Result<(Value, Work), Failure>;

impl Driver {
    /// Performs a node that is ready. If it may take long to make ready, that is done in flight first: nothing is
    /// recorded of it yet, and the run hears everything else meanwhile.
    pub(super) fn start_ready(&mut self, at: At, attempt: u32) {
        let frame = self.frame(at.frame);
        let spec = frame.spec(at);
        if !nodes::may_take_long(spec) {
            return self.perform(at, attempt, None);
        }
        let spec = spec.clone();
        let scope = match at.target().index() {
            None => frame.version.view(at.node, &frame.scope).into_owned(),
            Some(index) => frame.item_scope(at.node, index),
        };
        self.calls.push((at, Outgoing::Compute(Box::new(Unready { spec, scope, attempt }))));
    }

    /// How many nodes are being made ready in flight.
    pub(super) fn computing(&self) -> usize {
        let waiting = self.calls.iter().filter(|(_, outgoing)| matches!(outgoing, Outgoing::Compute(_)));
        waiting.count() + self.handles.values().filter(|flight| flight.computes()).count()
    }

    /// A node came to its end while it was made ready: nobody needs that any more.
    pub(super) fn stop_computing(&mut self, at: At) {
        self.calls.retain(|(call, outgoing)| *call != at || !matches!(outgoing, Outgoing::Compute(_)));
        if self.handles.get(&at).is_some_and(Flight::computes)
            && let Some(flight) = self.handles.remove(&at)
        {
            flight.handle.abort();
        }
    }

    fn perform(&mut self, at: At, attempt: u32, computed: Option<Computed>) {
        let frame = self.frame(at.frame);
        let version = Arc::clone(&frame.version);
        let action = at.target().index().and_then(|_| frame.loops.get(&at.node)).map(|each| Arc::clone(&each.action));
        let spec = action.as_deref().unwrap_or(&version.definition.nodes[at.node]);
        if !self.has_its_turn(at, attempt, spec) {
            return;
        }
        self.frame(at.frame).attempted(at, attempt);
        let span = self.begin(at, attempt);
        let (_within, frame) = (span.clone().entered(), self.frame(at.frame));
        let again = frame.machine.take_up(at.target());
        if again && let Some(outgoing) = frame.sought(at, attempt, spec.kind) {
            if spec.kind == Kind::ForEach {
                self.running(at, attempt, None, None);
            }
            return self.calls.push((at, outgoing));
        }
        let scope = match at.target().index() {
            None => version.view(at.node, &frame.scope),
            Some(index) => Cow::Owned(frame.item_scope(at.node, index)),
        };
        let (place, trace) = ((at.iteration, attempt), trace::of(&span).unwrap_or(frame.begun.trace));
        match computed.unwrap_or_else(|| nodes::ready(spec, &scope)) {
            Err(failure) => self.ended(at, Err(failure)),
            Ok((_, Work::Done(done))) => self.ended(at, Ok(done)),
            Ok((_, Work::Skip)) => self.skip(at, attempt),
            Ok((input, Work::Delay(config))) => self.delay(at, attempt, input, &config),
            Ok((input, Work::ForEach(config))) => self.begin_loop(at, attempt, input, config),
            Ok((input, Work::HttpRequest(config))) if frame.is_once(at) => {
                let call = Call::new(config, spec, &scope, &frame.begun, at.iteration, trace);
                self.call_once(at, attempt, call, input);
            }
            Ok((input, work)) => {
                let outgoing = match work {
                    Work::HttpRequest(config) => {
                        Outgoing::Call(Box::new(Call::new(config, spec, &scope, &frame.begun, at.iteration, trace)))
                    }
                    Work::EmitEvent(config) => {
                        Outgoing::Emit(Box::new(Emit::new(config, spec, &frame.begun, at.iteration, trace)))
                    }
                    Work::Workflow(config) => {
                        Outgoing::Child(Box::new(Starting::new(config, spec, &frame.begun, place, trace)))
                    }
                    other => match wait(other, spec, &input, &frame.begun, place) {
                        Ok((ask, awaited)) => {
                            frame.asks.insert(at.target(), awaited);
                            Outgoing::Ask(Box::new(ask))
                        }
                        Err(failure) => return self.ended(at, Err(failure)),
                    },
                };
                if !(again && spec.kind.is_patient()) {
                    self.running(at, attempt, Some(input), None);
                }
                self.calls.push((at, outgoing));
            }
        }
    }

    /// May a node be performed now? One that has a child waits its turn; a start of its own is nobody's child.
    fn has_its_turn(&mut self, at: At, attempt: u32, spec: &Node) -> bool {
        if spec.kind != Kind::Workflow || spec.with["detached"] == true {
            return true;
        }
        let frame = self.frame(at.frame);
        let (depth, again) = (frame.depth, frame.machine.was_begun(at.target()));
        self.turns.take((at, attempt), depth, again)
    }

    fn skip(&mut self, at: At, attempt: u32) {
        self.tell(at, "skipped", None);
        self.leave(at);
        self.frame(at.frame).forget(at);
        self.apply(at.frame, Event::Skipped { at: at.target(), attempt });
    }

    /// A delay is a time on the node's row; after a crash the stored time stands.
    fn delay(&mut self, at: At, attempt: u32, input: Value, config: &kind::delay::Config) {
        if self.timers.has(Due::Node(at)) {
            return;
        }
        let now = Timestamp::now();
        match config.due_at(now) {
            Err(failure) => self.ended(at, Err(failure)),
            Ok(due) => {
                let wait = Duration::try_from(due.duration_since(now)).unwrap_or_default();
                self.timers.set(Due::Node(at), Instant::now() + wait);
                self.running(at, attempt, Some(input), Some(wait));
            }
        }
    }

    pub(super) fn running(&mut self, at: At, attempt: u32, input: Option<Value>, next_in: Option<Duration>) {
        let frame = self.frame(at.frame);
        let (fact, once) = (frame.fact(at, node::Status::Running), frame.is_once(at));
        self.note(at.frame, NodeFact { attempt, input, next_in, once, ..fact });
    }

    pub(super) fn launch(&mut self, at: At, outgoing: Outgoing) {
        let (shared, hold) = (Arc::clone(&self.shared), self.hold);
        let span = self.spans.get(&at).map_or_else(tracing::Span::none, |(span, _)| span.clone());
        let frame = self.frame(at.frame);
        let (execution, key) = (frame.execution(), frame.key(at).clone());
        let (workspace, looks) = (frame.begun.workspace, frame.version.looks_at_loop(&key));
        let mode = frame.loops.get(&at.node).map(|each| each.mode).unwrap_or_default();
        let flight = Flight::of(&outgoing);
        let work = async move {
            let _permit = match &outgoing {
                Outgoing::Emit(_) => Some(shared.permits.acquire(workspace).await),
                _ => None,
            };
            let mut started = Instant::now();
            let brought = match outgoing {
                Outgoing::Call(call) => {
                    let permitted = shared.permitted(*call).await;
                    started = Instant::now();
                    Brought::Result(match permitted {
                        Ok((prepared, _permit)) => prepared.send(&shared.outbound, &shared.pulse).await,
                        Err(failure) => Err(failure),
                    })
                }
                Outgoing::Compute(unready) => {
                    let Unready { spec, scope, attempt } = *unready;
                    let computed = compute::run(workspace, move || nodes::ready(&spec, &scope)).await;
                    Brought::Computed(attempt, Box::new(computed))
                }
                Outgoing::Prepare(unsent) => shared.prepare(*unsent).await,
                Outgoing::Send(prepared, _permit) => {
                    Brought::Result(prepared.send(&shared.outbound, &shared.pulse).await)
                }
                Outgoing::Emit(emit) => Brought::Result(nodes::emit_event(&shared.store, &shared.pulse, *emit).await),
                Outgoing::Child(starting) if starting.is_detached() => Brought::Result(shared.detach(&starting).await),
                Outgoing::Child(starting) => shared.child(hold, &starting).await,
                Outgoing::Find(place) => shared.find(hold, &place).await,
                Outgoing::Reload => shared.reload(execution, &key).await,
                Outgoing::Collect(failed) => shared.collect(hold, execution, &key, failed, (mode, looks)).await,
                Outgoing::Ask(ask) => shared.ask(hold, &ask).await,
            };
            (at, brought, started.elapsed())
        };
        let handle = self.in_flight.spawn(work.instrument(span));
        self.handles.insert(at, flight(handle));
    }

    /// Takes in what came back.
    pub(super) fn take_in(&mut self, at: At, brought: Brought, took: Duration) {
        match brought {
            Brought::Result(result) => {
                self.tell(at, if result.is_ok() { "completed" } else { "failed" }, Some(took));
                if at.iteration == 0 {
                    self.frame(at.frame).loops.remove(&at.node);
                }
                self.ended(at, result);
            }
            // Not if this process begins nothing any more: the run's next owner performs it.
            Brought::Computed(..) if self.draining => {}
            Brought::Computed(attempt, computed) => self.perform(at, attempt, Some(*computed)),
            Brought::Ready(ready) => self.ready_once(at, *ready),
            Brought::Child(found) => self.found(at, *found),
            Brought::Nothing => {
                self.tell(at, "canceled", None);
                self.aborted(at, false);
            }
            Brought::Loop(reloaded) => self.reloaded(at, *reloaded),
            Brought::Standing(standing) => self.stands(at, standing),
            Brought::Came(look) => self.came(look),
            Brought::Lost => self.lost = true,
        }
    }
}
