//! What crosses the wire to control what waits and runs: bulk starts, reruns, dead letters.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kernel::execution;
use kernel::ids::{DefinitionId, ExecutionId, QueueItemId, WorkspaceId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use super::{ProblemBody, Started};

/// `POST /api/v1/workflow/executions/bulk`
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BulkStart {
    /// Up to 1,000 bodies as a single start takes them (`StartExecution`); what cannot be read of one is that one's
    /// problem.
    #[schema(min_items = 1, max_items = 1000)]
    pub items: Vec<Value>,
}

/// One answer per item, in their order.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BulkStarted {
    pub items: Vec<BulkItem>,
}

/// What a single start would have been answered.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct BulkItem {
    /// 202, or the problem's status.
    pub status: u16,
    pub started: Option<Started>,
    pub problem: Option<ProblemBody>,
}

/// `POST /api/v1/workflow/executions/{id}/rerun`
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rerun {
    #[serde(default)]
    pub from: RerunFrom,
    /// The node to begin at, with `from: node`.
    #[schema(max_length = 64)]
    pub node: Option<String>,
    /// Another input than the first time's.
    pub input: Option<Value>,
    #[serde(default)]
    pub version: RerunVersion,
    /// What was found out about nodes that ended UNKNOWN, by their keys: each must be named.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resolve: BTreeMap<String, RerunResolve>,
}

/// Whether a node whose end is not known took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
// Generators call the type of `Rerun.resolve` RerunResolve.
#[schema(as = NodeResolution)]
pub enum RerunResolve {
    /// It did: it counts as completed, and produced nothing.
    Done,
    /// It did not: it is performed again.
    Repeat,
}

impl From<RerunResolve> for execution::rerun::Resolve {
    fn from(resolve: RerunResolve) -> Self {
        match resolve {
            RerunResolve::Done => execution::rerun::Resolve::Done,
            RerunResolve::Repeat => execution::rerun::Resolve::Repeat,
        }
    }
}

/// Where a rerun begins; what is not done anew keeps what it produced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RerunFrom {
    /// Everything anew.
    #[default]
    Start,
    /// What failed, was stopped or never came, and what follows from it.
    Failed,
    /// One node and what follows from it.
    Node,
}

/// Which version a rerun runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RerunVersion {
    /// The one that ran the first time.
    #[default]
    Same,
    /// The one that is published now.
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
    /// How the execution ended: FAILED or TIMED_OUT.
    pub execution_status: Option<execution::Status>,
    pub attempts: i32,
    pub last_error: Option<String>,
    /// `{type, message, node?, status?}` of what failed it.
    pub error: Option<Value>,
    pub created_at: Timestamp,
    pub failed_at: Option<Timestamp>,
}
