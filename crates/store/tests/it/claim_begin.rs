//! A run begins in the commit of the claim if the claiming process also runs the execution, and separately otherwise.

use std::time::Duration;

use kernel::execution::Status;
use kernel::ids::{ClaimId, ExecutionId, ProcessId, WorkspaceId};
use serde_json::{Value, json};
use store::new_id;
use store::queue::enqueue::Start;
use store::run::BeginOutcome;

use crate::support::{ENGINE, Limits, World, race, start};

async fn begin(world: &World, execution: ExecutionId, process: ProcessId) -> &'static str {
    let answers = world.store.begin(&[execution], ENGINE, process).await.expect("an answer");
    assert_eq!(answers[0].0, execution);
    match answers[0].1 {
        BeginOutcome::Granted(_) => "granted",
        BeginOutcome::Ended => "ended",
        BeginOutcome::NotYet => "not yet",
        BeginOutcome::Missing => "gone",
    }
}

async fn one(world: &World) -> (WorkspaceId, ExecutionId) {
    let (workspace, definition) = world.tenant("PRO").await;
    (workspace, world.accept_many(workspace, definition, 1).await[0])
}

#[tokio::test]
async fn a_runner_claims_begins_and_dispatches_in_one_commit() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    let definition = world.definition(workspace, Limits { timeout_ms: Some(60_000), ..Limits::default() }).await;
    let asked = Start { input: Some(json!({ "a": 1 })), ..start(workspace, definition) };
    world.accept(std::slice::from_ref(&asked)).await;
    let begun = world.run(workspace, 1).await.remove(0);
    assert_eq!(begun.execution, asked.execution);
    assert_eq!((begun.epoch, &begun.input, &begun.trigger), (1, &json!({ "a": 1 }), &asked.trigger));
    assert_eq!((begun.workspace, begun.definition), (workspace, definition));
    let stored = world.store.execution(asked.execution, None).await.expect("an execution");
    assert_eq!((stored.status, stored.engine.as_deref()), (Status::Running, Some(ENGINE)));
    assert_eq!((stored.version, stored.created_at), (begun.version, begun.created_at));
    assert_eq!(world.state(asked.execution).await, "RUNNING, DISPATCHED");
    assert_eq!(world.store.owned_runs(world.me, ENGINE).await.expect("owned"), [(asked.execution, 1)]);
    let (short, long) = (Duration::from_secs(55), Duration::from_secs(60));
    assert!((short..=long).contains(&begun.deadline_in), "{:?}", begun.deadline_in);
}

#[tokio::test]
async fn a_timeout_shortens_the_deadline_and_never_moves_it_out() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    let year = 365 * 86_400_000;
    let definition = world.definition(workspace, Limits { timeout_ms: Some(year), ..Limits::default() }).await;
    world.accept_many(workspace, definition, 1).await;
    let begun = world.run(workspace, 1).await.remove(0);
    let days = begun.deadline_in.as_secs_f64() / 86_400.0;
    assert!((29.9..=30.0).contains(&days), "{days}");
}

#[tokio::test]
async fn an_execution_of_newer_rules_is_claimed_and_not_begun() {
    let world = World::new().await;
    let (workspace, newer) = one(&world).await;
    world.run_sql("UPDATE workflow_execution SET semantics = semantics + 1 WHERE id = $1", &[&newer.0]).await;
    for engine in [Some(ENGINE), None] {
        let claim = ClaimId(new_id());
        let claims = world.claim_as(world.me, claim, engine, workspace, 1).await;
        let item = &claims.items[0];
        assert!(item.newer && item.begun.is_none() && !item.definition_deleted, "{item:?}");
        assert_eq!(world.state(newer).await, "PENDING, CLAIMED");
        assert_eq!(begin(&world, newer, world.me).await, "not yet", "nor can it begin separately");
        let back = world.store.requeue_unsent(&[item.item], claim, Duration::ZERO).await.expect("given back");
        assert_eq!(back, [item.item]);
    }
    assert_eq!(world.state(newer).await, "PENDING, PENDING");
}

