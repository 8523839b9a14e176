//! A process of the service: its dispatcher, its embedded engine, and its memory.
//!
//! Invariants
//! - A crash loses everything in this memory. After its lease has lapsed, the process continues under a new id.
//! - Each step makes one change to the world. Between two steps the process may die, pause, or receive no answer.
//! - The kernel makes every decision. A step only carries a decision out.
//!
//! Not here: the background loops (`loops`), what makes it die (`world`).

mod loops;

use std::collections::{BTreeMap, BTreeSet};

use kernel::execution::{self, BeginDecision};
use kernel::queue::round_robin::RoundRobin;
use kernel::queue::{self, StartDecision, StartOutcome};

use super::machine::{Machine, StepContext, StepOutcome};
use super::mutant::Mutant;
use super::remote::Remote;
use super::store::marks_move;
use super::store::{EndReason, Fence, Guard, Ix, MAX_ATTEMPTS, Pid};

/// A process without a successful heartbeat for this long aborts all its work.
pub(crate) const LAPSE: u64 = 10_000;

#[derive(Clone, Debug)]
enum Task {
    Claim {
        workspace: usize,
        want: usize,
        claim: u64,
        stage: ClaimStage,
    },
    /// The answer to a claim was lost: what is held under it?
    Recall {
        claim: u64,
    },
    Start {
        ix: Ix,
        claim: u64,
        doubt: bool,
        from: u64,
        tries: u32,
    },
    Decided {
        ix: Ix,
        claim: u64,
        doubt: bool,
        tries: u32,
        decision: StartDecision,
    },
    /// A run is ours by the store; its rows are read in a step after that.
    Resume {
        ix: Ix,
        epoch: u64,
    },
}

