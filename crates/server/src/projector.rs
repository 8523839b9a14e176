//! Our own worker of jobs: those whose binding has a definition become executions.
//!
//! Invariants
//! - Look, decide, do: what is to become of a job is the kernel's (`kernel::event::binding`); claiming it and enqueueing its execution are one
//!   transaction, so a job that somebody else took meanwhile starts nothing.
//! - Woken when this process appended events, when anybody's change rings the bell, and by the poll in any case; safe to run twice and in every process at once.
//! - A job that spoils its batch ends alone, with its reason.
//!
//! What happens if this process dies: before the commit the job is pending, and the next look takes it; after it, the execution waits
//! in the queue like any other, and its end is the job's.
//!
//! Not here: what brings jobs back (`projector::recovery`), ending them (`store`'s `functions/complete.sql`).

pub(crate) mod recovery;

use std::collections::BTreeSet;
use std::time::Duration;

use kernel::event::binding::{Decision, decide};
use kernel::ids::ExecutionId;
use store::Store;
use store::batch::{Fate, by_halves};
use store::projection::ours::{Begin, Begun, Due, What};

use crate::hints::Hints;

/// Jobs looked at in one commit.
const BATCH: i32 = 100;

pub(crate) struct Projector {
    pub(crate) store: Store,
    pub(crate) hints: Hints,
    /// Whom the projection names: `{hostname}-{pid}`.
    pub(crate) worker: String,
    pub(crate) max_backlog: Option<i32>,
}

impl Projector {
    pub(crate) async fn pass(&self) -> Result<Option<Duration>, store::Error> {
        let due = self.store.due_jobs(BATCH).await?;
        if due.is_empty() {
            return Ok(None);
        }
        let full = due.len() >= usize::try_from(BATCH).unwrap_or(usize::MAX);
        let begins: Vec<Begin> = due.into_iter().map(begin).collect();
        let call = |some| self.store.begin_jobs(some, &self.worker, self.max_backlog);
        let mut enqueued = BTreeSet::new();
        for (begin, fate) in begins.iter().zip(by_halves(&begins, call).await?) {
            match fate {
                Fate::Done(Begun::Started(_)) => drop(enqueued.insert(begin.workspace)),
                Fate::Done(Begun::Skipped | Begun::Failed | Begun::Later | Begun::Lost) => {}
                Fate::Refused(error) => self.spoilt(begin, &error).await?,
            }
        }
        enqueued.into_iter().for_each(|workspace| self.hints.enqueued(workspace));
        Ok(full.then_some(Duration::ZERO))
    }

    /// The database cannot hold what this job would start: it fails instead.
    async fn spoilt(&self, begin: &Begin, error: &store::Error) -> Result<(), store::Error> {
        tracing::warn!(job = %begin.job, error = %error, "A job's execution cannot be stored");
        let what = What::Fail("the database cannot hold what this event would start".to_owned());
        let failed = Begin { what, ..begin.clone() };
        self.store.begin_jobs(&[failed], &self.worker, self.max_backlog).await.map(drop)
    }
}

fn begin(due: Due) -> Begin {
    let execution = ExecutionId(store::new_id());
    let what = match decide(&due.rule, &due.event, execution, due.retry_count) {
        Ok(Decision::Start { input, trigger, workflow_id }) => What::Start { input, trigger, workflow_id },
        Ok(Decision::Skip) => What::Skip,
        Err(failure) => What::Fail(failure.message),
    };
    Begin {
        job: due.id,
        retry_count: due.retry_count,
        execution,
        workspace: due.workspace,
        definition: due.definition,
        what,
    }
}
