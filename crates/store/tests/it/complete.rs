//! An execution ends once, whichever caller ends it, and never leaves a queue item behind.

use kernel::execution::Status;
use kernel::ids::{ClaimId, ExecutionId, WorkspaceId};
use kernel::run::failure::{Class, Failure};
use kernel::run::node;
use serde_json::json;
use store::new_id;
use store::run::{End, EndResult, Ending};

use crate::support::{ENGINE, World, end, fact, race, record};

async fn waiting(world: &World, count: usize) -> (WorkspaceId, Vec<ExecutionId>) {
    let (workspace, definition) = world.tenant("PRO").await;
    (workspace, world.accept_many(workspace, definition, count).await)
}

#[tokio::test]
async fn the_first_outcome_wins_and_the_second_call_learns_so() {
    let world = World::new().await;
    let (workspace, accepted) = waiting(&world, 1).await;
    let execution = accepted[0];
    world.run(workspace, 1).await;
    let first = world.finish(execution, Status::Completed).await;
    assert_eq!(first, [EndResult { execution, applied: true, had_queue_item: true, workspace, freed: true }]);
    let second = world.finish(execution, Status::Failed).await;
    assert_eq!(second, [EndResult { execution, applied: false, had_queue_item: false, workspace, freed: false }]);
    assert_eq!(world.state(execution).await, "COMPLETED, no item");
    assert_eq!(world.count("activity WHERE action = 'queue_item.fail'").await, 0);
}

#[tokio::test]
async fn of_concurrent_outcomes_one_is_stored() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    let outcomes = [Status::Completed, Status::Failed, Status::Canceled, Status::TimedOut];
    for _ in 0..25 {
        let execution = world.accept_many(workspace, definition, 1).await[0];
        world.run(workspace, 1).await;
        let result = race(&world.store, 4, |racer, store| async move {
            let ending = Ending { execution, claim: None, end: end(outcomes[racer]) };
            store.complete(&[ending], None, "test").await.expect("an ending").remove(0)
        })
        .await;
        let applied: Vec<usize> = (0..4).filter(|racer| result[*racer].applied).collect();
        assert_eq!(applied.len(), 1, "{result:?}");
        assert_eq!(result.iter().filter(|ended| ended.freed).count(), 1, "one slot, freed once");
        let stored = world.store.execution(execution, None).await.expect("an execution");
        assert_eq!(stored.status, outcomes[applied[0]]);
        assert_eq!(world.store.workspace(workspace).await.expect("a workspace").running, 0);
    }
}

#[tokio::test]
async fn a_failed_item_stays_as_the_dead_letter_with_its_reason() {
    let world = World::new().await;
    let (workspace, accepted) = waiting(&world, 3).await;
    let failure = Failure::new(Class::DispatchRefused, "the engine refused it");
    let ends = [
        End { outcome: Status::Failed, output: None, error: Some(failure.clone()) },
        End { outcome: Status::TimedOut, output: None, error: None },
        End { outcome: Status::Completed, output: Some(json!(1)), error: None },
    ];
    world.run(workspace, 3).await;
    let endings: Vec<Ending> =
        accepted.iter().zip(ends).map(|(execution, end)| Ending { execution: *execution, claim: None, end }).collect();
    let result = world.store.complete(&endings, None, "the test").await.expect("an ending");
    assert!(result.iter().all(|ended| ended.applied && ended.had_queue_item && ended.freed), "{result:?}");
    let rows = world.client.query("SELECT id, status, last_error FROM execution_queue ORDER BY id", &[]).await;
    let rows: Vec<(uuid::Uuid, String, String)> =
        rows.expect("queue items").iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
    let dead_letter = |at: usize, why: &str| (accepted[at].0, "FAILED".to_owned(), why.to_owned());
    assert_eq!(rows, [dead_letter(0, "the engine refused it"), dead_letter(1, "TIMED_OUT")]);
    assert_eq!(world.stages(workspace).await, "failed 2");
    let noted = "activity WHERE action = 'queue_item.fail' AND actor = 'the test' AND subject_type = 'queue_item'";
    assert_eq!(world.count(noted).await, 2);
    let error = world.store.execution(accepted[0], None).await.expect("an execution").error;
    assert_eq!(error, Some(serde_json::to_value(failure).expect("json")));
}

