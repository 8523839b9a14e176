//! What both peers share: the order of a process, the events it reports, and the handler of a job.
//!
//! Invariants
//! - Each event is one line of JSON on standard output.
//! - A worker works until its standard input closes. Then it reports what it measured and ends immediately.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

/// What a process must do.
pub(crate) struct Instruction {
    pub(crate) peer: String,
    pub(crate) mode: String,
    pub(crate) url: String,
    pub(crate) options: Options,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(default)]
pub(crate) struct Options {
    /// Jobs to store or to send.
    pub(crate) count: usize,
    /// How long storing may take.
    pub(crate) seconds: u64,
    /// Jobs to send per second.
    pub(crate) rate: f64,
    pub(crate) tenant: String,
    /// How long a job runs, in ms.
    pub(crate) hold: u64,
    /// How many jobs of a tenant may run. Zero for no limit.
    pub(crate) limit: usize,
    pub(crate) concurrency: usize,
    /// Work in batches, for speed.
    pub(crate) batches: bool,
    /// After how many jobs to report.
    pub(crate) expect: usize,
    /// Count only jobs with a time of sending.
    pub(crate) timed: bool,
    /// Report the begin and the end of each job.
    pub(crate) trace: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            count: 0,
            seconds: 60,
            rate: 1.0,
            tenant: "a".to_owned(),
            hold: 0,
            limit: 0,
            concurrency: 10,
            batches: false,
            expect: 0,
            timed: false,
            trace: false,
        }
    }
}

/// The payload of every job.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct PeerJob {
    /// When it was sent, in microseconds. Zero if that is not measured.
    pub(crate) at: i64,
    pub(crate) tenant: String,
    pub(crate) hold: u64,
}

impl Instruction {
    pub(crate) fn from_args() -> Result<Instruction> {
        let mut args = std::env::args().skip(1);
        let mut next = |what: &'static str| args.next().context(what);
        Ok(Instruction {
            peer: next("name a peer")?,
            mode: next("name a mode")?,
            url: next("name a database")?,
            options: serde_json::from_str(&next("pass options")?).context("read the options")?,
        })
    }

    /// Stores jobs in batches until there are enough, or the time is over.
    pub(crate) async fn fill(
        &self,
        batch: usize,
        mut store: impl AsyncFnMut(Vec<PeerJob>) -> Result<()>,
    ) -> Result<()> {
        let (began, mut count) = (Instant::now(), 0);
        while count < self.options.count && began.elapsed() < Duration::from_secs(self.options.seconds) {
            let size = batch.min(self.options.count - count);
            let job = PeerJob { at: 0, tenant: self.options.tenant.clone(), hold: self.options.hold };
            store(vec![job; size]).await?;
            count += size;
        }
        say(&json!({ "event": "filled", "count": count }));
        Ok(())
    }

    /// Sends jobs at a steady rate, each without waiting for those before it.
    pub(crate) async fn send<F>(&self, send: impl Fn(PeerJob) -> F) -> Result<()>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let (began, mut sending) = (tokio::time::Instant::now(), tokio::task::JoinSet::new());
        for number in 0..self.options.count {
            tokio::time::sleep_until(began + Duration::from_secs_f64(number as f64 / self.options.rate)).await;
            sending.spawn(send(PeerJob { at: now_us(), tenant: self.options.tenant.clone(), hold: 0 }));
        }
        while let Some(sent) = sending.join_next().await {
            sent??;
        }
        say(&json!({ "event": "sent", "count": self.options.count }));
        Ok(())
    }
}

/// What this process has measured.
struct Measured {
    options: Options,
    begun: AtomicUsize,
    latencies: Mutex<Vec<f64>>,
}

static MEASURED: OnceLock<Measured> = OnceLock::new();

/// The handler of every peer.
pub(crate) async fn perform(job: PeerJob) {
    let Some(measured) = MEASURED.get() else { return };
    let mut number = 0;
    if job.at > 0 {
        let latency = (now_us() - job.at) as f64 / 1e3;
        measured.latencies.lock().unwrap_or_else(PoisonError::into_inner).push(latency);
    }
    if job.at > 0 || !measured.options.timed {
        number = measured.begun.fetch_add(1, Ordering::Relaxed) + 1;
        if number == 1 {
            say(&json!({ "event": "first" }));
        }
        if number == measured.options.expect {
            say(&json!({ "event": "all" }));
        }
    }
    let id = format!("{}-{number}", std::process::id());
    if measured.options.trace {
        say(&json!({ "event": "begins", "id": id, "at": now_us() }));
    }
    if job.hold > 0 {
        tokio::time::sleep(Duration::from_millis(job.hold)).await;
    }
    if measured.options.trace {
        say(&json!({ "event": "ends", "id": id, "at": now_us() }));
    }
}

/// Works until standard input closes.
pub(crate) async fn work_until_closed(order: &Instruction, work: impl Future<Output = Result<()>>) -> Result<()> {
    let measured = MEASURED.get_or_init(|| Measured {
        options: order.options.clone(),
        begun: AtomicUsize::new(0),
        latencies: Mutex::default(),
    });
    say(&json!({ "event": "ready" }));
    let mut input = Vec::new();
    let mut stdin = tokio::io::stdin();
    tokio::select! {
        ended = work => ended?,
        closed = stdin.read_to_end(&mut input) => drop(closed?),
    }
    let latencies = measured.latencies.lock().unwrap_or_else(PoisonError::into_inner).clone();
    say(&json!({ "event": "end", "begun": measured.begun.load(Ordering::Relaxed), "latencies": latencies }));
    std::process::exit(0)
}

/// The version of a crate in the lock file of this program.
pub(crate) fn version_of(name: &str) -> String {
    let lock = include_str!("../Cargo.lock");
    let entry = lock.split(&format!("name = \"{name}\"\nversion = \"")).nth(1).unwrap_or_default();
    entry.split('"').next().unwrap_or_default().to_owned()
}

pub(crate) fn say(event: &Value) {
    println!("{event}");
}

fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
