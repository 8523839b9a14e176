//! Claimed items whose claimer is gone: another claim, the slot kept, the start repeated.
//!
//! Invariants
//! - The slot is never freed here: the start may have happened. The repeat is harmless.
//! - Never an attempt: a crash is not the item's fault.
//!
//! Not here: runs whose owner is gone (`run::resume`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use engine::say;
use kernel::ids::{ClaimId, SHARDS};
use kernel::signals::trace::TraceParent;
use kernel::signals::{events, metrics};
use store::queue::claim::Claimed;
use store::queue::takeover::TakenOver;
use tokio::sync::watch;
use tracing::Span;

use crate::config::{Process, ms};
use crate::process::heartbeat::Alive;
use crate::process::lease;
use crate::queue::starter::Starter;

pub(crate) struct Takeover {
    pub(crate) starter: Starter,
    pub(crate) settings: Process,
    pub(crate) alive: watch::Receiver<Option<Alive>>,
    /// Whether recovery is this process's to do.
    pub(crate) ours: lease::Turn,
}

impl Takeover {
    pub(crate) async fn pass(&self) -> Result<Option<Duration>, store::Error> {
        let Some(alive) = self.alive.borrow().clone() else { return Ok(None) };
        // What could not be started is left where it is: its slot is kept either way, and the next
        // pass after the engine answered finds it.
        if !self.starter.breaker.is_closed() || !self.ours.is_held() {
            return Ok(None);
        }
        let shards = if self.ours.is_exclusive() { (0..SHARDS).collect() } else { Arc::clone(&alive.shards) };
        let (mut recovered, mut trouble) = (0, None);
        let mut groups = VecDeque::from([&shards[..]]);
        while let Some(shards) = groups.pop_front() {
            let claim = ClaimId(store::new_id());
            let taken = match self.take_over(&alive, shards, claim).await {
                Ok(taken) => taken,
                Err(error) => {
                    // It may have been committed: what it took is asked for under the same claim.
                    let (starter, process, of) =
                        (self.starter.clone(), alive.process, shards.iter().copied().collect());
                    self.starter.tasks.spawn(async move { starter.find_claimed(process, of, claim).await });
                    trouble = Some(error);
                    // One shard's trouble keeps no other's items waiting.
                    if shards.len() > 1 {
                        groups.extend(shards.chunks(1));
                    }
                    continue;
                }
            };
            if taken.is_empty() {
                continue;
            }
            recovered += taken.len();
            let items = taken.into_iter().map(claimed).collect();
            self.starter.spawn_starts(alive.process, claim, items, Span::none());
        }
        if recovered > 0 {
            say!(events::RECOVERED; recovered, recovered_count = recovered);
            ::metrics::counter!(metrics::STALE_RECOVERY.name).increment(recovered as u64);
        }
        if let Some(error) = trouble {
            return Err(error);
        }
        // While somebody is known to be dead, every moment counts.
        Ok((alive.dead > 0).then(|| ms(self.settings.heartbeat_ms) / 4))
    }

    async fn take_over(&self, alive: &Alive, shards: &[i16], claim: ClaimId) -> Result<Vec<TakenOver>, store::Error> {
        let silence = alive.silence(ms(self.settings.claims_after_ms));
        let stale = ms(self.starter.settings.stale_after_ms);
        self.starter.store.take_over(shards, silence, stale, claim, alive.process).await
    }
}

/// As something claimed anew; its start may have happened.
fn claimed(taken: TakenOver) -> Claimed {
    Claimed {
        item: taken.item,
        workspace: taken.workspace,
        definition: taken.definition,
        attempts: taken.attempts,
        in_doubt: true,
        gone: false,
        newer: false,
        trace: TraceParent::of_execution(taken.item.execution()),
        waited: None,
        begun: None,
    }
}
