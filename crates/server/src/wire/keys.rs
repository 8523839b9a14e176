//! Keys: what is asked for, what is shown once, what is shown later.

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
pub struct CreateKey {
    #[schema(min_length = 1, max_length = 200)]
    pub name: String,
    /// The workspace the key opens; with a workspace key, its own.
    pub workspace_id: Option<WorkspaceId>,
    /// What it may do: none that the key which makes it has not; all that key has, if not said.
    #[schema(min_items = 1)]
    pub scopes: Option<Vec<Scope>>,
    /// When it stops working by itself: no later than the key that makes it, and at the same time if not said.
    pub expires_at: Option<Timestamp>,
}

#[skip_serializing_none]
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreatedKey {
    pub id: KeyId,
    pub name: String,
    pub workspace_id: WorkspaceId,
    pub scopes: Vec<Scope>,
    /// Who made it: `root`, or `key:` and the id of a key.
    pub created_by: String,
    pub expires_at: Option<Timestamp>,
    /// The key itself: shown this once, kept nowhere.
    pub key: String,
}

/// The key is shown to its client and to nobody else, not even by accident.
impl std::fmt::Debug for CreatedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedKey").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}

/// A key in a list: never the key itself.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Key {
    pub id: KeyId,
    pub name: String,
    /// None for a root key.
    pub workspace_id: Option<WorkspaceId>,
    /// How it begins; not known of the oldest.
    pub prefix: Option<String>,
    pub scopes: Vec<Scope>,
    pub created_at: Timestamp,
    /// Who made it: `root`, or `key:` and the id of a key; not known of the oldest.
    pub created_by: Option<String>,
    pub expires_at: Option<Timestamp>,
    /// To the minute.
    pub last_used_at: Option<Timestamp>,
}
