//! The engine in a directory that a build with the feature `test-engine` can use: its switch, and its log.
//!
//! Invariants
//! - The engine's state is in files, outside of every process. What it accepted survives the processes, and one file
//!   sets the mode for all processes.
//! - Its log is independent evidence: it records what the engine did, not what the service believes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context;

/// The engine's directory; removed when this is dropped.
#[derive(Debug)]
pub(super) struct Remote {
    directory: PathBuf,
}

impl Remote {
    pub(super) fn new() -> anyhow::Result<Remote> {
        let directory = std::env::temp_dir().join(format!("forebay-engine-{}", store::new_id().simple()));
        std::fs::create_dir_all(&directory).with_context(|| format!("make {}", directory.display()))?;
        Ok(Remote { directory })
    }

    /// The setting that makes a process use it.
    pub(super) fn setting(&self) -> String {
        format!("engine.kind=test:{}", self.directory.display())
    }

    /// Sets how the engine answers starts from now on. The file is replaced atomically, because processes read it at
    /// any moment.
    pub(super) fn answer(&self, mode: &str) -> anyhow::Result<()> {
        let new = self.directory.join("mode.new");
        std::fs::write(&new, mode).context("write the engine's mode")?;
        std::fs::rename(new, self.directory.join("mode")).context("switch the engine")
    }

    pub(super) fn log(&self) -> anyhow::Result<EngineLog> {
        let text = std::fs::read_to_string(self.directory.join("log")).context("read the engine's log")?;
        Ok(EngineLog::of(&text))
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // Files that are left over do no harm.
        let _left = std::fs::remove_dir_all(&self.directory);
    }
}

/// What the engine recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EngineLog {
    /// Starts that the engine did not accept, whatever it answered.
    pub(super) turned_away: usize,
    pub(super) accepted: usize,
    /// Executions accepted, begun or ended more than once.
    pub(super) doubled: usize,
}

impl EngineLog {
    fn of(log: &str) -> EngineLog {
        let mut seen = EngineLog::default();
        let mut times: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for line in log.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["start", id, "Started"] => *times.entry(("start", id)).or_default() += 1,
                ["start", _, answer, ..] if *answer != "AlreadyStarted" => seen.turned_away += 1,
                ["begin", id] => *times.entry(("begin", id)).or_default() += 1,
                ["end", id, _, "applied=true"] => *times.entry(("end", id)).or_default() += 1,
                _ => {}
            }
        }
        seen.accepted = times.keys().filter(|(what, _)| *what == "start").count();
        seen.doubled = times.values().filter(|times| **times > 1).count();
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_engine_did_twice_is_found_and_what_it_was_asked_twice_is_not() {
        let once = "start a Unavailable(\"away\")\nstart a Started\nstart a AlreadyStarted\nbegin a\nend a COMPLETED applied=true\nend a COMPLETED applied=false";
        assert_eq!(EngineLog::of(once), EngineLog { turned_away: 1, accepted: 1, doubled: 0 });
        for twice in ["start a Started", "begin a", "end a COMPLETED applied=true"] {
            assert_eq!(EngineLog::of(&format!("{once}\n{twice}")).doubled, 1, "{twice}");
        }
    }
}
