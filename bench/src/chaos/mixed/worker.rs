//! A worker of jobs that is not ours: a process of its own, told on its standard input what to do.
//!
//!     take ──▶ work, and be heard of ──▶ ask for the end ──▶ done or refused
//!
//! Invariants
//! - Every step is in its journal before the next is taken.
//! - It is as naive as a worker can be: it asks for the end of whatever it took, however late it is.
//!
//! What happens if it dies: before its claim, nothing; after it, nothing until its lease is over, and then the job is
//! anybody's.
//!
//! Not here: how a job is taken and ended, over HTTP (`http`) and in plain SQL (`sql`).

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
use super::journal::{Hold, Line, What};
use super::plan::How;
use super::sql::Sql;

/// How long one waits that found nothing to do.
const IDLE: Duration = Duration::from_millis(30);
/// How often it is heard of in a lease.
const BEATS: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Way {
    Http,
    Sql,
}

/// What a worker is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) worker: String,
    pub(super) way: Way,
    /// Jobs that it works on at once.
    pub(super) lanes: usize,
    pub(super) lease_s: u32,
    /// The directory of its journal.
    pub(super) journals: PathBuf,
    /// A file that says where the service listens now.
    pub(super) bases: PathBuf,
    pub(super) key: String,
    pub(super) workspace: Uuid,
    pub(super) database_url: String,
}

/// A job that a worker holds.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    pub(super) hold: Hold,
    /// Of the API only.
    pub(super) claim: Option<Uuid>,
    pub(super) retries: i32,
    pub(super) fails: i32,
    pub(super) work_ms: u64,
}

impl Taken {
    pub(super) fn new(hold: Hold, claim: Option<Uuid>, retries: i32, data: &Value) -> anyhow::Result<Taken> {
        let fails = data["fails"].as_i64().and_then(|fails| i32::try_from(fails).ok()).context("read fails")?;
        let work_ms = data["work_ms"].as_u64().context("read work_ms")?;
        Ok(Taken { hold, claim, retries, fails, work_ms })
    }
}

/// One way to take, keep and end jobs.
pub(super) trait Hand {
    /// The next job, if there is one.
    async fn take(&mut self) -> anyhow::Result<Option<Taken>>;
    /// Is heard of.
    async fn beat(&mut self, taken: &Taken) -> anyhow::Result<()>;
    /// Asks for an end; answers whether it was granted.
    async fn end(&mut self, taken: &Taken, how: How) -> anyhow::Result<bool>;
}

/// Works until it is killed.
pub async fn work() -> anyhow::Result<()> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("read the order")?;
    let order: Order = serde_json::from_str(&text).context("read the order")?;
    let journal = Journal::open(&order.journals, &order.worker)?;
    let beat = Duration::from_secs(u64::from(order.lease_s)) / BEATS;
    match order.way {
        Way::Http => {
            let hands: anyhow::Result<Vec<Http>> = (0..order.lanes).map(|lane| Http::new(&order, lane)).collect();
            let hands = hands?;
            ready()?;
            futures_util::future::try_join_all(hands.into_iter().map(|hand| lane(hand, &journal, beat))).await?;
        }
        Way::Sql => {
            let hands = futures_util::future::try_join_all((0..order.lanes).map(|_| Sql::new(&order))).await?;
            ready()?;
            futures_util::future::try_join_all(hands.into_iter().map(|hand| lane(hand, &journal, beat))).await?;
        }
    }
    Ok(())
}

fn ready() -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "ready").and_then(|()| out.flush()).context("say that it is ready")
}

async fn lane(mut hand: impl Hand, journal: &Journal, beat: Duration) -> anyhow::Result<()> {
    loop {
        let Some(taken) = hand.take().await? else {
            sleep(IDLE).await;
            continue;
        };
        let note = |what| journal.note(&Line { hold: taken.hold.clone(), retries: taken.retries, what });
        note(What::Claimed)?;
        toil(&mut hand, &taken, beat).await?;
        let how = How::of(taken.retries, taken.fails);
        note(What::Asks(how))?;
        let granted = hand.end(&taken, how).await?;
        note(if granted { What::Done(how) } else { What::Refused(how) })?;
    }
}

async fn toil(hand: &mut impl Hand, taken: &Taken, beat: Duration) -> anyhow::Result<()> {
    let until = Instant::now() + Duration::from_millis(taken.work_ms);
    while Instant::now() + beat < until {
        sleep(beat).await;
        hand.beat(taken).await?;
    }
    sleep_until(until).await;
    Ok(())
}
