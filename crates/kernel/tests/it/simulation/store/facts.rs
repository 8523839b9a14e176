//! The writes of runs: begin, node facts, parking and the end. Each write is fenced.
//!
//! Invariants
//! - A fact is accepted only from the run's current owner, and only while the execution is `RUNNING`.
//! - Every caller ends an execution with the same `complete`. The execution and its open nodes end once, and its queue
//!   item is deleted whatever the item's status is.
//!
//! Not here: the steps of queue items (`store`).

use kernel::definition::plan::{NodeIx, Plan};
use kernel::execution::{self, BeginDecision, Status};
use kernel::orchestration::{NodeSnapshot, Target};
use kernel::queue;
use kernel::run::Stop;
use kernel::run::crash::AfterDeath;
use kernel::run::item_loop;
use kernel::run::node::{self, NodeEnd};

use super::{EndReason, Frame, ITEMS, Ix, Pid, RUN_SILENCE, Store, row_of};
use crate::simulation::judge::Promise;
use crate::simulation::mutant::Mutant;

/// What a run shows to be let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fence {
    /// The embedded engine: the process that owns the run, and since which change of owner.
    Owner { process: Pid, epoch: u64 },
    /// A remote engine: its run.
    Run(u64),
}

/// Who may end an execution.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Guard {
    Fence(Fence),
    /// A claimer that gives up, while the item is still claimed by it.
    Claim(u64),
    /// Whoever has locked the row and looked.
    Locked,
}

/// A change of one node's row.
#[derive(Clone, Debug)]
pub(crate) struct NodeChange {
    /// Its row.
    pub(crate) node: usize,
    pub(crate) step: node::Step,
    pub(crate) attempt: Option<u32>,
    pub(crate) next_at: Option<u64>,
    pub(crate) end: Option<NodeEnd>,
}

/// What an activity learns when it begins.
#[derive(Clone, Debug)]
pub(crate) enum Fetched {
    /// The run has nothing to do any more.
    Gone,
    /// An earlier attempt of the activity settled the node.
    Already(NodeEnd),
    /// Go on, and show this when settling.
    Go(u64),
}

impl Store {
    /// The first step of every run.
    pub(crate) fn begin(&mut self, ix: Ix, run: u64, owner: Option<Pid>) -> BeginDecision {
        let unchecked = self.is(Mutant::BeginUnchecked);
        let execution = &mut self.executions[ix];
        let holds_slot = execution.item.status.holds_slot();
        let mut answer = execution::begin(execution.status, holds_slot, execution.run == Some(run));
        if unchecked {
            answer = BeginDecision::Granted;
            execution.status = Status::Running;
        }
        let again = execution.status == Status::Running;
        if answer == BeginDecision::Granted {
            execution.status = execution.status.after(execution::Step::Begin).unwrap_or(execution.status);
            execution.item.status = execution.item.status.after(queue::Step::Dispatch).unwrap_or(execution.item.status);
            (execution.run, execution.owner) = (Some(run), owner);
            execution.epoch += 1;
        }
        self.judge.saw(match answer {
            BeginDecision::Granted if again => "begin granted again",
            BeginDecision::Granted => "begin granted",
            BeginDecision::Ended => "begin after the end",
            BeginDecision::NotYet => "begin without a slot",
        });
        self.note(|| format!("run {run} begins e{ix}: {answer:?}"));
        answer
    }

    /// Stores node facts, all or none. False: fenced out.
    pub(crate) fn record(&mut self, ix: Ix, fence: Fence, facts: &[NodeChange]) -> bool {
        let admitted = self.admits(ix, fence);
        self.note(|| format!("{fence:?} records e{ix} {}: {admitted}", words(facts)));
        if !admitted {
            self.judge.saw("fact fenced out");
        }
        if admitted {
            let writer = match fence {
                Fence::Owner { epoch, .. } => epoch,
                Fence::Run(run) => run,
            };
            facts.iter().for_each(|fact| self.change(ix, fact, writer));
        }
        admitted
    }

