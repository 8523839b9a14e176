//! Writes what runs did, many runs in one commit.
//!
//! Invariants
//! - A run has at most one record on its way; it goes on when that one is answered.
//! - While a commit is under way the next batch gathers behind it: no waiting is added, and the
//!   busier the process, the fewer commits a run costs.
//! - A batch that fails by circumstance is repeated whole until it is answered; one that fails by
//!   its data is repeated by halves, and the culprit alone is told.
//!
//! Not here: what to write (`run`), the statement (`store::run`).

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use kernel::ids::ProcessId;
use serde_json::Value;
use store::Store;
use store::batch::{Fate, by_halves};
use store::run::{NodeFact, Record, Recorded};
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::{metrics, nodes};

/// The most runs of one commit.
const BATCH: usize = 100;
/// About the most bytes of one commit; a larger record goes alone.
const BYTES: usize = 16 << 20;
/// How many commits may be under way at once.
const WRITERS: usize = 2;

/// What a run is told of its record.
#[derive(Debug)]
pub(super) enum Told {
    Recorded(Recorded),
    /// The database cannot hold what was to be recorded; here it is back.
    Refused(store::Error, Box<Record>),
}

struct Job {
    process: ProcessId,
    bytes: usize,
    record: Record,
    told: oneshot::Sender<Told>,
}

/// Takes records in. Cheap to clone; the writers end with the last clone.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    jobs: mpsc::UnboundedSender<Job>,
}

impl Writer {
    pub(super) fn spawn(store: Store) -> Writer {
        let (jobs, inbox) = mpsc::unbounded_channel();
        let inbox = Arc::new(Mutex::new(inbox));
        for _ in 0..WRITERS {
            tokio::spawn(write(store.clone(), Arc::clone(&inbox)));
        }
        Writer { jobs }
    }

    /// Records, and answers when it is stored or can never be. None if the writers are gone.
    pub(super) async fn record(&self, process: ProcessId, record: Record) -> Option<Told> {
        let (told, answer) = oneshot::channel();
        let bytes = record.facts.iter().map(size).sum();
        self.jobs.send(Job { process, bytes, record, told }).ok()?;
        answer.await.ok()
    }
}

async fn write(store: Store, inbox: Arc<Mutex<mpsc::UnboundedReceiver<Job>>>) {
    loop {
        let mut jobs = Vec::new();
        if inbox.lock().await.recv_many(&mut jobs, BATCH).await == 0 {
            return;
        }
        ::metrics::histogram!(metrics::RECORD_BATCH).record(u32::try_from(jobs.len()).unwrap_or(u32::MAX));
        while !jobs.is_empty() {
            let (batch, rest) = cut(jobs);
            jobs = rest;
            // What breaks off here is taken for lost by its runs, and found again by their rows.
            if AssertUnwindSafe(write_batch(&store, batch)).catch_unwind().await.is_err() {
                tracing::error!("Recording panicked");
            }
        }
    }
}

/// The next batch: of one process (it has one id at a time) and not too large.
fn cut(jobs: Vec<Job>) -> (Vec<Job>, Vec<Job>) {
    let process = jobs[0].process;
    let (mut batch, mut rest, mut bytes) = (Vec::new(), Vec::new(), 0);
    for job in jobs {
        let fits = batch.is_empty() || bytes + job.bytes <= BYTES;
        if job.process == process && fits {
            bytes += job.bytes;
            batch.push(job);
        } else {
            rest.push(job);
        }
    }
    (batch, rest)
}

/// About how many bytes a fact takes.
pub(super) fn size(fact: &NodeFact) -> usize {
    let payload = |value: &Option<Value>| value.as_ref().map_or(0, nodes::size);
    256 + payload(&fact.input) + payload(&fact.output)
}

async fn write_batch(store: &Store, jobs: Vec<Job>) {
    let process = jobs[0].process;
    let (records, told): (Vec<Record>, Vec<_>) = jobs.into_iter().map(|job| (job.record, job.told)).unzip();
    let mut pause = Duration::from_millis(50);
    let fates = loop {
        match by_halves(&records, |some| store.record(process, some, "engine")).await {
            Ok(fates) => break fates,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    runs = records.len(),
                    "Recording failed, trying again"
                );
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(2));
                if told.iter().all(oneshot::Sender::is_closed) {
                    return;
                }
            }
        }
    };
    for ((fate, told), record) in fates.into_iter().zip(told).zip(records) {
        let answer = match fate {
            Fate::Done(recorded) => Told::Recorded(recorded),
            Fate::Refused(error) => Told::Refused(error, Box::new(record)),
        };
        // A run that was dropped meanwhile needs no answer.
        drop(told.send(answer));
    }
}
