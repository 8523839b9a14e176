//! Tests what the traces of trees, loops and waits do not show: which process holds them, and what is repeated after a
//! crash.

use engine::Engine;
use engine::embedded::NAME;
use kernel::execution::Status;
use kernel::ids::ExecutionId;
use kernel::kind::workflow::MAX_DESCENDANTS;
use serde_json::{Value, json};
use store::queue::control::Terminated;
use store::wait::{AnswerOutcome, WaitKey};

use crate::host::Process;
use crate::world::{World, until};

async fn count(world: &World, what: &str) -> i64 {
    let row = world.database.client().await.query_one(&format!("SELECT count(*) FROM {what}"), &[]).await;
    row.expect("a count").get(0)
}

async fn started(world: &World, document: &Value) -> (ExecutionId, Process) {
    let definition = world.publish(document).await;
    let id = world.enqueue(definition, json!(null)).await;
    let process = world.process().await;
    world.dispatch(&process).await;
    (id, process)
}

async fn parked(world: &World, process: &Process, id: ExecutionId) {
    until("it is parked", async || process.engine.held_runs().is_empty()).await;
    let row = format!("workflow_execution WHERE id = '{id}' AND status = 'RUNNING' AND owner IS NULL");
    assert_eq!(count(world, &row).await, 1, "no process holds it");
}

fn call(path: &str) -> Value {
    json!({ "kind": "HTTP_REQUEST", "with": { "url": format!("BASE{path}") } })
}

/// Nodes that begin together, after a node that only logs.
fn beside(nodes: Value) -> Value {
    let mut nodes = nodes;
    for node in nodes.as_object_mut().into_iter().flat_map(|nodes| nodes.values_mut()) {
        node["needs"] = json!("start");
    }
    nodes["start"] = json!({ "kind": "LOG", "with": { "message": "start" } });
    nodes
}

fn child(workflow: &str) -> Value {
    json!({ "kind": "WORKFLOW", "with": { "workflow": workflow } })
}

#[tokio::test]
async fn a_workspace_with_one_slot_runs_a_parent_with_ten_children() {
    let world = World::new().await;
    let one = "UPDATE workspace SET limit_override = 1";
    world.database.client().await.batch_execute(one).await.expect("a limit");
    let nodes: serde_json::Map<String, Value> = (0..10).map(|n| (format!("c{n}"), child("one"))).collect();
    let document =
        json!({ "workflows": { "one": { "nodes": { "call": call("/ok") } } }, "nodes": beside(Value::Object(nodes)) });
    let (id, process) = started(&world, &document).await;
    assert_eq!(world.ended(id).await.status, Status::Completed);
    assert_eq!(world.receiver.calls("/ok"), 10);
    assert_eq!(count(&world, "workflow_execution WHERE parent IS NOT NULL AND status = 'COMPLETED'").await, 10);
    assert_eq!(world.leftovers().await, (0, 0));
    until("nothing is held", async || process.engine.held_runs().is_empty()).await;
}

#[tokio::test]
async fn a_crash_in_the_middle_of_a_child_repeats_nothing_that_is_recorded() {
    let world = World::new().await;
    let mut slow = call("/slow");
    slow["needs"] = json!("first");
    let below = json!({ "nodes": { "first": call("/ok"), "then": slow } });
    let document = json!({ "workflows": { "below": below }, "nodes": beside(json!({ "before": call("/before"), "down": child("below") })) });
    let (id, first) = started(&world, &document).await;
    world.receiver.until_called("/slow", 1).await;
    until("the root performs its own call", async || {
        count(&world, "workflow_execution_node WHERE node = 'before' AND status = 'COMPLETED'").await == 1
    })
    .await;
    let second = world.take_over(first).await;
    world.receiver.until_called("/slow", 2).await;
    assert_eq!((world.receiver.calls("/ok"), world.receiver.calls("/before")), (1, 1));
    assert_eq!(count(&world, "workflow_execution WHERE parent IS NOT NULL").await, 1, "it is the same child");
    let below: String = {
        let sql = "SELECT id::text FROM workflow_execution WHERE parent IS NOT NULL";
        world.database.client().await.query_one(sql, &[]).await.expect("the child").get(0)
    };
    let token = format!("{below}/then/0");
    assert_eq!(world.receiver.tokens().iter().filter(|known| **known == token).count(), 2, "with the same token");
    world.database.store.cancel(id, world.workspace, "test").await.expect("a cancel");
    second.engine.cancel(id);
    assert_eq!(world.ended(id).await.status, Status::Canceled);
}

