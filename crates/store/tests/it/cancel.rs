//! Canceling: at once before the start, by request after it, never after the end.

use std::time::Duration;

use kernel::execution::Status;
use kernel::ids::{ClaimId, ExecutionId};
use kernel::queue::ring::Ask;
use store::execution::Canceled;
use store::queue::enqueue::Start;
use store::run::Ended;
use store::{Error, new_id};

use crate::support::{ENGINE, Limits, World, keyed, race, start};

#[tokio::test]
async fn what_has_not_begun_is_over_at_once_wherever_its_item_is() {
    let world = World::new().await;
    let workspace = world.workspace("ENTERPRISE").await;
    let free = world.definition(workspace, Limits::default()).await;
    let closed = world.definition(workspace, Limits { concurrency: Some(0), ..Limits::default() }).await;
    let no_keys = world.definition(workspace, Limits { key_concurrency: Some(0), ..Limits::default() }).await;
    let run_at = Some(jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1));
    let claimed = world.accept_many(workspace, free, 1).await[0];
    world.claim(workspace, 1).await;
    let waiting = world
        .accept(&[
            start(workspace, free),
            Start { run_at, ..start(workspace, free) },
            keyed(workspace, no_keys, "k"),
            start(workspace, closed),
        ])
        .await;
    assert_eq!(world.stages(workspace).await, "ready 1, delayed 1, key 1, definition 1, slot 1");
    for execution in waiting.into_iter().chain([claimed]) {
        let told = world.store.cancel(execution, workspace, "test").await.expect("an answer");
        let freed = execution == claimed;
        assert_eq!(told, Canceled::AtOnce(Ended { execution, applied: true, ticket: true, workspace, freed }));
        assert_eq!(world.state(execution).await, "CANCELED, no ticket");
        let again = world.store.cancel(execution, workspace, "test").await.expect("an answer");
        assert_eq!(again, Canceled::AlreadyEnded);
    }
    assert_eq!(world.count("activity WHERE action = 'execution.cancel' AND actor = 'test'").await, 5);
}

#[tokio::test]
async fn a_start_that_comes_after_the_cancel_is_told_that_it_is_over() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let execution = world.accept_many(workspace, definition, 1).await[0];
    let (item, claim) = world.claim_one(world.me, workspace).await;
    world.store.cancel(execution, workspace, "test").await.expect("an answer");
    let answers = world.store.begin(&[execution], ENGINE, world.me).await.expect("an answer");
    assert!(matches!(answers[0].1, store::run::BeginAnswer::Ended), "{answers:?}");
    assert_eq!(world.store.dispatched(&[item], claim).await.expect("an answer"), []);
    assert_eq!(world.store.give_back(&[item], claim, Duration::ZERO).await.expect("an answer"), []);
    assert_eq!(world.state(execution).await, "CANCELED, no ticket");
}

#[tokio::test]
async fn what_runs_is_asked_to_end_and_its_owner_hears_of_it() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.accept_many(workspace, definition, 1).await;
    let run = world.run(workspace, 1).await.remove(0);
    for _ in 0..2 {
        let told = world.store.cancel(run.execution, workspace, "test").await.expect("an answer");
        assert_eq!(told, Canceled::Requested(Some(world.me)), "repeatable");
    }
    assert_eq!(world.state(run.execution).await, "RUNNING, DISPATCHED", "the slot stays taken");
    let stored = world.store.execution(run.execution, None).await.expect("an execution");
    assert!(stored.cancel_requested_at.is_some());
    assert_eq!(world.count("workflow_execution WHERE wake_at <= clock_timestamp()").await, 1);
    let lease = Duration::from_secs(3);
    let standing = store::process::Standing { dispatches: false, has_room: false, waiting: 0 };
    let news = store::process::beat(&world.client, world.me, standing, lease, lease).await.expect("a beat");
    assert_eq!(news.cancel, [run.execution]);
    world.finish(run.execution, Status::Canceled).await;
    let told = world.store.cancel(run.execution, workspace, "test").await.expect("an answer");
    assert_eq!(told, Canceled::AlreadyEnded);
}

#[tokio::test]
async fn another_workspaces_execution_cannot_be_canceled_and_is_not_found() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let (stranger, _) = world.tenant("PRO").await;
    let accepted = world.accept_many(workspace, definition, 2).await;
    world.run(workspace, 1).await;
    for execution in [accepted[0], accepted[1], ExecutionId(new_id())] {
        let told = world.store.cancel(execution, stranger, "test").await;
        assert!(matches!(told, Err(Error::NotFound)), "{told:?}");
    }
    assert_eq!(world.state(accepted[0]).await, "RUNNING, DISPATCHED");
    assert_eq!(world.state(accepted[1]).await, "PENDING, PENDING");
    assert_eq!(world.count("activity WHERE action = 'execution.cancel'").await, 0);
    assert_eq!(world.count("workflow_execution WHERE cancel_requested_at IS NOT NULL").await, 0);
}

#[tokio::test]
async fn a_cancel_and_its_audit_row_are_one_commit() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let accepted = world.accept_many(workspace, definition, 2).await;
    world.run(workspace, 1).await;
    let refuse = "ALTER TABLE activity ADD CHECK (action <> 'execution.cancel')";
    world.client.batch_execute(refuse).await.expect("a check");
    for execution in &accepted {
        world.store.cancel(*execution, workspace, "test").await.expect_err("its audit row is refused");
    }
    assert_eq!(world.state(accepted[0]).await, "RUNNING, DISPATCHED");
    assert_eq!(world.state(accepted[1]).await, "PENDING, PENDING");
    assert_eq!(world.count("workflow_execution WHERE cancel_requested_at IS NOT NULL").await, 0);
}

#[tokio::test]
async fn a_cancel_that_races_a_claim_leaves_one_end_no_ticket_and_no_slot() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("FREE").await;
    let me = world.me;
    let (mut at_once, mut requested) = (0, 0);
    for round in 0..200 {
        let execution = world.accept_many(workspace, definition, 1).await[0];
        let engine = (round % 2 == 0).then_some(ENGINE);
        let told = race(&world.store, 2, |racer, store| async move {
            if racer == 0 {
                return Some(store.cancel(execution, workspace, "test").await.expect("an answer"));
            }
            let asks = [Ask { workspace, want: 1 }];
            store.claim(&asks, ClaimId(new_id()), me, engine).await.expect("a claim");
            None
        })
        .await;
        match told[0] {
            Some(Canceled::AtOnce(_)) => at_once += 1,
            Some(Canceled::Requested(owner)) => {
                requested += 1;
                assert_eq!(owner, Some(me));
                assert_eq!(world.state(execution).await, "RUNNING, DISPATCHED");
                world.finish(execution, Status::Canceled).await;
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(world.state(execution).await, "CANCELED, no ticket", "round {round}");
        assert_eq!(world.stages(workspace).await, "nothing");
    }
    assert!(at_once > 0, "the race was never won by the cancel ({requested} by the claim)");
}
