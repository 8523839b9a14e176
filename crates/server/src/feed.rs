//! One feed of changes for this process, handed out to all who follow it here.
//!
//!     idle ──somebody follows──▶ following: drain, hand out, wait for the bell or the poll ──nobody is left──▶ idle
//!
//! Invariants
//! - Following begins at the horizon of that moment; only then is anybody let in. So whatever commits after `follow`
//!   answered is told.
//! - A bell only wakes; without one every change is still told, a poll later.
//! - The feed never waits for a follower: one whose queue is full is dropped, with the reason, and comes back by
//!   itself.
//! - A lost session changes nothing: the cursor is kept, and the next drain begins where the last one ended. A log that
//!   was emptied or pruned beyond the cursor drops everybody, because only they can look for what is missing.
//!
//! Not here: which changes and in which order (`kernel::change`), what a follower makes of them (`http`).

mod follower;
mod kept;
mod prune;

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use jiff::Timestamp;
use kernel::change::cursor::{Cursor, Place};
use kernel::signals::metrics;
use store::Store;
use store::connect::{Client, Target};
use store::feed::BELL;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use follower::Follower;
pub(crate) use follower::{Followed, Following, Gone, Order, Shown, Wants};
use kept::Kept;
pub(crate) use prune::{EVERY as PRUNE_EVERY, Pruner};

/// The longest between two looks.
const POLL: Duration = Duration::from_millis(100);
/// After a look that found something there may be more that rang no bell.
const AGAIN: Duration = Duration::from_millis(20);
/// Between two looks in any case, so that many bells in a row make one look.
const BREATH: Duration = Duration::from_millis(3);
/// After one that failed.
const REST: Duration = Duration::from_millis(500);
/// The most entries read at once; an entry has the changes of one statement.
const PAGE: usize = 200;
/// The most changes that are kept in memory while an older transaction is open (in bytes: `kept`). Of more, only the
/// places are: who follows in the settled order is dropped when they settle, comes back and reads them in the log.
const MOST_UNSETTLED: usize = 20_000;
/// How long somebody waits to be let in.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who follows. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Feed {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Somebody would like to follow.
    wanted: Notify,
    /// Changes whenever the feed begins or ends to follow.
    moved: watch::Sender<()>,
    /// The most bytes that may wait for one follower.
    most_bytes: usize,
}

#[derive(Debug, Default)]
struct State {
    /// Below it everything was handed out in the settled order. None: idle.
    low: Option<u64>,
    /// Those who wait to be let in.
    waiting: usize,
    next: u64,
    followers: BTreeMap<u64, Follower>,
}

/// Nobody can be let in: the database does not answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Away;

