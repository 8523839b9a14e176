//! A model of the store: each method is one committed transaction.
//!
//! Invariants
//! - A status changes only by a legal step of the kernel's lifecycles, under the guard that the real statement names. A
//!   mutant leaves one guard out.
//! - The store's clock is the only one.
//!
//! Not here: what a run writes (`facts`), when these methods are called (`process`, `remote`, `world`).

mod facts;
mod marks;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kernel::definition::plan::{NodeIx, Plan};
use kernel::execution;
use kernel::ids::{ExecutionId, WorkspaceId};
use kernel::orchestration::Target;
use kernel::queue::{self, Step};
use kernel::run::crash::{self, AfterDeath, Deaths};
use kernel::run::node;
use uuid::Uuid;

pub(crate) use facts::{Fence, Fetched, Guard, NodeChange};
use marks::Mark;
pub(crate) use marks::marks_move;

use super::judge::Judge;
use super::mutant::Mutant;
use crate::run::graph;

/// An execution, by its place in the store.
pub(crate) type Ix = usize;
/// A process, new at each start and after each lapse.
pub(crate) type Pid = u64;

/// Silence after which a process's claims, and its runs, may be taken.
pub(crate) const CLAIM_SILENCE: u64 = 10_000;
pub(crate) const RUN_SILENCE: u64 = 15_000;
/// How many items a loop has, and how many nodes a child.
pub(crate) const ITEMS: usize = 3;
const BELOW: usize = 2;
/// The most attempts at a start.
pub(crate) const MAX_ATTEMPTS: u32 = 3;

#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) id: WorkspaceId,
    pub(crate) limit: usize,
    pub(crate) weight: i32,
    /// How many may be at work: the limit, or those that held a slot when it was lowered.
    pub(crate) allowed: usize,
    /// From where a claim counts its slots and reads its ready items.
    mark: Mark,
}

#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) status: queue::Status,
    pub(crate) claim: u64,
    pub(crate) claimed_by: Pid,
    pub(crate) attempts: u32,
    pub(crate) taken_over: bool,
    pub(crate) available_at: u64,
    /// Its arrival. It may commit later.
    rank: u64,
    /// The number of the claim that gave it its slot.
    number: u64,
}

/// What ended an execution, for the audit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    Ran,
    Refused,
    CrashLoop,
    Canceled,
    Forced,
}

#[derive(Clone, Debug)]
pub(crate) struct NodeRow {
    pub(crate) status: node::Status,
    pub(crate) attempt: u32,
    /// When its delay is over, or its next attempt due.
    pub(crate) next_at: Option<u64>,
    pub(crate) fence: u64,
    pub(crate) seq: u32,
    pub(crate) end: Option<node::NodeEnd>,
    /// Who wrote last: a repeat of one's own write changes nothing.
    pub(crate) writer: u64,
}

#[derive(Debug)]
pub(crate) struct Execution {
    pub(crate) workspace: usize,
    pub(crate) plan: Arc<Plan>,
    pub(crate) status: execution::Status,
    pub(crate) item: Item,
    /// By the place that `row_of` gives.
    pub(crate) nodes: Vec<NodeRow>,
    /// How the children of its nodes ended: completed or not.
    pub(crate) children: BTreeMap<NodeIx, bool>,
    /// The rows whose wait was answered.
    pub(crate) answered: BTreeSet<usize>,
    pub(crate) owner: Option<Pid>,
    pub(crate) epoch: u64,
    /// The engine run that began it.
    pub(crate) run: Option<u64>,
    pub(crate) cancel_requested: bool,
    /// It has to end without being asked; the slot is kept until its owner has let go.
    pub(crate) forced: bool,
    pub(crate) wake_at: Option<u64>,
    pub(crate) last_seq: u32,
    pub(crate) deaths: Deaths,
    pub(crate) seq_at_death: u32,
    /// How often it ended, and of what.
    pub(crate) ended: u32,
    pub(crate) why: EndReason,
}

#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) now: u64,
    pub(crate) workspaces: Vec<Workspace>,
    pub(crate) executions: Vec<Execution>,
    pub(crate) seen_at: BTreeMap<Pid, u64>,
    pub(crate) judge: Judge,
    pub(crate) mutant: Option<Mutant>,
    keys: BTreeMap<u64, Ix>,
    /// Which transaction holds each shard's lock; a claim's goes by its claim id.
    locks: BTreeMap<i16, u64>,
    /// The last number that a claim drew.
    drawn: u64,
}

