//! Who was claimed and has not yet been offered to the engine: how many are sent at once, and how many more may be
//! claimed.
//!
//! Invariants
//! - However many claims there are, no more starts are under way than the setting says.
//! - What is claimed ahead is bounded: an item that waits here holds a slot, and its turn was decided when it was
//!   claimed.
//! - Claims come in batches: nothing more is claimed until half of the line has gone.
//!
//! Not here: whether the engine can be reached (`breaker`), what it can hold (`Engine::capacity`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::process::hints::Hints;

/// How many times what is sent at once may be claimed ahead: enough for the next claim to come in time.
const AHEAD: usize = 8;

/// The line of this process. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    sending: Semaphore,
    /// Claimed and not yet answered.
    open: AtomicUsize,
    most: usize,
    hints: Hints,
}

/// An item's place in the line, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<Shared>);

impl Line {
    /// A line of which so many are sent at once. It tells the dispatcher when there is room again.
    pub(crate) fn new(at_once: usize, hints: Hints) -> Line {
        let (sending, open) = (Semaphore::new(at_once.min(Semaphore::MAX_PERMITS)), AtomicUsize::new(0));
        Line { shared: Arc::new(Shared { sending, open, most: at_once.saturating_mul(AHEAD), hints }) }
    }

    /// How many more may be claimed.
    pub(crate) fn room(&self) -> usize {
        match self.shared.open.load(Ordering::Relaxed) {
            open if open > self.shared.half() => 0,
            open => self.shared.most - open,
        }
    }

    /// A place for an item that was claimed; one that was claimed elsewhere has one too, whatever room there is.
    pub(crate) fn join(&self) -> Place {
        self.shared.open.fetch_add(1, Ordering::Relaxed);
        Place(Arc::clone(&self.shared))
    }

    /// Waits for the turn of one start; it lasts until the answer is there.
    pub(crate) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.shared.sending.acquire().await.ok()
    }
}

impl Shared {
    fn half(&self) -> usize {
        self.most / 2
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.0.open.fetch_sub(1, Ordering::Relaxed) == self.0.half() + 1 {
            self.0.hints.room();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::process::hints::Hint;

    #[tokio::test]
    async fn half_of_the_line_goes_before_more_is_claimed_and_the_dispatcher_is_told_once() {
        let (sender, mut inbox) = mpsc::unbounded_channel();
        let line = Line::new(2, Hints::new(Some(sender), None));
        assert_eq!(line.room(), 16);
        let mut places: Vec<Place> = (0..16).map(|_| line.join()).collect();
        assert_eq!(line.room(), 0);
        places.truncate(9);
        assert_eq!((line.room(), inbox.try_recv().is_err()), (0, true), "not yet");
        places.pop();
        assert_eq!((line.room(), inbox.try_recv()), (8, Ok(Hint::Room)));
        places.clear();
        assert_eq!((line.room(), inbox.try_recv().is_err()), (16, true));
    }

    #[tokio::test]
    async fn no_more_are_sent_at_once_than_the_setting_says() {
        let line = Line::new(2, Hints::new(None, None));
        let (one, _two) = (line.turn().await, line.turn().await);
        assert!(futures_util::FutureExt::now_or_never(line.turn()).is_none());
        drop(one);
        assert!(futures_util::FutureExt::now_or_never(line.turn()).is_some());
    }
}
