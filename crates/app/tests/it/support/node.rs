//! Node.js programs that use the service as its users do, with packages from npm.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::process::Process;

/// A running program of `tests/realtime`, which says lines of JSON.
pub(crate) struct Node(pub(crate) Process);

impl Node {
    pub(crate) fn start(script: &str, environment: &[(&str, &str)]) -> Node {
        let packages = std::env::var("FOREBAY_TEST_NPM").expect("FOREBAY_TEST_NPM: run tests with ./dev/test");
        let mut command = Command::new("node");
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/realtime").join(script));
        command.env("FOREBAY_TEST_NPM", packages).envs(environment.iter().copied());
        command.stdin(Stdio::piped());
        Node(Process::spawn_listening(script, command))
    }

    pub(crate) fn said(&self) -> Vec<Value> {
        self.0.stdout.all().iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// How often it said something with this value.
    pub(crate) fn count(&self, name: &str, value: &str) -> usize {
        self.said().iter().filter(|said| said[name] == value).count()
    }
}
