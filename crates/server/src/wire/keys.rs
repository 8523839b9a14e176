//! API keys. The text of a key is shown once, in the response that creates the key.

use jiff::Timestamp;
use kernel::access::Scope;
use kernel::ids::{KeyId, WorkspaceId};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

/// `POST /api/v1/keys`
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateApiKey {
    #[schema(min_length = 1, max_length = 200)]
    pub name: String,
    /// The workspace that the key gives access to. Required with a root key; with a workspace key, its own.
    pub workspace_id: Option<WorkspaceId>,
    /// What the key may do. It gets no scope that the key of this request lacks. Default: all scopes of that key.
    #[schema(min_items = 1)]
    pub scopes: Option<Vec<Scope>>,
    /// When the key stops working. No later than the key of this request. Default: when that key stops working.
    pub expires_at: Option<Timestamp>,
}

/// A new key, with the text that clients send.
#[skip_serializing_none]
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreatedApiKey {
    pub id: KeyId,
    pub name: String,
    pub workspace_id: WorkspaceId,
    pub scopes: Vec<Scope>,
    /// Who created the key: `root`, or `key:` and the id of another key.
    pub created_by: String,
    pub expires_at: Option<Timestamp>,
    /// The key itself. Only this response shows it: the service stores a hash.
    pub key: String,
}

/// Omits the text of the key, so that no log contains it.
impl std::fmt::Debug for CreatedApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedApiKey").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}

/// A key, without the text that clients send.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiKey {
    pub id: KeyId,
    pub name: String,
    /// Absent: a root key.
    pub workspace_id: Option<WorkspaceId>,
    /// The first characters of the key. Absent: the key is from an old release.
    pub prefix: Option<String>,
    pub scopes: Vec<Scope>,
    pub created_at: Timestamp,
    /// Who created the key: `root`, or `key:` and the id of another key. Absent: the key is from an old release.
    pub created_by: Option<String>,
    pub expires_at: Option<Timestamp>,
    /// When the key was last used, to the minute.
    pub last_used_at: Option<Timestamp>,
}
