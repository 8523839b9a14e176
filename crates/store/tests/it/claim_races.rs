//! Claims run concurrently with each other, with completions and with changes of limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kernel::execution::Status;
use kernel::ids::{ClaimId, ExecutionId, WorkspaceId};
use kernel::queue::round_robin::Quota;
use store::queue::claim::{Claims, LimitCursor};
use store::queue::enqueue::Start;
use store::run::Ending;
use store::workspace::WorkspaceChange;
use store::{Store, new_id};

use crate::support::{ENGINE, Limits, World, end, keyed, race, start};

/// More passes than any race here needs; if one is not done by then, it hangs.
const PASSES: usize = 3_000;

async fn claim(store: &Store, world_process: kernel::ids::ProcessId, workspace: WorkspaceId, want: i32) -> Claims {
    let asks = [Quota { workspace, limit: want }];
    store.claim(&asks, ClaimId(new_id()), world_process, Some(ENGINE)).await.expect("a claim")
}

#[tokio::test]
async fn eight_claimers_of_one_workspace_take_exactly_its_limit_together() {
    let world = World::new().await;
    world.judge().await;
    let me = world.me;
    for (tier, marks) in [("FREE", true), ("PRO", false), ("PRO", true), ("ENTERPRISE", true)] {
        world.move_marks(marks).await;
        let (workspace, definition) = world.tenant(tier).await;
        world.accept_many(workspace, definition, 100).await;
        let taken = race(&world.store, 8, |_, store| async move {
            let mut taken = Vec::new();
            for _ in 0..5 {
                taken.extend(claim(&store, me, workspace, 3).await.items.into_iter().map(|item| item.item));
            }
            taken
        })
        .await;
        let mut all: Vec<_> = taken.into_iter().flatten().collect();
        let limit = world.store.workspace(workspace).await.expect("a workspace").limit;
        assert_eq!(all.len(), usize::try_from(limit).expect("a limit"), "{tier}");
        all.sort();
        all.dedup();
        assert_eq!(all.len(), usize::try_from(limit).expect("a limit"), "no item twice");
    }
}

#[tokio::test]
async fn claimers_that_also_complete_drain_everything_and_never_exceed_any_limit() {
    let world = World::new().await;
    world.judge().await;
    world.move_marks(true).await;
    world.keep_marks_close().await;
    let workspace = world.workspace("PRO").await;
    let limits = Limits { concurrency: Some(3), key_concurrency: Some(2), ..Limits::default() };
    let limited = world.definition(workspace, limits).await;
    let free = world.definition(workspace, Limits::default()).await;
    let starts: Vec<Start> = (0..120)
        .map(|n| match n % 4 {
            0 => keyed(workspace, limited, "a"),
            1 => keyed(workspace, limited, "b"),
            2 => start(workspace, limited),
            _ => start(workspace, free),
        })
        .collect();
    let accepted = world.accept(&starts).await;
    let (me, stop) = (world.me, Arc::new(AtomicBool::new(false)));
    race(&world.store, 8, |racer, store| {
        let stop = Arc::clone(&stop);
        async move {
            if racer == 0 {
                change_limits(&store, workspace, &stop).await;
            } else {
                drain(&store, me, workspace).await;
                stop.store(true, Ordering::Relaxed);
            }
        }
    })
    .await;
    for execution in accepted {
        assert_eq!(world.state(execution).await, "COMPLETED, no item");
    }
}

/// Claims and completes until nothing is queued, in a bounded number of passes; the sweep finds items that a race left
/// blocked.
async fn drain(store: &Store, me: kernel::ids::ProcessId, workspace: WorkspaceId) {
    for _ in 0..PASSES {
        let claims = claim(store, me, workspace, 4).await;
        let endings: Vec<Ending> = claims
            .items
            .iter()
            .map(|item| Ending { execution: item.item.execution(), claim: None, end: end(Status::Completed) })
            .collect();
        store.complete(&endings, None, "test").await.expect("an ending");
        if endings.is_empty() {
            let limits = store.blocking_limits(workspace.shard(), &mut LimitCursor::default()).await.expect("limits");
            store.unblock(&limits).await.expect("opened");
            let (asked, waiting) =
                (claims.workspaces[0].clone(), store.sweep(&[workspace.shard()]).await.expect("a sweep"));
            if limits.is_empty() && !asked.more && asked.running == 0 && waiting.is_empty() {
                return;
            }
        }
    }
}

