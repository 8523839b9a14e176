//! The journal entries of workers for jobs.
//!
//! Not here: the files (`chaos::journal`).

use std::path::Path;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::super::journal;
use super::plan::JobResult;

/// One claim of one worker. No two are the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Hold {
    pub(super) job: Uuid,
    pub(super) worker: String,
    /// The database's time of the claim, in microseconds since 1970.
    pub(super) claimed_at: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum WorkerStep {
    /// The claim was granted.
    Claimed,
    /// The worker is about to request this end.
    Requested(JobResult),
    /// The service confirmed this end.
    Done(JobResult),
    /// The service answered that another worker holds the job.
    Refused(JobResult),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Line {
    #[serde(flatten)]
    pub(super) hold: Hold,
    pub(super) retries: i32,
    pub(super) what: WorkerStep,
}

/// True if this worker got an answer about the end of one of these jobs.
pub(super) fn has_answer(directory: &Path, worker: &str, jobs: &[Uuid]) -> anyhow::Result<bool> {
    let lines: Vec<Line> = journal::read_of(directory, worker)?;
    let is_answer = |line: &Line| {
        matches!(line.what, WorkerStep::Done(_) | WorkerStep::Refused(_)) && jobs.contains(&line.hold.job)
    };
    Ok(lines.iter().any(is_answer))
}
