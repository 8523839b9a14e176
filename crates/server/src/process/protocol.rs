//! The claim protocol: compares the number that this process uses with the number that the database requires.
//!
//!     ahead ──no older process lives: raises the database's number──▶ same ──a newer release raises it──▶ behind
//!
//! Invariants
//! - While this process is ahead or behind, it claims nothing and owns no shards, so that other processes claim from
//!   them. It still answers requests, finishes the runs it has, and reports why it claims nothing.
//! - The check here only avoids claims that would fail. The database refuses any claim by another protocol, under the
//!   lock of the shard.
//!
//! Not here: the statement that raises the protocol (`store::release`, `functions/release.sql`).

use std::sync::Arc;
use std::time::Duration;

use engine::log_event;
use kernel::signals::events;
use store::Store;
use store::release::{Protocol, RaiseOutcome};
use tokio::sync::{Notify, watch};

use crate::config::{Process, ms};

/// Whether this process may claim and, if not, why. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClaimProtocol {
    problem: Arc<watch::Sender<Option<String>>>,
}

impl ClaimProtocol {
    pub(crate) fn may_claim(&self) -> bool {
        self.problem.borrow().is_none()
    }

    /// Why this process claims nothing, for readiness and logs.
    pub(crate) fn problem(&self) -> Option<String> {
        self.problem.borrow().clone()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<Option<String>> {
        self.problem.subscribe()
    }

    /// Records that the database refused a claim. The next check replaces this reason by the exact one.
    pub(crate) fn record_claim_refusal(&self) {
        if self.may_claim() {
            self.set(Some(
                "the database requires another claim protocol than this process uses; the next check reports which \
                 processes to upgrade"
                    .to_owned(),
            ));
        }
    }

    /// Stores the result of a check. True if this process may claim now and could not before.
    fn set(&self, problem: Option<String>) -> bool {
        let mut before = None;
        let changed = self.problem.send_if_modified(|now| {
            let differs = *now != problem;
            before = std::mem::replace(now, problem.clone());
            differs
        });
        match problem {
            Some(reason) if changed => log_event!(events::CLAIMING_STOPPED, reason),
            None if changed => {
                tracing::info!(before, "Claiming started: the database accepts this process's claim protocol")
            }
            _ => {}
        }
        changed && self.may_claim()
    }
}

/// Compares the protocols, and raises the database's protocol when that is safe.
pub(crate) struct ProtocolChecker {
    pub(crate) store: Store,
    pub(crate) settings: Process,
    pub(crate) claim_protocol: ClaimProtocol,
    /// Triggers the next heartbeat immediately, so that this process gets its share of the shards.
    pub(crate) heartbeat: Arc<Notify>,
}

impl ProtocolChecker {
    pub(crate) async fn run_once(&self) -> Result<Option<Duration>, store::Error> {
        let problem = match self.store.protocol().await? {
            Protocol::Same => None,
            Protocol::Ahead { ours, theirs } => self.raise(ours, theirs).await?,
            Protocol::Behind { ours, theirs } => Some(format!(
                "this process uses claim protocol {ours}, but a newer release raised the database's protocol to \
                 {theirs}: upgrade this process to the newer release"
            )),
        };
        let differs = problem.is_some();
        if self.claim_protocol.set(problem) {
            self.heartbeat.notify_one();
        }
        Ok(differs.then(|| ms(self.settings.heartbeat_ms)))
    }

    async fn raise(&self, ours: i32, theirs: i32) -> Result<Option<String>, store::Error> {
        let problem = format!("this process uses claim protocol {ours}, but the database requires {theirs}");
        Ok(match self.store.raise_protocol(ms(self.settings.run_lease_ms)).await? {
            RaiseOutcome::Raised => {
                tracing::info!(
                    protocol = ours,
                    "Raised the database's claim protocol: no process of an older release is alive"
                );
                None
            }
            RaiseOutcome::Older(processes) => Some(format!(
                "{problem} while processes of older releases are alive: upgrade or stop these processes: {processes}"
            )),
            RaiseOutcome::Busy => {
                Some(format!("{problem}: this process raises the protocol as soon as no claim is in progress"))
            }
        })
    }
}
