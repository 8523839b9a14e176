//! The life of a job: the work that a bound event makes, a row of the published table.
//!
//!     pending ──claim──▶ processing ──complete──▶ completed
//!        ▲ ▲                │   └───────fail─────▶ failed
//!        │ └────recover─────┘                        │
//!        └──────────────────retry────────────────────┘   (below three failures)
//!
//! Invariants
//! - Every step of a job is itself an event, its fact; the facts of a job are its row.
//! - A failure counts one; a worker that died counts none.
//!
//! Not here: the triggers that hold this on the table (`store`'s `functions/shared/job.sql`; a test walks both), which
//! events make a job and what runs it (`crate::event::binding`).

pub mod query;
pub mod table;

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The stream type of a job's facts. Nobody else may write it.
pub const FACTS: &str = "workflow_queue";
/// A job that failed so often is not tried again.
pub const MAX_FAILURES: i32 = 3;
/// For how long a claim holds a job whose binding does not say.
pub const USUAL_LEASE: Duration = Duration::from_secs(15 * 60);

/// How a job stands, as stored and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = JobStatus))]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Pending,
    Processing,
    Completed,
    Failed,
}

/// What may happen to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    Claim,
    Complete,
    Fail,
    /// A failed one is tried again.
    Retry,
    /// Its worker died.
    Recover,
}

/// A step that a status does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a {} job cannot {step:?}", from.name())]
pub struct Illegal {
    pub from: Status,
    pub step: Step,
}

impl Status {
    pub const ALL: [Status; 4] = [Status::Pending, Status::Processing, Status::Completed, Status::Failed];

    /// The name as stored and shown.
    pub fn name(self) -> &'static str {
        match self {
            Status::Pending => "pending",
            Status::Processing => "processing",
            Status::Completed => "completed",
            Status::Failed => "failed",
        }
    }

    pub fn parse(text: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.name() == text)
    }

    /// The whole life of a job. What is not listed is illegal; a retry also needs `may_retry`.
    pub fn after(self, step: Step) -> Result<Status, Illegal> {
        use {Status::*, Step::*};
        Ok(match (self, step) {
            (Pending, Claim) => Processing,
            (Processing, Complete) => Completed,
            (Processing, Fail) => Failed,
            (Processing, Recover) => Pending,
            (Failed, Retry) => Pending,
            (from, step) => return Err(Illegal { from, step }),
        })
    }
}

impl Step {
    pub const ALL: [Step; 5] = [Step::Claim, Step::Complete, Step::Fail, Step::Retry, Step::Recover];
}

/// Is a job that failed so often tried again?
pub fn may_retry(failures: i32) -> bool {
    failures < MAX_FAILURES
}

/// How long after each failure the next try is due: twice as long each time.
pub fn waits(first: Duration) -> Vec<Duration> {
    (1..MAX_FAILURES).map(|failure| first * (1 << (failure - 1))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_tried_three_times_and_waits_twice_as_long_each_time() {
        assert_eq!((0..5).map(may_retry).collect::<Vec<_>>(), [true, true, true, false, false]);
        let first = Duration::from_secs(10);
        assert_eq!(waits(first), [first, first * 2]);
    }
}