impl Store {
    pub(crate) fn new(limits: &[usize], weights: &[i32], mutant: Option<Mutant>) -> Store {
        let workspace = |(at, (limit, weight)): (usize, (&usize, &i32))| Workspace {
            // Two workspaces to a shard.
            id: WorkspaceId(Uuid::from_u128((at / 2 + at % 2 * 64) as u128)),
            limit: *limit,
            weight: *weight,
            allowed: *limit,
            mark: Mark::default(),
        };
        let workspaces = limits.iter().zip(weights).enumerate().map(workspace).collect();
        Store {
            now: 0,
            workspaces,
            executions: Vec::new(),
            seen_at: BTreeMap::new(),
            judge: Judge::default(),
            mutant,
            keys: BTreeMap::new(),
            locks: BTreeMap::new(),
            drawn: 0,
        }
    }

    pub(crate) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Accepts a request once, however often it comes.
    pub(crate) fn enqueue(&mut self, key: u64, workspace: usize, plan: &Arc<Plan>) -> Ix {
        if let Some(known) = self.keys.get(&key) {
            return *known;
        }
        let row = NodeRow {
            status: node::Status::Pending,
            attempt: 0,
            next_at: None,
            fence: 0,
            seq: 0,
            end: None,
            writer: 0,
        };
        let item = Item {
            status: queue::Status::Pending,
            claim: 0,
            claimed_by: 0,
            attempts: 0,
            taken_over: false,
            available_at: self.now,
            rank: self.now.saturating_sub(marks::lateness(key)),
            number: 0,
        };
        self.executions.push(Execution {
            workspace,
            plan: Arc::clone(plan),
            status: execution::Status::Pending,
            item,
            nodes: vec![row; plan.nodes().len() * (1 + ITEMS + BELOW)],
            children: BTreeMap::new(),
            answered: BTreeSet::new(),
            owner: None,
            epoch: 0,
            run: None,
            cancel_requested: false,
            forced: false,
            wake_at: None,
            last_seq: 0,
            deaths: Deaths::default(),
            seq_at_death: 0,
            ended: 0,
            why: EndReason::Ran,
        });
        let ix = self.executions.len() - 1;
        self.keys.insert(key, ix);
        self.note(|| format!("accept e{ix} for w{workspace}"));
        ix
    }

    /// Takes a shard's lock for as long as a transaction lasts.
    pub(crate) fn lock(&mut self, workspace: usize, transaction: u64) -> bool {
        let shard = self.workspaces[workspace].id.shard();
        *self.locks.entry(shard).or_insert(transaction) == transaction
    }

    /// The transaction is over, or its connection is.
    pub(crate) fn unlock(&mut self, transaction: u64) {
        self.locks.retain(|_, holder| *holder != transaction);
    }

    pub(crate) fn slots_held(&self, workspace: usize) -> usize {
        let holds = |e: &&Execution| e.workspace == workspace && e.item.status.holds_slot();
        self.executions.iter().filter(holds).count()
    }

    pub(crate) fn is_ready(&self, ix: Ix) -> bool {
        let item = &self.executions[ix].item;
        item.status == queue::Status::Pending && item.available_at <= self.now
    }

    /// Has the workspace something ready and a free slot?
    pub(crate) fn is_eligible(&self, workspace: usize) -> bool {
        let mut items = (0..self.executions.len()).filter(|ix| self.executions[*ix].workspace == workspace);
        items.any(|ix| self.is_ready(ix)) && self.room(workspace) > 0
    }

    /// What a claimer holds under a claim: how it learns what became of a lost answer.
    pub(crate) fn claimed_under(&self, claim: u64) -> Vec<Ix> {
        let held = |ix: &Ix| {
            let item = &self.executions[*ix].item;
            item.status == queue::Status::Claimed && item.claim == claim
        };
        (0..self.executions.len()).filter(held).collect()
    }

    /// CLAIMED to DISPATCHED, under the claim. False: someone else decided.
    pub(crate) fn mark_dispatched(&mut self, ix: Ix, claim: u64) -> bool {
        self.note(|| format!("mark e{ix} dispatched under c{claim}"));
        self.move_claimed(ix, claim, Step::Dispatch)
    }

    /// Back to waiting after a refusal, one attempt spent.
    pub(crate) fn requeue(&mut self, ix: Ix, claim: u64, backoff: u64) -> bool {
        let moved = self.move_claimed(ix, claim, Step::Requeue);
        if moved {
            let item = &mut self.executions[ix].item;
            item.attempts += 1;
            item.available_at = self.now + backoff;
            self.freed(ix);
        }
        self.note(|| format!("requeue e{ix} under c{claim}: {moved}"));
        moved
    }

