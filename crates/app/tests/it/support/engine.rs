//! The directory of a test engine. A test changes files in it to break the engine, and reads the engine's log.

use std::fs;
use std::path::PathBuf;

use super::until;

pub(crate) struct Engine {
    directory: tempfile::TempDir,
}

impl Engine {
    pub(crate) fn new() -> Engine {
        Engine { directory: tempfile::tempdir().expect("a directory") }
    }

    /// The setting that makes a server use it.
    pub(crate) fn setting(&self) -> String {
        format!("engine.kind=test:{}", self.directory.path().display())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// How starts are answered from now on. Never half written: the engine looks at any moment.
    pub(crate) fn mode(&self, mode: &str) {
        self.write("mode", mode);
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let new = self.file("new");
        fs::write(&new, text).expect("a file");
        fs::rename(new, self.file(name)).expect("a file in its place");
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.file(name)).expect("the file was there");
    }

    pub(crate) fn log(&self) -> Vec<String> {
        let log = fs::read_to_string(self.file("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// The lines of the log that begin so, without that.
    pub(crate) fn logged(&self, start: &str) -> Vec<String> {
        self.log().iter().filter_map(|line| line.strip_prefix(start)).map(|rest| rest.trim().to_owned()).collect()
    }

    /// The engine's answers to the starts of an execution.
    pub(crate) fn answers(&self, id: &str) -> Vec<String> {
        let word = |answer: String| answer.split('(').next().unwrap_or_default().to_owned();
        self.logged(&format!("start {id}")).into_iter().map(word).collect()
    }

    pub(crate) async fn until_asked(&self, id: &str, times: usize) {
        until(&format!("{id} is started {times} times"), async || (self.answers(id).len() >= times).then_some(()))
            .await;
    }

    /// It began once, ended once, and was accepted once. The engine writes the end down after it is stored.
    pub(crate) async fn ran_once(&self, id: &str) {
        let ends = || self.logged(&format!("end {id}"));
        until(&format!("the engine writes down that {id} ended"), async || (!ends().is_empty()).then_some(())).await;
        assert_eq!(self.logged(&format!("begin {id}")).len(), 1, "{:#?}", self.log());
        assert_eq!(ends(), ["COMPLETED applied=true"], "{:#?}", self.log());
    }
}
