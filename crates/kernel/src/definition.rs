//! A workflow as its author wrote it, once read: nodes, edges, and what each node may do.
//!
//! Invariants
//! - What is here is well formed on its own; that the nodes hang together is `plan`'s to prove.
//! - The serialized form of `Definition` is the stored, immutable graph of a version: fields are
//!   only ever added, with a default.
//!
//! Not here: reading a document and naming its problems (`parse`), the graph's shape (`plan`).

pub mod diff;
pub(crate) mod fields;
pub mod inputs;
pub mod parse;
pub mod plan;
pub mod problem;
pub mod source;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::binding::Rule;
use crate::ids::{Label, NodeKey};
pub use crate::kind::Kind;
use crate::run::failure::Policy;
use crate::schedule;
use crate::webhook::hook;

/// How a kind is performed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// It only computes: repeating it after a crash is harmless, so an engine may perform it before
    /// its start is stored. Embedded: at once, within the run. Temporal: in a local activity, several at a time.
    Computes,
    /// It calls out: its start is stored before anything is sent. Embedded: a task of its own. Temporal: an
    /// activity, or a local one if its timeout is short.
    Calls,
    /// It waits for a time that is stored. Embedded: a timer, and nothing at all while the run is parked.
    /// Temporal: a durable timer of the workflow.
    Waits,
    /// It asks somebody outside, and is over when the answer is stored. Embedded: nothing at all while the run is
    /// parked. Temporal: the workflow waits for a signal, or for its time to be up.
    Asks,
    /// It makes another execution, and is over when that is. Embedded: a frame of the same run. Temporal: a child
    /// workflow.
    Spawns,
    /// It performs one node for each item of a list (`each`).
    Loops,
}

/// What a crash in the middle of a call means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// It is performed again, with the same token.
    #[default]
    AtLeastOnce,
    /// It is never performed again: its end is UNKNOWN, and a person decides.
    AtMostOnce,
}

impl Delivery {
    /// Is it what goes without saying?
    pub fn is_default(&self) -> bool {
        *self == Delivery::default()
    }
}

/// When a node with several incoming edges may start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Join {
    /// Every incoming edge was taken.
    #[default]
    AllSuccess,
    /// At least one incoming edge was taken.
    AnySuccess,
    /// Every source settled, and not all of them were skipped.
    AllDone,
}

/// What a node's final failure does to the execution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// What follows is skipped; the execution ends FAILED once everything else settled.
    #[default]
    Fail,
    /// Edges labelled `error` are taken; the execution is not failed by it.
    Continue,
}

/// The label of edges taken when a node with `on_error: continue` fails.
pub const ERROR_LABEL: &str = "error";

/// One node of a graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    pub key: NodeKey,
    pub kind: Kind,
    /// What the author says of it, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The kind's configuration, templates unresolved.
    #[serde(default)]
    pub with: Value,
    /// The join rule.
    #[serde(default)]
    pub when: Join,
    /// An expression; unless it is true by the time the node could start, the node is skipped.
    #[serde(default, rename = "if", skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    #[serde(default)]
    pub on_error: OnError,
    pub retry: Policy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Delivery::is_default")]
    pub delivery: Delivery,
}

/// An order between two nodes, of one branch if it has a label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    pub from: NodeKey,
    pub to: NodeKey,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Label>,
}

/// A graph, with what holds for all of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub nodes: Vec<Node>,
    pub edges: Vec<Edge>,
    /// What the execution answers with, templates unresolved.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub outputs: Value,
    /// How long an execution may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// What a start must bring, as its author declared it.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub inputs: Value,
    /// Whether a start may bring inputs that are not declared; it may if this is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional_inputs: Option<bool>,
    /// Constants, for expressions to name.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub vars: Value,
    /// How many executions of this definition may run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// How many executions of this definition with the same concurrency key may run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_concurrency: Option<u32>,
    /// How often the engine may refuse the start before the queue item is given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// What starts it by itself.
    #[serde(default, skip_serializing_if = "On::is_empty")]
    pub on: On,
}

/// What starts a definition by itself, once it is published.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct On {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<Rule>,
    /// A POST to the definition's own secret address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<hook::Rule>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedule: Vec<schedule::Rule>,
}

impl On {
    fn is_empty(&self) -> bool {
        *self == On::default()
    }
}

/// Bounds of one graph; every one is refused with its number.
pub const MAX_NODES: usize = 2_000;
pub const MAX_EDGES: usize = 10_000;
/// How deep a document may nest.
pub const MAX_DEPTH: usize = 64;
