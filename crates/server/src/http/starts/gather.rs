//! Gathers starts of different requests into one commit, when many arrive at once.
//!
//! Invariants
//! - Each start keeps its own result, error and actor. The data of one start fails no other start.
//! - A gather that fails for another reason is no answer: each of its starts is then stored alone. So a start that
//!   waits for a lock delays the others by at most the lock timeout of a gather.
//! - Starts with an idempotency key are gathered apart from the others, because they may wait for a transaction that
//!   uses the same key.
//! - Workspaces take turns, and one workspace gets only a part of a gather. A large start is never gathered.
//! - A start whose client is gone is not stored, unless its gather was already sent.
//!
//! Not here: when a gather is sent (`store::batch::gather`), the statement (`store::queue::enqueue`).

use std::collections::{BTreeMap, BTreeSet};

use kernel::ids::{VersionId, WorkspaceId};
use kernel::signals::metrics;
use store::Store;
use store::batch::{BatchResult, GatherLimits, by_halves, gather};
use store::queue::enqueue::{self, CheckedStart, EnqueueOutcome, Start};
use tokio::sync::{mpsc, oneshot};
use tracing::Instrument as _;

use crate::process::notifications::Notifier;

/// The most starts of a gather.
const MOST: usize = 100;
/// The most starts of one workspace in a gather.
const SHARE: usize = 50;
/// The most bytes of one workspace in a gather. Its first start is taken whatever its size.
const SHARE_BYTES: usize = 256 << 10;
/// A start with more bytes is not gathered.
const LARGE: usize = 32 << 10;
/// The most waiting starts among which a gather chooses. Each belongs to an open connection.
const WAITING: usize = 100_000;

/// Gathers single starts. The tasks that store gathers stop when this is dropped.
#[derive(Debug)]
pub(crate) struct StartGather {
    without_key: mpsc::UnboundedSender<PendingStart>,
    with_key: mpsc::UnboundedSender<PendingStart>,
}

#[derive(Debug)]
struct PendingStart {
    start: Start,
    published: Option<VersionId>,
    actor: String,
    bytes: usize,
    reply: oneshot::Sender<BatchResult<EnqueueOutcome>>,
}

impl StartGather {
    /// `max_backlog` is the backlog limit of workspaces that have no limit of their own.
    pub(crate) fn spawn(store: &Store, notifier: &Notifier, max_backlog: Option<i32>) -> StartGather {
        let spawn = || {
            let (queue, inbox) = mpsc::unbounded_channel();
            let limits = GatherLimits { batch: MOST, waiting: WAITING };
            let (store, notifier) = (store.clone(), notifier.clone());
            tokio::spawn(gather(inbox, limits, take_batch, move |batch| {
                write_batch(store.clone(), notifier.clone(), max_backlog, batch)
            }));
            queue
        };
        StartGather { without_key: spawn(), with_key: spawn() }
    }

    /// Stores a start together with others. None: it was not stored, or nothing is known about it; store it alone.
    pub(crate) async fn store(&self, checked: &CheckedStart<'_>) -> Option<BatchResult<EnqueueOutcome>> {
        let CheckedStart { start, published, actor } = *checked;
        let bytes = size(start);
        if bytes > LARGE {
            return None;
        }
        let queue = if start.idempotency.is_some() { &self.with_key } else { &self.without_key };
        let (reply, answer) = oneshot::channel();
        queue.send(PendingStart { start: start.clone(), published, actor: actor.to_owned(), bytes, reply }).ok()?;
        answer.instrument(enqueue::span()).await.ok()
    }
}

/// The approximate size of a start, in bytes.
fn size(start: &Start) -> usize {
    512 + start.input.as_ref().map_or(0, engine::nodes::size) + engine::nodes::size(&start.trigger)
}

/// Removes the next gather from the waiting starts: one start of each workspace, then a second one of each, and so on,
/// until the gather is full or every workspace has its share. Starts whose clients are gone are dropped.
fn take_batch(waiting: &mut Vec<PendingStart>) -> Vec<PendingStart> {
    waiting.retain(|pending| !pending.reply.is_closed());
    let mut shares: BTreeMap<WorkspaceId, (usize, usize)> = BTreeMap::new();
    let mut turns: Vec<(usize, usize)> = Vec::new();
    for (at, pending) in waiting.iter().enumerate() {
        let (starts, bytes) = shares.entry(pending.start.workspace).or_default();
        (*starts, *bytes) = (*starts + 1, *bytes + pending.bytes);
        if *starts == 1 || (*starts <= SHARE && *bytes <= SHARE_BYTES) {
            turns.push((*starts, at));
        }
    }
    turns.sort_unstable();
    let chosen: BTreeSet<usize> = turns.into_iter().take(MOST).map(|(_, at)| at).collect();
    let (mut batch, mut rest) = (Vec::with_capacity(chosen.len()), Vec::new());
    for (at, pending) in std::mem::take(waiting).into_iter().enumerate() {
        if chosen.contains(&at) { &mut batch } else { &mut rest }.push(pending);
    }
    *waiting = rest;
    batch
}

