//! The program of a peer: a process with one order, which reports events as lines of JSON.
//!
//! Invariants
//! - A worker works until its standard input closes, then it reports what it measured. If this harness dies, the
//!   worker is killed.
//! - What a program writes to standard error is kept only if the run fails.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use super::known::{Language, Peer};
use crate::service::command_tied_to_parent;

/// How long a program may take for an order that is no measurement.
const PATIENCE: Duration = Duration::from_secs(300);

/// What a program reports.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum PeerEvent {
    Ready {
        #[serde(default)]
        version: String,
    },
    Filled {
        count: usize,
    },
    Sent {
        count: usize,
    },
    /// The first handler has begun.
    First,
    /// All expected handlers have begun.
    All,
    /// The handler of a job has begun, and its time in microseconds since 1970.
    Begins {
        id: String,
        at: i64,
    },
    Ends {
        id: String,
        at: i64,
    },
    /// The last report of a worker: how many handlers began, and how soon after their jobs were sent, in ms.
    End {
        begun: usize,
        latencies: Vec<f64>,
    },
}

/// Where the programs are installed, and where their logs go.
#[derive(Debug)]
pub(super) struct Programs {
    installed: PathBuf,
    logs: PathBuf,
}

impl Programs {
    pub(super) fn find() -> Result<Programs> {
        let installed = std::env::var_os("FOREBAY_BENCH_PEERS").context("start this through ./dev/bench peers")?;
        let logs = std::env::temp_dir().join(format!("forebay-peers-{}", store::new_id().simple()));
        std::fs::create_dir_all(&logs).with_context(|| format!("make {}", logs.display()))?;
        Ok(Programs { installed: PathBuf::from(installed), logs })
    }

    pub(super) fn remove_logs(&self) -> Result<()> {
        std::fs::remove_dir_all(&self.logs).with_context(|| format!("remove {}", self.logs.display()))
    }

    /// Starts a program.
    pub(super) fn start(&self, peer: &Peer, mode: &str, url: &str, options: &Value) -> Result<Program> {
        let at = |path: &str| self.installed.join(path);
        let mut command = match peer.language {
            Language::Node => command_tied_to_parent("node".as_ref()),
            Language::Python => command_tied_to_parent(&at("python/bin/python")),
            Language::Rust => command_tied_to_parent(&at("rust/release/peer")),
        };
        match peer.language {
            Language::Node => command.arg(at("npm").join(peer.program)),
            Language::Python => command.arg(at("python").join(peer.program)),
            Language::Rust => command.arg(peer.program),
        };
        let log = self.logs.join(format!("{}-{mode}.log", peer.program));
        let errors = std::fs::File::options().create(true).append(true).open(&log).context("open a program's log")?;
        command.arg(mode).arg(url).arg(options.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors).kill_on_drop(true);
        let mut child = command.spawn().with_context(|| format!("start the program of {}", peer.name))?;
        let stdout = child.stdout.take().context("take the output of a program")?;
        let stdin = child.stdin.take();
        Ok(Program { child, stdin, lines: BufReader::new(stdout).lines(), log })
    }

    /// Runs a program until its one report.
    pub(super) async fn order(&self, peer: &Peer, mode: &str, url: &str, options: &Value) -> Result<PeerEvent> {
        let mut program = self.start(peer, mode, url, options)?;
        let event = program.next(PATIENCE).await?.with_context(|| format!("{mode} took too long"))?;
        let status = program.child.wait().await.context("wait for a program")?;
        ensure!(status.success(), "{mode} ended with {status}; see {}", program.log.display());
        Ok(event)
    }
}

/// A running program.
#[derive(Debug)]
pub(super) struct Program {
    child: Child,
    /// Closed to end a worker.
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    log: PathBuf,
}

impl Program {
    pub(super) fn pid(&self) -> Result<u32> {
        self.child.id().with_context(|| format!("a program ended by itself; see {}", self.log.display()))
    }

    /// The next event. None if there is none in time.
    pub(super) async fn next(&mut self, patience: Duration) -> Result<Option<PeerEvent>> {
        let Ok(line) = tokio::time::timeout(patience, self.lines.next_line()).await else { return Ok(None) };
        let Some(line) = line.context("read from a program")? else {
            bail!("a program ended by itself; see {}", self.log.display());
        };
        serde_json::from_str(&line).map(Some).with_context(|| format!("read an event from {line}"))
    }

    /// Waits for an event of this kind. False if there is none in time.
    pub(super) async fn wait_for(&mut self, patience: Duration, is_it: fn(&PeerEvent) -> bool) -> Result<bool> {
        let until = tokio::time::Instant::now() + patience;
        loop {
            match self.next(until.saturating_duration_since(tokio::time::Instant::now())).await? {
                Some(event) if is_it(&event) => return Ok(true),
                Some(_) => {}
                None => return Ok(false),
            }
        }
    }

    pub(super) async fn wait_until_ready(&mut self) -> Result<()> {
        let is_ready = self.wait_for(PATIENCE, |event| matches!(event, PeerEvent::Ready { .. })).await?;
        ensure!(is_ready, "a worker was not ready in time; see {}", self.log.display());
        Ok(())
    }

    /// Ends a worker. Returns how many handlers began, and how soon.
    pub(super) async fn end(mut self) -> Result<(usize, Vec<f64>)> {
        drop(self.stdin.take());
        loop {
            if let PeerEvent::End { begun, latencies } = self.next(PATIENCE).await?.context("a worker did not end")? {
                return Ok((begun, latencies));
            }
        }
    }

    /// Kills a worker, and returns the events that it had reported before.
    pub(super) async fn kill(mut self) -> Result<Vec<PeerEvent>> {
        self.child.kill().await.context("kill a worker")?;
        let mut events = Vec::new();
        // A line that the kill cut off is no event.
        while let Some(line) = self.lines.next_line().await.context("read from a killed worker")? {
            events.extend(serde_json::from_str::<PeerEvent>(&line).ok());
        }
        Ok(events)
    }
}
