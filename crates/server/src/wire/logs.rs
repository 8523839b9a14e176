//! The log of an execution: messages of its `LOG` nodes, and failed attempts.

use jiff::Timestamp;
use kernel::kind::log::Level;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

/// `GET /api/v1/workflow/executions/{id}/logs`: the oldest line first. Pages follow the order in which nodes ended.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionLogs {
    pub items: Vec<LogLine>,
    /// Send it as `?cursor=` to get the next page. Absent: this is the last page.
    pub next_cursor: Option<String>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogLine {
    pub at: Timestamp,
    pub node: String,
    pub iteration: i32,
    /// The attempt at the node, from 1.
    pub attempt: i32,
    pub source: LogSource,
    #[schema(value_type = String, example = "info")]
    pub level: Level,
    pub message: String,
    /// The `data` of the `LOG` node, or the failure with its type.
    pub data: Option<Value>,
}

/// Where a line comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogSource {
    /// A `LOG` node.
    Log,
    /// An attempt that failed.
    Failure,
}
