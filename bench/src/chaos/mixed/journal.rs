//! What the workers of jobs write down of themselves.
//!
//! Not here: the files (`chaos::journal`).

use std::path::Path;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::super::journal;
use super::plan::How;

/// One claim of one worker: no two are alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Hold {
    pub(super) job: Uuid,
    pub(super) worker: String,
    /// As the database has it, in microseconds since 1970.
    pub(super) claimed_at: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum What {
    /// The claim was granted.
    Claimed,
    /// It is about to ask for this end.
    Asks(How),
    /// It was told that it is so.
    Done(How),
    /// It was told that the job is not its own.
    Refused(How),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Line {
    #[serde(flatten)]
    pub(super) hold: Hold,
    pub(super) retries: i32,
    pub(super) what: What,
}

/// Was this worker answered about the end of one of these jobs?
pub(super) fn has_answer(directory: &Path, worker: &str, jobs: &[Uuid]) -> anyhow::Result<bool> {
    let lines: Vec<Line> = journal::read_of(directory, worker)?;
    let is_answer =
        |line: &Line| matches!(line.what, What::Done(_) | What::Refused(_)) && jobs.contains(&line.hold.job);
    Ok(lines.iter().any(is_answer))
}
