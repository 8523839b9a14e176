//! What is told of each attempt at a node: a span while it lasts, a duration when it ends.
//!
//! Invariants
//! - An attempt is told once, with the outcome that came first; one that is parked, or whose process
//!   dies, has no outcome here.
//!
//! Not here: what an outcome means (`kernel::run`), its record (`record`).

use std::time::Duration;

use kernel::signals::spans;
use tokio::time::Instant;
use tracing::field::Empty;

use super::Driver;
use super::frame::At;
use crate::attempt;

impl Driver {
    /// An attempt at a node begins.
    pub(super) fn begin(&mut self, at: At, attempt: u32) -> tracing::Span {
        let frame = self.frame(at.frame);
        let (kind, node) = (frame.kind(at).name(), frame.key(at));
        let span = match &frame.span {
            None => tracing::info_span!(spans::RUN_NODE.name, node = %node, kind, attempt, outcome = Empty),
            Some(run) => {
                tracing::info_span!(parent: run, spans::RUN_NODE.name, node = %node, kind, attempt, outcome = Empty)
            }
        };
        self.spans.insert(at, (span.clone(), Instant::now()));
        span
    }

    /// An attempt at a node came to its end; `took` if it is not simply the time since it began.
    pub(super) fn tell(&mut self, at: At, outcome: &'static str, took: Option<Duration>) {
        let Some((span, since)) = self.spans.remove(&at) else { return };
        span.record("outcome", outcome);
        let kind = self.frame(at.frame).kind(at);
        attempt::measure(kind, outcome, took.unwrap_or_else(|| since.elapsed()));
    }
}
