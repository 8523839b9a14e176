//! The messages between the workflow and its activities. Temporal stores them in histories, so they must stay readable
//! for years.
//!
//! Invariants
//! - A message contains only ids, statuses, labels and classes: no node output, and nothing else that grows with data.
//!   The one exception is the input and the result of a user's own activity, which Temporal itself must pass on.
//! - From the first release on, fields are only ever added, with a default, because histories of older builds are
//!   replayed. A field or a variant that gets a better name then keeps its stored name (`serde(rename)`).
//!
//! Not here: performing them (`activities`), their order (`workflow`).

use kernel::definition::plan::{NodeIx, Plan};
use kernel::definition::{Definition, Delivery, Edge, Join, Kind, Manner, Node, OnError};
use kernel::execution;
use kernel::ids::{DefinitionId, ExecutionId, Label, NodeKey, ProcessId, VersionId, WorkspaceId};
use kernel::kind::for_each::OnItemError;
use kernel::kind::task::Activity;
use kernel::orchestration::ahead::Foresight;
use kernel::orchestration::{NodeSnapshot, Target};
use kernel::run::Outcome;
use kernel::run::failure::{Class, Failure};
use kernel::run::node;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::run::attempt::Ownership;

use crate::retry::RetryConfig;

/// The input of a workflow.
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
    /// True for a child without a deadline of its own: the parent stops it when the parent's deadline passes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) inherits: bool,
}

/// The result of a workflow that completed.
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

/// Asks whether this run may perform nodes. It is the first request of every history, also after a continue-as-new.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BeginRequest {
    pub(crate) execution: ExecutionId,
    pub(crate) owner: ProcessId,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum BeginResult {
    Granted(Box<RunState>),
    /// All nodes of the run only compute. They were performed, and the end of the run is recorded.
    Completed {
        completed: CompletedRun,
        node_results: Vec<NodeResult>,
    },
    /// The execution has ended, or another run performs it. There is nothing to do.
    Over,
}

/// The state of a run, read from its rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RunState {
    pub(crate) epoch: i64,
    pub(crate) shape: GraphShape,
    /// The nodes that have begun, the settled ones in the order in which they settled.
    pub(crate) nodes: Vec<NodeSnapshot>,
    /// The time until the run's deadline.
    pub(crate) deadline_ms: u64,
    /// How long a node stays with a worker that sends no heartbeat.
    pub(crate) heartbeat_ms: u64,
    /// True if the cancellation of the run was requested.
    pub(crate) canceling: bool,
}

/// The graph of a version, without the configuration of its nodes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GraphShape {
    pub(crate) nodes: Vec<GraphNode>,
    pub(crate) edges: Vec<(NodeIx, NodeIx, Option<Label>)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GraphNode {
    pub(crate) key: NodeKey,
    pub(crate) kind: Kind,
    pub(crate) when: Join,
    pub(crate) on_error: OnError,
    /// The time limit of one attempt.
    pub(crate) limit_ms: u64,
    /// True if the node makes a call that runs as a local activity.
    pub(crate) local: bool,
    /// True if the node has its own condition, which is evaluated first.
    pub(crate) conditional: bool,
    /// The branches of a node whose configuration names them.
    pub(crate) labels: Vec<String>,
    /// The node that a loop performs for each item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) action: Option<Box<GraphNode>>,
    /// Set for a task that a user's own activity performs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) activity: Option<Activity>,
    /// True if the node may be performed at most once.
    pub(crate) at_most_once: bool,
}

impl GraphShape {
    pub(crate) fn new(definition: &Definition, plan: &Plan, local_below_ms: u64) -> GraphShape {
        let edge = |edge: &Edge| Some((plan.index_of(&edge.from)?, plan.index_of(&edge.to)?, edge.label.clone()));
        GraphShape {
            nodes: definition.nodes.iter().map(|node| GraphNode::new(node, local_below_ms)).collect(),
            edges: definition.edges.iter().filter_map(edge).collect(),
        }
    }