    /// The item as it was before any claim, whatever it has become since: what mutants do.
    pub(crate) fn put_back(&mut self, ix: Ix) {
        self.executions[ix].item.status = queue::Status::Pending;
        self.freed(ix);
        self.note(|| format!("put e{ix} back"));
    }

    /// Another claimer for an item whose claimer is dead. None: not now.
    pub(crate) fn take_over_item(
        &mut self,
        ix: Ix,
        claim: u64,
        claimer: Pid,
        alone_is_free: bool,
    ) -> Option<AfterDeath> {
        let (status, by) = (self.executions[ix].item.status, self.executions[ix].item.claimed_by);
        if self.is(Mutant::TakeoverRequeues) && status.holds_slot() && self.is_silent(by, CLAIM_SILENCE) {
            self.put_back(ix);
            return None;
        }
        let next = status.after(Step::Takeover)?;
        if !self.is_silent(by, CLAIM_SILENCE) {
            return None;
        }
        let verdict = self.count_death(ix, alone_is_free)?;
        self.judge.saw("takeover");
        let item = &mut self.executions[ix].item;
        item.status = next;
        (item.claim, item.claimed_by, item.taken_over) = (claim, claimer, true);
        self.note(|| format!("p{claimer} takes e{ix} over from p{by} under c{claim}: {verdict:?}"));
        if verdict == AfterDeath::GiveUp {
            self.complete(ix, Guard::Claim(claim), execution::Step::Fail, EndReason::CrashLoop);
        }
        Some(verdict)
    }

    /// Changes a workspace's limit; its caller holds the shard's lock.
    pub(crate) fn set_limit(&mut self, workspace: usize, limit: usize) {
        self.workspaces[workspace].limit = limit;
        self.count_allowed(workspace);
        self.note(|| format!("limit of w{workspace} is {limit}"));
    }

    pub(crate) fn is_silent(&self, process: Pid, bound: u64) -> bool {
        self.seen_at.get(&process).is_none_or(|seen_at| self.now - seen_at > bound)
    }

    /// Counts the death of an execution's holder. None: it may only be resumed alone, and not here.
    fn count_death(&mut self, ix: Ix, alone_is_free: bool) -> Option<AfterDeath> {
        let execution = &mut self.executions[ix];
        let progressed = execution.last_seq != execution.seq_at_death;
        let (count, verdict) = crash::after_death(execution.deaths, progressed);
        match verdict {
            AfterDeath::Resume => {}
            AfterDeath::ResumeAlone if !alone_is_free => {
                self.judge.saw("suspect waits to be alone");
                return None;
            }
            AfterDeath::ResumeAlone => self.judge.saw("resumed alone"),
            AfterDeath::GiveUp => self.judge.saw("crash loop"),
        }
        // It is taken when its turn has come, so it has its turn immediately.
        let deaths = Deaths { count, alone: verdict == AfterDeath::ResumeAlone };
        (execution.deaths, execution.seq_at_death) = (deaths, execution.last_seq);
        Some(verdict)
    }

    fn move_claimed(&mut self, ix: Ix, claim: u64, step: Step) -> bool {
        let item = &mut self.executions[ix].item;
        if item.status != queue::Status::Claimed || item.claim != claim {
            self.judge.saw("write of an item without its claim");
            return false;
        }
        item.status = item.status.after(step).expect("a claimed item allows it");
        true
    }

    fn freed(&mut self, ix: Ix) {
        self.count_allowed(self.executions[ix].workspace);
    }

    fn count_allowed(&mut self, workspace: usize) {
        let held = self.slots_held(workspace);
        let workspace = &mut self.workspaces[workspace];
        workspace.allowed = workspace.allowed.min(held).max(workspace.limit);
    }

    pub(crate) fn note(&mut self, step: impl FnOnce() -> String) {
        let now = self.now;
        self.judge.note(|| format!("{now:>7} {}", step()));
    }
}

/// The frame of a tree: the root's, or that of a node's child.
pub(crate) type Frame = Option<NodeIx>;

/// Where a node's row is, an item's, or one of a child's.
pub(crate) fn row_of(plan: &Plan, frame: Frame, at: Target) -> usize {
    let count = plan.nodes().len();
    match (frame, at.index()) {
        (None, None) => at.node,
        (None, Some(index)) => count + at.node * ITEMS + index,
        (Some(parent), _) => count * (1 + ITEMS) + parent * BELOW + at.node,
    }
}

/// What every child runs.
pub(crate) fn child_plan() -> Plan {
    graph::plan("x -> y")
}

/// The id of an execution in the store.
pub(crate) fn execution_id(ix: Ix) -> ExecutionId {
    ExecutionId(Uuid::from_u128(ix as u128 + 1))
}
