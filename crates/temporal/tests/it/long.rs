//! Tests long-running work on a real Temporal: lost hints, workers that start and stop, growing histories, and children
//! that are ended from outside.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use engine::Engine;
use kernel::execution::Status;
use kernel::execution::rerun::Resolution;
use kernel::ids::{ExecutionId, NodeKey};
use kernel::run::node;
use serde_json::{Value, json};
use store::testing::Database;
use store::wait::{AnswerOutcome, WaitKey};
use temporal::{TemporalSettings, testing};

use crate::host::{PROGRAM, settings};
use crate::world::{World, until};

impl World {
    /// Starts an execution of a document, and returns its id.
    async fn begin(&self, process: &crate::host::Process, document: &Value) -> ExecutionId {
        let id = self.enqueue(self.publish(document).await, Value::Null).await;
        self.claim(process.id, &process.engine).await;
        id
    }

    /// Waits until a query counts at least this many rows.
    async fn until_there_are(&self, least: i64, of: &str) {
        let client = self.database.client().await;
        let count = &format!("SELECT count(*) FROM {of}");
        until(of, async || client.query_one(count, &[]).await.expect("a count").get::<_, i64>(0) >= least).await;
    }

    async fn child_of(&self, id: ExecutionId) -> ExecutionId {
        self.until_there_are(1, &format!("workflow_execution WHERE parent = '{id}' AND status = 'RUNNING'")).await;
        self.database.store.children(id, None, 1).await.expect("children")[0].execution
    }

    /// Answers a wait without notifying anybody.
    async fn answer_only(&self, id: ExecutionId, node: &str, data: Value) {
        let place = WaitKey { execution: id, node: NodeKey::new(node).expect("a good name"), iteration: 0 };
        let observed = self.database.store.answer(&place, None, &data, "key:test").await.expect("an answer");
        assert!(matches!(observed, AnswerOutcome::Accepted(Some(_))), "{observed:?}");
    }

    async fn node_of(&self, id: ExecutionId, node: &str) -> (node::Status, Option<Value>, Option<Value>) {
        let nodes = self.database.store.nodes(id).await.expect("nodes");
        let row = nodes.into_iter().find(|row| row.node == node).expect("the node");
        (row.status, row.output, row.error.map(|error| error["type"].clone()))
    }
}

const OPEN: &str = "workflow_execution_wait WHERE status = 'OPEN'";

#[tokio::test]
async fn a_run_that_missed_an_answer_is_notified_until_it_reads_it() {
    let world = World::new().await;
    let process = world.process(settings()).await;
    let document = json!({ "nodes": { "ask": { "kind": "WAIT_FOR_EVENT", "with": {} } }, "outputs": "${{ nodes.ask.output.data }}" });
    let id = world.begin(&process, &document).await;
    world.until_there_are(1, OPEN).await;
    let called =
        async || world.database.store.unread_wakes(temporal::NAME, Duration::ZERO, 10).await.expect("an answer");
    assert_eq!(called().await, [], "no answer arrived yet");
    world.answer_only(id, "ask", json!({ "yes": true })).await;
    assert_eq!(called().await, [id]);
    process.engine.signal(id);
    let ended = world.ended(id).await;
    assert_eq!((ended.status, ended.output), (Status::Completed, Some(json!({ "yes": true }))));
    assert_eq!(called().await, []);
}

/// An answer that arrives while there is no worker is stored in its row, and read once there is one.
#[tokio::test]
async fn a_wait_outlives_its_worker() {
    let (world, settings) = (World::new().await, settings());
    let process = world.process(settings.clone()).await;
    let document = json!({ "nodes": { "ask": { "kind": "WAIT_FOR_EVENT", "with": {} } } });
    let id = world.begin(&process, &document).await;
    world.until_there_are(1, OPEN).await;
    process.worker.stop().await;
    world.answer_only(id, "ask", json!(7)).await;
    process.engine.signal(id);
    let next = world.process(settings).await;
    assert_eq!(world.ended(id).await.status, Status::Completed);
    assert_eq!(world.node_of(id, "ask").await.1.expect("an output")["data"], json!(7));
    next.worker.stop().await;
}

