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
use crate::run::failure::{Policy, Profiles};
use crate::schedule;
use crate::webhook::hook;

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Kind {
    HttpRequest,
    Condition,
    Delay,
    Transform,
    Log,
    Fail,
    Switch,
    EmitEvent,
    Workflow,
    ForEach,
    WaitForEvent,
    Task,
}

impl Kind {
    /// Every kind, in the order in which they are listed to people.
    pub const ALL: [Kind; 12] = [
        Kind::HttpRequest,
        Kind::Condition,
        Kind::Switch,
        Kind::Transform,
        Kind::Delay,
        Kind::Log,
        Kind::Fail,
        Kind::EmitEvent,
        Kind::Workflow,
        Kind::ForEach,
        Kind::WaitForEvent,
        Kind::Task,
    ];

    /// The wire name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::HttpRequest => "HTTP_REQUEST",
            Kind::Condition => "CONDITION",
            Kind::Delay => "DELAY",
            Kind::Transform => "TRANSFORM",
            Kind::Log => "LOG",
            Kind::Fail => "FAIL",
            Kind::Switch => "SWITCH",
            Kind::EmitEvent => "EMIT_EVENT",
            Kind::Workflow => "WORKFLOW",
            Kind::ForEach => "FOR_EACH",
            Kind::WaitForEvent => "WAIT_FOR_EVENT",
            Kind::Task => "TASK",
        }
    }

    /// The kind of a wire name.
    pub fn parse(name: &str) -> Option<Kind> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// How engines perform this kind: the one table that all of them read.
    pub fn manner(self) -> Manner {
        match self {
            Kind::Condition | Kind::Switch | Kind::Transform | Kind::Log | Kind::Fail => Manner::Computes,
            Kind::HttpRequest | Kind::EmitEvent => Manner::Calls,
            Kind::Delay => Manner::Waits,
            Kind::WaitForEvent | Kind::Task => Manner::Asks,
            Kind::Workflow => Manner::Spawns,
            Kind::ForEach => Manner::Loops,
        }
    }

    /// Light kinds only compute.
    pub fn is_light(self) -> bool {
        self.manner() == Manner::Computes
    }

    /// How a node of this kind is retried unless its author, or the operator, says otherwise.
    pub fn retry(self) -> Policy {
        self.retry_by(&Profiles::default())
    }

    /// How a node of this kind is retried unless its author says otherwise.
    pub fn retry_by(self, profiles: &Profiles) -> Policy {
        match self {
            Kind::HttpRequest => profiles.http,
            Kind::Workflow | Kind::ForEach | Kind::WaitForEvent => profiles.work.once(),
            _ => profiles.work,
        }
    }

    /// Is one attempt all that a node of this kind has? A loop's items have their own, and a wait that is over is over.
    pub fn is_tried_once(self) -> bool {
        matches!(self, Kind::ForEach | Kind::WaitForEvent)
    }

    /// Does its work take as long as somebody else takes, so that what holds for calls does not hold for it?
    pub fn is_patient(self) -> bool {
        matches!(self.manner(), Manner::Waits | Manner::Asks | Manner::Spawns | Manner::Loops)
    }

    /// Does it make executions or iterations, which are there after a crash?
    pub fn makes_more(self) -> bool {
        matches!(self.manner(), Manner::Spawns | Manner::Loops)
    }

    /// May it be what a FOR_EACH does for each item?
    pub fn is_action(self) -> bool {
        !matches!(self, Kind::ForEach | Kind::Condition | Kind::Switch | Kind::Fail)
    }
}

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
    /// It makes another execution, and is over when that is. Embedded: a frame of the same run. Temporal: a child workflow.
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