#[tokio::test]
async fn a_crash_in_the_middle_of_a_loop_repeats_no_item_that_is_recorded() {
    let world = World::new().await;
    let items: Vec<String> = (0..60).map(|n| format!("ok/{n}")).collect();
    let document = json!({ "nodes": { "all": { "kind": "FOR_EACH", "with": {
        "items": items, "parallel": 4,
        "do": { "kind": "HTTP_REQUEST", "with": { "url": "BASE/${{ item }}" } },
    } } } });
    let (id, mut process) = started(&world, &document).await;
    for done in [5, 20, 40] {
        let settled = "workflow_execution_node WHERE iteration > 0 AND status = 'COMPLETED'";
        until("some are done", async || count(&world, settled).await >= done).await;
        process = world.take_over(process).await;
    }
    let ended = world.ended(id).await;
    assert_eq!(ended.status, Status::Completed);
    let again: usize = (0..60).map(|n| world.receiver.calls(&format!("/ok/{n}")) - 1).sum();
    assert!(again <= 3 * 4, "only calls in flight are repeated: {again}");
    let sql = "SELECT count(*) FROM workflow_execution_node n WHERE n.iteration > 0 AND n.attempt = 1";
    let row = world.database.client().await.query_one(sql, &[]).await.expect("a count");
    assert_eq!(row.get::<_, i64>(0), 60, "a crash does not count as an attempt");
    let output = world.database.store.nodes(id).await.expect("nodes").remove(0).output.expect("an output");
    assert_eq!((&output["count"], &output["items"][59]["body"]["path"]), (&json!(60), &json!("/ok/59")));
    process.engine.drop_all();
}

#[tokio::test]
async fn a_tree_that_only_waits_is_held_by_nobody_and_an_answer_wakes_it() {
    let world = World::new().await;
    let below = json!({ "nodes": { "before": call("/ok"), "ask": { "kind": "WAIT_FOR_EVENT", "needs": "before" } } });
    let document = json!({ "workflows": { "below": below }, "nodes": { "down": child("below") } });
    let (id, process) = started(&world, &document).await;
    until("its wait is open", async || count(&world, "workflow_execution_wait WHERE status = 'OPEN'").await == 1).await;
    parked(&world, &process, id).await;
    assert_eq!(world.leftovers().await, (1, 1), "it keeps its slot");
    let store = &world.database.store;
    assert!(store.wake_due(process.id, NAME, 10).await.expect("an answer").is_empty(), "nothing wakes it");

    let sql = "SELECT id FROM workflow_execution WHERE parent IS NOT NULL";
    let row = world.database.client().await.query_one(sql, &[]).await.expect("the child");
    let node = kernel::ids::NodeKey::new("ask").expect("a key");
    let place = WaitKey { execution: ExecutionId(row.get(0)), node, iteration: 0 };
    let observed = store.answer(&place, None, &json!({ "ok": true }), "key:test").await.expect("an answer");
    assert!(
        matches!(observed, AnswerOutcome::Accepted(Some(ref call)) if call.holder == id),
        "its root listens: {observed:?}"
    );
    let woken = store.wake_due(process.id, NAME, 10).await.expect("an answer");
    assert_eq!(woken, [id]);
    process.engine.resume(process.id, &woken, false).await.expect("resumed");
    assert_eq!(world.ended(id).await.status, Status::Completed);
    assert_eq!(world.receiver.calls("/ok"), 1, "recorded work is not repeated");
}

