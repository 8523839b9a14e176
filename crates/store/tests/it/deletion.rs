//! A deletion is carried through: whatever waits is found where it waits, and whatever runs is asked to end.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use kernel::execution::Status;
use kernel::ids::{DefinitionId, ExecutionId, WorkspaceId};
use store::queue::claim::GatesFrom;
use store::queue::deletion::Orphaned;
use store::queue::enqueue::Start;
use store::run::{End, Ending};

use crate::support::{Limits, World, keyed, start};

/// An item at each stage: ready, delayed, behind its key, behind its definition.
async fn everywhere(world: &World, workspace: WorkspaceId, definition: DefinitionId) -> Vec<ExecutionId> {
    let run_at = Some(Timestamp::now() + SignedDuration::from_hours(1));
    let ready = start(workspace, definition);
    let aside = start(workspace, definition);
    let moved = aside.execution;
    let starts = [ready, Start { run_at, ..start(workspace, definition) }, keyed(workspace, definition, "full"), aside];
    let accepted = world.accept(&starts).await;
    let sql = "UPDATE execution_queue SET stage = 3, gated = true WHERE id = $1";
    world.run_sql(sql, &[&moved.0]).await;
    assert_eq!(world.stages(workspace).await, "ready 1, delayed 1, key 1, definition 1");
    accepted
}

/// What the promoter finds in a shard in one pass.
async fn found(world: &World, shard: i16) -> Vec<Orphaned> {
    world.store.clear_deleted(shard).await.expect("cleared");
    let gates = world.store.sweep_gates(shard, &mut GatesFrom::default()).await.expect("gates");
    let mut found = world.store.orphaned_behind(shard, &gates).await.expect("orphaned");
    found.extend(world.store.orphaned_items(shard).await.expect("orphaned"));
    found
}

async fn fail(world: &World, found: &[Orphaned]) {
    let end = |orphaned: &Orphaned| End { outcome: Status::Failed, output: None, error: Some(orphaned.failure()) };
    let endings: Vec<Ending> = found
        .iter()
        .map(|orphaned| Ending { execution: orphaned.item.execution(), claim: None, end: end(orphaned) })
        .collect();
    let ended = world.store.complete(&endings, Some(Status::Pending), "promoter").await.expect("ended");
    assert!(ended.iter().all(|ended| ended.applied), "{ended:?}");
}

fn ids(found: &[Orphaned]) -> BTreeSet<ExecutionId> {
    found.iter().map(|orphaned| orphaned.item.execution()).collect()
}

const NO_KEYS: Limits = Limits { concurrency: None, key_concurrency: Some(0), timeout_ms: None };

#[tokio::test]
async fn a_deleted_workspaces_items_are_found_at_every_stage() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    let definition = world.definition(workspace, NO_KEYS).await;
    let accepted = everywhere(&world, workspace, definition).await;
    assert_eq!(found(&world, workspace.shard()).await, [], "not while it lives");
    world.store.delete_workspace(workspace, "me").await.expect("deleted");
    let found = found(&world, workspace.shard()).await;
    assert_eq!(ids(&found), accepted.iter().copied().collect());
    assert!(found.iter().all(|orphaned| orphaned.workspace_gone), "{found:?}");
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
    // A full and paused workspace: no claim comes by.
    world.store.pause_workspace(workspace, true, "me").await.expect("paused");
    world.store.delete_definition(workspace, definition, "me").await.expect("deleted");
    let found = found(&world, workspace.shard()).await;
    assert_eq!(ids(&found), accepted.iter().copied().collect());
    assert!(found.iter().all(|orphaned| !orphaned.workspace_gone), "{found:?}");
    fail(&world, &found).await;
    assert_eq!(world.stages(workspace).await, "ready 1, delayed 1, failed 4");
    let gone = "workflow_execution WHERE status = 'FAILED' AND error ->> 'type' = 'DEFINITION_GONE'";
    assert_eq!(world.count(gone).await, 4);
}

#[tokio::test]
async fn a_start_in_its_transaction_at_the_moment_of_the_deletion_is_found_later() {
    let world = World::new().await;
    // In different shards: what was found of one is not found again with the other.
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
async fn a_definition_is_cleared_once_and_not_looked_at_again() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("FREE").await;
    world.accept_many(workspace, definition, 1_200).await;
    world.store.delete_definition(workspace, definition, "me").await.expect("deleted");
    assert_eq!(world.store.clear_deleted(workspace.shard()).await.expect("cleared"), 1_200);
    assert_eq!(world.count("workflow_definition WHERE cleared_at IS NOT NULL").await, 0, "a start may still come");
    let later = "UPDATE workflow_definition SET deleted_at = deleted_at - interval '1 minute' WHERE id = $1";
    world.run_sql(later, &[&definition.0]).await;
    assert_eq!(world.store.clear_deleted(workspace.shard()).await.expect("cleared"), 0);
    assert_eq!(world.count("workflow_definition WHERE cleared_at IS NOT NULL").await, 1);
}

#[tokio::test]
async fn found_items_come_in_bounded_batches_until_none_is_left() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("FREE").await;
    world.accept_many(workspace, definition, 1_100).await;
    world.store.delete_workspace(workspace, "me").await.expect("deleted");
    for expected in [500, 500, 100, 0] {
        let found = world.store.orphaned_items(workspace.shard()).await.expect("orphaned");
        assert_eq!(found.len(), expected);
        fail(&world, &found).await;
    }
}

#[tokio::test]
async fn what_runs_in_a_deleted_workspace_is_asked_to_end_once_and_its_key_opens_nothing() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let secret = store::access::key::Secret::generate().expect("randomness");
    let scopes = kernel::access::Scopes::all();
    let new = store::access::key::NewKey { workspace: Some(workspace), name: "k", scopes, expires_at: None };
    world.store.create_key(&new, &secret, "test").await.expect("a key");
    world.accept_many(workspace, definition, 3).await;
    let begun = world.run(workspace, 2).await;
    world.claim(workspace, 1).await;
    let runs = async || world.store.orphaned_runs(workspace.shard()).await.expect("runs");
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
    assert_eq!(world.count("workflow_execution WHERE status = 'CANCELED'").await, 1, "what had not begun is over");
    assert_eq!(world.state(begun[0].execution).await, "RUNNING, DISPATCHED", "its slot is kept until it ended");
}
