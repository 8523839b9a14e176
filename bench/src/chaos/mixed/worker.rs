//! An HTTP or SQL worker for jobs: a separate process that reads its instructions from standard input.
//!
//!     claim ──▶ work, with heartbeats ──▶ request the end ──▶ done or refused
//!
//! Invariants
//! - Every step is in its journal before the next begins.
//! - The worker is deliberately naive: it requests the end of every job that it claimed, even long after its lease.
//!
//! What happens if it dies: before its claim, nothing. After it, nothing until its lease expires; then any worker may
//! claim the job.
//!
//! Not here: how a job is claimed and ended, over HTTP (`http`) and in plain SQL (`sql`).

use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until};
use uuid::Uuid;

use super::super::journal::Journal;
use super::http::Http;
use super::journal::{Hold, Line, WorkerStep};
use super::plan::JobResult;
use super::sql::Sql;

/// The pause of a worker that found no job.
const IDLE: Duration = Duration::from_millis(30);
/// Heartbeats per lease.
const BEATS: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Protocol {
    Http,
    Sql,
}

/// The instructions of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) worker: String,
    pub(super) way: Protocol,
    /// Jobs that it performs at a time.
    pub(super) lanes: usize,
    pub(super) lease_s: u32,
    /// The directory of its journal.
    pub(super) journals: PathBuf,
    /// A file with the current addresses of the service.
    pub(super) bases: PathBuf,
    pub(super) key: String,
    pub(super) workspace: Uuid,
    pub(super) database_url: String,
}

/// A job that a worker holds.
#[derive(Clone, Debug)]
pub(super) struct ClaimedJob {
    pub(super) hold: Hold,
    /// Only for the API.
    pub(super) claim: Option<Uuid>,
    pub(super) retries: i32,
    pub(super) fails: i32,
    pub(super) work_ms: u64,
}

impl ClaimedJob {
    pub(super) fn new(hold: Hold, claim: Option<Uuid>, retries: i32, data: &Value) -> anyhow::Result<ClaimedJob> {
        let fails = data["fails"].as_i64().and_then(|fails| i32::try_from(fails).ok()).context("read fails")?;
        let work_ms = data["work_ms"].as_u64().context("read work_ms")?;
        Ok(ClaimedJob { hold, claim, retries, fails, work_ms })
    }
}

/// Claims jobs, keeps them with heartbeats and ends them, over one protocol.
pub(super) trait JobClient {
    /// The next job, if there is one.
    async fn take(&mut self) -> anyhow::Result<Option<ClaimedJob>>;
    /// Sends a heartbeat.
    async fn beat(&mut self, claimed: &ClaimedJob) -> anyhow::Result<()>;
    /// Requests an end. Returns whether it was granted.
    async fn end(&mut self, claimed: &ClaimedJob, how: JobResult) -> anyhow::Result<bool>;
}

/// Works until it is killed.
pub async fn work() -> anyhow::Result<()> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("read the worker's instructions")?;
    let order: Order = serde_json::from_str(&text).context("read the worker's instructions")?;
    let journal = Journal::open(&order.journals, &order.worker)?;
    let beat = Duration::from_secs(u64::from(order.lease_s)) / BEATS;
    match order.way {
        Protocol::Http => {
            let hands: anyhow::Result<Vec<Http>> = (0..order.lanes).map(|lane| Http::new(&order, lane)).collect();
            let hands = hands?;
            ready()?;
            futures_util::future::try_join_all(hands.into_iter().map(|hand| lane(hand, &journal, beat))).await?;
        }
        Protocol::Sql => {
            let hands = futures_util::future::try_join_all((0..order.lanes).map(|_| Sql::new(&order))).await?;
            ready()?;
            futures_util::future::try_join_all(hands.into_iter().map(|hand| lane(hand, &journal, beat))).await?;
        }
    }
    Ok(())
}

fn ready() -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "ready").and_then(|()| out.flush()).context("print ready")
}

async fn lane(mut hand: impl JobClient, journal: &Journal, beat: Duration) -> anyhow::Result<()> {
    loop {
        let Some(claimed) = hand.take().await? else {
            sleep(IDLE).await;
            continue;
        };
        let note = |what| journal.note(&Line { hold: claimed.hold.clone(), retries: claimed.retries, what });
        note(WorkerStep::Claimed)?;
        toil(&mut hand, &claimed, beat).await?;
        let how = JobResult::of(claimed.retries, claimed.fails);
        note(WorkerStep::Requested(how))?;
        let granted = hand.end(&claimed, how).await?;
        note(if granted { WorkerStep::Done(how) } else { WorkerStep::Refused(how) })?;
    }
}

async fn toil(hand: &mut impl JobClient, claimed: &ClaimedJob, beat: Duration) -> anyhow::Result<()> {
    let until = Instant::now() + Duration::from_millis(claimed.work_ms);
    while Instant::now() + beat < until {
        sleep(beat).await;
        hand.beat(claimed).await?;
    }
    sleep_until(until).await;
    Ok(())
}
