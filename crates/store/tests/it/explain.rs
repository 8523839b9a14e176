//! Tests that the stored rows explain why an item waits.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kernel::execution::Status;
use kernel::ids::{ExecutionId, QueueItemId};
use kernel::queue::explain::{Facts, MAX_POSITION, Waiting, explain, position};
use store::queue::enqueue::Start;

use crate::support::{Limits, World, keyed, start};

async fn facts(world: &World, execution: ExecutionId) -> Facts {
    let item = world.store.queue_item(execution.queue_item()).await.expect("an answer").expect("a queue item");
    assert_eq!(item.item, execution.queue_item());
    item.facts
}

async fn outcome(world: &World, execution: ExecutionId) -> (Option<Waiting>, Option<i32>) {
    let facts = facts(world, execution).await;
    (explain(&facts), position(&facts))
}

#[tokio::test]
async fn an_item_of_a_full_workspace_knows_its_position() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let accepted = world.accept_many(workspace, definition, 8).await;
    assert_eq!(outcome(&world, accepted[2]).await, (Some(Waiting::Turn), Some(3)));
    world.claim(workspace, 10).await;
    let full = Waiting::WorkspaceFull { running: 5, limit: 5, held_by: accepted[..5].to_vec() };
    for (at, place) in [(5, 1), (7, 3)] {
        assert_eq!(outcome(&world, accepted[at]).await, (Some(full.clone()), Some(place)));
    }
    assert_eq!(outcome(&world, accepted[0]).await, (Some(Waiting::Starting), None));
    assert_eq!(full.message(), "the workspace is full: 5 of 5 executions are running");
}

#[tokio::test]
async fn an_item_blocked_by_a_key_or_definition_names_it() {
    let world = World::new().await;
    let workspace = world.workspace("ENTERPRISE").await;
    let keys = world.definition(workspace, Limits { key_concurrency: Some(2), ..Limits::default() }).await;
    let limited = world.definition(workspace, Limits { concurrency: Some(1), ..Limits::default() }).await;
    let mut starts: Vec<Start> = (0..3).map(|_| keyed(workspace, keys, "customer 7")).collect();
    starts.extend([start(workspace, limited), start(workspace, limited)]);
    let accepted = world.accept(&starts).await;
    world.run(workspace, 10).await;
    let concurrency_key = "customer 7".to_owned();
    let key = Waiting::KeyFull { concurrency_key, running: 2, limit: 2, held_by: accepted[..2].to_vec() };
    assert_eq!(outcome(&world, accepted[2]).await, (Some(key), None));
    let definition = Waiting::DefinitionFull { running: 1, limit: 1, held_by: vec![accepted[3]] };
    assert_eq!(outcome(&world, accepted[4]).await, (Some(definition), None));
}

#[tokio::test]
async fn a_pause_is_the_first_reason_and_the_workspaces_comes_before_the_definitions() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let execution = world.accept_many(workspace, definition, 1).await[0];
    let steps = [
        ("UPDATE workflow_definition SET status = 'PAUSED' WHERE workspace_id = $1", Waiting::DefinitionPaused),
        ("UPDATE workspace SET paused = true WHERE id = $1", Waiting::WorkspacePaused),
        ("UPDATE workflow_definition SET deleted_at = now() WHERE workspace_id = $1", Waiting::DefinitionDeleted),
        ("UPDATE workspace SET deleted_at = now() WHERE id = $1", Waiting::WorkspaceDeleted),
    ];
    for (sql, expected) in steps {
        world.run_sql(sql, &[&workspace.0]).await;
        assert_eq!(outcome(&world, execution).await.0, Some(expected));
    }
}

#[tokio::test]
async fn a_delayed_item_says_until_when_and_a_refused_one_after_what() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let at = Timestamp::now() + SignedDuration::from_hours(1);
    let later = world.accept(&[Start { run_at: Some(at), ..start(workspace, definition) }]).await[0];
    let (Some(Waiting::DelayedUntil { available_at: reported_at }), None) = outcome(&world, later).await else {
        panic!("not delayed");
    };
    let off = reported_at.parse::<Timestamp>().expect("a time").duration_since(at);
    assert!(off.abs() < SignedDuration::from_millis(1), "{off:?}");
    let refused = world.accept_many(workspace, definition, 1).await[0];
    let (item, claim) = world.claim_one(world.me, workspace).await;
    world.store.requeue_refused(item, claim, "input too large", Duration::from_secs(10)).await.expect("requeued");
    let (Some(Waiting::BackingOff { attempts, error, .. }), None) = outcome(&world, refused).await else {
        panic!("not backing off");
    };
    assert_eq!((attempts, error.as_str()), (1, "input too large"));
}

#[tokio::test]
async fn positions_are_counted_up_to_a_thousand() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("FREE").await;
    let accepted = world.accept_many(workspace, definition, 1_200).await;
    let last = usize::try_from(MAX_POSITION).expect("a thousand");
    assert_eq!(outcome(&world, accepted[last - 1]).await.1, Some(MAX_POSITION));
    for at in [last + 1, 1_199] {
        assert_eq!(facts(&world, accepted[at]).await.ahead, Some(MAX_POSITION + 1), "place {at}");
    }
}

#[tokio::test]
async fn a_running_or_ended_execution_waits_for_nothing() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let accepted = world.accept_many(workspace, definition, 3).await;
    world.run(workspace, 3).await;
    let begun = Facts { begun: true, ..facts(&world, accepted[0]).await };
    assert_eq!((explain(&begun), position(&begun)), (None, None));
    world.finish(accepted[1], Status::Failed).await;
    assert_eq!(outcome(&world, accepted[1]).await, (None, None), "a dead letter");
    world.finish(accepted[2], Status::Completed).await;
    assert!(world.store.queue_item(accepted[2].queue_item()).await.expect("an answer").is_none());
    assert!(world.store.queue_item(QueueItemId(store::new_id())).await.expect("an answer").is_none());
}

#[tokio::test]
async fn a_queue_item_is_read_as_it_is_stored() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let execution = world.accept_many(workspace, definition, 1).await[0];
    let item = async || world.store.queue_item(execution.queue_item()).await.expect("an answer").expect("a queue item");
    let waiting = item().await;
    assert_eq!((waiting.workspace, waiting.definition, waiting.priority), (workspace, definition, 3));
    assert_eq!((waiting.claimed_at, waiting.dispatched_at, waiting.takeovers), (None, None, 0));
    world.run(workspace, 1).await;
    let running = item().await;
    assert!(running.claimed_at.is_some() && running.dispatched_at >= running.claimed_at);
}
