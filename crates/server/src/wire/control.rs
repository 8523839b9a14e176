//! Bulk starts, reruns and dead letters.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kernel::execution;
use kernel::ids::{DefinitionId, ExecutionId, QueueItemId, WorkspaceId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use super::{ProblemBody, StartedExecution};

/// `POST /api/v1/workflow/executions/bulk`
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BulkStartExecutions {
    /// Up to 1,000 bodies of single starts (`StartExecution`). An item that cannot be read is refused alone.
    #[schema(min_items = 1, max_items = 1000)]
    pub items: Vec<Value>,
}

/// One result for each item, in order.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BulkStartedExecutions {
    pub items: Vec<BulkStartResult>,
}

/// The response that a single start request for this item would get.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BulkStartResult {
    /// 202, or the status of the problem.
    pub status: u16,
    pub started: Option<StartedExecution>,
    pub problem: Option<ProblemBody>,
}

/// `POST /api/v1/workflow/executions/{id}/rerun`
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RerunExecution {
    #[serde(default)]
    pub from: RerunFrom,
    /// The node to start from. Required with `from: node`.
    #[schema(max_length = 64)]
    pub node: Option<String>,
    /// Another input. Default: the input of the rerun execution.
    pub input: Option<Value>,
    #[serde(default)]
    pub version: RerunVersion,
    /// For each node with the status `UNKNOWN`, by its key: whether it took effect. Every such node must be named.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resolve: BTreeMap<String, NodeResolution>,
}

/// Whether a node with the status `UNKNOWN` took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NodeResolution {
    /// The node took effect. It counts as completed, without an output.
    Done,
    /// The node did not take effect. It is performed again.
    Repeat,
}

impl From<NodeResolution> for execution::rerun::Resolution {
    fn from(resolution: NodeResolution) -> Self {
        match resolution {
            NodeResolution::Done => execution::rerun::Resolution::Done,
            NodeResolution::Repeat => execution::rerun::Resolution::Repeat,
        }
    }
}

/// Which nodes a rerun performs again. The other nodes keep their outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RerunFrom {
    /// All nodes.
    #[default]
    Start,
    /// The nodes that failed, were stopped or did not begin, and all nodes after them.
    Failed,
    /// One node, and all nodes after it.
    Node,
}

/// Which version a rerun runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RerunVersion {
    /// The version that ran.
    #[default]
    Same,
    /// The version that is published now.
    Latest,
}

/// An item of `GET /api/v1/workflow/queue?status=FAILED`.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    pub queue_id: QueueItemId,
    pub execution_id: ExecutionId,
    pub workspace_id: WorkspaceId,
    pub workflow_definition_id: DefinitionId,
    pub workflow_name: Option<String>,
    /// The final status of the execution: `FAILED` or `TIMED_OUT`.
    pub execution_status: Option<execution::Status>,
    /// How often the engine refused to start the execution.
    pub attempts: i32,
    pub last_error: Option<String>,
    /// Why the execution failed: `{type, message, node?, status?}`.
    pub error: Option<Value>,
    pub created_at: Timestamp,
    pub failed_at: Option<Timestamp>,
}
