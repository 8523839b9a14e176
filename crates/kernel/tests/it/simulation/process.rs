//! A process of the service: its dispatcher, its embedded engine, and all it remembers.
//!
//! Invariants
//! - Whatever is here is lost in a crash; after a lapse the process comes back under a new id.
//! - Each step does one thing to the world. Between any two it may die, pause, or hear no answer.
//! - Every decision is the kernel's; a step carries one out.
//!
//! Not here: the background loops (`loops`), what makes it die (`world`).

mod loops;

use std::collections::{BTreeMap, BTreeSet};

use kernel::execution::{self, Begin};
use kernel::queue::ring::Ring;
use kernel::queue::{self, Answer, Decision};

use super::machine::{After, Hands, Machine};
use super::mutant::Mutant;
use super::remote::Remote;
use super::store::{Fence, Guard, Ix, MAX_ATTEMPTS, Pid, Why};

/// A process that has not been heard for so long aborts all it does.
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
        decision: Decision,
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
    Take(usize),
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
    ring: Ring,
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
            ring: Ring::default(),
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
    pub(crate) fn step(&mut self, hands: &mut Hands<'_>, remote: Option<&mut Remote>) {
        let busy = self.tasks.len() + self.machines.len();
        let at = hands.random.below(busy + busy / 2 + 1);
        if at < self.tasks.len() {
            let task = self.tasks.swap_remove(at);
            self.step_task(hands, remote, task);
        } else if at < busy {
            let ix = self.machines.keys().nth(at - self.tasks.len()).copied();
            ix.into_iter().for_each(|ix| self.step_machine(hands, ix));
        } else {
            self.look_around(hands, remote.is_none());
        }
    }

    /// Its connections go: open transactions are undone, their locks with them.
    pub(crate) fn disconnect(&mut self, hands: &mut Hands<'_>) {
        for task in std::mem::take(&mut self.tasks) {
            if let Task::Claim { workspace, claim, .. } = task {
                hands.store.unlock(claim);
                self.believe(hands, workspace);
            } else {
                self.tasks.push(task);
            }
        }
    }

    fn step_machine(&mut self, hands: &mut Hands<'_>, ix: Ix) {
        let Some(machine) = self.machines.get_mut(&ix) else { return };
        let after = machine.step(hands);
        if after == After::Going {
            return;
        }
        machine.drop_work(hands.receiver);
        self.machines.remove(&ix);
        let workspace = hands.store.executions[ix].workspace;
        if after == After::Closed && hands.store.is_eligible(workspace) {
            self.believe(hands, workspace);
        }
    }

    fn step_task(&mut self, hands: &mut Hands<'_>, remote: Option<&mut Remote>, task: Task) {
        match task {
            Task::Claim { workspace, want, claim, stage } => self.claim(hands, workspace, want, claim, stage),
            Task::Recall { claim } => {
                hands.store.judge.saw("claim recalled");
                self.start_claimed(hands, claim);
            }
            Task::Start { ix, claim, doubt, from, tries } if from > hands.store.now => {
                self.tasks.push(Task::Start { ix, claim, doubt, from, tries });
            }
            Task::Start { ix, claim, doubt, tries, .. } => {
                let answer = match remote {
                    Some(remote) => {
                        let id = if hands.store.is(Mutant::NewIdOnRepeat) { tries } else { 0 };
                        remote.start(hands, ix, id)
                    }
                    None => self.begin(hands, ix),
                };
                let attempts = hands.store.executions[ix].item.attempts;
                let decision = queue::decide(answer, attempts, MAX_ATTEMPTS, doubt);
                self.tasks.push(Task::Decided { ix, claim, doubt, tries: tries + 1, decision });
            }
            Task::Decided { ix, claim, doubt, tries, decision } => {
                self.carry_out(hands, remote, Ticket { ix, claim, doubt, tries }, decision);
            }
            Task::Resume { ix, epoch } => {
                let fence = Fence::Owner { process: self.id, epoch };
                let machine = Machine::from_rows(hands.store, ix, fence);
                self.machines.entry(ix).or_insert(machine);
            }
        }
    }

    /// Lock, count, take: one transaction, whose lock is taken before it looks.
    fn claim(&mut self, hands: &mut Hands<'_>, workspace: usize, want: usize, claim: u64, stage: ClaimStage) {
        let stage = match stage {
            ClaimStage::Lock if hands.store.is(Mutant::ClaimWithoutLock) => ClaimStage::Count,
            ClaimStage::Lock if hands.store.lock(workspace, claim) => ClaimStage::Count,
            ClaimStage::Lock => ClaimStage::Lock,
            ClaimStage::Count => ClaimStage::Take(hands.store.room(workspace).min(want)),
            ClaimStage::Take(count) => {
                hands.store.take(workspace, count, claim, self.id);
                hands.store.unlock(claim);
                if hands.store.is_eligible(workspace) {
                    self.believe(hands, workspace);
                }
                if !hands.answer_is_lost() {
                    self.start_claimed(hands, claim);
                } else if !hands.store.is(Mutant::ClaimForgotten) {
                    self.tasks.push(Task::Recall { claim });
                }
                return;
            }
        };
        self.tasks.push(Task::Claim { workspace, want, claim, stage });
    }

    fn start_claimed(&mut self, hands: &mut Hands<'_>, claim: u64) {
        for ix in hands.store.claimed_under(claim) {
            let doubt = hands.store.executions[ix].item.taken_over;
            self.tasks.push(Task::Start { ix, claim, doubt, from: 0, tries: 0 });
        }
    }

    /// The embedded engine's start is `begin` itself: what it calls started is stored as such.
    fn begin(&mut self, hands: &mut Hands<'_>, ix: Ix) -> Answer {
        if self.machines.contains_key(&ix) {
            return Answer::AlreadyThere;
        }
        if hands.faults && hands.random.one_in(16) {
            return Answer::Ambiguous("the request was lost".to_owned());
        }
        let begin = hands.store.begin(ix, self.id, Some(self.id));
        if hands.answer_is_lost() {
            return Answer::Ambiguous("the answer was lost".to_owned());
        }
        match begin {
            Begin::Granted => {
                let epoch = hands.store.executions[ix].epoch;
                self.tasks.push(Task::Resume { ix, epoch });
                Answer::Started
            }
            Begin::Ended | Begin::NotYet => Answer::AlreadyThere,
        }
    }

    fn carry_out(&mut self, hands: &mut Hands<'_>, remote: Option<&mut Remote>, ticket: Ticket, decision: Decision) {
        let Ticket { ix, claim, doubt, tries } = ticket;
        match &decision {
            Decision::MarkDispatched => {
                hands.store.mark_dispatched(ix, claim);
            }
            Decision::Requeue { backoff, .. } => {
                hands.store.requeue(ix, claim, u64::try_from(backoff.as_millis()).unwrap_or(u64::MAX));
            }
            Decision::GiveUp { .. } => {
                hands.store.judge.saw("given up");
                hands.store.complete(ix, Guard::Claim(claim), execution::Step::Fail, Why::Refused);
            }
            Decision::Hold { .. } => {
                hands.store.judge.saw("engine out of reach");
                self.breaker_until = hands.store.now + 1_000;
                self.tasks.push(Task::Start { ix, claim, doubt, from: self.breaker_until, tries });
                return;
            }
            Decision::Repeat { .. } => {
                let item = &hands.store.executions[ix].item;
                if hands.store.is(Mutant::FreeSlotOnAmbiguousStart) && item.claim == claim && item.status.holds_slot() {
                    hands.store.put_back(ix);
                } else {
                    self.tasks.push(Task::Start { ix, claim, doubt: true, from: hands.store.now + 500, tries });
                }
                return;
            }
            Decision::Describe { reason } => {
                hands.store.judge.saw("refused in doubt");
                let known = remote.and_then(|remote| remote.describe(hands, ix));
                let attempts = hands.store.executions[ix].item.attempts;
                self.tasks.push(match known {
                    Some(false) if hands.store.is(Mutant::DoubtForEver) => {
                        Task::Start { ix, claim, doubt, from: hands.store.now + 500, tries }
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
        if hands.answer_is_lost() {
            // The write is repeatable: under the claim it changes a row once or not at all.
            self.tasks.push(Task::Decided { ix, claim, doubt, tries, decision });
        }
    }
}

/// What a dispatcher knows of an item it is starting.
struct Ticket {
    ix: Ix,
    claim: u64,
    doubt: bool,
    tries: u32,
}
