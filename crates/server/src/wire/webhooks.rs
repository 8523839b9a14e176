//! Webhooks: who is told of ends, what was told, and the addresses that start workflows. Secrets and tokens are shown
//! once.

use std::fmt;

use jiff::Timestamp;
use kernel::ids::{DefinitionId, ExecutionId, WorkspaceId};
use kernel::{execution, webhook};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;
use uuid::Uuid;

/// `POST /api/v1/webhooks`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateWebhook {
    /// With a root key: whose ends are told.
    pub workspace_id: Option<WorkspaceId>,
    /// Where messages go, by http or https; as a rule only to public addresses.
    #[schema(min_length = 1, max_length = 2048)]
    pub url: String,
    /// Which ends: COMPLETED, FAILED, CANCELED, TIMED_OUT; all of them if not said.
    #[schema(min_items = 1, max_items = 4)]
    pub events: Option<Vec<execution::Status>>,
    /// Of this workflow alone; of every one if not said.
    pub workflow_definition_id: Option<DefinitionId>,
    #[schema(max_length = 500)]
    pub description: Option<String>,
}

/// `PATCH /api/v1/webhooks/{id}`: what is absent stays.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChangeWebhook {
    #[schema(min_length = 1, max_length = 2048)]
    pub url: Option<String>,
    #[schema(min_items = 1, max_items = 4)]
    pub events: Option<Vec<execution::Status>>,
    #[schema(max_length = 500)]
    pub description: Option<String>,
    /// False turns it off: ends are not kept for it. True turns it on, also after it was turned off by itself.
    pub enabled: Option<bool>,
}

/// Who is told of ends.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    pub id: Uuid,
    pub workspace_id: WorkspaceId,
    /// Without the scope `manage`, its scheme and host only.
    pub url: String,
    pub events: Vec<execution::Status>,
    pub workflow_definition_id: Option<DefinitionId>,
    pub workflow_name: Option<String>,
    pub description: Option<String>,
    pub enabled: bool,
    /// Why it is off.
    pub disabled_reason: Option<String>,
    pub disabled_at: Option<Timestamp>,
    /// Nothing was taken since then.
    pub failing_since: Option<Timestamp>,
    /// Raised by each rotation.
    pub secret_version: i32,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub created_by: String,
}

/// A webhook, and what its messages are signed with from now on.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreatedWebhook {
    pub webhook: Webhook,
    /// Shown this once, and kept sealed.
    pub secret: String,
}

impl fmt::Debug for CreatedWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreatedWebhook").field("webhook", &self.webhook).finish_non_exhaustive()
    }
}

/// Another secret or token in place of the one there is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rotate {
    /// For how long the one before is good too. If not said: a day for a webhook's secret, not at all for a hook's
    /// token.
    #[schema(minimum = 0, maximum = 604_800)]
    pub overlap_seconds: Option<u32>,
}

/// One end, told or to be told to a webhook.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    /// The `webhook-id` of every attempt.
    pub id: Uuid,
    pub webhook_id: Uuid,
    pub execution_id: ExecutionId,
    /// How the execution ended.
    pub event: execution::Status,
    pub status: webhook::Status,
    pub attempts: i32,
    /// When it is sent next, or at the latest taken over from a sender that died.
    pub next_attempt_at: Option<Timestamp>,
    /// What the receiver answered last.
    pub last_status: Option<i32>,
    pub last_error: Option<String>,
    pub created_at: Timestamp,
    pub ended_at: Option<Timestamp>,
}

/// `POST /api/v1/hooks`
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateHook {
    /// A workflow whose published version has `on: webhook`.
    pub workflow_definition_id: DefinitionId,
}

/// The address that starts a workflow, without its token.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Hook {
    pub id: Uuid,
    pub workspace_id: WorkspaceId,
    pub workflow_definition_id: DefinitionId,
    pub workflow_name: String,
    /// How its token begins; none: it has none, and takes no request.
    pub token_prefix: Option<String>,
    /// Until when the token before opens too.
    pub previous_until: Option<Timestamp>,
    pub rotated_at: Option<Timestamp>,
    /// What the workflow's `on: webhook` says.
    #[schema(value_type = Object)]
    pub rule: Value,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A hook, and its new token.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreatedHook {
    pub hook: Hook,
    /// Shown this once, and kept as a hash.
    pub token: String,
    /// Where to POST, on this service's own address.
    pub path: String,
}

impl fmt::Debug for CreatedHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreatedHook").field("hook", &self.hook).finish_non_exhaustive()
    }
}
