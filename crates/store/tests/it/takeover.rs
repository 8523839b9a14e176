//! Takeover: an item whose claimer is dead or slow gets another claim, and keeps its slot.

use std::time::Duration;

use kernel::ids::{ClaimId, ProcessId, QueueItemId, WorkspaceId};
use store::queue::claim::LivenessRule;
use store::queue::takeover::TakenOverItem;
use store::{Error, new_id};

use crate::support::{DEAD_AFTER, STALE_AFTER, STEADY, UNSTEADY, World, race};

/// An item of a workspace with one slot, claimed by another process.
struct Claimed {
    world: World,
    workspace: WorkspaceId,
    claimer: ProcessId,
    item: QueueItemId,
    claim: ClaimId,
}

async fn claimed() -> Claimed {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("FREE").await;
    world.accept_many(workspace, definition, 2).await;
    let claimer = world.process().await;
    let (item, claim) = world.claim_one(claimer, workspace).await;
    Claimed { world, workspace, claimer, item, claim }
}

impl Claimed {
    async fn take(&self, silence: LivenessRule) -> Vec<TakenOverItem> {
        self.take_as(ClaimId(new_id()), silence).await
    }

    async fn take_as(&self, claim: ClaimId, silence: LivenessRule) -> Vec<TakenOverItem> {
        let shard = self.workspace.shard();
        self.world.store.take_over_items(&[shard], silence, STALE_AFTER, claim, self.world.me).await.expect("an answer")
    }

    /// Moves the claim into the past.
    async fn age(&self, by: Duration) {
        let sql = "UPDATE execution_queue SET claimed_at = claimed_at - make_interval(secs => $2) WHERE id = $1";
        self.world.run_sql(sql, &[&self.item.0, &by.as_secs_f64()]).await;
    }
}

#[tokio::test]
async fn a_living_claimers_items_are_left_alone() {
    let it = claimed().await;
    it.age(DEAD_AFTER * 2).await;
    assert!(it.take(STEADY).await.is_empty());
}

#[tokio::test]
async fn a_silent_claimers_items_are_taken_by_a_steady_caller_only() {
    let it = claimed().await;
    it.world.silence(it.claimer).await;
    assert!(it.take(STEADY).await.is_empty(), "claimed just now: its claimer may still respond");
    it.age(DEAD_AFTER * 2).await;
    assert!(it.take(UNSTEADY).await.is_empty(), "the caller's own heartbeats were not steady");
    let items = it.take(STEADY).await;
    assert_eq!((items.len(), items[0].item, items[0].dead, items[0].takeovers), (1, it.item, true, 1));
}

#[tokio::test]
async fn an_ended_claimers_items_are_taken_at_once_by_anyone() {
    let it = claimed().await;
    it.world.store.end_process(it.claimer).await.expect("it ends");
    let items = it.take(UNSTEADY).await;
    assert_eq!((items.len(), items[0].dead, items[0].takeovers), (1, true, 1));
}

#[tokio::test]
async fn a_stale_claim_is_taken_over_from_a_living_claimer_and_counts_as_no_death() {
    for silent in [false, true] {
        let it = claimed().await;
        it.age(STALE_AFTER + Duration::from_secs(1)).await;
        if silent {
            it.world.silence(it.claimer).await;
        }
        let items = it.take(UNSTEADY).await;
        assert_eq!((items.len(), items[0].dead, items[0].takeovers), (1, false, 0), "silent: {silent}");
    }
}

#[tokio::test]
async fn a_takeover_keeps_the_slot_gives_a_new_claim_and_is_no_attempt() {
    let it = claimed().await;
    it.world.store.end_process(it.claimer).await.expect("it ends");
    let claim = ClaimId(new_id());
    let items = it.take_as(claim, UNSTEADY).await;
    assert_eq!((items[0].attempts, items[0].workspace), (0, it.workspace));
    assert_eq!(it.world.stages(it.workspace).await, "ready 1, slot 1");
    assert_eq!(it.world.claim(it.workspace, 1).await.items.len(), 0, "the slot was never free");
    let row =
        it.world.client.query_one("SELECT claim_id, claimed_by, in_doubt FROM execution_queue WHERE stage = 5", &[]);
    let row = row.await.expect("a slot");
    assert_eq!((row.get(0), row.get(1), row.get(2)), (claim.0, it.world.me.0, true));
    assert_eq!(it.world.store.mark_dispatched(&[it.item], claim).await.expect("an answer"), [it.item]);
    assert_eq!(it.world.state(it.item.execution()).await, "PENDING, DISPATCHED");
    assert!(it.take(STEADY).await.is_empty(), "a dispatched item is not taken over");
}

