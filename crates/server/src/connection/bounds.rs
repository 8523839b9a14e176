//! How many connections this process may have, and how long each may do nothing.
//!
//! Invariants
//! - The bound is derived from the process's limit of open files, less what the process needs itself. A setting can
//!   lower it; a setting that raises it above what the system gives is reported and not obeyed.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use nix::sys::resource::{Resource, getrlimit};

use crate::config::{Settings, ms};

/// Files, pipes, timers and connections of the process that no setting counts.
const OWN: usize = 40;
/// More connections than this are served by more processes.
const MOST: usize = 20_000;
/// Fewer connections than this are no service.
const LEAST: usize = 16;
/// The connections at `http.admin_listen`, kept apart so that clients cannot use up those of probes and scrapers.
const ADMIN: usize = 16;

/// How long a connection may do nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// From the first byte of a request, or from the connection's first moment, to the end of the request's head.
    pub(super) head: Duration,
    /// Between two requests.
    pub(super) idle: Duration,
    /// Without reading any of an answer.
    pub(super) write: Duration,
}

/// What clients may take of this process.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    pub(super) total: usize,
    pub(super) per_address: usize,
    /// Connections from here are many clients' and are counted in total only.
    pub(super) proxies: Vec<IpNet>,
    pub(super) timeouts: Timeouts,
}

impl Bounds {
    /// As the settings and the system's limit say.
    pub(crate) fn of(settings: &Settings) -> Bounds {
        let http = &settings.http;
        let apart = if http.admin_listen.is_some() { ADMIN } else { 0 };
        let possible = possible(open_files().saturating_sub(apart), needed(settings));
        let total = http.max_connections.map_or(possible, |wanted| wanted.min(possible));
        if http.max_connections.is_some_and(|wanted| wanted > possible) {
            tracing::warn!(
                possible,
                "http.max_connections is more than the limit of open files leaves; raise that limit"
            );
        }
        Bounds {
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

    /// For the address of `http.admin_listen`.
    pub(crate) fn of_admin(settings: &Settings) -> Bounds {
        Bounds { total: ADMIN, per_address: ADMIN, ..Bounds::of(settings) }
    }

    /// Is this the address of a proxy that many clients stand behind?
    pub(super) fn is_proxy(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.proxies.iter().any(|net| net.contains(&address))
    }
}

/// The descriptors that this process may have open.
fn open_files() -> usize {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(1_024, |(soft, _)| soft);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// The descriptors that this process needs itself: its pools, its files, and the calls of its workflows.
fn needed(settings: &Settings) -> (usize, usize) {
    let database = settings.database.api_connections + settings.database.work_connections;
    (database + OWN, settings.engine.max_calls)
}

/// The connections that are left for clients. Where files are few, calls out and clients share what the pools leave.
fn possible(files: usize, (own, calls): (usize, usize)) -> usize {
    let left = files.saturating_sub(own);
    left.saturating_sub(calls.min(left / 2)).clamp(LEAST, MOST)
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
        assert_eq!(possible(60, needed), LEAST, "a process with hardly any still answers");
    }
}
