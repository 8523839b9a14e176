//! What is kept in memory while an older transaction is open, bounded in bytes.
//!
//! Invariants
//! - The bytes of all that is kept are counted, from the moment it is kept until it is handed out.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Shown;

/// About the most bytes.
const MOST_BYTES: usize = 32 * 1024 * 1024;

/// A change that waits for an older transaction to end; its bytes are counted while it does.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) shown: Arc<Shown>,
    counted: Arc<AtomicUsize>,
}

impl Kept {
    /// None if too much is kept already.
    pub(super) fn new(shown: &Arc<Shown>, counted: &Arc<AtomicUsize>) -> Option<Arc<Kept>> {
        let before = counted.fetch_add(shown.bytes, Ordering::Relaxed);
        let kept = Kept { shown: Arc::clone(shown), counted: Arc::clone(counted) };
        // One that does not fit is dropped here, and no longer counted.
        (before + shown.bytes <= MOST_BYTES).then(|| Arc::new(kept))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.counted.fetch_sub(self.shown.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use kernel::change::cursor::Place;
    use kernel::change::{Change, Op, Topic};
    use serde_json::json;
    use uuid::Uuid;

    use super::{Arc, AtomicUsize, Kept, MOST_BYTES, Ordering, Shown};
    use crate::feed::follower::Follower;
    use crate::feed::{Feed, Gone, Order};

    fn row(bytes: usize) -> Arc<Shown> {
        Arc::new(Shown::new(Change {
            place: Place::before(1),
            at: Timestamp::UNIX_EPOCH,
            topic: Topic::Projection,
            op: Op::Insert,
            id: Uuid::nil(),
            workspace: None,
            status: None,
            record: Some(json!({ "event_data": "x".repeat(bytes) })),
            old: None,
        }))
    }

    #[test]
    fn what_waits_for_an_older_transaction_is_bounded_in_bytes() {
        let (counted, mut kept) = (Arc::new(AtomicUsize::new(0)), Vec::new());
        for _ in 0..1_000 {
            kept.extend(Kept::new(&row(1_000_000), &counted));
        }
        assert!((10..=32).contains(&kept.len()), "{} rows of a megabyte are kept", kept.len());
        assert!(counted.load(Ordering::Relaxed) <= MOST_BYTES);
        kept.clear();
        assert_eq!(counted.load(Ordering::Relaxed), 0, "what was handed out is not counted");
    }

    #[tokio::test]
    async fn a_follower_is_dropped_at_the_bound_that_is_set() {
        for (most, fits) in [(1_000_000, 8..=9), (8_000_000, 70..=79)] {
            let (follower, mut following) = Follower::new(Feed::new(most), Order::Live, Box::new(|_| true), most);
            let change = row(100_000);
            let taken = (0..1_000).take_while(|_| follower.take(&change)).count();
            assert!(fits.contains(&taken), "{taken} rows of 100 kB in {most} bytes");
            assert_eq!(following.next().await.err(), Some(Gone::Slow));
        }
    }
}