async fn change_limits(store: &Store, workspace: WorkspaceId, stop: &AtomicBool) {
    let mut limits = [2, 5, 1, 4].into_iter().cycle();
    for _ in 0..PASSES {
        let change = WorkspaceChange { limit_override: Some(limits.next()), ..WorkspaceChange::default() };
        store.change_workspace(workspace, &change, "test").await.expect("a changed workspace");
        if stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// Holds a change open, sees the claim wait for it, and counts what the claim takes after the commit.
async fn claimed_behind(change: impl Fn(WorkspaceId, kernel::ids::DefinitionId) -> String) -> usize {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.accept_many(workspace, definition, 10).await;
    let mut changer = world.database.client().await;
    let transaction = changer.transaction().await.expect("begin");
    transaction.batch_execute(&change(workspace, definition)).await.expect("a change");
    let (store, me) = (world.store.clone(), world.me);
    let claiming = tokio::spawn(async move { claim(&store, me, workspace, 10).await });
    world.somebody_is_blocked().await;
    assert!(!claiming.is_finished());
    assert_eq!(world.stages(workspace).await, "ready 10");
    transaction.commit().await.expect("commit");
    claiming.await.expect("a claim").items.len()
}

#[tokio::test]
async fn a_claim_waits_for_a_change_of_override_in_flight_and_obeys_it() {
    let change = |ws: WorkspaceId, _| format!("UPDATE workspace SET limit_override = 2 WHERE id = '{ws}'");
    assert_eq!(claimed_behind(change).await, 2);
}

#[tokio::test]
async fn a_claim_waits_for_a_change_of_tier_in_flight_and_obeys_it() {
    let change = |ws: WorkspaceId, _| format!("UPDATE workspace SET tier = 'FREE' WHERE id = '{ws}'");
    assert_eq!(claimed_behind(change).await, 1);
    let raised = |_, _| "UPDATE tier SET max_running = 7 WHERE name = 'PRO'".to_owned();
    assert_eq!(claimed_behind(raised).await, 7);
}

#[tokio::test]
async fn a_claim_waits_for_a_pause_or_deletion_in_flight_and_obeys_it() {
    for set in ["paused = true", "deleted_at = now()"] {
        let change = |ws: WorkspaceId, _| format!("UPDATE workspace SET {set} WHERE id = '{ws}'");
        assert_eq!(claimed_behind(change).await, 0, "{set}");
    }
}

#[tokio::test]
async fn a_claim_waits_for_a_change_of_the_definition_in_flight_and_obeys_it() {
    for (set, expected) in [("status = 'PAUSED'", 0), ("concurrency = 3", 3)] {
        let change = |_, definition| format!("UPDATE workflow_definition SET {set} WHERE id = '{definition}'");
        assert_eq!(claimed_behind(change).await, expected, "{set}");
    }
}

#[tokio::test]
async fn claims_of_different_shards_do_not_wait_for_each_other() {
    let world = World::new().await;
    let held = world.workspace_weighing("PRO", 1, Some(1)).await;
    let quiet = world.workspace_weighing("PRO", 1, Some(2)).await;
    let definition = world.definition(quiet, Limits::default()).await;
    world.accept_many(quiet, definition, 1).await;
    let mut changer = world.database.client().await;
    let transaction = changer.transaction().await.expect("begin");
    transaction.execute("UPDATE workspace SET paused = true WHERE id = $1", &[&held.0]).await.expect("a change");
    assert_eq!(world.run(quiet, 1).await.len(), 1);
    let begun: Vec<ExecutionId> =
        world.store.owned_runs(world.me, ENGINE).await.expect("owned").iter().map(|run| run.0).collect();
    assert_eq!(begun.len(), 1);
    transaction.rollback().await.expect("rollback");
}

#[tokio::test]
async fn a_claim_that_waits_too_long_for_the_shard_gives_up_and_says_so() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.accept_many(workspace, definition, 1).await;
    let mut changer = world.database.client().await;
    let transaction = changer.transaction().await.expect("begin");
    transaction.execute("UPDATE workspace SET paused = true WHERE id = $1", &[&workspace.0]).await.expect("a change");
    let hasty = format!("{}&options=-c%20lock_timeout%3D50ms", world.database.url);
    let target = store::connect::Target::new(&hasty).expect("a URL");
    let hasty = Store::new(&target, 1).expect("a pool");
    let asks = [Quota { workspace, limit: 1 }];
    let error = hasty.claim(&asks, ClaimId(new_id()), world.me, None).await.expect_err("it is held");
    assert!(error.is_lock_timeout(), "{error:?}");
    transaction.rollback().await.expect("rollback");
    assert_eq!(world.claim(workspace, 1).await.items.len(), 1);
}
