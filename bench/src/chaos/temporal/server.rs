//! A real Temporal server with a database file, which the run can kill and restart.
//!
//! Invariants
//! - A restarted server has the same address and the same state, because its file is kept.
//! - The runs of an execution's id are counted in Temporal, not in the service.
//! - The server stops when this process ends.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::OsString;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use uuid::Uuid;

use crate::chaos::ms;
use crate::report::say;
use crate::service::command_tied_to_parent;

/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it may take until its list shows what has ended.
const LISTED_WITHIN: Duration = Duration::from_secs(60);

/// The server, running or not. Its directory is removed when this is dropped.
#[derive(Debug)]
pub(super) struct TemporalServer {
    program: OsString,
    directory: PathBuf,
    pub(super) port: u16,
    child: Mutex<Option<Child>>,
}

/// The runs that Temporal has under the ids of executions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Runs {
    /// Executions with more than one run.
    pub(super) doubled: usize,
    /// Executions without a run.
    pub(super) missing: usize,
    /// Runs that are still open.
    pub(super) open: usize,
}

impl TemporalServer {
    pub(super) async fn start() -> anyhow::Result<TemporalServer> {
        let directory = std::env::temp_dir().join(format!("forebay-chaos-temporal-{}", store::new_id().simple()));
        std::fs::create_dir_all(&directory).with_context(|| format!("make {}", directory.display()))?;
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr())?.port();
        let program = std::env::var_os("FOREBAY_TEMPORAL_BIN").unwrap_or_else(|| "temporal".into());
        let server = TemporalServer { program, directory, port, child: Mutex::default() };
        server.run().await?;
        Ok(server)
    }

    /// Starts it if it is not running, and waits until it accepts connections.
    pub(super) async fn run(&self) -> anyhow::Result<()> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.directory.join("log"))?;
        let mut command = command_tied_to_parent(self.program.as_ref());
        command.args(["server", "start-dev", "--headless", "--ip", "127.0.0.1", "--log-level", "error"]);
        command.args(["--port", &self.port.to_string()]).arg("--db-filename").arg(self.directory.join("temporal.db"));
        for attribute in ["ForebayWorkspace", "ForebayDefinition", "ForebayQueueItem"] {
            command.args(["--search-attribute", &format!("{attribute}=Keyword")]);
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
        let mut child = command.spawn().context("run temporal, which ./dev/chaos installs")?;
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
            if let Some(status) = child.try_wait().context("check whether Temporal runs")? {
                bail!("Temporal exited immediately ({status}): {}", self.log());
            }
            ensure!(began.elapsed() < PATIENCE, "Temporal does not answer: {}", self.log());
            tokio::time::sleep(ms(50)).await;
        }
        *self.child() = Some(child);
        Ok(())
    }

    /// Kills it, like a power failure, and waits until it has ended.
    pub(super) async fn kill(&self) -> anyhow::Result<()> {
        let mut child = self.child().take().context("Temporal is not running")?;
        child.kill().await.context("kill Temporal")
    }

    /// Counts the runs under these executions' ids. Waits until Temporal's list has a run for each execution and none
    /// is open, or until a time limit.
    pub(super) async fn runs(&self, executions: &[Uuid]) -> anyhow::Result<Runs> {
        let began = Instant::now();
        loop {
            let runs = Runs::of(&self.list().await?, executions)?;
            if (runs.missing == 0 && runs.open == 0) || began.elapsed() > LISTED_WITHIN {
                return Ok(runs);
            }
            tokio::time::sleep(ms(500)).await;
        }
    }

    async fn list(&self) -> anyhow::Result<String> {
        let mut command = Command::new(&self.program);
        command.args(["workflow", "list", "--address", &format!("127.0.0.1:{}", self.port)]);
        command.args(["--limit", "1000000", "--page-size", "1000", "-o", "jsonl"]);
        let listed = command.stdin(Stdio::null()).output().await.context("list the workflows")?;
        ensure!(listed.status.success(), "temporal workflow list failed: {}", String::from_utf8_lossy(&listed.stderr));
        String::from_utf8(listed.stdout).context("read the list of workflows")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    fn child(&self) -> parking_lot::MutexGuard<'_, Option<Child>> {
        self.child.lock()
    }
}

impl Drop for TemporalServer {
    fn drop(&mut self) {
        // The child is killed with it. Files that are left over do no harm.
        self.child().take();
        let _left = std::fs::remove_dir_all(&self.directory);
    }
}

impl Runs {
    /// Parses a list with one run per line.
    fn of(list: &str, executions: &[Uuid]) -> anyhow::Result<Runs> {
        let (mut times, mut open) = (HashMap::<String, usize>::new(), 0);
        for line in list.lines().filter(|line| !line.trim().is_empty()) {
            let run: Value = serde_json::from_str(line).context("read a line of the list of workflows")?;
            let id = run["execution"]["workflowId"].as_str().context("a workflow's id")?;
            *times.entry(id.to_owned()).or_default() += 1;
            open += usize::from(run["status"] == "WORKFLOW_EXECUTION_STATUS_RUNNING");
        }
        let runs = |execution: &Uuid| times.get(&format!("execution-{execution}")).copied().unwrap_or_default();
        for execution in executions.iter().filter(|execution| runs(execution) > 1).take(4) {
            say(format!("  found: execution {execution} has {} runs in Temporal", runs(execution)));
        }
        Ok(Runs {
            doubled: executions.iter().filter(|execution| runs(execution) > 1).count(),
            missing: executions.iter().filter(|execution| runs(execution) == 0).count(),
            open,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(execution: Uuid, status: &str) -> String {
        let id = format!("execution-{execution}");
        let status = format!("WORKFLOW_EXECUTION_STATUS_{status}");
        format!("{}\n", serde_json::json!({ "execution": { "workflowId": id, "runId": "r" }, "status": status }))
    }

    #[test]
    fn runs_are_counted_by_the_execution_they_are_of() {
        let (a, b, c) = (Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3));
        let list = [line(a, "COMPLETED"), line(b, "COMPLETED"), line(b, "CANCELED"), line(a, "RUNNING")].concat();
        assert_eq!(Runs::of(&list, &[a, b, c]).expect("a list"), Runs { doubled: 2, missing: 1, open: 1 });
        assert_eq!(Runs::of(&line(a, "COMPLETED"), &[a]).expect("a list"), Runs::default());
    }
}
