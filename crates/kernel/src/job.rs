//! The life of a job. A job is a row of the published table `workflow_queue_projection`: work that a domain event with
//! a binding creates.
//!
//!     pending ──claim──▶ processing ──complete──▶ completed
//!        ▲ ▲                │   └───────fail─────▶ failed
//!        │ └────recover─────┘                        │
//!        └──────────────────retry────────────────────┘   (below three failures)
//!
//! Invariants
//! - Every step of a job is itself stored as an event, called a fact. The database computes the row of the job from its
//!   facts.
//! - A failure of a job counts toward `MAX_FAILURES`; the death of its worker does not.
//!
//! Not here: the database triggers that enforce this life on the table (`store`'s `functions/shared/job.sql`; a test
//! compares both), which events create a job and what performs it (`crate::event::binding`).

pub mod query;
pub mod table;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::names::names;

/// The stream type of the facts (events) of jobs. Clients may not write events of this type.
pub const FACTS: &str = "workflow_queue";
/// A job with this many failures is not retried.
pub const MAX_FAILURES: i32 = 3;
/// The lease of a worker's claim on a job, if the job's binding sets none.
pub const USUAL_LEASE: Duration = Duration::from_secs(15 * 60);

/// The longest lease of a claim on a job.
pub const LONGEST_LEASE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The lease of a claim on a job is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be between 1 and {}", LONGEST_LEASE.as_secs())]
pub struct InvalidLease;

/// Checks the lease of a claim on a job, in seconds.
pub fn check_lease(seconds: i32) -> Result<(), InvalidLease> {
    let fine = u64::try_from(seconds).is_ok_and(|seconds| (1..=LONGEST_LEASE.as_secs()).contains(&seconds));
    if fine { Ok(()) } else { Err(InvalidLease) }
}

names! {
    /// The status of a job, as stored and shown.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = JobStatus))]
    #[serde(rename_all = "lowercase")]
    pub enum Status { Pending = "pending", Processing = "processing", Completed = "completed", Failed = "failed" }
}

names! {
    /// What may happen to a job.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Step {
        Claim,
        Complete,
        Fail,
        /// A failed job is retried.
        Retry,
        /// The worker that processed the job died, so the job is pending again.
        Recover,
    }
}

impl Status {
    /// The whole life of a job. What is not listed is illegal; a retry also needs `may_retry`.
    pub fn after(self, step: Step) -> Option<Status> {
        use {Status::*, Step::*};
        Some(match (self, step) {
            (Pending, Claim) => Processing,
            (Processing, Complete) => Completed,
            (Processing, Fail) => Failed,
            (Processing, Recover) => Pending,
            (Failed, Retry) => Pending,
            _ => return None,
        })
    }
}

/// May a job with this many failures be retried?
pub fn may_retry(failures: i32) -> bool {
    failures < MAX_FAILURES
}

/// How long a job waits after each failure before its retry; each wait is twice as long as the one before.
pub fn retry_waits(first: Duration) -> Vec<Duration> {
    (1..MAX_FAILURES).map(|failure| first * (1 << (failure - 1))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_tried_three_times_and_waits_twice_as_long_each_time() {
        assert_eq!((0..5).map(may_retry).collect::<Vec<_>>(), [true, true, true, false, false]);
        let first = Duration::from_secs(10);
        assert_eq!(retry_waits(first), [first, first * 2]);
    }

    #[test]
    fn a_lease_lasts_up_to_a_week() {
        assert_eq!([-1, 0, 1, 604_800, 604_801].map(|s| check_lease(s).is_ok()), [false, false, true, true, false]);
    }
}
