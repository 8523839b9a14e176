//! The rules for outbound calls of a workspace.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `PUT /api/v1/workspaces/{id}/outbound`
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OutboundRules {
    /// Hosts that it may call although they are not public: `host:port`, or addresses of a range, `10.1.0.0/16:port`.
    #[serde(default)]
    #[schema(max_items = 100)]
    pub allow: Vec<String>,
    /// Hosts, addresses and ranges that it may not call, at any port. Written without a port.
    #[serde(default)]
    #[schema(max_items = 100)]
    pub deny: Vec<String>,
}
