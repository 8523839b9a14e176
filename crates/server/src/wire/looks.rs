//! What crosses the wire to look into an execution: what its nodes said, and what an expression makes of it.

use jiff::Timestamp;
use kernel::ids::ExecutionId;
use kernel::kind::log::Level;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

/// `GET /api/v1/workflow/executions/{id}/logs`: oldest first. Pages follow the order in which nodes settled.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Logs {
    pub items: Vec<LogLine>,
    /// Give it as `?cursor=` for the next page; absent on the last.
    pub next_cursor: Option<String>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogLine {
    pub at: Timestamp,
    pub node: String,
    pub iteration: i32,
    /// Which attempt at the node it was.
    pub attempt: i32,
    pub source: LogSource,
    #[schema(value_type = String, example = "info")]
    pub level: Level,
    pub message: String,
    /// What a LOG node gave along, or the failure with its type.
    pub data: Option<Value>,
}

/// Who says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogSource {
    /// A LOG node.
    Log,
    /// An attempt that failed.
    Failure,
}

/// `POST /api/v1/workflow/expressions/evaluate`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Evaluate {
    /// An expression such as `inputs.total > 10`, or text with `${{ }}` in it.
    #[schema(min_length = 1, max_length = 65_536, example = "inputs.total > 10")]
    pub expression: String,
    /// The execution whose input and nodes it looks at.
    pub execution_id: Option<ExecutionId>,
    /// An input instead of the execution's, or without one.
    pub input: Option<Value>,
}

/// What an expression comes to.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Evaluated {
    pub value: Value,
    /// What it is, in words.
    #[serde(rename = "type")]
    #[schema(example = "a boolean")]
    pub kind: String,
}