    /// An activity begins: it reads the row and moves its fence.
    pub(crate) fn fetch(&mut self, ix: Ix, run: u64, node: usize) -> Fetched {
        if !self.admits(ix, Fence::Run(run)) {
            return Fetched::Gone;
        }
        let row = &mut self.executions[ix].nodes[node];
        if let Some(end) = row.end.clone() {
            self.judge.saw("activity finds its node settled");
            return Fetched::Already(end);
        }
        row.fence += 1;
        Fetched::Go(row.fence)
    }

    /// An activity settles its node, if no later attempt of it has begun.
    pub(crate) fn settle(&mut self, ix: Ix, run: u64, node: usize, shown: u64, end: NodeEnd) -> bool {
        let current = self.executions[ix].nodes[node].fence == shown || self.is(Mutant::NoFence);
        let admitted = current && self.admits(ix, Fence::Run(run));
        if !current {
            self.judge.saw("activity behind its successor");
        }
        self.note(|| format!("activity {shown} of run {run} settles e{ix} n{node}: {admitted}"));
        if admitted {
            let fact = NodeChange { node, step: node::Step::Succeed, attempt: None, next_at: None, end: Some(end) };
            // Its own write is never repeated: after a lost answer a new attempt reads the row.
            self.change(ix, &fact, 0);
            self.executions[ix].nodes[node].writer = run;
        }
        admitted
    }

    /// Ends an execution. False: somebody else holds it.
    pub(crate) fn complete(&mut self, ix: Ix, guard: Guard, step: execution::Step, why: EndReason) -> bool {
        let execution = &self.executions[ix];
        let admitted = match guard {
            Guard::Fence(fence) => self.is(Mutant::NoFence) || self.shows(ix, fence),
            Guard::Claim(claim) => execution.item.status == queue::Status::Claimed && execution.item.claim == claim,
            Guard::Locked => true,
        };
        if !admitted {
            self.judge.saw("end fenced out");
            return false;
        }
        let status = match execution.status.after(step) {
            Some(status) => status,
            None if self.is(Mutant::CompletionTwice) => Status::Running.after(step).expect("any end"),
            None => {
                self.judge.saw("end after the end");
                return true;
            }
        };
        self.note(|| format!("{guard:?} ends e{ix} {status:?}"));
        let execution = &mut self.executions[ix];
        (execution.status, execution.why) = (status, why);
        execution.ended += 1;
        (execution.owner, execution.wake_at) = (None, None);
        let step = match status {
            Status::Completed => queue::Step::Complete,
            Status::Canceled => queue::Step::Cancel,
            _ => queue::Step::Fail,
        };
        execution.item.status = execution.item.status.after(step).unwrap_or(execution.item.status);
        if execution.ended > 1 {
            self.judge.breaks(Promise::P3Once, || format!("e{ix} ends a second time"));
        }
        self.freed(ix);
        true
    }

    /// Somebody wants it to end: immediately if it has not begun, else by its run.
    pub(crate) fn cancel(&mut self, ix: Ix) {
        match self.executions[ix].status {
            Status::Pending => {
                self.complete(ix, Guard::Locked, execution::Step::Cancel, EndReason::Canceled);
            }
            Status::Running => {
                self.executions[ix].cancel_requested = true;
                self.executions[ix].wake_at = Some(self.now);
                self.note(|| format!("cancel of e{ix} is asked for"));
            }
            _ => {}
        }
    }

    /// Ends it without asking: first the fence moves, then the owner lets go or dies.
    pub(crate) fn force(&mut self, ix: Ix) {
        let execution = &mut self.executions[ix];
        let owned = execution.status == Status::Running && execution.owner.is_some();
        if execution.status.is_terminal()
            || (execution.status == Status::Running && !owned && execution.wake_at.is_none())
        {
            return;
        }
        execution.forced = true;
        execution.epoch += 1;
        self.note(|| format!("e{ix} is to end by force"));
        if !owned || self.is(Mutant::ForcedEndAtOnce) {
            self.complete(ix, Guard::Locked, execution::Step::TimeOut, EndReason::Forced);
        }
    }

