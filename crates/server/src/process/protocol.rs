//! By which rules this process claims, and whether the database goes by them.
//!
//!     ahead ──no older process lives: it is raised──▶ same ──a newer release raises it──▶ behind
//!
//! Invariants
//! - Ahead or behind, nothing is claimed here, and the process takes no share of the shards: others look after them. It
//!   answers requests, ends the runs it has, and says why it claims nothing.
//! - The database has the last word: a claim by another protocol is refused there, under the shard's lock.
//!
//! Not here: raising it (`store::release`, `functions/release.sql`).

use std::sync::Arc;
use std::time::Duration;

use engine::say;
use kernel::signals::events;
use store::Store;
use store::release::{Protocol, Raise};
use tokio::sync::{Notify, watch};

use crate::config::{Process, ms};

/// Why this process claims nothing, if it does not. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    trouble: Arc<watch::Sender<Option<String>>>,
}

impl Rules {
    pub(crate) fn may_claim(&self) -> bool {
        self.trouble.borrow().is_none()
    }

    /// What people are told.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.borrow().clone()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<Option<String>> {
        self.trouble.subscribe()
    }

    /// The database refused a claim; why exactly is found by the next look.
    pub(crate) fn refused(&self) {
        if self.may_claim() {
            self.set(Some("its claims are refused, because the database goes by another protocol".to_owned()));
        }
    }

    /// Notes what a look found; true if claims are taken from now on.
    fn set(&self, trouble: Option<String>) -> bool {
        let mut before = None;
        let changed = self.trouble.send_if_modified(|now| {
            let differs = *now != trouble;
            before = std::mem::replace(now, trouble.clone());
            differs
        });
        match trouble {
            Some(reason) if changed => say!(events::CLAIMS_NOTHING, reason),
            None if changed => tracing::info!(before, "This process claims: it goes by the database's protocol"),
            _ => {}
        }
        changed && self.may_claim()
    }
}

/// Looks how the protocols stand, and raises the database's when it may.
pub(crate) struct Protocols {
    pub(crate) store: Store,
    pub(crate) settings: Process,
    pub(crate) rules: Rules,
    /// Asks for a beat before its time: this process takes its share of the shards.
    pub(crate) beat: Arc<Notify>,
}

impl Protocols {
    pub(crate) async fn pass(&self) -> Result<Option<Duration>, store::Error> {
        let trouble = match self.store.protocol().await? {
            Protocol::Same => None,
            Protocol::Ahead { ours, theirs } => self.raise(ours, theirs).await?,
            Protocol::Behind { ours, theirs } => Some(format!(
                "this process claims by protocol {ours}, and a newer release has raised the database's to {theirs}: \
                 replace this process by one of the newer release"
            )),
        };
        let waits = trouble.is_some();
        if self.rules.set(trouble) {
            self.beat.notify_one();
        }
        Ok(waits.then(|| ms(self.settings.heartbeat_ms)))
    }

    async fn raise(&self, ours: i32, theirs: i32) -> Result<Option<String>, store::Error> {
        let waits = format!("this process claims by protocol {ours}, and the database goes by {theirs}");
        Ok(match self.store.raise_protocol(ms(self.settings.runs_after_ms)).await? {
            Raise::Raised => {
                tracing::info!(protocol = ours, "Raised the protocol of claims: no process of an older release lives");
                None
            }
            Raise::Older(who) => Some(format!("{waits} while processes of older releases live: {who}")),
            Raise::Busy => Some(format!("{waits}: it is raised as soon as no claim is under way")),
        })
    }
}
