//! The state machine of one running execution, with its loops and child executions. Both engines drive it: a shell (the
//! code of an engine) passes events to the machine, and carries out the effects that the machine returns.
//!
//!     rows ──resume──▶ Orchestration ──effects──▶ shell: store, call, keep the time, start children
//!                        ▲   Run: the graph          │
//!                        │   ItemLoop: open loops    │
//!                        └────────── events ◀────────┘
//!
//! Work is addressed by a [`Target`]: a node, or one item of a loop. Both have the same events and effects, so a shell
//! performs, times, stops and settles an item like a node.
//!
//! Invariants
//! - A late or repeated event changes nothing: it gives no effects.
//! - `Settle` comes once for each target that settles, in the order in which the ends are stored. `Finish` comes once,
//!   as the last effect.
//! - A loop begins its items when its list is known (`LoopOpened`). The loop's node settles after these items.
//! - The machine knows what each target is doing ([`TargetState`]). So the shell keeps one timer for each target, and
//!   reports only that the time is due. It reports each due time once.
//! - A stop reaches all work of the execution: waiting work is canceled, work in flight is aborted, and children are
//!   stopped. Children that an earlier owner of the run started are found first, so that they can be stopped, too.
//! - Between two events, the stored rows determine the state: an execution that is resumed from them continues the same
//!   way.
//!
//! Not here: the rules of the graph (`run`) and of a loop (`run::item_loop`), how much may be in flight (`capacity`),
//! rules for a whole tree (`tree`), when a Temporal history is continued (`history`), IO (the shells).

pub mod ahead;
pub mod capacity;
pub mod history;
pub mod tree;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::definition::plan::{NodeIx, Plan};
use crate::definition::{Kind, Manner};
use crate::ids::{ExecutionId, Label, NodeKey};
use crate::run::attempts::{AttemptEffect, AttemptEvent};
use crate::run::item_loop::{self, Index, ItemLoop};
use crate::run::node::{NodeEnd, Status};
use crate::run::{self, OpenNode, Outcome, Run, Stop};

/// What is performed: a node, or one item of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    pub node: NodeIx,
    /// 0 is the node itself. Items count from 1, like the iterations in their rows.
    pub iteration: i32,
}

impl Target {
    pub fn node(node: NodeIx) -> Target {
        Target { node, iteration: 0 }
    }

    pub fn item(node: NodeIx, index: Index) -> Target {
        Target { node, iteration: item_loop::iteration(index) }
    }

    /// The index of the item; none for the node itself.
    pub fn index(self) -> Option<Index> {
        item_loop::index(self.iteration)
    }
}

/// What a target in flight is doing, as far as a rule of this machine depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetState {
    /// An earlier owner of the run began the target, and the present owner has not performed it yet.
    BegunEarlier,
    /// Its child execution is running.
    Child,
    /// The target waits for a stored time.
    Delay,
    /// Its wait (for an answer from outside) is stored and open.
    Wait,
}

/// A fact about an execution.
#[derive(Clone, Debug)]
pub enum Event {
    Attempt(Target, AttemptEvent),
    /// The list of a loop is known and stored. `items`: the items that began earlier, from their rows. `does`: the kind
    /// of the loop's action.
    LoopOpened {
        node: NodeIx,
        shape: item_loop::LoopSpec,
        does: Kind,
        items: Vec<item_loop::StoredItem>,
    },
    /// A target in flight entered this state. A later event reports its result, or that its time is due.
    Entered {
        at: Target,
        state: TargetState,
    },
    /// The time for which a target waits is due. The effect depends on what the target is doing.
    Due {
        at: Target,
    },
    /// The execution must end early.
    Stopped(Stop),
}

/// An order that the shell must carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Record how the target ended.
    Settle { at: Target, end: NodeEnd },
    /// Perform the target: make its call, begin its wait, start its child, or open its loop.
    Perform { at: Target, attempt: u32 },
    /// Record that the target waits for this attempt, and send `Due` when the wait is over.
    Wait { at: Target, attempt: u32, wait: Duration },
    /// The target's wait has expired by the shell's clock. Ask the store, and send `Due` again if the wait is still
    /// open.
    CheckWait { at: Target },
    /// Stop the target's work. Then send `Aborted`, or how the work ended if it ended first.
    Abort { at: Target },
    /// Find the child or the loop items that an earlier owner started for the target, so that they can be stopped.
    Find { at: Target },
    /// Stop the target's child for the same reason as the execution, and report how the child ended.
    StopChild { at: Target, stop: Stop },
    /// All items that began have settled; their `Settle` effects came before this one. Collect their outputs, or the
    /// failure of the item `failed`, and report the result of the loop's node.
    Collect { node: NodeIx, failed: Option<Index> },
    /// The execution is over.
    Finish(Outcome),
}