/// The timers of two waits fire while no worker runs, so the next worker gets both at once. The first makes it check
/// both waits and start their next attempts. The second must not be taken for the time of its next attempt.
#[tokio::test]
async fn waits_that_expire_together_are_not_checked_again_and_again() {
    let (world, settings) = (World::new().await, settings());
    let process = world.process(settings.clone()).await;
    let retry = json!({ "max_attempts": 2, "initial": "1s" });
    let does = json!({ "kind": "TASK", "with": { "queue": "nobody" }, "timeout": "5s", "retry": retry });
    let with = json!({ "items": [1, 2], "on_item_error": "continue", "do": does });
    let nodes = json!({ "all": { "kind": "FOR_EACH", "with": with } });
    let document = json!({ "nodes": nodes, "outputs": "${{ nodes.all.output.failed }}" });
    let id = world.begin(&process, &document).await;
    world.until_there_are(2, OPEN).await;
    process.worker.stop().await;
    world.until_there_are(2, "workflow_execution_wait WHERE expires_at < clock_timestamp() - interval '2 s'").await;
    let next = world.process(settings.clone()).await;
    let ended = world.ended(id).await;
    assert_eq!(ended.output, Some(json!(2)), "{:?}", ended.error);
    let history = testing::history(&settings, id).await.expect("a history");
    let checks = history.windows(11).filter(|some| *some == b"check_waits").count();
    assert!(checks <= 6, "{checks} checks of the waits, for two attempts of two items");
    next.worker.stop().await;
}

#[tokio::test]
async fn what_may_be_performed_at_most_once_is_not_performed_again_after_its_worker_left() {
    let (world, settings) = (World::new().await, settings());
    let process = world.process(settings.clone()).await;
    let call = json!({ "kind": "HTTP_REQUEST", "delivery": "at_most_once", "with": { "url": "BASE/slow" } });
    let document =
        json!({ "nodes": { "call": call, "after": { "kind": "LOG", "needs": "call", "with": { "message": "no" } } } });
    let id = world.begin(&process, &document).await;
    world.receiver.until_called("/slow", 1).await;
    process.worker.stop().await;
    let next = world.process(settings).await;
    let ended = world.ended(id).await;
    let class = ended.error.map(|error| error["type"].clone());
    assert_eq!((ended.status, class), (Status::Failed, Some(json!("RESULT_UNKNOWN"))));
    assert_eq!(world.node_of(id, "call").await, (node::Status::Unknown, None, Some(json!("RESULT_UNKNOWN"))));
    assert_eq!(world.node_of(id, "after").await.0, node::Status::Skipped);
    assert_eq!(world.receiver.calls("/slow"), 1, "it is never called again");
    next.worker.stop().await;
}

#[tokio::test]
async fn an_item_that_may_be_performed_at_most_once_ends_its_loop_unknown() {
    let (world, settings) = (World::new().await, settings());
    let process = world.process(settings.clone()).await;
    let does = json!({ "kind": "HTTP_REQUEST", "delivery": "at_most_once", "with": { "url": "BASE/${{ item }}" } });
    let with = json!({ "items": ["ok", "slow", "ok/2"], "parallel": 1, "on_item_error": "continue", "do": does });
    let document = json!({ "nodes": { "all": { "kind": "FOR_EACH", "with": with } } });
    let id = world.begin(&process, &document).await;
    world.receiver.until_called("/slow", 1).await;
    process.worker.stop().await;
    let next = world.process(settings).await;
    assert_eq!(world.ended(id).await.status, Status::Failed);
    assert_eq!(world.node_of(id, "all").await.0, node::Status::Unknown);
    let calls = ["/ok", "/slow", "/ok/2"].map(|path| world.receiver.calls(path));
    assert_eq!(calls, [1, 1, 0], "nothing is repeated, and nothing more is begun");
    next.worker.stop().await;
}

