//! The background loops: look, decide, do; each safe to run twice and in any process.
//!
//! Invariants
//! - A process calls another dead only if its own heartbeats came through for all that time.
//! - P4 is judged here: a workspace that a dispatcher knows to have something ready and a free slot
//!   is asked after a bounded number of that dispatcher's turns.
//!
//! Not here: what the looks lead to (`process`).

use kernel::execution::Status;
use kernel::ids::WorkspaceId;
use kernel::queue;
use kernel::queue::ring::Ask;
use kernel::run::crash::Verdict;

use super::{ClaimStage, Process, Task};
use crate::simulation::judge::Promise;
use crate::simulation::machine::Hands;
use crate::simulation::mutant::Mutant;
use crate::simulation::store::{CLAIM_SILENCE, Ix, RUN_SILENCE, Store};

/// How many items a turn may claim.
const BATCH: i32 = 3;

impl Process {
    /// One look of one loop.
    pub(super) fn look_around(&mut self, hands: &mut Hands<'_>, embedded: bool) {
        match hands.random.below(if embedded { 8 } else { 5 }) {
            0 => self.sweep(hands),
            1..=3 => self.turn(hands),
            4 => self.take_over(hands),
            5 => self.adopt(hands),
            6 => self.wake(hands),
            _ => self.reload(hands),
        }
    }

    /// Believes that a workspace has something ready and a free slot.
    pub(super) fn believe(&mut self, hands: &Hands<'_>, workspace: usize) {
        let row = &hands.store.workspaces[workspace];
        self.ring.add(row.id, row.weight);
        self.believed.insert(workspace);
    }

    fn sweep(&mut self, hands: &Hands<'_>) {
        for workspace in 0..hands.store.workspaces.len() {
            if hands.store.is_eligible(workspace) {
                self.believe(hands, workspace);
            }
        }
    }

    fn turn(&mut self, hands: &mut Hands<'_>) {
        let claiming = self.tasks.iter().any(|task| matches!(task, Task::Claim { .. }));
        if claiming || hands.store.now < self.breaker_until {
            return;
        }
        let asks = if hands.store.is(Mutant::OldestFirst) { oldest(hands.store) } else { self.ring.take(BATCH) };
        if asks.is_empty() {
            return;
        }
        let asked: Vec<(usize, i32)> = asks.iter().map(|ask| (place(hands.store, ask.workspace), ask.want)).collect();
        self.judge_fairness(hands.store, &asked);
        for (workspace, want) in asked {
            self.believed.remove(&workspace);
            let claim = self.next_claim();
            let want = usize::try_from(want).unwrap_or(0);
            self.tasks.push(Task::Claim { workspace, want, claim, stage: ClaimStage::Lock });
        }
    }

    fn judge_fairness(&mut self, store: &mut Store, asked: &[(usize, i32)]) {
        let bound = store.workspaces.len();
        for workspace in self.believed.iter().copied() {
            let passed = self.passed_over.entry(workspace).or_default();
            let is_asked = asked.iter().any(|(asked, _)| *asked == workspace);
            *passed = if is_asked || !store.is_eligible(workspace) { 0 } else { *passed + 1 };
            if *passed > bound {
                let turns = *passed;
                let what = || format!("w{workspace} was passed over in {turns} turns");
                store.judge.breaks(Promise::P4Fair, what);
            }
        }
    }

    fn take_over(&mut self, hands: &mut Hands<'_>) {
        if !self.may_judge(hands.store, CLAIM_SILENCE) {
            return;
        }
        let dead = |ix: &Ix| {
            let item = &hands.store.executions[*ix].item;
            let claimed = item.status == queue::Status::Claimed || hands.store.is(Mutant::TakeoverRequeues);
            claimed && item.status.holds_slot() && hands.store.is_silent(item.claimed_by, CLAIM_SILENCE)
        };
        let Some(ix) = (0..hands.store.executions.len()).find(dead) else { return };
        let claim = self.next_claim();
        let alone_is_free = self.alone_is_free();
        let Some(verdict) = hands.store.take_over(ix, claim, self.id, alone_is_free) else { return };
        if verdict == Verdict::ResumeAlone {
            self.alone = Some(ix);
        }
        if hands.answer_is_lost() {
            self.tasks.push(Task::Recall { claim });
        } else {
            self.start_claimed(hands, claim);
        }
    }

    fn adopt(&mut self, hands: &mut Hands<'_>) {
        if !self.may_judge(hands.store, RUN_SILENCE) {
            return;
        }
        let alone_is_free = self.alone_is_free();
        let dead = |store: &Store, ix: Ix| {
            let execution = &store.executions[ix];
            let owner = execution.owner.filter(|_| execution.status == Status::Running);
            owner.is_some_and(|owner| store.is_silent(owner, RUN_SILENCE))
        };
        let Some(ix) = (0..hands.store.executions.len()).find(|ix| dead(hands.store, *ix)) else { return };
        let Some((epoch, verdict)) = hands.store.adopt(ix, self.id, alone_is_free) else { return };
        match verdict {
            Verdict::GiveUp => return,
            Verdict::ResumeAlone => self.alone = Some(ix),
            Verdict::Resume => {}
        }
        self.resume_unless_lost(hands, ix, epoch);
    }

    fn wake(&mut self, hands: &mut Hands<'_>) {
        let now = hands.store.now;
        let due = |ix: &Ix| {
            let execution = &hands.store.executions[*ix];
            execution.owner.is_none() && execution.wake_at.is_some_and(|at| at <= now)
        };
        let Some(ix) = (0..hands.store.executions.len()).find(due) else { return };
        if let Some(epoch) = hands.store.wake(ix, self.id) {
            self.resume_unless_lost(hands, ix, epoch);
        }
    }

    /// The runs it owns by the store but does not hold.
    fn reload(&mut self, hands: &mut Hands<'_>) {
        let lacks = |ix: &Ix| {
            let mine = hands.store.executions[*ix].owner == Some(self.id);
            mine && !self.machines.contains_key(ix) && !self.tasks.iter().any(|task| task.is_about(*ix))
        };
        let Some(ix) = (0..hands.store.executions.len()).find(lacks) else { return };
        if let Some(epoch) = hands.store.reload(ix, self.id) {
            self.resume_unless_lost(hands, ix, epoch);
        }
    }

    /// If the answer is lost, `reload` finds the run.
    fn resume_unless_lost(&mut self, hands: &mut Hands<'_>, ix: Ix, epoch: u64) {
        if !hands.answer_is_lost() {
            self.tasks.push(Task::Resume { ix, epoch });
        }
    }

    fn may_judge(&self, store: &Store, silence: u64) -> bool {
        store.now - self.steady_since > silence
    }

    fn alone_is_free(&self) -> bool {
        self.alone.is_none_or(|ix| !self.machines.contains_key(&ix) && !self.tasks.iter().any(|task| task.is_about(ix)))
    }

    fn next_claim(&mut self) -> u64 {
        self.claims += 1;
        self.id << 16 | self.claims
    }
}

fn place(store: &Store, workspace: WorkspaceId) -> usize {
    store.workspaces.iter().position(|row| row.id == workspace).expect("the ring holds known workspaces")
}

/// Whoever waits longest, full or not: what a mutant asks.
fn oldest(store: &Store) -> Vec<Ask> {
    let oldest = (0..store.executions.len()).find(|ix| store.is_ready(*ix));
    let ask = |ix: Ix| Ask { workspace: store.workspaces[store.executions[ix].workspace].id, want: BATCH };
    oldest.map(ask).into_iter().collect()
}
