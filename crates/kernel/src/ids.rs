//! Identifiers, one type each, so that one can never stand in for another.
//!
//! Invariants
//! - An execution and its queue item have the same UUID: one names the record, the other its ticket.
//! - A node key is short, printable and safe in a path, a URL and an expression.
//!
//! Not here: making ids (a shell does, from its own randomness and clock).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::from_str(text).map(Self)
            }
        }
    )*};
}

ids! {
    /// A tenant.
    WorkspaceId;
    /// A named workflow of a workspace.
    DefinitionId;
    /// One immutable graph of a definition.
    VersionId;
    /// A request's record, from accepted to ended.
    ExecutionId;
    /// The same request's place in the queue.
    QueueItemId;
    /// One dispatcher's hold on a queue item; every later write of that dispatcher shows it.
    ClaimId;
    /// A process of the service, new at each start and after each lapse.
    ProcessId;
    /// A credential.
    KeyId;
}

impl ExecutionId {
    /// The ticket of this execution.
    pub fn queue_item(self) -> QueueItemId {
        QueueItemId(self.0)
    }

    /// The id an engine knows this execution by, for ever: repeating a start is harmless.
    pub fn engine_id(self) -> String {
        format!("execution-{}", self.0)
    }
}

impl QueueItemId {
    /// The record this ticket belongs to.
    pub fn execution(self) -> ExecutionId {
        ExecutionId(self.0)
    }
}

/// How many shards workspaces fall into. Fixed: it is part of stored data.
pub const SHARDS: i16 = 64;

impl WorkspaceId {
    /// The shard whose lock serialises this workspace's claims; the database computes the same.
    pub fn shard(self) -> i16 {
        i16::from(self.0.as_bytes()[15] & 63)
    }
}

/// The longest node key or label.
pub const MAX_KEY_LEN: usize = 64;

/// Why a text is no node key or label.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a name: use 1 to {MAX_KEY_LEN} letters, digits, '_' or '-', starting with a letter or '_'")]
pub struct BadName {
    text: String,
}

fn name(text: &str) -> Result<String, BadName> {
    let mut chars = text.chars();
    let head = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    let tail = chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if head && tail && text.len() <= MAX_KEY_LEN {
        Ok(text.to_owned())
    } else {
        let text = text.chars().take(80).collect();
        Err(BadName { text })
    }
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks and takes a name.
            pub fn new(text: &str) -> Result<Self, BadName> {
                name(text).map(Self)
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadName;
            fn try_from(text: String) -> Result<Self, BadName> {
                Self::new(&text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}

names! {
    /// A node's name within its graph.
    NodeKey;
    /// A branch that a control node may take; edges carry one to say which branch they belong to.
    Label;
}
