//! Writes what runs did, many runs in one commit.
//!
//! Invariants
//! - A run has at most one record on its way; it goes on when that one is answered.
//! - While a commit is under way the next batch gathers behind it: no waiting is added, and the
//!   busier the process, the fewer commits a run costs. Only a full batch goes beside another:
//!   measured, two half-filled ones take turns at the flush, and everybody else's commits with them.
//! - A batch that fails by circumstance is repeated whole until it is answered; one that fails by
//!   its data is repeated by halves, and the culprit alone is told.
//!
//! Not here: what to write (`run`), the statement (`store::run`).

use std::time::Duration;

use kernel::ids::ProcessId;
use kernel::signals::metrics;
use serde_json::Value;
use store::Store;
use store::batch::{Fate, by_halves};
use store::run::{NodeFact, Record, Recorded};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::nodes;

/// The most runs of one commit.
const BATCH: usize = 100;
/// About the most bytes of one commit; a larger record goes alone.
const BYTES: usize = 16 << 20;
/// How many commits may be under way at once, if their batches are full.
const WRITERS: usize = 3;

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
        tokio::spawn(write(store, inbox));
        Writer { jobs }
    }

    /// Records, and answers when it is stored or can never be. None if the writer is gone.
    pub(super) async fn record(&self, process: ProcessId, record: Record) -> Option<Told> {
        let (told, answer) = oneshot::channel();
        let bytes = record.facts.iter().map(size).sum();
        self.jobs.send(Job { process, bytes, record, told }).ok()?;
        answer.await.ok()
    }
}

async fn write(store: Store, mut inbox: mpsc::UnboundedReceiver<Job>) {
    let mut gathered = Vec::new();
    let mut under_way = JoinSet::new();
    let mut open = true;
    while open || !gathered.is_empty() {
        let most = match under_way.len() {
            0 => 1,
            1..WRITERS => BATCH,
            _ => usize::MAX,
        };
        if gathered.len() >= most {
            let batch = cut(&mut gathered);
            ::metrics::histogram!(metrics::RECORD_BATCH.name).record(u32::try_from(batch.len()).unwrap_or(u32::MAX));
            let store = store.clone();
            under_way.spawn(async move { write_batch(&store, batch).await });
            continue;
        }
        let room = BATCH.saturating_sub(gathered.len());
        tokio::select! {
            got = inbox.recv_many(&mut gathered, room), if open && room > 0 => open = got > 0,
            Some(done) = under_way.join_next() => {
                // What breaks off here is taken for lost by its runs, and found again by their rows.
                if done.is_err() {
                    tracing::error!("Recording panicked");
                }
            }
        }
    }
    while under_way.join_next().await.is_some() {}
}

/// Takes the next batch out: of one process (it has one id at a time) and not too large.
fn cut(gathered: &mut Vec<Job>) -> Vec<Job> {
    let process = gathered[0].process;
    let (mut batch, mut rest, mut bytes) = (Vec::new(), Vec::new(), 0);
    for job in gathered.drain(..) {
        let fits = batch.is_empty() || bytes + job.bytes <= BYTES;
        if job.process == process && fits {
            bytes += job.bytes;
            batch.push(job);
        } else {
            rest.push(job);
        }
    }
    *gathered = rest;
    batch
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
