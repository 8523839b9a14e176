//! Parked runs: no process holds them while they wait. Each is woken once, and none is forgotten.

use std::time::Duration;

use kernel::execution;
use kernel::ids::ExecutionId;
use kernel::run::node::Status;
use store::execution::Canceled;
use store::queue::claim::Begun;
use store::run::{NodeFact, Record};

use crate::support::{ENGINE, World, fact, race, record};

/// A parked run with two nodes that continue by themselves, in one hour and in two.
async fn parked(world: &World) -> Begun {
    let (workspace, definition) = world.tenant("PRO").await;
    world.accept_many(workspace, definition, 1).await;
    let run = world.run(workspace, 1).await.remove(0);
    park(world, &run).await;
    run
}

async fn park(world: &World, run: &Begun) {
    let later = |node, hours: u64| {
        let next_in = Some(Duration::from_secs(3_600 * hours));
        NodeFact { next_in, ..fact(node, Status::Running) }
    };
    let facts = vec![later("late", 2), later("soon", 1), fact("done", Status::Completed)];
    let outcome = world
        .store
        .record(world.me, &[Record { park: Some(Duration::from_secs(3_600)), ..record(run, facts) }], "test")
        .await;
    assert!(outcome.expect("recorded")[0].held);
}

async fn wake_in_minutes(world: &World, run: ExecutionId) -> Option<f64> {
    let sql =
        "SELECT extract(epoch FROM wake_at - clock_timestamp())::float8 / 60 FROM run_request WHERE execution_id = $1";
    world.get(sql, &[&run.0]).await
}

async fn due(world: &World, run: ExecutionId) {
    let sql = "UPDATE run_request SET wake_at = now() - interval '1 second' WHERE execution_id = $1";
    world.run_sql(sql, &[&run.0]).await;
}

#[tokio::test]
async fn a_parked_run_has_no_owner_keeps_its_slot_and_wakes_with_its_next_node() {
    let world = World::new().await;
    let run = parked(&world).await;
    assert_eq!(world.state(run.execution).await, "RUNNING, DISPATCHED");
    assert_eq!(world.store.owned_runs(world.me, ENGINE).await.expect("owned"), []);
    let minutes = wake_in_minutes(&world, run.execution).await.expect("a time to wake");
    assert!((59.0..=60.0).contains(&minutes), "{minutes}");
    let next = world.store.next_wake(ENGINE).await.expect("a time").expect("a parked run");
    assert!((3_500..=3_600).contains(&next.as_secs()), "{next:?}");
    let late = record(&run, vec![fact("late", Status::Completed)]);
    assert!(!world.store.record(world.me, &[late], "test").await.expect("an answer")[0].held, "parking fences");
}

#[tokio::test]
async fn a_parked_run_wakes_at_its_deadline_if_that_is_sooner() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.accept_many(workspace, definition, 1).await;
    let run = world.run(workspace, 1).await.remove(0);
    let soon = "UPDATE workflow_execution SET deadline_at = now() + interval '10 minutes' WHERE id = $1";
    world.run_sql(soon, &[&run.execution.0]).await;
    park(&world, &run).await;
    let minutes = wake_in_minutes(&world, run.execution).await.expect("a time to wake");
    assert!((9.0..=10.0).contains(&minutes), "{minutes}");
}

#[tokio::test]
async fn a_parked_run_wakes_when_due_with_a_new_epoch() {
    let world = World::new().await;
    let run = parked(&world).await;
    assert_eq!(world.store.wake_due(world.me, ENGINE, 10).await.expect("woken"), []);
    due(&world, run.execution).await;
    assert_eq!(world.store.next_wake(ENGINE).await.expect("a time"), Some(Duration::ZERO));
    assert_eq!(world.store.wake_due(world.me, "another engine", 10).await.expect("woken"), []);
    assert_eq!(world.store.wake_due(world.me, ENGINE, 0).await.expect("woken"), [], "no room");
    assert_eq!(world.store.wake_due(world.me, ENGINE, 10).await.expect("woken"), [run.execution]);
    assert_eq!(world.store.owned_runs(world.me, ENGINE).await.expect("owned"), [(run.execution, run.epoch + 2)]);
    assert_eq!(world.store.next_wake(ENGINE).await.expect("a time"), None);
    let loaded = world.store.load_runs(world.me, &[run.execution]).await.expect("loaded");
    let keys: Vec<&str> = loaded[0].nodes.as_ref().expect("readable").iter().map(|node| node.node.as_str()).collect();
    assert_eq!(keys, ["done", "late", "soon"], "settled first, then open");
}

