//! Limits of concurrency keys and definitions: which items they block and what unblocks an item. The sweep finds
//! blocked items that nothing has unblocked.

use jiff::{SignedDuration, Timestamp};
use kernel::execution::Status;
use kernel::ids::ExecutionId;
use store::queue::claim::{BlockingLimit, LimitCursor};
use store::queue::enqueue::Start;
use store::run::Record;

use crate::support::{Limits, World, end, keyed, record, start};

const ONE_OF_A_KEY: Limits = Limits { concurrency: None, key_concurrency: Some(1), timeout_ms: None };
const ONE: Limits = Limits { concurrency: Some(1), key_concurrency: None, timeout_ms: None };

/// Ends a run as its owner does, and returns the ids that can be claimed then.
async fn end_by_record(world: &World, run: &store::queue::claim::Begun) {
    let record = Record { end: Some(end(Status::Completed)), ..record(run, vec![]) };
    let result = world.store.record(world.me, &[record], "test").await.expect("recorded");
    assert!(result[0].held && result[0].ended && result[0].freed == Some(run.workspace), "{result:?}");
}

/// Three starts under one limit with room for one: each end unblocks the next in the same call.
async fn check_hand_over(limits: Limits, key: Option<&str>, waiting: &str) {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    let definition = world.definition(workspace, limits).await;
    let start = || Start { concurrency_key: key.map(str::to_owned), ..start(workspace, definition) };
    let accepted = world.accept(&[start(), start(), start()]).await;
    assert_eq!(world.stages(workspace).await, format!("ready 1, {waiting} 2"));
    let first = world.run(workspace, 5).await;
    assert_eq!(first.len(), 1);
    assert_eq!(world.run(workspace, 5).await.len(), 0, "the limit is full");
    world.finish(first[0].execution, Status::Completed).await;
    assert_eq!(world.stages(workspace).await, format!("ready 1, {waiting} 1"), "unblocked by complete");
    let second = world.run(workspace, 5).await;
    end_by_record(&world, &second[0]).await;
    assert_eq!(world.stages(workspace).await, "ready 1", "unblocked by record");
    let third = world.run(workspace, 5).await;
    let ran: Vec<ExecutionId> = [&first, &second, &third].iter().map(|runs| runs[0].execution).collect();
    assert_eq!(ran, accepted, "in the order of their arrival");
}

#[tokio::test]
async fn the_end_of_an_execution_unblocks_the_next_of_its_key_in_the_same_call() {
    check_hand_over(ONE_OF_A_KEY, Some("k"), "key").await;
}

#[tokio::test]
async fn the_end_of_an_execution_unblocks_the_next_of_its_definition_in_the_same_call() {
    check_hand_over(ONE, None, "definition").await;
}

#[tokio::test]
async fn an_end_unblocks_another_key_of_a_limited_definition() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    let definition = world.definition(workspace, ONE).await;
    let starts = ["a", "b", "c"].map(|key| keyed(workspace, definition, key));
    let accepted = world.accept(&starts).await;
    assert_eq!(
        world.stages(workspace).await,
        "ready 1, definition 2",
        "their keys have room, their definition has not"
    );
    for expected in accepted {
        let runs = world.run(workspace, 5).await;
        assert_eq!(runs.iter().map(|run| run.execution).collect::<Vec<_>>(), [expected]);
        end_by_record(&world, &runs[0]).await;
    }
}

#[tokio::test]
async fn an_item_blocked_by_its_definition_uses_room_of_its_key() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    let definition = world.definition(workspace, ONE).await;
    let first = world.accept(&[keyed(workspace, definition, "z")]).await[0];
    world.run(workspace, 5).await;
    let starts = ["a", "a", "b"].map(|key| keyed(workspace, definition, key));
    world.accept(&starts).await;
    let waiting = "key 1, definition 2, slot 1";
    assert_eq!(world.stages(workspace).await, waiting);
    let limits = world.store.blocking_limits(workspace.shard(), &mut LimitCursor::default()).await.expect("limits");
    world.store.unblock(&limits).await.expect("opened");
    assert_eq!(world.stages(workspace).await, waiting, "however often it is tried");
    world.finish(first, Status::Completed).await;
    assert_eq!(world.stages(workspace).await, "ready 1, key 1, definition 1");
}

#[tokio::test]
async fn a_failed_or_canceled_execution_unblocks_the_next_too() {
    for outcome in [Status::Failed, Status::TimedOut, Status::Canceled] {
        let world = World::new().await;
        let workspace = world.workspace("PRO").await;
        let definition = world.definition(workspace, ONE_OF_A_KEY).await;
        world.accept(&[keyed(workspace, definition, "k"), keyed(workspace, definition, "k")]).await;
        let first = world.run(workspace, 5).await;
        world.finish(first[0].execution, outcome).await;
        assert_eq!(world.run(workspace, 5).await.len(), 1, "{outcome:?}");
    }
}

