//! One execution in flight, with its loops and children: event in, effects out. Both engines drive it.
//!
//!     rows ──resume──▶ Orchestration ──effects──▶ shell: store, call, keep the time, start children
//!                        ▲   Run: the graph          │
//!                        │   Each: every open loop   │
//!                        └────────── events ◀────────┘
//!
//! Work is addressed by a [`Target`]: a node, or one item of a loop. Orders and facts are the same for both, so that a
//! shell performs, times, stops and settles an item as it does a node.
//!
//! Invariants
//! - Old news changes nothing: an event that no longer fits gives no effects.
//! - `Settle` comes once a target, and in the order in which it is to be stored; `Finish` comes once, last.
//! - A loop begins its items when its list is known (`LoopOpened`), and its node settles after all of them.
//! - A stop reaches everything: what waits is canceled, what is in flight is aborted, a child is told, and what an
//!   earlier owner made is found first.
//! - Between two events it is what the stored rows say: resumed, it goes on the same way.
//!
//! Not here: the graph's rules (`run`), a loop's (`run::each`), how much may be in flight (`room`), what holds for
//! a whole tree (`tree`), when a Temporal history is continued (`history`), doing any of it (the shells).

pub mod history;
pub mod room;
pub mod tree;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::definition::Kind;
use crate::definition::plan::{NodeIx, Plan};
use crate::ids::{ExecutionId, Label, NodeKey};
use crate::run::attempts::{Fact, Order};
use crate::run::each::{self, Each, Index};
use crate::run::node::{End, Status};
use crate::run::{self, Open, Outcome, Run, Stop};

/// What is performed: a node, or one item of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    pub node: NodeIx,
    /// 0 is the node itself; items count from 1, as their rows do.
    pub iteration: i32,
}

impl Target {
    pub fn node(node: NodeIx) -> Target {
        Target { node, iteration: 0 }
    }

    pub fn item(node: NodeIx, index: Index) -> Target {
        Target { node, iteration: each::iteration(index) }
    }

    /// Which item of a loop; none for the node itself.
    pub fn index(self) -> Option<Index> {
        each::index(self.iteration)
    }
}

/// A fact about an execution.
#[derive(Clone, Debug)]
pub enum Event {
    Of(Target, Fact),
    /// The list of a loop is known and stored, and so is how the items stand that were begun before. `does`: what is
    /// done for each.
    LoopOpened {
        node: NodeIx,
        shape: each::Shape,
        does: Kind,
        items: Vec<each::Stored>,
    },
    /// The child of a node runs. How it ended is told as any other result.
    ChildStarted {
        at: Target,
    },
    /// The execution is to end early.
    Stopped(Stop),
}

/// An order to the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Record its end.
    Settle { at: Target, end: End },
    /// Do its work: call, wait, ask, start a child, or open a loop.
    Perform { at: Target, attempt: u32 },
    /// Record that it waits for this attempt, and say `RetryDue` when the wait is over.
    Wait { at: Target, attempt: u32, wait: Duration },
    /// Stop its work, and say `Aborted` (or how it ended).
    Abort { at: Target },
    /// Find what an earlier owner made for it (a child, or items of a loop), so that it can be stopped.
    Find { at: Target },
    /// Stop its child as the execution itself is stopped, and say how the child ended.
    StopChild { at: Target, stop: Stop },
    /// All items have settled, and their ends are ordered to be stored before this: gather what they produced, or why
    /// this one failed, and say what the loop's node came to.
    Collect { node: NodeIx, failed: Option<Index> },
    /// The execution is over.
    Finish(Outcome),
}

/// A stored node row, as far as it says how the node stands.
#[derive(Clone, Debug)]
pub struct Row {
    pub node: NodeIx,
    pub status: Status,
    pub label: Option<Label>,
    pub attempt: u32,
}

/// An order of a machine within, not yet translated.
enum Inner {
    Run(run::Effect),
    Each(NodeIx, each::Effect),
}

#[derive(Clone, Debug)]
struct Loop {
    each: Each,
    does: Kind,
}

/// The machine of one execution.
#[derive(Clone, Debug)]
pub struct Orchestration {
    run: Run,
    loops: BTreeMap<NodeIx, Loop>,
    /// Begun by an earlier owner, and not taken up by this one.
    begun: BTreeSet<Target>,
    /// Targets whose child runs.
    children: BTreeSet<Target>,
    stop: Option<Stop>,
}

impl Orchestration {
    /// Takes an execution up where its rows left it: settled ones in the order in which they settled. A new one has
    /// none.
    pub fn resume(
        plan: Arc<Plan>,
        execution: ExecutionId,
        stop: Option<Stop>,
        rows: impl IntoIterator<Item = Row>,
    ) -> (Orchestration, Vec<Effect>) {
        let (mut settled, mut open, mut begun) = (Vec::new(), Vec::new(), BTreeSet::new());
        for Row { node, status, label, attempt } in rows {
            let Some(planned) = plan.nodes().get(node) else { continue };
            if let Some(end) = End::stored(status, label, planned.on_error) {
                settled.push((node, end));
                continue;
            }
            let waiting = status == Status::Retrying;
            if !waiting {
                begun.insert(Target::node(node));
            }
            open.push(Open { node, attempt: attempt.max(1), waiting });
        }
        let (run, effects) = Run::resume(plan, execution, stop, settled, open);
        let (loops, children) = (BTreeMap::new(), BTreeSet::new());
        let mut this = Orchestration { run, loops, begun, children, stop };
        let effects = this.translate(effects.into_iter().map(Inner::Run));
        (this, effects)
    }

