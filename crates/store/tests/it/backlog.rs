//! The backlog limit: start requests above the limit are refused and never stored. The check does not count the rows of
//! the backlog.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kernel::execution::Status;
use kernel::ids::WorkspaceId;
use store::queue::enqueue::{EnqueueOutcome, Start};
use store::workspace::WorkspaceChange;

use crate::support::{Limits, World, keyed, race, start};

async fn bound(world: &World, workspace: WorkspaceId, limit: Option<i32>) {
    let change = WorkspaceChange { max_backlog: Some(limit), ..WorkspaceChange::default() };
    world.store.change_workspace(workspace, &change, "test").await.expect("changed");
}

/// Makes the stored count old.
async fn later(world: &World) {
    world.run_sql("UPDATE backlog SET counted_at = counted_at - interval '1 hour'", &[]).await;
}

async fn offer(world: &World, starts: &[Start]) -> usize {
    let outcome = world.store.enqueue(starts, "test").await.expect("answers");
    assert!(
        outcome.iter().all(|outcome| matches!(outcome, EnqueueOutcome::New { .. } | EnqueueOutcome::BacklogFull)),
        "{outcome:?}"
    );
    outcome.iter().filter(|outcome| matches!(outcome, EnqueueOutcome::New { .. })).count()
}

#[tokio::test]
async fn starts_over_the_limit_are_refused_and_not_stored() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("FREE").await;
    bound(&world, workspace, Some(3)).await;
    let starts: Vec<Start> = (0..5).map(|_| start(workspace, definition)).collect();
    let outcome = world.store.enqueue(&starts, "test").await.expect("answers");
    assert_eq!(
        outcome.iter().filter(|outcome| matches!(outcome, EnqueueOutcome::New { .. })).count(),
        3,
        "the first of the batch"
    );
    assert_eq!(outcome[3..], [EnqueueOutcome::BacklogFull, EnqueueOutcome::BacklogFull]);
    assert_eq!(offer(&world, &[start(workspace, definition)]).await, 0);
    for table in ["workflow_execution", "execution_queue", "audit WHERE action = 'execution.start'"] {
        assert_eq!(world.count(table).await, 3, "{table}");
    }
    let outcome = world.client.query_one("SELECT forebay.enqueue($1, $2)", &[&workspace.0, &definition.0]).await;
    let error = outcome.expect_err("it is full");
    assert_eq!(error.code().map(|code| code.code()), Some("53400"), "{error:?}");
}

#[tokio::test]
async fn room_comes_back_when_items_start_end_or_the_limit_rises() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    bound(&world, workspace, Some(2)).await;
    let one = || start(workspace, definition);
    assert_eq!(offer(&world, &[one(), one(), one()]).await, 2);
    world.run(workspace, 1).await;
    later(&world).await;
    assert_eq!(offer(&world, &[one(), one()]).await, 1, "running executions are not in the backlog");
    bound(&world, workspace, Some(4)).await;
    assert_eq!(offer(&world, &[one(), one(), one()]).await, 2, "a new limit applies immediately");
    bound(&world, workspace, None).await;
    assert_eq!(offer(&world, &[one(), one(), one()]).await, 3);
    bound(&world, workspace, Some(0)).await;
    assert_eq!(offer(&world, &[one()]).await, 0, "starts without a limit are counted too");
}

