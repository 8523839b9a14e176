//! An execution's life: the request's record, from accepted to ended.
//!
//!     PENDING ──begin──▶ RUNNING ──▶ COMPLETED | FAILED | CANCELED | TIMED_OUT
//!        └─────────────────────────▶ FAILED | CANCELED | TIMED_OUT
//!
//! Invariants
//! - A terminal status is final: whoever ends it first decides, everyone else is told.
//!
//! Not here: the ticket in the queue (`queue`), the machine that runs it (`run`).

pub mod generation;
pub mod rerun;

use serde::{Deserialize, Serialize};

/// An execution's status as stored and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = ExecutionStatus))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    Pending,
    Running,
    Completed,
    Failed,
    Canceled,
    TimedOut,
}

/// What may happen to an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    Begin,
    Complete,
    Fail,
    Cancel,
    TimeOut,
}

/// A step that a status does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a {from:?} execution cannot {step:?}")]
pub struct Illegal {
    pub from: Status,
    pub step: Step,
}

impl Status {
    pub const ALL: [Status; 6] =
        [Status::Pending, Status::Running, Status::Completed, Status::Failed, Status::Canceled, Status::TimedOut];

    /// The whole life of an execution. What is not listed is illegal.
    pub fn after(self, step: Step) -> Result<Status, Illegal> {
        use {Status::*, Step::*};
        Ok(match (self, step) {
            (Pending, Begin) => Running,
            (Running, Complete) => Completed,
            (Pending | Running, Fail) => Failed,
            (Pending | Running, Cancel) => Canceled,
            (Pending | Running, TimeOut) => TimedOut,
            (from, step) => return Err(Illegal { from, step }),
        })
    }

    pub fn is_terminal(self) -> bool {
        !matches!(self, Status::Pending | Status::Running)
    }

    /// The wire and column value.
    pub fn name(self) -> &'static str {
        match self {
            Status::Pending => "PENDING",
            Status::Running => "RUNNING",
            Status::Completed => "COMPLETED",
            Status::Failed => "FAILED",
            Status::Canceled => "CANCELED",
            Status::TimedOut => "TIMED_OUT",
        }
    }

    pub fn parse(name: &str) -> Option<Status> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

impl Step {
    pub const ALL: [Step; 5] = [Step::Begin, Step::Complete, Step::Fail, Step::Cancel, Step::TimeOut];
}

/// What a forced end comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminate {
    /// Nobody runs it: it is over at once, and its slot free.
    AtOnce,
    /// A process runs it: fenced out and told to abort. The slot is free when that process confirms, or is dead.
    Fence,
    /// It had already ended; its outcome stands.
    Over,
}

/// How an execution is ended by force. `owned`: a process runs it; a parked one has none.
pub fn terminate(status: Status, owned: bool) -> Terminate {
    match (status, owned) {
        (Status::Running, true) => Terminate::Fence,
        (Status::Pending | Status::Running, _) => Terminate::AtOnce,
        (Status::Completed | Status::Failed | Status::Canceled | Status::TimedOut, _) => Terminate::Over,
    }
}

/// The answer to an engine run that asks to begin. Its guard is the execution's status and the
/// item's slot, not a claim: the run may have been started under a claim since taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// Go on: it was waiting, or it is running for this very engine run.
    Granted,
    /// It ended, or another run has it: close without performing a node.
    Ended,
    /// The item holds no slot (yet): ask again, perform nothing.
    NotYet,
}

/// May this engine run perform nodes?
pub fn begin(status: Status, holds_slot: bool, same_run: bool) -> Begin {
    match (status, holds_slot, same_run) {
        (Status::Running, _, true) => Begin::Granted,
        (Status::Pending, true, _) => Begin::Granted,
        (Status::Pending, false, _) => Begin::NotYet,
        _ => Begin::Ended,
    }
}
