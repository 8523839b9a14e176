//! What is forgotten, and what never is.

use std::time::Duration;

use kernel::execution::Status;
use kernel::ids::ExecutionId;
use store::enqueue::Start;
use uuid::{NoContext, Timestamp, Uuid};

use crate::support::{World, fact, record, start};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// An execution that was started so many days ago.
async fn accepted(world: &World, days: u64, change: impl FnOnce(&mut Start)) -> ExecutionId {
    let (workspace, definition) = world.tenant("PRO").await;
    let now = jiff::Timestamp::now().as_second().unsigned_abs();
    let then = Uuid::new_v7(Timestamp::from_unix(NoContext, now - days * 24 * 60 * 60 - 60, 0));
    let mut start = Start { execution: ExecutionId(then), ..start(workspace, definition) };
    change(&mut start);
    let id = world.accept(&[start]).await[0];
    let sql = format!("UPDATE workflow_execution SET created_at = created_at - interval '{days} days' WHERE id = $1");
    world.run_sql(&sql, &[&id.0]).await;
    id
}

/// One that ended so many days ago, whenever it started.
async fn ended(world: &World, started: u64, ended: u64, outcome: Status) -> ExecutionId {
    let id = accepted(world, started, |_| {}).await;
    world.finish(id, outcome).await;
    ended_ago(world, id, ended).await;
    id
}

async fn ended_ago(world: &World, id: ExecutionId, days: u64) {
    let sql =
        format!("UPDATE workflow_execution SET completed_at = now() - interval '{days} days 1 minute' WHERE id = $1");
    world.run_sql(&sql, &[&id.0]).await;
}

async fn retire(world: &World, days: u32) -> i64 {
    let (mut from, mut retired) = (None, 0);
    for _ in 0..100 {
        let done = world.store.retire(DAY * days, from, 2).await.expect("an answer");
        retired += done.executions;
        match done.next {
            Some(next) => from = Some(next),
            None => return retired,
        }
    }
    panic!("it never comes to an end");
}

async fn is_there(world: &World, id: ExecutionId) -> bool {
    world.get("SELECT EXISTS (SELECT 1 FROM workflow_execution WHERE id = $1)", &[&id.0]).await
}

#[tokio::test]
async fn what_ended_long_ago_goes_with_its_nodes_and_its_dead_letter_and_the_rest_stays() {
    let world = World::new().await;
    let mut old = Vec::new();
    for outcome in [Status::Completed, Status::Failed, Status::Canceled, Status::TimedOut] {
        if outcome == Status::Completed {
            let id = accepted(&world, 40, |_| {}).await;
            let workspace = kernel::ids::WorkspaceId(
                world.get("SELECT workspace_id FROM workflow_execution WHERE id = $1", &[&id.0]).await,
            );
            let run = world.run(workspace, 1).await.pop().expect("a run");
            let done = record(&run, vec![fact("a", kernel::node::Status::Completed)]);
            world.store.record(world.me, &[done], "test").await.expect("a record");
            world.finish(id, outcome).await;
            ended_ago(&world, id, 31).await;
            old.push(id);
        } else {
            old.push(ended(&world, 40, 31, outcome).await);
        }
    }
    assert_eq!((world.count("workflow_execution_node").await, world.count("execution_queue").await), (1, 2));
    let late = ended(&world, 40, 29, Status::Completed).await;
    let young = ended(&world, 1, 1, Status::Failed).await;
    let waiting = accepted(&world, 40, |_| {}).await;
    assert_eq!(retire(&world, 30).await, 4);
    for id in old {
        assert!(!is_there(&world, id).await);
    }
    for id in [late, young, waiting] {
        assert!(is_there(&world, id).await, "{id}");
    }
    assert_eq!((world.count("workflow_execution_node").await, world.count("execution_queue").await), (0, 2));
    assert_eq!(world.state(waiting).await, "PENDING, PENDING");
    assert_eq!(retire(&world, 30).await, 0, "the second time finds nothing");
}

#[tokio::test]
async fn an_idempotency_key_is_remembered_for_a_day_however_short_the_retention() {
    let world = World::new().await;
    let key = |start: &mut Start| start.idempotency = Some(("k".to_owned(), vec![1]));
    let old = accepted(&world, 3, key).await;
    world.finish(old, Status::Completed).await;
    ended_ago(&world, old, 2).await;
    let young = accepted(&world, 3, key).await;
    world.finish(young, Status::Completed).await;
    ended_ago(&world, young, 2).await;
    world
        .run_sql("UPDATE workflow_execution SET created_at = now() - interval '23 hours' WHERE id = $1", &[&young.0])
        .await;
    assert_eq!(retire(&world, 1).await, 1);
    assert!(!is_there(&world, old).await && is_there(&world, young).await);
}

#[tokio::test]
async fn a_root_stays_while_a_descendant_lives_and_takes_them_along_when_none_does() {
    let world = World::new().await;
    let root = ended(&world, 40, 35, Status::Completed).await;
    let child = accepted(&world, 40, |_| {}).await;
    let tie =
        "UPDATE workflow_execution SET parent = $1, root = $1, depth = 1, parent_node = id::text, parent_iteration = 0,
        parent_attempt = 1 WHERE id = $2";
    world.run_sql(tie, &[&root.0, &child.0]).await;
    assert_eq!(retire(&world, 30).await, 0, "under a live child");
    world.finish(child, Status::Completed).await;
    assert_eq!(retire(&world, 30).await, 2, "the child goes with its root, whenever it ended");
    assert_eq!(world.count("workflow_execution").await, 0);
}

#[tokio::test]
async fn activity_has_an_age_of_its_own_and_goes_a_bounded_number_at_a_time() {
    let world = World::new().await;
    world.tenant("PRO").await;
    let all = world.count("activity").await;
    assert_eq!(world.store.retire_activity(DAY, 100).await.expect("an answer"), 0);
    world
        .run_sql("UPDATE activity SET at = at - interval '2 days' WHERE id = (SELECT min(id) FROM activity)", &[])
        .await;
    assert_eq!(world.store.retire_activity(DAY, 100).await.expect("an answer"), 1);
    assert_eq!(world.count("activity").await, all - 1);
    world.run_sql("UPDATE activity SET at = at - interval '2 days'", &[]).await;
    assert_eq!(world.store.retire_activity(DAY, 1).await.expect("an answer"), 1);
}
