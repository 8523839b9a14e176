//! Tests the samples of the queue that the gauges use.

use store::signals::sample::Sample;

use crate::support::{Limits, World};

const SHARD: i16 = 7;

#[tokio::test]
async fn a_sample_counts_stages_slots_limits_and_the_oldest() {
    let world = World::new().await;
    assert_eq!(world.store.sample(SHARD).await.expect("a sample"), Sample::default());
    let full = world.workspace_weighing("FREE", 1, Some(7)).await;
    let definition = world.definition(full, Limits::default()).await;
    world.accept_many(full, definition, 3).await;
    world.run(full, 1).await;
    let roomy = world.workspace_weighing("PRO", 1, Some(7)).await;
    let other = world.definition(roomy, Limits::default()).await;
    world.accept_many(roomy, other, 2).await;
    let aged = "UPDATE execution_queue SET created_at = now() - make_interval(secs => $2) WHERE workspace_id = $1 AND stage = 0";
    world.run_sql(aged, &[&full.0, &100.0]).await;
    world.run_sql(aged, &[&roomy.0, &10.0]).await;
    let sample = world.store.sample(SHARD).await.expect("a sample");
    assert_eq!((sample.ready, sample.slots, sample.slots_limit), (4, 1, 6), "{sample:?}");
    assert!((100.0..160.0).contains(&sample.oldest_for_slot_s), "{sample:?}");
    assert!((10.0..70.0).contains(&sample.oldest_for_turn_s), "{sample:?}");
}

#[tokio::test]
async fn delayed_items_of_all_shards_are_counted_only_for_shard_zero() {
    let world = World::new().await;
    let workspace = world.workspace_weighing("FREE", 1, Some(7)).await;
    let definition = world.definition(workspace, Limits::default()).await;
    world.accept_many(workspace, definition, 2).await;
    world
        .run_sql(
            "UPDATE execution_queue SET stage = 1, available_at = now() + interval '1 hour' WHERE workspace_id = $1",
            &[&workspace.0],
        )
        .await;
    let delayed = async |shard| world.store.sample(shard).await.expect("a sample").delayed;
    assert_eq!((delayed(0).await, delayed(SHARD).await), (2, 0));
}

#[tokio::test]
async fn the_oldest_snapshot_is_reported_while_it_is_held() {
    let world = World::new().await;
    let holder = world.database.client().await;
    holder.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await.expect("a snapshot");
    for _ in 0..10 {
        world.client.batch_execute("SELECT pg_current_xact_id()").await.expect("a transaction");
    }
    let held = world.store.oldest_snapshot().await.expect("an answer");
    assert!(held.transactions >= 10 && held.seconds > 0.0, "{held:?}");
    holder.batch_execute("ROLLBACK").await.expect("released");
    let released = world.store.oldest_snapshot().await.expect("an answer");
    assert!(released.transactions < 10, "{released:?}");
}
