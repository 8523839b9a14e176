//! Tests what Temporal stores about a start request: memo, search attributes, priority and fairness.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use kernel::execution::Status;
use kernel::ids::ExecutionId;
use kernel::queue::Priority;
use serde_json::{Value, json};
use store::queue::enqueue::Start;
use temporal::{TemporalSettings, testing};
use temporalio_common::protos::temporal::api::common::v1::Payload;
use temporalio_common::protos::temporal::api::workflow::v1::WorkflowExecutionInfo;

use crate::host::{PROGRAM, settings};
use crate::world::{World, until};

/// Decodes a payload that is not encrypted.
fn plain(payload: Option<&Payload>) -> Value {
    payload.map_or(Value::Null, |payload| serde_json::from_slice(&payload.data).expect("JSON"))
}

fn memo(found: &WorkflowExecutionInfo, name: &str) -> Value {
    plain(found.memo.as_ref().and_then(|memo| memo.fields.get(name)))
}

fn attribute(found: &WorkflowExecutionInfo, name: &str) -> Value {
    plain(found.search_attributes.as_ref().and_then(|attributes| attributes.indexed_fields.get(name)))
}

/// Runs an item of high priority in a workspace of weight 7 to its end, and returns Temporal's description of it.
async fn run(world: &World, settings: &TemporalSettings) -> (ExecutionId, String, WorkflowExecutionInfo) {
    let process = world.process(settings.clone()).await;
    let weigh = "UPDATE workspace SET weight = 7";
    world.database.client().await.batch_execute(weigh).await.expect("a weight");
    let document = json!({ "nodes": { "say": { "kind": "LOG", "with": { "message": "hi" } } } });
    let definition = world.publish(&document).await;
    let start = Start {
        execution: ExecutionId(store::new_id()),
        workspace: world.workspace,
        definition,
        input: None,
        priority: Priority::new(1).expect("a priority"),
        run_at: None,
        concurrency_key: None,
        idempotency: None,
        trigger: json!({ "type": "test" }),
        trace: None,
        version: None,
        rerun_of: None,
    };
    let id = start.execution;
    world.database.store.enqueue(&[start], "test").await.expect("accepted");
    world.claim(process.id, &process.engine).await;
    assert_eq!(world.ended(id).await.status, Status::Completed);
    let found = testing::described(settings, id).await.expect("a workflow");
    (id, definition.to_string(), found)
}

#[tokio::test]
async fn memo_attributes_priority_and_fairness_arrive() {
    let world = World::new().await;
    let (id, definition, found) = run(&world, &settings()).await;
    let (item, workspace) = (id.queue_item().to_string(), world.workspace.to_string());
    assert_eq!((memo(&found, "queueItemId"), memo(&found, "workspaceId")), (json!(item), json!(workspace)));
    assert_eq!(attribute(&found, "ForebayWorkspace"), json!(workspace));
    assert_eq!(attribute(&found, "ForebayDefinition"), json!(definition));
    assert_eq!(attribute(&found, "ForebayQueueItem"), json!(item));
    let priority = found.priority.expect("a priority");
    assert_eq!((priority.priority_key, priority.fairness_key, priority.fairness_weight), (1, workspace, 7.0));
}

/// The operator removes them while Forebay runs. If Forebay did not read them again, every start would be refused.
#[tokio::test]
async fn a_search_attribute_that_is_taken_away_fails_no_start() {
    let (server, settings) = UnpreparedNamespace::start().await;
    server.operator(&settings, &["create", "--type", "Keyword"]).await;
    let world = World::new().await;
    let process = world.process(settings.clone()).await;
    let document = json!({ "nodes": { "say": { "kind": "LOG", "with": { "message": "hi" } } } });
    let definition = world.publish(&document).await;
    let mut seen = Vec::new();
    for taken_away in [false, true] {
        if taken_away {
            server.operator(&settings, &["remove", "--yes"]).await;
        }
        let id = world.enqueue(definition, Value::Null).await;
        world.claim(process.id, &process.engine).await;
        assert_eq!(world.ended(id).await.status, Status::Completed);
        let found = testing::described(&settings, id).await.expect("a workflow");
        seen.push(found.search_attributes.is_some_and(|all| all.indexed_fields.contains_key("ForebayWorkspace")));
    }
    assert_eq!(seen, [true, false]);
}

/// A server without Forebay's search attributes. It stops when dropped.
struct UnpreparedNamespace(Child);

impl UnpreparedNamespace {
    async fn start() -> (UnpreparedNamespace, TemporalSettings) {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
        let program =
            std::env::var(PROGRAM).unwrap_or_else(|_| panic!("{PROGRAM} is not set: run tests with ./dev/test"));
        let child = Command::new(program)
            .args(["server", "start-dev", "--headless", "--log-level", "error", "--ip", "127.0.0.1"])
            .args(["--port", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("a server");
        let server = UnpreparedNamespace(child);
        let settings = TemporalSettings { address: format!("http://127.0.0.1:{port}"), ..settings() };
        until("the server answers", async || temporal::WorkflowStarter::connect(&settings).await.is_ok()).await;
        (server, settings)
    }
}

impl UnpreparedNamespace {
    /// Runs an operator command on the attributes, and waits until the server applied it.
    async fn operator(&self, settings: &TemporalSettings, order: &[&str]) {
        let program = std::env::var(PROGRAM).expect("it was started");
        let address = settings.address.trim_start_matches("http://");
        let names = ["ForebayWorkspace", "ForebayDefinition", "ForebayQueueItem"];
        let output = Command::new(program)
            .args(["operator", "search-attribute", order[0], "--address", address])
            .args(&order[1..])
            .args(names.iter().flat_map(|name| ["--name", name]))
            .output()
            .expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for UnpreparedNamespace {
    fn drop(&mut self) {
        let _gone = self.0.kill().and_then(|()| self.0.wait());
    }
}

#[tokio::test]
async fn a_server_without_the_search_attributes_starts_and_runs_all_the_same() {
    let (_server, settings) = UnpreparedNamespace::start().await;
    let world = World::new().await;
    let (id, _, found) = run(&world, &settings).await;
    for name in ["ForebayWorkspace", "ForebayDefinition", "ForebayQueueItem"] {
        assert_eq!(attribute(&found, name), Value::Null, "{name}");
    }
    assert_eq!(memo(&found, "queueItemId"), json!(id.queue_item().to_string()));
    assert_eq!(found.priority.expect("a priority").fairness_key, world.workspace.to_string());
}
