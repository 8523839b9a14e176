//! Settings of retries: the policy for nodes whose definition sets no `retry`.
//!
//! Invariants
//! - A version stores the policy of each node when it is published. Changing these settings changes no existing
//!   version.
//!
//! Not here: which failures are retried (`kernel::run::failure`).

use kernel::run::failure::{Policy, Profiles};
use serde::{Deserialize, Serialize};

use super::Invalid;

/// The maximum wait between two attempts: a day.
const MAX_WAIT_MS: u64 = 24 * 60 * 60 * 1_000;
const MAX_FACTOR: u32 = 100;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retry {
    pub max_attempts: u32,
    pub initial_ms: u64,
    pub factor: u32,
    pub max_ms: u64,
    pub http_max_attempts: u32,
    pub http_initial_ms: u64,
    pub http_factor: u32,
    pub http_max_ms: u64,
}

impl Default for Retry {
    fn default() -> Retry {
        let Profiles { work, http } = Profiles::default();
        Retry {
            max_attempts: work.max_attempts,
            initial_ms: work.initial_ms,
            factor: work.factor,
            max_ms: work.max_ms,
            http_max_attempts: http.max_attempts,
            http_initial_ms: http.initial_ms,
            http_factor: http.factor,
            http_max_ms: http.max_ms,
        }
    }
}

impl Retry {
    /// These settings as the kernel's retry policies.
    pub fn profiles(&self) -> Profiles {
        Profiles {
            work: Policy {
                max_attempts: self.max_attempts,
                initial_ms: self.initial_ms,
                factor: self.factor,
                max_ms: self.max_ms,
            },
            http: Policy {
                max_attempts: self.http_max_attempts,
                initial_ms: self.http_initial_ms,
                factor: self.http_factor,
                max_ms: self.http_max_ms,
            },
        }
    }

    pub(super) fn check(&self) -> Result<(), Invalid> {
        let Profiles { work, http } = self.profiles();
        let named = [
            (work, ["retry.max_attempts", "retry.factor", "retry.initial_ms", "retry.max_ms"]),
            (http, ["retry.http_max_attempts", "retry.http_factor", "retry.http_initial_ms", "retry.http_max_ms"]),
        ];
        for (policy, [attempts, factor, initial, max]) in named {
            let fail = |key, problem: String| Err(Invalid { key, problem });
            if !(1..=Policy::MOST_ATTEMPTS).contains(&policy.max_attempts) {
                let (is, max) = (policy.max_attempts, Policy::MOST_ATTEMPTS);
                return fail(attempts, format!("must be from 1 to {max}, but is {is}"));
            }
            if !(1..=MAX_FACTOR).contains(&policy.factor) {
                return fail(factor, format!("must be from 1 to {MAX_FACTOR}, but is {}", policy.factor));
            }
            if policy.max_ms > MAX_WAIT_MS {
                return fail(max, format!("must be at most {MAX_WAIT_MS} (a day), but is {}", policy.max_ms));
            }
            if policy.initial_ms > policy.max_ms {
                let (is, limit) = (policy.initial_ms, policy.max_ms);
                return fail(initial, format!("must be at most {max} ({limit}), but is {is}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_kernels_and_invalid_values_are_refused() {
        assert_eq!(Retry::default().profiles(), Profiles::default());
        assert!(Retry::default().check().is_ok());
        let bad = |change: fn(&mut Retry)| {
            let mut retry = Retry::default();
            change(&mut retry);
            retry.check().expect_err("refused").key
        };
        assert_eq!(bad(|retry| retry.max_attempts = 0), "retry.max_attempts");
        assert_eq!(bad(|retry| retry.http_max_attempts = 101), "retry.http_max_attempts");
        assert_eq!(bad(|retry| retry.factor = 0), "retry.factor");
        assert_eq!(bad(|retry| retry.http_initial_ms = 60_001), "retry.http_initial_ms");
        assert_eq!(bad(|retry| retry.max_ms = MAX_WAIT_MS + 1), "retry.max_ms");
    }
}
