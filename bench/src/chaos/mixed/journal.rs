//! What a worker did, written down by itself: a line before and after each thing it asks for.
//!
//! Invariants
//! - A line is on the disk before what follows it is done: whatever ended a job, its worker had written that it would ask.
//! - A worker that dies leaves whole lines, but perhaps for the last.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::plan::How;

const ENDING: &str = "journal";

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

/// The journal of one process.
#[derive(Debug)]
pub(super) struct Journal(Mutex<File>);

impl Journal {
    pub(super) fn open(directory: &Path, worker: &str) -> anyhow::Result<Journal> {
        let path = directory.join(worker).with_extension(ENDING);
        let file = OpenOptions::new().create(true).append(true).open(&path);
        Ok(Journal(Mutex::new(file.with_context(|| format!("open {}", path.display()))?)))
    }

    pub(super) fn note(&self, line: &Line) -> anyhow::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(&text).and_then(|()| file.sync_data()).context("write the journal")
    }
}

/// All journals in a directory.
pub(super) fn read(directory: &Path) -> anyhow::Result<Vec<Line>> {
    let mut lines = Vec::new();
    for entry in std::fs::read_dir(directory).context("look for journals")? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == ENDING) {
            lines.extend(read_one(&path)?);
        }
    }
    Ok(lines)
}

/// Was this worker answered about the end of one of these jobs?
pub(super) fn has_answer(directory: &Path, worker: &str, jobs: &[Uuid]) -> anyhow::Result<bool> {
    let lines = read_one(&directory.join(worker).with_extension(ENDING))?;
    let is_answer =
        |line: &Line| matches!(line.what, What::Done(_) | What::Refused(_)) && jobs.contains(&line.hold.job);
    Ok(lines.iter().any(is_answer))
}

fn read_one(path: &Path) -> anyhow::Result<Vec<Line>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.map(|line| serde_json::from_str(line).with_context(|| format!("{} says {line}", path.display()))).collect()
}
