//! The change feed: one reader of the change log in this process, for all subscribers of this process.
//!
//!     idle ──first subscriber──▶ following: read, publish, wait for a notification or the poll ──no subscriber──▶ idle
//!
//! Invariants
//! - The reader begins at the horizon: the oldest transaction that is still open. A subscriber is admitted only after
//!   that, so it gets every change that commits after `subscribe` has returned.
//! - A notification only wakes the reader. If a notification is lost, its changes are published at the next poll.
//! - The feed never waits for a subscriber. A subscriber whose queue is full is dropped and gets the reason. Its client
//!   has to subscribe again.
//! - After a lost database session the reader continues at its cursor, so no change is lost. If changes after the
//!   cursor were deleted from the log, every subscriber is dropped, because only a client can read the rows that it
//!   missed.
//!
//! Not here: which changes there are and their order (`kernel::change`), what subscribers do with them (`http`).

mod prune;
mod retained;
mod subscriber;

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use jiff::Timestamp;
use kernel::change::cursor::{Cursor, Position};
use kernel::signals::metrics;
use store::Store;
use store::connect::{Client, Target};
use store::feed::CHANGE_CHANNEL;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

pub(crate) use prune::{ChangeLogPruner, EVERY as PRUNE_EVERY};
use retained::RetainedChange;
use subscriber::Subscriber;
pub(crate) use subscriber::{ChangeFilter, DeliveryOrder, DropReason, NextChange, PublishedChange, Subscription};

/// The longest time between two reads.
const POLL: Duration = Duration::from_millis(100);
/// The time from a read that found changes to the next read. It is short, because more changes may follow without a
/// notification.
const POLL_AFTER_CHANGES: Duration = Duration::from_millis(20);
/// The shortest time between two reads, so that many notifications cause one read.
const MIN_PAUSE: Duration = Duration::from_millis(3);
/// The time from a failed read to the next read.
const ERROR_PAUSE: Duration = Duration::from_millis(500);
/// The most log entries in one read. One entry holds the changes of one SQL statement.
const PAGE: usize = 200;
/// The most changes that are retained in memory while an older transaction is open (`retained` limits their bytes). Of
/// further changes only the positions are kept. When such a change settles, subscribers in settled order are dropped,
/// because the feed no longer has the change. They read it from the log after they have subscribed again.
const MAX_UNSETTLED: usize = 20_000;
/// How long a new subscriber waits at most to be admitted.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The subscribers of this process. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Feed {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Notified when a subscriber waits to be admitted.
    subscribe_requested: Notify,
    /// Changes when the reader has begun to follow the log.
    state_changed: watch::Sender<()>,
    /// The most bytes that may wait for one subscriber.
    max_bytes: usize,
}

#[derive(Debug, Default)]
struct State {
    /// All changes of transactions before this transaction id were published in settled order. None if the feed is
    /// idle.
    low: Option<u64>,
    /// The number of subscribers that wait to be admitted.
    waiting: usize,
    next: u64,
    subscribers: BTreeMap<u64, Subscriber>,
}

/// The error of `Feed::subscribe`: the subscriber was not admitted in time, because the database does not answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FeedUnavailable;

