//! HTTP clients, one a workspace, so that no connection is ever shared by two.
//!
//! A client costs about 2.5 ms and 100 kB (most of it the system's certificates), a TLS handshake
//! more; so clients are kept, the most recently used of them, and with them their connections.
//! A workspace has a second client for hosts that the operator opened, whose resolver is not the
//! one that refuses.
//!
//! Invariants
//! - Every client resolves through `resolver::Checked`, follows no redirect, uses no proxy and
//!   repeats nothing by itself.
//! - A client resolves by the rules that hold when it is used: other rules of its workspace are another client.
//! - At most `max_clients` are kept. One that is dropped lives on until its calls end.
//!
//! Not here: what is sent (`request`), what is checked (`guard`).

use std::collections::HashMap;
use std::sync::Arc;

use kernel::ids::WorkspaceId;
use parking_lot::Mutex;
use reqwest::Client;

use super::Settings;
use super::guard::Guard;
use super::resolver::{Checked, Lookup};
use super::response::MAX_HEADERS;

/// How many idle connections a client keeps to one host.
const MAX_IDLE_PER_HOST: usize = 8;

/// Whose client, is it the one for opened hosts, and under which rules?
type Key = (WorkspaceId, bool, u64);

/// The clients in use.
pub(super) struct Clients {
    settings: Settings,
    lookup: Lookup,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Counts uses; the client with the lowest was not used for the longest time.
    uses: u64,
    clients: HashMap<Key, (u64, Client)>,
}

impl Clients {
    pub(super) fn new(settings: Settings, lookup: Lookup) -> Self {
        Self { settings, lookup, kept: Mutex::default() }
    }

    /// The client of a workspace.
    pub(super) fn of(&self, workspace: WorkspaceId, opened: bool, guard: &Arc<Guard>) -> reqwest::Result<Client> {
        let key = (workspace, opened, guard.of);
        if let Some(client) = self.with(|kept| kept.find(key)) {
            return Ok(client);
        }
        // Built outside the lock. Two may be built at once, and the first that is kept wins.
        let client = self.build(opened, guard)?;
        Ok(self.with(|kept| kept.find(key).unwrap_or_else(|| kept.keep(key, client, self.settings.max_clients))))
    }

    /// A new client; also how settings are tried out at start.
    pub(super) fn build(&self, opened: bool, guard: &Arc<Guard>) -> reqwest::Result<Client> {
        Client::builder()
            .dns_resolver(Checked::new(Arc::clone(&self.lookup), Arc::clone(guard), opened))
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .referer(false)
            .http1_only()
            // Somewhat more than we take, so that it is we who say what was wrong.
            .http1_max_headers(MAX_HEADERS * 2)
            .user_agent(&self.settings.user_agent)
            .connect_timeout(self.settings.connect_timeout)
            .pool_idle_timeout(self.settings.idle_timeout)
            .pool_max_idle_per_host(MAX_IDLE_PER_HOST)
            .build()
    }

    fn with<T>(&self, work: impl FnOnce(&mut Kept) -> T) -> T {
        // What is kept is sound after every statement, so a panic elsewhere does not spoil it.
        work(&mut self.kept.lock())
    }
}

impl Kept {
    fn find(&mut self, key: Key) -> Option<Client> {
        self.uses += 1;
        let (used, client) = self.clients.get_mut(&key)?;
        *used = self.uses;
        Some(client.clone())
    }

    fn keep(&mut self, key: Key, client: Client, most: usize) -> Client {
        while self.clients.len() >= most.max(1) {
            let Some(oldest) = self.clients.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| *key) else {
                break;
            };
            self.clients.remove(&oldest);
        }
        self.clients.insert(key, (self.uses, client.clone()));
        client
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn the_least_recently_used_client_makes_room() {
        let settings = Settings { max_clients: 2, ..Settings::default() };
        let clients = Clients::new(settings, super::super::resolver::system());
        let guard = Arc::default();
        let workspace = |n| WorkspaceId(Uuid::from_u128(n));
        for n in [1, 2, 1, 3] {
            clients.of(workspace(n), false, &guard).expect("a client");
        }
        let mut kept: Vec<_> = clients.with(|kept| kept.clients.keys().map(|key| key.0.0.as_u128()).collect());
        kept.sort_unstable();
        assert_eq!(kept, [1, 3]);
    }
}
