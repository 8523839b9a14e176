//! Writes the records of many runs in one commit.
//!
//! Invariants
//! - An execution has at most one record in progress. Its run continues when the database has answered.
//! - A run whose row is locked delays no other run. It is retried separately.
//! - A batch that fails for a temporary reason is repeated as a whole until the database answers. A batch that fails
//!   because of its data is split into halves until only the faulty record fails.
//!
//! Not here: what to write (`run`), when a batch is sent (`store::batch::gather`), the statement (`store::run`).

use std::time::Duration;

use kernel::ids::ProcessId;
use kernel::signals::metrics;
use serde_json::Value;
use store::Store;
use store::batch::{BatchResult, GatherLimits, by_halves, gather};
use store::run::{NodeFact, Record, Recorded};
use tokio::sync::{mpsc, oneshot};

use crate::nodes;

/// The maximum number of runs in one commit.
const BATCH: usize = 100;
/// The approximate maximum size of one commit, in bytes. A larger record is written alone.
const BYTES: usize = 16 << 20;
/// How long a record waits before it is retried, if its row is locked.
const LOCKED: Duration = Duration::from_millis(500);

/// The result of a record, as its run receives it.
#[derive(Debug)]
pub(super) enum RecordReply {
    Recorded(Recorded),
    /// The database cannot store the record. The record is returned here.
    Refused(store::Error, Box<Record>),
}

struct PendingRecord {
    process: ProcessId,
    bytes: usize,
    record: Record,
    reply: oneshot::Sender<RecordReply>,
}

/// Accepts records. Cheap to clone; the writers stop when the last clone is dropped.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    queue: mpsc::UnboundedSender<PendingRecord>,
}

impl Writer {
    pub(super) fn spawn(store: Store) -> Writer {
        let (queue, inbox) = mpsc::unbounded_channel();
        let requeue = queue.downgrade();
        let limits = GatherLimits { batch: BATCH, waiting: BATCH };
        // If writing a batch panics, its runs treat their records as lost, and are resumed from their rows.
        tokio::spawn(gather(inbox, limits, take_batch, move |batch| {
            write_batch(store.clone(), batch, requeue.clone())
        }));
        Writer { queue }
    }

    /// Writes a record. Returns when the record is stored or can never be stored; None if the writer has stopped.
    pub(super) async fn record(&self, process: ProcessId, record: Record) -> Option<RecordReply> {
        let (reply, answer) = oneshot::channel();
        let bytes = record.facts.iter().map(size).sum();
        self.queue.send(PendingRecord { process, bytes, record, reply }).ok()?;
        answer.await.ok()
    }
}

/// Removes the next batch: records under one process id, within the size limits.
fn take_batch(pending: &mut Vec<PendingRecord>) -> Vec<PendingRecord> {
    let process = pending[0].process;
    let (mut batch, mut rest, mut bytes) = (Vec::new(), Vec::new(), 0);
    for item in pending.drain(..) {
        let fits = batch.is_empty() || bytes + item.bytes <= BYTES;
        if item.process == process && fits {
            bytes += item.bytes;
            batch.push(item);
        } else {
            rest.push(item);
        }
    }
    *pending = rest;
    ::metrics::histogram!(metrics::RUNS_PER_COMMIT.name).record(u32::try_from(batch.len()).unwrap_or(u32::MAX));
    batch
}

/// The approximate size of a fact, in bytes.
pub(super) fn size(fact: &NodeFact) -> usize {
    let payload = |value: &Option<Value>| value.as_ref().map_or(0, nodes::size);
    256 + payload(&fact.input) + payload(&fact.output)
}

async fn write_batch(store: Store, batch: Vec<PendingRecord>, requeue: mpsc::WeakUnboundedSender<PendingRecord>) {
    let mut batches = vec![batch];
    let mut pause = Duration::from_millis(50);
    while let Some(mut batch) = batches.pop() {
        let process = batch[0].process;
        let records: Vec<Record> = batch.iter().map(|item| item.record.clone()).collect();
        match by_halves(&records, |some| store.record(process, some, "engine")).await {
            Ok(fates) => batch.into_iter().zip(fates).for_each(|(item, fate)| send_reply(item, fate)),
            // One of the rows is locked. The other records continue without it.
            Err(error) if error.is_lock_timeout() && batch.len() > 1 => {
                let half = batch.split_off(batch.len() / 2);
                batches.extend([half, batch]);
            }
            Err(error) if error.is_lock_timeout() => {
                tracing::warn!(
                    runs = 1,
                    error = &error as &dyn std::error::Error,
                    "Failed to store a run because its row is locked; retrying"
                );
                requeue_later(batch, requeue.clone());
            }
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    runs = batch.len(),
                    "Failed to store the progress of runs; retrying"
                );
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(2));
                if batch.iter().any(|item| !item.reply.is_closed()) {
                    batches.push(batch);
                }
            }
        }
    }
}

/// Answers the run, unless it was dropped in the meantime.
fn send_reply(item: PendingRecord, fate: BatchResult<Recorded>) {
    let answer = match fate {
        BatchResult::Done(recorded) => RecordReply::Recorded(recorded),
        BatchResult::Refused(error) => RecordReply::Refused(error, Box::new(item.record)),
    };
    drop(item.reply.send(answer));
}

/// Puts records back at the end of the queue after a pause.
fn requeue_later(batch: Vec<PendingRecord>, requeue: mpsc::WeakUnboundedSender<PendingRecord>) {
    tokio::spawn(async move {
        tokio::time::sleep(LOCKED).await;
        let Some(inbox) = requeue.upgrade() else { return };
        for item in batch.into_iter().filter(|item| !item.reply.is_closed()) {
            // Sending fails only if the writer has stopped with the process. Then the run has stopped, too.
            let _gone = inbox.send(item);
        }
    });
}
