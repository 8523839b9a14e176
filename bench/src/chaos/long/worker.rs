//! A worker of tasks: a process of its own, told on its standard input what to do, over HTTP.
//!
//!     claim ──▶ work, with heartbeats and progress ──▶ complete or fail ──▶ done, or told that the lease is lost
//!
//! Invariants
//! - Every step is in its journal before the next is taken.
//! - It is as naive as a worker can be: it asks for the end of whatever it took, however late it is, and whatever it
//!   was told.
//!
//! What happens if it dies: before its claim, nothing; after it, nothing until its lease is over, and then the task is
//! anybody's.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use reqwest::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};
use uuid::Uuid;

use super::super::asking::Asker;
use super::super::journal::Journal;
use super::documents::QUEUE;
use crate::receiver::value_of;

/// How often it is heard of in a lease.
const BEATS: u32 = 4;

/// What a worker is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) worker: String,
    /// Tasks that it works on at once.
    pub(super) lanes: usize,
    pub(super) lease_ms: u64,
    /// The directory of its journal.
    pub(super) journals: PathBuf,
    /// A file that says where the service listens now.
    pub(super) bases: PathBuf,
    pub(super) key: String,
}

/// How a task ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum How {
    Completed,
    Failed,
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
    /// It was told that the task is not its own.
    Refused(How),
}

/// A line of its journal: what it did under one claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) task: Uuid,
    pub(super) claim: Uuid,
    pub(super) attempt: i32,
    pub(super) what: What,
}

/// A task that it holds.
#[derive(Clone, Debug)]
struct Taken {
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
    /// It fails in so many attempts.
    fails: i32,
    /// And says that it never will go well.
    r#final: bool,
    ms: u64,
}

impl Taken {
    fn read(claimed: &Value) -> anyhow::Result<Taken> {
        let id = |value: &Value| value.as_str().and_then(|text| text.parse().ok());
        let read = || {
            Some(Taken {
                task: id(&claimed["id"])?,
                claim: id(&claimed["claimId"])?,
                attempt: i32::try_from(claimed["attempt"].as_i64()?).ok()?,
                work: serde_json::from_value(claimed["input"].clone()).ok()?,
            })
        };
        read().with_context(|| format!("read a claimed task: {claimed}"))
    }

    fn how(&self) -> How {
        if self.attempt <= self.work.fails { How::Failed } else { How::Completed }
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
    asker: Asker,
}

impl<'a> Lane<'a> {
    fn new(order: &'a Order, journal: &'a Journal, lane: usize) -> anyhow::Result<Lane<'a>> {
        Ok(Lane { order, journal, asker: Asker::new(&order.bases, Some(&order.key), lane)? })
    }

    async fn run(&mut self) -> anyhow::Result<()> {
        loop {
            if let Some(taken) = self.take().await? {
                self.one(&taken).await?;
            }
        }
    }

    async fn one(&mut self, taken: &Taken) -> anyhow::Result<()> {
        self.note(taken, What::Claimed)?;
        self.toil(taken).await?;
        let how = taken.how();
        self.note(taken, What::Asks(how))?;
        let granted = self.end(taken, how).await?;
        self.note(taken, if granted { What::Done(how) } else { What::Refused(how) })
    }

    fn note(&self, taken: &Taken, what: What) -> anyhow::Result<()> {
        let Taken { task, claim, attempt, .. } = *taken;
        self.journal.note(&Line { task, claim, attempt, what })
    }

    /// The next task, if one comes while it is waited for.
    async fn take(&mut self) -> anyhow::Result<Option<Taken>> {
        let body = json!({ "queues": [QUEUE], "worker": self.order.worker, "max": 1, "wait": "1s" });
        let answer = self.asker.ask("api/v1/tasks/claim", &body).await?;
        if !answer.status.is_success() {
            bail!("a claim was answered {}: {}", answer.status, answer.body);
        }
        let task = &answer.body["items"][0];
        if task.is_null() { Ok(None) } else { Taken::read(task).map(Some) }
    }

    /// Takes its time, and is heard of; no longer than until it is told that the task is not its own.
    async fn toil(&mut self, taken: &Taken) -> anyhow::Result<()> {
        let beat = Duration::from_millis(self.order.lease_ms) / BEATS;
        let (began, until) = (Instant::now(), Instant::now() + Duration::from_millis(taken.work.ms));
        while Instant::now() + beat < until {
            sleep(beat).await;
            let progress = json!({ "ms": began.elapsed().as_millis() });
            if !self.about(taken, "heartbeat", json!({ "progress": progress })).await? {
                return Ok(());
            }
        }
        sleep_until(until).await;
        Ok(())
    }

    async fn end(&mut self, taken: &Taken, how: How) -> anyhow::Result<bool> {
        let work = taken.work;
        match how {
            How::Completed => {
                let output = json!({ "value": value_of(work.n, work.i), "claim": taken.claim });
                self.about(taken, "complete", json!({ "output": output })).await
            }
            How::Failed => {
                self.about(taken, "fail", json!({ "message": "as planned", "retryable": !work.r#final })).await
            }
        }
    }

    /// Says something about a task; answers whether it was heard.
    async fn about(&mut self, taken: &Taken, verb: &str, mut body: Value) -> anyhow::Result<bool> {
        body["claimId"] = json!(taken.claim);
        let answer = self.asker.ask(&format!("api/v1/tasks/{}/{verb}", taken.task), &body).await?;
        match answer.status {
            status if status.is_success() => Ok(true),
            StatusCode::CONFLICT => Ok(false),
            status => bail!("{verb} was answered {status}: {}", answer.body),
        }
    }
}
