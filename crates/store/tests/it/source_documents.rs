//! Tests the "Testing" sections of the source documents line by line, as far as they concern the store. Where the
//! service differs on purpose (`design.md` §16), the test checks what the service does instead.

use std::time::Duration;

use kernel::execution::Status;
use kernel::ids::{ClaimId, DefinitionId, ExecutionId, WorkspaceId};
use kernel::queue::{StartDecision, StartOutcome, after_start};
use kernel::run::failure::{Class, Failure};
use serde_json::json;
use store::new_id;
use store::queue::enqueue::Start;
use store::run::{BeginOutcome, End, Ending};

use crate::support::{ENGINE, STALE_AFTER, UNSTEADY, World, race, start};

const BATCH: i32 = 10;

async fn pending(world: &World, count: usize) -> (WorkspaceId, DefinitionId, Vec<ExecutionId>) {
    let (workspace, definition) = world.tenant("ENTERPRISE").await;
    let accepted = world.accept_many(workspace, definition, count).await;
    (workspace, definition, accepted)
}

fn gone(execution: ExecutionId, claim: ClaimId, class: Class) -> Ending {
    let error = Some(Failure::new(class, "it is gone"));
    Ending { execution, claim: Some(claim), end: End { outcome: Status::Failed, output: None, error } }
}

// flow-queue-processing.md, happy path

#[tokio::test]
async fn claim_batch_of_10_items_when_queue_has_15_pending_and_next_cycle_claims_remaining_5() {
    let world = World::new().await;
    let (workspace, _, accepted) = pending(&world, 15).await;
    let mut seen = Vec::new();
    for expected in [10, 5, 0] {
        let claims = world.claim(workspace, BATCH).await;
        assert_eq!(claims.items.len(), expected);
        seen.extend(claims.items.iter().map(|item| item.item.execution()));
    }
    seen.sort();
    assert_eq!(seen, accepted);
}

#[tokio::test]
async fn process_all_items_with_capacity_available_and_mark_all_items_as_dispatched() {
    let world = World::new().await;
    let (workspace, _, accepted) = pending(&world, 10).await;
    let claim = ClaimId(new_id());
    let claims = world.claim_as(world.me, claim, None, workspace, BATCH).await;
    let items: Vec<_> = claims.items.iter().map(|item| item.item).collect();
    assert_eq!(world.store.mark_dispatched(&items, claim).await.expect("dispatched").len(), 10);
    for execution in accepted {
        assert_eq!(world.state(execution).await, "PENDING, DISPATCHED");
    }
}

#[tokio::test]
async fn workflows_started_with_correct_input_and_execution_entity_created_with_correct_status() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let asked = Start { input: Some(json!({ "order": 7 })), ..start(workspace, definition) };
    world.accept(std::slice::from_ref(&asked)).await;
    let before = world.store.execution(asked.execution, Some(workspace)).await.expect("it exists from the start on");
    assert_eq!((before.status, before.input), (Status::Pending, asked.input.clone()));
    world.claim(workspace, BATCH).await;
    let answers = world.store.begin(&[asked.execution], ENGINE, world.me).await.expect("begun");
    let BeginOutcome::Granted(begun) = &answers[0].1 else { panic!("{answers:?}") };
    assert_eq!((Some(&begun.input), begun.workspace, begun.definition), (asked.input.as_ref(), workspace, definition));
    assert_eq!(world.state(asked.execution).await, "RUNNING, DISPATCHED");
}

// flow-queue-processing.md, edge cases; dispatcher.md, unit tests

#[tokio::test]
async fn empty_queue_claim_returns_0_items_early_return() {
    let world = World::new().await;
    let (workspace, _) = world.tenant("PRO").await;
    let claims = world.claim(workspace, BATCH).await;
    assert_eq!((claims.items.len(), claims.workspaces[0].more), (0, false));
    assert_eq!(world.store.sweep(&[workspace.shard()]).await.expect("a sweep"), [], "so the sweep does not find it");
}

