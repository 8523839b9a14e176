//! Writes what runs did, many runs in one commit.
//!
//! Invariants
//! - A run has at most one record on its way; it goes on when that one is answered.
//! - While a commit is under way the next batch gathers behind it, and a batch goes only when every
//!   task that could add to it has had its turn: no waiting is added, and the
//!   busier the process, the fewer commits a run costs. Only a full batch goes beside another, or
//!   one that a slow commit kept waiting: measured, two half-filled ones take turns at the flush, and
//!   everybody else's commits with them.
//! - A run whose row somebody holds locked keeps no other waiting: it goes round on its own.
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
use tokio::time::Instant;

use crate::nodes;

/// The most runs of one commit.
const BATCH: usize = 100;
/// About the most bytes of one commit; a larger record goes alone.
const BYTES: usize = 16 << 20;
/// How many commits may be under way at once, if their batches are full.
const WRITERS: usize = 2;

/// A commit that takes longer than this is not waited for by the next batch.
const SLOW: Duration = Duration::from_millis(20);
/// How long a record whose row is locked waits for its next try.
const LOCKED: Duration = Duration::from_millis(500);

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
        tokio::spawn(write(store, inbox, jobs.downgrade()));
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

async fn write(store: Store, mut inbox: mpsc::UnboundedReceiver<Job>, round: mpsc::WeakUnboundedSender<Job>) {
    let mut gathered = Vec::new();
    let mut under_way = JoinSet::new();
    let (mut open, mut last) = (true, Instant::now());
    while open || !gathered.is_empty() {
        let slow = last.elapsed() >= SLOW;
        let enough = match under_way.len() {
            0 => 1,
            1..WRITERS if slow => 1,
            1..WRITERS => BATCH,
            _ => usize::MAX,
        };
        if gathered.len() >= enough {
            let batch = cut(&mut gathered);
            ::metrics::histogram!(metrics::RECORD_BATCH.name).record(u32::try_from(batch.len()).unwrap_or(u32::MAX));
            let (store, round) = (store.clone(), round.clone());
            under_way.spawn(async move { write_batch(&store, batch, &round).await });
            last = Instant::now();
            continue;
        }
        let room = BATCH.saturating_sub(gathered.len());
        let waits = !gathered.is_empty() && under_way.len() < WRITERS && !slow;
        tokio::select! {
            got = inbox.recv_many(&mut gathered, room), if open && room > 0 => {
                open = got > 0;
                // Runs that were told together go on together.
                let mut more = true;
                while more && gathered.len() < BATCH {
                    tokio::task::yield_now().await;
                    more = gather(&mut inbox, &mut gathered);
                }
            }
            () = tokio::time::sleep_until(last + SLOW), if waits => {}
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

/// Takes in what is there already; true if there was something.
fn gather(inbox: &mut mpsc::UnboundedReceiver<Job>, gathered: &mut Vec<Job>) -> bool {
    let before = gathered.len();
    while gathered.len() < BATCH
        && let Ok(job) = inbox.try_recv()
    {
        gathered.push(job);
    }
    gathered.len() > before
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

async fn write_batch(store: &Store, jobs: Vec<Job>, round: &mpsc::WeakUnboundedSender<Job>) {
    let mut batches = vec![jobs];
    let mut pause = Duration::from_millis(50);
    while let Some(mut jobs) = batches.pop() {
        let process = jobs[0].process;
        let records: Vec<Record> = jobs.iter().map(|job| job.record.clone()).collect();
        match by_halves(&records, |some| store.record(process, some, "engine")).await {
            Ok(fates) => jobs.into_iter().zip(fates).for_each(|(job, fate)| tell(job, fate)),
            // One of them is locked: the others go on without it.
            Err(error) if error.is_lock_timeout() && jobs.len() > 1 => {
                let half = jobs.split_off(jobs.len() / 2);
                batches.extend([half, jobs]);
            }
            Err(error) if error.is_lock_timeout() => {
                tracing::warn!(
                    runs = 1,
                    error = &error as &dyn std::error::Error,
                    "A run's row is locked, trying again"
                );
                go_round(jobs, round.clone());
            }
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    runs = jobs.len(),
                    "Recording failed, trying again"
                );
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(2));
                if jobs.iter().any(|job| !job.told.is_closed()) {
                    batches.push(jobs);
                }
            }
        }
    }
}

/// A run that was dropped meanwhile needs no answer.
fn tell(job: Job, fate: Fate<Recorded>) {
    let answer = match fate {
        Fate::Done(recorded) => Told::Recorded(recorded),
        Fate::Refused(error) => Told::Refused(error, Box::new(job.record)),
    };
    drop(job.told.send(answer));
}

/// Puts jobs back behind the others, after a while.
fn go_round(jobs: Vec<Job>, round: mpsc::WeakUnboundedSender<Job>) {
    tokio::spawn(async move {
        tokio::time::sleep(LOCKED).await;
        let Some(inbox) = round.upgrade() else { return };
        for job in jobs.into_iter().filter(|job| !job.told.is_closed()) {
            // The writer is gone with the process: so is the run.
            let _gone = inbox.send(job);
        }
    });
}
