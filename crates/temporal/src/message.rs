//! What crosses Temporal: stored in its history, so that it can still be read years later.
//!
//! Invariants
//! - No output of a node, and nothing else that grows with data, crosses: ids, statuses, labels, classes. What a worker
//!   of the user's own is given, and what it answers, is the one exception: it crosses by being an activity's.
//! - Fields are only ever added, with a default: histories of older builds are replayed.
//!
//! Not here: doing it (`activities`), in which order (`workflow`).

use kernel::definition::plan::{NodeIx, Plan};
use kernel::definition::{Definition, Delivery, Edge, Join, Kind, Manner, Node, OnError};
use kernel::execution;
use kernel::ids::{DefinitionId, ExecutionId, Label, NodeKey, ProcessId, VersionId, WorkspaceId};
use kernel::kind::for_each::OnItemError;
use kernel::run::Outcome;
use kernel::run::failure::{Class, Failure, Policy};
use kernel::run::node;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::run::attempt::Hold;

use crate::retry::RetryConfig;

/// What a workflow is started with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Input {
    pub(crate) execution_id: ExecutionId,
    pub(crate) workspace_id: WorkspaceId,
    pub(crate) workflow_definition_id: DefinitionId,
    pub(crate) version_id: VersionId,
    pub(crate) node_ids: Vec<NodeKey>,
    pub(crate) retry_config: RetryConfig,
    pub(crate) semantics: i32,
    /// Its deadline is its parent's, which ends it in time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) inherits: bool,
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
    /// What a loop does for each item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) does: Option<Box<ShapeNode>>,
    /// A task that is an activity of the user's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) activity: Option<Activity>,
    /// It may be performed at most once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) once: bool,
}

/// An activity that the user's own Temporal workers serve.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Activity {
    pub(crate) task_queue: String,
    #[serde(rename = "type")]
    pub(crate) name: String,
}

impl Shape {
    pub(crate) fn new(definition: &Definition, plan: &Plan, local_below_ms: u64) -> Shape {
        let edge = |edge: &Edge| Some((plan.index_of(&edge.from)?, plan.index_of(&edge.to)?, edge.label.clone()));
        Shape {
            nodes: definition.nodes.iter().map(|node| ShapeNode::new(node, local_below_ms)).collect(),
            edges: definition.edges.iter().filter_map(edge).collect(),
        }
    }

    /// The plan that the version's own makes, retries apart: those are the activities' to ask for.
    pub(crate) fn plan(&self) -> Result<Plan, String> {
        let node = |node: &ShapeNode| Node {
            key: node.key.clone(),
            kind: node.kind,
            description: None,
            with: Value::Null,
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
        let told = |problems: Vec<kernel::definition::plan::Invalid>| {
            problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        let labels = |at: NodeIx| match &self.nodes[at] {
            node if node.labels.is_empty() => kernel::kind::labels(node.kind, &Value::Null),
            node => node.labels.clone(),
        };
        Plan::with_labels(&definition, labels).map_err(told)
    }
}

impl ShapeNode {
    fn new(node: &Node, local_below_ms: u64) -> ShapeNode {
        let limit_ms = u64::try_from(engine::nodes::timeout(node).as_millis()).unwrap_or(u64::MAX);
        let (key, kind, when, on_error) = (node.key.clone(), node.kind, node.when, node.on_error);
        let local = kind.manner() == Manner::Calls && limit_ms <= local_below_ms;
        let labels = kernel::kind::own_labels(kind, &node.with);
        let conditional = node.condition.is_some();
        let does = (kind == Kind::ForEach).then(|| kernel::kind::for_each::action(node)).flatten();
        let does = does.map(|action| Box::new(ShapeNode::new(&action, local_below_ms)));
        let activity = (kind == Kind::Task).then(|| kernel::kind::task::activity(&node.with)).flatten();
        let activity = activity.map(|it| Activity { task_queue: it.task_queue, name: it.name });
        let once = node.delivery == Delivery::AtMostOnce;
        ShapeNode { key, kind, when, on_error, limit_ms, local, conditional, labels, does, activity, once }
    }
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
    Settle {
        node: NodeIx,
        #[serde(default)]
        iteration: i32,
        status: node::Status,
    },
    /// A node that only computes.
    Compute {
        node: NodeIx,
        #[serde(default)]
        iteration: i32,
    },
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
    /// Which item of a loop, from 1; 0 is the node itself.
    #[serde(default)]
    pub(crate) iteration: i32,
    /// Its child's workflow is closed; or its own activity is, and it may be performed at most once: it is only to be
    /// told how it stands.
    #[serde(default)]
    pub(crate) closed: Option<Closed>,
    /// Its child was started by an earlier history: if the child's workflow is closed by now, then so. `Stopped`: none
    /// is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) attends: Option<Closed>,
}

/// Why a child's workflow is over, or an activity that told nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Closed {
    ByItself,
    /// It was stopped from above.
    Stopped,
}

/// A loop that is over: what its items produced is to be gathered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Gather {
    pub(crate) hold: Hold,
    pub(crate) node: NodeIx,
    /// The item that failed it.
    #[serde(default)]
    pub(crate) failed: Option<usize>,
}

/// What a worker of the user's own made of a task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) hold: Hold,
    pub(crate) node: NodeIx,
    pub(crate) iteration: i32,
    pub(crate) attempt: u32,
    pub(crate) fence: i32,
    pub(crate) result: Result<Value, Failure>,
}

/// Something came, or may have, for nodes that asked: these, by node and iteration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Look {
    pub(crate) hold: Hold,
    pub(crate) asked: Vec<(NodeIx, i32)>,
}

/// What came for nodes that asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Looked {
    /// `more`: not all of it.
    Done {
        ended: Vec<(NodeIx, i32, Ended)>,
        #[serde(default)]
        more: bool,
    },
    /// The run is another's by now, or over.
    Lost,
}

/// A loop that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Looping {
    pub(crate) count: usize,
    pub(crate) parallel: u32,
    pub(crate) on_item_error: OnItemError,
    /// How its items stand, as far as they were begun: from the first to the last index of a stretch.
    pub(crate) stand: Vec<(usize, usize, node::Status)>,
}

/// What a worker of the user's own is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Handed {
    pub(crate) input: Value,
    pub(crate) attempt: u32,
    pub(crate) fence: i32,
    /// How long it may take; as long as the run if not said.
    #[serde(default)]
    pub(crate) limit_ms: Option<u64>,
    /// How long it may be silent, if it is to say that it lives.
    #[serde(default)]
    pub(crate) lease_ms: Option<u64>,
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
    Waiting {
        ms: u64,
    },
    /// It is to be performed on its own: it failed in a way that is worth another try, which a step cannot wait for, or
    /// its condition holds and its work is none of a step.
    Later,
    /// It failed in a way that is worth this attempt, which is due in so long: its row says so.
    Again {
        attempt: u32,
        ms: u64,
    },
    /// Somebody outside is asked; their time is up in so long, if ever.
    Asked {
        #[serde(default)]
        expires_ms: Option<u64>,
    },
    Looping(Box<Looping>),
    /// It has a child, which is to run under its own id.
    Child(Box<Input>),
    /// A worker of the user's own is to do it.
    Handed(Box<Handed>),
    /// Stopped from above before it had a result.
    Stopped,
    /// The run is another's by now, or over.
    Lost,
}

impl Ended {
    /// Is there nothing more to come of it?
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Ended::Settled { .. } | Ended::Stopped | Ended::Lost)
    }
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
