//! One round of the ring: how many items its workspaces had, and how many items the next round may claim.

use std::time::Instant;

use engine::log_event;
use kernel::queue::round_robin::Quota;
use kernel::signals::{events, metrics, spans};
use tracing::Span;
use tracing::field::Empty;

use crate::config::Dispatch;

/// The fewest workspaces that a round of the largest size asks for items, so that a new workspace waits for few rounds.
const MIN_WORKSPACES: usize = 10;

/// A workspace to claim from, how many items it may give, and the number of its round.
pub(super) struct PlannedClaim {
    pub(super) quota: Quota,
    pub(super) round: u64,
}

/// One round of the ring, while its claims are in progress.
pub(super) struct Round {
    pub(super) began: Instant,
    pub(super) span: Span,
    pub(super) batch: i32,
    pub(super) claimed: i32,
    /// True if a workspace of this round has more items waiting.
    pub(super) has_waiting: bool,
    /// True if a workspace of this round has more items waiting, and free slots for them.
    pub(super) has_startable: bool,
    /// The number of workspaces whose claim is not finished.
    pub(super) open: usize,
    /// The number of workspaces in this round.
    asked: usize,
}

impl Round {
    pub(super) fn new(batch: i32, open: usize) -> Round {
        let span = tracing::debug_span!(parent: None, spans::QUEUE_PROCESSING.name, batch_size = Empty);
        Round {
            began: Instant::now(),
            span,
            batch,
            claimed: 0,
            has_waiting: false,
            has_startable: false,
            open,
            asked: open,
        }
    }

    /// How many workspaces the next round of the largest size asks for items. If this round claimed about all it could
    /// and there are more items, the next round asks fewer workspaces for more items each. In a claim, one more
    /// workspace costs more time than one more item.
    pub(super) fn next_workspaces(&self, workspaces_per_round: usize) -> usize {
        let all_given = self.claimed >= self.batch - self.batch / 4;
        match (all_given, self.has_startable) {
            (true, true) => (self.asked / 2).max(MIN_WORKSPACES),
            (true, false) => workspaces_per_round,
            (false, _) => workspaces_per_round.saturating_mul(2),
        }
    }

    /// Records the round in metrics and the log; returns how many items the next round may claim.
    pub(super) fn finish(&self, settings: &Dispatch) -> i32 {
        ::metrics::counter!(metrics::PROCESSING_PASSES.name).increment(1);
        if self.claimed > 0 {
            drop(tracing::debug_span!(parent: &self.span, spans::RELEASE_LOCK.name, lock = "shards").entered());
            self.span.record("batch_size", self.claimed);
            log_event!(events::PROCESSING; self.claimed, batch_size = self.claimed);
            ::metrics::histogram!(metrics::BATCH_SIZE.name).record(self.claimed);
            ::metrics::histogram!(metrics::PROCESSING_DURATION.name).record(self.began.elapsed());
        }
        // If items wait only for slots, the size stays: executions that end will free slots for them.
        match (self.has_startable, self.has_waiting) {
            (true, _) => (self.batch * 2).min(settings.batch_max),
            (false, true) => self.batch,
            (false, false) => (self.batch / 2).max(settings.batch_min),
        }
    }
}
