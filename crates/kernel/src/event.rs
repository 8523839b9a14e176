//! Domain events: their fields, and how their ids are derived.
//!
//! Invariants
//! - The event id of a node is derived from the execution, the node and the iteration. It is the same after every
//!   crash, so the event is appended once.
//!
//! Not here: which events create a job and what the job starts (`binding`), the life of the job (`crate::job`).

pub mod binding;

use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::ids::{ExecutionId, NodeKey};

/// An event with the fields that bindings and workflows can use.
#[derive(Clone, Debug, PartialEq)]
pub struct DomainEvent {
    pub id: Uuid,
    pub kind: String,
    pub data: Value,
    pub metadata: Value,
    pub stream_id: Uuid,
    pub stream_type: String,
    pub stream_version: Option<i32>,
    pub created_at: Timestamp,
}

impl DomainEvent {
    /// The value of `trigger.event` and `inputs.event` in expressions.
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

/// The seed of the id of the event that a node emits. Every attempt, in every process, has the same seed. The store
/// derives the event id from it.
pub fn id_of(execution: ExecutionId, node: &NodeKey, iteration: u32) -> Uuid {
    Uuid::new_v5(&execution.0, format!("{node}/{iteration}").as_bytes())
}

/// The seed of the id of an event in a request with an idempotency key. `index` is the event's position in the request.
pub fn id_by_key(workspace: Option<Uuid>, key: &str, index: usize) -> Uuid {
    Uuid::new_v5(&workspace.unwrap_or(Uuid::nil()), format!("{key}/{index}").as_bytes())
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
