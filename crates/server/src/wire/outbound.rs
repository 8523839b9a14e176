//! The rules for outbound calls of a workspace.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `PUT /api/v1/workspaces/{id}/outbound`
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OutboundRules {
    /// Destinations that the workspace may call although they are not public: `host:port`, or a range of addresses such
    /// as `10.1.0.0/16:port`.
    #[serde(default)]
    #[schema(max_items = 100)]
    pub allow: Vec<String>,
    /// Hosts, addresses and ranges that the workspace may not call, on any port. Write them without a port.
    #[serde(default)]
    #[schema(max_items = 100)]
    pub deny: Vec<String>,
}
