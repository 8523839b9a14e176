//! The engine in a directory that a build with the feature `test-engine` can serve on: its switch, and its log.
//!
//! Invariants
//! - It is outside of every process: what it accepted outlives them, and one file switches it for all.
//! - Its log is a witness of its own: no process of ours decides what stands there, or when.

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

    /// What makes a process serve on it.
    pub(super) fn setting(&self) -> String {
        format!("engine.kind=test:{}", self.directory.display())
    }

    /// How it answers starts from now on. Never half written: processes look at any moment.
    pub(super) fn answer(&self, mode: &str) -> anyhow::Result<()> {
        let new = self.directory.join("mode.new");
        std::fs::write(&new, mode).context("write the engine's mode")?;
        std::fs::rename(new, self.directory.join("mode")).context("switch the engine")
    }

    pub(super) fn log(&self) -> anyhow::Result<Seen> {
        let text = std::fs::read_to_string(self.directory.join("log")).context("read the engine's log")?;
        Ok(Seen::of(&text))
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // What is left of it is in the way of nobody.
        let _left = std::fs::remove_dir_all(&self.directory);
    }
}

/// What the engine saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Starts that it did not take, whatever it said.
    pub(super) turned_away: usize,
    pub(super) accepted: usize,
    /// Executions accepted, begun or ended more than once.
    pub(super) doubled: usize,
}

impl Seen {
    fn of(log: &str) -> Seen {
        let mut seen = Seen::default();
        let mut times: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for line in log.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["start", id, "Started"] => *times.entry(("start", id)).or_default() += 1,
                ["start", _, answer, ..] if *answer != "AlreadyThere" => seen.turned_away += 1,
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
        let once = "start a Unavailable(\"away\")\nstart a Started\nstart a AlreadyThere\nbegin a\nend a COMPLETED applied=true\nend a COMPLETED applied=false";
        assert_eq!(Seen::of(once), Seen { turned_away: 1, accepted: 1, doubled: 0 });
        for twice in ["start a Started", "begin a", "end a COMPLETED applied=true"] {
            assert_eq!(Seen::of(&format!("{once}\n{twice}")).doubled, 1, "{twice}");
        }
    }
}