    /// The graph node to perform: the node itself, or the action of a loop.
    pub(crate) fn node(&self, at: Target) -> &GraphNode {
        let node = &self.nodes[at.node];
        if at.iteration == 0 { node } else { node.action.as_deref().unwrap_or(node) }
    }

    /// The plan of this graph. Its retries are not used, because the activities decide about retries.
    pub(crate) fn plan(&self) -> Result<Plan, String> {
        let node = |node: &GraphNode| Node {
            when: node.when,
            on_error: node.on_error,
            ..Node::new(node.key.clone(), node.kind)
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
        let describe = |problems: Vec<kernel::definition::plan::Invalid>| {
            problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        let labels = |at: NodeIx| match &self.nodes[at] {
            node if node.labels.is_empty() => kernel::kind::labels(node.kind, &Value::Null),
            node => node.labels.clone(),
        };
        Plan::with_labels(&definition, labels).map_err(describe)
    }
}

impl GraphNode {
    /// What is known about the node before it is performed.
    pub(crate) fn foresight(&self) -> Foresight {
        let computes = self.kind.manner() == Manner::Computes;
        match computes && self.labels.is_empty() && kernel::kind::labels(self.kind, &Value::Null).is_empty() {
            true => Foresight::Completes,
            false if computes || self.conditional => Foresight::Branches,
            false => Foresight::Heavy,
        }
    }

    fn new(node: &Node, local_below_ms: u64) -> GraphNode {
        let limit_ms = u64::try_from(engine::nodes::timeout(node).as_millis()).unwrap_or(u64::MAX);
        let (key, kind, when, on_error) = (node.key.clone(), node.kind, node.when, node.on_error);
        let local = kind.manner() == Manner::Calls && limit_ms <= local_below_ms;
        let labels = kernel::kind::own_labels(kind, &node.with);
        let conditional = node.condition.is_some();
        let action = (kind == Kind::ForEach).then(|| kernel::kind::for_each::action(node)).flatten();
        let action = action.map(|action| Box::new(GraphNode::new(&action, local_below_ms)));
        let activity = (kind == Kind::Task).then(|| kernel::kind::task::activity(&node.with)).flatten();
        let at_most_once = node.delivery == Delivery::AtMostOnce;
        GraphNode { key, kind, when, on_error, limit_ms, local, conditional, labels, action, activity, at_most_once }
    }
}

/// The maximum number of light nodes in one step.
pub(crate) const MAX_COMPUTED: usize = 100;

/// What one local activity does, in this order and in one commit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StepRequest {
    pub(crate) hold: Ownership,
    pub(crate) actions: Vec<StepAction>,
    /// The outcome of the run if every node to compute completes. It is recorded with the results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<Outcome>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum StepAction {
    /// Settle a node that is not performed.
    Settle { node: NodeIx, iteration: i32, status: node::Status },
    /// Perform a node that only computes.
    Compute { node: NodeIx, iteration: i32 },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum StepResult {
    /// The results of the computed nodes, in order. There may be fewer results than requests, because a computed node
    /// may settle other nodes first.
    Done(Vec<PerformResult>),
    /// Every node was computed, and the end of the run is recorded.
    Completed { ended: Vec<PerformResult>, completed: CompletedRun },
    /// The run has ended, or another run performs the execution.
    Lost,
}

/// Asks an activity to perform one node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PerformRequest {
    pub(crate) hold: Ownership,
    pub(crate) node: NodeIx,
    /// The number of a loop's item, counted from 1. 0 means the node itself.
    pub(crate) iteration: i32,
    /// Set when the workflow of the node's child has closed. For an at-most-once node, set when its own activity has
    /// closed. The node is then only settled.
    pub(crate) closed: Option<CloseReason>,
    /// Set when an earlier history started the node's child: the reason to use if the child's workflow has closed. With
    /// `Stopped`, no child is started.
    pub(crate) earlier_child: Option<CloseReason>,
    /// True if the run completes when this node completes. Its end is then recorded with the node's result.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_last: bool,
}

/// Why a child's workflow closed, or why an activity closed that reported no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CloseReason {
    ByItself,
    /// Its parent stopped the child's workflow, or the run stopped the activity.
    Stopped,
}