/// The worker is gone when the cancel comes. Nobody can say what became of its call, and the row says that the call had
/// begun.
#[tokio::test]
async fn what_a_dead_worker_had_begun_is_unknown_when_it_is_canceled() {
    let (world, settings) = (World::new().await, settings());
    let process = world.process(settings.clone()).await;
    let call = json!({ "kind": "HTTP_REQUEST", "delivery": "at_most_once", "with": { "url": "BASE/slow" } });
    let document = json!({ "workflows": { "below": { "nodes": { "call": call } } }, "nodes": { "down": { "kind": "WORKFLOW", "with": { "workflow": "below" } } } });
    let id = world.begin(&process, &document).await;
    world.until_there_are(1, "workflow_execution_node WHERE node = 'call' AND status = 'RUNNING' AND once").await;
    process.worker.stop().await;
    world.database.store.cancel(id, world.workspace, "test").await.expect("a cancel");
    process.engine.cancel(id);
    let next = world.process(settings).await;
    assert_eq!(world.ended(id).await.status, Status::Canceled);
    assert_eq!(world.node_of(id, "down").await, (node::Status::Unknown, None, Some(json!("RESULT_UNKNOWN"))));
    next.worker.stop().await;
}

/// A call that no worker accepted was never begun.
#[tokio::test]
async fn what_was_not_begun_is_canceled() {
    let (world, settings) = (World::new().await, settings());
    let process = world.process(TemporalSettings { max_calls: 1, ..settings.clone() }).await;
    let call =
        json!({ "kind": "HTTP_REQUEST", "needs": "first", "delivery": "at_most_once", "with": { "url": "BASE/slow" } });
    let first = json!({ "kind": "LOG", "with": { "message": "first" } });
    let id = world.begin(&process, &json!({ "nodes": { "first": first, "a": call, "b": call } })).await;
    world.until_there_are(1, "workflow_execution_node WHERE status = 'RUNNING'").await;
    world.database.store.cancel(id, world.workspace, "test").await.expect("a cancel");
    process.engine.cancel(id);
    assert_eq!(world.ended(id).await.status, Status::Canceled);
    let mut ends = [world.node_of(id, "a").await.0, world.node_of(id, "b").await.0];
    ends.sort_unstable();
    assert_eq!(ends, [node::Status::Canceled, node::Status::Unknown]);
    process.worker.stop().await;
}

/// Rules that cannot be read, because their table does not exist.
#[tokio::test]
async fn a_call_is_not_noted_as_begun_before_the_rules_of_its_workspace_are_read() {
    let (world, rules) = (World::new().await, Database::empty().await);
    let process = world.process_ruled_by(settings(), rules.store.clone()).await;
    let call = json!({ "kind": "HTTP_REQUEST", "delivery": "at_most_once", "with": { "url": "BASE/ok" } });
    let id = world.begin(&process, &json!({ "nodes": { "call": call } })).await;
    world.until_there_are(1, "workflow_execution_node WHERE node = 'call' AND status = 'RUNNING'").await;
    let asked = "SELECT count(*) FROM pg_stat_activity
                  WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'idle' AND query <> ''";
    let client = rules.client().await;
    until("the rules are asked for", async || {
        client.query_one(asked, &[]).await.expect("a count").get::<_, i64>(0) > 0
    })
    .await;
    let begun = "SELECT count(*) FROM workflow_execution_node WHERE once";
    let row = world.database.client().await.query_one(begun, &[]).await.expect("a count");
    assert_eq!(row.get::<_, i64>(0), 0, "the call was not recorded");
    world.database.store.cancel(id, world.workspace, "test").await.expect("a cancel");
    process.engine.cancel(id);
    assert_eq!(world.ended(id).await.status, Status::Canceled);
    assert_eq!(world.node_of(id, "call").await.0, node::Status::Canceled);
    process.worker.stop().await;
}

