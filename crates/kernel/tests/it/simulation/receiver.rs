//! The server that nodes call. It sees which process calls, when, and how often.
//!
//! Invariants
//! - An answer depends on execution, row and attempt only. So a repeated call gets the same answer, and the audit can
//!   compute the correct outcome of each execution.
//! - P2 and P3 are checked here as well as in the store, because only this server sees what is really performed.
//! - A request that a process handed to the network before it paused or died cannot be stopped. It does not count as
//!   work of the process.
//!
//! Not here: which process may call (`machine`), what an answer does to a run (the kernel).

use std::collections::{BTreeMap, BTreeSet};

use kernel::definition::Kind;
use kernel::definition::plan::Plan;
use kernel::execution::Status;
use kernel::ids::Label;
use kernel::run::failure::{Class, Failure};

use super::judge::Promise;
use super::random::mix;
use super::store::{Fence, Ix, Pid, Store};

/// How the other side answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done(Option<Label>),
    Failed(Failure),
}

#[derive(Debug)]
struct Delivery {
    ix: Ix,
    node: usize,
    attempt: u32,
    sender: Fence,
}

#[derive(Debug, Default)]
pub(crate) struct Receiver {
    seed: u64,
    next: u64,
    in_flight: BTreeMap<u64, Delivery>,
    failures: BTreeMap<(Ix, usize), u32>,
    /// How often each node was really performed.
    pub(crate) deliveries: BTreeMap<(Ix, usize), u32>,
    /// Executions whose nodes kill the process that performs them.
    pub(crate) deadly: BTreeSet<Ix>,
    /// Processes that are not there at the moment.
    pub(crate) away: BTreeSet<Pid>,
}

impl Receiver {
    pub(crate) fn new(seed: u64) -> Receiver {
        Receiver { seed, ..Receiver::default() }
    }

    /// A request arrives.
    pub(crate) fn send(&mut self, store: &mut Store, ix: Ix, node: usize, attempt: u32, sender: Fence) -> u64 {
        store.note(|| format!("{sender:?} performs e{ix} n{node}, attempt {attempt}"));
        self.judge_slot(store, ix, node);
        self.judge_once(store, ix, node, sender);
        let failures = self.failures.get(&(ix, node)).copied().unwrap_or(0);
        if attempt > failures + 1 {
            let what = || format!("e{ix} n{node} is in attempt {attempt} after {failures} failures");
            store.judge.breaks(Promise::P5NeverAttempts, what);
        }
        *self.deliveries.entry((ix, node)).or_default() += 1;
        self.next += 1;
        self.in_flight.insert(self.next, Delivery { ix, node, attempt, sender });
        self.judge_workspace(store, ix);
        self.next
    }

    /// The request is answered. None: nobody waits for it any more.
    pub(crate) fn answer(&mut self, store: &Store, delivery: u64) -> Option<Answer> {
        let Delivery { ix, node, attempt, .. } = self.in_flight.remove(&delivery)?;
        let answer = self.would_answer(&store.executions[ix].plan, ix, node, attempt);
        if matches!(answer, Answer::Failed(_)) {
            // A failure reported twice is one failure.
            let failures = self.failures.entry((ix, node)).or_default();
            *failures = (*failures).max(attempt);
        }
        Some(answer)
    }

    /// The caller has hung up.
    pub(crate) fn hang_up(&mut self, delivery: u64) {
        self.in_flight.remove(&delivery);
    }

    /// Every call of a process has ended, one way or another.
    pub(crate) fn hang_up_all(&mut self, process: Pid) {
        let theirs = |sender: Fence| matches!(sender, Fence::Owner { process: by, .. } if by == process);
        self.in_flight.retain(|_, delivery| !theirs(delivery.sender));
    }

    /// What the other side answers to this attempt, now or at any time.
    pub(crate) fn would_answer(&self, plan: &Plan, ix: Ix, node: usize, attempt: u32) -> Answer {
        let about = (ix as u64) << 32 | (node as u64) << 16 | u64::from(attempt);
        let draw = mix(self.seed ^ mix(about));
        match draw % 12 {
            0 => Answer::Failed(Failure::new(Class::ValidationError, "no")),
            1..=3 => Answer::Failed(Failure::new(Class::Timeout, "slow")),
            _ if plan.nodes().get(node).is_some_and(|node| node.kind == Kind::Condition) => {
                let label = if draw & 1024 == 0 { "true" } else { "false" };
                Answer::Done(Some(Label::new(label).expect("a label")))
            }
            _ => Answer::Done(None),
        }
    }

    fn judge_slot(&self, store: &mut Store, ix: Ix, node: usize) {
        let execution = &store.executions[ix];
        let (status, item) = (execution.status, execution.item.status);
        if !item.holds_slot() || status != Status::Running {
            let what = || format!("e{ix} n{node} is performed outside a slot: {status:?}, item {item:?}");
            store.judge.breaks(Promise::P2Slots, what);
        }
    }

    fn judge_once(&self, store: &mut Store, ix: Ix, node: usize, sender: Fence) {
        let status = store.executions[ix].nodes[node].status;
        if status.is_settled() {
            store.judge.breaks(Promise::P3Once, || format!("e{ix} n{node} is performed though {status:?}"));
        }
        let others = self.counted().find(|delivery| delivery.ix == ix && delivery.sender != sender);
        if let Some(other) = others.map(|delivery| delivery.sender) {
            store.judge.breaks(Promise::P3Once, || format!("e{ix} is run by {other:?} and by {sender:?}"));
        }
    }

    fn judge_workspace(&self, store: &mut Store, ix: Ix) {
        let workspace = store.executions[ix].workspace;
        let here = |ix: &Ix| store.executions[*ix].workspace == workspace;
        let busy: BTreeSet<Ix> = self.counted().map(|delivery| delivery.ix).filter(here).collect();
        let allowed = store.workspaces[workspace].allowed;
        if busy.len() > allowed {
            store.judge.breaks(Promise::P2Slots, || format!("{busy:?} of w{workspace} are at work, allowed {allowed}"));
        }
    }

    /// The requests that count as work of ours.
    fn counted(&self) -> impl Iterator<Item = &Delivery> {
        let away = |sender: Fence| matches!(sender, Fence::Owner { process, .. } if self.away.contains(&process));
        self.in_flight.values().filter(move |delivery| !away(delivery.sender))
    }
}
