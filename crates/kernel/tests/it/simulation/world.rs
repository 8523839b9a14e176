//! The whole simulated service. A seed decides which part makes the next step, and what fails.
//!
//! Invariants
//! - There are three phases. With faults, anything may fail between two steps, but no promise may be broken. In the
//!   quiet phase nothing fails, and everything that was accepted must end. The audit follows.
//! - Only the seed decides, so the same seed repeats the same steps.
//!
//! Not here: the promises (`judge`), the checks at the end (`audit`).

use std::sync::Arc;

use kernel::definition::Kind;
use kernel::definition::plan::{Plan, PlanNode};
use kernel::execution;
use kernel::run::node::Status;

use super::audit;
use super::judge::Judge;
use super::machine::StepContext;
use super::mutant::Mutant;
use super::process::{LAPSE, Process};
use super::random::Random;
use super::receiver::Receiver;
use super::remote::Remote;
use super::store::{Pid, Store};
use crate::run::graph;

const FAULTY_STEPS: u32 = 450;
const QUIET_STEPS: u32 = 8_000;
/// Heartbeats further apart than this are a gap.
const GAP: u64 = 3_000;
/// The transaction that changes limits.
const OPERATOR: u64 = 0;

/// What executions run. Nodes called `wait` take a while and need nobody meanwhile; those called `ask` take until
/// somebody answers.
const GRAPHS: [&str; 9] = [
    "a",
    "a -> b -> c",
    "a -> b, c -> d; d: any_success",
    "if -true-> x; if -false-> y; x, y -> z; z: any_success",
    "a -> wait -> b; wait: delay",
    "a -> each -> b; each: loop",
    "a, ask -> b; ask: ask",
    "call -> z; ask -> z; call: child, retry 1, continue; ask: ask; z: all_done",
    "a -error-> mend; a -> wait; wait, mend -> z; z: all_done; a: continue; wait: delay",
];

#[derive(Debug)]
struct Request {
    key: u64,
    workspace: usize,
    graph: usize,
    /// The engine will refuse it for ever.
    poison: bool,
    /// Performing it kills the process.
    deadly: bool,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) receiver: Receiver,
    pub(crate) remote: Option<Remote>,
    processes: Vec<Process>,
    requests: Vec<Request>,
    plans: Vec<Arc<Plan>>,
    random: Random,
    faults: bool,
    next_pid: Pid,
}

/// Plays one seed to its end.
pub(crate) fn play(seed: u64, mutant: Option<Mutant>, tells: bool) -> Judge {
    let mut world = World::new(seed, mutant, tells);
    world.run();
    world.store.judge
}

impl World {
    fn new(seed: u64, mutant: Option<Mutant>, tells: bool) -> World {
        let mut random = Random::new(seed);
        let workspaces = 2 + random.below(3);
        let limits: Vec<usize> = (0..workspaces).map(|_| 1 + random.below(3)).collect();
        let weights: Vec<i32> = (0..workspaces).map(|_| if random.one_in(3) { 2 } else { 1 }).collect();
        let flood = random.one_in(2);
        let requests = (0..random.between(4, 12)).map(|key| Request {
            key,
            workspace: if flood && random.one_in(2) { 0 } else { random.below(workspaces) },
            graph: random.below(GRAPHS.len()),
            poison: random.one_in(12),
            deadly: random.one_in(30),
        });
        let requests = requests.collect();
        let mut store = Store::new(&limits, &weights, mutant);
        store.judge.tells = tells;
        let count = random.between(2, 4);
        World {
            store,
            receiver: Receiver::new(seed),
            remote: random.one_in(2).then(Remote::default),
            processes: (1..=count).map(|id| Process::new(id, 0)).collect(),
            requests,
            plans: GRAPHS.iter().map(|text| Arc::new(graph::plan(text))).collect(),
            random,
            faults: true,
            next_pid: count + 1,
        }
    }

