//! The life of a queue item: from the accepted request until the item is completed or has failed.
//!
//!     pending ──claim──▶ claimed ──dispatch──▶ dispatched ──complete──▶ gone
//!        ▲                │  ▲ └────fail────▶ failed ◀────fail────┘
//!        └────requeue─────┘  └ takeover
//!
//!     pending ──fail──▶ failed ──dismiss (a person), retire (retention)──▶ gone
//!     pending, claimed or dispatched ──cancel──▶ gone
//!
//! Invariants
//! - Only the current claim moves a claimed item.
//! - Only a start that the engine refuses counts as an attempt. Waiting and crashes do not count, because the item did
//!   not cause them.
//! - A claimed or dispatched item holds a slot. The slot is not freed while a run of the item may be alive.
//!
//! Not here: SQL (`store::queue`), when to look for work (`server::queue::dispatch`).

pub mod breaker;
pub mod explain;
pub mod idempotency;
pub mod round_robin;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::names::names;
use crate::run::failure;

names! {
    /// A queue item's status as stored and shown.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = QueueStatus))]
    #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
    pub enum Status {
        Pending = "PENDING",
        Claimed = "CLAIMED",
        Dispatched = "DISPATCHED",
        Failed = "FAILED",
        /// The row is deleted; the execution keeps the outcome.
        Gone = "GONE",
    }
}

names! {
    /// What may happen to a queue item.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Step { Claim, Takeover, Dispatch, Requeue, Complete, Cancel, Fail, Dismiss, Retire }
}

impl Status {
    /// The whole life of a queue item. What is not listed is illegal.
    pub fn after(self, step: Step) -> Option<Status> {
        use {Status::*, Step::*};
        Some(match (self, step) {
            (Pending, Claim) => Claimed,
            (Claimed, Takeover) => Claimed,
            (Claimed, Dispatch) => Dispatched,
            (Claimed, Requeue) => Pending,
            (Pending | Claimed | Dispatched, Complete | Cancel) => Gone,
            (Pending | Claimed | Dispatched, Fail) => Failed,
            (Failed, Dismiss | Retire) => Gone,
            _ => return None,
        })
    }

    /// Does an item in this status hold one of its workspace's slots?
    pub fn holds_slot(self) -> bool {
        matches!(self, Status::Claimed | Status::Dispatched)
    }
}

/// What a queue item waits for. Each stage has its own partial index, so a claim does not read items that cannot start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Ready,
    /// Waits for a time: a delayed start, or the backoff after a refusal.
    Delayed,
    /// The limit of its concurrency key is reached.
    WaitsForKey,
    /// The limit of its definition is reached, or the definition is paused.
    WaitsForDefinition,
    HoldsSlot,
    Failed,
}

impl Stage {
    /// The value of the stage in the column `stage`.
    pub fn code(self) -> i16 {
        match self {
            Stage::Ready => 0,
            Stage::Delayed => 1,
            Stage::WaitsForKey => 2,
            Stage::WaitsForDefinition => 3,
            Stage::HoldsSlot => 5,
            Stage::Failed => 9,
        }
    }

    pub fn from_code(code: i16) -> Option<Stage> {
        [Stage::Ready, Stage::Delayed, Stage::WaitsForKey, Stage::WaitsForDefinition, Stage::HoldsSlot, Stage::Failed]
            .into_iter()
            .find(|stage| stage.code() == code)
    }
}

/// How an engine answered the request to start an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartOutcome {
    /// The execution runs now.
    Started,
    /// The execution was started before; it is running or has ended.
    AlreadyStarted,
    /// The engine cannot start this item. The cause is the item itself.
    Refused(String),
    /// The engine can start nothing now. The cause is the engine or its configuration.
    Unavailable(String),
    /// The execution may or may not have been started.
    Ambiguous(String),
}

/// What to do with the item after an engine's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartDecision {
    MarkDispatched,
    /// Return the item to PENDING after a backoff; this spends one attempt.
    Requeue {
        reason: String,
        backoff: Duration,
    },
    /// Mark the item FAILED: this was the last attempt.
    GiveUp {
        reason: String,
    },
    /// Keep claim and slot: the engine as a whole is unavailable.
    Hold {
        reason: String,
    },
    /// Keep claim and slot, and repeat the idempotent start.
    Repeat {
        reason: String,
    },
    /// Ask the engine whether an earlier start in doubt succeeded, before the refusal counts.
    Describe {
        reason: String,
    },
}

/// Decides what to do after a start. `attempts` counts the attempts already spent. `in_doubt` says that an
/// earlier start of this item was ambiguous, reached an unavailable engine or was taken over. So the
/// execution may be running although the engine refused this start.
pub fn after_start(outcome: StartOutcome, attempts: u32, max_attempts: u32, in_doubt: bool) -> StartDecision {
    match outcome {
        StartOutcome::Started | StartOutcome::AlreadyStarted => StartDecision::MarkDispatched,
        StartOutcome::Refused(reason) if in_doubt => StartDecision::Describe { reason },
        StartOutcome::Refused(reason) if attempts + 1 >= max_attempts => StartDecision::GiveUp { reason },
        StartOutcome::Refused(reason) => {
            StartDecision::Requeue { reason, backoff: failure::dispatch_backoff(attempts + 1) }
        }
        StartOutcome::Unavailable(reason) => StartDecision::Hold { reason },
        StartOutcome::Ambiguous(reason) => StartDecision::Repeat { reason },
    }
}

/// Decides about an item whose start the engine refused, although an earlier start of it is in doubt. So the engine was
/// asked with `Describe`. If it knows the execution, the earlier start succeeded. If not, the refusal is an attempt:
/// otherwise an item that the engine always refuses would never fail, and would keep its slot for ever. If the earlier
/// start arrives after all, `execution::begin` stops it, because nothing is performed without a slot.
pub fn described(known: bool, reason: String, attempts: u32, max_attempts: u32) -> StartDecision {
    let outcome = if known { StartOutcome::AlreadyStarted } else { StartOutcome::Refused(reason) };
    after_start(outcome, attempts, max_attempts, false)
}

/// How many milliseconds of waiting one step of priority is worth in the order of the queue.
pub const PRIORITY_STEP_MS: i64 = 60_000;

/// The priority of a start: 1 goes first, 3 is the default, 5 goes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(minimum = 1, maximum = 5))]
#[serde(try_from = "i16", into = "i16")]
pub struct Priority(i16);

/// A priority outside its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("priority {0} is outside 1 to 5 (1 goes first, 3 is the default)")]
pub struct InvalidPriority(pub i16);

impl Priority {
    pub const USUAL: Priority = Priority(3);

    pub fn new(value: i16) -> Result<Priority, InvalidPriority> {
        if (1..=5).contains(&value) { Ok(Priority(value)) } else { Err(InvalidPriority(value)) }
    }

    pub fn value(self) -> i16 {
        self.0
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self::USUAL
    }
}

impl TryFrom<i16> for Priority {
    type Error = InvalidPriority;
    fn try_from(value: i16) -> Result<Self, InvalidPriority> {
        Priority::new(value)
    }
}

impl From<Priority> for i16 {
    fn from(priority: Priority) -> i16 {
        priority.0
    }
}
