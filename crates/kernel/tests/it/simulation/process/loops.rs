//! The background loops of a process. Each reads the store, decides, and acts. It may run twice, and in any process.
//!
//! Invariants
//! - A process declares another process dead only if its own heartbeats succeeded during the whole time.
//! - P4 is checked here. If a dispatcher knows that a workspace has a ready item and a free slot, it asks the workspace
//!   after a bounded number of its turns.
//!
//! Not here: the steps that follow from a poll (`process`).

use kernel::execution::Status;
use kernel::ids::WorkspaceId;
use kernel::queue;
use kernel::queue::round_robin::Quota;
use kernel::run::crash::AfterDeath;

use super::{ClaimStage, Process, Task};
use crate::simulation::judge::Promise;
use crate::simulation::machine::StepContext;
use crate::simulation::mutant::Mutant;
use crate::simulation::store::{CLAIM_SILENCE, Ix, RUN_SILENCE, Store};

/// How many items a turn may claim.
const BATCH: i32 = 3;

impl Process {
    /// One look of one loop.
    pub(super) fn look_around(&mut self, context: &mut StepContext<'_>, embedded: bool) {
        match context.random.below(if embedded { 8 } else { 5 }) {
            0 => self.sweep(context),
            1..=3 => self.turn(context),
            4 => self.take_over_item(context),
            5 => self.take_over_run(context),
            6 => self.wake(context),
            _ => self.reload(context),
        }
    }

    /// Believes that a workspace has something ready and a free slot.
    pub(super) fn believe(&mut self, context: &StepContext<'_>, workspace: usize) {
        let row = &context.store.workspaces[workspace];
        self.ring.add(row.id, row.weight);
        self.believed.insert(workspace);
    }

    fn sweep(&mut self, context: &mut StepContext<'_>) {
        for workspace in 0..context.store.workspaces.len() {
            context.store.probe(workspace);
            if context.store.is_eligible(workspace) {
                self.believe(context, workspace);
            }
        }
    }

    fn turn(&mut self, context: &mut StepContext<'_>) {
        let claiming = self.tasks.iter().any(|task| matches!(task, Task::Claim { .. }));
        if claiming || context.store.now < self.breaker_until {
            return;
        }
        let asks =
            if context.store.is(Mutant::OldestFirst) { oldest(context.store) } else { self.ring.next_batch(BATCH) };
        if asks.is_empty() {
            return;
        }
        let asked: Vec<(usize, i32)> =
            asks.iter().map(|ask| (place(context.store, ask.workspace), ask.limit)).collect();
        self.judge_fairness(context.store, &asked);
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

    fn take_over_item(&mut self, context: &mut StepContext<'_>) {
        if !self.may_judge(context.store, CLAIM_SILENCE) {
            return;
        }
        let dead = |ix: &Ix| {
            let item = &context.store.executions[*ix].item;
            let claimed = item.status == queue::Status::Claimed || context.store.is(Mutant::TakeoverRequeues);
            claimed && item.status.holds_slot() && context.store.is_silent(item.claimed_by, CLAIM_SILENCE)
        };
        let Some(ix) = (0..context.store.executions.len()).find(dead) else { return };
        let claim = self.next_claim();
        let alone_is_free = self.alone_is_free();
        let Some(verdict) = context.store.take_over_item(ix, claim, self.id, alone_is_free) else { return };
        if verdict == AfterDeath::ResumeAlone {
            self.alone = Some(ix);
        }
        if context.answer_is_lost() {
            self.tasks.push(Task::Recall { claim });
        } else {
            self.start_claimed(context, claim);
        }
    }

    fn take_over_run(&mut self, context: &mut StepContext<'_>) {
        if !self.may_judge(context.store, RUN_SILENCE) {
            return;
        }
        let alone_is_free = self.alone_is_free();
        let dead = |store: &Store, ix: Ix| {
            let execution = &store.executions[ix];
            let owner = execution.owner.filter(|_| execution.status == Status::Running);
            owner.is_some_and(|owner| store.is_silent(owner, RUN_SILENCE))
        };
        let Some(ix) = (0..context.store.executions.len()).find(|ix| dead(context.store, *ix)) else { return };
        let Some((epoch, verdict)) = context.store.take_over_run(ix, self.id, alone_is_free) else { return };
        match verdict {
            AfterDeath::GiveUp => return,
            AfterDeath::ResumeAlone => self.alone = Some(ix),
            AfterDeath::Resume => {}
        }
        self.resume_unless_lost(context, ix, epoch);
    }

    fn wake(&mut self, context: &mut StepContext<'_>) {
        let now = context.store.now;
        let due = |ix: &Ix| {
            let execution = &context.store.executions[*ix];
            execution.owner.is_none() && execution.wake_at.is_some_and(|at| at <= now)
        };
        let Some(ix) = (0..context.store.executions.len()).find(due) else { return };
        if let Some(epoch) = context.store.wake(ix, self.id) {
            self.resume_unless_lost(context, ix, epoch);
        }
    }

    /// The runs it owns by the store but does not hold.
    fn reload(&mut self, context: &mut StepContext<'_>) {
        let lacks = |ix: &Ix| {
            let mine = context.store.executions[*ix].owner == Some(self.id);
            mine && !self.machines.contains_key(ix) && !self.tasks.iter().any(|task| task.is_about(*ix))
        };
        let Some(ix) = (0..context.store.executions.len()).find(lacks) else { return };
        if let Some(epoch) = context.store.reload(ix, self.id) {
            self.resume_unless_lost(context, ix, epoch);
        }
    }

    /// If the answer is lost, `reload` finds the run.
    fn resume_unless_lost(&mut self, context: &mut StepContext<'_>, ix: Ix, epoch: u64) {
        if !context.answer_is_lost() {
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
fn oldest(store: &Store) -> Vec<Quota> {
    let oldest = (0..store.executions.len()).find(|ix| store.is_ready(*ix));
    let ask = |ix: Ix| Quota { workspace: store.workspaces[store.executions[ix].workspace].id, limit: BATCH };
    oldest.map(ask).into_iter().collect()
}
