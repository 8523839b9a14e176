//! The evaluation of an expression: request and response.

use kernel::ids::ExecutionId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

/// `POST /api/v1/workflow/expressions/evaluate`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EvaluateExpression {
    /// An expression such as `inputs.total > 10`, or text with `${{ }}` in it.
    #[schema(min_length = 1, max_length = 65_536, example = "inputs.total > 10")]
    pub expression: String,
    /// The execution whose input and nodes the expression sees. Default: none.
    pub execution_id: Option<ExecutionId>,
    /// The input that the expression sees. Default: the input of the execution.
    pub input: Option<Value>,
}

/// The value of an expression.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ExpressionValue {
    pub value: Value,
    /// The type of the value, in words.
    #[serde(rename = "type")]
    #[schema(example = "a boolean")]
    pub kind: String,
}
