//! Secrets: what is set, and what is known of them afterwards; never the value.

use jiff::Timestamp;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;
use zeroize::Zeroizing;

/// `PUT /api/v1/workspaces/{id}/secrets/{name}`
#[skip_serializing_none]
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetSecret {
    /// 1 to 65536 bytes. It is never shown again, by nothing.
    #[schema(value_type = String, min_length = 1, max_length = 65_536)]
    pub value: Hidden,
    /// The hosts it may be sent to, such as `api.example.com`: calls that would send it elsewhere fail. An empty list
    /// is any host. Omitted, they stay as they were; a new secret may be sent to any.
    #[schema(max_items = 20)]
    pub hosts: Option<Vec<String>>,
}

impl std::fmt::Debug for SetSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SetSecret(…)")
    }
}

/// A text that is wiped, and that no error repeats.
#[derive(Clone)]
pub struct Hidden(pub Zeroizing<String>);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hidden(…)")
    }
}

impl Serialize for Hidden {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Hidden {
    /// By hand: the usual error quotes what it found instead of a text.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer) {
            Ok(Value::String(text)) => Ok(Hidden(Zeroizing::new(text))),
            _ => Err(D::Error::custom("must be text")),
        }
    }
}

/// What is known of a secret.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Secret {
    pub name: String,
    /// Raised each time it is set.
    pub version: i32,
    pub created_at: Timestamp,
    /// When this version was set.
    pub updated_at: Timestamp,
    /// Who set this version.
    pub created_by: String,
    /// The hosts it may be sent to; absent for any.
    pub hosts: Option<Vec<String>>,
}
