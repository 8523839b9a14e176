//! Retention: which rows are deleted, and which rows never are.

use std::time::Duration;

use kernel::execution::Status;
use kernel::ids::ExecutionId;
use store::queue::enqueue::Start;
use store::retention::{Cursor, Section};
use uuid::{NoContext, Timestamp, Uuid};

use crate::support::{World, fact, record, start};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// An execution that was started this many days ago.
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

/// An execution that ended this many days ago, whenever it started.
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

async fn retire(world: &World, days: u32) -> u64 {
    walk(world, Section::Executions, days, None, 2).await
}

/// Continues a walk to its end.
async fn walk(world: &World, section: Section, days: u32, from: Option<Cursor>, most: i32) -> u64 {
    let (mut from, mut retired) = (from, 0);
    for _ in 0..1_000 {
        let done = world.store.retire(section, DAY * days, from, most).await.expect("an answer");
        retired += done.retired;
        match done.next {
            Some(next) => from = Some(next),
            None => return retired,
        }
    }
    panic!("the walk does not end");
}

async fn is_there(world: &World, id: ExecutionId) -> bool {
    world.get("SELECT EXISTS (SELECT 1 FROM workflow_execution WHERE id = $1)", &[&id.0]).await
}

#[tokio::test]
async fn an_old_execution_is_deleted_with_its_nodes_and_dead_letter_and_the_rest_stays() {
    let world = World::new().await;
    let mut old = Vec::new();
    for outcome in [Status::Completed, Status::Failed, Status::Canceled, Status::TimedOut] {
        if outcome == Status::Completed {
            let id = accepted(&world, 40, |_| {}).await;
            let workspace = kernel::ids::WorkspaceId(
                world.get("SELECT workspace_id FROM workflow_execution WHERE id = $1", &[&id.0]).await,
            );
            let run = world.run(workspace, 1).await.pop().expect("a run");
            let done = record(&run, vec![fact("a", kernel::run::node::Status::Completed)]);
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
async fn a_root_is_kept_while_a_descendant_is_open_and_then_deleted_with_all() {
    let world = World::new().await;
    let root = ended(&world, 40, 35, Status::Completed).await;
    let child = accepted(&world, 40, |_| {}).await;
    let tie =
        "UPDATE workflow_execution SET parent = $1, root = $1, depth = 1, parent_node = id::text, parent_iteration = 0,
        parent_attempt = 1 WHERE id = $2";
    world.run_sql(tie, &[&root.0, &child.0]).await;
    assert_eq!(retire(&world, 30).await, 0, "it has an open child");
    world.finish(child, Status::Completed).await;
    assert_eq!(retire(&world, 30).await, 2, "the child is deleted with its root, whenever it ended");
    assert_eq!(world.count("workflow_execution").await, 0);
}

#[tokio::test]
async fn activities_have_their_own_age_and_are_deleted_in_bounded_slices() {
    let world = World::new().await;
    world.tenant("PRO").await;
    let all = world.count("activity").await;
    assert_eq!(walk(&world, Section::Activity, 1, None, 100).await, 0);
    world
        .run_sql("UPDATE activity SET at = at - interval '2 days' WHERE id = (SELECT min(id) FROM activity)", &[])
        .await;
    assert_eq!(walk(&world, Section::Activity, 1, None, 100).await, 1);
    assert_eq!(world.count("activity").await, all - 1);
    world.run_sql("UPDATE activity SET at = at - interval '2 days'", &[]).await;
    let slice = world.store.retire(Section::Activity, DAY, None, 1).await.expect("an answer");
    assert!(slice.retired == 1 && slice.next.is_some(), "{slice:?}");
    assert_eq!(walk(&world, Section::Activity, 1, slice.next, 1).await, all.unsigned_abs() - 2);
}

/// A root that ended long ago, with this many descendants and nodes.
async fn tree(world: &World, descendants: i32, nodes: i32) -> ExecutionId {
    let root = ended(world, 40, 35, Status::Completed).await;
    let below = "INSERT INTO workflow_execution (id, workspace_id, workflow_definition_id, version_id, status, semantics, completed_at,
            deadline_at, parent, root, depth, parent_node, parent_iteration, parent_attempt)
        SELECT (substr(replace($1::uuid::text, '-', ''), 1, 20) || lpad(to_hex(n + 281474900000000), 12, '0'))::uuid, e.workspace_id,
               e.workflow_definition_id, e.version_id, 'COMPLETED', 1, now(), now(), $1, $1, 1, n::text, 0, 1
          FROM workflow_execution e CROSS JOIN generate_series(1, $2::int) n WHERE e.id = $1";
    world.run_sql(below, &[&root.0, &descendants]).await;
    world.run_sql("UPDATE workflow_execution SET descendants = $2 WHERE id = $1", &[&root.0, &descendants]).await;
    let own =
        "INSERT INTO workflow_execution_node (execution_id, node, iteration, workspace_id, status, seq, completed_at)
        SELECT e.id, 'loop', n, e.workspace_id, 'COMPLETED', n, now()
          FROM workflow_execution e CROSS JOIN generate_series(1, $2::int) n WHERE e.id = $1";
    world.run_sql(own, &[&root.0, &nodes]).await;
    root
}

#[tokio::test]
async fn a_large_tree_is_deleted_in_slices_and_a_crash_between_two_leaves_nothing_behind() {
    let world = World::new().await;
    let (few, each) = (4, 40);
    let root = tree(&world, 100, 1_000).await;
    let rows = async || world.count("workflow_execution").await + world.count("workflow_execution_node").await;
    let (mut from, mut before, mut slices) = (None, rows().await, 0);
    while before > 0 {
        let slice = world.store.retire(Section::Executions, DAY * 30, from, few).await.expect("an answer");
        let after = rows().await;
        assert!(before - after <= i64::from(few + each), "one slice deleted {} rows", before - after);
        let half = is_there(&world, root).await && world.count("workflow_execution_node").await < 1_000;
        assert!(!half, "nobody sees half of an execution");
        // After every third slice the process dies, and the next one starts at the oldest.
        slices += 1;
        from = if slices % 3 == 0 { None } else { slice.next };
        before = after;
        assert!(slices < 1_000, "{before} rows are left");
    }
    assert_eq!(retire(&world, 30).await, 0);
    assert_eq!(world.count("retired_execution").await, 0);
}

#[tokio::test]
async fn a_walk_continues_where_its_last_slice_ended() {
    let world = World::new().await;
    for _ in 0..5 {
        accepted(&world, 50, |_| {}).await;
    }
    let behind = ended(&world, 40, 35, Status::Completed).await;
    let mut from = None;
    for _ in 0..3 {
        let slice = world.store.retire(Section::Executions, DAY * 30, from, 2).await.expect("an answer");
        from = slice.next;
    }
    assert!(!is_there(&world, behind).await, "the third slice of two is after the five that are kept");
    let end = world.store.retire(Section::Executions, DAY * 30, from, 2).await.expect("an answer");
    assert_eq!(end.next, None);
}

#[tokio::test]
async fn a_descendant_that_ends_after_its_root_was_deleted_is_found_by_a_later_walk() {
    let world = World::new().await;
    let root = tree(&world, 3, 1).await;
    world.run_sql("DELETE FROM workflow_execution WHERE id = $1", &[&root.0]).await;
    assert_eq!(retire(&world, 30).await, 3);
}