/// Asks to collect the outputs of a loop that is over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CollectRequest {
    pub(crate) hold: Ownership,
    pub(crate) node: NodeIx,
    /// The item that failed the loop.
    pub(crate) failed: Option<usize>,
}

/// The result of a task that a user's own worker performed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TaskReport {
    pub(crate) hold: Ownership,
    pub(crate) node: NodeIx,
    pub(crate) iteration: i32,
    pub(crate) attempt: u32,
    pub(crate) fence: i32,
    pub(crate) result: Result<Value, Failure>,
}

/// Asks to settle answered waits and to report the state of these waits, by node and iteration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CheckWaitsRequest {
    pub(crate) hold: Ownership,
    pub(crate) waits: Vec<(NodeIx, i32)>,
}

/// The waits that have ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum CheckWaitsResult {
    /// `more`: other waits have ended too, but did not fit into this result.
    Done { ended: Vec<(NodeIx, i32, PerformResult)>, more: bool },
    /// The run has ended, or another run performs the execution.
    Lost,
}

/// The state of a loop that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LoopState {
    pub(crate) count: usize,
    pub(crate) parallel: u32,
    pub(crate) on_item_error: OnItemError,
    /// The statuses of the items that were begun, as ranges from a first to a last index.
    pub(crate) items: Vec<(usize, usize, node::Status)>,
}

/// A task for a user's own worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UserTask {
    pub(crate) input: Value,
    pub(crate) attempt: u32,
    pub(crate) fence: i32,
    /// The time limit of the task. None means the deadline of the run.
    pub(crate) limit_ms: Option<u64>,
    /// The heartbeat timeout, if the worker must send heartbeats.
    pub(crate) lease_ms: Option<u64>,
}

/// The state of a node after an activity. A failure is a result, not an error: the retry policy is exhausted and the
/// row is FAILED.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PerformResult {
    Settled {
        status: node::Status,
        label: Option<Label>,
        class: Option<Class>,
    },
    /// The node's delay is stored, and ends after this time.
    Waiting {
        ms: u64,
    },
    /// The node must be performed by its own activity. Either it failed and may be retried, and a step cannot wait for
    /// the retry. Or its condition is true, and its work is more than a computation.
    PerformAlone,
    /// The node failed, and its row stores that this attempt follows after this time.
    Retry {
        attempt: u32,
        ms: u64,
    },
    /// The node's wait is stored, and expires after this time. None means that it never expires.
    WaitStored {
        expires_ms: Option<u64>,
    },
    Loop(Box<LoopState>),
    /// The node has a child, whose workflow must be started with this input.
    Child(Box<Input>),
    /// A user's own worker must perform the node.
    UserTask(Box<UserTask>),
    /// The node completed, and with it the run. The end of the run is recorded.
    Completed(CompletedRun),
    /// The node was stopped before it had a result.
    Stopped,
    /// The run has ended, or another run performs the execution.
    Lost,
}

impl PerformResult {
    /// True if the workflow needs to start no further work for the node.
    pub(crate) fn is_final(&self) -> bool {
        use PerformResult::{Completed, Lost, Settled, Stopped};
        matches!(self, Settled { .. } | Completed(_) | Stopped | Lost)
    }
}

/// Asks to record the outcome of the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CompleteRequest {
    pub(crate) hold: Ownership,
    pub(crate) outcome: Outcome,
}

/// The recorded outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CompletedRun {
    pub(crate) status: execution::Status,
    pub(crate) class: Option<Class>,
}