#[tokio::test]
async fn canceling_an_unblocked_item_unblocks_the_next() {
    for limits in [ONE_OF_A_KEY, ONE] {
        let world = World::new().await;
        let workspace = world.workspace("PRO").await;
        let definition = world.definition(workspace, limits).await;
        let accepted = world.accept(&[keyed(workspace, definition, "k"), keyed(workspace, definition, "k")]).await;
        world.store.cancel(accepted[0], workspace, "test").await.expect("canceled");
        assert_eq!(world.stages(workspace).await, "ready 1");
    }
}

#[tokio::test]
async fn a_new_limit_of_a_definition_applies_beside_running_executions() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.accept_many(workspace, definition, 4).await;
    let early = world.run(workspace, 1).await;
    world.run_sql("UPDATE workflow_definition SET concurrency = 1 WHERE id = $1", &[&definition.0]).await;
    assert_eq!(world.run(workspace, 5).await.len(), 0);
    world.store.block_definition(workspace, definition).await.expect("moved");
    assert_eq!(world.stages(workspace).await, "definition 3, slot 1");
    // The end of a run from before the limit unblocks nothing; the sweep finds the room.
    world.finish(early[0].execution, Status::Completed).await;
    let limits = world.store.blocking_limits(workspace.shard(), &mut LimitCursor::default()).await.expect("limits");
    world.store.unblock(&limits).await.expect("opened");
    let second = world.run(workspace, 5).await;
    assert_eq!((second.len(), world.stages(workspace).await), (1, "definition 2, slot 1".to_owned()));
    end_by_record(&world, &second[0]).await;
    assert_eq!(world.stages(workspace).await, "ready 1, definition 1", "from then on ends unblock it");
}

#[tokio::test]
async fn a_sweep_finds_limits_with_room_that_nothing_unblocked() {
    let world = World::new().await;
    let workspace = world.workspace("ENTERPRISE").await;
    let keys = world.definition(workspace, Limits { key_concurrency: Some(0), ..Limits::default() }).await;
    let whole = world.definition(workspace, Limits { concurrency: Some(0), ..Limits::default() }).await;
    let mut starts: Vec<Start> = ["a", "b", "b"].map(|key| keyed(workspace, keys, key)).to_vec();
    starts.extend([start(workspace, whole), start(workspace, whole)]);
    world.accept(&starts).await;
    assert_eq!(world.stages(workspace).await, "key 3, definition 2");
    let limit = |definition, key: Option<&str>| BlockingLimit { workspace, definition, key: key.map(str::to_owned) };
    let mut limits = world.store.blocking_limits(workspace.shard(), &mut LimitCursor::default()).await.expect("limits");
    limits.sort();
    let mut expected = vec![limit(keys, Some("a")), limit(keys, Some("b")), limit(whole, None)];
    expected.sort();
    assert_eq!(limits, expected);
    assert_eq!(world.store.unblock(&limits).await.expect("opened"), [], "none has room");
    world.run_sql("UPDATE workflow_definition SET key_concurrency = 1 WHERE id = $1", &[&keys.0]).await;
    world.run_sql("UPDATE workflow_definition SET concurrency = 1 WHERE id = $1", &[&whole.0]).await;
    assert_eq!(world.store.unblock(&limits).await.expect("opened"), [workspace]);
    assert_eq!(world.stages(workspace).await, "ready 3, key 1, definition 1");
    assert_eq!(world.store.unblock(&limits).await.expect("opened"), [], "full now");
}

#[tokio::test]
async fn items_of_a_definition_whose_limit_is_removed_are_unblocked_a_thousand_at_a_time() {
    let world = World::new().await;
    let workspace = world.workspace("ENTERPRISE").await;
    let definition = world.definition(workspace, Limits { concurrency: Some(0), ..Limits::default() }).await;
    world.accept_many(workspace, definition, 1_500).await;
    world.run_sql("UPDATE workflow_definition SET concurrency = NULL WHERE id = $1", &[&definition.0]).await;
    let limits = [BlockingLimit { workspace, definition, key: None }];
    for expected in ["ready 1000, definition 500", "ready 1500"] {
        world.store.unblock(&limits).await.expect("opened");
        assert_eq!(world.stages(workspace).await, expected);
    }
}

