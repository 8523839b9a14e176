//! Facts of runs are stored in order, and fenced by owner, epoch and status. Storing a fact may be repeated.

use std::time::Duration;

use kernel::change::Topic;
use kernel::execution;
use kernel::ids::Label;
use kernel::run::node::Status;
use serde_json::json;
use store::queue::claim::Begun;
use store::run::{NodeFact, Record, Recorded};

use crate::support::{World, end, fact, failure, record};

const STORED: Recorded = Recorded { held: true, ended: false, freed: None };
const FENCED: Recorded = Recorded { held: false, ended: false, freed: None };

async fn runs(world: &World, count: i32) -> Vec<Begun> {
    let (workspace, definition) = world.tenant("ENTERPRISE").await;
    world.accept_many(workspace, definition, usize::try_from(count).expect("a count")).await;
    world.run(workspace, count).await
}

async fn save(world: &World, records: &[Record]) -> Vec<Recorded> {
    world.store.record(world.me, records, "test").await.expect("an answer")
}

/// A run's nodes as `node status seq`, in the order in which a new owner reads them.
async fn nodes(world: &World, run: &Begun) -> Vec<String> {
    let sql = "SELECT node || ' ' || status || coalesce(' ' || seq, '') FROM workflow_execution_node
                WHERE execution_id = $1 ORDER BY seq NULLS LAST, node";
    let rows = world.client.query(sql, &[&run.execution.0]).await.expect("nodes");
    rows.iter().map(|row| row.get(0)).collect()
}

async fn last_seq(world: &World, run: &Begun) -> i64 {
    world.store.execution(run.execution, None).await.expect("an execution").last_seq
}

#[tokio::test]
async fn facts_are_numbered_in_the_order_in_which_nodes_settled() {
    let world = World::new().await;
    let run = runs(&world, 1).await.remove(0);
    let first = vec![fact("z", Status::Completed), fact("m", Status::Running), fact("a", Status::Skipped)];
    assert_eq!(save(&world, &[record(&run, first)]).await, [STORED]);
    assert_eq!(nodes(&world, &run).await, ["z COMPLETED 1", "a SKIPPED 2", "m RUNNING"]);
    let second = vec![fact("b", Status::Failed), fact("m", Status::Completed), fact("c", Status::Running)];
    assert_eq!(save(&world, &[record(&run, second)]).await, [STORED]);
    let expected = ["z COMPLETED 1", "a SKIPPED 2", "b FAILED 3", "m COMPLETED 4", "c RUNNING"];
    assert_eq!(nodes(&world, &run).await, expected);
    assert_eq!(last_seq(&world, &run).await, 4);
}

#[tokio::test]
async fn a_new_owner_reads_back_what_was_recorded() {
    let world = World::new().await;
    let run = runs(&world, 1).await.remove(0);
    let label = Label::new("yes").expect("a label");
    let facts = vec![
        NodeFact { label: Some(label.clone()), output: Some(json!({ "n": 1 })), ..fact("a", Status::Completed) },
        NodeFact { error: Some(failure("no")), attempt: 3, ..fact("b", Status::Failed) },
        NodeFact { next_in: Some(Duration::from_secs(3_600)), attempt: 2, ..fact("c", Status::Retrying) },
    ];
    save(&world, &[record(&run, facts)]).await;
    let loaded = world.store.load_runs(world.me, &[run.execution]).await.expect("loaded").remove(0);
    assert_eq!((loaded.begun.epoch, loaded.canceling, loaded.nodes.as_ref().expect("readable").len()), (1, false, 3));
    let [a, b, c] = &loaded.nodes.as_ref().expect("readable")[..] else { panic!("{loaded:?}") };
    assert_eq!((a.status, &a.label, &a.output), (Status::Completed, &Some(label), &Some(json!({ "n": 1 }))));
    assert_eq!((b.status, b.attempt, &b.error), (Status::Failed, 3, &Some(failure("no"))));
    assert_eq!((c.status, c.attempt), (Status::Retrying, 2));
    assert!((3_500..=3_600).contains(&c.next_in.expect("a time").as_secs()), "{c:?}");
}