/// The cancel comes while the record that the call begins waits for the database.
#[tokio::test]
async fn a_call_that_is_canceled_after_it_was_noted_and_before_it_is_sent_is_canceled() {
    let (world, rules) = (World::new().await, Database::new().await);
    let (locks, gate) = (world.database.client().await, rules.client().await);
    gate.batch_execute("BEGIN; LOCK TABLE workspace").await.expect("a lock");
    let settings = settings();
    let process = world.process_ruled_by(settings.clone(), rules.store.clone()).await;
    let call = json!({ "kind": "HTTP_REQUEST", "delivery": "at_most_once", "with": { "url": "BASE/ok" } });
    let id = world.begin(&process, &json!({ "nodes": { "call": call } })).await;
    world.until_there_are(1, "workflow_execution_node WHERE node = 'call' AND status = 'RUNNING'").await;
    let lock = format!("BEGIN; SELECT 1 FROM workflow_execution WHERE id = '{id}' FOR UPDATE");
    locks.batch_execute(&lock).await.expect("a lock");
    gate.batch_execute("COMMIT").await.expect("a commit");
    let noting = "pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%SET once = true%'";
    world.until_there_are(1, noting).await;
    process.engine.cancel(id);
    until_worker_receives_cancel(&settings, id).await;
    locks.batch_execute("COMMIT").await.expect("a commit");
    world.until_there_are(1, "workflow_execution WHERE completed_at IS NOT NULL").await;
    assert_eq!(world.node_of(id, "call").await.0, node::Status::Canceled);
    assert_eq!(world.receiver.calls("/ok"), 0, "it was not sent");
    process.worker.stop().await;
}

/// A child whose call was lost with its worker: the outcome of its node is unknown, and a loop continues where it was.
#[tokio::test]
async fn what_is_lost_below_is_unknown_above_and_a_loop_goes_on_when_it_is_resolved() {
    let (world, settings) = (World::new().await, settings());
    let process = world.process(settings.clone()).await;
    let call =
        json!({ "kind": "HTTP_REQUEST", "delivery": "at_most_once", "with": { "url": "BASE/${{ inputs.path }}" } });
    let does = json!({ "kind": "WORKFLOW", "with": { "workflow": "below", "input": { "path": "${{ item }}" } } });
    let with = json!({ "items": ["ok/1", "slow", "ok/3"], "parallel": 1, "do": does });
    let document = json!({ "workflows": { "below": { "nodes": { "call": call } } }, "nodes": { "all": { "kind": "FOR_EACH", "with": with } } });
    let definition = world.publish(&document).await;
    let id = world.enqueue(definition, Value::Null).await;
    world.claim(process.id, &process.engine).await;
    world
        .until_there_are(1, "workflow_execution_node WHERE node = 'all' AND iteration = 2 AND status = 'RUNNING'")
        .await;
    world.receiver.until_called("/slow", 1).await;
    process.worker.stop().await;
    let next = world.process(settings).await;
    assert_eq!(world.ended(id).await.status, Status::Failed);
    assert_eq!(world.node_of(id, "all").await.0, node::Status::Unknown);
    assert!(world.rerun_resolved(id, definition, "failed", &[]).await.is_err(), "a person has to decide");
    let again =
        world.rerun_resolved(id, definition, "failed", &[("all", Resolution::Done)]).await.expect("something to run");
    world.claim(next.id, &next.engine).await;
    assert_eq!(world.ended(again).await.status, Status::Completed);
    let output = world.node_of(again, "all").await.1.expect("an output");
    assert_eq!((&output["count"], &output["items"][1]), (&json!(3), &Value::Null));
    assert_eq!(["/ok/1", "/slow", "/ok/3"].map(|path| world.receiver.calls(path)), [1, 1, 1]);
    next.worker.stop().await;
}

