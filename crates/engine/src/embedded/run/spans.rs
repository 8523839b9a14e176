//! Traces and measures each attempt at a node: a span while it runs, a duration when it ends.
//!
//! Invariants
//! - An attempt is reported once, with its first outcome. If the run parks or the process dies, this process reports no
//!   outcome.
//!
//! Not here: what an outcome means (`kernel::run`), its record (`record`).

use std::time::Duration;

use kernel::signals::spans;
use tokio::time::Instant;
use tracing::field::Empty;

use super::TreeDriver;
use super::frame::NodeRef;
use crate::attempt;

impl TreeDriver {
    /// Begins the span of an attempt at a node.
    pub(super) fn begin_attempt_span(&mut self, at: NodeRef, attempt: u32) -> tracing::Span {
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

    /// Ends the span of an attempt. `took`: the attempt's duration; None means the time since the span began.
    pub(super) fn end_attempt_span(&mut self, at: NodeRef, outcome: &'static str, took: Option<Duration>) {
        let Some((span, since)) = self.spans.remove(&at) else { return };
        span.record("outcome", outcome);
        let kind = self.frame(at.frame).kind(at);
        attempt::measure(kind, outcome, took.unwrap_or_else(|| since.elapsed()));
    }
}
