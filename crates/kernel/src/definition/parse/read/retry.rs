//! The retry policy of a node. A field comes from the node's `retry`, else from the document's `defaults`, else from
//! the profile of its kind.
//!
//! Invariants
//! - Each field is inherited by itself.
//! - An `initial` that is longer than an inherited `max` raises `max`, because the author asked for that wait.
//!
//! Not here: which failures are retried (`failure`).

use std::time::Duration;

use crate::definition::fields::{CheckTime, Fields};
use crate::run::failure::Policy;

/// The longest wait between two attempts.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);
pub(in crate::definition::parse) const MAX_FACTOR: u32 = 100;

pub(in crate::definition::parse) const FIELDS: &[&str] =
    &["max_attempts", "initial", "initial_ms", "factor", "backoff", "max", "max_ms"];

/// The fields that the author set.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Retry {
    max_attempts: Option<u32>,
    initial_ms: Option<u64>,
    factor: Option<u32>,
    max_ms: Option<u64>,
}

impl Retry {
    /// These fields; a field that is not set comes from `other`.
    pub(super) fn or(self, other: Retry) -> Retry {
        Retry {
            max_attempts: self.max_attempts.or(other.max_attempts),
            initial_ms: self.initial_ms.or(other.initial_ms),
            factor: self.factor.or(other.factor),
            max_ms: self.max_ms.or(other.max_ms),
        }
    }

    /// Is more than one attempt allowed?
    pub(super) fn tries_again(self) -> bool {
        self.max_attempts != Some(1)
    }

    pub(super) fn policy(self, profile: Policy) -> Policy {
        let initial_ms = self.initial_ms.unwrap_or(profile.initial_ms);
        Policy {
            max_attempts: self.max_attempts.unwrap_or(profile.max_attempts),
            initial_ms,
            factor: self.factor.unwrap_or(profile.factor),
            max_ms: self.max_ms.unwrap_or(profile.max_ms.max(initial_ms)),
        }
    }
}

/// Reads the field `retry` of an object.
pub(super) fn read(parent: &mut Fields<'_, '_>) -> Retry {
    let (Some(value), at) = (parent.get("retry"), parent.pointer("retry")) else { return Retry::default() };
    let Some(mut fields) = Fields::open(value, &at, FIELDS, CheckTime::Run, parent.problems) else {
        return Retry::default();
    };
    let backoff = fields.choice("backoff", &[("exponential", 2), ("fixed", 1)]);
    if fields.get("backoff").is_some() && fields.get("factor").is_some() {
        fields.wrong("backoff", "give either factor or backoff, not both");
    }
    let factor = fields.count("factor", MAX_FACTOR);
    let retry = Retry {
        max_attempts: fields.count("max_attempts", Policy::MOST_ATTEMPTS),
        initial_ms: super::milliseconds(&mut fields, "initial", "initial_ms", 0, LONGEST_WAIT),
        factor: factor.or(backoff),
        max_ms: super::milliseconds(&mut fields, "max", "max_ms", 0, LONGEST_WAIT),
    };
    if let (Some(initial), Some(max)) = (retry.initial_ms, retry.max_ms)
        && initial > max
    {
        fields.wrong("initial", "is longer than max");
    }
    retry
}
