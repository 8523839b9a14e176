//! One who follows the feed: what it wants, and the bounded queue in between.
//!
//! Invariants
//! - The queue is bounded in changes and in bytes. Full, its follower is dropped, never a change.
//! - One that was dropped learns why before anything that is still queued.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use kernel::change::cursor::Place;
use kernel::change::{Change, Topic};
use kernel::signals::metrics;
use serde_json::Value;
use supabase::payload;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Feed;

/// The most changes that may wait for one follower.
const MOST: usize = 32_768;

/// In which order changes come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// At their commit.
    Live,
    /// When everything before them is finished: one who knows its place can come back to it.
    Settled,
}

/// Why one was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    Slow,
    /// Too much waited for one transaction.
    Behind,
    Lost,
    Stopping,
}

impl Gone {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Gone::Slow => "slow",
            Gone::Behind => "behind",
            Gone::Lost => "lost",
            Gone::Stopping => "stopping",
        }
    }

    /// What a client is told.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Gone::Slow => "changes were not read fast enough; connect again and look for what is missing",
            Gone::Behind => "a transaction was open for long, and too much waited for it; connect again and read on",
            Gone::Lost => "changes may have been lost; connect again and look for what is missing",
            Gone::Stopping => "this process is stopping; connect again",
        }
    }
}

/// Which changes a follower wants.
pub(crate) type Wants = Box<dyn Fn(&Change) -> bool + Send + Sync>;

/// A change, written out once for all who are told of it.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) change: Change,
    /// What it takes in memory, about.
    pub(super) bytes: usize,
    data: OnceLock<String>,
}

impl Shown {
    pub(super) fn new(change: Change) -> Shown {
        let rows = [&change.record, &change.old].into_iter().flatten().map(heap).sum::<usize>();
        // The rows, and both written out once more.
        Shown { bytes: 256 + rows * 2, change, data: OnceLock::new() }
    }

    /// How much waits with it, about. What an execution became is short.
    fn size(&self) -> usize {
        match self.change.topic {
            Topic::Execution | Topic::Nodes => 256,
            Topic::Projection => self.data().len(),
        }
    }

    /// As the socket tells it.
    pub(crate) fn data(&self) -> &str {
        self.data.get_or_init(|| payload::data(&self.change, None))
    }
}

/// What a value takes in memory, about.
fn heap(value: &Value) -> usize {
    let inner = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(heap).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + 32 + heap(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    size_of::<Value>() + inner
}

/// What both ends share.
#[derive(Debug, Default)]
struct Link {
    bytes: AtomicUsize,
    dropped: CancellationToken,
    why: OnceLock<Gone>,
}

/// The feed's end.
pub(super) struct Follower {
    pub(super) order: Order,
    wants: Wants,
    queue: mpsc::Sender<Arc<Shown>>,
    link: Arc<Link>,
    /// The most bytes that may wait for it.
    most_bytes: usize,
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower").field("order", &self.order).finish_non_exhaustive()
    }
}

/// The follower's end. It leaves the feed when this is dropped.
#[derive(Debug)]
pub(crate) struct Following {
    pub(super) id: u64,
    /// What lies at or above this transaction comes here.
    pub(crate) from: u64,
    feed: Feed,
    queue: mpsc::Receiver<Arc<Shown>>,
    link: Arc<Link>,
}

/// What comes to a follower.
pub(crate) type Followed = Result<Arc<Shown>, Gone>;

impl Follower {
    pub(super) fn new(feed: Feed, order: Order, wants: Wants, most_bytes: usize) -> (Follower, Following) {
        let (queue, received) = mpsc::channel(MOST);
        let link = Arc::new(Link::default());
        let follower = Follower { order, wants, queue, link: Arc::clone(&link), most_bytes };
        (follower, Following { id: 0, from: 0, feed, queue: received, link })
    }

    /// Queues a change if it is wanted; false if this follower is too slow and was dropped.
    pub(super) fn take(&self, change: &Arc<Shown>) -> bool {
        if !(self.wants)(&change.change) {
            return true;
        }
        let size = change.size();
        let waiting = self.link.bytes.fetch_add(size, Ordering::Relaxed);
        // One change alone is taken whatever its size.
        let fits = waiting == 0 || waiting + size <= self.most_bytes;
        if fits && self.queue.try_send(Arc::clone(change)).is_ok() {
            return true;
        }
        ::metrics::counter!(metrics::FEED_DROPPED.name, "reason" => Gone::Slow.name()).increment(1);
        self.drop_for(Gone::Slow);
        false
    }

    /// Drops this follower, because what comes next is in the log alone; false, as `take` says it.
    pub(super) fn leave_behind(&self) -> bool {
        ::metrics::counter!(metrics::FEED_DROPPED.name, "reason" => Gone::Behind.name()).increment(1);
        self.drop_for(Gone::Behind);
        false
    }

    pub(super) fn drop_for(&self, why: Gone) {
        let _first = self.link.why.set(why);
        self.link.dropped.cancel();
    }
}

impl Following {
    /// The next change, or why there will be none. Nothing is lost if this is not waited for to its end.
    pub(crate) async fn next(&mut self) -> Followed {
        tokio::select! {
            biased;
            () = self.link.dropped.cancelled() => Err(self.why()),
            got = self.queue.recv() => match got {
                Some(change) => {
                    self.link.bytes.fetch_sub(change.size(), Ordering::Relaxed);
                    Ok(change)
                }
                None => Err(self.why()),
            },
        }
    }

    /// Waits until this follower is dropped.
    pub(crate) fn dropped(&self) -> CancellationToken {
        self.link.dropped.clone()
    }

    fn why(&self) -> Gone {
        self.link.why.get().copied().unwrap_or(Gone::Stopping)
    }

    /// A place to come back to, if everything up to it was taken.
    pub(crate) fn place(&self) -> Option<Place> {
        self.feed.place(&self.queue)
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.feed.leave(self.id);
    }
}