#[tokio::test]
async fn workspace_at_capacity_items_stay_pending_and_no_attempt_is_burnt() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("FREE").await;
    let accepted = world.accept_many(workspace, definition, 3).await;
    world.claim(workspace, BATCH).await;
    for _ in 0..10 {
        let claims = world.claim(workspace, BATCH).await;
        assert!(claims.items.is_empty() && claims.workspaces[0].is_full_with_items_waiting());
    }
    for execution in &accepted[1..] {
        assert_eq!(world.state(*execution).await, "PENDING, PENDING");
    }
    assert_eq!(
        world.count("execution_queue WHERE attempt_count > 0 OR claimed_at IS NOT NULL").await,
        1,
        "the running one"
    );
    assert_eq!(world.count("execution_queue WHERE attempt_count > 0").await, 0);
    world.finish(accepted[0], Status::Completed).await;
    assert_eq!(world.claim(workspace, BATCH).await.items[0].item.execution(), accepted[1], "the next item starts");
}

#[tokio::test]
async fn a_full_workspace_at_the_head_of_the_queue_starves_nobody() {
    let world = World::new().await;
    let full = world.workspace_weighing("FREE", 1, Some(3)).await;
    let other = world.workspace_weighing("FREE", 1, Some(3)).await;
    for workspace in [full, other] {
        let definition = world.definition(workspace, crate::support::Limits::default()).await;
        world.accept_many(workspace, definition, 20).await;
    }
    world.claim(full, BATCH).await;
    assert_eq!(world.store.sweep(&[3]).await.expect("a sweep"), [(other, 1)]);
    assert_eq!(world.claim(other, BATCH).await.items.len(), 1);
}

#[tokio::test]
async fn queue_item_with_execution_id_set_reuses_existing_execution() {
    let world = World::new().await;
    let (workspace, _, accepted) = pending(&world, 1).await;
    let engine_id = accepted[0].engine_id();
    for _ in 0..3 {
        let (item, claim) = world.claim_one(world.me, workspace).await;
        assert_eq!((item.execution(), item.execution().engine_id()), (accepted[0], engine_id.clone()));
        world.store.requeue_refused(item, claim, "refused", Duration::ZERO).await.expect("requeued");
        world.store.promote().await.expect("promoted");
    }
    assert_eq!(world.count("workflow_execution").await, 1, "one execution, whatever happened to its starts");
}

#[tokio::test]
async fn workspace_deleted_during_processing_marks_item_failed() {
    let world = World::new().await;
    let (workspace, _, accepted) = pending(&world, 2).await;
    let (_, claim) = world.claim_one(world.me, workspace).await;
    world.run_sql("UPDATE workspace SET deleted_at = now() WHERE id = $1", &[&workspace.0]).await;
    let claimed = [gone(accepted[0], claim, Class::WorkspaceGone)];
    assert!(world.store.complete(&claimed, None, "test").await.expect("an ending")[0].applied);
    let waiting = world.store.items_of_deleted(workspace.shard()).await.expect("items of deleted workspaces");
    assert_eq!(waiting.len(), 1, "a queued item is found too");
    assert_eq!((waiting[0].item, waiting[0].workspace_gone), (accepted[1].queue_item(), true));
    let mut ending = gone(accepted[1], claim, Class::WorkspaceGone);
    ending.claim = None;
    assert!(world.store.complete(&[ending], Some(Status::Pending), "test").await.expect("an ending")[0].applied);
    for execution in accepted {
        assert_eq!(world.state(execution).await, "FAILED, FAILED");
    }
    assert_eq!(world.count("activity WHERE action = 'queue_item.fail'").await, 2);
}

#[tokio::test]
async fn workflow_definition_deleted_during_processing_marks_item_failed() {
    let world = World::new().await;
    let (workspace, definition, accepted) = pending(&world, 1).await;
    world.run_sql("UPDATE workflow_definition SET deleted_at = now() WHERE id = $1", &[&definition.0]).await;
    let claim = ClaimId(new_id());
    let claims = world.claim_as(world.me, claim, Some(ENGINE), workspace, BATCH).await;
    assert!(claims.items[0].definition_deleted);
    let ending = gone(accepted[0], claim, Class::DefinitionGone);
    assert!(world.store.complete(&[ending], None, "test").await.expect("an ending")[0].applied);
    assert_eq!(world.state(accepted[0]).await, "FAILED, FAILED");
    let error = world.store.execution(accepted[0], None).await.expect("an execution").error.expect("an error");
    assert_eq!(error["type"], "DEFINITION_GONE");
}

