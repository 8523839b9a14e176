//! Takes over claimed items whose claimer is dead. This process gets a new claim, the item keeps its slot, and the
//! start request is repeated.
//!
//! Invariants
//! - The slot is never freed here, because the execution may have started. Repeating the start request does no harm.
//! - A takeover does not count as an attempt, because the crash of a process is not the item's fault.
//!
//! Not here: runs whose owner is dead (`run::resume`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use engine::log_event;
use kernel::ids::{ClaimId, SHARDS};
use kernel::signals::trace::TraceParent;
use kernel::signals::{events, metrics};
use store::queue::claim::ClaimedItem;
use store::queue::takeover::TakenOverItem;
use tokio::sync::watch;
use tracing::Span;

use crate::config::{Process, ms};
use crate::process::heartbeat::Membership;
use crate::process::lease::LeaseState;
use crate::queue::starter::Starter;

pub(crate) struct Takeover {
    pub(crate) starter: Starter,
    pub(crate) settings: Process,
    pub(crate) membership: watch::Receiver<Option<Membership>>,
    /// The lease that this process must hold to take items over, if one is required.
    pub(crate) lease: LeaseState,
}

impl Takeover {
    pub(crate) async fn run_once(&self) -> Result<Option<Duration>, store::Error> {
        let Some(membership) = self.membership.borrow().clone() else { return Ok(None) };
        // While the engine is unavailable, nothing is taken over: the items keep their slots either way, and a later
        // pass takes them over.
        if !self.starter.breaker.is_closed() || !self.lease.is_held() {
            return Ok(None);
        }
        let shards = if self.lease.is_required() { (0..SHARDS).collect() } else { Arc::clone(&membership.shards) };
        let (mut recovered, mut failure) = (0, None);
        let mut groups = VecDeque::from([&shards[..]]);
        while let Some(shards) = groups.pop_front() {
            let claim = ClaimId(store::new_id());
            let taken = match self.take_over(&membership, shards, claim).await {
                Ok(taken) => taken,
                Err(error) => {
                    // The takeover may have been committed although its answer was lost: its items are read by the id
                    // of the claim.
                    let (starter, process, of) =
                        (self.starter.clone(), membership.process, shards.iter().copied().collect());
                    self.starter.tasks.spawn(async move { starter.start_lost_claim(process, of, claim).await });
                    failure = Some(error);
                    // A failure in one shard delays no items of the other shards.
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
            self.starter.spawn_starts(membership.process, claim, items, Span::none());
        }
        if recovered > 0 {
            log_event!(events::RECOVERED; recovered, recovered_count = recovered);
            ::metrics::counter!(metrics::STALE_RECOVERY.name).increment(recovered as u64);
        }
        if let Some(error) = failure {
            return Err(error);
        }
        // While a process is known to be dead, the passes are more frequent, because its items make no progress until
        // another process takes them over.
        Ok((membership.dead_processes > 0).then(|| ms(self.settings.heartbeat_ms) / 4))
    }

    async fn take_over(
        &self,
        membership: &Membership,
        shards: &[i16],
        claim: ClaimId,
    ) -> Result<Vec<TakenOverItem>, store::Error> {
        let silence = membership.liveness_rule(ms(self.settings.claim_lease_ms));
        let stale = ms(self.starter.settings.stale_after_ms);
        self.starter.store.take_over_items(shards, silence, stale, claim, membership.process).await
    }
}

/// The item as a claimed item whose execution may have started already (`in_doubt`).
fn claimed(taken: TakenOverItem) -> ClaimedItem {
    ClaimedItem {
        item: taken.item,
        workspace: taken.workspace,
        definition: taken.definition,
        attempts: taken.attempts,
        in_doubt: true,
        definition_deleted: false,
        newer: false,
        trace: TraceParent::of_execution(taken.item.execution()),
        waited: None,
        begun: None,
    }
}
