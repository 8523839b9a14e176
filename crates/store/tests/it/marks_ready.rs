//! The marks from which claims read ready items: nothing ready is forgotten, and every item keeps its turn.

use std::time::Duration;

use kernel::execution::Status;
use kernel::ids::{ClaimId, DefinitionId, QueueItemId, WorkspaceId};
use kernel::queue::Priority;
use store::queue::claim::BlockingLimit;
use store::queue::enqueue::Start;

use crate::marks::{broken, ten_ready};
use crate::support::{Limits, World, keyed, start};

const SWEEP: &str = include_str!("../../sql/execution_queue/sweep.sql");

/// A start that commits below the mark: its arrival is before the mark moved, its commit after.
async fn late_start() -> (World, WorkspaceId) {
    let (world, workspace, definition) = ten_ready().await;
    world.limit(workspace, 100).await;
    world.put_marks_ahead().await;
    let mut other = world.database.client().await;
    let late = other.transaction().await.expect("begin");
    late.query("SELECT enqueue($1, $2)", &[&workspace.0, &definition.0]).await.expect("a start");
    assert_eq!(world.claim(workspace, 20).await.items.len(), 10);
    late.commit().await.expect("commit");
    (world, workspace)
}

#[tokio::test]
async fn a_start_that_commits_below_the_mark_is_found_by_the_sweep() {
    let (world, workspace) = late_start().await;
    assert_eq!(world.claim(workspace, 1).await.items.len(), 0, "the mark is above it");
    assert_eq!(world.store.sweep(&[workspace.shard()]).await.expect("a sweep"), [(workspace, 1)]);
    assert_eq!(world.claim(workspace, 1).await.items.len(), 1);
}

#[tokio::test]
async fn a_sweep_that_lowers_no_mark_is_noticed() {
    let (world, workspace) = late_start().await;
    let mutant = broken(SWEEP, "least(mark.ready_from[level.priority], late.rank)", "mark.ready_from[level.priority]");
    let found = world.client.query(&mutant, &[&vec![workspace.shard()]]).await.expect("a sweep");
    assert_eq!((found.len(), world.claim(workspace, 1).await.items.len()), (1, 0));
}

#[tokio::test]
async fn a_claim_does_not_wait_for_the_probe_and_overwrites_nothing_of_it() {
    let (world, workspace, _) = ten_ready().await;
    world.claim(workspace, 1).await;
    let mark = "SELECT ready_from[3] || '/' || slots_after FROM claim_mark WHERE workspace_id = $1";
    let before: String = world.get(mark, &[&workspace.0]).await;
    let probe = world.database.client().await;
    probe.batch_execute("BEGIN; SELECT 1 FROM claim_mark FOR UPDATE").await.expect("the rows");
    assert_eq!(world.claim(workspace, 1).await.items.len(), 1);
    assert_eq!(world.get::<String>(mark, &[&workspace.0]).await, before);
    probe.batch_execute("ROLLBACK").await.expect("rollback");
    world.claim(workspace, 1).await;
    assert_ne!(world.get::<String>(mark, &[&workspace.0]).await, before);
}

#[tokio::test]
async fn what_becomes_ready_below_the_mark_is_claimed_without_a_sweep() {
    let (world, workspace, definition) = ten_ready().await;
    world.limit(workspace, 100).await;
    let limited = world.definition(workspace, Limits { concurrency: Some(1), ..Limits::default() }).await;
    let delayed =
        Start { run_at: Some(jiff::Timestamp::now() + Duration::from_secs(3_600)), ..start(workspace, definition) };
    let delayed = world.accept(&[delayed]).await[0];
    let blocked = world.accept_many(workspace, limited, 2).await;
    world.put_marks_ahead().await;
    let taken = world.claim(workspace, 11).await.items;
    assert_eq!(taken.len(), 11);
    let claim: uuid::Uuid = world.get("SELECT claim_id FROM execution_queue WHERE stage = 5 LIMIT 1", &[]).await;
    let first = [taken.iter().find(|item| item.definition == definition).expect("one").item];
    world.store.requeue_unsent(&first, ClaimId(claim), Duration::ZERO).await.expect("requeued");
    assert_eq!(world.claim(workspace, 1).await.items[0].item, first[0], "requeued");
    world.run_sql("UPDATE execution_queue SET available_at = now() WHERE id = $1", &[&delayed.0]).await;
    world.store.promote().await.expect("promoted");
    assert_eq!(world.claim(workspace, 1).await.items[0].item.execution(), delayed);
    world.finish(blocked[0], Status::Completed).await;
    world.store.unblock(&[BlockingLimit { workspace, definition: limited, key: None }]).await.expect("unblocked");
    assert_eq!(world.claim(workspace, 1).await.items[0].item.execution(), blocked[1]);
}

const RANK: &str = "SELECT rank FROM execution_queue WHERE id = $1";

