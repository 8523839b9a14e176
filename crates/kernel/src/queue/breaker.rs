//! A circuit breaker: while the engine is unavailable, no start requests are sent to it.
//!
//!     closed ──unavailable──▶ open ──pause over──▶ half-open: one start is sent as the probe
//!        ▲                     ▲                     │
//!        └──── any answer ─────┼─────────────────────┤
//!                              └─ unavailable, or no answer: a longer pause
//!
//! Invariants
//! - Only an unavailable engine opens the breaker. A refused start, an ambiguous start and a full engine do not.
//! - While the breaker is not closed, at most one start is in flight. Items are claimed only if the probe needs one.
//! - Only the answer to a probe closes the breaker. The answer to a start that was sent before the breaker opened does
//!   not show whether the engine is available now.
//!
//! Not here: what an answer of the engine means for the queue item (`queue`), the clock (`server::queue::breaker`).

use std::time::Duration;

use crate::queue::StartOutcome;

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The state of the breaker. Times count from an instant that the caller chooses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    #[default]
    Closed,
    Open {
        since: Duration,
        reason: String,
        probe_at: Duration,
    },
    HalfOpen {
        since: Duration,
        reason: String,
    },
}

/// Whether a start may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    Send,
    /// Send the start as the probe, and report its outcome with `record`.
    Probe,
    /// Call `permit` again at this time; another start may have become the probe before that.
    WaitUntil(Duration),
    /// Wait until the probe is answered.
    WaitForProbe,
}

/// The breaker of one process for one engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Breaker {
    state: State,
    /// How many probes in a row failed.
    failed_probes: u32,
}

impl Breaker {
    pub fn state(&self) -> &State {
        &self.state
    }

    /// How many new items may be claimed. Closed: any number. Due for a probe: one, if no item is claimed already that
    /// can be the probe (`waiting` counts these). Otherwise none.
    pub fn claim_limit(&self, now: Duration, waiting: usize) -> usize {
        match &self.state {
            State::Closed => usize::MAX,
            State::Open { probe_at, .. } if waiting == 0 && *probe_at <= now => 1,
            State::Open { .. } | State::HalfOpen { .. } => 0,
        }
    }

    /// May a start be sent now?
    pub fn permit(&mut self, now: Duration) -> Permission {
        match &self.state {
            State::Closed => Permission::Send,
            State::HalfOpen { .. } => Permission::WaitForProbe,
            State::Open { probe_at, .. } if *probe_at > now => Permission::WaitUntil(*probe_at),
            State::Open { since, reason, .. } => {
                self.state = State::HalfOpen { since: *since, reason: reason.clone() };
                Permission::Probe
            }
        }
    }

    /// Records how the engine answered a start. `probe` means that this start was the probe.
    pub fn record(&mut self, now: Duration, answer: &StartOutcome, probe: bool) {
        match answer {
            StartOutcome::Unavailable(reason) => self.unavailable(now, reason, probe),
            StartOutcome::Ambiguous(reason) if probe => self.unavailable(now, reason, probe),
            StartOutcome::Started | StartOutcome::AlreadyStarted | StartOutcome::Refused(_) if probe => {
                *self = Breaker::default()
            }
            StartOutcome::Started
            | StartOutcome::AlreadyStarted
            | StartOutcome::Refused(_)
            | StartOutcome::Ambiguous(_) => {}
        }
    }

    /// Records that a probe was canceled before its answer. Another probe may be sent immediately.
    pub fn abandon_probe(&mut self, now: Duration) {
        if let State::HalfOpen { since, reason } = &self.state {
            self.state = State::Open { since: *since, reason: reason.clone(), probe_at: now };
        }
    }

    fn unavailable(&mut self, now: Duration, reason: &str, probe: bool) {
        let since = match &self.state {
            State::Closed => now,
            State::HalfOpen { since, .. } if probe => *since,
            // This start was sent before the breaker opened.
            State::Open { .. } | State::HalfOpen { .. } => return,
        };
        self.failed_probes = if probe { self.failed_probes.saturating_add(1) } else { 0 };
        let pause = FIRST_PAUSE.saturating_mul(2u32.saturating_pow(self.failed_probes)).min(LONGEST_PAUSE);
        self.state = State::Open { since, reason: reason.to_owned(), probe_at: now + pause };
    }
}
