//! What a run does beyond its graph: side by side, canceled, parked, fenced, resumed.

use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use engine::Engine;
use engine::compute;
use engine::embedded::NAME;
use kernel::execution::Status;
use kernel::ids::WorkspaceId;
use serde_json::{Value, json};
use store::execution::Canceled;

use crate::world::{World, until};

fn slow_call() -> Value {
    json!({ "nodes": { "call": { "kind": "HTTP_REQUEST", "with": { "url": "BASE/slow" } } } })
}

/// Takes every turn to compute that a workspace has, until what it answers with is dropped.
async fn take_turns(workspace: WorkspaceId) -> mpsc::Sender<()> {
    let (open, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    for _ in 0..64 {
        let gate = Arc::clone(&gate);
        tokio::spawn(compute::run(workspace, move || drop(gate.lock().map(|gate| gate.recv()))));
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    open
}

#[tokio::test]
async fn outputs_that_may_take_long_wait_for_their_workspaces_turn() {
    let world = World::new().await;
    let turns = take_turns(world.workspace).await;
    let document = json!({ "nodes": { "go": { "kind": "LOG", "with": { "message": "go" } } }, "outputs": "${{ [1, 2].map(n, n + 1) }}" });
    let definition = world.publish(&document).await;
    let id = world.enqueue(definition, json!(null)).await;
    let process = world.process().await;
    world.dispatch(&process).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let execution = world.database.store.execution(id, None).await.expect("it");
    assert_eq!(execution.status, Status::Running, "it is not its turn");
    drop(turns);
    let ended = world.ended(id).await;
    assert_eq!((ended.status, ended.output), (Status::Completed, Some(json!([2, 3]))));
}

#[tokio::test]
async fn a_run_that_waits_for_its_turn_to_compute_goes_on_with_its_calls_and_hears_a_cancel() {
    let world = World::new().await;
    let _turns = take_turns(world.workspace).await;
    let compute = json!({ "kind": "TRANSFORM", "with": { "value": "${{ [1, 2].map(n, n + 1) }}" } });
    let mut document = json!({ "nodes": { "a": compute, "call": slow_call()["nodes"]["call"], "z": compute } });
    for node in ["a", "call", "z"] {
        document["nodes"][node]["needs"] = json!("go");
    }
    document["nodes"]["go"] = json!({ "kind": "LOG", "with": { "message": "go" } });
    let definition = world.publish(&document).await;
    let id = world.enqueue(definition, json!(null)).await;
    let process = world.process().await;
    world.dispatch(&process).await;
    // It does not wait for what is computed beside it.
    world.receiver.until_called("/slow", 1).await;
    world.database.store.cancel(id, world.workspace, "test").await.expect("a cancel");
    process.engine.cancel(id);
    assert_eq!(world.ended(id).await.status, Status::Canceled);
}

#[tokio::test]
async fn a_run_that_waits_for_its_turn_to_compute_is_left_to_the_next_process_at_shutdown() {
    let world = World::new().await;
    let turns = take_turns(world.workspace).await;
    let document =
        json!({ "nodes": { "a": { "kind": "TRANSFORM", "with": { "value": "${{ [1, 2].map(n, n + 1) }}" } } } });
    let definition = world.publish(&document).await;
    let id = world.enqueue(definition, json!(null)).await;
    let process = world.process().await;
    world.dispatch(&process).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let left = tokio::time::timeout(Duration::from_secs(5), process.engine.drain(Duration::from_secs(60))).await;
    assert!(left.is_ok(), "nothing of it is waited for");
    drop(turns);
    let _next = world.take_over(process).await;
    assert_eq!(world.ended(id).await.status, Status::Completed);
}

#[tokio::test]
async fn nodes_that_can_run_side_by_side_do() {
    let world = World::new().await;
    let nodes: serde_json::Map<String, Value> = (0..20)
        .map(|n| (format!("d{n}"), json!({ "kind": "DELAY", "needs": "go", "with": { "for": "400ms" } })))
        .chain([("go".to_owned(), json!({ "kind": "LOG", "with": { "message": "go" } }))])
        .collect();
    let definition = world.publish(&json!({ "nodes": nodes })).await;
    let id = world.enqueue(definition, json!(null)).await;
    let process = world.process().await;
    let started = Instant::now();
    world.dispatch(&process).await;
    assert_eq!(world.ended(id).await.status, Status::Completed);
    assert!(started.elapsed() < Duration::from_secs(6), "one after the other would take eight seconds");
}

#[tokio::test]
async fn a_cancel_stops_the_call_in_flight_and_frees_the_slot() {
    let world = World::new().await;
    let definition = world.publish(&slow_call()).await;
    let id = world.enqueue(definition, json!(null)).await;
    let process = world.process().await;
    world.dispatch(&process).await;
    world.until(id, |execution| execution.status == Status::Running).await;
    world.receiver.until_called("/slow", 1).await;
    let canceled = world.database.store.cancel(id, world.workspace, "test").await.expect("an answer");
    assert_eq!(canceled, Canceled::Requested(Some(process.id)));
    process.engine.cancel(id);
    let execution = world.ended(id).await;
    assert_eq!(
        world.trace(&execution).await,
        "call CANCELED\nended CANCELED\naudited execution.start\naudited execution.cancel\n"
    );
    assert_eq!(world.leftovers().await, (0, 0));
}

#[tokio::test]
async fn a_long_wait_is_parked_and_woken_by_a_cancel() {
    let world = World::new().await;
    let document = json!({ "nodes": { "wait": { "kind": "DELAY", "with": { "for": "1h" } } } });
    let definition = world.publish(&document).await;
    let id = world.enqueue(definition, json!(null)).await;
    let process = world.process().await;
    world.dispatch(&process).await;
    until("nobody holds it while it waits", async || process.engine.held().is_empty()).await;
    assert_eq!(world.leftovers().await, (1, 1), "it keeps its slot");
    let store = &world.database.store;
    assert!(store.wake(process.id, NAME, 10).await.expect("an answer").is_empty(), "it is not due");
    assert_eq!(store.cancel(id, world.workspace, "test").await.expect("an answer"), Canceled::Requested(None));
    let woken = store.wake(process.id, NAME, 10).await.expect("an answer");
    assert_eq!(woken, [id]);
    process.engine.resume(process.id, &woken, false).await.expect("resumed");
    let execution = world.ended(id).await;
    assert_eq!(
        world.trace(&execution).await,
        "wait CANCELED\nended CANCELED\naudited execution.start\naudited execution.cancel\n"
    );
}

#[tokio::test]
async fn a_parked_wait_ends_at_its_stored_time() {
    let world = World::new().await;
    let document = json!({ "nodes": { "wait": { "kind": "DELAY", "with": { "for": "6s" } } } });
    let definition = world.publish(&document).await;
    let id = world.enqueue(definition, json!(null)).await;
    let process = world.process().await;
    world.dispatch(&process).await;
    until("it is parked", async || process.engine.held().is_empty()).await;
    // Time passes in the database.
    let client = world.database.client().await;
    client
        .batch_execute("UPDATE workflow_execution_node SET next_at = now() WHERE next_at IS NOT NULL")
        .await
        .expect("moved");
    client
        .batch_execute("UPDATE workflow_execution SET wake_at = now() WHERE wake_at IS NOT NULL")
        .await
        .expect("moved");
    let woken = world.database.store.wake(process.id, NAME, 10).await.expect("an answer");
    process.engine.resume(process.id, &woken, false).await.expect("resumed");
    assert_eq!(world.ended(id).await.status, Status::Completed);
}

#[tokio::test]
async fn an_interrupted_call_is_made_again_with_the_same_token() {
    let world = World::new().await;
    let definition = world.publish(&slow_call()).await;
    let id = world.enqueue(definition, json!(null)).await;
    let first = world.process().await;
    world.dispatch(&first).await;
    world.receiver.until_called("/slow", 1).await;
    let second = world.take_over(first).await;
    world.receiver.until_called("/slow", 2).await;
    let token = format!("{id}/call/0");
    assert_eq!(world.receiver.tokens(), [token.clone(), token]);
    second.engine.abandon();
}

#[tokio::test]
async fn a_process_that_lost_its_run_stops_and_stores_nothing() {
    let world = World::new().await;
    let document = json!({ "nodes": {
        "wait": { "kind": "DELAY", "with": { "for": "300ms" } },
        "call": { "kind": "HTTP_REQUEST", "needs": "wait", "with": { "url": "BASE/ok" } },
    } });
    let definition = world.publish(&document).await;
    let id = world.enqueue(definition, json!(null)).await;
    let zombie = world.process().await;
    world.dispatch(&zombie).await;
    world.until(id, |execution| execution.status == Status::Running).await;
    // Another owner, behind its back.
    let sql = "UPDATE workflow_execution SET owner = gen_random_uuid(), owner_epoch = owner_epoch + 1";
    world.database.client().await.batch_execute(sql).await.expect("moved");
    until("it gives the run up", async || zombie.engine.held().is_empty()).await;
    assert_eq!(world.receiver.calls("/ok"), 0, "and made no call for it");
    let execution = world.database.store.execution(id, None).await.expect("the execution");
    assert_eq!((execution.status, execution.last_seq), (Status::Running, 0));
}

#[tokio::test]
async fn a_version_that_cannot_be_run_ends_its_execution_with_the_reason() {
    let world = World::new().await;
    let definition = world.publish(&json!({ "nodes": { "a": { "kind": "LOG", "with": { "message": "x" } } } })).await;
    let id = world.enqueue(definition, json!(null)).await;
    let client = world.database.client().await;
    client.batch_execute("UPDATE workflow_definition_version SET graph = '{\"nodes\": 7}'").await.expect("spoilt");
    let process = world.process().await;
    world.dispatch(&process).await;
    let execution = world.ended(id).await;
    assert_eq!(
        world.trace(&execution).await,
        "ended FAILED: BAD_GRAPH\naudited execution.start\naudited queue_item.fail\n"
    );
    assert_eq!(world.leftovers().await, (0, 0));
}

#[tokio::test]
async fn a_run_whose_row_somebody_holds_locked_keeps_no_other_waiting() {
    let world = World::new().await;
    let wait = json!({ "kind": "DELAY", "with": { "for": "50ms" } });
    let stuck = world.publish(&json!({ "nodes": { "d": wait } })).await;
    let mut two = json!({ "first": wait, "second": wait });
    two["second"]["needs"] = json!("first");
    let free = world.publish(&json!({ "nodes": two })).await;
    let process = world.process().await;
    let (locked, other) = (world.enqueue(stuck, json!(null)).await, world.enqueue(free, json!(null)).await);
    world.dispatch(&process).await;
    let client = world.database.client().await;
    client.batch_execute("BEGIN").await.expect("a transaction");
    let lock = "SELECT 1 FROM workflow_execution WHERE id = $1 FOR UPDATE";
    client.execute(lock, &[&locked.0]).await.expect("locked");
    assert_eq!(world.ended(other).await.status, Status::Completed);
    client.batch_execute("ROLLBACK").await.expect("let go");
    assert_eq!(world.ended(locked).await.status, Status::Completed);
}

#[tokio::test]
async fn an_event_whose_node_died_before_its_record_is_not_emitted_again() {
    // A build before derived ids were secret stored the seed itself.
    for derived in [true, false] {
        emitted_before(derived).await;
    }
}

async fn emitted_before(derived: bool) {
    let world = World::new().await;
    let document = json!({ "nodes": { "say": { "kind": "EMIT_EVENT", "with": { "type": "order.placed" } } } });
    let definition = world.publish(&document).await;
    let id = world.enqueue(definition, json!(null)).await;
    // What a process left that died after the append and before the record of it.
    let node = kernel::ids::NodeKey::new("say").expect("a key");
    let left = store::event::NewEvent {
        id: kernel::event::id_of(id, &node, 0),
        derived,
        workspace: Some(world.workspace),
        stream_id: id.0,
        stream_type: "execution".to_owned(),
        expected: None,
        event_type: "order.placed".to_owned(),
        data: json!({}),
        metadata: json!({ "execution_id": id }),
    };
    world.database.store.append(&[left]).await.expect("an append");
    let process = world.process().await;
    world.dispatch(&process).await;
    let execution = world.ended(id).await;
    assert_eq!(
        world.trace(&execution).await,
        "say COMPLETED {\"stream_version\":1}\nended COMPLETED\naudited execution.start\nevent order.placed execution 1 {}\n"
    );
}
