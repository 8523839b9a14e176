//! A subscriber of the feed: its filter, and the bounded queue between the feed and the subscriber.
//!
//! Invariants
//! - The queue is bounded in changes and in bytes. If a change would exceed a bound, the subscriber is dropped. A
//!   change is never left out.
//! - A dropped subscriber gets the reason immediately, and no more of the changes in its queue.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use kernel::change::cursor::Position;
use kernel::change::{Change, Topic};
use kernel::signals::metrics;
use serde_json::Value;
use supabase::payload;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Feed;

/// The most changes that may wait for one subscriber.
const MAX_CHANGES: usize = 32_768;

/// The order in which a subscriber gets changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeliveryOrder {
    /// Each change is delivered when it has committed.
    AtCommit,
    /// Each change is delivered when all older transactions have ended. So a position covers everything before it, and
    /// a client can reconnect and continue at its position.
    Settled,
}

/// Why a subscriber was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DropReason {
    /// The subscriber did not read fast enough.
    Slow,
    /// More changes waited for the end of an older transaction than this process retains.
    Behind,
    /// Changes were deleted from the log before this process read them.
    Lost,
    /// This process shuts down.
    Stopping,
}

impl DropReason {
    pub(crate) fn name(self) -> &'static str {
        match self {
            DropReason::Slow => "slow",
            DropReason::Behind => "behind",
            DropReason::Lost => "lost",
            DropReason::Stopping => "stopping",
        }
    }

    /// The message for the client.
    pub(crate) fn message(self) -> &'static str {
        match self {
            DropReason::Slow => "the client did not read changes fast enough; reconnect and read the current rows",
            DropReason::Behind => {
                "too many changes waited for the end of one database transaction; reconnect and continue"
            }
            DropReason::Lost => "changes may have been lost; reconnect and read the current rows",
            DropReason::Stopping => "this server process is shutting down; reconnect",
        }
    }
}

/// Decides which changes a subscriber gets: those for which it returns true.
pub(crate) type ChangeFilter = Box<dyn Fn(&Change) -> bool + Send + Sync>;

/// A change and its text for clients, which is made once for all subscribers.
#[derive(Debug)]
pub(crate) struct PublishedChange {
    pub(crate) change: Change,
    /// The estimated number of bytes that the change takes in memory.
    pub(super) bytes: usize,
    data: OnceLock<String>,
}

impl PublishedChange {
    pub(super) fn new(change: Change) -> PublishedChange {
        let rows = [&change.record, &change.old].into_iter().flatten().map(heap_size).sum::<usize>();
        // Twice the size of the rows: once for the values, once for their text.
        PublishedChange { bytes: 256 + rows * 2, change, data: OnceLock::new() }
    }

    /// The number of bytes that the change counts in a queue. Changes of executions and nodes contain no payload, so a
    /// fixed number is enough for them.
    fn size(&self) -> usize {
        match self.change.topic {
            Topic::Execution | Topic::Nodes => 256,
            Topic::Job => self.socket_payload().len(),
        }
    }

    /// The JSON text of the change that WebSockets send.
    pub(crate) fn socket_payload(&self) -> &str {
        self.data.get_or_init(|| payload::encode_change(&self.change, None))
    }
}

/// The estimated number of bytes that a value takes in memory.
fn heap_size(value: &Value) -> usize {
    let inner = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(heap_size).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + 32 + heap_size(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    size_of::<Value>() + inner
}

/// The state that both ends of a queue share.
#[derive(Debug, Default)]
struct SharedState {
    bytes: AtomicUsize,
    dropped: CancellationToken,
    reason: OnceLock<DropReason>,
}

/// The feed's end of a subscriber's queue: the feed adds changes here.
pub(super) struct Subscriber {
    pub(super) order: DeliveryOrder,
    filter: ChangeFilter,
    queue: mpsc::Sender<Arc<PublishedChange>>,
    shared: Arc<SharedState>,
    /// The most bytes that may wait for this subscriber.
    max_bytes: usize,
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber").field("order", &self.order).finish_non_exhaustive()
    }
}

/// The subscriber's end of its queue, from which it reads changes. Dropping it unsubscribes.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(super) id: u64,
    /// The first transaction id of which this subscription delivers all changes.
    pub(crate) from: u64,
    feed: Feed,
    queue: mpsc::Receiver<Arc<PublishedChange>>,
    shared: Arc<SharedState>,
}

/// What `Subscription::next` returns: the next change, or why there will be none.
pub(crate) type NextChange = Result<Arc<PublishedChange>, DropReason>;

impl Subscriber {
    pub(super) fn new(
        feed: Feed,
        order: DeliveryOrder,
        filter: ChangeFilter,
        max_bytes: usize,
    ) -> (Subscriber, Subscription) {
        let (queue, received) = mpsc::channel(MAX_CHANGES);
        let shared = Arc::new(SharedState::default());
        let subscriber = Subscriber { order, filter, queue, shared: Arc::clone(&shared), max_bytes };
        (subscriber, Subscription { id: 0, from: 0, feed, queue: received, shared })
    }

    /// Queues a change if it passes the filter. False if the queue was full: then this subscriber is dropped.
    pub(super) fn offer(&self, change: &Arc<PublishedChange>) -> bool {
        if !(self.filter)(&change.change) {
            return true;
        }
        let size = change.size();
        let waiting = self.shared.bytes.fetch_add(size, Ordering::Relaxed);
        // An empty queue accepts a change of any size.
        let fits = waiting == 0 || waiting + size <= self.max_bytes;
        if fits && self.queue.try_send(Arc::clone(change)).is_ok() {
            return true;
        }
        ::metrics::counter!(metrics::SUBSCRIBERS_DROPPED.name, "reason" => DropReason::Slow.name()).increment(1);
        self.drop_because(DropReason::Slow);
        false
    }

    /// Drops this subscriber, because the next change was not retained; returns false, as `offer` does.
    pub(super) fn drop_behind(&self) -> bool {
        ::metrics::counter!(metrics::SUBSCRIBERS_DROPPED.name, "reason" => DropReason::Behind.name()).increment(1);
        self.drop_because(DropReason::Behind);
        false
    }

    pub(super) fn drop_because(&self, reason: DropReason) {
        let _first = self.shared.reason.set(reason);
        self.shared.dropped.cancel();
    }
}

impl Subscription {
    /// Returns the next change, or why there will be none. Dropping this future before it completes loses no change.
    pub(crate) async fn next(&mut self) -> NextChange {
        tokio::select! {
            biased;
            () = self.shared.dropped.cancelled() => Err(self.reason()),
            got = self.queue.recv() => match got {
                Some(change) => {
                    self.shared.bytes.fetch_sub(change.size(), Ordering::Relaxed);
                    Ok(change)
                }
                None => Err(self.reason()),
            },
        }
    }

    /// A token that is cancelled when the feed drops this subscriber.
    pub(crate) fn dropped(&self) -> CancellationToken {
        self.shared.dropped.clone()
    }

    fn reason(&self) -> DropReason {
        self.shared.reason.get().copied().unwrap_or(DropReason::Stopping)
    }

    /// The position at which a client can continue later. None while changes wait in the queue.
    pub(crate) fn position(&self) -> Option<Position> {
        self.feed.position(&self.queue)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.feed.unsubscribe(self.id);
    }
}
