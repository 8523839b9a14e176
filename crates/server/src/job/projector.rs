//! The service's own worker of jobs: it starts an execution for each job whose binding names a workflow.
//!
//! Invariants
//! - The kernel decides whether a job starts an execution, is skipped or fails (`kernel::event::binding`). One
//!   transaction claims the job and enqueues its execution. If another worker claimed the job first, no execution
//!   starts.
//! - The input is checked like the input of any start request, against the published version, and the execution runs
//!   that version. An invalid input fails the job, and the failure counts as an attempt of the job. The next attempt
//!   reads the published version and the binding again.
//! - The loop wakes when this process has appended events, when another process notifies it of a change, and at the
//!   poll interval. Any number of processes may run it at the same time.
//! - If one job makes the statement of a whole batch fail, only that job fails, and the reason is stored with it.
//!
//! What happens if this process dies: before the commit the job is still pending, and the next pass of any process
//! claims it. After the commit the execution waits in the queue. When the execution ends, the job ends with it.
//!
//! Not here: making jobs pending again (`job::recovery`), ending jobs (`store`'s `functions/complete.sql`).

use std::collections::BTreeSet;
use std::time::Duration;

use kernel::event::binding::{Decision, decide};
use kernel::execution::generation;
use kernel::ids::ExecutionId;
use kernel::queue::Priority;
use serde_json::Value;
use store::Store;
use store::batch::{BatchResult, by_halves};
use store::job::projector::{DueJob, JobAction, JobStart, JobStartOutcome};
use store::queue::enqueue::Start;

use crate::definition::inputs::{self, InputRules, InputVerdict, check_attempts, format_problems};
use crate::process::notifications::Notifier;

/// The most jobs in one commit.
const BATCH: i32 = 100;

pub(crate) struct Projector {
    pub(crate) store: Store,
    pub(crate) notifier: Notifier,
    pub(crate) input_rules: InputRules,
    /// The name that claimed jobs store as their worker: `{hostname}-{pid}`.
    pub(crate) worker: String,
    pub(crate) max_backlog: Option<i32>,
    pub(crate) max_generations: u32,
}

impl Projector {
    pub(crate) async fn run_once(&self) -> Result<Option<Duration>, store::Error> {
        let mut open = self.store.due_jobs(BATCH).await?;
        let full = open.len() >= usize::try_from(BATCH).unwrap_or(usize::MAX);
        // Jobs whose version changed at every attempt stay pending until the next poll.
        for _ in check_attempts() {
            if open.is_empty() {
                break;
            }
            open = self.begin_jobs(open).await?;
        }
        Ok(full.then_some(Duration::ZERO))
    }

    /// Claims jobs and enqueues their executions. Returns the jobs whose input must be checked again, because another
    /// version was published in the meantime.
    async fn begin_jobs(&self, due: Vec<DueJob>) -> Result<Vec<DueJob>, store::Error> {
        let begins = self.with_checked_inputs(due.iter().map(|due| begin(due, self.max_generations)).collect()).await?;
        let call = |some| self.store.begin_jobs(some, &self.worker, self.max_backlog);
        let (mut enqueued, mut moved) = (BTreeSet::new(), Vec::new());
        for ((begin, due), fate) in begins.iter().zip(due).zip(by_halves(&begins, call).await?) {
            match fate {
                BatchResult::Done(JobStartOutcome::Started(_)) => drop(enqueued.insert(begin.workspace)),
                BatchResult::Done(JobStartOutcome::VersionChanged) => moved.push(due),
                BatchResult::Done(
                    JobStartOutcome::Skipped
                    | JobStartOutcome::Failed
                    | JobStartOutcome::BacklogFull
                    | JobStartOutcome::Lost,
                ) => {}
                BatchResult::Refused(error) => self.fail(begin, &error).await?,
            }
        }
        enqueued.into_iter().for_each(|workspace| self.notifier.notify_enqueued(workspace));
        Ok(moved)
    }

    /// Checks the inputs of jobs against the published versions. A valid input gets the defaults of its version; a job
    /// with an invalid input is marked as failed.
    async fn with_checked_inputs(&self, mut begins: Vec<JobStart>) -> Result<Vec<JobStart>, store::Error> {
        let starts: Vec<(usize, Start)> =
            begins.iter().enumerate().filter_map(|(at, begin)| Some((at, start(begin)?))).collect();
        let verdicts = match self.input_rules.check(&self.store, &starts, true).await {
            Ok(verdicts) => verdicts,
            Err(inputs::Error::Store(error)) => return Err(error),
            // This cannot happen: only the computing share of a workspace can be busy, and this loop uses the service's
            // own share.
            Err(inputs::Error::Busy) => return Ok(Vec::new()),
        };
        for ((at, _), verdict) in starts.into_iter().zip(verdicts) {
            let begin = &mut begins[at];
            match (verdict, &mut begin.action) {
                (InputVerdict::Valid { input: Some(filled), published }, JobAction::Start { input, .. }) => {
                    *input = filled;
                    begin.published = published;
                }
                (InputVerdict::Invalid(problems), action) => *action = JobAction::Fail(format_problems(&problems)),
                (InputVerdict::Valid { .. }, _) => {}
            }
        }
        Ok(begins)
    }

    /// Fails a job whose execution the database cannot store.
    async fn fail(&self, begin: &JobStart, error: &store::Error) -> Result<(), store::Error> {
        tracing::warn!(job_id = %begin.job, error = %error, "Job failed: the database refused to store its execution");
        let action = JobAction::Fail("the database cannot store the execution that this event would start".to_owned());
        let failed = JobStart { action, published: None, ..begin.clone() };
        self.store.begin_jobs(&[failed], &self.worker, self.max_backlog).await.map(drop)
    }
}

fn begin(due: &DueJob, max_generations: u32) -> JobStart {
    let execution = ExecutionId(store::new_id());
    let action = match decide(&due.rule, &due.event, execution, due.retry_count) {
        Ok(Decision::Start { input, trigger, workflow_id }) => {
            match generation::check(generation::of(&trigger), max_generations) {
                Ok(()) => JobAction::Start { input, trigger, workflow_id },
                Err(failure) => JobAction::Fail(format!("{}: {}", failure.class.name(), failure.message)),
            }
        }
        Ok(Decision::Skip) => JobAction::Skip,
        Err(failure) => JobAction::Fail(failure.message),
    };
    JobStart {
        job: due.id,
        retry_count: due.retry_count,
        execution,
        workspace: due.workspace,
        definition: due.definition,
        published: None,
        action,
    }
}

/// The start request of a job, whose input is checked. None if the job starts no execution.
fn start(begin: &JobStart) -> Option<Start> {
    let JobAction::Start { input, .. } = &begin.action else { return None };
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
