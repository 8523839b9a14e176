//! How many connections this process may have, and how long each may stay without activity.
//!
//! Invariants
//! - The default is the process's limit of open files, minus the files that the process needs itself.
//!   `http.max_connections` can lower that number. A value above it is not applied, and a warning is logged.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use nix::sys::resource::{Resource, getrlimit};

use crate::config::{Settings, ms};

/// File descriptors for files, pipes, timers and connections that no setting limits.
const OWN_DESCRIPTORS: usize = 40;
/// The most connections of one process. More connections need more processes.
const MAX_CONNECTIONS: usize = 20_000;
/// The fewest connections that are always allowed.
const MIN_CONNECTIONS: usize = 16;
/// The connections at `http.admin_listen`, reserved so that clients cannot use up those of probes and scrapers.
const ADMIN: usize = 16;

/// How long a connection may stay without activity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// From the first byte of a request, or from the start of the connection, to the end of the request's head.
    pub(super) head: Duration,
    /// Between two requests.
    pub(super) idle: Duration,
    /// While the client reads nothing of a response.
    pub(super) write: Duration,
}

/// How many connections clients may have to this process, and for how long.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionLimits {
    pub(super) total: usize,
    pub(super) per_address: usize,
    /// The networks of trusted proxies. A proxy's connections carry many clients, so they count only toward the total.
    pub(super) proxies: Vec<IpNet>,
    pub(super) timeouts: Timeouts,
}

impl ConnectionLimits {
    /// The limits that follow from the settings and from the process's limit of open files.
    pub(crate) fn from_settings(settings: &Settings) -> ConnectionLimits {
        let http = &settings.http;
        let apart = if http.admin_listen.is_some() { ADMIN } else { 0 };
        let possible = possible(open_files().saturating_sub(apart), needed(settings));
        let total = http.max_connections.map_or(possible, |wanted| wanted.min(possible));
        if http.max_connections.is_some_and(|wanted| wanted > possible) {
            tracing::warn!(
                possible,
                "Only `possible` connections are accepted: the limit of open files is too low for \
                 http.max_connections; raise it (ulimit -n)"
            );
        }
        ConnectionLimits {
            total,
            per_address: http.max_connections_per_address.unwrap_or(total.div_ceil(2)).min(total),
            proxies: http.trusted_proxies.clone(),
            timeouts: Timeouts {
                head: ms(http.header_timeout_ms),
                idle: ms(http.idle_timeout_ms),
                write: ms(http.write_timeout_ms),
            },
        }
    }

    /// The limits for the address `http.admin_listen`.
    pub(crate) fn for_admin_listen(settings: &Settings) -> ConnectionLimits {
        ConnectionLimits { total: ADMIN, per_address: ADMIN, ..ConnectionLimits::from_settings(settings) }
    }

    /// True if this is the address of a proxy with many clients behind it.
    pub(super) fn is_proxy(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.proxies.iter().any(|net| net.contains(&address))
    }
}

/// How many file descriptors this process may have open.
fn open_files() -> usize {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(1_024, |(soft, _)| soft);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// How many file descriptors this process needs itself: first for its pools and files, second for the calls of its
/// workflows.
fn needed(settings: &Settings) -> (usize, usize) {
    let database = settings.database.api_connections + settings.database.work_connections;
    (database + OWN_DESCRIPTORS, settings.engine.max_calls)
}

/// How many connections are left for clients. If the limit of open files is low, clients get at least half of what the
/// pools and files leave, and the calls of workflows get the other half.
fn possible(files: usize, (own, calls): (usize, usize)) -> usize {
    let left = files.saturating_sub(own);
    left.saturating_sub(calls.min(left / 2)).clamp(MIN_CONNECTIONS, MAX_CONNECTIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_left_for_the_process_itself() {
        let needed = needed(&Settings::default());
        assert_eq!(needed, (56, 256));
        assert_eq!(possible(200, needed), 72);
        assert_eq!(possible(1_024, needed), 712);
        assert_eq!(possible(65_536, needed), 20_000);
        assert_eq!(possible(60, needed), MIN_CONNECTIONS, "a process with very few descriptors still answers");
    }
}
