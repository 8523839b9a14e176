//! A tree of executions in the hands of one owner that crashes anywhere: graphs, loops, waits, retries, children and
//! stops.
//!
//!     store: a frame for each execution, a row for each node and item ◀──facts── owner: a machine for each open frame
//!
//! Invariants
//! - What happens is stored before it is acted on; a crash leaves the store, and the next owner begins with the root's
//!   rows.
//! - The simulation has teeth: each mutant breaks one rule of the owner's and must be caught.
//!
//! Not here: who owns a run, slots and queues (`simulation`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use expect_test::expect;
use kernel::definition::plan::{NodeIx, Plan};
use kernel::definition::{Definition, Delivery, Edge, Kind, Node, OnError};
use kernel::ids::NodeKey;
use kernel::kind::for_each::OnItemError;
use kernel::orchestration::{Effect, Event, NodeSnapshot, Orchestration, Target, TargetState};
use kernel::run::attempts::AttemptEvent;
use kernel::run::failure::{Class, Failure, Policy};
use kernel::run::item_loop;
use kernel::run::node::{NodeEnd, Status, Step};
use kernel::run::{Outcome, Stop};

use crate::run::graph::bare;
use crate::run::rows::execution;
use crate::simulation::random::{Random, mix};

const SEEDS: u64 = 3_000;
const PARALLEL: usize = 2;
const DEEPEST: usize = 2;

/// A rule of the owner's that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    /// Opens a loop again without looking how its items stand.
    ForgetsItems,
    /// Takes a run up without its stop.
    ForgetsStop,
    /// Tells a node of its child's end before that is stored.
    TellsFirst,
    /// Takes what an earlier owner made for gone.
    FindsNothing,
    /// Does not wait for a child that it asked to stop.
    LeavesChild,
}

#[test]
fn a_tree_ends_whatever_crashes() {
    for seed in 0..SEEDS {
        if let Err(broken) = World::new(seed, None).play() {
            panic!("{broken} (seed {seed})");
        }
    }
}

