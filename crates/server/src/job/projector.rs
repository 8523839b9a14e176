//! Our own worker of jobs: those whose binding has a definition become executions.
//!
//! Invariants
//! - Look, decide, do: what is to become of a job is the kernel's (`kernel::event::binding`); claiming it and
//!   enqueueing its execution are one transaction, so a job that somebody else took meanwhile starts nothing.
//! - The input is judged as a start's is, by the version that is published then, and that version is run. One that does
//!   not fit fails its job like anything else that keeps it from beginning: a try that counts, and the next may find
//!   another version or another binding.
//! - Woken when this process appended events, when anybody's change rings the bell, and by the poll in any case; safe
//!   to run twice and in every process at once.
//! - A job that spoils its batch ends alone, with its reason.
//!
//! What happens if this process dies: before the commit the job is pending, and the next look takes it; after it, the
//! execution waits in the queue like any other, and its end is the job's.
//!
//! Not here: what brings jobs back (`projector::recovery`), ending them (`store`'s `functions/complete.sql`).

use std::collections::BTreeSet;
use std::time::Duration;

use kernel::event::binding::{Decision, decide};
use kernel::execution::generation;
use kernel::ids::ExecutionId;
use kernel::queue::Priority;
use serde_json::Value;
use store::Store;
use store::batch::{Fate, by_halves};
use store::job::ours::{Begin, Begun, Due, What};
use store::queue::enqueue::Start;

use crate::definition::inputs::{self, InputRules, Verdict, reason, rounds};
use crate::process::hints::Hints;

/// Jobs looked at in one commit.
const BATCH: i32 = 100;

pub(crate) struct Projector {
    pub(crate) store: Store,
    pub(crate) hints: Hints,
    pub(crate) input_rules: InputRules,
    /// Whom the projection names: `{hostname}-{pid}`.
    pub(crate) worker: String,
    pub(crate) max_backlog: Option<i32>,
    pub(crate) max_generations: u32,
}

impl Projector {
    pub(crate) async fn pass(&self) -> Result<Option<Duration>, store::Error> {
        let mut open = self.store.due_jobs(BATCH).await?;
        let full = open.len() >= usize::try_from(BATCH).unwrap_or(usize::MAX);
        // What is still open then, the next poll comes back to.
        for _ in rounds() {
            if open.is_empty() {
                break;
            }
            open = self.take(open).await?;
        }
        Ok(full.then_some(Duration::ZERO))
    }

    /// Takes jobs; answers those that must be judged anew.
    async fn take(&self, due: Vec<Due>) -> Result<Vec<Due>, store::Error> {
        let begins = self.judged(due.iter().map(|due| begin(due, self.max_generations)).collect()).await?;
        let call = |some| self.store.begin_jobs(some, &self.worker, self.max_backlog);
        let (mut enqueued, mut moved) = (BTreeSet::new(), Vec::new());
        for ((begin, due), fate) in begins.iter().zip(due).zip(by_halves(&begins, call).await?) {
            match fate {
                Fate::Done(Begun::Started(_)) => drop(enqueued.insert(begin.workspace)),
                Fate::Done(Begun::Moved) => moved.push(due),
                Fate::Done(Begun::Skipped | Begun::Failed | Begun::Later | Begun::Lost) => {}
                Fate::Refused(error) => self.spoilt(begin, &error).await?,
            }
        }
        enqueued.into_iter().for_each(|workspace| self.hints.enqueued(workspace));
        Ok(moved)
    }

    /// The same with inputs as the published versions want them, or why they do not fit.
    async fn judged(&self, mut begins: Vec<Begin>) -> Result<Vec<Begin>, store::Error> {
        let starts: Vec<(usize, Start)> =
            begins.iter().enumerate().filter_map(|(at, begin)| Some((at, start(begin)?))).collect();
        let verdicts = match self.input_rules.judge(&self.store, &starts, true).await {
            Ok(verdicts) => verdicts,
            Err(inputs::Error::Store(error)) => return Err(error),
            // Only a workspace's own turn may be busy, and this loop uses the service's.
            Err(inputs::Error::Busy) => return Ok(Vec::new()),
        };
        for ((at, _), verdict) in starts.into_iter().zip(verdicts) {
            let begin = &mut begins[at];
            match (verdict, &mut begin.what) {
                (Verdict::Good { input: Some(filled), published }, What::Start { input, .. }) => {
                    *input = filled;
                    begin.published = published;
                }
                (Verdict::Refused(problems), what) => *what = What::Fail(reason(&problems)),
                (Verdict::Good { .. }, _) => {}
            }
        }
        Ok(begins)
    }

    /// The database cannot hold what this job would start: it fails instead.
    async fn spoilt(&self, begin: &Begin, error: &store::Error) -> Result<(), store::Error> {
        tracing::warn!(job = %begin.job, error = %error, "A job's execution cannot be stored");
        let what = What::Fail("the database cannot hold what this event would start".to_owned());
        let failed = Begin { what, published: None, ..begin.clone() };
        self.store.begin_jobs(&[failed], &self.worker, self.max_backlog).await.map(drop)
    }
}

fn begin(due: &Due, max_generations: u32) -> Begin {
    let execution = ExecutionId(store::new_id());
    let what = match decide(&due.rule, &due.event, execution, due.retry_count) {
        Ok(Decision::Start { input, trigger, workflow_id }) => {
            match generation::check(generation::of(&trigger), max_generations) {
                Ok(()) => What::Start { input, trigger, workflow_id },
                Err(failure) => What::Fail(format!("{}: {}", failure.class.name(), failure.message)),
            }
        }
        Ok(Decision::Skip) => What::Skip,
        Err(failure) => What::Fail(failure.message),
    };
    Begin {
        job: due.id,
        retry_count: due.retry_count,
        execution,
        workspace: due.workspace,
        definition: due.definition,
        published: None,
        what,
    }
}

/// What a job would start, to be judged.
fn start(begin: &Begin) -> Option<Start> {
    let What::Start { input, .. } = &begin.what else { return None };
    Some(Start {
        execution: begin.execution,
        workspace: begin.workspace,
        definition: begin.definition,
        input: Some(input.clone()),
        priority: Priority::default(),
        run_at: None,
        concurrency_key: None,
        idempotency: None,
        trigger: Value::Null,
        trace: None,
        version: None,
        rerun_of: None,
    })
}
