//! A node's life within one execution.
//!
//!     PENDING ──perform──▶ RUNNING ──succeed──▶ COMPLETED
//!        │                  │  ▲ └───fail─────▶ FAILED
//!        │               wait  due
//!        │                  ▼  │
//!        │                 RETRYING ─┬─cancel──▶ CANCELED      lose ──▶ UNKNOWN
//!        └──skip──▶ SKIPPED ◀──skip (its own condition), from RUNNING
//!
//! Invariants
//! - COMPLETED, FAILED, SKIPPED and CANCELED are final; UNKNOWN ends a node that may be performed
//!   at most once and whose result was lost.
//! - A node that could start is skipped by its own condition alone, and then nothing of it was performed.
//!
//! Not here: when which step is due (`run`).

use serde::{Deserialize, Serialize};

use crate::definition::{ERROR_LABEL, OnError};
use crate::ids::Label;

/// A node's status as stored and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = NodeStatus))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    Pending,
    Running,
    Retrying,
    Completed,
    Failed,
    Skipped,
    Canceled,
    Unknown,
}

/// What may happen to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    Perform,
    Wait,
    Succeed,
    Fail,
    Skip,
    Cancel,
    Lose,
}

/// How a node ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    Completed {
        /// The branch it took, for a node that branches.
        took: Option<Label>,
    },
    Failed {
        /// The graph goes on along its `error` edges.
        continues: bool,
    },
    Skipped,
    Canceled,
    /// It may be performed at most once and its result was lost: nothing goes on from it, and the execution fails.
    Lost,
}

impl End {
    /// The end that a stored node came to; none for one that is open.
    pub fn stored(status: Status, label: Option<Label>, on_error: OnError) -> Option<End> {
        match status {
            Status::Completed => Some(End::Completed { took: label }),
            Status::Unknown => Some(End::Lost),
            Status::Failed => Some(End::Failed { continues: on_error == OnError::Continue }),
            Status::Skipped => Some(End::Skipped),
            Status::Canceled => Some(End::Canceled),
            Status::Pending | Status::Running | Status::Retrying => None,
        }
    }

    /// An edge from this node is taken when the node completed and the edge's label, if any, is the one that was
    /// taken; one labelled `error` when the node failed and the graph goes on.
    pub fn takes(&self, label: Option<&Label>) -> bool {
        match (self, label) {
            (End::Completed { .. }, None) => true,
            (End::Completed { took }, Some(label)) => took.as_ref() == Some(label),
            (End::Failed { continues: true }, Some(label)) => label.as_str() == ERROR_LABEL,
            _ => false,
        }
    }

    pub fn status(&self) -> Status {
        match self {
            End::Completed { .. } => Status::Completed,
            End::Failed { .. } => Status::Failed,
            End::Skipped => Status::Skipped,
            End::Canceled => Status::Canceled,
            End::Lost => Status::Unknown,
        }
    }
}

/// A step that a status does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a {from:?} node cannot {step:?}")]
pub struct Illegal {
    pub from: Status,
    pub step: Step,
}

impl Status {
    pub const ALL: [Status; 8] = [
        Status::Pending,
        Status::Running,
        Status::Retrying,
        Status::Completed,
        Status::Failed,
        Status::Skipped,
        Status::Canceled,
        Status::Unknown,
    ];

    /// The whole life of a node. What is not listed is illegal.
    pub fn after(self, step: Step) -> Result<Status, Illegal> {
        use {Status::*, Step::*};
        Ok(match (self, step) {
            (Pending | Retrying, Perform) => Running,
            (Running, Perform) => Running,
            (Running, Wait) => Retrying,
            (Pending | Running, Succeed) => Completed,
            (Pending | Running, Fail) => Failed,
            (Pending | Running, Skip) => Skipped,
            (Pending | Running | Retrying, Cancel) => Canceled,
            (Running, Lose) => Unknown,
            (from, step) => return Err(Illegal { from, step }),
        })
    }

    pub fn is_settled(self) -> bool {
        !matches!(self, Status::Pending | Status::Running | Status::Retrying)
    }

    /// The wire and column value.
    pub fn name(self) -> &'static str {
        match self {
            Status::Pending => "PENDING",
            Status::Running => "RUNNING",
            Status::Retrying => "RETRYING",
            Status::Completed => "COMPLETED",
            Status::Failed => "FAILED",
            Status::Skipped => "SKIPPED",
            Status::Canceled => "CANCELED",
            Status::Unknown => "UNKNOWN",
        }
    }

    pub fn parse(name: &str) -> Option<Status> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

impl Step {
    pub const ALL: [Step; 7] =
        [Step::Perform, Step::Wait, Step::Succeed, Step::Fail, Step::Skip, Step::Cancel, Step::Lose];
}