/// The parts of a stored node row from which a run is resumed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeSnapshot {
    pub node: NodeIx,
    pub status: Status,
    pub label: Option<Label>,
    pub attempt: u32,
}

/// An effect of an inner machine (the run or a loop), before it is translated for the shell.
enum Inner {
    Run(run::Effect),
    ItemLoop(NodeIx, item_loop::Effect),
}

#[derive(Clone, Debug)]
struct OpenLoop {
    each: ItemLoop,
    does: Kind,
}

/// The state machine of one execution.
#[derive(Clone, Debug)]
pub struct Orchestration {
    run: Run,
    loops: BTreeMap<NodeIx, OpenLoop>,
    states: BTreeMap<Target, TargetState>,
    stop: Option<Stop>,
}

impl Orchestration {
    /// Resumes an execution from its node rows. The settled rows must come in the order in which the nodes settled. A
    /// new execution has no rows.
    pub fn resume(
        plan: Arc<Plan>,
        execution: ExecutionId,
        stop: Option<Stop>,
        rows: impl IntoIterator<Item = NodeSnapshot>,
    ) -> (Orchestration, Vec<Effect>) {
        let (mut settled, mut open, mut states) = (Vec::new(), Vec::new(), BTreeMap::new());
        for NodeSnapshot { node, status, label, attempt } in rows {
            let Some(planned) = plan.nodes().get(node) else { continue };
            if let Some(end) = NodeEnd::stored(status, label, planned.on_error) {
                settled.push((node, end));
                continue;
            }
            let waiting = status == Status::Retrying;
            if !waiting {
                states.insert(Target::node(node), TargetState::BegunEarlier);
            }
            open.push(OpenNode { node, attempt: attempt.max(1), waiting });
        }
        let (run, effects) = Run::resume(plan, execution, stop, settled, open);
        let mut this = Orchestration { run, loops: BTreeMap::new(), states, stop };
        let effects = this.translate(effects.into_iter().map(Inner::Run));
        (this, effects)
    }

    /// Applies an event and returns the effects to carry out.
    pub fn apply(&mut self, event: Event) -> Vec<Effect> {
        let inner = match event {
            Event::Stopped(stop) => {
                self.stop = self.stop.or(Some(stop));
                self.apply_to_run(run::Event::Stopped(stop))
            }
            Event::Entered { at, state } => {
                self.states.insert(at, state);
                return Vec::new();
            }
            Event::Due { at } => match self.state(at) {
                Some(TargetState::Wait) if self.stop.is_some() => return Vec::new(),
                Some(TargetState::Wait) => return vec![Effect::CheckWait { at }],
                state => match self.due(at, state) {
                    Some(fact) => self.apply_attempt(at, fact),
                    None => return Vec::new(),
                },
            },
            Event::LoopOpened { node, shape, does, items } => self.open_loop(node, shape, does, items),
            Event::Attempt(at, fact) => self.apply_attempt(at, fact),
        };
        self.translate(inner)
    }

    /// The run of the graph: which nodes settled, and how.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// The node's key, for people and for the store.
    pub fn key(&self, node: NodeIx) -> &NodeKey {
        self.run.key(node)
    }

    /// Why the execution ends early; none if it is not stopped.
    pub fn stop(&self) -> Option<Stop> {
        self.stop
    }

    /// What the target is doing, if that is known.
    pub fn state(&self, at: Target) -> Option<TargetState> {
        self.states.get(&at).copied()
    }

