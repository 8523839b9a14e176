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
//! - COMPLETED, FAILED, SKIPPED, CANCELED and UNKNOWN are final. A node ends UNKNOWN if it may be performed at most
//!   once and its result was lost.
//! - A node that has started ends SKIPPED only if its own condition is false. Then none of its work was performed.
//!
//! Not here: when each step happens (`run`).

use serde::{Deserialize, Serialize};

use crate::definition::{ERROR_LABEL, OnError};
use crate::ids::Label;
use crate::names::names;

names! {
    /// A node's status as stored and shown.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = NodeStatus))]
    #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
    pub enum Status {
        Pending = "PENDING", Running = "RUNNING", Retrying = "RETRYING", Completed = "COMPLETED",
        Failed = "FAILED", Skipped = "SKIPPED", Canceled = "CANCELED", Unknown = "UNKNOWN",
    }
}

names! {
    /// What may happen to a node.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Step { Perform, Wait, Succeed, Fail, Skip, Cancel, Lose }
}

/// How a node ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeEnd {
    Completed {
        /// The label of the branch that the node chose; none if the node does not branch.
        took: Option<Label>,
    },
    Failed {
        /// True if the graph continues along the node's `error` edges.
        continues: bool,
    },
    Skipped,
    Canceled,
    /// The node may be performed at most once, and its result was lost. No edge is taken, and the execution fails.
    Lost,
}

impl NodeEnd {
    /// How a stored node ended; none if it has not settled.
    pub fn stored(status: Status, label: Option<Label>, on_error: OnError) -> Option<NodeEnd> {
        match status {
            Status::Completed => Some(NodeEnd::Completed { took: label }),
            Status::Unknown => Some(NodeEnd::Lost),
            Status::Failed => Some(NodeEnd::Failed { continues: on_error == OnError::Continue }),
            Status::Skipped => Some(NodeEnd::Skipped),
            Status::Canceled => Some(NodeEnd::Canceled),
            Status::Pending | Status::Running | Status::Retrying => None,
        }
    }

    /// Does the run follow an outgoing edge with this label? After a completed node it follows edges without a label
    /// and edges with the label that the node chose. After a failed node with `continues` it follows edges labelled
    /// `error`.
    pub fn takes(&self, label: Option<&Label>) -> bool {
        match (self, label) {
            (NodeEnd::Completed { .. }, None) => true,
            (NodeEnd::Completed { took }, Some(label)) => took.as_ref() == Some(label),
            (NodeEnd::Failed { continues: true }, Some(label)) => label.as_str() == ERROR_LABEL,
            _ => false,
        }
    }

    pub fn status(&self) -> Status {
        match self {
            NodeEnd::Completed { .. } => Status::Completed,
            NodeEnd::Failed { .. } => Status::Failed,
            NodeEnd::Skipped => Status::Skipped,
            NodeEnd::Canceled => Status::Canceled,
            NodeEnd::Lost => Status::Unknown,
        }
    }
}

impl Status {
    /// All legal steps in the life of a node. A step that is not listed is illegal.
    pub fn after(self, step: Step) -> Option<Status> {
        use {Status::*, Step::*};
        Some(match (self, step) {
            (Pending | Retrying, Perform) => Running,
            (Running, Perform) => Running,
            (Running, Wait) => Retrying,
            (Pending | Running, Succeed) => Completed,
            // A stored retry that its loop did not wait for fails without another attempt.
            (Pending | Running | Retrying, Fail) => Failed,
            (Pending | Running, Skip) => Skipped,
            (Pending | Running | Retrying, Cancel) => Canceled,
            (Running, Lose) => Unknown,
            _ => return None,
        })
    }

    pub fn is_settled(self) -> bool {
        !matches!(self, Status::Pending | Status::Running | Status::Retrying)
    }
}