#[tokio::test]
async fn an_answer_reaches_a_run_that_is_held_by_its_signal() {
    let world = World::new().await;
    // The call keeps the run in this process.
    let document = json!({ "nodes": beside(json!({ "ask": { "kind": "WAIT_FOR_EVENT" }, "busy": call("/slow") })) });
    let (id, process) = started(&world, &document).await;
    until("its wait is open", async || count(&world, "workflow_execution_wait WHERE status = 'OPEN'").await == 1).await;
    let node = kernel::ids::NodeKey::new("ask").expect("a key");
    let place = WaitKey { execution: id, node, iteration: 0 };
    world.database.store.answer(&place, None, &json!(null), "key:test").await.expect("an answer");
    process.engine.signal(id);
    let answered = "workflow_execution_node WHERE node = 'ask' AND status = 'COMPLETED'";
    until("it is answered", async || count(&world, answered).await == 1).await;
    process.engine.drop_all();
}

#[tokio::test]
async fn a_wait_whose_process_died_is_the_same_wait_and_is_answered_once() {
    let world = World::new().await;
    let document = json!({ "nodes": beside(json!({ "ask": { "kind": "WAIT_FOR_EVENT" }, "busy": call("/slow") })) });
    let (id, first) = started(&world, &document).await;
    until("its wait is open", async || count(&world, "workflow_execution_wait WHERE status = 'OPEN'").await == 1).await;
    let second = world.take_over(first).await;
    world.receiver.until_called("/slow", 2).await;
    assert_eq!(count(&world, "workflow_execution_wait WHERE status = 'OPEN' AND attempt = 1").await, 1);
    let node = kernel::ids::NodeKey::new("ask").expect("a key");
    let place = WaitKey { execution: id, node, iteration: 0 };
    let store = &world.database.store;
    store.answer(&place, None, &json!({ "n": 1 }), "key:test").await.expect("an answer");
    // The process dies before it reads the answer. The next one queries and gets it.
    let third = world.take_over(second).await;
    let answered =
        "workflow_execution_node WHERE node = 'ask' AND status = 'COMPLETED' AND output #>> '{data,n}' = '1'";
    until("it is answered", async || count(&world, answered).await == 1).await;
    let again = store.answer(&place, None, &json!({ "n": 2 }), "key:test").await.expect("an answer");
    assert_eq!(again, AnswerOutcome::AlreadyAnswered);
    third.engine.drop_all();
}

#[tokio::test]
async fn a_parked_tree_is_woken_when_the_first_of_it_is_due() {
    let world = World::new().await;
    let wait = |time: &str| json!({ "nodes": { "wait": { "kind": "DELAY", "with": { "for": time } } } });
    let document = json!({
        "workflows": { "long": wait("2h"), "short": wait("1h") },
        "nodes": beside(json!({ "a": child("long"), "b": child("short") })),
    });
    let (id, process) = started(&world, &document).await;
    parked(&world, &process, id).await;
    let sql = "SELECT extract(epoch FROM wake_at - now())::float8 / 60 FROM run_request WHERE execution_id = $1";
    let minutes: f64 = world.database.client().await.query_one(sql, &[&id.0]).await.expect("a time").get(0);
    assert!((59.0..=60.0).contains(&minutes), "{minutes}");
}

#[tokio::test]
async fn a_forced_end_takes_the_whole_tree() {
    let world = World::new().await;
    let document = json!({ "workflows": { "below": { "nodes": { "call": call("/slow") } } }, "nodes": { "down": child("below") } });
    let (id, process) = started(&world, &document).await;
    world.receiver.until_called("/slow", 1).await;
    let observed = world.database.store.terminate(id, world.workspace, "test").await.expect("an answer");
    assert!(matches!(observed, Terminated::Fenced(_)), "{observed:?}");
    process.engine.terminate(id);
    assert_eq!(world.ended(id).await.status, Status::Canceled);
    assert!(world.receiver.is_at_rest().await);
    assert_eq!(count(&world, "workflow_execution WHERE status = 'CANCELED'").await, 2);
    assert_eq!(count(&world, "workflow_execution_node WHERE completed_at IS NULL").await, 0);
    assert_eq!(world.leftovers().await, (0, 0));
}