    /// The targets with an open wait. None after a stop, because a stop ends all waits.
    pub fn open_waits(&self) -> impl Iterator<Item = Target> + '_ {
        let waits = self.states.iter().filter(|(_, state)| **state == TargetState::Wait && self.stop.is_none());
        waits.map(|(at, _)| *at)
    }

    /// Clears the mark that an earlier owner began this target. Returns whether it was set.
    pub fn take_begun_earlier(&mut self, at: Target) -> bool {
        let begun_earlier = self.state(at) == Some(TargetState::BegunEarlier);
        if begun_earlier {
            self.states.remove(&at);
        }
        begun_earlier
    }

    fn open_loop(
        &mut self,
        node: NodeIx,
        shape: item_loop::LoopSpec,
        does: Kind,
        items: Vec<item_loop::StoredItem>,
    ) -> Vec<Inner> {
        if self.loops.contains_key(&node) || !self.run.is_running(node) {
            return Vec::new();
        }
        let begun = items.iter().filter(|item| item.status == Status::Running);
        self.states.extend(begun.map(|item| (Target::item(node, item.index), TargetState::BegunEarlier)));
        let (each, effects) = ItemLoop::resume(shape, items, self.stop.is_some());
        self.loops.insert(node, OpenLoop { each, does });
        effects.into_iter().map(|effect| Inner::ItemLoop(node, effect)).collect()
    }

    /// What a due time means for a target without an open wait: its delay is over, its next attempt begins, or nothing.
    fn due(&self, at: Target, state: Option<TargetState>) -> Option<AttemptEvent> {
        let is_delay = match state {
            // An earlier owner began the target and stored this time. The kind shows whether it is a delay.
            Some(TargetState::BegunEarlier) => self.kind(at).manner() == Manner::Waits,
            state => state == Some(TargetState::Delay),
        };
        if is_delay {
            return Some(AttemptEvent::Settled { status: Status::Completed, label: None });
        }
        let attempt = match at.index() {
            None => self.run.waits_for(at.node),
            Some(index) => self.loops.get(&at.node).and_then(|open| open.each.waits_for(index)),
        };
        attempt.map(|attempt| AttemptEvent::RetryDue { attempt })
    }

    fn apply_attempt(&mut self, at: Target, fact: AttemptEvent) -> Vec<Inner> {
        match at.index() {
            None => self.apply_to_run(run::Event::Node(at.node, fact)),
            Some(index) => self.apply_to_loop(at.node, |each| each.apply(index, fact)),
        }
    }

    fn apply_to_run(&mut self, event: run::Event) -> Vec<Inner> {
        self.run.apply(event).into_iter().map(Inner::Run).collect()
    }

    fn apply_to_loop(
        &mut self,
        node: NodeIx,
        apply: impl FnOnce(&mut ItemLoop) -> Vec<item_loop::Effect>,
    ) -> Vec<Inner> {
        let Some(open) = self.loops.get_mut(&node) else { return Vec::new() };
        apply(&mut open.each).into_iter().map(|effect| Inner::ItemLoop(node, effect)).collect()
    }

    /// Translates the effects of the inner machines for the shell, in order. Effects that follow from one of them are
    /// added at the end of the queue, so `Finish` comes last.
    fn translate(&mut self, inner: impl IntoIterator<Item = Inner>) -> Vec<Effect> {
        let mut queue: VecDeque<Inner> = inner.into_iter().collect();
        let mut effects = Vec::new();
        while let Some(next) = queue.pop_front() {
            match next {
                Inner::Run(run::Effect::Node(node, AttemptEffect::Abort)) if self.loops.contains_key(&node) => {
                    queue.extend(self.apply_to_loop(node, ItemLoop::stop));
                }
                Inner::Run(run::Effect::Node(node, order)) => {
                    if matches!(order, AttemptEffect::Settle(_)) {
                        self.loops.remove(&node);
                    }
                    effects.push(self.order(Target::node(node), order));
                }
                Inner::Run(run::Effect::Finish(outcome)) => effects.push(Effect::Finish(outcome)),
                Inner::ItemLoop(node, item_loop::Effect::Item(index, order)) => {
                    effects.push(self.order(Target::item(node, index), order));
                }
                Inner::ItemLoop(node, item_loop::Effect::Finish(end)) => {
                    queue.extend(self.loop_over(node, end, &mut effects))
                }
            }
        }
        effects
    }

    fn order(&mut self, at: Target, order: AttemptEffect) -> Effect {
        match order {
            AttemptEffect::Settle(end) => {
                self.states.remove(&at);
                Effect::Settle { at, end }
            }
            AttemptEffect::Perform { attempt } => Effect::Perform { at, attempt },
            AttemptEffect::Wait { attempt, wait } => {
                self.states.remove(&at);
                Effect::Wait { at, attempt, wait }
            }
            AttemptEffect::Abort => self.stop_target(at),
        }
    }

    fn loop_over(&mut self, node: NodeIx, end: item_loop::LoopEnd, effects: &mut Vec<Effect>) -> Vec<Inner> {
        self.loops.remove(&node);
        let failed = match end {
            item_loop::LoopEnd::Completed => None,
            item_loop::LoopEnd::Failed { index } => Some(index),
            item_loop::LoopEnd::Lost { .. } => {
                return self.apply_to_run(run::Event::Node(
                    node,
                    AttemptEvent::Settled { status: Status::Unknown, label: None },
                ));
            }
            item_loop::LoopEnd::Stopped => {
                return self.apply_to_run(run::Event::Node(node, AttemptEvent::Aborted { begun: false }));
            }
        };
        effects.push(Effect::Collect { node, failed });
        Vec::new()
    }

    /// The effect that stops a target in flight.
    fn stop_target(&self, at: Target) -> Effect {
        match (self.state(at), self.stop) {
            (Some(TargetState::Child), Some(stop)) => Effect::StopChild { at, stop },
            (Some(TargetState::BegunEarlier), _) if self.kind(at).makes_more() => Effect::Find { at },
            _ => Effect::Abort { at },
        }
    }

    fn kind(&self, at: Target) -> Kind {
        let own = self.run.plan().node(at.node).kind;
        if at.iteration == 0 { own } else { self.loops.get(&at.node).map_or(own, |open| open.does) }
    }
}
