//! One turn of the ring: who is asked, what came of it, and how much the next may ask for.

use std::time::Instant;

use engine::say;
use kernel::queue::ring::Ask;
use kernel::signals::{events, metrics, spans};
use tracing::Span;
use tracing::field::Empty;

use crate::config::Dispatch;

/// The fewest workspaces of a full turn: so that a newcomer is not many turns away.
const LEAST_WIDTH: usize = 10;

/// An ask, and the turn it belongs to.
pub(super) struct Planned {
    pub(super) ask: Ask,
    pub(super) turn: u64,
}

/// One turn of the ring.
pub(super) struct Turn {
    pub(super) began: Instant,
    pub(super) span: Span,
    pub(super) batch: i32,
    pub(super) claimed: i32,
    /// Somebody who was asked has more waiting; and slots for it.
    pub(super) waiting: bool,
    pub(super) more: bool,
    /// Asks not yet answered.
    pub(super) open: usize,
    /// Workspaces asked.
    asked: usize,
}

impl Turn {
    pub(super) fn new(batch: i32, open: usize) -> Turn {
        let span = tracing::debug_span!(parent: None, spans::QUEUE_PROCESSING.name, batch_size = Empty);
        Turn { began: Instant::now(), span, batch, claimed: 0, waiting: false, more: false, open, asked: open }
    }

    /// How many workspaces the next turn asks, when turns are as large as they may be. Those that gave
    /// all that was asked of them and have more are asked for more at once, and fewer of them: a
    /// workspace costs a claim more than an item.
    pub(super) fn width(&self, width: usize) -> usize {
        let all_given = self.claimed >= self.batch - self.batch / 4;
        match (all_given, self.more) {
            (true, true) => (self.asked / 2).max(LEAST_WIDTH),
            (true, false) => width,
            (false, _) => width.saturating_mul(2),
        }
    }

    /// Tells of the turn; answers how much the next may ask for.
    pub(super) fn answered(&self, settings: &Dispatch) -> i32 {
        ::metrics::counter!(metrics::PROCESSING_RUNS.name).increment(1);
        if self.claimed > 0 {
            drop(tracing::debug_span!(parent: &self.span, spans::RELEASE_LOCK.name, lock = "shards").entered());
            self.span.record("batch_size", self.claimed);
            say!(events::PROCESSING; self.claimed, batch_size = self.claimed);
            ::metrics::histogram!(metrics::BATCH_SIZE.name).record(self.claimed);
            ::metrics::histogram!(metrics::PROCESSING_DURATION.name).record(self.began.elapsed());
        }
        // Full workspaces free their slots as fast as they took them: they ask for no smaller turns.
        match (self.more, self.waiting) {
            (true, _) => (self.batch * 2).min(settings.batch_max),
            (false, true) => self.batch,
            (false, false) => (self.batch / 2).max(settings.batch_min),
        }
    }
}