    fn run(&mut self) {
        for _ in 0..FAULTY_STEPS {
            self.step();
            if self.store.judge.broken.is_some() {
                return;
            }
        }
        self.heal();
        for _ in 0..QUIET_STEPS {
            self.step();
            if self.store.judge.broken.is_some() || self.is_over() {
                break;
            }
        }
        audit::settle_accounts(self);
    }

    fn is_over(&self) -> bool {
        self.requests.is_empty() && self.store.executions.iter().all(|execution| execution.status.is_terminal())
    }

    fn step(&mut self) {
        self.store.now += self.random.between(0, if self.faults { 250 } else { 400 });
        for at in 0..self.processes.len() {
            self.tick(at);
        }
        match self.random.below(100) {
            0..4 if self.faults => self.fail(),
            4..10 => self.outside(),
            10..50 if self.remote.is_some() => {
                let (mut context, remote, _) = self.parts(0);
                remote.into_iter().for_each(|remote| remote.step(&mut context));
            }
            _ => {
                let at = self.random.below(self.processes.len());
                if self.processes[at].is_steppable() {
                    self.step_process(at);
                }
            }
        }
    }

    fn step_process(&mut self, at: usize) {
        let (mut context, remote, process) = self.parts(at);
        process.step(&mut context, remote);
        if context.killed {
            context.store.judge.saw("deadly node");
            return self.crash(at, 1_000);
        }
        if process.blind_steps > 0 {
            process.blind_steps -= 1;
            if process.blind_steps == 0 {
                self.lapse(at);
            }
        }
    }

    /// Somebody asks for an execution, an end, or another limit.
    fn outside(&mut self) {
        match self.random.below(4) {
            0 | 1 => {
                self.request();
                self.answer();
            }
            2 if self.faults && !self.store.executions.is_empty() => {
                let ix = self.random.below(self.store.executions.len());
                match self.random.below(6) {
                    0 | 1 => self.store.cancel(ix),
                    2 if self.remote.is_none() => self.store.force(ix),
                    _ => {}
                }
            }
            3 => {
                let workspace = self.random.below(self.store.workspaces.len());
                let fenced = !self.store.is(Mutant::UnfencedLimitChange);
                if !fenced || self.store.lock(workspace, OPERATOR) {
                    let limit = 1 + self.random.below(3);
                    self.store.set_limit(workspace, limit);
                    self.store.unlock(OPERATOR);
                }
            }
            _ => {}
        }
    }

    /// A request is made, and made again if its answer is lost.
    fn request(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        let at = self.random.below(self.requests.len());
        let request = &self.requests[at];
        let ix = self.store.enqueue(request.key, request.workspace, &self.plans[request.graph]);
        if let Some(remote) = self.remote.as_mut().filter(|_| request.poison) {
            remote.poison.insert(ix);
        }
        if request.deadly && self.remote.is_none() {
            self.receiver.deadly.insert(ix);
        }
        if !self.faults || !self.random.one_in(3) {
            self.requests.swap_remove(at);
        }
    }

    /// Somebody answers a wait.
    fn answer(&mut self) {
        let waits = |ix: usize| {
            let execution = &self.store.executions[ix];
            let open = |(row, node): (usize, &PlanNode)| {
                let open = execution.nodes[row].status == Status::Running && !execution.answered.contains(&row);
                (node.kind == Kind::WaitForEvent && open).then_some((ix, row))
            };
            execution.plan.nodes().iter().enumerate().filter_map(open).collect::<Vec<_>>()
        };
        // Of an execution that has ended nothing is open any more.
        let runs = |ix: &usize| self.store.executions[*ix].status == execution::Status::Running;
        let all: Vec<(usize, usize)> = (0..self.store.executions.len()).filter(runs).flat_map(waits).collect();
        if !all.is_empty() {
            let (ix, row) = all[self.random.below(all.len())];
            self.store.answer(ix, row);
        }
    }

