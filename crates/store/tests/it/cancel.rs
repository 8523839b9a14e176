//! Canceling an execution takes effect immediately before the start, is a request while it runs, and is refused after
//! its end.

use std::time::Duration;

use kernel::execution::Status;
use kernel::ids::{ClaimId, ExecutionId};
use kernel::queue::round_robin::Quota;
use store::execution::Canceled;
use store::queue::enqueue::Start;
use store::run::EndResult;
use store::{Error, new_id};

use crate::support::{ENGINE, Limits, World, keyed, race, start};

#[tokio::test]
async fn an_execution_that_has_not_begun_is_canceled_at_once_at_any_stage() {
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
        let outcome = world.store.cancel(execution, workspace, "test").await.expect("an answer");
        let freed = execution == claimed;
        assert_eq!(
            outcome,
            Canceled::AtOnce(EndResult { execution, applied: true, had_queue_item: true, workspace, freed })
        );
        assert_eq!(world.state(execution).await, "CANCELED, no item");
        let again = world.store.cancel(execution, workspace, "test").await.expect("an answer");
        assert_eq!(again, Canceled::AlreadyEnded);
    }
    assert_eq!(world.count("activity WHERE action = 'execution.cancel' AND actor = 'test'").await, 5);
}

#[tokio::test]
async fn a_start_after_the_cancel_finds_the_execution_ended() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let execution = world.accept_many(workspace, definition, 1).await[0];
    let (item, claim) = world.claim_one(world.me, workspace).await;
    world.store.cancel(execution, workspace, "test").await.expect("an answer");
    let answers = world.store.begin(&[execution], ENGINE, world.me).await.expect("an answer");
    assert!(matches!(answers[0].1, store::run::BeginOutcome::Ended), "{answers:?}");
    assert_eq!(world.store.mark_dispatched(&[item], claim).await.expect("an answer"), []);
    assert_eq!(world.store.requeue_unsent(&[item], claim, Duration::ZERO).await.expect("an answer"), []);
    assert_eq!(world.state(execution).await, "CANCELED, no item");
}

#[tokio::test]
async fn canceling_a_running_execution_notifies_its_owner() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.accept_many(workspace, definition, 1).await;
    let run = world.run(workspace, 1).await.remove(0);
    for _ in 0..2 {
        let outcome = world.store.cancel(run.execution, workspace, "test").await.expect("an answer");
        assert_eq!(outcome, Canceled::Requested(Some(world.me)), "repeatable");
    }
    assert_eq!(world.state(run.execution).await, "RUNNING, DISPATCHED", "the slot stays taken");
    let stored = world.store.execution(run.execution, None).await.expect("an execution");
    assert!(stored.cancel_requested_at.is_some());
    assert_eq!(world.count("run_request WHERE ends AND wake_at <= clock_timestamp()").await, 1);
    let lease = Duration::from_secs(3);
    let report = store::process::HeartbeatReport { dispatches: false, has_room: false, waiting: 0 };
    let reply = store::process::heartbeat(&world.client, world.me, report, lease, lease).await.expect("a heartbeat");
    assert_eq!(reply.cancel, [run.execution]);
    world.finish(run.execution, Status::Canceled).await;
    let outcome = world.store.cancel(run.execution, workspace, "test").await.expect("an answer");
    assert_eq!(outcome, Canceled::AlreadyEnded);
}

#[tokio::test]
async fn another_workspaces_execution_cannot_be_canceled_and_is_not_found() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let (stranger, _) = world.tenant("PRO").await;
    let accepted = world.accept_many(workspace, definition, 2).await;
    world.run(workspace, 1).await;
    for execution in [accepted[0], accepted[1], ExecutionId(new_id())] {
        let outcome = world.store.cancel(execution, stranger, "test").await;
        assert!(matches!(outcome, Err(Error::NotFound)), "{outcome:?}");
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
async fn a_cancel_that_races_a_claim_leaves_one_end_no_queue_item_and_no_slot() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("FREE").await;
    let me = world.me;
    let (mut at_once, mut requested) = (0, 0);
    for round in 0..200 {
        let execution = world.accept_many(workspace, definition, 1).await[0];
        let engine = (round % 2 == 0).then_some(ENGINE);
        let outcome = race(&world.store, 2, |racer, store| async move {
            if racer == 0 {
                return Some(store.cancel(execution, workspace, "test").await.expect("an answer"));
            }
            let asks = [Quota { workspace, limit: 1 }];
            store.claim(&asks, ClaimId(new_id()), me, engine).await.expect("a claim");
            None
        })
        .await;
        match outcome[0] {
            Some(Canceled::AtOnce(_)) => at_once += 1,
            Some(Canceled::Requested(owner)) => {
                requested += 1;
                assert_eq!(owner, Some(me));
                assert_eq!(world.state(execution).await, "RUNNING, DISPATCHED");
                world.finish(execution, Status::Canceled).await;
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(world.state(execution).await, "CANCELED, no item", "round {round}");
        assert_eq!(world.stages(workspace).await, "nothing");
    }
    assert!(at_once > 0, "the race was never won by the cancel ({requested} by the claim)");
}
