//! Identifiers. Each has a type of its own, so that they cannot be mixed up.
//!
//! Invariants
//! - An execution and its queue item have the same UUID, but their id types differ.
//! - A node key is short, printable and safe in a path, a URL and an expression.
//!
//! Not here: creating ids. The kernel has no randomness and no clock; the other crates create ids.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, de};
use uuid::Uuid;

/// A text that is no id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be an id such as 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a, not a name")]
pub struct InvalidId;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Uuid::from_str(text).map(Self).map_err(|_| InvalidId)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Cow::<str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }
    )*};
}

ids! {
    /// A workspace.
    WorkspaceId;
    /// A named workflow of a workspace.
    DefinitionId;
    /// One immutable graph of a definition.
    VersionId;
    /// The record of one execution, from its start request to its terminal status.
    ExecutionId;
    /// The queue item of an execution.
    QueueItemId;
    /// One claim of a dispatcher, which may have claimed many queue items. Each later write to one of these items must
    /// contain this id.
    ClaimId;
    /// A process of the service. It gets a new id at each start and after each loss of its lease.
    ProcessId;
    /// An API key.
    KeyId;
}

impl ExecutionId {
    /// The queue item of this execution.
    pub fn queue_item(self) -> QueueItemId {
        QueueItemId(self.0)
    }

    /// The id of this execution on an engine. It never changes, so the engine recognises a repeated start.
    pub fn engine_id(self) -> String {
        format!("execution-{}", self.0)
    }
}

impl QueueItemId {
    /// The execution of this queue item.
    pub fn execution(self) -> ExecutionId {
        ExecutionId(self.0)
    }
}

/// How many shards the workspaces are divided into. The number cannot change, because stored data depends on it.
pub const SHARDS: i16 = 64;

impl WorkspaceId {
    /// The shard whose lock serialises this workspace's claims. The database computes the same number.
    pub fn shard(self) -> i16 {
        i16::from(self.0.as_bytes()[15] & 63)
    }
}

/// The longest node key or label.
pub const MAX_KEY_LEN: usize = 64;

/// A text that is not a valid node key or label.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a name: use 1 to {MAX_KEY_LEN} letters, digits, '_' or '-', starting with a letter or '_'")]
pub struct InvalidName {
    text: String,
}

fn name(text: &str) -> Result<String, InvalidName> {
    let mut chars = text.chars();
    let head = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    let tail = chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if head && tail && text.len() <= MAX_KEY_LEN {
        Ok(text.to_owned())
    } else {
        let text = text.chars().take(80).collect();
        Err(InvalidName { text })
    }
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks a name.
            pub fn new(text: &str) -> Result<Self, InvalidName> {
                name(text).map(Self)
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;
            fn try_from(text: String) -> Result<Self, InvalidName> {
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
    /// The name of a branch that a control node may take. An edge with a label belongs to the branch of that name.
    Label;
}
