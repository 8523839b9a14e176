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
use kernel::kind;
use kernel::orchestration::Event;
use kernel::run::attempts::Fact;
use kernel::run::failure::Failure;
use kernel::run::node;
use serde_json::Value;
use store::run::NodeFact;
use tokio::time::Instant;

use super::Driver;
use super::asks::Look;
use super::children::Found;
use super::flight::{Outgoing, Stage};
use super::frame::At;
use super::loops::Reloaded;
use super::once::Ready;
use super::timers::Due;
use crate::attempt::child::Starting;
use crate::attempt::wait::wait;
use crate::compute;
use crate::nodes::call::Caller;
use crate::nodes::{self, Done, Work};
use crate::trace;

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
        let (spec, workspace) = (spec.clone(), frame.begun.workspace);
        let scope = match at.target().index() {
            None => frame.version.view(at.node, &frame.scope).into_owned(),
            Some(index) => frame.item_scope(at.node, index),
        };
        let computing = async move {
            let computed = compute::run(workspace, move || nodes::ready(&spec, &scope)).await;
            Brought::Computed(attempt, Box::new(computed))
        };
        self.calls.push((at, Outgoing::new(Stage::Computes, computing)));
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
        if again && spec.kind == Kind::ForEach {
            return self.reload(at, attempt);
        }
        if again && spec.kind == Kind::Workflow && frame.machine.stop().is_some() {
            let place = frame.place(at, attempt);
            return self.go(at, |shared, hold| async move { shared.find(hold, &place).await });
        }
        let scope = match at.target().index() {
            None => version.view(at.node, &frame.scope),
            Some(index) => Cow::Owned(frame.item_scope(at.node, index)),
        };
        let (place, trace) = ((at.iteration, attempt), trace::of(&span).unwrap_or(frame.begun.trace));
        let (input, work) = match computed.unwrap_or_else(|| nodes::ready(spec, &scope)) {
            Ok(ready) => ready,
            Err(failure) => return self.ended(at, Err(failure)),
        };
        match work {
            Work::Done(done) => self.ended(at, Ok(done)),
            Work::Skip => self.skip(at, attempt),
            Work::Delay(config) => self.delay(at, attempt, input, &config),
            Work::ForEach(config) => self.begin_loop(at, attempt, input, config),
            Work::Call(make) => {
                let caller = Caller { spec, scope: &scope, begun: &frame.begun, iteration: at.iteration, trace };
                let call = make.call(&caller);
                if frame.is_once(at) {
                    return self.call_once(at, attempt, call, input);
                }
                self.running(at, attempt, Some(input), None);
                self.call(at, call);
            }
            Work::Workflow(config) => {
                let starting = Starting::new(config, spec, &frame.begun, place, trace);
                self.running_patiently(at, attempt, input, again);
                self.go(at, |shared, hold| async move { shared.child(hold, &starting).await });
            }
            other => match wait(other, spec, &input, &frame.begun, place) {
                Ok((ask, awaited)) => {
                    frame.asks.insert(at.target(), awaited);
                    self.running_patiently(at, attempt, input, again);
                    self.go(at, |shared, hold| async move { shared.ask(hold, &ask).await });
                }
                Err(failure) => self.ended(at, Err(failure)),
            },
        }
    }

    /// What takes as long as somebody else takes is recorded as running once, whoever goes on with it.
    fn running_patiently(&mut self, at: At, attempt: u32, input: Value, again: bool) {
        if !again {
            self.running(at, attempt, Some(input), None);
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
        self.apply(at.frame, Event::Of(at.target(), Fact::Skipped { attempt }));
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