#[tokio::test]
async fn of_several_wakers_at_once_one_gets_the_run() {
    let world = World::new().await;
    let run = parked(&world).await;
    for round in 0..50 {
        due(&world, run.execution).await;
        let wakers = [world.process().await, world.process().await, world.process().await, world.process().await];
        let woken = race(&world.store, 4, |racer, store| async move {
            store.wake_due(wakers[racer], ENGINE, 10).await.expect("an answer").len()
        })
        .await;
        assert_eq!(woken.iter().sum::<usize>(), 1, "round {round}: {woken:?}");
        world.run_sql("SELECT forebay_r1.park_runs(ARRAY[$1::uuid], ARRAY[60000::bigint])", &[&run.execution.0]).await;
    }
}

#[tokio::test]
async fn a_cancel_from_before_the_parking_wakes_the_run_at_once() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.accept_many(workspace, definition, 1).await;
    let run = world.run(workspace, 1).await.remove(0);
    let outcome = world.store.cancel(run.execution, workspace, "test").await.expect("an answer");
    assert_eq!(outcome, Canceled::Requested(Some(world.me)));
    park(&world, &run).await;
    assert_eq!(world.store.wake_due(world.me, ENGINE, 10).await.expect("woken"), [run.execution]);
    assert!(world.store.load_runs(world.me, &[run.execution]).await.expect("loaded")[0].canceling);
}

#[tokio::test]
async fn canceling_a_parked_run_wakes_it_at_once() {
    let world = World::new().await;
    let run = parked(&world).await;
    let outcome = world.store.cancel(run.execution, run.workspace, "test").await.expect("an answer");
    assert_eq!(outcome, Canceled::Requested(None), "nobody owns it");
    assert_eq!(world.store.wake_due(world.me, ENGINE, 10).await.expect("woken"), [run.execution]);
}

#[tokio::test]
async fn a_parked_run_past_its_deadline_is_found_and_woken() {
    let world = World::new().await;
    let run = parked(&world).await;
    let (workspace, definition) = world.tenant("PRO").await;
    let waiting = world.accept_many(workspace, definition, 1).await[0];
    assert_eq!(world.store.overdue_executions().await.expect("overdue"), []);
    world.run_sql("UPDATE workflow_execution SET deadline_at = now() - interval '1 second'", &[]).await;
    world.run_sql("UPDATE execution_queue SET deadline_at = now() - interval '1 second'", &[]).await;
    let mut found = world.store.overdue_executions().await.expect("overdue");
    found.sort();
    let mut expected = [(run.execution, execution::Status::Running), (waiting, execution::Status::Pending)];
    expected.sort();
    assert_eq!(found, expected);
    let woken = world.store.make_parked_due(&[run.execution, waiting]).await.expect("woken");
    assert_eq!(woken, 1, "only the parked one");
    assert_eq!(world.store.wake_due(world.me, ENGINE, 10).await.expect("woken"), [run.execution]);
    assert_eq!(world.store.overdue_executions().await.expect("overdue").len(), 1, "an owner ends its own runs");
    let loaded = world.store.load_runs(world.me, &[run.execution]).await.expect("loaded");
    assert_eq!(loaded[0].begun.deadline_in, Duration::ZERO);
}

#[tokio::test]
async fn a_run_of_newer_rules_is_not_woken_by_this_build() {
    let world = World::new().await;
    let run = parked(&world).await;
    due(&world, run.execution).await;
    world.run_sql("UPDATE workflow_execution SET semantics = semantics + 1", &[]).await;
    assert_eq!(world.store.wake_due(world.me, ENGINE, 10).await.expect("woken"), []);
}
