//! Workflows as requests submit them, and as they are stored.
//!
//! Not here: the document of a workflow (`kernel::definition::parse`), its versions in lists (`lists`).

use jiff::Timestamp;
use kernel::ids::{DefinitionId, VersionId, WorkspaceId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

/// `POST /api/v1/workflow/definitions`, `…/validate`, `…/apply` and `…/{id}/versions`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SubmitDefinition {
    /// The workflow as JSON, in either form. Default: `source` is read.
    pub document: Option<Value>,
    /// The name of the workflow, if the document has none.
    pub name: Option<String>,
    /// The text of the workflow, YAML or JSON. It is stored for people. Without a `document` it is also read, and
    /// problems have a line and a column.
    pub source: Option<String>,
    /// Required with a root key.
    pub workspace_id: Option<WorkspaceId>,
}

/// `POST /api/v1/workflow/definitions/{id}/publish`
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PublishDefinition {}

/// A workflow that was checked and has no problem. Nothing was stored.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ValidatedDefinition {
    pub valid: bool,
    pub nodes: usize,
    pub edges: usize,
    pub content_hash: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Definition {
    pub id: DefinitionId,
    pub workspace_id: WorkspaceId,
    pub name: String,
    /// `DRAFT`, `ACTIVE` or `PAUSED`. A draft has no published version.
    pub status: String,
    pub published_version: Option<i32>,
    pub published_version_id: Option<VersionId>,
    /// How many of its executions may run at once. Absent: only the limit of the workspace applies.
    pub concurrency: Option<i32>,
    /// How many of its executions with the same concurrency key may run at once.
    pub key_concurrency: i32,
    /// After this many refusals by the engine a queue item is marked `FAILED`.
    pub max_attempts: i32,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// The version of an applied workflow: stored now, or the latest one if it has the same content.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliedDefinition {
    pub definition: Definition,
    pub version: i32,
    pub version_id: VersionId,
    /// True: the latest version already had this content, and nothing was stored.
    pub unchanged: bool,
}
