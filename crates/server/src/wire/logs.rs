//! What crosses the wire of what nodes said.

use jiff::Timestamp;
use kernel::kind::log::Level;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// `GET /api/v1/workflow/executions/{id}/logs`: oldest first.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Logs {
    pub items: Vec<LogLine>,
}

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
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