// flow-queue-processing.md, failure injection; queue-processor.md, unit tests

#[tokio::test]
async fn engine_down_items_keep_claim_and_slot_and_no_attempt_is_burnt() {
    let world = World::new().await;
    let (workspace, _, accepted) = pending(&world, 1).await;
    let (item, claim) = world.claim_one(world.me, workspace).await;
    let decision = after_start(StartOutcome::Unavailable("down".to_owned()), 0, 3, false);
    assert!(matches!(decision, StartDecision::Hold { .. }));
    assert_eq!(world.state(accepted[0]).await, "PENDING, CLAIMED");
    assert_eq!(world.store.mark_dispatched(&[item], claim).await.expect("later"), [item]);
    assert_eq!(world.count("execution_queue WHERE attempt_count > 0").await, 0);
}

#[tokio::test]
async fn start_failure_keeps_the_execution_and_triggers_retry() {
    let world = World::new().await;
    let (workspace, _, accepted) = pending(&world, 1).await;
    let (item, claim) = world.claim_one(world.me, workspace).await;
    let StartDecision::Requeue { reason, backoff } = after_start(StartOutcome::Refused("bad".to_owned()), 0, 3, false)
    else {
        panic!("not requeued");
    };
    assert_eq!(world.store.requeue_refused(item, claim, &reason, backoff).await.expect("requeued"), 1);
    assert_eq!(world.state(accepted[0]).await, "PENDING, PENDING");
    assert_eq!(world.claim(workspace, BATCH).await.items.len(), 0, "it backs off");
    world.run_sql("UPDATE execution_queue SET available_at = now()", &[]).await;
    world.store.promote().await.expect("promoted");
    let again = world.claim(workspace, BATCH).await;
    assert_eq!((again.items[0].item, again.items[0].attempts), (item, 1), "the same execution again");
}

