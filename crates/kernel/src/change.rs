//! Changes as their subscribers receive them: what a change is, who may see it, and in which order changes arrive.
//!
//! Invariants
//! - Only root keys see a change without a workspace. Only root keys and keys of its workspace see any other change.
//! - A subscriber receives the row as the change left it, even if the row has changed again since.
//!
//! Not here: reading the log (`store::feed`), distributing changes (`server::feed`), the sockets (`server::http`).

pub mod cursor;

use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use crate::ids::WorkspaceId;
use crate::names::names;
use cursor::Position;

names! {
    /// What changed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Topic {
        /// The status of an execution and of its queue item.
        Execution = "execution",
        /// Nodes of an execution. The change does not name them; its reader queries them.
        Nodes = "nodes",
        /// A row of `workflow_queue_projection`.
        Job = "job",
    }
}

names! {
    /// How it changed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Op { Insert = "INSERT", Update = "UPDATE", Delete = "DELETE" }
}

/// One change. The log keeps all changes of one statement as one entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub position: Position,
    pub at: Timestamp,
    pub topic: Topic,
    pub op: Op,
    pub id: Uuid,
    /// None: the change belongs to no workspace.
    pub workspace: Option<WorkspaceId>,
    /// The execution's new status.
    pub status: Option<String>,
    /// The job's row after the change.
    pub record: Option<Value>,
    /// The job's row before the change.
    pub old: Option<Value>,
}

impl Change {
    /// May a key see this change? `key` is the workspace of the key; none for a root key, which sees everything.
    pub fn is_visible_to(&self, key: Option<WorkspaceId>) -> bool {
        key.is_none() || self.workspace == key
    }

    /// The row that a subscriber's filters check: the row after the change, or the old row if the change deleted it.
    pub fn row(&self) -> Option<&Value> {
        match self.op {
            Op::Delete => self.old.as_ref(),
            Op::Insert | Op::Update => self.record.as_ref(),
        }
    }
}