/// More items than a history may hold, and a wait that stays open.
#[tokio::test]
async fn a_long_loop_is_continued_as_new_and_no_item_is_performed_twice() {
    testing::lower_long(150);
    let world = World::new().await;
    let process = world.process(settings()).await;
    let items: Vec<usize> = (0..150).collect();
    let does = json!({ "kind": "HTTP_REQUEST", "with": { "url": "BASE/ok/${{ item }}" } });
    let document = json!({ "nodes": {
        "first": { "kind": "LOG", "with": { "message": "first" } },
        "ask": { "kind": "WAIT_FOR_EVENT", "needs": "first", "with": {} },
        "all": { "kind": "FOR_EACH", "needs": "first", "with": { "items": items, "parallel": 8, "do": does } },
        "light": { "kind": "FOR_EACH", "needs": "all", "with": {
            "items": items, "parallel": 20, "do": { "kind": "TRANSFORM", "with": { "value": "${{ item + index }}" } } } },
    }, "outputs": { "calls": "${{ nodes.all.output.count }}", "last": "${{ nodes.light.output.items[149] }}" } });
    let id = world.begin(&process, &document).await;
    world.until_there_are(3, "workflow_execution_node WHERE iteration = 0 AND status = 'COMPLETED'").await;
    world.answer_only(id, "ask", Value::Null).await;
    process.engine.signal(id);
    let ended = world.ended(id).await;
    assert_eq!((ended.status, ended.output), (Status::Completed, Some(json!({ "calls": 150, "last": 298 }))));
    let calls: BTreeSet<usize> = items.iter().map(|item| world.receiver.calls(&format!("/ok/{item}"))).collect();
    assert_eq!(calls, BTreeSet::from([1]), "each is called once");
    assert!(testing::runs(&settings(), id).await.expect("its runs") > 1, "it was never continued as new");
}

/// A root with more items than a history may hold, and a child that waits. Returns the root and its child once all
/// items are done.
async fn long_beside_a_child(world: &World, process: &crate::host::Process) -> (ExecutionId, ExecutionId) {
    testing::lower_long(150);
    let items: Vec<usize> = (0..100).collect();
    let does = json!({ "kind": "HTTP_REQUEST", "with": { "url": "BASE/ok/${{ item }}" } });
    let below = json!({ "nodes": { "ask": { "kind": "WAIT_FOR_EVENT", "with": {} } }, "outputs": "${{ nodes.ask.output.data }}" });
    let document = json!({ "workflows": { "below": below }, "nodes": {
        "first": { "kind": "LOG", "with": { "message": "first" } },
        "child": { "kind": "WORKFLOW", "needs": "first", "with": { "workflow": "below" } },
        "all": { "kind": "FOR_EACH", "needs": "first", "with": { "items": items, "parallel": 8, "do": does } },
    }, "outputs": "${{ nodes.child.output.output }}" });
    let id = world.begin(process, &document).await;
    let child = world.child_of(id).await;
    world
        .until_there_are(1, "workflow_execution_node WHERE node = 'all' AND iteration = 0 AND status = 'COMPLETED'")
        .await;
    assert!(testing::runs(&settings(), id).await.expect("its runs") > 1, "it was never continued as new");
    (id, child)
}

#[tokio::test]
async fn a_history_is_continued_as_new_beside_a_child_that_waits_and_the_next_one_attends_to_it() {
    let world = World::new().await;
    let process = world.process(settings()).await;
    let (id, child) = long_beside_a_child(&world, &process).await;
    world.answer_only(child, "ask", json!(7)).await;
    process.engine.signal(child);
    let ended = world.ended(id).await;
    assert_eq!((ended.status, ended.output), (Status::Completed, Some(json!(7))));
    let children = world.database.store.children(id, None, 10).await.expect("children");
    assert_eq!(children.len(), 1, "the child is the same");
}

