//! Secrets of a workspace. The value of a secret can be set, but no response contains it.

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
    /// The value, 1 to 65536 bytes. The service never shows it.
    #[schema(value_type = String, min_length = 1, max_length = 65_536)]
    pub value: SecretValue,
    /// The hosts that the secret may be sent to, such as `api.example.com`. Calls that would send it to another host
    /// fail. An empty list means any host. Omitted: an existing secret keeps its hosts, a new one has any host.
    #[schema(max_items = 20)]
    pub hosts: Option<Vec<String>>,
}

impl std::fmt::Debug for SetSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SetSecret(…)")
    }
}

/// The value of a secret. It is wiped from memory after use, and no error contains it.
#[derive(Clone)]
pub struct SecretValue(pub Zeroizing<String>);

impl std::fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretValue(…)")
    }
}

impl Serialize for SecretValue {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for SecretValue {
    /// Written by hand, because the error of a derived implementation would quote the value.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer) {
            Ok(Value::String(text)) => Ok(SecretValue(Zeroizing::new(text))),
            _ => Err(D::Error::custom("must be text")),
        }
    }
}

/// A secret, without its value.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Secret {
    pub name: String,
    /// Increases each time the secret is set.
    pub version: i32,
    pub created_at: Timestamp,
    /// When this version was set.
    pub updated_at: Timestamp,
    /// Who set this version.
    pub created_by: String,
    /// The hosts that the secret may be sent to. Absent: any host.
    pub hosts: Option<Vec<String>>,
}
