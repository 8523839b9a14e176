//! What crosses Temporal: stored in its history, so that it can still be read years later.
//!
//! Invariants
//! - No output of a node, and nothing else that grows with data, crosses: ids, statuses, labels, classes.
//! - Fields are only ever added, with a default: histories of older builds are replayed.
//!
//! Not here: doing it (`activities`), in which order (`workflow`).

use kernel::definition::{Definition, Delivery, Edge, Join, Kind, Manner, Node, OnError};
use kernel::failure::{Class, Policy};
use kernel::ids::{DefinitionId, ExecutionId, Label, NodeKey, ProcessId, VersionId, WorkspaceId};
use kernel::plan::{NodeIx, Plan};
use kernel::run::Outcome;
use kernel::{execution, node};
use serde::{Deserialize, Serialize};
use store::taken::Hold;

/// What a workflow is started with.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Input {
    pub(crate) execution_id: ExecutionId,
    pub(crate) workspace_id: WorkspaceId,
    pub(crate) workflow_definition_id: DefinitionId,
    pub(crate) version_id: VersionId,
    pub(crate) node_ids: Vec<NodeKey>,
    pub(crate) retry_config: Policy,
    pub(crate) semantics: i32,
}

/// What a workflow that completed answers with.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Output {
    pub(crate) execution_id: ExecutionId,
    pub(crate) status: execution::Status,
    pub(crate) node_results: Vec<NodeResult>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NodeResult {
    pub(crate) node: NodeKey,
    pub(crate) status: node::Status,
}

/// May this run perform nodes? Asked first, and again after every continue-as-new.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Begin {
    pub(crate) execution: ExecutionId,
    pub(crate) owner: ProcessId,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Begun {
    Granted(Box<Granted>),
    /// It is over, here or in another run: nothing is to be performed.
    Over,
}

/// Where a run stands, all of it from rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Granted {
    pub(crate) epoch: i64,
    pub(crate) shape: Shape,
    /// In the order in which they settled.
    pub(crate) settled: Vec<(NodeIx, node::Status, Option<Label>)>,
    pub(crate) open: Vec<NodeIx>,
    /// How long it may still run.
    pub(crate) deadline_ms: u64,
    /// How long a silent worker keeps a node.
    pub(crate) heartbeat_ms: u64,
    /// Somebody wants it to end.
    pub(crate) canceling: bool,
}

/// A version's graph without anything that its nodes work with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Shape {
    pub(crate) nodes: Vec<ShapeNode>,
    pub(crate) edges: Vec<(NodeIx, NodeIx, Option<Label>)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ShapeNode {
    pub(crate) key: NodeKey,
    pub(crate) kind: Kind,
    #[serde(default)]
    pub(crate) when: Join,
    #[serde(default)]
    pub(crate) on_error: OnError,
    /// How long one attempt may take.
    pub(crate) limit_ms: u64,
    /// It calls out, and does so as a local activity.
    #[serde(default)]
    pub(crate) local: bool,
    /// It has a condition of its own, which is looked at first.
    #[serde(default)]
    pub(crate) conditional: bool,
    /// The branches of a node whose configuration names them.
    #[serde(default)]
    pub(crate) labels: Vec<String>,
}

impl Shape {
    pub(crate) fn new(definition: &Definition, plan: &Plan, local_below_ms: u64) -> Shape {
        let node = |node: &Node| {
            let limit_ms = u64::try_from(engine::nodes::timeout(node).as_millis()).unwrap_or(u64::MAX);
            let (key, kind, when, on_error) = (node.key.clone(), node.kind, node.when, node.on_error);
            let local = kind.manner() == Manner::Calls && limit_ms <= local_below_ms;
            let labels = if kind == Kind::Switch { kernel::kind::labels(kind, &node.with) } else { Vec::new() };
            let conditional = node.condition.is_some();
            ShapeNode { key, kind, when, on_error, limit_ms, local, conditional, labels }
        };
        let edge = |edge: &Edge| Some((plan.index_of(&edge.from)?, plan.index_of(&edge.to)?, edge.label.clone()));
        Shape {
            nodes: definition.nodes.iter().map(node).collect(),
            edges: definition.edges.iter().filter_map(edge).collect(),
        }
    }

    /// The plan that the version's own makes, retries apart: those are the activities' to ask for.
    pub(crate) fn plan(&self) -> Result<Plan, String> {
        let node = |node: &ShapeNode| Node {
            key: node.key.clone(),
            kind: node.kind,
            description: None,
            with: branches(&node.labels),
            condition: None,
            when: node.when,
            on_error: node.on_error,
            retry: Policy::DEFAULT,
            timeout_ms: None,
            delivery: Delivery::default(),
        };
        let edge = |(from, to, label): &(NodeIx, NodeIx, Option<Label>)| {
            let (from, to) = (self.nodes.get(*from)?.key.clone(), self.nodes.get(*to)?.key.clone());
            Some(Edge { from, to, label: label.clone() })
        };
        let definition = Definition {
            nodes: self.nodes.iter().map(node).collect(),
            edges: self.edges.iter().filter_map(edge).collect(),
            ..Definition::default()
        };
        let told = |problems: Vec<kernel::plan::Invalid>| {
            problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        Plan::new(&definition).map_err(told)
    }
}

/// As much of a configuration as names branches.
fn branches(labels: &[String]) -> serde_json::Value {
    let cases: Vec<_> = labels.iter().map(|label| serde_json::json!({ "label": label })).collect();
    if cases.is_empty() { serde_json::Value::Null } else { serde_json::json!({ "cases": cases }) }
}

/// What one local activity does, in this order and in one commit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) hold: Hold,
    pub(crate) orders: Vec<Order>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// The node settled without being performed.
    Settle { node: NodeIx, status: node::Status },
    /// A node that only computes.
    Compute { node: NodeIx },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Stepped {
    /// How the nodes that were to be computed ended, in order. Fewer than were asked for: the rest was left, because
    /// what comes before it may settle others first.
    Done(Vec<Ended>),
    /// The run is another's by now, or over.
    Lost,
}

/// One node to be performed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) hold: Hold,
    pub(crate) node: NodeIx,
}

/// How a node ended. That it failed is a result, not an error: the policy is used up, and the row says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ended {
    Settled {
        status: node::Status,
        #[serde(default)]
        label: Option<Label>,
        #[serde(default)]
        class: Option<Class>,
    },
    /// Its wait is noted, and over in so long.
    Waiting { ms: u64 },
    /// It is to be performed on its own: it failed in a way that is worth another try, which a step cannot wait for, or
    /// its condition holds and its work is none of a step.
    Later,
    /// The run is another's by now, or over.
    Lost,
}

/// The run is over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Complete {
    pub(crate) hold: Hold,
    pub(crate) outcome: Outcome,
}

/// How it was recorded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Completed {
    pub(crate) status: execution::Status,
    #[serde(default)]
    pub(crate) class: Option<Class>,
}
