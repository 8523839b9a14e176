//! Settings of the API: where it listens, and what clients may take of the process.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::{Invalid, origins};

/// The shortest time that a client may be given.
const SHORTEST_MS: u64 = 100;
/// The least that may wait for a stream.
const LEAST_BACKLOG: usize = 64 * 1024;

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
        let fail = |key, problem: &str| Err(Invalid { key, problem: problem.to_owned() });
        let times = [
            ("http.header_timeout_ms", self.header_timeout_ms),
            ("http.idle_timeout_ms", self.idle_timeout_ms),
            ("http.write_timeout_ms", self.write_timeout_ms),
        ];
        if let Some((key, _)) = times.into_iter().find(|(_, time)| *time < SHORTEST_MS) {
            return fail(key, "must be at least 100");
        }
        if self.max_stream_backlog_bytes < LEAST_BACKLOG {
            return fail("http.max_stream_backlog_bytes", "must be at least 65536");
        }
        if self.max_connections == Some(0) {
            return fail("http.max_connections", "must be at least 1");
        }
        if self.max_connections_per_address == Some(0) {
            return fail("http.max_connections_per_address", "must be at least 1");
        }
        origins::check(&self.cors_origins)?;
        origins::check_base(self.public_url.as_deref())
    }
}
