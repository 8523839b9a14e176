//! The rules that a workspace has beside the service's: hosts that are opened to it, and hosts that it may not call.
//!
//! Invariants
//! - They are read from the store, and trusted for `FRESH`.
//! - An error that is no answer (`store::Error::is_answer`) fails no call: rules that were read before are used, and a
//!   call without any waits. It is no attempt.
//! - At most `REMEMBERED` workspaces are remembered.
//!
//! Not here: what the rules mean (`guard`), who may set them (`server::http::outbound`).

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel::ids::WorkspaceId;
use kernel::run::failure::{Class, Failure};
use parking_lot::Mutex;
use store::Store;

use super::allow::{Allow, Deny};
use super::guard::Guard;
use crate::insist::Pauses;

/// How long rules are trusted without looking again.
const FRESH: Duration = Duration::from_secs(3);
/// The most workspaces remembered at once.
const REMEMBERED: usize = 10_000;

/// Hosts that are opened, and hosts that are closed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    pub allow: Vec<Allow>,
    pub deny: Vec<Deny>,
}

impl Rules {
    /// Reads them as they are stored. The first entry that cannot be read is named.
    pub fn parse(allow: &[String], deny: &[String]) -> Result<Rules, super::BadAllow> {
        let allow = allow.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
        Ok(Rules { allow, deny: deny.iter().map(|text| text.parse()).collect::<Result<_, _>>()? })
    }

    /// Tells rules apart; 0 for none at all.
    pub(super) fn fingerprint(&self) -> u64 {
        if self == &Rules::default() {
            return 0;
        }
        let mut hasher = DefaultHasher::new();
        (&self.allow, &self.deny).hash(&mut hasher);
        hasher.finish().max(1)
    }
}

/// The guards of workspaces that have rules of their own.
pub(super) struct Book {
    store: Store,
    known: Mutex<HashMap<WorkspaceId, (Instant, Arc<Guard>)>>,
}

impl Book {
    pub(super) fn new(store: Store) -> Book {
        Book { store, known: Mutex::default() }
    }

    /// The rules that hold for a workspace: the service's, and its own.
    pub(super) async fn guard_of(&self, workspace: WorkspaceId, service: &Arc<Guard>) -> Result<Arc<Guard>, Failure> {
        let mut pauses = Pauses::default();
        loop {
            if let Some(guard) = self.known(workspace) {
                return Ok(guard);
            }
            match (self.read(workspace, service).await, self.remembered(workspace)) {
                (Ok(guard), _) => return Ok(guard),
                (Err(error), known) if !error.is_answer() => {
                    tracing::warn!(
                        %workspace,
                        error = &error as &dyn std::error::Error,
                        "The database did not answer for the outbound rules of a workspace"
                    );
                    match known {
                        Some((_, guard)) => return Ok(guard),
                        None => pauses.pause().await,
                    }
                }
                (Err(error), _) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(%workspace, error, "The outbound rules of a workspace cannot be read");
                    let message = "the workspace's rules for outbound calls cannot be read";
                    return Err(Failure::new(Class::ExecutionError, message));
                }
            }
        }
    }

    /// The rules of a workspace, if they were read so lately that they are trusted.
    pub(super) fn known(&self, workspace: WorkspaceId) -> Option<Arc<Guard>> {
        self.remembered(workspace).filter(|(at, _)| at.elapsed() < FRESH).map(|(_, guard)| guard)
    }

    /// The rules that were read last, and when.
    fn remembered(&self, workspace: WorkspaceId) -> Option<(Instant, Arc<Guard>)> {
        self.known.lock().get(&workspace).cloned()
    }

    async fn read(&self, workspace: WorkspaceId, service: &Arc<Guard>) -> Result<Arc<Guard>, store::Error> {
        let asked = Instant::now();
        let stored = match self.store.workspace_outbound(workspace).await {
            // It was deleted, and what runs of it is being ended.
            Err(store::Error::NotFound) => store::access::outbound::Outbound::default(),
            stored => stored?,
        };
        let rules = Rules::parse(&stored.allow, &stored.deny);
        let rules = rules.map_err(|bad| store::Error::Corrupt(format!("outbound rules of {workspace}: {bad}")))?;
        let guard = if rules == Rules::default() { Arc::clone(service) } else { Arc::new(service.with(&rules)) };
        let mut known = self.known.lock();
        if known.len() >= REMEMBERED {
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

    /// The statement fails here: there is no such table.
    async fn broken() -> Book {
        Book::new(Database::empty().await.store)
    }

    #[tokio::test]
    async fn a_call_waits_while_the_statement_that_reads_its_rules_fails() {
        let (book, service) = (broken().await, Arc::new(Guard::default()));
        let reading = book.guard_of(WORKSPACE, &service);
        let ended = tokio::time::timeout(Duration::from_secs(1), reading).await;
        assert!(ended.is_err(), "it is no attempt: {ended:?}");
    }

    #[tokio::test]
    async fn rules_that_were_read_before_are_used_while_the_statement_that_reads_them_fails() {
        let (book, service) = (broken().await, Arc::new(Guard::default()));
        let rules = Rules::parse(&[], &["closed.example".to_owned()]).expect("rules");
        let guard = Arc::new(service.with(&rules));
        let stale = Instant::now().checked_sub(FRESH).expect("a machine that is up for seconds");
        book.known.lock().insert(WORKSPACE, (stale, Arc::clone(&guard)));
        let found = book.guard_of(WORKSPACE, &service).await.expect("rules");
        assert!(Arc::ptr_eq(&found, &guard));
    }
}