#[tokio::test]
async fn a_tree_that_is_too_wide_is_refused() {
    let world = World::new().await;
    let document = json!({
        "workflows": { "one": { "nodes": {} } },
        "nodes": { "wait": { "kind": "DELAY", "with": { "for": "300ms" } }, "down": { "kind": "WORKFLOW", "needs": "wait", "with": { "workflow": "one" } } },
    });
    let (id, process) = started(&world, &document).await;
    let full = format!("UPDATE workflow_execution SET descendants = {MAX_DESCENDANTS}");
    world.database.client().await.batch_execute(&full).await.expect("full");
    let ended = world.ended(id).await;
    let error = ended.error.expect("an error");
    assert_eq!((ended.status, error["type"].as_str()), (Status::Failed, Some("VALIDATION_ERROR")));
    assert!(error["message"].as_str().is_some_and(|why| why.contains("20000 executions")), "{error}");
    process.engine.drop_all();
}

#[tokio::test]
async fn a_detached_start_goes_through_the_queue_once_and_is_not_waited_for() {
    let world = World::new().await;
    let document = json!({
        "workflows": { "own": { "nodes": { "call": call("/ok") } } },
        "nodes": { "start": { "kind": "WORKFLOW", "with": { "workflow": "own", "detached": true } } },
    });
    let (id, process) = started(&world, &document).await;
    assert_eq!(world.ended(id).await.status, Status::Completed);
    let output = world.database.store.nodes(id).await.expect("nodes").remove(0).output.expect("an output");
    let own = output["execution_id"].as_str().expect("an id").to_owned();
    assert_eq!(world.leftovers().await, (0, 1), "it waits for its turn");
    let row =
        format!("workflow_execution WHERE id = '{own}' AND parent IS NULL AND idempotency_key = 'node/{id}/start/0'");
    assert_eq!(count(&world, &row).await, 1);
    world.dispatch(&process).await;
    world.receiver.until_called("/ok", 1).await;
    until("it ends", async || world.leftovers().await == (0, 0)).await;
}

#[tokio::test]
async fn a_loop_whose_outputs_are_too_large_fails() {
    let world = World::new().await;
    let document = json!({ "nodes": { "all": { "kind": "FOR_EACH", "with": {
        "items": [1, 2, 3, 4, 5], "do": { "kind": "HTTP_REQUEST", "with": { "url": "BASE/big" } },
    } } } });
    let (id, _process) = started(&world, &document).await;
    let ended = world.ended(id).await;
    let error = ended.error.expect("an error");
    assert!(error["message"].as_str().is_some_and(|why| why.contains("larger than 4 MiB")), "{error}");
}

#[tokio::test]
async fn what_may_be_performed_once_is_lost_with_its_process() {
    let world = World::new().await;
    let once = json!({ "kind": "HTTP_REQUEST", "delivery": "at_most_once", "with": { "url": "BASE/slow" } });
    let document = json!({
        "workflows": { "below": { "nodes": { "call": once } } },
        "nodes": beside(json!({ "down": child("below"), "each": { "kind": "FOR_EACH", "with": { "items": [1], "do": once } } })),
    });
    let (id, first) = started(&world, &document).await;
    world.receiver.until_called("/slow", 2).await;
    let _second = world.take_over(first).await;
    let ended = world.ended(id).await;
    assert_eq!(ended.status, Status::Failed);
    assert_eq!(world.receiver.calls("/slow"), 2, "neither is performed again");
    assert_eq!(
        count(&world, "workflow_execution_node WHERE status = 'UNKNOWN'").await,
        4,
        "the item, its loop, the call, and the node whose child it is in"
    );
    let failed = "workflow_execution WHERE status = 'FAILED' AND error ->> 'type' = 'RESULT_UNKNOWN'";
    assert_eq!(count(&world, failed).await, 2);
}

