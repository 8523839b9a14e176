//! Changes as they are told to whoever follows them: what one is, who may see it, and in which order it comes.
//!
//! Invariants
//! - Default deny: a change of no workspace is a root key's alone, and every other one its workspace's.
//! - A change is told as it was written, not as its row is when it is told.
//!
//! Not here: reading the log (`store::feed`), handing changes out (`server::feed`), the sockets (`server::http`).

pub mod cursor;

use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use crate::ids::WorkspaceId;
use cursor::Place;

/// What changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// An execution's status, and with it its ticket's.
    Execution,
    /// Nodes of an execution, which ones is for its reader to look.
    Nodes,
    /// A row of `workflow_queue_projection`.
    Projection,
}

/// How it changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Insert,
    Update,
    Delete,
}

/// One change: the log keeps those that one statement made in the same way as one entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub place: Place,
    pub at: Timestamp,
    pub topic: Topic,
    pub op: Op,
    pub id: Uuid,
    /// None: no workspace's.
    pub workspace: Option<WorkspaceId>,
    /// What an execution became.
    pub status: Option<String>,
    /// A row of the projection, as the change left it.
    pub record: Option<Value>,
    /// The same, as it found it.
    pub old: Option<Value>,
}

impl Topic {
    pub fn name(self) -> &'static str {
        match self {
            Topic::Execution => "execution",
            Topic::Nodes => "nodes",
            Topic::Projection => "projection",
        }
    }

    pub fn parse(text: &str) -> Option<Topic> {
        [Topic::Execution, Topic::Nodes, Topic::Projection].into_iter().find(|topic| topic.name() == text)
    }
}

impl Op {
    pub fn name(self) -> &'static str {
        match self {
            Op::Insert => "INSERT",
            Op::Update => "UPDATE",
            Op::Delete => "DELETE",
        }
    }

    pub fn parse(text: &str) -> Option<Op> {
        [Op::Insert, Op::Update, Op::Delete].into_iter().find(|op| op.name() == text)
    }
}

impl Change {
    /// May a key see it? `key` is its workspace, none for a root key, which sees all.
    pub fn is_seen_by(&self, key: Option<WorkspaceId>) -> bool {
        key.is_none() || self.workspace == key
    }

    /// The row that filters are asked of: as it is now, or as it was before it went.
    pub fn row(&self) -> Option<&Value> {
        match self.op {
            Op::Delete => self.old.as_ref(),
            Op::Insert | Op::Update => self.record.as_ref(),
        }
    }
}