impl Feed {
    /// A feed that drops a subscriber when more than `max_bytes` bytes of changes wait for it.
    pub(crate) fn new(max_bytes: usize) -> Feed {
        let shared = Shared {
            state: Mutex::default(),
            subscribe_requested: Notify::new(),
            state_changed: watch::channel(()).0,
            max_bytes,
        };
        Feed { shared: Arc::new(shared) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock()
    }

    /// Subscribes to all changes that pass the filter and commit after this returns.
    pub(crate) async fn subscribe(
        &self,
        order: DeliveryOrder,
        filter: ChangeFilter,
    ) -> Result<Subscription, FeedUnavailable> {
        let mut state_changed = self.shared.state_changed.subscribe();
        let _waiting = PendingSubscription::new(self.clone());
        let (subscriber, mut subscription) = Subscriber::new(self.clone(), order, filter, self.shared.max_bytes);
        let mut subscriber = Some(subscriber);
        let admission = async {
            loop {
                {
                    let mut state = self.state();
                    if let (Some(low), Some(subscriber)) = (state.low, subscriber.take_if(|_| state.low.is_some())) {
                        state.next += 1;
                        (subscription.id, subscription.from) = (state.next, low);
                        let id = state.next;
                        state.subscribers.insert(id, subscriber);
                        return;
                    }
                }
                self.shared.subscribe_requested.notify_one();
                if state_changed.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        match tokio::time::timeout(SUBSCRIBE_TIMEOUT, admission).await {
            Ok(()) => Ok(subscription),
            Err(_) => Err(FeedUnavailable),
        }
    }

    /// The position up to which all changes were published. None while changes wait in the subscriber's queue.
    fn position(&self, queue: &mpsc::Receiver<Arc<PublishedChange>>) -> Option<Position> {
        let state = self.state();
        state.low.filter(|_| queue.is_empty()).map(Position::start_of)
    }

    fn unsubscribe(&self, id: u64) {
        self.state().subscribers.remove(&id);
    }

    /// Queues changes for each subscriber: `fresh` or `settled`, as its delivery order demands. Then `low` is stored as
    /// the transaction before which everything was published.
    fn publish(&self, fresh: &[Arc<PublishedChange>], settled: &[Option<Arc<PublishedChange>>], low: u64) {
        let mut state = self.state();
        state.low = Some(low);
        state.subscribers.retain(|_, subscriber| match subscriber.order {
            DeliveryOrder::AtCommit => fresh.iter().all(|change| subscriber.offer(change)),
            DeliveryOrder::Settled => settled.iter().all(|change| match change {
                Some(change) => subscriber.offer(change),
                None => subscriber.drop_behind(),
            }),
        });
    }

    /// Drops all subscribers for this reason.
    fn drop_subscribers(&self, reason: DropReason) {
        let mut state = self.state();
        state.low = None;
        for subscriber in std::mem::take(&mut state.subscribers).into_values() {
            subscriber.drop_because(reason);
        }
    }

    /// Makes the feed idle if there is no subscriber, admitted or waiting. True if the feed is idle now.
    fn go_idle_if_unused(&self) -> bool {
        let mut state = self.state();
        let unused = state.subscribers.is_empty() && state.waiting == 0;
        if unused {
            state.low = None;
        }
        unused
    }
}

/// Counts a subscriber as waiting until this value is dropped, so that the feed does not become idle before the
/// subscriber is admitted.
struct PendingSubscription(Feed);

impl PendingSubscription {
    fn new(feed: Feed) -> PendingSubscription {
        feed.state().waiting += 1;
        PendingSubscription(feed)
    }
}

impl Drop for PendingSubscription {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

/// Reads the change log for a feed.
pub(crate) struct FeedReader {
    pub(crate) feed: Feed,
    pub(crate) store: Store,
    /// The database address at which to LISTEN for notifications; none if `dispatch.notifications` is off.
    pub(crate) listener: Option<Target>,
    pub(crate) stop: CancellationToken,
    /// The size of all changes that are retained until older transactions end.
    pub(crate) retained_bytes: Arc<AtomicUsize>,
}

/// The cursor in the log, with the changes that have not settled. `None` stands for a change that was not retained.
type LogCursor = Cursor<Option<Arc<RetainedChange>>>;

/// The new changes, the changes that are now settled, and whether there may be more.
type DrainedChanges = (Vec<Arc<PublishedChange>>, Vec<Option<Arc<PublishedChange>>>, bool);

type Listener = (Client, mpsc::UnboundedReceiver<String>);

impl FeedReader {
    /// Follows the log while there are subscribers, until `stop` is cancelled.
    pub(crate) async fn run(self) {
        for reason in [DropReason::Slow, DropReason::Behind, DropReason::Lost] {
            ::metrics::counter!(metrics::SUBSCRIBERS_DROPPED.name, "reason" => reason.name()).increment(0);
        }
        loop {
            tokio::select! {
                () = self.feed.shared.subscribe_requested.notified() => {}
                () = self.stop.cancelled() => break,
            }
            self.follow_log().await;
        }
        self.feed.drop_subscribers(DropReason::Stopping);
    }

    async fn follow_log(&self) {
        let (mut cursor, mut listener, mut failing) = (None, None, false);
        while !self.stop.is_cancelled() && !self.feed.go_idle_if_unused() {
            self.listen(&mut listener).await;
            let pause = match self.poll_log(&mut cursor).await {
                Ok(pause) => {
                    if std::mem::take(&mut failing) {
                        tracing::info!("The change feed has recovered");
                    }
                    pause
                }
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(error, "The change feed cannot read changes; retrying from the same position");
                    }
                    ERROR_PAUSE
                }
            };
            tokio::time::sleep(pause.min(MIN_PAUSE)).await;
            tokio::select! {
                () = tokio::time::sleep(pause.saturating_sub(MIN_PAUSE)) => {}
                () = notified(&mut listener) => {}
                () = self.stop.cancelled() => {}
            }
        }
    }

    /// Opens the connection that listens for notifications, if it is not open. If that fails, the poll finds the
    /// changes.
    async fn listen(&self, listener: &mut Option<Listener>) {
        if let (None, Some(target)) = (&listener, &self.listener) {
            *listener = target.listen(&[CHANGE_CHANNEL]).await.ok();
        }
    }

    /// Reads new changes and publishes them; returns the time to the next read.
    async fn poll_log(&self, cursor: &mut Option<LogCursor>) -> Result<Duration, store::Error> {
        let Some(position) = cursor else {
            *cursor = Some(self.begin().await?);
            return Ok(POLL_AFTER_CHANGES);
        };
        let (found, settled, more) = match self.drain(position).await? {
            Some(read) => read,
            None => {
                tracing::warn!(
                    "The change log was pruned before this process read it; all clients of the change feed are \
                     disconnected and must read their data again"
                );
                ::metrics::counter!(metrics::SUBSCRIBERS_DROPPED.name, "reason" => DropReason::Lost.name())
                    .increment(1);
                self.feed.drop_subscribers(DropReason::Lost);
                *cursor = None;
                return Ok(Duration::ZERO);
            }
        };
        measure(&found, position.waiting());
        self.feed.publish(&found, &settled, position.low());
        Ok(match found.len() {
            0 => POLL,
            _ if more => Duration::ZERO,
            _ => POLL_AFTER_CHANGES,
        })
    }

    /// Opens a cursor at the horizon, and reads the changes above the horizon that are already visible. No subscriber
    /// needs these changes, because they were committed before any subscriber was admitted.
    async fn begin(&self) -> Result<LogCursor, store::Error> {
        let mut cursor = Cursor::new(self.store.open_log().await?.horizon);
        while let Some((_, _, true)) = self.drain(&mut cursor).await? {}
        self.feed.state().low = Some(cursor.low());
        self.feed.shared.state_changed.send_replace(());
        Ok(cursor)
    }

    /// Reads one page of new changes, and moves the cursor. None if changes after the cursor are missing from the log.
    async fn drain(&self, cursor: &mut LogCursor) -> Result<Option<DrainedChanges>, store::Error> {
        let drained = self.store.drain_log(cursor.low(), &cursor.drained(), PAGE).await?;
        if drained.extent.pruned.is_none_or(|gone| gone >= cursor.low()) {
            return Ok(None);
        }
        let mut room = MAX_UNSETTLED.saturating_sub(cursor.waiting());
        let (mut fresh, mut positions) = (Vec::new(), Vec::new());
        for change in drained.changes {
            let change = Arc::new(PublishedChange::new(change));
            // A change that is already settled is published immediately, so its bytes do not count as retained.
            let settles_now = drained.all && change.change.position.xid < drained.extent.horizon;
            let counted = if settles_now { &Arc::default() } else { &self.retained_bytes };
            let retained = if room > 0 { RetainedChange::new(&change, counted) } else { None };
            positions.push((change.change.position, retained));
            room = room.saturating_sub(1);
            fresh.push(change);
        }
        let settled = cursor.advance(&positions, drained.extent.horizon, drained.all);
        let settled =
            settled.into_iter().map(|retained| retained.map(|retained| Arc::clone(&retained.change))).collect();
        Ok(Some((fresh, settled, !drained.all)))
    }
}

/// Waits for a notification. Losing the connection also ends the wait, because a notification may have been lost with
/// it.
async fn notified(listener: &mut Option<Listener>) {
    match listener {
        None => std::future::pending().await,
        Some((_, notifications)) => match notifications.recv().await {
            // The next read covers all notifications that have arrived.
            Some(_) => while notifications.try_recv().is_ok() {},
            None => *listener = None,
        },
    }
}

fn measure(found: &[Arc<PublishedChange>], waiting: usize) {
    let now = Timestamp::now();
    for change in found {
        let lag = now.duration_since(change.change.at).as_secs_f64();
        ::metrics::histogram!(metrics::CHANGE_LAG.name).record(lag.max(0.0));
    }
    ::metrics::counter!(metrics::CHANGES_READ.name).increment(u64::try_from(found.len()).unwrap_or(0));
    #[expect(clippy::cast_precision_loss, reason = "a count for people")]
    ::metrics::gauge!(metrics::CHANGES_PENDING.name).set(waiting as f64);
}
