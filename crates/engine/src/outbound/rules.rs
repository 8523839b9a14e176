//! The rules that a workspace has beside the service's: hosts that are opened to it, and hosts that it may not call.
//!
//! Invariants
//! - They are read from the store, and trusted for `FRESH`. A call whose rules cannot be read waits: it is no attempt.
//! - Rules that were read before are used while the database is away.
//! - At most `REMEMBERED` workspaces are remembered.
//!
//! Not here: what the rules mean (`guard`), who may set them (`server::http::outbound`).

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kernel::failure::{Class, Failure};
use kernel::ids::WorkspaceId;
use store::Store;

use super::allow::Allow;
use super::guard::Guard;

/// How long rules are trusted without looking again.
const FRESH: Duration = Duration::from_secs(3);
/// The most workspaces remembered at once.
const REMEMBERED: usize = 10_000;
/// How long a call waits at most before it asks again.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Hosts that are opened, and hosts that are closed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    pub allow: Vec<Allow>,
    pub deny: Vec<Allow>,
}

impl Rules {
    /// Reads them as they are stored. The first entry that cannot be read is named.
    pub fn parse(allow: &[String], deny: &[String]) -> Result<Rules, super::BadAllow> {
        let read = |texts: &[String]| texts.iter().map(|text| text.parse()).collect::<Result<Vec<Allow>, _>>();
        Ok(Rules { allow: read(allow)?, deny: read(deny)? })
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
        let mut wait = Duration::from_millis(100);
        loop {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&workspace).cloned();
            if let Some((at, guard)) = &known
                && at.elapsed() < FRESH
            {
                return Ok(Arc::clone(guard));
            }
            match (self.read(workspace, service).await, known) {
                (Ok(guard), _) => return Ok(guard),
                (Err(error), Some((_, guard))) if error.is_unavailable() => return Ok(guard),
                (Err(error), None) if error.is_unavailable() => {
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(LONGEST_WAIT);
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

    async fn read(&self, workspace: WorkspaceId, service: &Arc<Guard>) -> Result<Arc<Guard>, store::Error> {
        let asked = Instant::now();
        let stored = match self.store.workspace_outbound(workspace).await {
            // It was deleted, and what runs of it is being ended.
            Err(store::Error::NotFound) => store::outbound::Outbound::default(),
            stored => stored?,
        };
        let rules = Rules::parse(&stored.allow, &stored.deny);
        let rules = rules.map_err(|bad| store::Error::Corrupt(format!("outbound rules of {workspace}: {bad}")))?;
        let guard = if rules == Rules::default() { Arc::clone(service) } else { Arc::new(service.with(&rules)) };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(workspace, (asked, Arc::clone(&guard)));
        Ok(guard)
    }
}
