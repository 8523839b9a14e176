//! HTTP clients, one per workspace, so that two workspaces never share a connection.
//!
//! A client costs about 2.5 ms and 100 kB, most of it for the system's certificates. A TLS handshake costs more. So the
//! most recently used clients are kept, with their connections. A workspace has a second client for hosts that an
//! `allow` entry names: the resolver of that client must accept addresses that are not public.
//!
//! Invariants
//! - Every client resolves through `resolver::GuardedResolver`, follows no redirect, uses no proxy and retries nothing.
//! - A client resolves names by the rules that it was built with. When a workspace's rules change, the workspace gets
//!   another client.
//! - At most `max_clients` clients are kept. A client that is no longer kept lives until its calls end.
//!
//! Not here: building requests (`request`), checking them (`guard`).

use std::num::NonZeroUsize;
use std::sync::Arc;

use kernel::ids::WorkspaceId;
use lru::LruCache;
use parking_lot::Mutex;
use reqwest::Client;

use super::OutboundSettings;
use super::guard::Guard;
use super::resolver::{GuardedResolver, Lookup};
use super::response::MAX_HEADERS;

/// How many idle connections a client keeps to one host.
const MAX_IDLE_PER_HOST: usize = 8;

/// The workspace, whether the client is for allowed hosts, and the fingerprint of its rules.
type ClientKey = (WorkspaceId, bool, u64);

/// The cached clients.
pub(super) struct Clients {
    settings: OutboundSettings,
    lookup: Lookup,
    cache: Mutex<LruCache<ClientKey, Client>>,
}

impl Clients {
    pub(super) fn new(settings: OutboundSettings, lookup: Lookup) -> Self {
        let most = NonZeroUsize::new(settings.max_clients).unwrap_or(NonZeroUsize::MIN);
        Self { settings, lookup, cache: Mutex::new(LruCache::new(most)) }
    }

    /// The client of a workspace.
    pub(super) fn of(&self, workspace: WorkspaceId, opened: bool, guard: &Arc<Guard>) -> reqwest::Result<Client> {
        let key = (workspace, opened, guard.of);
        if let Some(client) = self.cache.lock().get(&key) {
            return Ok(client.clone());
        }
        // Built without holding the lock. If two are built at the same time, the first one stored is used.
        let client = self.build(opened, guard)?;
        Ok(self.cache.lock().get_or_insert(key, || client).clone())
    }

    /// Builds a client. `Outbound::with_lookup` also calls this at startup, to check the settings.
    pub(super) fn build(&self, opened: bool, guard: &Arc<Guard>) -> reqwest::Result<Client> {
        Client::builder()
            .dns_resolver(GuardedResolver::new(Arc::clone(&self.lookup), Arc::clone(guard), opened))
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .referer(false)
            .http1_only()
            // Higher than the limit of `response`, so that the check there reports the error.
            .http1_max_headers(MAX_HEADERS * 2)
            .user_agent(&self.settings.user_agent)
            .connect_timeout(self.settings.connect_timeout)
            .pool_idle_timeout(self.settings.idle_timeout)
            .pool_max_idle_per_host(MAX_IDLE_PER_HOST)
            .build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn the_least_recently_used_client_makes_room() {
        let settings = OutboundSettings { max_clients: 2, ..OutboundSettings::default() };
        let clients = Clients::new(settings, super::super::resolver::system());
        let guard = Arc::default();
        let workspace = |n| WorkspaceId(Uuid::from_u128(n));
        for n in [1, 2, 1, 3] {
            clients.of(workspace(n), false, &guard).expect("a client");
        }
        let mut kept: Vec<_> = clients.cache.lock().iter().map(|(key, _)| key.0.0.as_u128()).collect();
        kept.sort_unstable();
        assert_eq!(kept, [1, 3]);
    }
}