    /// Gives a run up that needs no process for a while; an earlier wish to wake it stays.
    pub(crate) fn park(&mut self, ix: Ix, fence: Fence, until: u64) -> bool {
        let admitted = self.admits(ix, fence);
        if admitted {
            let forgets = self.is(Mutant::WakeForgotten);
            let execution = &mut self.executions[ix];
            execution.owner = None;
            execution.epoch += 1;
            execution.wake_at = execution.wake_at.filter(|_| !forgets);
            execution.wake_at = Some(execution.wake_at.map_or(until, |at| at.min(until)));
            self.judge.saw("parked");
            self.note(|| format!("{fence:?} parks e{ix} until {until}"));
        }
        admitted
    }

    /// Takes a parked run whose time has come.
    pub(crate) fn wake(&mut self, ix: Ix, process: Pid) -> Option<u64> {
        let execution = &self.executions[ix];
        let due = execution.wake_at.is_some_and(|at| at <= self.now);
        let parked = execution.status == Status::Running && execution.owner.is_none();
        (parked && due).then(|| self.own(ix, process, "wakes"))
    }

    /// Takes a run that this process owns but does not hold, after a lost answer.
    pub(crate) fn reload(&mut self, ix: Ix, process: Pid) -> Option<u64> {
        let execution = &self.executions[ix];
        let mine = execution.status == Status::Running && execution.owner == Some(process);
        if mine && execution.forced {
            self.judge.saw("owner lets a forced run go");
            self.complete(ix, Guard::Locked, execution::Step::TimeOut, EndReason::Forced);
            return None;
        }
        mine.then(|| self.own(ix, process, "reloads"))
    }

    /// Takes a run whose owner is dead.
    pub(crate) fn take_over_run(&mut self, ix: Ix, process: Pid, alone_is_free: bool) -> Option<(u64, AfterDeath)> {
        let owner = self.executions[ix].owner?;
        if self.executions[ix].status != Status::Running || !self.is_silent(owner, RUN_SILENCE) {
            return None;
        }
        if self.executions[ix].forced {
            self.judge.saw("owner of a forced run is dead");
            self.complete(ix, Guard::Locked, execution::Step::TimeOut, EndReason::Forced);
            return None;
        }
        let verdict = self.count_death(ix, alone_is_free)?;
        if self.is(Mutant::CrashIsAnAttempt) {
            let running = self.executions[ix].nodes.iter_mut().filter(|row| row.status == node::Status::Running);
            running.for_each(|row| row.attempt += 1);
        }
        let epoch = self.own(ix, process, "takes a run over");
        if verdict == AfterDeath::GiveUp {
            self.complete(ix, Guard::Locked, execution::Step::Fail, EndReason::CrashLoop);
        }
        Some((epoch, verdict))
    }

    /// The rows of one frame, as its machine is rebuilt from them, and whether the run is to stop.
    pub(crate) fn load(&self, ix: Ix, plan: &Plan, frame: Frame) -> (Option<Stop>, Vec<NodeSnapshot>) {
        let execution = &self.executions[ix];
        let mut rows: Vec<(u32, NodeSnapshot)> = Vec::new();
        for node in 0..plan.nodes().len() {
            let row = &execution.nodes[row_of(&execution.plan, frame, Target::node(node))];
            let label = match &row.end {
                Some(NodeEnd::Completed { took }) => took.clone(),
                _ => None,
            };
            let (seq, known) =
                (if row.end.is_some() { row.seq } else { u32::MAX }, row.status != node::Status::Pending);
            rows.extend(known.then_some((seq, NodeSnapshot { node, status: row.status, label, attempt: row.attempt })));
        }
        rows.sort_by_key(|(seq, _)| *seq);
        let observed = execution.cancel_requested && !self.is(Mutant::StopForgotten);
        (observed.then_some(Stop::Cancel), rows.into_iter().map(|(_, row)| row).collect())
    }

