//! A parsed workflow definition: its nodes, edges and settings.
//!
//! Invariants
//! - Each node and each edge is valid by itself; `plan` checks that together they form a graph.
//! - The serialized form of `Definition` is the stored, immutable graph of a version. So a field may only be added,
//!   with a default.
//!
//! Not here: reading a document and reporting its problems (`parse`), checking the graph (`plan`).

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
use crate::names::names;
use crate::run::failure::Policy;
use crate::schedule;
use crate::trigger;

names! {
    /// How an engine performs nodes of a kind.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Manner {
        /// It only computes. Repeating it after a crash is harmless, so an engine may perform it before the start of
        /// the node is stored. Embedded: immediately, within the run. Temporal: in a local activity, several nodes at a
        /// time.
        Computes = "computes",
        /// It calls another system. The start of the node is stored before anything is sent. Embedded: a task of its
        /// own. Temporal: an activity, or a local activity if its timeout is short.
        Calls = "calls",
        /// It waits for a time that is stored. Embedded: a timer, which is dropped while the run is parked. Temporal: a
        /// durable timer of the workflow.
        Waits = "waits",
        /// It waits for an answer from outside, and ends when the answer is stored. Embedded: needs no
        /// process while the run is parked. Temporal: the workflow waits for a signal, or for the node's timeout.
        WaitsForAnswer = "waits_for_answer",
        /// It starts another execution, and ends when that execution ends. Embedded: a frame of the same run. Temporal:
        /// a child workflow.
        Spawns = "spawns",
        /// It performs one node for each item of a list (`item_loop`).
        Loops = "loops",
    }
}

/// What happens to a call that a crash interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// The call is made again, with the same idempotency key.
    #[default]
    AtLeastOnce,
    /// The call is not repeated: the node ends UNKNOWN, and a person decides.
    AtMostOnce,
}

impl Delivery {
    /// Is it the default?
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
    /// Its successors are skipped; the execution ends FAILED once everything else has settled.
    #[default]
    Fail,
    /// Edges labelled `error` are taken, and the failure does not fail the execution.
    Continue,
}

/// The label of edges taken when a node with `on_error: continue` fails.
pub const ERROR_LABEL: &str = "error";

/// One node of a graph.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Node {
    pub key: NodeKey,
    pub kind: Kind,
    /// The author's description.
    pub description: Option<String>,
    /// The kind's configuration, templates unresolved.
    #[serde(default)]
    pub with: Value,
    /// The join rule.
    #[serde(default)]
    pub when: Join,
    /// An expression. It is evaluated when the node could start; if it is not true, the node is skipped.
    #[serde(rename = "if")]
    pub condition: Option<String>,
    #[serde(default)]
    pub on_error: OnError,
    pub retry: Policy,
    pub timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Delivery::is_default")]
    pub delivery: Delivery,
}

impl Node {
    /// A node of this kind with nothing configured.
    pub fn new(key: NodeKey, kind: Kind) -> Node {
        Node {
            key,
            kind,
            description: None,
            with: Value::Null,
            when: Join::default(),
            condition: None,
            on_error: OnError::default(),
            retry: kind.retry(),
            timeout_ms: None,
            delivery: Delivery::default(),
        }
    }
}

/// An edge between two nodes. An edge with a label belongs to the branch of that name.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    pub from: NodeKey,
    pub to: NodeKey,
    pub label: Option<Label>,
}

/// A graph, with the settings of the whole workflow.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    pub name: Option<String>,
    pub description: Option<String>,
    pub nodes: Vec<Node>,
    pub edges: Vec<Edge>,
    /// The output of the execution, templates unresolved.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub outputs: Value,
    /// How long an execution may run.
    pub timeout_ms: Option<u64>,
    /// The declared inputs of a start.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub inputs: Value,
    /// Whether a start may have inputs that are not declared; true if absent.
    pub additional_inputs: Option<bool>,
    /// Constants for expressions.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub vars: Value,
    /// How many executions of this definition may run at once.
    pub concurrency: Option<u32>,
    /// How many executions of this definition with the same concurrency key may run at once.
    pub key_concurrency: Option<u32>,
    /// The engine may refuse the start this often before the queue item is marked FAILED.
    pub max_attempts: Option<u32>,
    /// The events, requests and schedules that start the workflow.
    #[serde(default, skip_serializing_if = "Starts::is_empty")]
    pub on: Starts,
}

/// The events, requests and schedules that start a published definition.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Starts {
    pub event: Option<Rule>,
    /// A POST to the secret address of the definition, its trigger.
    pub http: Option<trigger::Rule>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedule: Vec<schedule::Rule>,
}

impl Starts {
    fn is_empty(&self) -> bool {
        *self == Starts::default()
    }
}

/// Limits of one graph; every error names the limit.
pub const MAX_NODES: usize = 2_000;
pub const MAX_EDGES: usize = 10_000;
/// How deep a document may nest.
pub const MAX_DEPTH: usize = 64;