#[tokio::test]
async fn a_loop_of_ten_thousand_items_that_changes_hands_redoes_none() {
    let world = World::new().await;
    let document = json!({ "nodes": { "all": { "kind": "FOR_EACH", "with": {
        "items": "${{ inputs.all }}", "parallel": 50, "do": { "kind": "TRANSFORM", "with": { "value": "${{ item }}" } },
    } } } });
    let definition = world.publish(&document).await;
    let all: Vec<usize> = (0..10_000).collect();
    let id = world.enqueue(definition, json!({ "all": all })).await;
    let mut process = world.process().await;
    world.dispatch(&process).await;
    let settled = "workflow_execution_node WHERE iteration > 0 AND completed_at IS NOT NULL";
    for done in [1, 4_000] {
        until("some are done", async || count(&world, settled).await >= done).await;
        process = world.take_over(process).await;
    }
    assert_eq!(world.ended(id).await.status, Status::Completed);
    assert_eq!(count(&world, settled).await, 10_000);
    let twice = "SELECT count(*) FROM (SELECT seq FROM workflow_execution_node GROUP BY seq HAVING count(*) > 1) d";
    let row = world.database.client().await.query_one(twice, &[]).await.expect("a count");
    assert_eq!(row.get::<_, i64>(0), 0, "each settled once, in its own place");
    let output = world.database.store.nodes(id).await.expect("nodes").remove(0).output.expect("an output");
    assert_eq!((&output["count"], &output["items"][9_999]), (&json!(10_000), &json!(9_999)));
    process.engine.drop_all();
}

/// Three children with a hundred waits each: more than one depth may have open at once.
#[tokio::test]
async fn a_wide_tree_has_so_many_children_in_memory_and_the_rest_wait_their_turn() {
    let world = World::new().await;
    let leaf = json!({ "nodes": { "ask": { "kind": "WAIT_FOR_EVENT" } } });
    let fan = |count: usize, of: &str| {
        let items: Vec<usize> = (0..count).collect();
        json!({ "nodes": { "each": { "kind": "FOR_EACH", "with": { "items": items, "parallel": 100, "do": child(of) } } } })
    };
    let mut document = fan(3, "middle");
    document["workflows"] = json!({ "leaf": leaf, "middle": fan(100, "leaf") });
    let (id, process) = started(&world, &document).await;
    let open = "workflow_execution WHERE depth = 2 AND completed_at IS NULL";
    let asked = "workflow_execution_wait WHERE status = 'OPEN'";
    until("as many waits are open as allowed", async || count(&world, asked).await == 256).await;
    parked(&world, &process, id).await;
    assert_eq!((count(&world, open).await, count(&world, "workflow_execution WHERE depth = 1").await), (256, 3));

    // Each answered wait makes room for another, and earlier ones are served although more want a turn.
    let store = &world.database.store;
    let sql = "SELECT execution_id FROM workflow_execution_wait WHERE status = 'OPEN' ORDER BY opened_at DESC LIMIT 20";
    for row in world.database.client().await.query(sql, &[]).await.expect("waits") {
        let node = kernel::ids::NodeKey::new("ask").expect("a key");
        let place = WaitKey { execution: ExecutionId(row.get(0)), node, iteration: 0 };
        store.answer(&place, None, &json!(null), "key:test").await.expect("an answer");
    }
    let woken = store.wake_due(process.id, NAME, 10).await.expect("an answer");
    process.engine.resume(process.id, &woken, false).await.expect("resumed");
    let done = "workflow_execution WHERE depth = 2 AND status = 'COMPLETED'";
    until("the answers are applied", async || count(&world, done).await == 20).await;
    until("other waits are open", async || count(&world, "workflow_execution_wait").await == 276).await;
    parked(&world, &process, id).await;
    assert_eq!(count(&world, open).await, 256);
    store.cancel(id, world.workspace, "test").await.expect("a cancel");
    let woken = store.wake_due(process.id, NAME, 10).await.expect("an answer");
    process.engine.resume(process.id, &woken, false).await.expect("resumed");
    assert_eq!(world.ended(id).await.status, Status::Canceled);
    assert_eq!(count(&world, "workflow_execution_node WHERE completed_at IS NULL").await, 0);
}