#[tokio::test]
async fn a_cancel_reaches_a_child_that_an_earlier_history_started() {
    let world = World::new().await;
    let process = world.process(settings()).await;
    let (id, child) = long_beside_a_child(&world, &process).await;
    world.database.store.cancel(id, world.workspace, "test").await.expect("a cancel");
    process.engine.cancel(id);
    assert_eq!(world.ended(id).await.status, Status::Canceled);
    assert_eq!(world.ended(child).await.status, Status::Canceled);
    let found = testing::described(&settings(), child).await.expect("the child's workflow");
    assert!(found.close_time.is_some(), "the child's workflow is closed before its parent's: {:?}", found.status);
}

/// Only the worker knows the response of a call. Database errors while the worker records it cause no repeat.
#[tokio::test]
async fn the_result_of_a_call_is_stored_until_the_database_has_it() {
    let world = World::new().await;
    let process = world.process(settings()).await;
    let call = |delivery: &str, path: &str| {
        json!({
            "kind": "HTTP_REQUEST", "needs": "first", "delivery": delivery, "with": { "url": format!("BASE{path}") },
        })
    };
    let document = json!({ "nodes": {
        "first": { "kind": "LOG", "with": { "message": "first" } },
        "plain": call("at_least_once", "/late/500/plain"), "once": call("at_most_once", "/late/500/once"),
    } });
    let id = world.begin(&process, &document).await;
    let (plain, once) = ("/late/500/plain", "/late/500/once");
    world.receiver.until_called(plain, 1).await;
    world.receiver.until_called(once, 1).await;
    let client = world.database.client().await;
    client.batch_execute("BEGIN").await.expect("a transaction");
    client.query_one("SELECT 1 FROM workflow_execution WHERE id = $1 FOR UPDATE", &[&id.0]).await.expect("the row");
    // A transaction would not see new rows.
    let observer = world.database.client().await;
    let held = "pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    // Both records fail, and so do their second attempts.
    for _ in 0..2 {
        world.until_there_are(2, held).await;
        observer.batch_execute(&format!("SELECT pg_terminate_backend(pid) FROM {held}")).await.expect("cut");
    }
    client.batch_execute("COMMIT").await.expect("unlocked");
    // Not through the store: a connection of its pool may be one that was cut.
    world.until_there_are(1, "workflow_execution WHERE completed_at IS NOT NULL").await;
    let row = observer.query_one("SELECT status FROM workflow_execution", &[]).await.expect("the execution");
    assert_eq!(row.get::<_, &str>(0), "COMPLETED");
    assert_eq!([plain, once].map(|path| world.receiver.calls(path)), [1, 1], "no call is repeated");
}

#[tokio::test]
async fn a_node_that_panics_fails_with_a_class_of_its_own_and_is_not_tried_again() {
    let world = World::new().await;
    let process = world.process(settings()).await;
    let panics = engine::nodes::PANIC;
    let light = json!({ "nodes": { "say": { "kind": "LOG", "with": { "message": panics } } } });
    let call = json!({ "nodes": { "call": { "kind": "HTTP_REQUEST", "with": { "url": format!("BASE/{panics}") } } } });
    for document in [light, call] {
        let id = world.begin(&process, &document).await;
        let ended = world.ended(id).await;
        let class = ended.error.map(|error| error["type"].clone());
        assert_eq!((ended.status, class), (Status::Failed, Some(json!("PANICKED"))));
    }
}

