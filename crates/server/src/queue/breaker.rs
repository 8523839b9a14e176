//! Keeps starts back while the engine is out of reach, and says so.
//!
//! Invariants
//! - The kernel decides; here are the clock, those who wait, and what is told of it.
//! - A start that was let through tells its answer; one that breaks off before frees the probe.
//! - It is this process's own view: another may reach the engine. What is held here for longer than
//!   the stale bound is taken over there.
//!
//! Not here: when it opens and closes (`kernel::queue::breaker`).

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kernel::queue::Answer;
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
    /// Starts that are held back.
    waiting: usize,
}

impl Breaker {
    pub(crate) fn new() -> Breaker {
        let shared = Shared { origin: Instant::now(), inner: Mutex::default(), changed: watch::Sender::new(()) };
        Breaker { shared: Arc::new(shared) }
    }

    /// How many items may be claimed.
    pub(crate) fn room(&self) -> usize {
        self.with(|inner, now| inner.breaker.may_claim(now, inner.waiting))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.with(|inner, _| *inner.breaker.state() == State::Closed)
    }

    /// What people are told, if there is trouble.
    pub(crate) fn trouble(&self) -> Option<EngineState> {
        let (since, reason) = self.with(|inner, now| match inner.breaker.state() {
            State::Closed => None,
            State::Open { since, reason, .. } | State::HalfOpen { since, reason } => {
                Some((now - *since, reason.clone()))
            }
        })?;
        let since = Timestamp::now().checked_sub(since).unwrap_or(Timestamp::UNIX_EPOCH);
        Some(EngineState::Unavailable { since: format!("{since:.0}"), error: reason })
    }

    /// Rings whenever it opens or closes.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.shared.changed.subscribe()
    }

    /// Waits until a start may be sent.
    pub(crate) async fn pass(&self) -> Pass {
        let mut changes = self.changes();
        let _waiting = Waiting::new(self);
        loop {
            changes.mark_unchanged();
            let wait = match self.with(|inner, now| (inner.breaker.ask(now), now)) {
                (Permission::Go, _) => return Pass { breaker: self.clone(), probe: false },
                (Permission::Probe, _) => return Pass { breaker: self.clone(), probe: true },
                (Permission::WaitUntil(at), now) => at.saturating_sub(now),
                (Permission::Wait, _) => Duration::MAX,
            };
            tokio::select! {
                // The sender lives as long as `self`.
                _ = changes.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Looks or changes under the lock, and tells of what changed.
    fn with<T>(&self, step: impl FnOnce(&mut Inner, Duration) -> T) -> T {
        let mut inner = self.shared.inner.lock();
        let before = inner.breaker.state().clone();
        let now = self.shared.origin.elapsed();
        let answer = step(&mut inner, now);
        let after = inner.breaker.state().clone();
        drop(inner);
        if before != after {
            tell(&before, &after, now);
            self.shared.changed.send_replace(());
        }
        answer
    }
}

fn tell(before: &State, after: &State, now: Duration) {
    let (level, since) = match after {
        State::Closed => (0, None),
        State::HalfOpen { .. } => (1, None),
        State::Open { since, .. } => (2, Some(since)),
    };
    ::metrics::gauge!(metrics::BREAKER_STATE.name).set(level);
    match (before, after) {
        (State::Closed, State::Open { reason, .. }) => {
            tracing::error!(reason, "The engine is unavailable; nothing more is claimed until it answers");
        }
        (State::Open { since, .. } | State::HalfOpen { since, .. }, State::Closed) => {
            tracing::info!(seconds = (now - *since).as_secs(), "The engine is available again");
        }
        _ => tracing::debug!(?since, ?after, "The engine is still unavailable"),
    }
}

/// One start that is held back, for as long as it is.
struct Waiting<'b>(&'b Breaker);

impl Waiting<'_> {
    fn new(breaker: &Breaker) -> Waiting<'_> {
        breaker.with(|inner, _| inner.waiting += 1);
        Waiting(breaker)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.with(|inner, _| inner.waiting -= 1);
    }
}

/// Leave to send one start.
#[derive(Debug)]
pub(crate) struct Pass {
    breaker: Breaker,
    probe: bool,
}

impl Pass {
    /// What the engine answered to it.
    pub(crate) fn heard(mut self, answer: &Answer) {
        let probe = std::mem::take(&mut self.probe);
        self.breaker.with(|inner, now| inner.breaker.heard(now, answer, probe));
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if self.probe {
            self.breaker.with(|inner, now| inner.breaker.dropped(now));
        }
    }
}
