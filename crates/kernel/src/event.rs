//! Events that happened in a product, and the life of the job that a bound one makes.
//!
//!     pending ──claim──▶ processing ──complete──▶ completed
//!        ▲ ▲                │   └───────fail─────▶ failed
//!        │ └────recover─────┘                        │
//!        └──────────────────retry────────────────────┘   (below three failures)
//!
//! Invariants
//! - Every step of a job is itself an event, its fact; the facts of a job are its row.
//! - A failure counts one; a worker that died counts none.
//! - An id that follows from a node is the same after every crash: its event is appended once.
//!
//! Not here: the triggers that hold this on the table (`store`'s `functions/job.sql`; a test walks both), which events make
//! a job and what runs it (`event::binding`).

pub mod binding;

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::ids::{ExecutionId, NodeKey};

/// The stream type of a job's facts. Nobody else may write it.
pub const FACTS: &str = "workflow_queue";
/// A job that failed so often is not tried again.
pub const MAX_FAILURES: i32 = 3;

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

/// An event, as bindings and workflows see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub id: Uuid,
    pub kind: String,
    pub data: Value,
    pub metadata: Value,
    pub stream_id: Uuid,
    pub stream_type: String,
    pub stream_version: Option<i32>,
    pub created_at: Timestamp,
}

impl Event {
    /// What `trigger.event` and `inputs.event` are.
    pub fn scope(&self) -> Value {
        json!({
            "id": self.id,
            "type": self.kind,
            "data": self.data,
            "metadata": self.metadata,
            "stream_id": self.stream_id,
            "stream_type": self.stream_type,
            "stream_version": self.stream_version,
            "created_at": self.created_at.to_string(),
        })
    }
}

/// The seed of the id of the event that a node emits: the same whoever performs the node, and however often. The store makes the id of it.
pub fn id_of(execution: ExecutionId, node: &NodeKey, iteration: u32) -> Uuid {
    Uuid::new_v5(&execution.0, format!("{node}/{iteration}").as_bytes())
}

/// The seed of the id of an event of a request with an idempotency key, by its place in it.
pub fn id_by_key(workspace: Option<Uuid>, key: &str, place: usize) -> Uuid {
    Uuid::new_v5(&workspace.unwrap_or(Uuid::nil()), format!("{key}/{place}").as_bytes())
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

    #[test]
    fn the_id_of_a_nodes_event_follows_from_the_node() {
        let [a, b] = [1, 2].map(|n| ExecutionId(Uuid::from_u128(n)));
        let [x, y] = ["x", "y"].map(|key| NodeKey::new(key).expect("a key"));
        let ids = [id_of(a, &x, 0), id_of(a, &x, 1), id_of(a, &y, 0), id_of(b, &x, 0)];
        assert_eq!(ids[0], id_of(a, &x, 0));
        assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
    }
}