#[tokio::test]
async fn an_item_whose_execution_is_locked_stays_claimed_and_begins_separately() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let accepted = world.accept_many(workspace, definition, 2).await;
    let mut other = world.database.client().await;
    let transaction = other.transaction().await.expect("begin");
    let lock = "SELECT 1 FROM workflow_execution WHERE id = $1 FOR UPDATE";
    transaction.execute(lock, &[&accepted[0].0]).await.expect("a lock");
    let claims = world.claim_as(world.me, ClaimId(new_id()), Some(ENGINE), workspace, 5).await;
    let mut begun: Vec<_> = claims.items.iter().map(|item| (item.item.execution(), item.begun.is_some())).collect();
    begun.sort();
    assert_eq!(begun, [(accepted[0], false), (accepted[1], true)], "and the claim does not wait for it");
    transaction.rollback().await.expect("rollback");
    assert_eq!(world.state(accepted[0]).await, "PENDING, CLAIMED");
    assert_eq!(begin(&world, accepted[0], world.me).await, "granted");
    assert_eq!(world.state(accepted[0]).await, "RUNNING, DISPATCHED");
}

#[tokio::test]
async fn begin_is_granted_once_and_repeated_only_for_the_same_process() {
    let world = World::new().await;
    let (workspace, execution) = one(&world).await;
    let stranger = world.process().await;
    assert_eq!(begin(&world, execution, world.me).await, "not yet", "it holds no slot");
    assert_eq!(world.state(execution).await, "PENDING, PENDING");
    world.claim(workspace, 1).await;
    assert_eq!(begin(&world, execution, world.me).await, "granted");
    assert_eq!(begin(&world, execution, world.me).await, "granted", "a repeated call");
    assert_eq!(
        world.store.owned_runs(world.me, ENGINE).await.expect("owned"),
        [(execution, 1)],
        "under the same epoch"
    );
    assert_eq!(begin(&world, execution, stranger).await, "ended", "another process owns it");
    world.finish(execution, Status::Completed).await;
    assert_eq!(begin(&world, execution, world.me).await, "ended", "the execution has ended");
    assert_eq!(begin(&world, ExecutionId(new_id()), world.me).await, "gone");
}

#[tokio::test]
async fn a_start_under_a_claim_that_was_taken_over_may_still_begin() {
    let world = World::new().await;
    let (workspace, execution) = one(&world).await;
    let (first, second) = (world.process().await, world.process().await);
    world.claim_one(first, workspace).await;
    world.store.end_process(first).await.expect("it ends");
    let silence = crate::support::UNSTEADY;
    let stale = crate::support::STALE_AFTER;
    let taken = world
        .store
        .take_over_items(&[workspace.shard()], silence, stale, ClaimId(new_id()), second)
        .await
        .expect("taken");
    assert_eq!(taken.len(), 1);
    assert_eq!(begin(&world, execution, first).await, "granted", "the slot matters, not the claim");
    assert_eq!(begin(&world, execution, second).await, "ended");
}

#[tokio::test]
async fn the_results_of_several_begins_name_their_runs() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let accepted = world.accept_many(workspace, definition, 6).await;
    world.claim(workspace, 5).await;
    world.finish(accepted[2], Status::Canceled).await;
    let missing = ExecutionId(new_id());
    let asked = [&accepted[..], &[missing]].concat();
    let answers = world.store.begin(&asked, ENGINE, world.me).await.expect("answers");
    let outcome: Vec<(ExecutionId, &str)> = answers
        .iter()
        .map(|(id, answer)| match answer {
            BeginOutcome::Granted(begun) => (*id, if begun.execution == *id { "granted" } else { "mixed up" }),
            BeginOutcome::Ended => (*id, "ended"),
            BeginOutcome::NotYet => (*id, "not yet"),
            BeginOutcome::Missing => (*id, "gone"),
        })
        .collect();
    let words = ["granted", "granted", "ended", "granted", "granted", "not yet", "gone"];
    assert_eq!(outcome, asked.iter().copied().zip(words).collect::<Vec<_>>());
    let input: Value = Value::Null;
    assert!(answers.iter().all(|(_, answer)| !matches!(answer, BeginOutcome::Granted(b) if b.input != input)));
}

#[tokio::test]
async fn a_run_that_begins_while_its_item_is_given_back_never_runs_without_a_slot() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let me = world.me;
    for _ in 0..100 {
        let execution = world.accept_many(workspace, definition, 1).await[0];
        let (item, claim) = world.claim_one(me, workspace).await;
        race(&world.store, 2, |racer, store| async move {
            if racer == 0 {
                store.begin(&[execution], ENGINE, me).await.expect("an answer");
            } else {
                store.requeue_unsent(&[item], claim, Duration::ZERO).await.expect("an answer");
            }
        })
        .await;
        let state = world.state(execution).await;
        assert!(["RUNNING, DISPATCHED", "PENDING, PENDING"].contains(&state.as_str()), "{state}");
        world.finish(execution, Status::Canceled).await;
    }
}
