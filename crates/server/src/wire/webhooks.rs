//! Webhooks: URLs that receive a message when an execution ends, and the deliveries of these messages. A secret is
//! shown once, in the response that creates it.

use std::fmt;

use jiff::Timestamp;
use kernel::ids::{DefinitionId, ExecutionId, WorkspaceId};
use kernel::{execution, webhook};
use serde::{Deserialize, Deserializer, Serialize};
use serde_with::rust::double_option;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;
use uuid::Uuid;

/// `POST /api/v1/webhooks`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateWebhook {
    /// The workspace whose executions the webhook reports. Required with a root key.
    pub workspace_id: Option<WorkspaceId>,
    /// Where messages are sent, with http or https. By default only public addresses are allowed.
    #[schema(min_length = 1, max_length = 2048)]
    pub url: String,
    /// The final statuses to report: COMPLETED, FAILED, CANCELED, TIMED_OUT. Default: all of them.
    #[schema(min_items = 1, max_items = 4)]
    pub events: Option<Vec<execution::Status>>,
    /// Report executions of this workflow only. Default: of all workflows of the workspace.
    pub workflow_definition_id: Option<DefinitionId>,
    #[schema(max_length = 500)]
    pub description: Option<String>,
}

/// `PATCH /api/v1/webhooks/{id}`: an omitted field keeps its value; `null` resets it to its default. `url` has no
/// default, so it cannot be `null`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChangeWebhook {
    #[schema(min_length = 1, max_length = 2048, nullable = false)]
    #[serde(default, deserialize_with = "not_null")]
    pub url: Option<String>,
    /// The final statuses to report. Null: all of them.
    #[schema(value_type = Option<Vec<execution::Status>>, min_items = 1, max_items = 4)]
    #[serde(default, with = "double_option")]
    pub events: Option<Option<Vec<execution::Status>>>,
    /// Null: none.
    #[schema(value_type = Option<String>, max_length = 500)]
    #[serde(default, with = "double_option")]
    pub description: Option<Option<String>>,
    /// False turns the webhook off: no messages are stored for it. True or null turns it on again.
    #[serde(default, with = "double_option")]
    pub enabled: Option<Option<bool>>,
}

/// Reads a field that may be omitted and has no default to which `null` could reset it.
fn not_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    String::deserialize(deserializer).map(Some)
}

/// An address that is notified when executions end.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    pub id: Uuid,
    pub workspace_id: WorkspaceId,
    /// The URL. A key without the scope `manage` sees its scheme and host only.
    pub url: String,
    pub events: Vec<execution::Status>,
    pub workflow_definition_id: Option<DefinitionId>,
    pub workflow_name: Option<String>,
    pub description: Option<String>,
    pub enabled: bool,
    /// Why the webhook is off.
    pub disabled_reason: Option<String>,
    pub disabled_at: Option<Timestamp>,
    /// When the receiver began to fail: it has accepted no message since.
    pub failing_since_at: Option<Timestamp>,
    /// Increases with each rotation of the secret.
    pub secret_version: i32,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub created_by: String,
}

/// A webhook, and the secret that signs its messages from now on.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreatedWebhook {
    pub webhook: Webhook,
    /// Shown once only. The service stores it sealed.
    pub secret: String,
}

impl fmt::Debug for CreatedWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreatedWebhook").field("webhook", &self.webhook).finish_non_exhaustive()
    }
}

/// Replaces the secret of a webhook, or the token of a trigger.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rotate {
    /// How long the previous secret or token also works. Default: a day for the secret of a webhook, 0 for the token of
    /// a trigger.
    #[schema(minimum = 0, maximum = 604_800)]
    pub grace_period_seconds: Option<u32>,
}

/// A message to a webhook about the end of an execution.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    /// Sent as `webhook-id` with every attempt.
    pub id: Uuid,
    pub webhook_id: Uuid,
    pub execution_id: ExecutionId,
    /// The final status of the execution.
    pub event: execution::Status,
    pub status: webhook::Status,
    pub attempts: i32,
    /// When the message is sent next. While it is being sent: when another process takes over if the sender dies.
    pub next_attempt_at: Option<Timestamp>,
    /// The HTTP status of the last answer.
    pub last_status: Option<i32>,
    pub last_error: Option<String>,
    pub created_at: Timestamp,
    pub ended_at: Option<Timestamp>,
}