impl Task {
    fn is_about(&self, ix: Ix) -> bool {
        match self {
            Task::Start { ix: about, .. } | Task::Decided { ix: about, .. } | Task::Resume { ix: about, .. } => {
                *about == ix
            }
            Task::Claim { .. } | Task::Recall { .. } => false,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum ClaimStage {
    Lock,
    Count,
    /// How many to take, under which number.
    Take(usize, u64),
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) id: Pid,
    pub(crate) down_until: Option<u64>,
    pub(crate) paused_until: Option<u64>,
    pub(crate) mute_until: u64,
    /// Steps it still takes, back from a pause, before it notices how long it was.
    pub(crate) blind_steps: u32,
    /// When its last heartbeat that came through was sent, and since when all have.
    pub(crate) beat_at: u64,
    pub(crate) steady_since: u64,
    ring: RoundRobin,
    believed: BTreeSet<usize>,
    passed_over: BTreeMap<usize, usize>,
    tasks: Vec<Task>,
    machines: BTreeMap<Ix, Machine>,
    /// The run it resumed alone.
    alone: Option<Ix>,
    breaker_until: u64,
    claims: u64,
}

impl Process {
    pub(crate) fn new(id: Pid, now: u64) -> Process {
        Process {
            id,
            down_until: None,
            paused_until: None,
            mute_until: 0,
            blind_steps: 0,
            beat_at: now,
            steady_since: now,
            ring: RoundRobin::default(),
            believed: BTreeSet::new(),
            passed_over: BTreeMap::new(),
            tasks: Vec::new(),
            machines: BTreeMap::new(),
            alone: None,
            breaker_until: 0,
            claims: 0,
        }
    }

    pub(crate) fn is_steppable(&self) -> bool {
        self.down_until.is_none() && self.paused_until.is_none()
    }

    /// One step of whatever is going on in it.
    pub(crate) fn step(&mut self, context: &mut StepContext<'_>, remote: Option<&mut Remote>) {
        let busy = self.tasks.len() + self.machines.len();
        let at = context.random.below(busy + busy / 2 + 1);
        if at < self.tasks.len() {
            let task = self.tasks.swap_remove(at);
            self.step_task(context, remote, task);
        } else if at < busy {
            let ix = self.machines.keys().nth(at - self.tasks.len()).copied();
            ix.into_iter().for_each(|ix| self.step_machine(context, ix));
        } else {
            self.look_around(context, remote.is_none());
        }
    }

    /// Its connections go: open transactions are undone, their locks with them.
    pub(crate) fn disconnect(&mut self, context: &mut StepContext<'_>) {
        for task in std::mem::take(&mut self.tasks) {
            if let Task::Claim { workspace, claim, .. } = task {
                context.store.unlock(claim);
                self.believe(context, workspace);
            } else {
                self.tasks.push(task);
            }
        }
    }

    fn step_machine(&mut self, context: &mut StepContext<'_>, ix: Ix) {
        let Some(machine) = self.machines.get_mut(&ix) else { return };
        let after = machine.step(context);
        if after == StepOutcome::Going {
            return;
        }
        machine.drop_work(context.receiver);
        self.machines.remove(&ix);
        let workspace = context.store.executions[ix].workspace;
        if after == StepOutcome::Closed && context.store.is_eligible(workspace) {
            self.believe(context, workspace);
        }
    }

    fn step_task(&mut self, context: &mut StepContext<'_>, remote: Option<&mut Remote>, task: Task) {
        match task {
            Task::Claim { workspace, want, claim, stage } => self.claim(context, workspace, want, claim, stage),
            Task::Recall { claim } => {
                context.store.judge.saw("claim recalled");
                self.start_claimed(context, claim);
            }
            Task::Start { ix, claim, doubt, from, tries } if from > context.store.now => {
                self.tasks.push(Task::Start { ix, claim, doubt, from, tries });
            }
            Task::Start { ix, claim, doubt, tries, .. } => {
                let answer = match remote {
                    Some(remote) => {
                        let id = if context.store.is(Mutant::NewIdOnRepeat) { tries } else { 0 };
                        remote.start(context, ix, id)
                    }
                    None => self.begin(context, ix),
                };
                let attempts = context.store.executions[ix].item.attempts;
                let decision = queue::after_start(answer, attempts, MAX_ATTEMPTS, doubt);
                self.tasks.push(Task::Decided { ix, claim, doubt, tries: tries + 1, decision });
            }
            Task::Decided { ix, claim, doubt, tries, decision } => {
                self.carry_out(context, remote, PendingStart { ix, claim, doubt, tries }, decision);
            }
            Task::Resume { ix, epoch } => {
                let fence = Fence::Owner { process: self.id, epoch };
                let machine = Machine::from_rows(context.store, ix, fence);
                self.machines.entry(ix).or_insert(machine);
            }
        }
    }

    /// Lock, count, take: one transaction, whose lock is taken before it looks.
    fn claim(&mut self, context: &mut StepContext<'_>, workspace: usize, want: usize, claim: u64, stage: ClaimStage) {
        let stage = match stage {
            ClaimStage::Lock if context.store.is(Mutant::ClaimWithoutLock) => ClaimStage::Count,
            ClaimStage::Lock if context.store.lock(workspace, claim) => ClaimStage::Count,
            ClaimStage::Lock => {
                if context.store.is(Mutant::MarkOutsideLock) {
                    let number = context.store.draw(workspace);
                    context.store.move_mark(workspace, number);
                }
                ClaimStage::Lock
            }
            ClaimStage::Count => {
                let number = context.store.draw(workspace);
                ClaimStage::Take(context.store.room(workspace).min(want), number)
            }
            ClaimStage::Take(count, number) => {
                context.store.take(workspace, count, claim, self.id, number);
                if marks_move(number) {
                    context.store.move_mark(workspace, number);
                }
                context.store.unlock(claim);
                if context.store.is_eligible(workspace) {
                    self.believe(context, workspace);
                }
                if !context.answer_is_lost() {
                    self.start_claimed(context, claim);
                } else if !context.store.is(Mutant::ClaimForgotten) {
                    self.tasks.push(Task::Recall { claim });
                }
                return;
            }
        };
        self.tasks.push(Task::Claim { workspace, want, claim, stage });
    }

    fn start_claimed(&mut self, context: &mut StepContext<'_>, claim: u64) {
        for ix in context.store.claimed_under(claim) {
            let doubt = context.store.executions[ix].item.taken_over;
            self.tasks.push(Task::Start { ix, claim, doubt, from: 0, tries: 0 });
        }
    }

    /// The embedded engine's start is `begin` itself: what it calls started is stored as such.
    fn begin(&mut self, context: &mut StepContext<'_>, ix: Ix) -> StartOutcome {
        if self.machines.contains_key(&ix) {
            return StartOutcome::AlreadyStarted;
        }
        if context.faults && context.random.one_in(16) {
            return StartOutcome::Ambiguous("the request was lost".to_owned());
        }
        let begin = context.store.begin(ix, self.id, Some(self.id));
        if context.answer_is_lost() {
            return StartOutcome::Ambiguous("the answer was lost".to_owned());
        }
        match begin {
            BeginDecision::Granted => {
                let epoch = context.store.executions[ix].epoch;
                self.tasks.push(Task::Resume { ix, epoch });
                StartOutcome::Started
            }
            BeginDecision::Ended | BeginDecision::NotYet => StartOutcome::AlreadyStarted,
        }
    }

    fn carry_out(
        &mut self,
        context: &mut StepContext<'_>,
        remote: Option<&mut Remote>,
        start: PendingStart,
        decision: StartDecision,
    ) {
        let PendingStart { ix, claim, doubt, tries } = start;
        match &decision {
            StartDecision::MarkDispatched => {
                context.store.mark_dispatched(ix, claim);
            }
            StartDecision::Requeue { backoff, .. } => {
                context.store.requeue(ix, claim, u64::try_from(backoff.as_millis()).unwrap_or(u64::MAX));
            }
            StartDecision::GiveUp { .. } => {
                context.store.judge.saw("given up");
                context.store.complete(ix, Guard::Claim(claim), execution::Step::Fail, EndReason::Refused);
            }
            StartDecision::Hold { .. } => {
                context.store.judge.saw("engine out of reach");
                self.breaker_until = context.store.now + 1_000;
                self.tasks.push(Task::Start { ix, claim, doubt, from: self.breaker_until, tries });
                return;
            }
            StartDecision::Repeat { .. } => {
                let item = &context.store.executions[ix].item;
                if context.store.is(Mutant::FreeSlotOnAmbiguousStart) && item.claim == claim && item.status.holds_slot()
                {
                    context.store.put_back(ix);
                } else {
                    self.tasks.push(Task::Start { ix, claim, doubt: true, from: context.store.now + 500, tries });
                }
                return;
            }
            StartDecision::Describe { reason } => {
                context.store.judge.saw("refused in doubt");
                let known = remote.and_then(|remote| remote.describe(context, ix));
                let attempts = context.store.executions[ix].item.attempts;
                self.tasks.push(match known {
                    Some(false) if context.store.is(Mutant::DoubtForEver) => {
                        Task::Start { ix, claim, doubt, from: context.store.now + 500, tries }
                    }
                    Some(known) => {
                        let decision = queue::described(known, reason.clone(), attempts, MAX_ATTEMPTS);
                        Task::Decided { ix, claim, doubt, tries, decision }
                    }
                    None => Task::Decided { ix, claim, doubt, tries, decision },
                });
                return;
            }
        }
        if context.answer_is_lost() {
            // The write is repeatable: under the claim it changes a row once or not at all.
            self.tasks.push(Task::Decided { ix, claim, doubt, tries, decision });
        }
    }
}

/// What a dispatcher knows of an item it is starting.
struct PendingStart {
    ix: Ix,
    claim: u64,
    doubt: bool,
    tries: u32,
}