    /// How the items of a loop stand.
    pub(crate) fn items(&self, ix: Ix, node: NodeIx) -> Vec<item_loop::StoredItem> {
        let execution = &self.executions[ix];
        let item = |index| {
            let row = &execution.nodes[row_of(&execution.plan, None, Target::item(node, index))];
            item_loop::StoredItem { index, status: row.status, attempt: row.attempt }
        };
        (0..ITEMS).map(item).filter(|item| item.status != node::Status::Pending).collect()
    }

    /// Ends the child of a node. False: fenced out.
    pub(crate) fn end_child(&mut self, ix: Ix, fence: Fence, node: NodeIx, completed: bool) -> bool {
        let admitted = self.admits(ix, fence);
        self.note(|| format!("{fence:?} ends the child of e{ix} n{node}: {admitted}"));
        if admitted {
            self.executions[ix].children.insert(node, completed);
        }
        admitted
    }

    /// Somebody answers a wait: the run is to look, whether a process holds it or not.
    pub(crate) fn answer(&mut self, ix: Ix, row: usize) {
        self.note(|| format!("n{row} of e{ix} is answered"));
        let now = self.now;
        let execution = &mut self.executions[ix];
        execution.answered.insert(row);
        execution.wake_at = Some(execution.wake_at.map_or(now, |at| at.min(now)));
    }

    fn own(&mut self, ix: Ix, process: Pid, verb: &'static str) -> u64 {
        let execution = &mut self.executions[ix];
        execution.owner = Some(process);
        execution.run = Some(process);
        execution.wake_at = None;
        execution.epoch += 1;
        let epoch = execution.epoch;
        self.judge.saw(verb);
        self.note(|| format!("p{process} {verb} e{ix}, epoch {epoch}"));
        epoch
    }

    fn shows(&self, ix: Ix, fence: Fence) -> bool {
        let execution = &self.executions[ix];
        match fence {
            Fence::Owner { process, epoch } => execution.owner == Some(process) && execution.epoch == epoch,
            Fence::Run(run) => execution.run == Some(run),
        }
    }

    fn admits(&self, ix: Ix, fence: Fence) -> bool {
        let shown = self.is(Mutant::NoFence) || self.shows(ix, fence);
        shown && self.executions[ix].status == Status::Running
    }

    fn change(&mut self, ix: Ix, fact: &NodeChange, writer: u64) {
        let execution = &mut self.executions[ix];
        let row = &mut execution.nodes[fact.node];
        let attempt = fact.attempt.unwrap_or(row.attempt);
        let target = match fact.step {
            node::Step::Perform => node::Status::Running,
            node::Step::Wait => node::Status::Retrying,
            _ => fact.end.as_ref().map_or(node::Status::Unknown, NodeEnd::status),
        };
        if (row.writer, row.status, row.attempt) == (writer, target, attempt) {
            return;
        }
        let from = row.status;
        let Some(status) = from.after(fact.step) else {
            let (node, step) = (fact.node, fact.step);
            self.judge.breaks(Promise::P3Once, || format!("{from:?} node n{node} of e{ix} cannot {step:?}"));
            return;
        };
        // A delay goes on where it was when its node is performed again.
        row.next_at = row.next_at.filter(|_| status == from).or(fact.next_at);
        (row.status, row.attempt, row.writer) = (status, attempt, writer);
        if let Some(end) = &fact.end {
            execution.last_seq += 1;
            row.end = Some(end.clone());
            row.seq = execution.last_seq;
        } else if self.mutant == Some(Mutant::AnyFactIsProgress) {
            execution.last_seq += 1;
        }
    }
}

fn words(facts: &[NodeChange]) -> String {
    facts.iter().map(|fact| format!("{:?} n{}", fact.step, fact.node)).collect::<Vec<_>>().join(", ")
}
