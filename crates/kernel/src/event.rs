//! Events that happened in a product.
//!
//! Invariants
//! - An id that follows from a node is the same after every crash: its event is appended once.
//!
//! Not here: which events make a job and what runs it (`binding`), the life of that job (`crate::job`).

pub mod binding;

use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::ids::{ExecutionId, NodeKey};

/// An event, as bindings and workflows see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub id: Uuid,
    pub kind: String,
    pub data: Value,
    pub metadata: Value,
    pub stream_id: Uuid,
    pub stream_type: String,
    pub stream_version: Option<i32>,
    pub created_at: Timestamp,
}

impl Event {
    /// What `trigger.event` and `inputs.event` are.
    pub fn scope(&self) -> Value {
        json!({
            "id": self.id,
            "type": self.kind,
            "data": self.data,
            "metadata": self.metadata,
            "stream_id": self.stream_id,
            "stream_type": self.stream_type,
            "stream_version": self.stream_version,
            "created_at": self.created_at.to_string(),
        })
    }
}

/// The seed of the id of the event that a node emits: the same whoever performs the node, and however often. The store
/// makes the id of it.
pub fn id_of(execution: ExecutionId, node: &NodeKey, iteration: u32) -> Uuid {
    Uuid::new_v5(&execution.0, format!("{node}/{iteration}").as_bytes())
}

/// The seed of the id of an event of a request with an idempotency key, by its place in it.
pub fn id_by_key(workspace: Option<Uuid>, key: &str, place: usize) -> Uuid {
    Uuid::new_v5(&workspace.unwrap_or(Uuid::nil()), format!("{key}/{place}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_nodes_event_follows_from_the_node() {
        let [a, b] = [1, 2].map(|n| ExecutionId(Uuid::from_u128(n)));
        let [x, y] = ["x", "y"].map(|key| NodeKey::new(key).expect("a key"));
        let ids = [id_of(a, &x, 0), id_of(a, &x, 1), id_of(a, &y, 0), id_of(b, &x, 0)];
        assert_eq!(ids[0], id_of(a, &x, 0));
        assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
    }
}
