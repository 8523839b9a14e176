//! Resumes runs whose owner is dead, from their stored rows.
//!
//! Invariants
//! - This process becomes the owner of a run before it reads the run's rows. From then on the database refuses writes
//!   of the previous owner.
//! - The death of an owner is counted before the run is resumed, so that the next owner sees the count even if this
//!   process dies, too. A run whose owners keep dying is resumed alone, and finally ended (`kernel::run::crash`).
//! - If this process owns a run in the database but does not hold it in memory (because the answer of a claim was
//!   lost), the run is resumed. If it holds a run whose row was deleted, the run is dropped.
//! - Runs of dead processes come before new claims. `waiting_runs` counts the runs that this process has no room for.
//!   While such runs wait, no process claims the room that they need.
//!
//! Not here: which processes are dead (`process::dead`), claimed items whose run did not begin
//! (`queue::takeover`), parked runs (`wake`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use engine::embedded::{Embedded, NAME};
use engine::log_event;
use kernel::execution;
use kernel::ids::{ExecutionId, ProcessId};
use kernel::run::crash::{self, AfterDeath};
use kernel::run::failure::{Class, Failure};
use kernel::signals::{events, metrics};
use store::Store;
use store::queue::claim::LivenessRule;
use store::run::owner::TakenOverRun;
use store::run::{End, Record};
use tokio::sync::{Notify, watch};

use crate::config::{Process, ms};
use crate::process::heartbeat::Membership;
use crate::process::notifications::Notifier;

pub(crate) struct RunResumer {
    pub(crate) store: Store,
    pub(crate) engine: Embedded,
    pub(crate) settings: Process,
    pub(crate) membership: watch::Receiver<Option<Membership>>,
    pub(crate) notifier: Notifier,
    /// The number of runs in this process's shards that it has no room for. Its heartbeat reports it to other
    /// processes.
    pub(crate) waiting_runs: Arc<AtomicUsize>,
    /// Triggers the next heartbeat immediately.
    pub(crate) heartbeat: Arc<Notify>,
}

/// The most waiting runs that are counted.
const MAX_WAITING: usize = 10_000;

impl RunResumer {
    pub(crate) async fn run_once(&self) -> Result<Option<Duration>, store::Error> {
        let Some(membership) = self.membership.borrow().clone() else { return Ok(None) };
        let silence = membership.liveness_rule(ms(self.settings.run_lease_ms));
        let (mut failure, mut is_full) = (None, false);
        // A process with room also takes over runs in shards whose owner has no room.
        let mut groups = VecDeque::from([&membership.claim_shards[..]]);
        while let Some(shards) = groups.pop_front() {
            let room = self.engine.resume_capacity();
            if room == 0 {
                is_full = true;
                break;
            }
            match self.take_over_shards(shards, &membership, silence, room).await {
                Ok(taken_over) => is_full |= taken_over >= room,
                // A failure in one shard delays no runs of the other shards.
                Err(_) if shards.len() > 1 => groups.extend(shards.chunks(1)),
                Err(error) => failure = Some(error),
            }
        }
        let counted = match is_full {
            true => self.store.count_orphans(&membership.shards, silence, NAME, MAX_WAITING).await,
            false => Ok(0),
        };
        // If the statement that counts fails, the previous count stays.
        let waiting_runs = counted.unwrap_or_else(|error| {
            failure = Some(error);
            self.waiting_runs.load(Ordering::Relaxed)
        });
        // The heartbeat reports a changed count to other processes immediately, because it limits what they may claim.
        if self.waiting_runs.swap(waiting_runs, Ordering::Relaxed) != waiting_runs {
            self.heartbeat.notify_one();
        }
        self.find_lost(membership.process).await?;
        if let Some(error) = failure {
            return Err(error);
        }
        // While a process is known to be dead, or a run waits for an owner, the passes are more frequent.
        let is_urgent = membership.dead_processes > 0 || membership.waiting_runs > 0 || waiting_runs > 0;
        Ok(is_urgent.then(|| ms(self.settings.heartbeat_ms) / 4))
    }

    async fn take_over_shards(
        &self,
        shards: &[i16],
        membership: &Membership,
        silence: LivenessRule,
        room: usize,
    ) -> Result<usize, store::Error> {
        let mut failure = None;
        let orphans = self.store.take_over_orphans(shards, membership.process, silence, NAME, room).await?;
        let taken_over = orphans.len();
        for orphan in orphans {
            // This process already owns all these runs. So the death of each run's owner must be counted, even if
            // another run cannot be resumed.
            failure = self.resume_orphan(membership.process, orphan).await.err().or(failure);
        }
        failure.map_or(Ok(taken_over), Err)
    }

    async fn resume_orphan(&self, process: ProcessId, orphan: TakenOverRun) -> Result<(), store::Error> {
        if !orphan.dead {
            ::metrics::counter!(metrics::RUNS_TAKEN_OVER.name).increment(1);
            return self.engine.resume(process, &[orphan.execution], false).await;
        }
        let (deaths, verdict) = crash::after_death(orphan.deaths, orphan.progressed);
        if !self.store.record_deaths(process, &orphan, deaths).await? {
            return Ok(());
        }
        ::metrics::counter!(metrics::RUNS_TAKEN_OVER.name).increment(1);
        log_event!(events::RUN_RESUMED, execution_id = %orphan.execution, deaths, ?verdict);
        match verdict {
            AfterDeath::Resume => self.engine.resume(process, &[orphan.execution], false).await,
            AfterDeath::ResumeAlone => self.engine.resume(process, &[orphan.execution], true).await,
            AfterDeath::GiveUp => self.give_up(process, &orphan).await,
        }
    }

    async fn give_up(&self, process: ProcessId, orphan: &TakenOverRun) -> Result<(), store::Error> {
        let message = "ten times in a row, the process that ran this execution died before the execution made \
                       progress; look for a panic or a lack of memory in the logs of those processes";
        let error = Some(Failure::new(Class::CrashLoop, message));
        let end = End { outcome: execution::Status::Failed, output: None, error };
        let record = Record {
            execution: orphan.execution,
            holder: orphan.execution,
            epoch: orphan.epoch,
            facts: Vec::new(),
            end: Some(end),
            park: None,
        };
        let recorded = self.store.record(process, &[record], "resume").await?;
        if recorded.iter().any(|recorded| recorded.held) {
            tracing::warn!(
                execution_id = %orphan.execution,
                "Execution failed with CRASH_LOOP: every process that ran it died"
            );
            ::metrics::counter!(metrics::FAILED.name, "reason" => Class::CrashLoop.name()).increment(1);
        }
        for workspace in recorded.iter().filter_map(|recorded| recorded.freed) {
            self.notifier.notify_ready(workspace);
        }
        Ok(())
    }

    /// Compares the runs that this process owns in the database with those that it holds in memory.
    async fn find_lost(&self, process: ProcessId) -> Result<(), store::Error> {
        let held = self.engine.held_runs();
        let owned = self.store.owned_runs(process, NAME).await?;
        let missing = self.store.missing_executions(&held.keys().copied().collect::<Vec<_>>()).await?;
        self.engine.drop_missing(&missing).await;
        let lacking: Vec<ExecutionId> = owned
            .into_iter()
            .filter(|(id, epoch)| held.get(id).is_none_or(|held| held < epoch))
            .map(|(id, _)| id)
            .collect();
        if lacking.is_empty() {
            return Ok(());
        }
        self.engine.resume(process, &lacking, false).await
    }
}
