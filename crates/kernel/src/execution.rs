//! The life of an execution: its statuses, and the steps between them.
//!
//!     PENDING ──begin──▶ RUNNING ──▶ COMPLETED | FAILED | CANCELED | TIMED_OUT
//!        └─────────────────────────▶ FAILED | CANCELED | TIMED_OUT
//!
//! Invariants
//! - A terminal status is final. The first step to a terminal status counts, and every later step is refused.
//!
//! Not here: the queue item of an execution (`queue`), the state machine of its nodes (`run`).

pub mod generation;
pub mod rerun;

use serde::{Deserialize, Serialize};

use crate::names::names;

names! {
    /// An execution's status as stored and shown.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = ExecutionStatus))]
    #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
    pub enum Status {
        Pending = "PENDING", Running = "RUNNING", Completed = "COMPLETED", Failed = "FAILED",
        Canceled = "CANCELED", TimedOut = "TIMED_OUT",
    }
}

names! {
    /// What may happen to an execution.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Step { Begin, Complete, Fail, Cancel, TimeOut }
}

impl Status {
    /// The whole life of an execution. What is not listed is illegal.
    pub fn after(self, step: Step) -> Option<Status> {
        use {Status::*, Step::*};
        Some(match (self, step) {
            (Pending, Begin) => Running,
            (Running, Complete) => Completed,
            (Pending | Running, Fail) => Failed,
            (Pending | Running, Cancel) => Canceled,
            (Pending | Running, TimeOut) => TimedOut,
            _ => return None,
        })
    }

    pub fn is_terminal(self) -> bool {
        !matches!(self, Status::Pending | Status::Running)
    }
}

/// How to terminate an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Termination {
    /// No process runs it: end it now and free its slot.
    EndNow,
    /// A process runs it: fence that process and ask it to abort. The slot is freed when it confirms or dies.
    AbortOwner,
    /// The execution had already ended; its outcome stays.
    AlreadyEnded,
}

/// Decides how to terminate an execution. `owned` is true if a process runs it. A parked execution has no owner.
pub fn terminate(status: Status, owned: bool) -> Termination {
    match (status, owned) {
        (Status::Running, true) => Termination::AbortOwner,
        (Status::Pending | Status::Running, _) => Termination::EndNow,
        (Status::Completed | Status::Failed | Status::Canceled | Status::TimedOut, _) => Termination::AlreadyEnded,
    }
}

/// The answer to a run of an engine that asks to begin. It depends on the execution's status and the queue item's
/// slot, not on a claim, because another process may have taken over the claim that started the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeginDecision {
    /// Begin: the execution was PENDING, or this run already owns it.
    Granted,
    /// The execution ended, or another run owns it: this run must close without performing a node.
    Ended,
    /// The item holds no slot yet: perform nothing and ask again.
    NotYet,
}

/// Decides whether this run of an engine may perform nodes.
pub fn begin(status: Status, holds_slot: bool, same_run: bool) -> BeginDecision {
    match (status, holds_slot, same_run) {
        (Status::Running, _, true) => BeginDecision::Granted,
        (Status::Pending, true, _) => BeginDecision::Granted,
        (Status::Pending, false, _) => BeginDecision::NotYet,
        _ => BeginDecision::Ended,
    }
}
