//! The life of a queue item, from accepted to dispatched or given up.
//!
//!     pending ──claim──▶ claimed ──dispatch──▶ dispatched ──complete──▶ gone
//!        ▲                │  ▲ └────fail────▶ failed ◀────fail────┘
//!        └────requeue─────┘  └ takeover
//!
//! Invariants
//! - Only the current claim moves a claimed item.
//! - Only `requeue` after a refusal is an attempt; waiting and crashes are not the item's fault.
//! - Claimed and dispatched hold a slot; no slot is freed while a run may be alive.
//!
//! Not here: SQL (`store::queue`), when to look for work (`server::queue::dispatch`).

pub mod breaker;
pub mod explain;
pub mod idempotency;
pub mod ring;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::run::failure;

/// A queue item's status as stored and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = QueueStatus))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    Pending,
    Claimed,
    Dispatched,
    Failed,
    /// The row is deleted; the execution tells how it went.
    Gone,
}

/// What may happen to a queue item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    Claim,
    Takeover,
    Dispatch,
    Requeue,
    Complete,
    Cancel,
    Fail,
    Dismiss,
    Retire,
}

/// A step that a status does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a {from:?} queue item cannot {step:?}")]
pub struct Illegal {
    pub from: Status,
    pub step: Step,
}

impl Status {
    pub const ALL: [Status; 5] = [Status::Pending, Status::Claimed, Status::Dispatched, Status::Failed, Status::Gone];

    /// The whole life of a queue item. What is not listed is illegal.
    pub fn after(self, step: Step) -> Result<Status, Illegal> {
        use {Status::*, Step::*};
        Ok(match (self, step) {
            (Pending, Claim) => Claimed,
            (Claimed, Takeover) => Claimed,
            (Claimed, Dispatch) => Dispatched,
            (Claimed, Requeue) => Pending,
            (Pending | Claimed | Dispatched, Complete | Cancel) => Gone,
            (Pending | Claimed | Dispatched, Fail) => Failed,
            (Failed, Dismiss | Retire) => Gone,
            (from, step) => return Err(Illegal { from, step }),
        })
    }

    /// Does an item in this status hold one of its workspace's slots?
    pub fn holds_slot(self) -> bool {
        matches!(self, Status::Claimed | Status::Dispatched)
    }

    /// The wire and column value; `Gone` has no row and so no column value.
    pub fn name(self) -> &'static str {
        match self {
            Status::Pending => "PENDING",
            Status::Claimed => "CLAIMED",
            Status::Dispatched => "DISPATCHED",
            Status::Failed => "FAILED",
            Status::Gone => "GONE",
        }
    }

    pub fn parse(name: &str) -> Option<Status> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

impl Step {
    pub const ALL: [Step; 9] = [
        Step::Claim,
        Step::Takeover,
        Step::Dispatch,
        Step::Requeue,
        Step::Complete,
        Step::Cancel,
        Step::Fail,
        Step::Dismiss,
        Step::Retire,
    ];
}

/// Where a queue item is kept; it decides which index holds it, and so what a claim costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Ready,
    /// Until a time: a later start, or a pause after a refusal.
    Delayed,
    /// Its concurrency key is full.
    WaitsForKey,
    /// Its definition is full or paused.
    WaitsForDefinition,
    HoldsSlot,
    Failed,
}

impl Stage {
    /// The column value.
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

/// What an engine said to a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It runs now.
    Started,
    /// It was started before, and is running or already over.
    AlreadyThere,
    /// This item cannot be started: its own fault.
    Refused(String),
    /// Nothing can be started: the engine's fault, or the operator's.
    Unavailable(String),
    /// It may or may not have been started.
    Ambiguous(String),
}

/// What to do with the item after an engine's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    MarkDispatched,
    /// Back to waiting, one attempt spent, after a pause.
    Requeue {
        reason: String,
        backoff: Duration,
    },
    /// Given up after the last attempt.
    GiveUp {
        reason: String,
    },
    /// Keep claim and slot; the engine as a whole is out of reach.
    Hold {
        reason: String,
    },
    /// Keep claim and slot, and repeat the idempotent start.
    Repeat {
        reason: String,
    },
    /// Ask the engine what became of an earlier, doubtful start before believing the refusal.
    Describe {
        reason: String,
    },
}

/// Reads an engine's answer. `attempts` are those already spent; `in_doubt` says that an earlier
/// start of this item was ambiguous, met an engine in trouble or was taken over, so that it may be
/// running in spite of a refusal.
pub fn decide(answer: Answer, attempts: u32, max_attempts: u32, in_doubt: bool) -> Decision {
    match answer {
        Answer::Started | Answer::AlreadyThere => Decision::MarkDispatched,
        Answer::Refused(reason) if in_doubt => Decision::Describe { reason },
        Answer::Refused(reason) if attempts + 1 >= max_attempts => Decision::GiveUp { reason },
        Answer::Refused(reason) => Decision::Requeue { reason, backoff: failure::dispatch_backoff(attempts + 1) },
        Answer::Unavailable(reason) => Decision::Hold { reason },
        Answer::Ambiguous(reason) => Decision::Repeat { reason },
    }
}

/// Goes on after `Describe`. Known to the engine, the item is started. Unknown to it, the refusal
/// stands; otherwise an item that is refused for ever would hold its slot for ever once a claimer
/// of it had died. An earlier start that arrives later still meets `execution::begin`, which lets
/// nothing be performed without a slot.
pub fn described(known: bool, reason: String, attempts: u32, max_attempts: u32) -> Decision {
    let answer = if known { Answer::AlreadyThere } else { Answer::Refused(reason) };
    decide(answer, attempts, max_attempts, false)
}

/// How long one step of priority is worth.
pub const PRIORITY_STEP_MS: i64 = 60_000;

/// A start's priority: 1 goes first, 3 is usual, 5 goes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(minimum = 1, maximum = 5))]
#[serde(try_from = "i16", into = "i16")]
pub struct Priority(i16);

/// A priority outside its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("priority {0} is outside 1 to 5 (1 goes first, 3 is usual)")]
pub struct BadPriority(pub i16);

impl Priority {
    pub const USUAL: Priority = Priority(3);

    pub fn new(value: i16) -> Result<Priority, BadPriority> {
        if (1..=5).contains(&value) { Ok(Priority(value)) } else { Err(BadPriority(value)) }
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
    type Error = BadPriority;
    fn try_from(value: i16) -> Result<Self, BadPriority> {
        Priority::new(value)
    }
}

impl From<Priority> for i16 {
    fn from(priority: Priority) -> i16 {
        priority.0
    }
}