/// Moves an item up to the mark: the first of two that their limit lets start one after the other has ended. Returns
/// the second, with the rank that it had before.
async fn moved_up(
    world: &World,
    workspace: WorkspaceId,
    limited: DefinitionId,
    key: Option<&str>,
) -> (QueueItemId, i64) {
    world.limit(workspace, 100).await;
    let start = || Start { concurrency_key: key.map(str::to_owned), ..start(workspace, limited) };
    let [first, second] = world.accept(&[start(), start()]).await[..] else { panic!("two") };
    let own: i64 = world.get(RANK, &[&second.0]).await;
    world.put_marks_ahead().await;
    assert_eq!(world.claim(workspace, 11).await.items.len(), 11);
    world.finish(first, Status::Completed).await;
    assert!(world.get::<i64>(RANK, &[&second.0]).await > own, "it is at the mark");
    (second.queue_item(), own)
}

const ONE: Limits = Limits { concurrency: Some(1), key_concurrency: None, timeout_ms: None };

#[tokio::test]
async fn an_item_whose_key_has_room_is_claimed_without_a_sweep() {
    let (world, workspace, definition) = ten_ready().await;
    let (item, _) = moved_up(&world, workspace, definition, Some("k")).await;
    assert_eq!(world.claim(workspace, 1).await.items[0].item, item);
}

#[tokio::test]
async fn an_item_that_is_blocked_again_has_its_own_rank_again() {
    let (world, workspace, _) = ten_ready().await;
    let limited = world.definition(workspace, ONE).await;
    let (item, own) = moved_up(&world, workspace, limited, None).await;
    world.run_sql("UPDATE workflow_definition SET concurrency = 0 WHERE id = $1", &[&limited.0]).await;
    assert!(world.claim(workspace, 1).await.workspaces[0].blocked_again);
    assert_eq!(world.get::<i64>(RANK, &[&item.0]).await, own);
}

#[tokio::test]
async fn an_item_that_is_blocked_in_bulk_has_its_own_rank_again() {
    let (world, workspace, _) = ten_ready().await;
    let limited = world.definition(workspace, ONE).await;
    let (item, own) = moved_up(&world, workspace, limited, None).await;
    let (moved, position) = world.store.block_batch(workspace, limited, 3, None, None).await.expect("blocked");
    assert_eq!(moved, 1);
    assert!(position.is_some_and(|position| position.rank > own), "the next batch is before where it was");
    assert_eq!(world.get::<i64>(RANK, &[&item.0]).await, own);
}

#[tokio::test]
async fn an_item_that_is_requeued_with_a_delay_keeps_its_rank() {
    let (world, workspace, _) = ten_ready().await;
    world.limit(workspace, 100).await;
    world.put_marks_ahead().await;
    let (item, claim) = world.claim_one(world.me, workspace).await;
    let rank: i64 = world.get(RANK, &[&item.0]).await;
    assert_eq!(world.claim(workspace, 9).await.items.len(), 9, "the mark is above it");
    world.store.requeue_unsent(&[item], claim, Duration::from_secs(3_600)).await.expect("requeued");
    assert_eq!(world.get::<i64>(RANK, &[&item.0]).await, rank);
}

#[tokio::test]
async fn an_item_that_waits_for_its_key_after_a_delay_has_its_own_rank_again() {
    let (world, workspace, definition) = ten_ready().await;
    let (item, own) = moved_up(&world, workspace, definition, Some("k")).await;
    let (claimed, claim) = world.claim_one(world.me, workspace).await;
    assert_eq!(claimed, item);
    world.store.requeue_unsent(&[item], claim, Duration::from_secs(3_600)).await.expect("requeued");
    world.accept(&[keyed(workspace, definition, "k")]).await;
    world.run_sql("UPDATE execution_queue SET available_at = now() WHERE id = $1", &[&item.0]).await;
    world.store.promote().await.expect("promoted");
    assert_eq!(world.get::<i64>(RANK, &[&item.0]).await, own);
}

#[tokio::test]
async fn an_item_that_was_moved_up_to_the_mark_keeps_its_turn_before_other_priorities() {
    let (world, workspace, definition) = ten_ready().await;
    let limited = world.definition(workspace, ONE).await;
    let (item, _) = moved_up(&world, workspace, limited, None).await;
    let later = Start { priority: Priority::new(5).expect("a priority"), ..start(workspace, definition) };
    let later = world.accept(&[later]).await[0];
    world.store.sweep(&[workspace.shard()]).await.expect("a sweep");
    assert_eq!(world.claim(workspace, 1).await.items[0].item, item);
    assert_eq!(world.claim(workspace, 1).await.items[0].item.execution(), later);
}

#[tokio::test]
async fn an_urgent_item_that_arrives_after_the_mark_moved_is_claimed_first() {
    let (world, workspace, definition) = ten_ready().await;
    world.limit(workspace, 100).await;
    world.claim(workspace, 5).await;
    let urgent = Start { priority: Priority::new(1).expect("a priority"), ..start(workspace, definition) };
    let urgent = world.accept(&[urgent]).await[0];
    assert_eq!(world.claim(workspace, 1).await.items[0].item.execution(), urgent);
    assert_eq!(world.claim(workspace, 20).await.items.len(), 5);
}