#[tokio::test]
async fn max_attempts_reached_marks_item_as_failed() {
    let world = World::new().await;
    let (workspace, _, accepted) = pending(&world, 1).await;
    let mut result = Vec::new();
    for _ in 0..3 {
        let claim = ClaimId(new_id());
        let claims = world.claim_as(world.me, claim, None, workspace, 1).await;
        let item = &claims.items[0];
        match after_start(StartOutcome::Refused("too large".to_owned()), item.attempts, 3, item.in_doubt) {
            StartDecision::Requeue { reason, .. } => {
                result.push("requeued");
                world.store.requeue_refused(item.item, claim, &reason, Duration::ZERO).await.expect("requeued");
                world.store.promote().await.expect("promoted");
            }
            StartDecision::GiveUp { reason } => {
                result.push("given up");
                let error = Some(Failure::new(Class::DispatchRefused, reason));
                let end = End { outcome: Status::Failed, output: None, error };
                let ending = Ending { execution: accepted[0], claim: Some(claim), end };
                world.store.complete(&[ending], Some(Status::Pending), "test").await.expect("an ending");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(result, ["requeued", "requeued", "given up"]);
    assert_eq!(world.state(accepted[0]).await, "FAILED, FAILED");
    let dead_letter =
        world.store.queue_item(accepted[0].queue_item()).await.expect("an answer").expect("the dead letter");
    assert_eq!(dead_letter.facts.last_error.as_deref(), Some("too large"));
}

#[tokio::test]
async fn execution_missing_on_retry_performs_nothing() {
    let world = World::new().await;
    let (workspace, _, accepted) = pending(&world, 1).await;
    world.claim(workspace, BATCH).await;
    world.run_sql("DELETE FROM workflow_execution", &[]).await;
    let answers = world.store.begin(&accepted, ENGINE, world.me).await.expect("an answer");
    assert!(matches!(answers[0].1, BeginOutcome::Missing), "it is never created again under another id");
    assert_eq!(world.count("workflow_execution").await, 0);
}

#[tokio::test]
async fn database_connection_lost_during_claim_leaves_nothing_half_claimed_and_the_next_cycle_claims() {
    let world = World::new().await;
    let (workspace, _, _) = pending(&world, 5).await;
    let mut lost = world.database.client().await;
    let transaction = lost.transaction().await.expect("begin");
    let sql = "SELECT 1 FROM forebay_r1.claim(ARRAY[$1::uuid], ARRAY[10], $2, $2, NULL, 1, 1)";
    let rows = transaction.query(sql, &[&workspace.0, &new_id()]).await.expect("a claim");
    assert_eq!(rows.len(), 6);
    drop(transaction);
    drop(lost);
    assert_eq!(world.claim(workspace, BATCH).await.items.len(), 5);
}

#[tokio::test]
async fn dispatcher_crash_while_items_in_claimed_state_is_recovered_by_takeover_with_the_slot_kept() {
    let world = World::new().await;
    let (workspace, _, accepted) = pending(&world, 3).await;
    let crashed = world.process().await;
    world.claim_as(crashed, ClaimId(new_id()), None, workspace, 3).await;
    let sql = "UPDATE execution_queue SET claimed_at = claimed_at - interval '6 minutes'";
    world.run_sql(sql, &[]).await;
    let claim = ClaimId(new_id());
    let taken =
        world.store.take_over_items(&[workspace.shard()], UNSTEADY, STALE_AFTER, claim, world.me).await.expect("taken");
    assert_eq!(taken.len(), 3, "five minutes are the bound, even if the claimer lives");
    assert_eq!(world.stages(workspace).await, "slot 3", "not released to PENDING: the start may have happened");
    let items: Vec<_> = taken.iter().map(|item| item.item).collect();
    assert_eq!(world.store.mark_dispatched(&items, claim).await.expect("dispatched").len(), 3);
    assert_eq!(world.count("execution_queue WHERE attempt_count > 0").await, 0);
    assert_eq!(accepted.len(), 3);
}

#[tokio::test]
async fn start_succeeded_but_mark_dispatched_failed_is_no_second_run() {
    let world = World::new().await;
    let (workspace, _, accepted) = pending(&world, 1).await;
    let (crashed, successor) = (world.process().await, world.process().await);
    world.claim_one(crashed, workspace).await;
    let first = world.store.begin(&accepted, ENGINE, crashed).await.expect("an answer");
    assert!(matches!(first[0].1, BeginOutcome::Granted(_)));
    world.store.end_process(crashed).await.expect("it ends");
    let claim = ClaimId(new_id());
    let taken = world
        .store
        .take_over_items(&[workspace.shard()], UNSTEADY, STALE_AFTER, claim, successor)
        .await
        .expect("taken");
    assert!(taken.is_empty(), "begin marked it dispatched in its own commit");
    let second = world.store.begin(&accepted, ENGINE, successor).await.expect("an answer");
    assert!(matches!(second[0].1, BeginOutcome::Ended), "another run owns it");
}

#[tokio::test]
async fn rollback_of_one_items_processing_leaves_the_rest_of_the_batch() {
    let world = World::new().await;
    let (workspace, _, accepted) = pending(&world, 10).await;
    let claim = ClaimId(new_id());
    let items = world.claim_as(world.me, claim, None, workspace, BATCH).await.items;
    world.store.requeue_refused(items[4].item, claim, "refused", Duration::from_secs(60)).await.expect("requeued");
    world
        .store
        .requeue_refused(items[4].item, claim, "refused", Duration::ZERO)
        .await
        .expect_err("the claim no longer holds it");
    let all: Vec<_> = items.iter().map(|item| item.item).collect();
    assert_eq!(world.store.mark_dispatched(&all, claim).await.expect("dispatched").len(), 9);
    assert_eq!(world.stages(workspace).await, "delayed 1, slot 9");
    assert_eq!(accepted.len(), 10);
}

// queue-processor.md, integration tests

#[tokio::test]
async fn skip_locked_prevents_multiple_instances_claiming_same_item() {
    let world = World::new().await;
    let (workspace, _, accepted) = pending(&world, 20).await;
    let me = world.me;
    let taken = race(&world.store, 6, |_, store| async move {
        let asks = [kernel::queue::round_robin::Quota { workspace, limit: BATCH }];
        let claims = store.claim(&asks, ClaimId(new_id()), me, None).await.expect("a claim");
        claims.items.into_iter().map(|item| item.item.execution()).collect::<Vec<_>>()
    })
    .await;
    let mut all = taken.concat();
    all.sort();
    assert_eq!(all, accepted, "each once");
}