    fn fail(&mut self) {
        let at = self.random.below(self.processes.len());
        let now = self.store.now;
        let choice = self.random.below(6);
        let length = self.random.between(4_000, 25_000);
        let (mut context, remote, process) = self.parts(at);
        match (choice, remote) {
            (0 | 1, _) if process.down_until.is_none() => self.crash(at, length / 8),
            (2, _) if process.is_steppable() => {
                process.disconnect(&mut context);
                process.paused_until = Some(now + length);
                context.receiver.away.insert(process.id);
                context.store.note(|| format!("p{} pauses for {length}", process.id));
            }
            (3, _) => process.mute_until = now + length,
            (4, Some(remote)) => remote.out_of_reach_until = now + length / 2,
            (5, Some(remote)) => remote.silence(&mut context),
            _ => {}
        }
    }

    /// A process dies with all it remembers, and comes back after a while.
    fn crash(&mut self, at: usize, down_for: u64) {
        let (mut context, _, process) = self.parts(at);
        let (id, now) = (process.id, context.store.now);
        process.disconnect(&mut context);
        context.receiver.hang_up_all(id);
        context.receiver.away.remove(&id);
        context.store.note(|| format!("p{id} crashes"));
        *process = Process::new(id, now);
        process.down_until = Some(now + down_for);
    }

    /// Nothing fails any more; what is down or paused comes back.
    fn heal(&mut self) {
        self.faults = false;
        let now = self.store.now;
        self.store.note(|| "from here on nothing fails".to_owned());
        for process in &mut self.processes {
            process.mute_until = 0;
            process.down_until = process.down_until.map(|_| now);
            process.paused_until = process.paused_until.map(|_| now);
        }
        if let Some(remote) = &mut self.remote {
            remote.out_of_reach_until = 0;
        }
    }

    /// A process's own threads: its heartbeat, and the watch over it.
    fn tick(&mut self, at: usize) {
        let now = self.store.now;
        let process = &mut self.processes[at];
        if process.down_until.is_some_and(|until| until <= now) {
            return self.restart(at);
        }
        if process.paused_until.is_some_and(|until| until <= now) {
            process.paused_until = None;
            if now - process.beat_at > LAPSE {
                process.blind_steps = 1 + u32::try_from(self.random.below(5)).unwrap_or(0);
            } else {
                self.receiver.away.remove(&process.id);
            }
        }
        if !process.is_steppable() || process.blind_steps > 0 {
            return;
        }
        if now - process.beat_at > LAPSE {
            return self.lapse(at);
        }
        if now >= process.mute_until {
            if now - process.beat_at > GAP {
                process.steady_since = now;
            }
            process.beat_at = now;
            self.store.seen_at.insert(process.id, now);
        }
    }

    /// A process without a successful heartbeat for too long drops all its work.
    fn lapse(&mut self, at: usize) {
        let id = self.processes[at].id;
        self.store.note(|| format!("p{id} lapses"));
        let (mut context, _, process) = self.parts(at);
        process.disconnect(&mut context);
        context.receiver.hang_up_all(id);
        context.receiver.away.remove(&id);
        self.restart(at);
    }

    fn restart(&mut self, at: usize) {
        let (now, id) = (self.store.now, self.next_pid);
        self.next_pid += 1;
        self.store.note(|| format!("p{} comes back as p{id}", self.processes[at].id));
        self.processes[at] = Process::new(id, now);
        self.store.seen_at.insert(id, now);
    }

    fn parts(&mut self, at: usize) -> (StepContext<'_>, Option<&mut Remote>, &mut Process) {
        let process = &mut self.processes[at];
        let may_send = process.blind_steps == 0 && self.store.now - process.beat_at <= LAPSE;
        let context = StepContext {
            store: &mut self.store,
            receiver: &mut self.receiver,
            random: &mut self.random,
            faults: self.faults,
            may_send: may_send || self.remote.is_some(),
            killed: false,
        };
        (context, self.remote.as_mut(), process)
    }
}
