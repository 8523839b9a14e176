//! Changes that are retained in memory while an older transaction is open. Their total size is bounded.
//!
//! Invariants
//! - A change counts toward the bound from the moment when it is retained until it is published.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::PublishedChange;

/// The bound on the size of all retained changes; sizes are estimates.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// A change that waits for an older transaction to end. Its bytes are counted until this value is dropped.
#[derive(Debug)]
pub(super) struct RetainedChange {
    pub(super) change: Arc<PublishedChange>,
    counted: Arc<AtomicUsize>,
}

impl RetainedChange {
    /// Retains a change; none if that would exceed the bound.
    pub(super) fn new(change: &Arc<PublishedChange>, counted: &Arc<AtomicUsize>) -> Option<Arc<RetainedChange>> {
        let before = counted.fetch_add(change.bytes, Ordering::Relaxed);
        let kept = RetainedChange { change: Arc::clone(change), counted: Arc::clone(counted) };
        // A change that exceeds the bound is dropped here, and `drop` subtracts its bytes.
        (before + change.bytes <= MAX_BYTES).then(|| Arc::new(kept))
    }
}

impl Drop for RetainedChange {
    fn drop(&mut self) {
        self.counted.fetch_sub(self.change.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use kernel::change::cursor::Position;
    use kernel::change::{Change, Op, Topic};
    use serde_json::json;
    use uuid::Uuid;

    use super::{Arc, AtomicUsize, MAX_BYTES, Ordering, PublishedChange, RetainedChange};
    use crate::feed::subscriber::Subscriber;
    use crate::feed::{DeliveryOrder, DropReason, Feed};

    fn row(bytes: usize) -> Arc<PublishedChange> {
        Arc::new(PublishedChange::new(Change {
            position: Position::start_of(1),
            at: Timestamp::UNIX_EPOCH,
            topic: Topic::Job,
            op: Op::Insert,
            id: Uuid::nil(),
            workspace: None,
            status: None,
            record: Some(json!({ "event_data": "x".repeat(bytes) })),
            old: None,
        }))
    }

    #[test]
    fn changes_that_wait_for_an_older_transaction_are_bounded_in_bytes() {
        let (counted, mut kept) = (Arc::new(AtomicUsize::new(0)), Vec::new());
        for _ in 0..1_000 {
            kept.extend(RetainedChange::new(&row(1_000_000), &counted));
        }
        assert!((10..=32).contains(&kept.len()), "{} rows of a megabyte are kept", kept.len());
        assert!(counted.load(Ordering::Relaxed) <= MAX_BYTES);
        kept.clear();
        assert_eq!(counted.load(Ordering::Relaxed), 0, "published changes are not counted");
    }

    #[tokio::test]
    async fn a_subscriber_is_dropped_at_the_configured_limit() {
        for (most, fits) in [(1_000_000, 8..=9), (8_000_000, 70..=79)] {
            let (subscriber, mut subscription) =
                Subscriber::new(Feed::new(most), DeliveryOrder::AtCommit, Box::new(|_| true), most);
            let change = row(100_000);
            let taken = (0..1_000).take_while(|_| subscriber.offer(&change)).count();
            assert!(fits.contains(&taken), "{taken} rows of 100 kB in {most} bytes");
            assert_eq!(subscription.next().await.err(), Some(DropReason::Slow));
        }
    }
}
