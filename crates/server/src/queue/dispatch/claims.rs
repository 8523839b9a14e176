//! Sends claims: decides which planned workspaces share a claim, and when the claim is sent.
//!
//! Invariants
//! - A shard is part of at most one claim at a time.
//! - A claim of several shards waits for no shard's lock. A shard that another process had locked gets a claim of its
//!   own, which waits for the lock.
//! - If the data of a workspace makes a claim fail, the other workspaces are claimed from without that workspace.
//!
//! Not here: which workspaces are asked (`queue::dispatch`), the claim itself (`starter`).

use std::time::{Duration, Instant};

use kernel::ids::{ProcessId, WorkspaceId};
use kernel::queue::round_robin::Quota;
use tracing::Span;

use super::round::PlannedClaim;
use super::{Dispatcher, Finished};
use crate::queue::starter::Starter;

/// How many claims of several shards may be in progress at once.
const PARALLEL_CLAIMS: usize = 4;
/// How many claims of a single shard may be in progress at the same time. They may wait for the shard's lock, so there
/// are few of them: other work needs database connections, too.
const WAITING_CLAIMS: usize = 2;
/// A claim in progress for longer than this is slow: the next claim is sent at the same time.
const SLOW: Duration = Duration::from_millis(20);
/// The same while few items wait. A claim of few items mostly waits for the database to flush, so a second one costs
/// little, and its items do not wait for that flush.
const SLOW_WHILE_FEW_WAIT: Duration = Duration::from_millis(2);

impl Dispatcher {
    /// True if rounds have their largest size (`dispatch.batch_max`), because many items wait.
    pub(super) fn is_saturated(&self) -> bool {
        self.batch >= self.starter.settings.batch_max
    }

    /// True if another claim of several shards may be sent now.
    pub(super) fn may_claim(&self) -> bool {
        match self.claims {
            0 => true,
            1 if self.is_saturated() => true,
            1..PARALLEL_CLAIMS => self.last_claim.elapsed() >= self.slow_after(),
            _ => false,
        }
    }

    /// When a claim in progress counts as slow.
    pub(super) fn slow_after(&self) -> Duration {
        if self.batch <= self.starter.settings.batch_min { SLOW_WHILE_FEW_WAIT } else { SLOW }
    }

    /// True if workspaces wait for a claim in progress to end or to become slow.
    pub(super) fn waits_to_claim(&self) -> bool {
        let waits = !self.ring.is_empty() || self.next.keys().any(|shard| !self.claiming.contains(shard));
        waits && (1..PARALLEL_CLAIMS).contains(&self.claims) && !self.may_claim()
    }

    /// Sends one claim for all free shards together, and a separate claim for each contended shard. A shard is free if
    /// no claim of it is in progress.
    pub(super) fn send_claims(&mut self) {
        let Some(process) = self.membership.borrow().as_ref().map(|membership| membership.process) else { return };
        let free: Vec<i16> = self.next.keys().copied().filter(|shard| !self.claiming.contains(shard)).collect();
        let (alone, together): (Vec<i16>, Vec<i16>) =
            free.into_iter().partition(|shard| self.contended.contains(shard));
        for shard in alone {
            if self.waiting_claims < WAITING_CLAIMS {
                self.contended.remove(&shard);
                self.waiting_claims += 1;
                self.send(process, &[shard], true);
            }
        }
        if !together.is_empty() && self.may_claim() {
            self.last_claim = Instant::now();
            self.claims += 1;
            self.send(process, &together, false);
        }
    }

    fn send(&mut self, process: ProcessId, shards: &[i16], alone: bool) {
        let planned: Vec<PlannedClaim> = shards.iter().flat_map(|shard| self.take_planned(*shard)).collect();
        self.claiming.extend(shards);
        let round = planned.first().and_then(|planned| self.rounds.get(&planned.round));
        let flow = round.map_or_else(Span::none, |round| round.span.clone());
        self.under_way.push(Box::pin(claim(self.starter.clone(), process, alone, planned, flow)));
    }

    /// Takes the workspaces of a shard for its next claim: all planned workspaces, or one if they are claimed from one
    /// by one.
    fn take_planned(&mut self, shard: i16) -> Vec<PlannedClaim> {
        let mut due = self.next.remove(&shard).unwrap_or_default();
        if self.one_by_one.contains(&shard) && due.len() > 1 {
            self.next.insert(shard, due.split_off(1));
            self.contended.insert(shard);
        } else {
            self.one_by_one.remove(&shard);
        }
        due
    }

    /// Plans the workspaces of a failed claim again, because the data of one workspace may be the cause. First each
    /// shard gets a claim of its own. If such a claim fails, each workspace of the shard gets a claim of its own.
    pub(super) fn ask_separately(&mut self, planned: Vec<PlannedClaim>, alone: bool) -> Vec<PlannedClaim> {
        let all: Vec<WorkspaceId> = planned.iter().map(|planned| planned.quota.workspace).collect();
        if alone {
            self.one_by_one.extend(all.iter().map(|workspace| workspace.shard()));
        }
        self.plan_again(planned, &all)
    }

    /// Plans the `busy` workspaces again, whose shards another process had locked: each shard gets a claim of its own.
    /// Returns the other workspaces.
    pub(super) fn plan_again(&mut self, planned: Vec<PlannedClaim>, busy: &[WorkspaceId]) -> Vec<PlannedClaim> {
        let (again, answered): (Vec<_>, Vec<_>) =
            planned.into_iter().partition(|planned| busy.contains(&planned.quota.workspace));
        for planned in again {
            let shard = planned.quota.workspace.shard();
            self.contended.insert(shard);
            self.next.entry(shard).or_default().push(planned);
        }
        answered
    }
}

async fn claim(starter: Starter, process: ProcessId, alone: bool, planned: Vec<PlannedClaim>, flow: Span) -> Finished {
    let quotas: Vec<Quota> = planned.iter().map(|planned| planned.quota).collect();
    let answer = starter.claim(process, &quotas, &flow).await;
    Finished::Claim { alone, planned, answer }
}