/// Stores a gather and answers its requests. If it fails, no request is answered, and each stores its start alone.
async fn write_batch(store: Store, notifier: Notifier, max_backlog: Option<i32>, batch: Vec<PendingStart>) {
    if batch.is_empty() {
        return;
    }
    ::metrics::histogram!(metrics::STARTS_PER_COMMIT.name).record(u32::try_from(batch.len()).unwrap_or(u32::MAX));
    let checked: Vec<CheckedStart<'_>> = batch
        .iter()
        .map(|PendingStart { start, published, actor, .. }| CheckedStart { start, published: *published, actor })
        .collect();
    match by_halves(&checked, |some| store.enqueue_gathered(some, max_backlog)).await {
        Ok(outcomes) => {
            // Before the answers, so that one claim can take the starts of all workspaces of the gather.
            super::announce(&notifier, &checked, &outcomes);
            for (pending, outcome) in batch.into_iter().zip(outcomes) {
                // Sending fails if the client is gone.
                drop(pending.reply.send(outcome));
            }
        }
        Err(error) => tracing::debug!(
            starts = batch.len(),
            error = &error as &dyn std::error::Error,
            "Failed to store starts together; each is now stored alone"
        ),
    }
}

#[cfg(test)]
mod tests {
    use kernel::ids::{DefinitionId, ExecutionId};
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;

    type Answer = oneshot::Receiver<BatchResult<EnqueueOutcome>>;

    /// A start of this workspace with this many bytes.
    fn pending(workspace: u128, bytes: usize) -> (PendingStart, Answer) {
        let (reply, answer) = oneshot::channel();
        let start = Start {
            execution: ExecutionId(store::new_id()),
            workspace: WorkspaceId(Uuid::from_u128(workspace)),
            definition: DefinitionId(Uuid::nil()),
            input: None,
            priority: Default::default(),
            run_at: None,
            concurrency_key: None,
            idempotency: None,
            trigger: Value::Null,
            trace: None,
            version: None,
            rerun_of: None,
        };
        (PendingStart { start, published: None, actor: String::new(), bytes, reply }, answer)
    }

    /// Takes gathers until nothing waits. Both lists have a workspace and its number of starts.
    fn check(waiting: &[(u128, usize, usize)], expected: &[&[(u128, usize)]]) {
        let starts = |(workspace, many, bytes): &(u128, usize, usize)| {
            (0..*many).map(|_| pending(*workspace, *bytes)).collect::<Vec<_>>()
        };
        let (mut waiting, _clients): (Vec<PendingStart>, Vec<Answer>) = waiting.iter().flat_map(starts).unzip();
        for expected in expected {
            let mut counts: BTreeMap<u128, usize> = BTreeMap::new();
            for taken in take_batch(&mut waiting) {
                *counts.entry(taken.start.workspace.0.as_u128()).or_default() += 1;
            }
            assert_eq!(counts.into_iter().collect::<Vec<_>>(), *expected);
        }
        assert!(waiting.is_empty(), "{} starts were never taken", waiting.len());
    }

    #[test]
    fn workspaces_take_turns_and_one_gets_only_a_part_of_a_gather() {
        check(&[(1, 3, 600)], &[&[(1, 3)]]);
        check(&[(1, 120, 600)], &[&[(1, 50)], &[(1, 50)], &[(1, 20)]]);
        check(&[(1, 130, 600), (2, 1, 600)], &[&[(1, 50), (2, 1)], &[(1, 50)], &[(1, 30)]]);
        let three = [(1, 60, 600), (2, 60, 600), (3, 2, 600)];
        check(&three, &[&[(1, 49), (2, 49), (3, 2)], &[(1, 11), (2, 11)]]);
        check(&[(1, 10, 100 << 10), (2, 1, 600)], &[&[(1, 2), (2, 1)], &[(1, 2)], &[(1, 2)], &[(1, 2)], &[(1, 2)]]);
    }

    #[test]
    fn a_start_whose_client_is_gone_is_not_stored() {
        let ((first, kept), (second, gone)) = (pending(1, 600), pending(1, 600));
        let expected = first.start.execution;
        drop(gone);
        let mut waiting = vec![second, first];
        let taken: Vec<ExecutionId> = take_batch(&mut waiting).into_iter().map(|taken| taken.start.execution).collect();
        assert_eq!((taken, waiting.len()), (vec![expected], 0));
        drop(kept);
    }

    #[test]
    fn the_size_of_a_start_counts_its_input() {
        let (small, _client) = pending(1, 0);
        let large = Start { input: Some(json!("x".repeat(LARGE))), ..small.start.clone() };
        assert!(size(&small.start) < LARGE && size(&large) > LARGE);
    }
}
