//! Whether starts are sent to the engine at all.
//!
//!     closed ──unavailable──▶ open ──pause over──▶ half-open: one start goes out as the probe
//!        ▲                     ▲                     │
//!        └──── any answer ─────┼─────────────────────┤
//!                              └─ unavailable, or no answer: a longer pause
//!
//! Invariants
//! - Only an engine that is out of reach opens it; an item's refusal, a doubtful start and a full
//!   engine do not.
//! - While it is not closed nothing is claimed and at most one start is on its way.
//! - Only a probe closes it: an answer to a start sent before the trouble says nothing of now.
//!
//! Not here: what an answer means for its item (`queue`), keeping the time (`server::queue::breaker`).

use std::time::Duration;

use crate::queue::Answer;

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Where it stands. Times are counted from a beginning that the caller chose.
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
    Go,
    /// It may, as the one that finds out; its answer is to be told.
    Probe,
    /// Not before this time, nor then if another is the probe.
    WaitUntil(Duration),
    /// Not before the probe was answered.
    Wait,
}

/// The breaker of one process for one engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Breaker {
    state: State,
    /// Probes in a row that did not help.
    failed_probes: u32,
}

impl Breaker {
    pub fn state(&self) -> &State {
        &self.state
    }

    /// May new items be claimed? With nobody waiting to be the probe, one may.
    pub fn may_claim(&self, now: Duration, waiting: usize) -> usize {
        match &self.state {
            State::Closed => usize::MAX,
            State::Open { probe_at, .. } if waiting == 0 && *probe_at <= now => 1,
            State::Open { .. } | State::HalfOpen { .. } => 0,
        }
    }

    /// Somebody wants to send a start.
    pub fn ask(&mut self, now: Duration) -> Permission {
        match &self.state {
            State::Closed => Permission::Go,
            State::HalfOpen { .. } => Permission::Wait,
            State::Open { probe_at, .. } if *probe_at > now => Permission::WaitUntil(*probe_at),
            State::Open { since, reason, .. } => {
                self.state = State::HalfOpen { since: *since, reason: reason.clone() };
                Permission::Probe
            }
        }
    }

    /// An engine answered a start.
    pub fn heard(&mut self, now: Duration, answer: &Answer, probe: bool) {
        match answer {
            Answer::Unavailable(reason) => self.unavailable(now, reason, probe),
            Answer::Ambiguous(reason) if probe => self.unavailable(now, reason, probe),
            Answer::Started | Answer::AlreadyThere | Answer::Refused(_) if probe => *self = Breaker::default(),
            Answer::Started | Answer::AlreadyThere | Answer::Refused(_) | Answer::Ambiguous(_) => {}
        }
    }

    /// A probe was given up before it was answered: another may be sent at once.
    pub fn dropped(&mut self, now: Duration) {
        if let State::HalfOpen { since, reason } = &self.state {
            self.state = State::Open { since: *since, reason: reason.clone(), probe_at: now };
        }
    }

    fn unavailable(&mut self, now: Duration, reason: &str, probe: bool) {
        let since = match &self.state {
            State::Closed => now,
            State::HalfOpen { since, .. } if probe => *since,
            // Sent before it opened, answered after.
            State::Open { .. } | State::HalfOpen { .. } => return,
        };
        self.failed_probes = if probe { self.failed_probes.saturating_add(1) } else { 0 };
        let pause = FIRST_PAUSE.saturating_mul(2u32.saturating_pow(self.failed_probes)).min(LONGEST_PAUSE);
        self.state = State::Open { since, reason: reason.to_owned(), probe_at: now + pause };
    }
}
