//! Settings of the API: its addresses, its limits for clients, and the time that a client may take.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::{Invalid, at_least, origins};

/// The minimum of every timeout for clients.
const MIN_TIMEOUT_MS: u64 = 100;
/// The minimum of `http.max_stream_backlog_bytes`.
const MIN_BACKLOG_BYTES: usize = 64 * 1024;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    pub listen: SocketAddr,
    pub admin_listen: Option<SocketAddr>,
    pub public_url: Option<String>,
    pub max_body_bytes: usize,
    pub request_timeout_ms: u64,
    pub max_waits_per_workspace: usize,
    pub max_streams_per_workspace: usize,
    pub max_stream_backlog_bytes: usize,
    pub max_connections: Option<usize>,
    pub max_connections_per_address: Option<usize>,
    pub trusted_proxies: Vec<ipnet::IpNet>,
    pub header_timeout_ms: u64,
    pub idle_timeout_ms: u64,
    pub write_timeout_ms: u64,
    pub cors_origins: Vec<String>,
}

impl Default for Http {
    fn default() -> Self {
        Http {
            listen: SocketAddr::from(([127, 0, 0, 1], 7400)),
            admin_listen: None,
            public_url: None,
            max_body_bytes: 1 << 20,
            request_timeout_ms: 60_000,
            max_waits_per_workspace: 256,
            max_streams_per_workspace: 256,
            max_stream_backlog_bytes: 8 * 1024 * 1024,
            max_connections: None,
            max_connections_per_address: None,
            trusted_proxies: Vec::new(),
            header_timeout_ms: 10_000,
            idle_timeout_ms: 75_000,
            write_timeout_ms: 30_000,
            cors_origins: Vec::new(),
        }
    }
}

impl Http {
    pub(super) fn check(&self) -> Result<(), Invalid> {
        at_least("http.header_timeout_ms", self.header_timeout_ms, MIN_TIMEOUT_MS)?;
        at_least("http.idle_timeout_ms", self.idle_timeout_ms, MIN_TIMEOUT_MS)?;
        at_least("http.write_timeout_ms", self.write_timeout_ms, MIN_TIMEOUT_MS)?;
        at_least("http.max_stream_backlog_bytes", self.max_stream_backlog_bytes, MIN_BACKLOG_BYTES)?;
        at_least("http.max_connections", self.max_connections.unwrap_or(1), 1)?;
        at_least("http.max_connections_per_address", self.max_connections_per_address.unwrap_or(1), 1)?;
        origins::check_origins(&self.cors_origins)?;
        origins::check_public_url(self.public_url.as_deref())
    }
}