#[tokio::test]
async fn a_loop_goes_on_with_another_worker_and_repeats_nothing_that_was_recorded() {
    let (world, settings) = (World::new().await, settings());
    let process = world.process(settings.clone()).await;
    let does = json!({ "kind": "HTTP_REQUEST", "with": { "url": "BASE/late/${{ 300 + item }}" } });
    let with = json!({ "items": [0, 1, 2, 3, 4, 5], "parallel": 2, "do": does });
    let id = world.begin(&process, &json!({ "nodes": { "all": { "kind": "FOR_EACH", "with": with } } })).await;
    world.until_there_are(2, "workflow_execution_node WHERE iteration > 0 AND status = 'COMPLETED'").await;
    process.worker.stop().await;
    let key = NodeKey::new("all").expect("a good name");
    let rows = world.database.store.iterations(id, &key, 0, 10).await.expect("items");
    let done: Vec<i32> =
        rows.iter().filter(|row| row.status == node::Status::Completed).map(|row| row.iteration).collect();
    let next = world.process(settings).await;
    let ended = world.ended(id).await;
    assert_eq!((ended.status, done.len() >= 2), (Status::Completed, true));
    for iteration in done {
        let path = format!("/late/{}", 299 + iteration);
        assert_eq!(world.receiver.calls(&path), 1, "{path} was recorded, and performed again");
    }
    next.worker.stop().await;
}

fn parent(below: &str) -> Value {
    json!({
        "workflows": { "below": { "nodes": { "call": { "kind": "HTTP_REQUEST", "with": { "url": format!("BASE{below}") } } } } },
        "nodes": { "down": { "kind": "WORKFLOW", "with": { "workflow": "below" } } },
    })
}

#[tokio::test]
async fn a_child_goes_on_with_another_worker() {
    let (world, settings) = (World::new().await, settings());
    let process = world.process(settings.clone()).await;
    let id = world.begin(&process, &parent("/late/1500")).await;
    let child = world.child_of(id).await;
    process.worker.stop().await;
    let next = world.process(settings).await;
    assert_eq!(world.ended(id).await.status, Status::Completed);
    let children = world.database.store.children(id, None, 10).await.expect("children");
    assert_eq!((children.len(), children[0].execution, children[0].status), (1, child, Status::Completed));
    assert_eq!(world.leftovers().await, (0, 0), "a child holds no slot");
    next.worker.stop().await;
}

/// More children than nodes may be in flight: children that run count as none.
#[tokio::test]
async fn children_that_wait_hold_back_no_other_child_and_no_call() {
    let world = World::new().await;
    let process = world.process(settings()).await;
    let below = json!({ "nodes": { "ask": { "kind": "WAIT_FOR_EVENT", "with": {} } } });
    let items: Vec<usize> = (0..70).collect();
    let does = json!({ "kind": "WORKFLOW", "with": { "workflow": "below" } });
    let document = json!({ "workflows": { "below": below }, "nodes": {
        "first": { "kind": "LOG", "with": { "message": "hi" } },
        "all": { "kind": "FOR_EACH", "needs": "first", "with": { "items": items, "parallel": 100, "do": does } },
        "wait": { "kind": "WAIT_FOR_EVENT", "needs": "first", "with": {} },
        "call": { "kind": "HTTP_REQUEST", "needs": "wait", "with": { "url": "BASE/ok/1" } },
    } });
    let id = world.begin(&process, &document).await;
    world.until_there_are(70, &format!("workflow_execution WHERE parent = '{id}' AND status = 'RUNNING'")).await;
    world.until_there_are(71, OPEN).await;
    world.answer_only(id, "wait", Value::Null).await;
    process.engine.signal(id);
    world.until_there_are(1, "workflow_execution_node WHERE node = 'call' AND status = 'COMPLETED'").await;
    world.database.store.cancel(id, world.workspace, "test").await.expect("a cancel");
    process.engine.cancel(id);
    assert_eq!(world.ended(id).await.status, Status::Canceled);
}

/// Somebody ends the child's workflow by hand, so the child itself records nothing.
#[tokio::test]
async fn a_child_that_is_ended_in_temporal_fails_its_node() {
    let world = World::new().await;
    let process = world.process(settings()).await;
    let id = world.begin(&process, &parent("/slow")).await;
    let child = world.child_of(id).await;
    terminate_in_temporal(&settings(), child);
    let ended = world.ended(id).await;
    let class = ended.error.map(|error| error["type"].clone());
    assert_eq!((ended.status, class), (Status::Failed, Some(json!("ENGINE_LOST"))));
    assert_eq!(world.database.store.execution(child, None).await.expect("the child").status, Status::Failed);
    assert!(world.receiver.is_at_rest().await, "its call continues although its root has ended");
}

