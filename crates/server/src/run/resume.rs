//! Runs whose owner is gone: resumed here, where their rows left them.
//!
//! Invariants
//! - The ownership update fences the last owner before the run's rows are read.
//! - A death is counted before the run is resumed, so that the next one finds it; a run that keeps
//!   killing its processes is put alone, and in the end given up (`kernel::run::crash`).
//! - What this process owns in the database but does not hold (a lost answer) is resumed too. What it holds and
//!   somebody deleted is dropped.
//! - Runs of the dead come before new claims: what this process has no room for is counted in `waiting`, and while any
//!   wait, no process claims the room that they need.
//!
//! Not here: who is dead (`process::dead`), claimed items that never began (`takeover`), parked runs (`wake`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use engine::embedded::{Embedded, NAME};
use engine::say;
use kernel::execution;
use kernel::ids::{ExecutionId, ProcessId};
use kernel::run::crash::{self, Verdict};
use kernel::run::failure::{Class, Failure};
use kernel::signals::{events, metrics};
use store::Store;
use store::queue::claim::Silence;
use store::run::adopt::Orphan;
use store::run::{End, Record};
use tokio::sync::{Notify, watch};

use crate::config::{Process, ms};
use crate::process::heartbeat::Alive;
use crate::process::hints::Hints;

pub(crate) struct Orphans {
    pub(crate) store: Store,
    pub(crate) engine: Embedded,
    pub(crate) settings: Process,
    pub(crate) alive: watch::Receiver<Option<Alive>>,
    pub(crate) hints: Hints,
    /// Runs in this process's shards that it has no room for: its heartbeat tells the others.
    pub(crate) waiting: Arc<AtomicUsize>,
    /// Asks for a heartbeat now.
    pub(crate) beat: Arc<Notify>,
}

/// The most waiting runs that are counted.
const MOST_WAITING: usize = 10_000;

impl Orphans {
    pub(crate) async fn pass(&self) -> Result<Option<Duration>, store::Error> {
        let Some(alive) = self.alive.borrow().clone() else { return Ok(None) };
        let silence = alive.silence(ms(self.settings.runs_after_ms));
        let (mut trouble, mut is_full) = (None, false);
        // A full owner's runs are adopted by those with room.
        let mut groups = VecDeque::from([&alive.claim_shards[..]]);
        while let Some(shards) = groups.pop_front() {
            let room = self.engine.room();
            if room == 0 {
                is_full = true;
                break;
            }
            match self.adopt_from(shards, &alive, silence, room).await {
                Ok(adopted) => is_full |= adopted >= room,
                // One shard's trouble keeps no other's runs waiting.
                Err(_) if shards.len() > 1 => groups.extend(shards.chunks(1)),
                Err(error) => trouble = Some(error),
            }
        }
        let counted = match is_full {
            true => self.store.count_orphans(&alive.shards, silence, NAME, MOST_WAITING).await,
            false => Ok(0),
        };
        // What could not be counted is as many as before.
        let waiting = counted.unwrap_or_else(|error| {
            trouble = Some(error);
            self.waiting.load(Ordering::Relaxed)
        });
        // The others are told at once: what they may claim depends on it.
        if self.waiting.swap(waiting, Ordering::Relaxed) != waiting {
            self.beat.notify_one();
        }
        self.find_lost(alive.process).await?;
        if let Some(error) = trouble {
            return Err(error);
        }
        // While somebody is known to be dead, or a run waits for an owner, every moment counts.
        let hurry = alive.dead > 0 || alive.waiting > 0 || waiting > 0;
        Ok(hurry.then(|| ms(self.settings.heartbeat_ms) / 4))
    }

    async fn adopt_from(
        &self,
        shards: &[i16],
        alive: &Alive,
        silence: Silence,
        room: usize,
    ) -> Result<usize, store::Error> {
        let mut trouble = None;
        let orphans = self.store.adopt_orphans(shards, alive.process, silence, NAME, room).await?;
        let adopted = orphans.len();
        for orphan in orphans {
            // Every one is this process's by now: each has its death counted, whatever becomes of another.
            trouble = self.adopt(alive.process, orphan).await.err().or(trouble);
        }
        trouble.map_or(Ok(adopted), Err)
    }

    async fn adopt(&self, process: ProcessId, orphan: Orphan) -> Result<(), store::Error> {
        if !orphan.dead {
            ::metrics::counter!(metrics::RUNS_ADOPTED.name).increment(1);
            return self.engine.resume(process, &[orphan.execution], false).await;
        }
        let (deaths, verdict) = crash::after_death(orphan.deaths, orphan.progressed);
        if !self.store.note_deaths(process, &orphan, deaths).await? {
            return Ok(());
        }
        ::metrics::counter!(metrics::RUNS_ADOPTED.name).increment(1);
        say!(events::RESUMING, execution_id = %orphan.execution, deaths, ?verdict);
        match verdict {
            Verdict::Resume => self.engine.resume(process, &[orphan.execution], false).await,
            Verdict::ResumeAlone => self.engine.resume(process, &[orphan.execution], true).await,
            Verdict::GiveUp => self.give_up(process, &orphan).await,
        }
    }

    async fn give_up(&self, process: ProcessId, orphan: &Orphan) -> Result<(), store::Error> {
        let message = "every process that ran it died; it was given up after ten deaths without progress";
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
        let recorded = self.store.record(process, &[record], "orphans").await?;
        tracing::warn!(execution_id = %orphan.execution, "An execution was given up: CRASH_LOOP");
        if recorded.iter().any(|recorded| recorded.held) {
            ::metrics::counter!(metrics::FAILED.name, "reason" => Class::CrashLoop.name()).increment(1);
        }
        for workspace in recorded.iter().filter_map(|recorded| recorded.freed) {
            self.hints.ready(workspace);
        }
        Ok(())
    }

    /// Compares the runs this process owns with those it holds.
    async fn find_lost(&self, process: ProcessId) -> Result<(), store::Error> {
        let held = self.engine.held();
        let owned = self.store.owned(process, NAME).await?;
        let missing = self.store.missing(&held.keys().copied().collect::<Vec<_>>()).await?;
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