#[tokio::test]
async fn nothing_is_stored_for_another_owner_another_epoch_or_after_the_end() {
    let world = World::new().await;
    let run = runs(&world, 1).await.remove(0);
    let stranger = world.process().await;
    let facts = || vec![fact("a", Status::Completed)];
    let result = world.store.record(stranger, &[record(&run, facts())], "test").await.expect("an answer");
    assert_eq!(result, [FENCED], "another owner");
    for epoch in [0, 2] {
        assert_eq!(save(&world, &[Record { epoch, ..record(&run, facts()) }]).await, [FENCED], "epoch {epoch}");
    }
    let ending = Record { epoch: 2, end: Some(end(execution::Status::Completed)), ..record(&run, facts()) };
    assert_eq!(save(&world, &[ending]).await, [FENCED], "nor does it end");
    let parking = Record { epoch: 2, park: Some(Duration::ZERO), ..record(&run, facts()) };
    assert_eq!(save(&world, &[parking]).await, [FENCED], "nor park");
    assert_eq!(world.state(run.execution).await, "RUNNING, DISPATCHED");
    world.finish(run.execution, execution::Status::Canceled).await;
    assert_eq!(save(&world, &[record(&run, facts())]).await, [FENCED], "after the end");
    assert_eq!(nodes(&world, &run).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_settled_node_is_never_changed_by_a_late_fact() {
    let world = World::new().await;
    let settled = [Status::Completed, Status::Failed, Status::Skipped, Status::Canceled, Status::Unknown];
    let run = runs(&world, 1).await.remove(0);
    for (at, first) in settled.into_iter().enumerate() {
        let node = format!("n{at}");
        let kept = NodeFact { output: Some(json!("kept")), ..fact(&node, first) };
        save(&world, &[record(&run, vec![kept])]).await;
        for late in Status::ALL {
            let next_in = Some(Duration::ZERO);
            let late = NodeFact { output: Some(json!("late")), next_in, attempt: 9, ..fact(&node, late) };
            assert_eq!(save(&world, &[record(&run, vec![late])]).await, [STORED]);
        }
    }
    for (at, node) in world.store.nodes(run.execution).await.expect("nodes").into_iter().enumerate() {
        assert_eq!((node.status, node.output, node.attempt), (settled[at], Some(json!("kept")), 1));
    }
    assert_eq!(last_seq(&world, &run).await, 5, "late facts are no progress");
}

#[tokio::test]
async fn of_several_runs_the_fenced_one_is_left_out_and_the_others_are_stored() {
    let world = World::new().await;
    let runs = runs(&world, 3).await;
    let mut records: Vec<Record> = runs.iter().map(|run| record(run, vec![fact("a", Status::Completed)])).collect();
    records[1].epoch = 7;
    records[2].end = Some(end(execution::Status::Completed));
    let ended = Recorded { held: true, ended: true, freed: Some(runs[2].workspace) };
    assert_eq!(save(&world, &records).await, [STORED, FENCED, ended]);
    assert_eq!(nodes(&world, &runs[0]).await, ["a COMPLETED 1"]);
    assert_eq!(nodes(&world, &runs[1]).await, Vec::<String>::new());
    assert_eq!(nodes(&world, &runs[2]).await, ["a COMPLETED 1"]);
    let mut reversed = records.clone();
    reversed.reverse();
    assert_eq!(save(&world, &reversed).await, [FENCED, FENCED, STORED], "results follow the records' order");
}

#[tokio::test]
async fn each_call_logs_once_whose_nodes_changed_and_an_end_logs_itself() {
    let world = World::new().await;
    let runs = runs(&world, 4).await;
    let two = || vec![fact("a", Status::Completed), fact("b", Status::Running)];
    let mut records: Vec<Record> = runs.iter().map(|run| record(run, two())).collect();
    records[1].epoch = 7;
    records[2].end = Some(end(execution::Status::Completed));
    save(&world, &records).await;
    // Reported again: nothing changed.
    save(&world, &[record(&runs[0], vec![fact("a", Status::Completed)])]).await;
    let drained = world.store.drain_log(0, &[], 1_000).await.expect("a drain");
    let mut moved: Vec<uuid::Uuid> =
        drained.changes.iter().filter(|change| change.topic == Topic::Nodes).map(|change| change.id).collect();
    let mut expected = vec![runs[0].execution.0, runs[3].execution.0];
    moved.sort_unstable();
    expected.sort_unstable();
    assert_eq!(moved, expected);
}

#[tokio::test]
async fn a_retrying_node_keeps_its_last_ten_attempts_and_their_errors() {
    let world = World::new().await;
    let run = runs(&world, 1).await.remove(0);
    for attempt in 1..=12 {
        let running = NodeFact { attempt, input: Some(json!(attempt)), ..fact("a", Status::Running) };
        let error = Some(failure(&format!("attempt {attempt} failed")));
        let next_in = Some(Duration::from_secs(1));
        let waits = NodeFact { attempt: attempt + 1, error, next_in, ..fact("a", Status::Retrying) };
        save(&world, &[record(&run, vec![running])]).await;
        save(&world, &[record(&run, vec![waits])]).await;
    }
    let node = world.store.nodes(run.execution).await.expect("nodes").remove(0);
    assert_eq!((node.status, node.attempt, node.input), (Status::Retrying, 13, Some(json!(12))));
    assert_eq!(node.error.expect("an error")["message"], "attempt 12 failed");
    let earlier = node.earlier.expect("earlier attempts");
    let earlier = earlier.as_array().expect("a list");
    let result: Vec<(u64, String)> = earlier
        .iter()
        .map(|one| (one["attempt"].as_u64().unwrap_or(0), one["error"]["message"].as_str().unwrap_or("").to_owned()))
        .collect();
    assert_eq!(result, (3..=12).map(|n| (n, format!("attempt {n} failed"))).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_first_attempt_that_failed_before_its_start_was_written_is_kept_too() {
    let world = World::new().await;
    let run = runs(&world, 1).await.remove(0);
    let next_in = Some(Duration::from_secs(1));
    let waits = NodeFact { attempt: 2, error: Some(failure("first")), next_in, ..fact("a", Status::Retrying) };
    save(&world, &[record(&run, vec![waits])]).await;
    save(&world, &[record(&run, vec![NodeFact { attempt: 2, ..fact("a", Status::Completed) }])]).await;
    let node = world.store.nodes(run.execution).await.expect("nodes").remove(0);
    let earlier = node.earlier.expect("earlier attempts");
    assert_eq!((&earlier[0]["attempt"], &earlier[0]["error"]["message"]), (&json!(1), &json!("first")));
}

#[tokio::test]
async fn a_record_sent_twice_is_harmless() {
    let world = World::new().await;
    let run = runs(&world, 1).await.remove(0);
    let next_in = Some(Duration::from_secs(1));
    let facts = vec![
        NodeFact { output: Some(json!(1)), ..fact("a", Status::Completed) },
        NodeFact { attempt: 2, error: Some(failure("once")), next_in, ..fact("b", Status::Retrying) },
        fact("c", Status::Running),
    ];
    let once = record(&run, facts);
    for _ in 0..3 {
        assert_eq!(save(&world, std::slice::from_ref(&once)).await, [STORED]);
    }
    assert_eq!(nodes(&world, &run).await, ["a COMPLETED 1", "b RETRYING", "c RUNNING"]);
    assert_eq!(last_seq(&world, &run).await, 1);
    let nodes = world.store.nodes(run.execution).await.expect("nodes");
    let earlier = nodes[1].earlier.as_ref().and_then(|list| list.as_array()).map(Vec::len);
    assert_eq!(earlier, Some(1), "one failed attempt, stored once");
    let ending = Record { end: Some(end(execution::Status::Failed)), ..record(&run, vec![]) };
    let first = save(&world, std::slice::from_ref(&ending)).await;
    assert_eq!(first, [Recorded { held: true, ended: true, freed: Some(run.workspace) }]);
    assert_eq!(save(&world, &[ending]).await, [FENCED], "the execution has ended");
    assert_eq!(world.count("activity WHERE action = 'queue_item.fail'").await, 1);
}

#[tokio::test]
async fn an_end_frees_the_slot_and_deletes_or_fails_the_queue_item() {
    let world = World::new().await;
    use execution::Status::{Canceled, Completed, Failed, TimedOut};
    let table = [
        (Completed, "COMPLETED, no item", 0),
        (Canceled, "CANCELED, no item", 0),
        (Failed, "FAILED, FAILED", 1),
        (TimedOut, "TIMED_OUT, FAILED", 2),
    ];
    for (outcome, state, activities) in table {
        let run = runs(&world, 1).await.remove(0);
        let mut ending = end(outcome);
        ending.output = Some(json!({ "done": true }));
        let facts = vec![fact("a", Status::Completed)];
        let result = save(&world, &[Record { end: Some(ending), ..record(&run, facts) }]).await;
        assert_eq!(result, [Recorded { held: true, ended: true, freed: Some(run.workspace) }]);
        assert_eq!(world.state(run.execution).await, state);
        assert_eq!(world.count("activity WHERE action = 'queue_item.fail'").await, activities);
        let workspace = world.store.workspace(run.workspace).await.expect("a workspace");
        assert_eq!(workspace.running, 0);
        let execution = world.store.execution(run.execution, None).await.expect("an execution");
        assert_eq!(execution.output, Some(json!({ "done": true })));
        assert!(execution.duration_ms.is_some() && execution.completed_at.is_some());
    }
}

#[tokio::test]
async fn nodes_left_open_by_an_end_are_canceled_after_those_that_settled_with_it() {
    let world = World::new().await;
    let run = runs(&world, 1).await.remove(0);
    let open = vec![fact("b", Status::Running), fact("a", Status::Running)];
    save(&world, &[record(&run, open)]).await;
    let facts = vec![fact("x", Status::Completed), fact("y", Status::Failed)];
    save(&world, &[Record { end: Some(end(execution::Status::Failed)), ..record(&run, facts) }]).await;
    assert_eq!(nodes(&world, &run).await, ["x COMPLETED 1", "y FAILED 2", "a CANCELED 3", "b CANCELED 4"]);
    assert_eq!(last_seq(&world, &run).await, 4);
}

#[tokio::test]
async fn facts_of_an_older_run_of_the_same_execution_in_the_same_call_are_refused() {
    let world = World::new().await;
    let (workspace, definition) = world.tenant("PRO").await;
    world.accept_many(workspace, definition, 1).await;
    let old = world.run(workspace, 1).await.remove(0);
    world
        .run_sql("UPDATE workflow_execution SET owner_epoch = owner_epoch + 1 WHERE id = $1", &[&old.execution.0])
        .await;
    let new = Begun { epoch: old.epoch + 1, ..old.clone() };
    let stale = Record {
        end: Some(end(execution::Status::Failed)),
        park: Some(Duration::ZERO),
        ..record(&old, vec![fact("zombie", Status::Completed)])
    };
    let records = [stale, record(&new, vec![fact("living", Status::Completed)])];
    let result = world.store.record(world.me, &records, "test").await.expect("recorded");
    assert_eq!((result[0].held, result[0].ended, result[1].held), (false, false, true), "{result:?}");
    let nodes = world.store.nodes(old.execution).await.expect("nodes");
    assert_eq!(nodes.iter().map(|node| node.node.as_str()).collect::<Vec<_>>(), ["living"]);
    assert_eq!(world.state(old.execution).await, "RUNNING, DISPATCHED");
    assert_eq!(world.count("workflow_execution WHERE owner IS NOT NULL AND last_seq = 1").await, 1, "not parked");
}
