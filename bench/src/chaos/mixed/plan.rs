//! Plans each job before it exists: its type, how often it fails, how long it takes.
//!
//! Invariants
//! - The event carries the whole plan of its job, so a worker needs nothing else.
//! - A worker fails a job while its `retry_count` is below the planned number of failures, and otherwise completes it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::random::Random;

/// Bound to a definition: jobs for all workers.
pub(super) const SHARED: &str = "mixed.shared.added";
/// Bound to no definition: jobs for HTTP and SQL workers.
pub(super) const FOREIGN: &str = "mixed.foreign.added";
/// More failures than any job has tries.
const ALWAYS: i32 = 99;

/// How a try ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum JobResult {
    Completed,
    Failed,
}

impl JobResult {
    /// The planned result of a try, after this many failures.
    pub(super) fn of(retries: i32, fails: i32) -> JobResult {
        if retries < fails { JobResult::Failed } else { JobResult::Completed }
    }
}

/// One planned job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) event: Uuid,
    pub(super) kind: &'static str,
    pub(super) fails: i32,
    pub(super) work_ms: u64,
}

impl Plan {
    /// One in ten jobs fails: always, twice or once. One in `long_every` takes about a lease.
    pub(super) fn draw(random: &mut Random, lease: Duration, long_every: u64) -> Plan {
        let lease = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        Plan {
            event: store::new_id(),
            kind: if random.below(5) < 3 { SHARED } else { FOREIGN },
            fails: match random.below(30) {
                0 => ALWAYS,
                1 => 2,
                2 => 1,
                _ => 0,
            },
            work_ms: match random.one_in(long_every) {
                true => random.between(lease / 2, lease * 3 / 2),
                false => random.between(2, 20),
            },
        }
    }

    pub(super) fn data(&self) -> Value {
        json!({ "fails": self.fails, "work_ms": self.work_ms })
    }
}