#[tokio::test]
async fn a_queue_item_left_by_an_ended_execution_is_removed_by_the_next_call() {
    let world = World::new().await;
    for (outcome, state) in [(Status::Completed, "COMPLETED, no item"), (Status::Failed, "FAILED, FAILED")] {
        let (workspace, accepted) = waiting(&world, 1).await;
        world.run(workspace, 1).await;
        let sql = "UPDATE workflow_execution SET status = $2, completed_at = now(), owner = NULL WHERE id = $1";
        world.run_sql(sql, &[&accepted[0].0, &outcome.name()]).await;
        let result = world.finish(accepted[0], Status::Canceled).await;
        assert_eq!(
            result,
            [EndResult { execution: accepted[0], applied: false, had_queue_item: true, workspace, freed: true }]
        );
        assert_eq!(world.state(accepted[0]).await, state);
    }
}

#[tokio::test]
async fn open_nodes_are_canceled_in_order_after_the_settled_ones() {
    let world = World::new().await;
    let (workspace, _) = waiting(&world, 1).await;
    let run = world.run(workspace, 1).await.remove(0);
    use node::Status::{Canceled, Completed, Running};
    let facts = vec![fact("c", Running), fact("x", Completed), fact("b", Running)];
    world.store.record(world.me, &[record(&run, facts)], "test").await.expect("recorded");
    world.finish(run.execution, Status::TimedOut).await;
    let nodes = world.store.nodes(run.execution).await.expect("nodes");
    let result: Vec<(&str, node::Status)> = nodes.iter().map(|node| (node.node.as_str(), node.status)).collect();
    assert_eq!(result, [("x", Completed), ("b", Canceled), ("c", Canceled)]);
    let sequence: Vec<i64> = world.get("SELECT array_agg(seq ORDER BY seq) FROM workflow_execution_node", &[]).await;
    assert_eq!(sequence, [1, 2, 3]);
    assert_eq!(world.store.execution(run.execution, None).await.expect("an execution").last_seq, 3);
}

#[tokio::test]
async fn without_its_claim_a_dispatcher_ends_nothing() {
    let world = World::new().await;
    let (workspace, accepted) = waiting(&world, 1).await;
    let execution = accepted[0];
    let (_, claim) = world.claim_one(world.me, workspace).await;
    let give_up = |claim| [Ending { execution, claim: Some(claim), end: end(Status::Failed) }];
    let lost = world.store.complete(&give_up(ClaimId(new_id())), None, "test").await.expect("an answer");
    assert_eq!(lost, [], "a claim that does not hold it");
    assert_eq!(world.state(execution).await, "PENDING, CLAIMED");
    let held = world.store.complete(&give_up(claim), None, "test").await.expect("an answer");
    assert_eq!(held, [EndResult { execution, applied: true, had_queue_item: true, workspace, freed: true }]);
    assert_eq!(world.state(execution).await, "FAILED, FAILED");
}

#[tokio::test]
async fn a_run_that_has_begun_is_not_ended_by_the_claim_that_started_it() {
    let world = World::new().await;
    let (workspace, accepted) = waiting(&world, 1).await;
    let (_, claim) = world.claim_one(world.me, workspace).await;
    world.store.begin(&accepted, ENGINE, world.me).await.expect("begun");
    let ending = Ending { execution: accepted[0], claim: Some(claim), end: end(Status::Failed) };
    assert_eq!(world.store.complete(&[ending], None, "test").await.expect("an answer"), []);
    assert_eq!(world.state(accepted[0]).await, "RUNNING, DISPATCHED");
}

