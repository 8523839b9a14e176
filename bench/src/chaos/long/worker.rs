//! A worker for tasks over HTTP: a separate process that reads its instructions from standard input.
//!
//!     claim ──▶ work, with heartbeats and progress ──▶ complete or fail ──▶ confirmed, or refused (lease lost)
//!
//! Invariants
//! - Every step is in its journal before the next begins.
//! - It is deliberately naive: it reports the end of every task that it claimed, however late, and after any answer.
//!
//! What happens if it dies: before its claim, nothing. After it, nothing until its lease expires; then any worker may
//! claim the task.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use reqwest::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};
use uuid::Uuid;

use super::super::journal::Journal;
use super::super::retrying_client::RetryingClient;
use super::documents::QUEUE;
use crate::receiver::value_of;

/// Heartbeats per lease.
const BEATS: u32 = 4;

/// The instructions of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) worker: String,
    /// Tasks that it performs at a time.
    pub(super) lanes: usize,
    pub(super) lease_ms: u64,
    /// The directory of its journal.
    pub(super) journals: PathBuf,
    /// A file with the current addresses of the service.
    pub(super) bases: PathBuf,
    pub(super) key: String,
}

/// How a task ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TaskResult {
    Completed,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum WorkerStep {
    /// The claim was granted.
    Claimed,
    /// It is about to request this end.
    Requested(TaskResult),
    /// The service confirmed this end.
    Done(TaskResult),
    /// The service answered that another worker holds the task.
    Refused(TaskResult),
}

/// A line of its journal: what it did under one claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) task: Uuid,
    pub(super) claim: Uuid,
    pub(super) attempt: i32,
    pub(super) what: WorkerStep,
}

/// A task that it holds.
#[derive(Clone, Debug)]
struct ClaimedTask {
    task: Uuid,
    claim: Uuid,
    attempt: i32,
    work: Work,
}

/// What a task's input says.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Work {
    n: i64,
    i: i64,
    /// It fails in this many attempts.
    fails: i32,
    /// The failure is final: no retry.
    r#final: bool,
    ms: u64,
}

impl ClaimedTask {
    fn read(claimed: &Value) -> anyhow::Result<ClaimedTask> {
        let id = |value: &Value| value.as_str().and_then(|text| text.parse().ok());
        let read = || {
            Some(ClaimedTask {
                task: id(&claimed["id"])?,
                claim: id(&claimed["claimId"])?,
                attempt: i32::try_from(claimed["attempt"].as_i64()?).ok()?,
                work: serde_json::from_value(claimed["input"].clone()).ok()?,
            })
        };
        read().with_context(|| format!("read a claimed task: {claimed}"))
    }

    fn how(&self) -> TaskResult {
        if self.attempt <= self.work.fails { TaskResult::Failed } else { TaskResult::Completed }
    }
}

/// Works until it is killed.
pub async fn work() -> anyhow::Result<()> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("read the order")?;
    let order: Order = serde_json::from_str(&text).context("read the order")?;
    let journal = Journal::open(&order.journals, &order.worker)?;
    let lanes: anyhow::Result<Vec<Lane<'_>>> = (0..order.lanes).map(|lane| Lane::new(&order, &journal, lane)).collect();
    let mut lanes = lanes?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "ready").and_then(|()| out.flush()).context("say that it is ready")?;
    drop(out);
    futures_util::future::try_join_all(lanes.iter_mut().map(Lane::run)).await?;
    Ok(())
}

struct Lane<'a> {
    order: &'a Order,
    journal: &'a Journal,
    sender: RetryingClient,
}

impl<'a> Lane<'a> {
    fn new(order: &'a Order, journal: &'a Journal, lane: usize) -> anyhow::Result<Lane<'a>> {
        Ok(Lane { order, journal, sender: RetryingClient::new(&order.bases, Some(&order.key), lane)? })
    }

    async fn run(&mut self) -> anyhow::Result<()> {
        loop {
            if let Some(task) = self.take().await? {
                self.one(&task).await?;
            }
        }
    }

    async fn one(&mut self, task: &ClaimedTask) -> anyhow::Result<()> {
        self.note(task, WorkerStep::Claimed)?;
        self.toil(task).await?;
        let how = task.how();
        self.note(task, WorkerStep::Requested(how))?;
        let granted = self.end(task, how).await?;
        self.note(task, if granted { WorkerStep::Done(how) } else { WorkerStep::Refused(how) })
    }

    fn note(&self, task: &ClaimedTask, what: WorkerStep) -> anyhow::Result<()> {
        let ClaimedTask { task, claim, attempt, .. } = *task;
        self.journal.note(&Line { task, claim, attempt, what })
    }

    /// The next task, if one arrives during the long poll.
    async fn take(&mut self) -> anyhow::Result<Option<ClaimedTask>> {
        let body = json!({ "queues": [QUEUE], "workerId": self.order.worker, "limit": 1, "waitSeconds": 1 });
        let answer = self.sender.post("api/v1/tasks/claim", &body).await?;
        if !answer.status.is_success() {
            bail!("a claim was answered {}: {}", answer.status, answer.body);
        }
        let task = &answer.body["items"][0];
        if task.is_null() { Ok(None) } else { ClaimedTask::read(task).map(Some) }
    }

    /// Works for the task's duration, with heartbeats. Stops early if it no longer holds the task.
    async fn toil(&mut self, task: &ClaimedTask) -> anyhow::Result<()> {
        let beat = Duration::from_millis(self.order.lease_ms) / BEATS;
        let (began, until) = (Instant::now(), Instant::now() + Duration::from_millis(task.work.ms));
        while Instant::now() + beat < until {
            sleep(beat).await;
            let progress = json!({ "ms": began.elapsed().as_millis() });
            if !self.about(task, "heartbeat", json!({ "progress": progress })).await? {
                return Ok(());
            }
        }
        sleep_until(until).await;
        Ok(())
    }

    async fn end(&mut self, task: &ClaimedTask, how: TaskResult) -> anyhow::Result<bool> {
        let work = task.work;
        match how {
            TaskResult::Completed => {
                let output = json!({ "value": value_of(work.n, work.i), "claim": task.claim });
                self.about(task, "complete", json!({ "output": output })).await
            }
            TaskResult::Failed => {
                self.about(task, "fail", json!({ "message": "as planned", "retryable": !work.r#final })).await
            }
        }
    }

    /// Sends a request about a task. Returns whether it was accepted.
    async fn about(&mut self, task: &ClaimedTask, verb: &str, mut body: Value) -> anyhow::Result<bool> {
        body["claimId"] = json!(task.claim);
        let answer = self.sender.post(&format!("api/v1/tasks/{}/{verb}", task.task), &body).await?;
        match answer.status {
            status if status.is_success() => Ok(true),
            StatusCode::CONFLICT => Ok(false),
            status => bail!("{verb} was answered {status}: {}", answer.body),
        }
    }
}
