//! Triggers: the secret addresses that start workflows. A token is shown once, in the response that creates it.

use std::fmt;

use jiff::Timestamp;
use kernel::ids::{DefinitionId, WorkspaceId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;
use uuid::Uuid;

/// `POST /api/v1/triggers`
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateTrigger {
    /// A workflow whose published version has `on: http`.
    pub workflow_definition_id: DefinitionId,
}

/// The trigger of a workflow, without its token.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Trigger {
    pub id: Uuid,
    pub workspace_id: WorkspaceId,
    pub workflow_definition_id: DefinitionId,
    pub workflow_name: String,
    /// The first characters of the token. Absent: the trigger has no token and accepts no request.
    pub token_prefix: Option<String>,
    /// When the previous token stops working. Absent: only the current token works.
    pub previous_expires_at: Option<Timestamp>,
    pub rotated_at: Option<Timestamp>,
    /// The `on: http` of the published version.
    #[schema(value_type = Object)]
    pub rule: Value,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A trigger and its new token.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreatedTrigger {
    pub trigger: Trigger,
    /// The token. Only this response shows it: the service stores a hash.
    pub token: String,
    /// The path to POST to, on the address of this service.
    pub path: String,
}

impl fmt::Debug for CreatedTrigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreatedTrigger").field("trigger", &self.trigger).finish_non_exhaustive()
    }
}