#[tokio::test]
async fn the_old_claim_changes_nothing_after_a_takeover() {
    let it = claimed().await;
    it.world.store.end_process(it.claimer).await.expect("it ends");
    it.take(UNSTEADY).await;
    let (store, item) = (&it.world.store, it.item);
    assert_eq!(store.mark_dispatched(&[item], it.claim).await.expect("an answer"), []);
    assert_eq!(store.requeue_unsent(&[item], it.claim, Duration::ZERO).await.expect("an answer"), []);
    let requeued = store.requeue_refused(item, it.claim, "no", Duration::ZERO).await;
    assert!(matches!(requeued, Err(Error::Conflict(_))), "{requeued:?}");
    assert_eq!(it.world.state(item.execution()).await, "PENDING, CLAIMED");
    assert_eq!(it.world.count("execution_queue WHERE attempt_count > 0").await, 0);
}

#[tokio::test]
async fn an_item_claimed_by_a_deleted_process_is_taken_over_too() {
    let it = claimed().await;
    it.world.run_sql("DELETE FROM process WHERE id = $1", &[&it.claimer.0]).await;
    it.age(DEAD_AFTER * 2).await;
    assert!(it.take(UNSTEADY).await.is_empty());
    assert_eq!(it.take(STEADY).await.len(), 1);
}

#[tokio::test]
async fn of_several_takers_at_once_one_gets_the_item() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("FREE").await;
    for round in 0..50 {
        let claimer = world.process().await;
        let execution = world.accept_many(workspace, definition, 1).await[0];
        world.claim_one(claimer, workspace).await;
        world.store.end_process(claimer).await.expect("it ends");
        let me = world.me;
        let items = race(&world.store, 4, |_, store| async move {
            let claim = ClaimId(new_id());
            store.take_over_items(&[workspace.shard()], STEADY, STALE_AFTER, claim, me).await.expect("an answer").len()
        })
        .await;
        assert_eq!(items.iter().sum::<usize>(), 1, "round {round}");
        let takeovers: i32 =
            world.get("SELECT takeover_count FROM execution_queue WHERE id = $1", &[&execution.0]).await;
        assert_eq!(takeovers, 1);
        world.finish(execution, kernel::execution::Status::Canceled).await;
    }
}

#[tokio::test]
async fn a_refused_start_is_an_attempt_and_pauses_the_item() {
    let it = claimed().await;
    let hour = Duration::from_secs(3_600);
    assert_eq!(it.world.store.requeue_refused(it.item, it.claim, "bad\0 input", hour).await.expect("requeued"), 1);
    assert_eq!(it.world.state(it.item.execution()).await, "PENDING, PENDING");
    assert_eq!(it.world.stages(it.workspace).await, "ready 1, delayed 1");
    let item = it.world.store.queue_item(it.item).await.expect("an answer").expect("a queue item");
    assert_eq!((item.facts.attempts, item.facts.last_error.as_deref()), (1, Some("bad input")));
    let again = it.world.store.requeue_refused(it.item, it.claim, "no", hour).await;
    assert!(matches!(again, Err(Error::Conflict(_))), "the claim no longer holds it");
}

#[tokio::test]
async fn requeueing_an_unsent_start_is_no_attempt_and_frees_the_slot() {
    let it = claimed().await;
    let back = it.world.store.requeue_unsent(&[it.item], it.claim, Duration::ZERO).await.expect("given back");
    assert_eq!(back, [it.item]);
    assert_eq!(it.world.stages(it.workspace).await, "ready 2");
    let (again, claim) = it.world.claim_one(it.world.me, it.workspace).await;
    assert_eq!(again, it.item, "it is still first in the queue");
    it.world.store.requeue_unsent(&[again], claim, Duration::from_secs(60)).await.expect("given back");
    assert_eq!(it.world.stages(it.workspace).await, "ready 1, delayed 1");
    let item = it.world.store.queue_item(it.item).await.expect("an answer").expect("a queue item");
    assert_eq!(item.facts.attempts, 0);
}