#[tokio::test]
async fn only_an_execution_in_the_expected_status_is_ended() {
    let world = World::new().await;
    let (workspace, accepted) = waiting(&world, 2).await;
    world.run(workspace, 1).await;
    let endings: Vec<Ending> = accepted
        .iter()
        .map(|execution| Ending { execution: *execution, claim: None, end: end(Status::TimedOut) })
        .collect();
    let result = world.store.complete(&endings, Some(Status::Pending), "test").await.expect("an answer");
    assert_eq!(
        result,
        [EndResult { execution: accepted[1], applied: true, had_queue_item: true, workspace, freed: false }]
    );
    assert_eq!(world.state(accepted[0]).await, "RUNNING, DISPATCHED");
    assert_eq!(world.state(accepted[1]).await, "TIMED_OUT, FAILED");
}

#[tokio::test]
async fn an_execution_that_does_not_exist_has_no_result_row() {
    let world = World::new().await;
    assert_eq!(world.finish(ExecutionId(new_id()), Status::Completed).await, []);
}

#[tokio::test]
async fn an_execution_ends_even_if_its_queue_item_is_missing() {
    let world = World::new().await;
    let (workspace, accepted) = waiting(&world, 1).await;
    world.run(workspace, 1).await;
    world.run_sql("DELETE FROM execution_queue", &[]).await;
    let result = world.finish(accepted[0], Status::Completed).await;
    assert_eq!(
        result,
        [EndResult { execution: accepted[0], applied: true, had_queue_item: false, workspace, freed: false }]
    );
    assert_eq!(world.state(accepted[0]).await, "COMPLETED, no item");
}

#[tokio::test]
async fn endings_of_the_same_executions_in_opposite_orders_do_not_deadlock() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("ENTERPRISE").await;
    for _ in 0..10 {
        let accepted = world.accept_many(workspace, definition, 20).await;
        world.run(workspace, 20).await;
        let applied = race(&world.store, 6, |racer, store| {
            let mut ids = accepted.clone();
            if racer % 2 == 1 {
                ids.reverse();
            }
            async move {
                let endings: Vec<Ending> =
                    ids.iter().map(|id| Ending { execution: *id, claim: None, end: end(Status::Completed) }).collect();
                let result = store.complete(&endings, None, "test").await.expect("no deadlock");
                result.iter().filter(|ended| ended.applied).count()
            }
        })
        .await;
        assert_eq!(applied.iter().sum::<usize>(), 20);
    }
    assert_eq!(world.stages(workspace).await, "nothing");
}

#[tokio::test]
async fn a_queue_item_without_its_execution_becomes_a_dead_letter_and_frees_its_slot() {
    let world = World::new().await;
    let (workspace, accepted) = waiting(&world, 2).await;
    let execution = accepted[0];
    let (item, claim) = world.claim_one(world.me, workspace).await;
    assert_eq!(item, execution.queue_item());
    world.run_sql("DELETE FROM workflow_execution WHERE id = $1", &[&execution.0]).await;
    let other = Ending { execution, claim: Some(ClaimId(new_id())), end: end(Status::Failed) };
    assert_eq!(world.store.complete(&[other], None, "test").await.expect("an answer"), [], "not under another claim");
    let own = Ending { execution, claim: Some(claim), end: end(Status::Failed) };
    let result = world.store.complete(&[own], None, "test").await.expect("an answer");
    assert_eq!(result, [EndResult { execution, applied: false, had_queue_item: true, workspace, freed: true }]);
    assert_eq!(world.finish(execution, Status::Failed).await, [], "the execution has ended");
    let audited = format!(
        "activity WHERE subject_id = '{execution}' AND action = 'queue_item.fail' AND detail ->> 'type' = 'EXECUTION_GONE'"
    );
    assert_eq!(world.count(&audited).await, 1);
    let dead_letter =
        format!("execution_queue WHERE id = '{execution}' AND status = 'FAILED' AND last_error LIKE '%missing%'");
    assert_eq!(world.count(&dead_letter).await, 1);
    assert_eq!(
        world.count(&format!("execution_queue WHERE workspace_id = '{workspace}' AND stage = 5")).await,
        0,
        "its slot is free"
    );
    assert_eq!(
        world.count(&format!("execution_queue WHERE workspace_id = '{workspace}' AND stage = 0")).await,
        1,
        "and nothing of the other is changed"
    );
}