impl Feed {
    /// A feed that drops a follower for whom more than `most_bytes` wait.
    pub(crate) fn new(most_bytes: usize) -> Feed {
        let shared = Shared { state: Mutex::default(), wanted: Notify::new(), moved: watch::channel(()).0, most_bytes };
        Feed { shared: Arc::new(shared) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock()
    }

    /// Follows the feed: whatever commits from now on comes, if it is wanted.
    pub(crate) async fn follow(&self, order: Order, wants: Wants) -> Result<Following, Away> {
        let mut moved = self.shared.moved.subscribe();
        let _waiting = Waiting::new(self.clone());
        let (follower, mut following) = Follower::new(self.clone(), order, wants, self.shared.most_bytes);
        let mut follower = Some(follower);
        let let_in = async {
            loop {
                {
                    let mut state = self.state();
                    if let (Some(low), Some(follower)) = (state.low, follower.take_if(|_| state.low.is_some())) {
                        state.next += 1;
                        (following.id, following.from) = (state.next, low);
                        let id = state.next;
                        state.followers.insert(id, follower);
                        return;
                    }
                }
                self.shared.wanted.notify_one();
                if moved.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        match tokio::time::timeout(PATIENCE, let_in).await {
            Ok(()) => Ok(following),
            Err(_) => Err(Away),
        }
    }

    /// How far everything was handed out, if that follower has taken all that was for it.
    fn place(&self, queue: &mpsc::Receiver<Arc<Shown>>) -> Option<Place> {
        let state = self.state();
        state.low.filter(|_| queue.is_empty()).map(Place::before)
    }

    fn leave(&self, id: u64) {
        self.state().followers.remove(&id);
    }

    /// Hands changes out, each in its order, and says how far that is.
    fn hand_out(&self, fresh: &[Arc<Shown>], settled: &[Option<Arc<Shown>>], low: u64) {
        let mut state = self.state();
        state.low = Some(low);
        state.followers.retain(|_, follower| match follower.order {
            Order::Live => fresh.iter().all(|change| follower.take(change)),
            Order::Settled => settled.iter().all(|change| match change {
                Some(change) => follower.take(change),
                None => follower.leave_behind(),
            }),
        });
    }

    /// Drops everybody.
    fn drop_all(&self, why: Gone) {
        let mut state = self.state();
        state.low = None;
        for follower in std::mem::take(&mut state.followers).into_values() {
            follower.drop_for(why);
        }
    }

    /// Is there nobody left? Then the feed is idle from this moment.
    fn is_left(&self) -> bool {
        let mut state = self.state();
        let left = state.followers.is_empty() && state.waiting == 0;
        if left {
            state.low = None;
        }
        left
    }
}

/// Keeps the feed going while somebody waits to be let in.
struct Waiting(Feed);

impl Waiting {
    fn new(feed: Feed) -> Waiting {
        feed.state().waiting += 1;
        Waiting(feed)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

/// What follows the log for a feed.
pub(crate) struct Source {
    pub(crate) feed: Feed,
    pub(crate) store: Store,
    /// Where the bell is listened to; none without hints.
    pub(crate) bell: Option<Target>,
    pub(crate) stop: CancellationToken,
    /// The bytes of all changes that wait for older transactions to end.
    pub(crate) kept: Arc<AtomicUsize>,
}

/// What is to be told in the settled order; none: to be read in the log.
type Reader = Cursor<Option<Arc<Kept>>>;

type Drained = (Vec<Arc<Shown>>, Vec<Option<Arc<Shown>>>, bool);

type Bell = (Client, mpsc::UnboundedReceiver<String>);

impl Source {
    /// Follows while somebody wants it to, until told to stop.
    pub(crate) async fn run(self) {
        for why in [Gone::Slow, Gone::Behind, Gone::Lost] {
            ::metrics::counter!(metrics::FEED_DROPPED.name, "reason" => why.name()).increment(0);
        }
        loop {
            tokio::select! {
                () = self.feed.shared.wanted.notified() => {}
                () = self.stop.cancelled() => break,
            }
            self.follow().await;
        }
        self.feed.drop_all(Gone::Stopping);
    }

    async fn follow(&self) {
        let (mut cursor, mut bell, mut failing) = (None, None, false);
        while !self.stop.is_cancelled() && !self.feed.is_left() {
            self.listen(&mut bell).await;
            let rest = match self.look(&mut cursor).await {
                Ok(rest) => {
                    if std::mem::take(&mut failing) {
                        tracing::info!("The feed of changes works again");
                    }
                    rest
                }
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(error, "The feed of changes cannot be read; going on where it was");
                    }
                    REST
                }
            };
            tokio::time::sleep(rest.min(BREATH)).await;
            tokio::select! {
                () = tokio::time::sleep(rest.saturating_sub(BREATH)) => {}
                () = rung(&mut bell) => {}
                () = self.stop.cancelled() => {}
            }
        }
    }

    /// Listens for the bell again, if that ended. The poll does without.
    async fn listen(&self, bell: &mut Option<Bell>) {
        if let (None, Some(target)) = (&bell, &self.bell) {
            *bell = target.listen(&[BELL]).await.ok();
        }
    }

    /// Reads what is new and hands it out; how long may it rest now?
    async fn look(&self, cursor: &mut Option<Reader>) -> Result<Duration, store::Error> {
        let Some(reader) = cursor else {
            *cursor = Some(self.begin().await?);
            return Ok(AGAIN);
        };
        let (found, settled, more) = match self.drain(reader).await? {
            Some(read) => read,
            None => {
                tracing::warn!("The log of changes was emptied or pruned unread; whoever follows must look for itself");
                ::metrics::counter!(metrics::FEED_DROPPED.name, "reason" => Gone::Lost.name()).increment(1);
                self.feed.drop_all(Gone::Lost);
                *cursor = None;
                return Ok(Duration::ZERO);
            }
        };
        measure(&found, reader.waiting());
        self.feed.hand_out(&found, &settled, reader.low());
        Ok(match found.len() {
            0 => POLL,
            _ if more => Duration::ZERO,
            _ => AGAIN,
        })
    }

    /// Begins at the horizon. What is visible above it already is settled later and is news to nobody.
    async fn begin(&self) -> Result<Reader, store::Error> {
        let mut cursor = Cursor::new(self.store.open_log().await?.horizon);
        while let Some((_, _, true)) = self.drain(&mut cursor).await? {}
        self.feed.state().low = Some(cursor.low());
        self.feed.shared.moved.send_replace(());
        Ok(cursor)
    }

    /// What is new, what is settled by it, and whether there may be more; none if the log is not whole from the cursor
    /// on.
    async fn drain(&self, cursor: &mut Reader) -> Result<Option<Drained>, store::Error> {
        let drained = self.store.drain(cursor.low(), &cursor.drained(), PAGE).await?;
        if drained.extent.gone.is_none_or(|gone| gone >= cursor.low()) {
            return Ok(None);
        }
        let mut room = MOST_UNSETTLED.saturating_sub(cursor.waiting());
        let (mut fresh, mut places) = (Vec::new(), Vec::new());
        for change in drained.changes {
            let shown = Arc::new(Shown::new(change));
            // What is finished already is told at once, and waits for nothing.
            let settles_now = drained.all && shown.change.place.xid < drained.extent.horizon;
            let counted = if settles_now { &Arc::default() } else { &self.kept };
            let kept = if room > 0 { Kept::new(&shown, counted) } else { None };
            places.push((shown.change.place, kept));
            room = room.saturating_sub(1);
            fresh.push(shown);
        }
        let settled = cursor.take(&places, drained.extent.horizon, drained.all);
        let settled = settled.into_iter().map(|kept| kept.map(|kept| Arc::clone(&kept.shown))).collect();
        Ok(Some((fresh, settled, !drained.all)))
    }
}

/// Waits for the bell; one that is broken is taken down, and rings once, because it may have been missed.
async fn rung(bell: &mut Option<Bell>) {
    match bell {
        None => std::future::pending().await,
        Some((_, rings)) => match rings.recv().await {
            // What rang meanwhile is told by the same look.
            Some(_) => while rings.try_recv().is_ok() {},
            None => *bell = None,
        },
    }
}

fn measure(found: &[Arc<Shown>], waiting: usize) {
    let now = Timestamp::now();
    for shown in found {
        let lag = now.duration_since(shown.change.at).as_secs_f64();
        ::metrics::histogram!(metrics::FEED_LAG.name).record(lag.max(0.0));
    }
    ::metrics::counter!(metrics::FEED_CHANGES.name).increment(u64::try_from(found.len()).unwrap_or(0));
    #[expect(clippy::cast_precision_loss, reason = "a count for people")]
    ::metrics::gauge!(metrics::FEED_UNSETTLED.name).set(waiting as f64);
}
