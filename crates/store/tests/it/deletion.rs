//! After a deletion, queued items are found at every stage and ended, and running executions are requested to end.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use kernel::execution::Status;
use kernel::ids::{DefinitionId, ExecutionId, SHARDS, WorkspaceId};
use store::queue::claim::LimitCursor;
use store::queue::deletion::ItemOfDeleted;
use store::queue::enqueue::Start;
use store::run::{End, Ending};

use crate::support::{Limits, World, keyed, start};

/// An item at each stage: ready, delayed, blocked by its key, blocked by its definition.
async fn everywhere(world: &World, workspace: WorkspaceId, definition: DefinitionId) -> Vec<ExecutionId> {
    let run_at = Some(Timestamp::now() + SignedDuration::from_hours(1));
    let ready = start(workspace, definition);
    let blocked = start(workspace, definition);
    let moved = blocked.execution;
    let starts =
        [ready, Start { run_at, ..start(workspace, definition) }, keyed(workspace, definition, "full"), blocked];
    let accepted = world.accept(&starts).await;
    let sql = "UPDATE execution_queue SET stage = 3, limited = true WHERE id = $1";
    world.run_sql(sql, &[&moved.0]).await;
    assert_eq!(world.stages(workspace).await, "ready 1, delayed 1, key 1, definition 1");
    accepted
}

/// What the promoter finds in a shard in one pass.
async fn found(world: &World, shard: i16) -> Vec<ItemOfDeleted> {
    world.store.block_deleted_definitions(shard).await.expect("cleared");
    let limits = world.store.blocking_limits(shard, &mut LimitCursor::default()).await.expect("limits");
    let mut found = world.store.blocked_items_of_deleted(shard, &limits).await.expect("items of deleted workspaces");
    found.extend(world.store.items_of_deleted(shard).await.expect("items of deleted workspaces"));
    found
}

async fn fail(world: &World, found: &[ItemOfDeleted]) {
    let end = |found: &ItemOfDeleted| End { outcome: Status::Failed, output: None, error: Some(found.failure()) };
    let endings: Vec<Ending> =
        found.iter().map(|found| Ending { execution: found.item.execution(), claim: None, end: end(found) }).collect();
    let ended = world.store.complete(&endings, Some(Status::Pending), "promoter").await.expect("ended");
    assert!(ended.iter().all(|ended| ended.applied), "{ended:?}");
}

fn ids(found: &[ItemOfDeleted]) -> BTreeSet<ExecutionId> {
    found.iter().map(|found| found.item.execution()).collect()
}

const NO_KEYS: Limits = Limits { concurrency: None, key_concurrency: Some(0), timeout_ms: None };

#[tokio::test]
async fn a_deleted_workspaces_items_are_found_at_every_stage() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    let definition = world.definition(workspace, NO_KEYS).await;
    let accepted = everywhere(&world, workspace, definition).await;
    assert_eq!(found(&world, workspace.shard()).await, [], "not before the deletion");
    world.store.delete_workspace(workspace, "me").await.expect("deleted");
    let found = found(&world, workspace.shard()).await;
    assert_eq!(ids(&found), accepted.iter().copied().collect());
    assert!(found.iter().all(|found| found.workspace_gone), "{found:?}");
    fail(&world, &found).await;
    assert_eq!(world.stages(workspace).await, "failed 4");
    let gone = "workflow_execution WHERE status = 'FAILED' AND error ->> 'type' = 'WORKSPACE_GONE'";
    assert_eq!(world.count(gone).await, 4);
}

#[tokio::test]
async fn a_deleted_definitions_items_are_found_at_every_stage_and_the_others_are_left() {
    let world = World::new().await;
    let workspace = world.workspace("FREE").await;
    let living = world.definition(workspace, Limits::default()).await;
    let definition = world.definition(workspace, NO_KEYS).await;
    let accepted = everywhere(&world, workspace, definition).await;
    let run_at = Some(Timestamp::now() + SignedDuration::from_hours(1));
    world.accept(&[start(workspace, living), Start { run_at, ..start(workspace, living) }]).await;
    // A full and paused workspace: no claim reaches it.
    world.store.pause_workspace(workspace, true, "me").await.expect("paused");
    world.store.delete_definition(workspace, definition, "me").await.expect("deleted");
    let found = found(&world, workspace.shard()).await;
    assert_eq!(ids(&found), accepted.iter().copied().collect());
    assert!(found.iter().all(|found| !found.workspace_gone), "{found:?}");
    fail(&world, &found).await;
    assert_eq!(world.stages(workspace).await, "ready 1, delayed 1, failed 4");
    let gone = "workflow_execution WHERE status = 'FAILED' AND error ->> 'type' = 'DEFINITION_GONE'";
    assert_eq!(world.count(gone).await, 4);
}

