//! Database errors while a run is in progress cost time, and interrupt no call of the run.
//!
//! The test locks the row of an execution, so that a statement of the engine waits there, and cuts that statement's
//! connection. Once the lock is released, the engine's next attempt succeeds.

use engine::Engine;
use kernel::execution::Status;
use kernel::ids::{ExecutionId, NodeKey};
use serde_json::{Value, json};
use store::connect::Client;
use store::wait::WaitKey;

use crate::host::Process;
use crate::world::{World, found, until};

const HELD: &str = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";

fn call(path: &str, once: bool) -> Value {
    let delivery = if once { "at_most_once" } else { "at_least_once" };
    json!({ "kind": "HTTP_REQUEST", "delivery": delivery, "with": { "url": format!("BASE{path}") } })
}

struct Trouble {
    world: World,
    id: ExecutionId,
    process: Process,
    /// Holds the locks.
    client: Client,
    /// Observes the others. A transaction would not see new rows.
    observer: Client,
}

impl Trouble {
    /// Starts a document whose calls are in flight for some seconds, and waits until both are.
    async fn new(mut document: Value) -> Trouble {
        document["nodes"]["plain"] = call("/late/3000/plain", false);
        document["nodes"]["once"] = call("/late/3000/once", true);
        for node in document["nodes"].as_object_mut().expect("nodes").values_mut() {
            node["needs"] = json!("start");
        }
        document["nodes"]["start"] = json!({ "kind": "LOG", "with": { "message": "start" } });
        let world = World::new().await;
        let definition = world.publish(&document).await;
        let id = world.enqueue(definition, json!(null)).await;
        let process = world.process().await;
        world.dispatch(&process).await;
        let (client, observer) = (world.database.client().await, world.database.client().await);
        let trouble = Trouble { world, id, process, client, observer };
        trouble.until_called().await;
        trouble
    }

    async fn until_called(&self) {
        self.world.receiver.until_called("/late/3000/plain", 1).await;
        self.world.receiver.until_called("/late/3000/once", 1).await;
    }

    /// Waits until the child exists and its node makes its call.
    async fn child_calls(&self) {
        let calls = "SELECT count(*) FROM workflow_execution e JOIN workflow_execution_node n ON n.execution_id = e.id
                      WHERE e.parent = $1 AND n.status = 'RUNNING'";
        let count = async || self.observer.query_one(calls, &[&self.id.0]).await.expect("a count").get::<_, i64>(0);
        until("the child calls", async || count().await > 0).await;
    }

    async fn lock(&self) {
        let lock = "SELECT 1 FROM workflow_execution WHERE id = $1 FOR UPDATE";
        self.client.batch_execute("BEGIN").await.expect("a transaction");
        self.client.query_one(lock, &[&self.id.0]).await.expect("the row");
    }

    async fn unlock(&self) {
        self.client.batch_execute("COMMIT").await.expect("a commit");
    }

    /// Cuts the connection of the statement that waits for the lock, and waits until the engine tries again.
    async fn cut(&self) {
        let held = self.until_held(None).await;
        self.observer.execute("SELECT pg_terminate_backend($1)", &[&held]).await.expect("cut");
        self.until_held(Some(held)).await;
    }

    async fn until_held(&self, other: Option<i32>) -> i32 {
        found("a statement waits for the lock", async || {
            let rows = self.observer.query(HELD, &[]).await.expect("a look");
            rows.iter().map(|row| row.get(0)).find(|pid| Some(*pid) != other)
        })
        .await
    }

    async fn answer(&self) {
        let place = WaitKey { execution: self.id, node: NodeKey::new("ask").expect("a key"), iteration: 0 };
        self.world.until_count("workflow_execution_wait WHERE status = 'OPEN'").await;
        self.world.database.store.answer(&place, None, &json!({ "n": 1 }), "key:test").await.expect("an answer");
    }

    /// The run ends by itself, and each call was made once. Not queried through the store: a connection of its pool may
    /// be one that was cut.
    async fn ends_undisturbed(self) {
        let ended = "SELECT status FROM workflow_execution WHERE id = $1 AND completed_at IS NOT NULL";
        let row = found("it ends", async || self.observer.query_opt(ended, &[&self.id.0]).await.expect("a look")).await;
        assert_eq!(row.get::<_, &str>(0), Status::Completed.name());
        let calls = ["/late/3000/plain", "/late/3000/once"].map(|path| self.world.receiver.calls(path));
        assert_eq!(calls, [1, 1], "no call is repeated");
    }
}

fn waits() -> Value {
    json!({ "nodes": { "ask": { "kind": "WAIT_FOR_EVENT" } } })
}

#[tokio::test]
async fn a_connection_that_is_cut_while_an_answer_is_read_disturbs_no_call() {
    let trouble = Trouble::new(waits()).await;
    trouble.answer().await;
    trouble.lock().await;
    trouble.process.engine.signal(trouble.id);
    trouble.cut().await;
    trouble.unlock().await;
    trouble.ends_undisturbed().await;
}

#[tokio::test]
async fn an_answer_that_was_taken_and_whose_reply_was_lost_is_read_again() {
    let trouble = Trouble::new(waits()).await;
    trouble.answer().await;
    trouble.lock().await;
    trouble.process.engine.signal(trouble.id);
    trouble.cut().await;
    // As if the first attempt had been committed.
    let taken = "SELECT count(*) FROM workflow_execution e, forebay_r1.read_answers(e.id, e.owner, e.owner_epoch) a WHERE a.node = 'ask'";
    assert_eq!(trouble.client.query_one(taken, &[]).await.expect("taken").get::<_, i64>(0), 1);
    trouble.unlock().await;
    trouble.ends_undisturbed().await;
}

#[tokio::test]
async fn a_childs_end_that_was_stored_and_whose_reply_was_lost_disturbs_no_call() {
    let below = json!({ "nodes": { "short": call("/late/1000/short", false) } });
    let child = json!({ "kind": "WORKFLOW", "with": { "workflow": "below" } });
    let trouble = Trouble::new(json!({ "workflows": { "below": below }, "nodes": { "child": child } })).await;
    trouble.child_calls().await;
    trouble.lock().await;
    trouble.cut().await;
    // As if the first attempt had been committed.
    let nodes = "UPDATE workflow_execution_node n SET status = 'COMPLETED', seq = 1, completed_at = now(), duration_ms = 1, output = '{}'
                   FROM workflow_execution e WHERE e.parent = $1 AND n.execution_id = e.id";
    let child =
        "UPDATE workflow_execution SET status = 'COMPLETED', completed_at = now(), duration_ms = 1 WHERE parent = $1";
    for sql in [nodes, child] {
        assert_eq!(trouble.client.execute(sql, &[&trouble.id.0]).await.expect("ended"), 1);
    }
    trouble.unlock().await;
    trouble.ends_undisturbed().await;
}