#[tokio::test]
async fn every_stage_counts_and_a_repeated_request_is_answered_even_at_the_limit() {
    let world = World::new().await;
    let workspace = world.workspace("FREE").await;
    let free = world.definition(workspace, Limits::default()).await;
    let closed =
        world.definition(workspace, Limits { concurrency: Some(0), key_concurrency: Some(0), timeout_ms: None }).await;
    let run_at = Some(Timestamp::now() + SignedDuration::from_hours(1));
    let idempotency = Some(("k".to_owned(), vec![1]));
    let first = Start { idempotency: idempotency.clone(), ..start(workspace, free) };
    let starts = [
        first.clone(),
        Start { run_at, ..start(workspace, free) },
        keyed(workspace, closed, "k"),
        start(workspace, closed),
    ];
    world.accept(&starts).await;
    assert_eq!(world.stages(workspace).await, "ready 1, delayed 1, key 1, definition 1");
    bound(&world, workspace, Some(4)).await;
    assert_eq!(offer(&world, &[start(workspace, free)]).await, 0);
    let again = Start { idempotency, ..start(workspace, free) };
    let outcome = world.store.enqueue(&[again], "test").await.expect("an answer");
    assert_eq!(outcome, [EnqueueOutcome::Existing { execution: first.execution }]);
    world.finish(first.execution, Status::Failed).await;
    later(&world).await;
    assert_eq!(offer(&world, &[start(workspace, free)]).await, 1, "a dead letter is not in the backlog");
}

#[tokio::test]
async fn the_services_limit_applies_where_a_workspace_has_none() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("FREE").await;
    let (bounded, theirs) = world.tenant("FREE").await;
    bound(&world, bounded, Some(3)).await;
    let starts = [start(workspace, definition), start(bounded, theirs), start(workspace, definition)];
    let outcome = world.store.enqueue_within(&starts, Some(1), "test").await.expect("answers");
    assert!(
        matches!(outcome[..], [EnqueueOutcome::New { .. }, EnqueueOutcome::New { .. }, EnqueueOutcome::BacklogFull]),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn concurrent_starts_exceed_the_limit_by_at_most_their_own_number() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("FREE").await;
    bound(&world, workspace, Some(100)).await;
    race(&world.store, 16, |_, store| async move {
        for _ in 0..20 {
            store.enqueue(&[start(workspace, definition)], "test").await.expect("an answer");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    let waiting = world.count("execution_queue").await;
    assert!((100..116).contains(&waiting), "{waiting} wait");
}

#[tokio::test]
async fn a_large_limit_is_kept_to_a_thousandth_without_a_count_each_time() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("FREE").await;
    bound(&world, workspace, Some(5_000)).await;
    let mut counts = 0;
    let mut accepted = 0;
    let counted = "SELECT xmin::text || ctid::text FROM backlog WHERE workspace_id = $1";
    let mut known: String = world.get(counted, &[&workspace.0]).await;
    for _ in 0..130 {
        let starts: Vec<Start> = (0..40).map(|_| start(workspace, definition)).collect();
        accepted += offer(&world, &starts).await;
        let now: String = world.get(counted, &[&workspace.0]).await;
        counts += usize::from(now != known);
        known = now;
    }
    assert!((5_000..=5_005).contains(&accepted), "{accepted} accepted");
    assert!(counts < 30, "counted {counts} times in 130 calls");
}

#[tokio::test]
async fn a_workspace_without_a_limit_has_the_backlog_limit_of_its_tier() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("FREE").await;
    world.run_sql("UPDATE tier SET max_backlog = 2 WHERE name = 'FREE'", &[]).await;
    let one = || start(workspace, definition);
    assert_eq!(offer(&world, &[one(), one(), one()]).await, 2);
    let sql = "SELECT forebay.enqueue($1, $2)";
    world
        .client
        .query_one(sql, &[&workspace.0, &definition.0])
        .await
        .expect("forebay.enqueue ignores the tier's limit");
    later(&world).await;
    let outcome = world.store.enqueue_within(&[one()], Some(4), "test").await.expect("answers");
    assert!(
        matches!(outcome[..], [EnqueueOutcome::New { .. }]),
        "the setting takes precedence over the tier: {outcome:?}"
    );
    bound(&world, workspace, Some(100)).await;
    assert_eq!(offer(&world, &[one()]).await, 1, "and the workspace's own limit over both");
    let (other, definition) = world.tenant("PRO").await;
    assert_eq!(offer(&world, &[start(other, definition)]).await, 1);
}