/// Describing a root that was ended from outside, as the reconciler does, leaves none of its children open.
#[tokio::test]
async fn a_root_that_is_ended_in_temporal_leaves_no_child_open() {
    let world = World::new().await;
    let process = world.process(settings()).await;
    let id = world.begin(&process, &parent("/slow")).await;
    let child = world.child_of(id).await;
    terminate_in_temporal(&settings(), id);
    let described = process.engine.describe(id).await.expect("an answer");
    assert!(matches!(described, engine::RunDescription::EndedExternally(_)), "{described:?}");
    let found = testing::described(&settings(), child).await.expect("the child's workflow");
    assert!(found.close_time.is_some(), "{:?}", found.status);
}

fn terminate_in_temporal(settings: &TemporalSettings, execution: ExecutionId) {
    temporal_workflow(settings, execution, &["terminate"]);
}

/// Runs a command of Temporal's own on the workflow of an execution; answers with what it prints.
fn temporal_workflow(settings: &TemporalSettings, execution: ExecutionId, command: &[&str]) -> Vec<u8> {
    let program = std::env::var(PROGRAM).unwrap_or_else(|_| panic!("{PROGRAM} is not set: run tests with ./dev/test"));
    let address = settings.address.trim_start_matches("http://");
    let output = Command::new(program)
        .arg("workflow")
        .args(command)
        .args(["--address", address, "--workflow-id", &format!("execution-{execution}")])
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// A worker hears of a cancel in the answer to a heartbeat: waits until Temporal has had two since it knows of the
/// cancel, so that the first was answered.
async fn until_worker_receives_cancel(settings: &TemporalSettings, execution: ExecutionId) {
    let mut beats = BTreeSet::new();
    until("its worker hears of the cancel", async || {
        let observed = temporal_workflow(settings, execution, &["describe", "--output", "json"]);
        let observed: Value = serde_json::from_slice(&observed).expect("JSON");
        let call = &observed["pendingActivities"][0];
        if call["state"]
            .as_str()
            .is_some_and(|state| state.to_uppercase().replace('_', "").ends_with("CANCELREQUESTED"))
        {
            beats.insert(call["lastHeartbeatTime"].to_string());
        }
        // The first may be from before the cancel.
        beats.len() > 2
    })
    .await;
}

#[tokio::test]
async fn a_tree_is_ended_by_force_with_its_root() {
    let world = World::new().await;
    let process = world.process(settings()).await;
    let id = world.begin(&process, &parent("/slow")).await;
    let child = world.child_of(id).await;
    world.database.store.terminate(id, world.workspace, "test").await.expect("fenced");
    process.engine.terminate(id);
    assert_eq!(world.ended(id).await.status, Status::Canceled);
    assert_eq!(world.database.store.execution(child, None).await.expect("the child").status, Status::Canceled);
    assert_eq!(world.leftovers().await, (0, 0));
    for _ in 0..20 {
        if world.receiver.is_at_rest().await {
            return;
        }
    }
    panic!("the child's call continues");
}

#[tokio::test]
async fn a_detached_child_is_a_start_of_its_own() {
    let world = World::new().await;
    let process = world.process(settings()).await;
    let mut document = parent("/ok");
    document["nodes"]["down"]["with"]["detached"] = json!(true);
    let id = world.begin(&process, &document).await;
    assert_eq!(world.ended(id).await.status, Status::Completed);
    let output = world.node_of(id, "down").await.1.expect("an output");
    let other = ExecutionId(output["execution_id"].as_str().and_then(|id| id.parse().ok()).expect("an id"));
    assert_eq!(world.database.store.execution(other, None).await.expect("it").status, Status::Pending);
    world.claim(process.id, &process.engine).await;
    assert_eq!(world.ended(other).await.status, Status::Completed);
}
