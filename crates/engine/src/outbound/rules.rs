//! The outbound rules of a workspace, in addition to the service's: hosts that it may call although they are not
//! public, and hosts that it may not call.
//!
//! Invariants
//! - Rules are read from the store and cached for `MAX_AGE`.
//! - An unavailable database (`store::Error::is_answer` is false) fails no call. The call uses the rules that were last
//!   read, even if they are old. If none were read, the call waits, which does not count as an attempt.
//! - At most `MAX_WORKSPACES` workspaces are cached.
//!
//! Not here: what the rules mean (`guard`), which keys may set the rules (`server::http::outbound`).

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel::ids::WorkspaceId;
use kernel::run::failure::{Class, Failure};
use parking_lot::Mutex;
use store::Store;

use super::allow::{AllowEntry, DenyEntry};
use super::guard::Guard;
use crate::backoff::Backoff;

/// How long cached rules are used before they are read again.
const MAX_AGE: Duration = Duration::from_secs(3);
/// The maximum number of cached workspaces.
const MAX_WORKSPACES: usize = 10_000;

/// Hosts that are allowed, and hosts that are blocked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostRules {
    pub allow: Vec<AllowEntry>,
    pub deny: Vec<DenyEntry>,
}

impl HostRules {
    /// Parses the stored entries. The error names the first invalid one.
    pub fn parse(allow: &[String], deny: &[String]) -> Result<HostRules, super::InvalidEntry> {
        let allow = allow.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
        Ok(HostRules { allow, deny: deny.iter().map(|text| text.parse()).collect::<Result<_, _>>()? })
    }

    /// A hash that distinguishes rules; 0 for no rules.
    pub(super) fn fingerprint(&self) -> u64 {
        if self == &HostRules::default() {
            return 0;
        }
        let mut hasher = DefaultHasher::new();
        (&self.allow, &self.deny).hash(&mut hasher);
        hasher.finish().max(1)
    }
}

/// The guards of workspaces that have their own rules.
pub(super) struct RulesCache {
    store: Store,
    guards: Mutex<HashMap<WorkspaceId, (Instant, Arc<Guard>)>>,
}

impl RulesCache {
    pub(super) fn new(store: Store) -> RulesCache {
        RulesCache { store, guards: Mutex::default() }
    }

    /// The rules for a workspace: the service's and its own.
    pub(super) async fn guard_of(&self, workspace: WorkspaceId, service: &Arc<Guard>) -> Result<Arc<Guard>, Failure> {
        let mut backoff = Backoff::default();
        loop {
            if let Some(guard) = self.cached(workspace) {
                return Ok(guard);
            }
            match (self.read(workspace, service).await, self.last_read(workspace)) {
                (Ok(guard), _) => return Ok(guard),
                (Err(error), known) if !error.is_answer() => {
                    tracing::warn!(
                        workspace_id = %workspace,
                        error = &error as &dyn std::error::Error,
                        "Failed to read a workspace's outbound rules; the database is unavailable"
                    );
                    match known {
                        Some((_, guard)) => return Ok(guard),
                        None => backoff.wait().await,
                    }
                }
                (Err(error), _) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(workspace_id = %workspace, error, "Failed to read a workspace's outbound rules");
                    let message = "the workspace's outbound rules cannot be read; ask the operator to correct them";
                    return Err(Failure::new(Class::ExecutionError, message));
                }
            }
        }
    }

    /// The cached rules of a workspace, if they are recent enough.
    pub(super) fn cached(&self, workspace: WorkspaceId) -> Option<Arc<Guard>> {
        self.last_read(workspace).filter(|(at, _)| at.elapsed() < MAX_AGE).map(|(_, guard)| guard)
    }

    /// The cached rules, and when they were read.
    fn last_read(&self, workspace: WorkspaceId) -> Option<(Instant, Arc<Guard>)> {
        self.guards.lock().get(&workspace).cloned()
    }

    async fn read(&self, workspace: WorkspaceId, service: &Arc<Guard>) -> Result<Arc<Guard>, store::Error> {
        let asked = Instant::now();
        let stored = match self.store.workspace_outbound(workspace).await {
            // The workspace was deleted, and its runs are being ended.
            Err(store::Error::NotFound) => store::access::outbound::Outbound::default(),
            stored => stored?,
        };
        let rules = HostRules::parse(&stored.allow, &stored.deny);
        let rules = rules.map_err(|bad| store::Error::Corrupt(format!("outbound rules of {workspace}: {bad}")))?;
        let guard = if rules == HostRules::default() { Arc::clone(service) } else { Arc::new(service.with(&rules)) };
        let mut known = self.guards.lock();
        if known.len() >= MAX_WORKSPACES {
            known.clear();
        }
        known.insert(workspace, (asked, Arc::clone(&guard)));
        Ok(guard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::testing::Database;
    use uuid::Uuid;

    const WORKSPACE: WorkspaceId = WorkspaceId(Uuid::nil());

    /// Every statement fails here, because the table does not exist.
    async fn broken() -> RulesCache {
        RulesCache::new(Database::empty().await.store)
    }

    #[tokio::test]
    async fn a_call_waits_while_the_statement_that_reads_its_rules_fails() {
        let (cache, service) = (broken().await, Arc::new(Guard::default()));
        let reading = cache.guard_of(WORKSPACE, &service);
        let ended = tokio::time::timeout(Duration::from_secs(1), reading).await;
        assert!(ended.is_err(), "the call waits, and it does not count as an attempt: {ended:?}");
    }

    #[tokio::test]
    async fn rules_that_were_read_before_are_used_while_the_statement_that_reads_them_fails() {
        let (cache, service) = (broken().await, Arc::new(Guard::default()));
        let rules = HostRules::parse(&[], &["closed.example".to_owned()]).expect("rules");
        let guard = Arc::new(service.with(&rules));
        let stale = Instant::now().checked_sub(MAX_AGE).expect("a machine that is up for seconds");
        cache.guards.lock().insert(WORKSPACE, (stale, Arc::clone(&guard)));
        let found = cache.guard_of(WORKSPACE, &service).await.expect("rules");
        assert!(Arc::ptr_eq(&found, &guard));
    }
}
