//! The journal of a worker: it writes a line before and after each request.
//!
//! Invariants
//! - A line is on disk before the worker's next step. So for every job or task that ended, its worker had recorded the
//!   request before.
//! - A worker that dies leaves complete lines, except perhaps the last.
//!
//! Not here: the content of a line (`mixed::journal`, `long::worker`).

use parking_lot::Mutex;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;
use serde::de::DeserializeOwned;

const ENDING: &str = "journal";

/// The journal of one process.
#[derive(Debug)]
pub(super) struct Journal(Mutex<File>);

impl Journal {
    pub(super) fn open(directory: &Path, worker: &str) -> anyhow::Result<Journal> {
        let path = path(directory, worker);
        let file = OpenOptions::new().create(true).append(true).open(&path);
        Ok(Journal(Mutex::new(file.with_context(|| format!("open {}", path.display()))?)))
    }

    pub(super) fn note(&self, line: &impl Serialize) -> anyhow::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        let mut file = self.0.lock();
        file.write_all(&text).and_then(|()| file.sync_data()).context("write the journal")
    }
}

/// All journals in a directory.
pub(super) fn read<T: DeserializeOwned>(directory: &Path) -> anyhow::Result<Vec<T>> {
    let mut lines = Vec::new();
    for entry in std::fs::read_dir(directory).context("look for journals")? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == ENDING) {
            lines.extend(read_file(&path)?);
        }
    }
    Ok(lines)
}

/// The journal of one worker.
pub(super) fn read_of<T: DeserializeOwned>(directory: &Path, worker: &str) -> anyhow::Result<Vec<T>> {
    read_file(&path(directory, worker))
}

fn path(directory: &Path, worker: &str) -> PathBuf {
    directory.join(worker).with_extension(ENDING)
}

fn read_file<T: DeserializeOwned>(path: &Path) -> anyhow::Result<Vec<T>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.map(|line| serde_json::from_str(line).with_context(|| format!("{} says {line}", path.display()))).collect()
}