#[tokio::test]
async fn a_start_in_its_transaction_at_the_moment_of_the_deletion_is_found_later() {
    let world = World::new().await;
    // In different shards: items found in one are not found again in the other.
    for (by_workspace, shard) in [(true, 1), (false, 2)] {
        let workspace = world.workspace_weighing("FREE", 1, Some(shard)).await;
        let definition = world.definition(workspace, Limits::default()).await;
        let mut other = world.database.client().await;
        let open = other.transaction().await.expect("a transaction");
        let sql = "SELECT forebay.enqueue($1, $2)";
        let id: uuid::Uuid = open.query_one(sql, &[&workspace.0, &definition.0]).await.expect("accepted").get(0);
        match by_workspace {
            true => world.store.delete_workspace(workspace, "me").await.expect("deleted"),
            false => world.store.delete_definition(workspace, definition, "me").await.expect("deleted"),
        }
        assert_eq!(found(&world, workspace.shard()).await, [], "nobody can see it yet");
        open.commit().await.expect("committed after the deletion");
        let found = found(&world, workspace.shard()).await;
        assert_eq!(ids(&found), BTreeSet::from([ExecutionId(id)]), "by workspace: {by_workspace}");
    }
}

#[tokio::test]
async fn a_deleted_definition_is_cleared_once_and_not_read_again() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("FREE").await;
    world.accept_many(workspace, definition, 1_200).await;
    world.store.delete_definition(workspace, definition, "me").await.expect("deleted");
    assert_eq!(world.store.block_deleted_definitions(workspace.shard()).await.expect("cleared"), 1_200);
    assert_eq!(world.count("workflow_definition WHERE cleared_at IS NOT NULL").await, 0, "a start may still arrive");
    let later = "UPDATE workflow_definition SET deleted_at = deleted_at - interval '1 minute' WHERE id = $1";
    world.run_sql(later, &[&definition.0]).await;
    assert_eq!(world.store.block_deleted_definitions(workspace.shard()).await.expect("cleared"), 0);
    assert_eq!(world.count("workflow_definition WHERE cleared_at IS NOT NULL").await, 1);
}

#[tokio::test]
async fn found_items_come_in_bounded_batches_until_none_is_left() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("FREE").await;
    world.accept_many(workspace, definition, 1_100).await;
    world.store.delete_workspace(workspace, "me").await.expect("deleted");
    for expected in [500, 500, 100, 0] {
        let found = world.store.items_of_deleted(workspace.shard()).await.expect("items of deleted workspaces");
        assert_eq!(found.len(), expected);
        fail(&world, &found).await;
    }
}

#[tokio::test]
async fn running_executions_of_a_deleted_workspace_are_canceled_once_and_its_keys_stop_working() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let secret = store::access::key::Secret::generate().expect("randomness");
    let scopes = kernel::access::Scopes::all();
    let new = store::access::key::NewKey { workspace: Some(workspace), name: "k", scopes, expires_at: None };
    world.store.create_key(&new, &secret, "test").await.expect("a key");
    world.accept_many(workspace, definition, 3).await;
    let begun = world.run(workspace, 2).await;
    world.claim(workspace, 1).await;
    let runs = async || world.store.runs_of_deleted(workspace.shard()).await.expect("runs");
    assert_eq!(runs().await, []);
    world.store.delete_workspace(workspace, "me").await.expect("deleted");
    assert!(world.store.find_key(&secret).await.is_err());
    let found = runs().await;
    assert_eq!(found.len(), 3);
    for (execution, of) in found {
        world.store.cancel(execution, of, "promoter").await.expect("canceled");
    }
    assert_eq!(runs().await, [], "once");
    assert_eq!(world.count("workflow_execution WHERE cancel_requested_at IS NOT NULL").await, 2);
    assert_eq!(
        world.count("workflow_execution WHERE status = 'CANCELED'").await,
        1,
        "executions that had not begun have ended"
    );
    assert_eq!(world.state(begun[0].execution).await, "RUNNING, DISPATCHED", "its slot is kept until it ended");
}

#[tokio::test]
async fn a_pass_looks_at_shards_with_an_item_at_any_stage_or_with_a_deletion_to_finish() {
    let world = World::new().await;
    let workspace = world.workspace_weighing("PRO", 1, Some(7)).await;
    let definition = world.definition(workspace, NO_KEYS).await;
    let all: Vec<i16> = (0..SHARDS).collect();
    let in_use = async || world.store.shards_in_use(&all).await.expect("shards");
    assert_eq!(in_use().await, [0_i16; 0], "nothing is queued");
    everywhere(&world, workspace, definition).await;
    // Each stage alone; then a slot.
    for stage in ["stage_ready()", "stage_delayed()", "stage_waits_for_key()", "stage_waits_for_definition()"] {
        let mut client = world.database.client().await;
        let others = client.transaction().await.expect("a transaction");
        let sql = format!("DELETE FROM execution_queue WHERE stage <> forebay.{stage}");
        others.batch_execute(&sql).await.expect("deleted");
        let sql = include_str!("../../sql/execution_queue/shards_in_use.sql");
        let found: Vec<i16> = others.query(sql, &[&all]).await.expect("shards").iter().map(|row| row.get(0)).collect();
        assert_eq!(found, [7], "{stage}");
    }
    world.run_sql("DELETE FROM execution_queue WHERE stage <> forebay.stage_ready()", &[]).await;
    world.run(workspace, 1).await;
    assert_eq!(world.stages(workspace).await, "slot 1");
    assert_eq!(in_use().await, [7]);
    world.run_sql("DELETE FROM execution_queue", &[]).await;
    assert_eq!(in_use().await, [0_i16; 0]);
    world.store.delete_definition(workspace, definition, "me").await.expect("deleted");
    assert_eq!(in_use().await, [7], "until no start can arrive any longer");
}
