//! Tests the parts of a run that do not depend on its graph: several runs at the same time, and runs that are canceled,
//! parked, fenced and resumed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use engine::Engine;
use engine::compute;
use engine::embedded::NAME;
use kernel::execution::Status;
use kernel::ids::WorkspaceId;
use serde_json::{Value, json};
use store::execution::Canceled;

use crate::host::Process;
use crate::world::{World, until};

fn slow_call() -> Value {
    json!({ "nodes": { "call": { "kind": "HTTP_REQUEST", "with": { "url": "BASE/slow" } } } })
}

/// Takes every computing permit that a workspace may have, until the returned sender is dropped.
async fn take_turns(workspace: WorkspaceId) -> mpsc::Sender<()> {
    let (open, gate) = mpsc::channel::<()>();
    let (gate, taken) = (Arc::new(Mutex::new(gate)), Arc::new(AtomicUsize::new(0)));
    for _ in 0..64 {
        let (gate, taken) = (Arc::clone(&gate), Arc::clone(&taken));
        tokio::spawn(compute::run(workspace, move || {
            taken.fetch_add(1, Ordering::Relaxed);
            drop(gate.lock().map(|gate| gate.recv()));
        }));
    }
    // A quarter of the processors, and at least one.
    let turns = (std::thread::available_parallelism().map_or(1, usize::from) / 4).max(1);
    until("every turn is taken", async || taken.load(Ordering::Relaxed) >= turns).await;
    open
}

/// A run that began later ends. Whatever the earlier ones could do without their turn, they have done by then.
async fn another_ends(world: &World, process: &Process) {
    let document = json!({ "nodes": { "call": { "kind": "HTTP_REQUEST", "with": { "url": "BASE/ok" } } } });
    let id = world.enqueue(world.publish(&document).await, json!(null)).await;
    world.dispatch(process).await;
    assert_eq!(world.ended(id).await.status, Status::Completed);
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
    another_ends(&world, &process).await;
    let execution = world.database.store.execution(id, None).await.expect("it");
    assert_eq!(execution.status, Status::Running, "it waits for its turn to compute");
    drop(turns);
    let ended = world.ended(id).await;
    assert_eq!((ended.status, ended.output), (Status::Completed, Some(json!([2, 3]))));
}

#[tokio::test]
async fn a_run_that_waits_to_compute_continues_its_calls_and_receives_a_cancel() {
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
    // It does not wait for the computations beside it.
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
    another_ends(&world, &process).await;
    let left = tokio::time::timeout(Duration::from_secs(60), process.engine.drain(Duration::from_secs(600))).await;
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
    world.dispatch(&process).await;
    assert_eq!(world.ended(id).await.status, Status::Completed);
    let together = "SELECT max(started_at) < min(completed_at) FROM workflow_execution_node WHERE node LIKE 'd%'";
    let row = world.database.client().await.query_one(together, &[]).await.expect("times");
    assert!(row.get::<_, bool>(0), "the last began before the first ended");
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
    until("no process holds it while it waits", async || process.engine.held_runs().is_empty()).await;
    assert_eq!(world.leftovers().await, (1, 1), "it keeps its slot");
    let store = &world.database.store;
    assert!(store.wake_due(process.id, NAME, 10).await.expect("an answer").is_empty(), "it is not due");
    assert_eq!(store.cancel(id, world.workspace, "test").await.expect("an answer"), Canceled::Requested(None));
    let woken = store.wake_due(process.id, NAME, 10).await.expect("an answer");
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
    until("it is parked", async || process.engine.held_runs().is_empty()).await;
    // Moves the time forward in the database.
    let client = world.database.client().await;
    client
        .batch_execute("UPDATE workflow_execution_node SET next_at = now() WHERE next_at IS NOT NULL")
        .await
        .expect("moved");
    client.batch_execute("UPDATE run_request SET wake_at = now() WHERE wake_at IS NOT NULL").await.expect("moved");
    let woken = world.database.store.wake_due(process.id, NAME, 10).await.expect("an answer");
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
    second.engine.drop_all();
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
    // Changes the owner without telling the process.
    let sql = "UPDATE workflow_execution SET owner = gen_random_uuid(), owner_epoch = owner_epoch + 1";
    world.database.client().await.batch_execute(sql).await.expect("moved");
    until("it drops the run", async || zombie.engine.held_runs().is_empty()).await;
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
    // Builds before derived ids were secret stored the seed itself.
    for derived in [true, false] {
        emitted_before(derived).await;
    }
}

async fn emitted_before(derived: bool) {
    let world = World::new().await;
    let document = json!({ "nodes": { "say": { "kind": "EMIT_EVENT", "with": { "type": "order.placed" } } } });
    let definition = world.publish(&document).await;
    let id = world.enqueue(definition, json!(null)).await;
    // The state after a process died between the append and its record.
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

/// No known value passes the check and is refused. If there is one, only its node fails.
#[tokio::test]
async fn an_output_that_only_the_database_refuses_fails_its_node() {
    let world = World::new().await;
    world.refuse_an_output().await;
    let process = world.process().await;
    let document = json!({ "nodes": {
        "fine": { "kind": "TRANSFORM", "with": { "value": "fine" } },
        "bad": { "kind": "TRANSFORM", "needs": "fine", "with": { "value": "refused" }, "on_error": "continue" },
        "next": { "kind": "TRANSFORM", "needs": "bad", "with": { "value": "next" } },
        "error": { "kind": "TRANSFORM", "needs": "bad.error", "with": { "value": "error" } },
    } });
    let id = world.enqueue(world.publish(&document).await, json!(null)).await;
    world.dispatch(&process).await;
    until("it leaves the process", async || process.engine.held_runs().is_empty()).await;
    process.engine.resume(process.id, &[id], false).await.expect("its rows");
    let expected = "fine COMPLETED \"fine\"\nbad FAILED: UNSTORABLE_OUTPUT\nnext SKIPPED\n\
                    error COMPLETED \"error\"\nended COMPLETED\naudited execution.start\n";
    assert_eq!(world.end_of(id).await, expected);
}
