//! What a run makes: the items of its loops, and its children, each a machine of its own in the same hands.
//!
//! Invariants
//! - A loop is opened with how its items stand; a child goes on where its rows left it.
//! - A child's end is stored, under the root's fence, before its node receives it.
//!
//! Not here: performing an item or a child's node (`work`).

use std::sync::Arc;

use kernel::definition::plan::{NodeIx, Plan};
use kernel::definition::{Delivery, Kind};
use kernel::kind::for_each::OnItemError;
use kernel::orchestration::{Event, Orchestration, Target, TargetState};
use kernel::run::attempts::AttemptEvent;
use kernel::run::failure::{Class, Failure, Policy};
use kernel::run::item_loop;
use kernel::run::node::Status;

use super::work::{Stage, Work};
use super::{Machine, StepContext, StepOutcome};
use crate::simulation::mutant::Mutant;
use crate::simulation::store::{Frame, ITEMS, Ix, Store, child_plan, execution_id};

/// What is done there: items and nodes of children are calls.
pub(crate) fn kind_of(plan: &Plan, frame: Frame, at: Target) -> Kind {
    if frame.is_none() && at.iteration == 0 { plan.node(at.node).kind } else { Kind::HttpRequest }
}

/// A loop whose items stand so. One that fails fails no other, so that what becomes of all does not depend on who was
/// first.
pub(crate) fn opened(plan: &Plan, ix: Ix, node: NodeIx, items: Vec<item_loop::StoredItem>) -> Event {
    let shape = item_loop::LoopSpec {
        execution: execution_id(ix),
        key: plan.node(node).key.clone(),
        count: ITEMS,
        parallel: 2,
        on_item_error: OnItemError::Continue,
        retry: Policy::DEFAULT,
        delivery: Delivery::default(),
    };
    Event::LoopOpened { node, shape, does: Kind::HttpRequest, items }
}

/// What the end of a child means for its node.
pub(crate) fn child_result(attempt: u32, completed: bool) -> AttemptEvent {
    match completed {
        true => AttemptEvent::Succeeded { attempt, took: None },
        false => AttemptEvent::Failed { attempt, failure: Failure::new(Class::ValidationError, "its child failed") },
    }
}

impl Machine {
    /// Takes a frame up where its rows left it.
    pub(super) fn take_up(&mut self, store: &Store, frame: Frame) {
        let plan = match frame {
            None => Arc::clone(&store.executions[self.ix].plan),
            Some(_) => Arc::new(child_plan()),
        };
        let (stop, mut rows) = store.load(self.ix, &plan, frame);
        if frame.is_some() && store.is(Mutant::ChildAnew) {
            rows.clear();
        }
        // A child stops as its parent does.
        let stop = self.runs.get(&None).map_or(stop, Orchestration::stop);
        let waiting = rows.iter().filter(|row| row.status == Status::Retrying && stop.is_none());
        let waiting: Vec<Target> = waiting.map(|row| Target::node(row.node)).collect();
        let (run, effects) = Orchestration::resume(plan, execution_id(self.ix), stop, rows);
        self.runs.insert(frame, run);
        for at in waiting {
            self.wait(store, frame, at);
        }
        self.unsaved.get_or_insert_default().extend(effects.into_iter().map(|effect| (frame, effect)));
    }

    /// Does the work of a node, or of an item.
    pub(super) fn perform(&mut self, store: &mut Store, frame: Frame, at: Target, attempt: u32) {
        let begun_earlier = self.runs.get_mut(&frame).is_some_and(|run| run.take_begun_earlier(at));
        match self.kind(frame, at) {
            Kind::Delay => {
                self.enter(frame, at, TargetState::Delay);
                self.wait(store, frame, at);
            }
            Kind::WaitForEvent => self.work.push(Work::new(frame, at, attempt, Stage::Asks { looked: false })),
            Kind::ForEach => self.open_loop(store, at.node, begun_earlier),
            Kind::Workflow => self.start_child(store, at, attempt, begun_earlier),
            _ => self.work.push(Work::new(frame, at, attempt, Stage::Ready)),
        }
    }

    fn open_loop(&mut self, store: &mut Store, node: NodeIx, begun: bool) {
        store.judge.saw(if begun { "loop goes on" } else { "loop begins" });
        let items = if store.is(Mutant::ItemsForgotten) { Vec::new() } else { store.items(self.ix, node) };
        if self.runs[&None].stop().is_none() {
            for item in items.iter().filter(|item| item.status == Status::Retrying) {
                self.wait(store, None, Target::item(node, item.index));
            }
        }
        let event = opened(self.runs[&None].run().plan(), self.ix, node, items);
        self.inbox.push_back((None, event));
    }

    /// Is a loop to be opened whose opening the machine has not received yet?
    pub(super) fn opens(&self, at: Target) -> bool {
        let is_it = |event: &Event| matches!(event, Event::LoopOpened { node, .. } if Target::node(*node) == at);
        self.inbox.iter().any(|(_, event)| is_it(event))
    }

    /// Starts the child of a node, or finds it: ended, or to be taken up. None is made for a run that is to stop.
    fn start_child(&mut self, store: &mut Store, at: Target, attempt: u32, begun: bool) {
        store.judge.saw(if begun { "child found" } else { "child starts" });
        if let Some(completed) = store.executions[self.ix].children.get(&at.node).copied() {
            return self.child_ended(at, attempt, completed);
        }
        let known = !store.load(self.ix, &child_plan(), Some(at.node)).1.is_empty();
        if self.runs[&None].stop().is_some() && !known {
            return self.inbox.push_back((None, Event::Attempt(at, AttemptEvent::Aborted { begun: false })));
        }
        self.enter(None, at, TargetState::Child);
        self.take_up(store, Some(at.node));
    }

    fn enter(&mut self, frame: Frame, at: Target, state: TargetState) {
        let run = self.runs.get_mut(&frame).expect("a run that performs something is there");
        run.apply(Event::Entered { at, state });
    }

    /// A child came to its end, which is stored next.
    pub(super) fn child_finished(&mut self, node: NodeIx, completed: bool) {
        self.work.push(Work::new(None, Target::node(node), 1, Stage::Ending { completed }));
    }

    pub(super) fn end_child(&mut self, context: &mut StepContext<'_>, work: Work, completed: bool) -> StepOutcome {
        if !context.store.end_child(self.ix, self.fence, work.at.node, completed) {
            return StepOutcome::Lost;
        }
        if context.answer_is_lost() {
            self.work.push(work);
            return if self.is_remote() { StepOutcome::Going } else { StepOutcome::Lost };
        }
        self.runs.remove(&Some(work.at.node));
        let attempt = self.row(context.store, None, work.at).attempt;
        self.child_ended(work.at, attempt, completed);
        StepOutcome::Going
    }

    fn child_ended(&mut self, at: Target, attempt: u32, completed: bool) {
        let stopped = !completed && self.runs[&None].stop().is_some();
        let fact = if stopped { AttemptEvent::Aborted { begun: false } } else { child_result(attempt, completed) };
        self.inbox.push_back((None, Event::Attempt(at, fact)));
    }
}