/// A simulation in which nothing happens proves nothing.
#[test]
fn the_tree_simulation_covers_every_rare_path() {
    let mut ways = BTreeSet::new();
    for seed in 0..300 {
        let mut world = World::new(seed, None);
        world.play().expect("it keeps its promises");
        ways.extend(world.ways);
    }
    let expected = expect![[r#"
        abort item
        abort node
        collect
        collect a failure
        find item
        find node
        finish Canceled
        finish Completed
        finish TimedOut
        finish failed
        perform again item
        perform again node
        perform item
        perform node
        settle CANCELED item
        settle CANCELED node
        settle COMPLETED item
        settle COMPLETED node
        settle FAILED item
        settle FAILED node
        settle SKIPPED item
        settle SKIPPED node
        settle UNKNOWN node
        stop child of item
        stop child of node
        wait item
        wait node
    "#]];
    expected.assert_eq(&ways.into_iter().map(|way| format!("{way}\n")).collect::<String>());
}

#[test]
fn every_broken_rule_is_noticed() {
    let all = [
        (Mutant::ForgetsItems, "before its items"),
        (Mutant::ForgetsStop, "another end than its stop"),
        (Mutant::TellsFirst, "before its child"),
        (Mutant::FindsNothing, "before its"),
        (Mutant::LeavesChild, "before its child"),
    ];
    for (mutant, expected) in all {
        let broken = (0..SEEDS).find_map(|seed| World::new(seed, Some(mutant)).play().err());
        assert!(broken.as_ref().is_some_and(|why| why.contains(expected)), "{mutant:?}: {broken:?}");
    }
}

#[derive(Clone, Debug)]
struct Stored {
    status: Status,
    attempt: u32,
}

/// What the store holds of one execution.
struct Frame {
    plan: Arc<Plan>,
    depth: usize,
    /// The node that made it, and in which attempt.
    parent: Option<(usize, Target, u32)>,
    stop: Option<Stop>,
    rows: BTreeMap<Target, Stored>,
    settled: Vec<Target>,
    outcome: Option<Outcome>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Ready,
    Calling,
    RetryIn,
    Collecting(Option<usize>),
}

#[derive(Clone, Copy, Debug)]
struct Work {
    frame: usize,
    at: Target,
    attempt: u32,
    stage: Stage,
}

struct World {
    random: Random,
    seed: u64,
    mutant: Option<Mutant>,
    frames: Vec<Frame>,
    machines: BTreeMap<usize, Orchestration>,
    work: Vec<Work>,
    /// Stored, and not carried out yet.
    orders: VecDeque<(usize, Effect)>,
    crashes: bool,
    /// The orders that were given.
    ways: BTreeSet<String>,
}

type Checked = Result<(), String>;

impl World {
    fn new(seed: u64, mutant: Option<Mutant>) -> World {
        let mut world = World {
            random: Random::new(seed),
            seed,
            mutant,
            frames: Vec::new(),
            machines: BTreeMap::new(),
            work: Vec::new(),
            orders: VecDeque::new(),
            crashes: true,
            ways: BTreeSet::new(),
        };
        world.make(0, None);
        world
    }

    fn play(&mut self) -> Checked {
        self.take_up(0, None)?;
        for step in 0..4_000 {
            // In the end nothing fails any more.
            self.crashes = step < 1_500;
            self.carry_out()?;
            if self.frames[0].outcome.is_some() {
                return self.audit();
            }
            if self.crashes && self.random.one_in(25) {
                self.crash()?;
            } else if self.frames[0].stop.is_none() && self.random.one_in(60) {
                let stop = if self.random.one_in(2) { Stop::Cancel } else { Stop::Deadline };
                self.frames[0].stop = Some(stop);
                self.apply(0, Event::Stopped(stop))?;
            } else if !self.work.is_empty() {
                let next = self.random.below(self.work.len());
                let work = self.work.swap_remove(next);
                self.do_work(work)?;
            }
        }
        Err("it never ends".to_owned())
    }

    fn crash(&mut self) -> Checked {
        self.machines.clear();
        self.work.clear();
        self.orders.clear();
        match self.frames[0].outcome {
            Some(_) => Ok(()),
            None => self.take_up(0, self.frames[0].stop),
        }
    }

    /// A machine from its rows.
    fn take_up(&mut self, ix: usize, stop: Option<Stop>) -> Checked {
        let stop = stop.filter(|_| self.mutant != Some(Mutant::ForgetsStop));
        let frame = &self.frames[ix];
        let row = |at: &Target| {
            let Stored { status, attempt } = frame.rows[at].clone();
            NodeSnapshot { node: at.node, status, label: None, attempt }
        };
        let open = frame.rows.iter().filter(|(at, row)| at.iteration == 0 && !row.status.is_settled());
        let waiting: Vec<(Target, u32)> = open
            .clone()
            .filter(|(_, row)| row.status == Status::Retrying && stop.is_none())
            .map(|(at, row)| (*at, row.attempt))
            .collect();
        let settled = frame.settled.iter().filter(|at| at.iteration == 0).map(row);
        let rows: Vec<NodeSnapshot> = settled.chain(open.map(|(at, _)| row(at))).collect();
        let (machine, effects) = Orchestration::resume(Arc::clone(&frame.plan), execution(), stop, rows);
        self.machines.insert(ix, machine);
        for (at, attempt) in waiting {
            self.work.push(Work { frame: ix, at, attempt, stage: Stage::RetryIn });
        }
        self.order(ix, effects)
    }

    fn apply(&mut self, ix: usize, event: Event) -> Checked {
        let Some(machine) = self.machines.get_mut(&ix) else { return Ok(()) };
        let effects = machine.apply(event);
        self.order(ix, effects)
    }

    /// Stores what is to be stored; the rest is done after that, unless a crash comes between.
    fn order(&mut self, ix: usize, effects: Vec<Effect>) -> Checked {
        for effect in &effects {
            self.store(ix, effect)?;
        }
        self.orders.extend(effects.into_iter().map(|effect| (ix, effect)));
        Ok(())
    }

    fn carry_out(&mut self) -> Checked {
        while let Some((ix, effect)) = self.orders.pop_front() {
            if self.crashes && self.random.one_in(40) {
                self.crash()?;
            } else {
                self.carry_out_one(ix, effect)?;
            }
        }
        Ok(())
    }

    fn store(&mut self, ix: usize, effect: &Effect) -> Checked {
        match effect {
            Effect::Settle { at, end } => {
                self.may_settle(ix, *at)?;
                let step = match end {
                    NodeEnd::Completed { .. } => Step::Succeed,
                    NodeEnd::Failed { .. } => Step::Fail,
                    NodeEnd::Skipped => Step::Skip,
                    NodeEnd::Canceled => Step::Cancel,
                    NodeEnd::Lost => Step::Lose,
                };
                self.step(ix, *at, step, None)?;
                self.frames[ix].settled.push(*at);
            }
            Effect::Wait { at, attempt, .. } => self.step(ix, *at, Step::Wait, Some(*attempt))?,
            Effect::Finish(outcome) if self.mutant != Some(Mutant::TellsFirst) || ix == 0 => {
                self.end(ix, outcome.clone())?
            }
            _ => {}
        }
        Ok(())
    }

    fn carry_out_one(&mut self, ix: usize, effect: Effect) -> Checked {
        self.ways.insert(way(&effect));
        let ready = |at, attempt, stage| Work { frame: ix, at, attempt, stage };
        match effect {
            Effect::Settle { at, .. } => self.forget(ix, at),
            Effect::Perform { at, attempt } => self.work.push(ready(at, attempt, Stage::Ready)),
            Effect::Wait { at, attempt, .. } => self.work.push(ready(at, attempt, Stage::RetryIn)),
            Effect::Abort { at } => {
                let begun = self.work.iter().any(|work| (work.frame, work.at, work.stage) == (ix, at, Stage::Calling));
                self.forget(ix, at);
                return self.apply(ix, Event::Attempt(at, AttemptEvent::Aborted { begun }));
            }
            Effect::Find { at } if self.mutant == Some(Mutant::FindsNothing) => {
                self.forget(ix, at);
                return self.apply(ix, Event::Attempt(at, AttemptEvent::Aborted { begun: false }));
            }
            Effect::Find { at } => {
                self.forget(ix, at);
                let attempt = self.frames[ix].rows[&at].attempt;
                self.work.push(ready(at, attempt, Stage::Ready));
            }
            Effect::StopChild { at, .. } if self.mutant == Some(Mutant::LeavesChild) => {
                return self.apply(ix, Event::Attempt(at, AttemptEvent::Aborted { begun: false }));
            }
            Effect::StopChild { at, stop } => {
                let child = self.child_of(ix, at).ok_or("a child that is not there is to stop")?;
                return self.apply(child, Event::Stopped(stop));
            }
            Effect::Collect { node, failed } => {
                self.work.push(ready(Target::node(node), 1, Stage::Collecting(failed)));
            }
            Effect::CheckWait { .. } => return Err("no node of this tree waits for an answer".to_owned()),
            Effect::Finish(outcome) => return self.finished(ix, outcome),
        }
        Ok(())
    }

    fn finished(&mut self, ix: usize, outcome: Outcome) -> Checked {
        self.machines.remove(&ix);
        let Some((parent, at, attempt)) = self.frames[ix].parent else { return Ok(()) };
        self.child_ended(parent, at, attempt, &outcome)?;
        if self.frames[ix].outcome.is_none() { self.end(ix, outcome) } else { Ok(()) }
    }

    fn child_ended(&mut self, ix: usize, at: Target, attempt: u32, outcome: &Outcome) -> Checked {
        let stopped = self.machines.get(&ix).is_some_and(|machine| machine.stop().is_some());
        match outcome {
            Outcome::Completed => self.apply(ix, Event::Attempt(at, AttemptEvent::Succeeded { attempt, took: None })),
            _ if stopped => self.apply(ix, Event::Attempt(at, AttemptEvent::Aborted { begun: false })),
            _ => self.apply(
                ix,
                Event::Attempt(
                    at,
                    AttemptEvent::Failed { attempt, failure: Failure::new(Class::ExecutionError, "no") },
                ),
            ),
        }
    }

    /// One step of something that is under way.
    fn do_work(&mut self, work: Work) -> Checked {
        let Work { frame: ix, at, attempt, stage } = work;
        match stage {
            Stage::RetryIn => return self.apply(ix, Event::Due { at }),
            Stage::Collecting(None) => {
                return self.apply(ix, Event::Attempt(at, AttemptEvent::Succeeded { attempt, took: None }));
            }
            Stage::Collecting(Some(_)) => return self.apply(ix, failed(at, attempt, Class::ValidationError)),
            Stage::Calling => return self.answered(ix, at, attempt),
            Stage::Ready => {}
        }
        let machine = self.machines.get_mut(&ix).ok_or("work of a frame that is gone")?;
        let begun_earlier = machine.take_begun_earlier(at);
        let stopped = machine.stop().is_some();
        let kind = kind_of(&self.frames[ix].plan, at);
        if !stopped && !begun_earlier && attempt == 1 && self.random.one_in(12) {
            return self.apply(ix, Event::Attempt(at, AttemptEvent::Skipped { attempt }));
        }
        if stopped && !(begun_earlier && kind.makes_more()) {
            return Err(format!("{at:?} is begun after a stop"));
        }
        self.step(ix, at, Step::Perform, Some(attempt))?;
        match kind {
            Kind::ForEach => self.open_loop(ix, at.node),
            Kind::Workflow => self.start_child(ix, at, attempt),
            _ => {
                self.work.push(Work { stage: Stage::Calling, ..work });
                Ok(())
            }
        }
    }

    fn answered(&mut self, ix: usize, at: Target, attempt: u32) -> Checked {
        let event = match self.random.below(8) {
            0 => failed(at, attempt, Class::ValidationError),
            1 | 2 => failed(at, attempt, Class::Timeout),
            _ => Event::Attempt(at, AttemptEvent::Succeeded { attempt, took: None }),
        };
        self.apply(ix, event)
    }

    fn open_loop(&mut self, ix: usize, node: NodeIx) -> Checked {
        let (frame, forgets) = (&self.frames[ix], self.mutant == Some(Mutant::ForgetsItems));
        let items = frame.rows.iter().filter(|(at, _)| at.node == node && !forgets).filter_map(|(at, row)| {
            Some(item_loop::StoredItem { index: at.index()?, status: row.status, attempt: row.attempt })
        });
        let items: Vec<item_loop::StoredItem> = items.collect();
        let stopped = self.machines.get(&ix).is_some_and(|machine| machine.stop().is_some());
        for item in items.iter().filter(|item| item.status == Status::Retrying && !stopped) {
            let (at, attempt) = (Target::item(node, item.index), item.attempt);
            self.work.push(Work { frame: ix, at, attempt, stage: Stage::RetryIn });
        }
        let drawn = mix(self.seed ^ (ix as u64 * 64 + node as u64));
        let shape = item_loop::LoopSpec {
            execution: execution(),
            key: frame.plan.node(node).key.clone(),
            count: (drawn % 5) as usize,
            parallel: PARALLEL,
            on_item_error: [OnItemError::Fail, OnItemError::Continue][(drawn / 8 % 2) as usize],
            retry: Policy { max_attempts: 2, ..Policy::DEFAULT },
            delivery: Delivery::default(),
        };
        let does = kind_of(&frame.plan, Target::item(node, 0));
        self.apply(ix, Event::LoopOpened { node, shape, does, items })
    }

    /// Starts a node's child, or finds it: ended, or to be taken up.
    fn start_child(&mut self, ix: usize, at: Target, attempt: u32) -> Checked {
        let stop = self.machines.get(&ix).and_then(Orchestration::stop);
        let known = self.frames.iter().position(|frame| frame.parent == Some((ix, at, attempt)));
        let child = match (known, stop) {
            (Some(child), _) => child,
            (None, Some(_)) => return self.apply(ix, Event::Attempt(at, AttemptEvent::Aborted { begun: false })),
            (None, None) => self.make(self.frames[ix].depth + 1, Some((ix, at, attempt))),
        };
        if let Some(outcome) = self.frames[child].outcome.clone() {
            return self.child_ended(ix, at, attempt, &outcome);
        }
        self.apply(ix, Event::Entered { at, state: TargetState::Child })?;
        self.take_up(child, stop)
    }

    fn child_of(&self, ix: usize, at: Target) -> Option<usize> {
        let attempt = self.frames[ix].rows.get(&at)?.attempt;
        self.frames.iter().position(|frame| frame.parent == Some((ix, at, attempt)))
    }

    fn forget(&mut self, ix: usize, at: Target) {
        self.work.retain(|work| (work.frame, work.at) != (ix, at));
    }

    fn step(&mut self, ix: usize, at: Target, step: Step, attempt: Option<u32>) -> Checked {
        let row = self.frames[ix].rows.entry(at).or_insert(Stored { status: Status::Pending, attempt: 0 });
        row.status =
            row.status.after(step).ok_or_else(|| format!("{step:?} of {at:?} is illegal: it is {:?}", row.status))?;
        row.attempt = attempt.unwrap_or(row.attempt);
        let open = self.frames[ix].rows.iter().filter(|(other, row)| {
            other.node == at.node && other.iteration > 0 && matches!(row.status, Status::Running | Status::Retrying)
        });
        if open.count() > PARALLEL { Err(format!("too many items of {at:?} are open")) } else { Ok(()) }
    }

    /// A loop settles after its items, and a node after its children.
    fn may_settle(&self, ix: usize, at: Target) -> Checked {
        let rows = &self.frames[ix].rows;
        if at.iteration == 0
            && rows.iter().any(|(item, row)| item.node == at.node && item.iteration > 0 && !row.status.is_settled())
        {
            return Err(format!("{at:?} settles before its items"));
        }
        let of_it = |frame: &&Frame| frame.parent.is_some_and(|(parent, node, _)| (parent, node) == (ix, at));
        match self.frames.iter().filter(of_it).all(|child| child.outcome.is_some()) {
            true => Ok(()),
            false => Err(format!("{at:?} settles before its child")),
        }
    }

    fn end(&mut self, ix: usize, outcome: Outcome) -> Checked {
        let frame = &mut self.frames[ix];
        let all = (0..frame.plan.nodes().len())
            .all(|node| frame.rows.get(&Target::node(node)).is_some_and(|row| row.status.is_settled()));
        if !all {
            return Err("it ends before its nodes".to_owned());
        }
        if frame.outcome.replace(outcome).is_some() { Err("it ends twice".to_owned()) } else { Ok(()) }
    }

    fn audit(&self) -> Checked {
        let expected = match self.frames[0].stop {
            Some(Stop::Cancel) => Some(Outcome::Canceled),
            Some(Stop::Deadline) => Some(Outcome::TimedOut),
            None => None,
        };
        if expected.is_some() && self.frames[0].outcome != expected {
            return Err("it came to another end than its stop".to_owned());
        }
        let open = self.frames.iter().any(|frame| frame.outcome.is_none());
        if open { Err("a child outlives the root".to_owned()) } else { Ok(()) }
    }

    /// A frame with a graph of its own, drawn from the seed and its place.
    fn make(&mut self, depth: usize, parent: Option<(usize, Target, u32)>) -> usize {
        let ix = self.frames.len();
        let mut random = Random::new(mix(self.seed.wrapping_add(ix as u64)));
        let plan = Arc::new(Plan::new(&drawn(&mut random, depth)).expect("a drawn graph is acceptable"));
        let (rows, settled) = (BTreeMap::new(), Vec::new());
        self.frames.push(Frame { plan, depth, parent, stop: None, rows, settled, outcome: None });
        ix
    }
}

/// The order, and whether it is for a node or for an item.
fn way(effect: &Effect) -> String {
    let of = |name: &str, at: &Target| format!("{name} {}", if at.iteration == 0 { "node" } else { "item" });
    match effect {
        Effect::Settle { at, end } => of(&format!("settle {}", end.status().name()), at),
        Effect::Perform { at, attempt: 1 } => of("perform", at),
        Effect::Perform { at, .. } => of("perform again", at),
        Effect::Wait { at, .. } => of("wait", at),
        Effect::CheckWait { at } => of("check", at),
        Effect::Abort { at } => of("abort", at),
        Effect::Find { at } => of("find", at),
        Effect::StopChild { at, .. } => of("stop child of", at),
        Effect::Collect { failed, .. } => if failed.is_some() { "collect a failure" } else { "collect" }.to_owned(),
        Effect::Finish(Outcome::Failed { .. }) => "finish failed".to_owned(),
        Effect::Finish(outcome) => format!("finish {outcome:?}"),
    }
}

fn failed(at: Target, attempt: u32, class: Class) -> Event {
    Event::Attempt(at, AttemptEvent::Failed { attempt, failure: Failure::new(class, "no") })
}

/// What is done there; the name of a loop says what it does for an item.
fn kind_of(plan: &Plan, at: Target) -> Kind {
    let node = plan.node(at.node);
    match at.iteration {
        0 => node.kind,
        _ if node.key.as_str().ends_with("children") => Kind::Workflow,
        _ => Kind::HttpRequest,
    }
}

fn drawn(random: &mut Random, depth: usize) -> Definition {
    let mut nodes: Vec<Node> = Vec::new();
    for at in 0..1 + random.below(5) {
        let made = depth < DEEPEST;
        let (kind, suffix) = match random.below(8) {
            0 => (Kind::ForEach, "items"),
            1 if made => (Kind::ForEach, "children"),
            2 | 3 if made => (Kind::Workflow, "child"),
            4 => (Kind::Delay, "delay"),
            5 => (Kind::WaitForEvent, "wait"),
            _ => (Kind::HttpRequest, "call"),
        };
        let mut node = bare(&NodeKey::new(&format!("n{at}_{suffix}")).expect("a name"));
        node.kind = kind;
        node.retry.max_attempts = if kind == Kind::ForEach { 1 } else { 1 + u32::from(random.one_in(2)) };
        node.on_error = if random.one_in(2) { OnError::Continue } else { OnError::Fail };
        if kind == Kind::HttpRequest && random.one_in(4) {
            node.delivery = Delivery::AtMostOnce;
        }
        nodes.push(node);
    }
    let mut edges = Vec::new();
    for to in 1..nodes.len() {
        let joined = random.below(to);
        for from in 0..to {
            if from == joined || random.one_in(3) {
                edges.push(Edge { from: nodes[from].key.clone(), to: nodes[to].key.clone(), label: None });
            }
        }
    }
    Definition { nodes, edges, ..Definition::default() }
}
