//! The circuit breaker: it holds start requests back while the engine cannot be reached, and logs when it opens and
//! closes.
//!
//! Invariants
//! - The kernel decides when the breaker opens and closes. This module adds the clock, the start requests that wait,
//!   and the log lines and metrics.
//! - A start request with a permit records the engine's answer. If the request is aborted before, dropping its permit
//!   lets another request become the probe.
//! - Each process has a breaker of its own, because another process may still reach the engine. Items that are held
//!   here for longer than `dispatch.stale_after_ms` are taken over by another process.
//!
//! Not here: when it opens and closes (`kernel::queue::breaker`).

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kernel::queue::StartOutcome;
use kernel::queue::breaker::{self, Permission, State};
use kernel::queue::explain::EngineState;
use kernel::signals::metrics;
use tokio::sync::watch;

/// The breaker of this process. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Breaker {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    origin: Instant,
    inner: Mutex<Inner>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Inner {
    breaker: breaker::Breaker,
    /// The number of start requests that are held back.
    held: usize,
}

impl Breaker {
    pub(crate) fn new() -> Breaker {
        let shared = Shared { origin: Instant::now(), inner: Mutex::default(), changed: watch::Sender::new(()) };
        Breaker { shared: Arc::new(shared) }
    }

    /// How many more items may be claimed.
    pub(crate) fn claim_limit(&self) -> usize {
        self.with(|inner, now| inner.breaker.claim_limit(now, inner.held))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.with(|inner, _| *inner.breaker.state() == State::Closed)
    }

    /// Since when and why the engine is unavailable; none while the breaker is closed.
    pub(crate) fn unavailability(&self) -> Option<EngineState> {
        let (since, reason) = self.with(|inner, now| match inner.breaker.state() {
            State::Closed => None,
            State::Open { since, reason, .. } | State::HalfOpen { since, reason } => {
                Some((now - *since, reason.clone()))
            }
        })?;
        let since = Timestamp::now().checked_sub(since).unwrap_or(Timestamp::UNIX_EPOCH);
        Some(EngineState::Unavailable { since: format!("{since:.0}"), error: reason })
    }

    /// A receiver that is notified when the breaker changes its state.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.shared.changed.subscribe()
    }

    /// Waits until a start request may be sent.
    pub(crate) async fn permit(&self) -> StartPermit {
        let mut changes = self.changes();
        let _held = HeldStart::new(self);
        loop {
            changes.mark_unchanged();
            let wait = match self.with(|inner, now| (inner.breaker.permit(now), now)) {
                (Permission::Send, _) => return StartPermit { breaker: self.clone(), probe: false },
                (Permission::Probe, _) => return StartPermit { breaker: self.clone(), probe: true },
                (Permission::WaitUntil(at), now) => at.saturating_sub(now),
                (Permission::WaitForProbe, _) => Duration::MAX,
            };
            tokio::select! {
                // `changed` cannot fail, because `self` holds the sender.
                _ = changes.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Reads or changes the breaker under its lock. If its state has changed, logs that and notifies the receivers.
    fn with<T>(&self, step: impl FnOnce(&mut Inner, Duration) -> T) -> T {
        let mut inner = self.shared.inner.lock();
        let before = inner.breaker.state().clone();
        let now = self.shared.origin.elapsed();
        let answer = step(&mut inner, now);
        let after = inner.breaker.state().clone();
        drop(inner);
        if before != after {
            report_change(&before, &after, now);
            self.shared.changed.send_replace(());
        }
        answer
    }
}

fn report_change(before: &State, after: &State, now: Duration) {
    let (level, since) = match after {
        State::Closed => (0, None),
        State::HalfOpen { .. } => (1, None),
        State::Open { since, .. } => (2, Some(since)),
    };
    ::metrics::gauge!(metrics::BREAKER_STATE.name).set(level);
    match (before, after) {
        (State::Closed, State::Open { reason, .. }) => {
            tracing::error!(reason, "Engine is unavailable; this process claims nothing more until the engine answers");
        }
        (State::Open { since, .. } | State::HalfOpen { since, .. }, State::Closed) => {
            tracing::info!(seconds = (now - *since).as_secs(), "Engine is available again");
        }
        _ => tracing::debug!(?since, ?after, "Engine is still unavailable"),
    }
}

/// Counts one start request as held back, until this is dropped.
struct HeldStart<'b>(&'b Breaker);

impl HeldStart<'_> {
    fn new(breaker: &Breaker) -> HeldStart<'_> {
        breaker.with(|inner, _| inner.held += 1);
        HeldStart(breaker)
    }
}

impl Drop for HeldStart<'_> {
    fn drop(&mut self) {
        self.0.with(|inner, _| inner.held -= 1);
    }
}

/// The right to send one start request to the engine.
#[derive(Debug)]
pub(crate) struct StartPermit {
    breaker: Breaker,
    probe: bool,
}

impl StartPermit {
    /// Records the engine's answer to the start request.
    pub(crate) fn record_answer(mut self, answer: &StartOutcome) {
        let probe = std::mem::take(&mut self.probe);
        self.breaker.with(|inner, now| inner.breaker.record(now, answer, probe));
    }
}

impl Drop for StartPermit {
    fn drop(&mut self) {
        if self.probe {
            self.breaker.with(|inner, now| inner.breaker.abandon_probe(now));
        }
    }
}