#[tokio::test]
async fn ready_items_of_a_paused_definition_are_blocked_a_thousand_at_a_time() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("FREE").await;
    let other = world.definition(workspace, Limits::default()).await;
    world.accept_many(workspace, definition, 2_500).await;
    world.accept_many(workspace, other, 10).await;
    world.run_sql("UPDATE workflow_definition SET status = 'PAUSED' WHERE id = $1", &[&definition.0]).await;
    let stages = ["ready 1510, definition 1000", "ready 510, definition 2000", "ready 10, definition 2500"];
    let mut place = None;
    for (expected, stages) in [1_000, 1_000, 500].into_iter().zip(stages) {
        let (moved, last) = world.store.block_batch(workspace, definition, 3, place, None).await.expect("blocked");
        assert_eq!((moved, world.stages(workspace).await), (expected, stages.to_owned()));
        assert!(last.is_some() && place.is_none_or(|place| last < Some(place)), "it continues before {place:?}");
        place = last;
    }
    assert_eq!(world.store.block_batch(workspace, definition, 3, None, None).await.expect("blocked"), (0, None));
    let limits = world.store.blocking_limits(workspace.shard(), &mut LimitCursor::default()).await.expect("limits");
    assert_eq!(world.store.unblock(&limits).await.expect("opened"), [], "it stays paused");
    world.run_sql("UPDATE workflow_definition SET status = 'ACTIVE' WHERE id = $1", &[&definition.0]).await;
    assert_eq!(world.store.unblock(&limits).await.expect("opened"), [workspace]);
    assert_eq!(world.stages(workspace).await, "ready 1010, definition 1500");
}

#[tokio::test]
async fn ready_items_over_a_lowered_limit_are_blocked_and_those_with_room_are_unblocked() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.accept_many(workspace, definition, 10).await;
    assert_eq!(world.store.block_definition(workspace, definition).await.expect("moved"), 0, "nothing blocks it");
    let lower = "UPDATE workflow_definition SET concurrency = $2 WHERE id = $1";
    world.run_sql(lower, &[&definition.0, &4]).await;
    assert_eq!(world.store.block_definition(workspace, definition).await.expect("moved"), 10);
    assert_eq!(world.stages(workspace).await, "ready 4, definition 6");
    world.run_sql(lower, &[&definition.0, &2]).await;
    assert_eq!(world.store.block_definition(workspace, definition).await.expect("moved"), 4, "unblocked, and too many");
    assert_eq!(world.stages(workspace).await, "ready 2, definition 8");
}

#[tokio::test]
async fn executions_from_before_a_limit_count_towards_it() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.accept_many(workspace, definition, 6).await;
    assert_eq!(world.run(workspace, 2).await.len(), 2);
    world.run_sql("UPDATE workflow_definition SET concurrency = 3 WHERE id = $1", &[&definition.0]).await;
    world.store.block_definition(workspace, definition).await.expect("moved");
    assert_eq!(world.stages(workspace).await, "ready 1, definition 3, slot 2");
}

#[tokio::test]
async fn due_items_move_to_the_stage_of_what_blocks_them_next() {
    let world = World::new().await;
    let workspace = world.workspace("ENTERPRISE").await;
    let free = world.definition(workspace, Limits::default()).await;
    let keys = world.definition(workspace, ONE_OF_A_KEY).await;
    let closed = world.definition(workspace, Limits { concurrency: Some(0), ..Limits::default() }).await;
    let run_at = Some(Timestamp::now() + SignedDuration::from_hours(1));
    let starts = [
        start(workspace, free),
        keyed(workspace, keys, "k"),
        keyed(workspace, keys, "k"),
        start(workspace, closed),
        start(workspace, free),
    ]
    .map(|start| Start { run_at, ..start });
    world.accept(&starts).await;
    assert_eq!(world.store.promote().await.expect("promoted"), (vec![], 0));
    let due = world.store.next_due().await.expect("a time").expect("something is delayed");
    assert!((3_500..=3_600).contains(&due.as_secs()), "{due:?}");
    let sql = "UPDATE execution_queue SET available_at = now() WHERE id <> $1";
    world.run_sql(sql, &[&starts[4].execution.0]).await;
    assert_eq!(world.store.next_due().await.expect("a time"), Some(std::time::Duration::ZERO));
    assert_eq!(world.store.promote().await.expect("promoted"), (vec![workspace], 4));
    assert_eq!(world.stages(workspace).await, "ready 2, delayed 1, key 1, definition 1");
    world.run_sql("DELETE FROM execution_queue WHERE stage = 1", &[]).await;
    assert_eq!(world.store.next_due().await.expect("a time"), None);
}

#[tokio::test]
async fn an_item_delayed_before_its_definition_was_paused_is_blocked_when_it_is_due() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let run_at = Some(Timestamp::now() + SignedDuration::from_hours(1));
    world.accept(&[Start { run_at, ..start(workspace, definition) }]).await;
    world.run_sql("UPDATE workflow_definition SET status = 'PAUSED' WHERE id = $1", &[&definition.0]).await;
    world.run_sql("UPDATE execution_queue SET available_at = now()", &[]).await;
    world.store.promote().await.expect("promoted");
    assert_eq!(world.run(workspace, 5).await.len(), 0);
    world.store.block_definition(workspace, definition).await.expect("moved");
    assert_eq!(world.stages(workspace).await, "definition 1");
}