    /// Takes a fact in and says what to do about it.
    pub fn apply(&mut self, event: Event) -> Vec<Effect> {
        let inner = match event {
            Event::Stopped(stop) => {
                self.stop = self.stop.or(Some(stop));
                self.tell_run(run::Event::Stopped(stop))
            }
            Event::ChildStarted { at } => {
                self.children.insert(at);
                return Vec::new();
            }
            Event::LoopOpened { node, shape, does, items } => self.open_loop(node, shape, does, items),
            Event::Of(at, fact) => match at.index() {
                None => self.tell_run(run::Event::Node(at.node, fact)),
                Some(index) => self.tell_loop(at.node, |each| each.apply(index, fact)),
            },
        };
        self.translate(inner)
    }

    /// The graph: which nodes settled and how.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// The node's key, for people and for the store.
    pub fn key(&self, node: NodeIx) -> &NodeKey {
        self.run.key(node)
    }

    /// Why it ends early, if it does.
    pub fn stop(&self) -> Option<Stop> {
        self.stop
    }

    /// Does it wait for its next attempt, rather than being in one?
    pub fn is_waiting(&self, at: Target) -> bool {
        match at.index() {
            None => self.run.is_waiting(at.node),
            Some(index) => self.loops.get(&at.node).is_some_and(|open| open.each.is_waiting(index)),
        }
    }

    /// Does its child run?
    pub fn has_child(&self, at: Target) -> bool {
        self.children.contains(&at)
    }

    /// Was it begun by an earlier owner, and not taken up yet?
    pub fn was_begun(&self, at: Target) -> bool {
        self.begun.contains(&at)
    }

    /// It is performed by this owner from now on. Was it begun before?
    pub fn take_up(&mut self, at: Target) -> bool {
        self.begun.remove(&at)
    }

    fn open_loop(&mut self, node: NodeIx, shape: each::Shape, does: Kind, items: Vec<each::Stored>) -> Vec<Inner> {
        if self.loops.contains_key(&node) || !self.run.is_running(node) {
            return Vec::new();
        }
        let begun = items.iter().filter(|item| item.status == Status::Running);
        self.begun.extend(begun.map(|item| Target::item(node, item.index)));
        let (each, effects) = Each::resume(shape, items, self.stop.is_some());
        self.loops.insert(node, Loop { each, does });
        effects.into_iter().map(|effect| Inner::Each(node, effect)).collect()
    }

    fn tell_run(&mut self, event: run::Event) -> Vec<Inner> {
        self.run.apply(event).into_iter().map(Inner::Run).collect()
    }

    fn tell_loop(&mut self, node: NodeIx, tell: impl FnOnce(&mut Each) -> Vec<each::Effect>) -> Vec<Inner> {
        let Some(open) = self.loops.get_mut(&node) else { return Vec::new() };
        tell(&mut open.each).into_iter().map(|effect| Inner::Each(node, effect)).collect()
    }

    /// Turns the orders of the machines within into the shell's, in the order in which they came: what follows from one
    /// comes after all that came with it, so that `Finish` is last.
    fn translate(&mut self, inner: impl IntoIterator<Item = Inner>) -> Vec<Effect> {
        let mut queue: VecDeque<Inner> = inner.into_iter().collect();
        let mut effects = Vec::new();
        while let Some(next) = queue.pop_front() {
            match next {
                Inner::Run(run::Effect::Node(node, Order::Abort)) if self.loops.contains_key(&node) => {
                    queue.extend(self.tell_loop(node, Each::stop));
                }
                Inner::Run(run::Effect::Node(node, order)) => {
                    if matches!(order, Order::Settle(_)) {
                        self.loops.remove(&node);
                    }
                    effects.push(self.order(Target::node(node), order));
                }
                Inner::Run(run::Effect::Finish(outcome)) => effects.push(Effect::Finish(outcome)),
                Inner::Each(node, each::Effect::Item(index, order)) => {
                    effects.push(self.order(Target::item(node, index), order));
                }
                Inner::Each(node, each::Effect::Over(end)) => queue.extend(self.loop_over(node, end, &mut effects)),
            }
        }
        effects
    }

    fn order(&mut self, at: Target, order: Order) -> Effect {
        match order {
            Order::Settle(end) => {
                self.begun.remove(&at);
                self.children.remove(&at);
                Effect::Settle { at, end }
            }
            Order::Perform { attempt } => Effect::Perform { at, attempt },
            Order::Wait { attempt, wait } => {
                self.children.remove(&at);
                Effect::Wait { at, attempt, wait }
            }
            Order::Abort => self.stop_one(at),
        }
    }

    fn loop_over(&mut self, node: NodeIx, end: each::End, effects: &mut Vec<Effect>) -> Vec<Inner> {
        self.loops.remove(&node);
        let failed = match end {
            each::End::Completed => None,
            each::End::Failed { index } => Some(index),
            each::End::Lost { .. } => {
                return self.tell_run(run::Event::Node(node, Fact::Settled { status: Status::Unknown, label: None }));
            }
            each::End::Stopped => return self.tell_run(run::Event::Node(node, Fact::Aborted { begun: false })),
        };
        effects.push(Effect::Collect { node, failed });
        Vec::new()
    }

    /// How something in flight is stopped.
    fn stop_one(&self, at: Target) -> Effect {
        match self.stop {
            Some(stop) if self.children.contains(&at) => Effect::StopChild { at, stop },
            _ if self.begun.contains(&at) && self.kind(at).makes_more() => Effect::Find { at },
            _ => Effect::Abort { at },
        }
    }

    fn kind(&self, at: Target) -> Kind {
        let own = self.run.plan().node(at.node).kind;
        if at.iteration == 0 { own } else { self.loops.get(&at.node).map_or(own, |open| open.does) }
    }
}
