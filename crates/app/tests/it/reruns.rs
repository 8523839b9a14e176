//! An execution is rerun from its failed nodes, or from a given node. Results that are kept are neither computed again
//! nor lost.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::Shared;
use crate::support::http::send;
use crate::support::tenant::{Tenant, text};

async fn rerun(tenant: &Tenant, of: &str, body: Value) -> String {
    text(&tenant.api.post(&format!("workflow/executions/{of}/rerun"), body).await.expect(202)["executionId"])
}

async fn nodes(tenant: &Tenant, id: &str) -> Vec<Value> {
    let nodes = tenant.api.get(&format!("workflow/executions/{id}/nodes")).await.expect(200);
    nodes["items"].as_array().expect("a list").clone()
}

/// Each node with its status, and whether it was kept.
async fn node_lines(tenant: &Tenant, id: &str) -> Vec<String> {
    let line = |node: &Value| {
        let kept = if node["keptFromExecutionId"].is_null() { "" } else { " kept" };
        format!("{} {}{kept}", text(&node["node"]), text(&node["status"]))
    };
    nodes(tenant, id).await.iter().map(line).collect()
}

#[tokio::test]
async fn from_what_failed_nothing_that_completed_is_called_again() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let graph = json!({
        "first": world.receiver.node("/ok/first"),
        "check": { "kind": "FAIL", "needs": "first", "if": "inputs.bad", "with": { "message": "no" } },
        "last": { "kind": "LOG", "needs": ["first", "check"], "when": "all_done",
                  "with": { "message": "${{ nodes.first.output.status }}" } },
    });
    let definition = tenant.apply("pay", graph).await;
    let body = json!({ "workflowDefinitionId": definition, "input": { "bad": true } });
    let first = text(&tenant.api.post("workflow/executions/start", body).await.expect(202)["executionId"]);
    assert_eq!(tenant.ended(&first).await["status"], "FAILED");
    let again = rerun(&tenant, &first, json!({ "from": "failed", "input": { "bad": false } })).await;
    let ended = tenant.completed(&again).await;
    assert_eq!((&ended["rerunOfExecutionId"], &ended["trigger"]["kept"]), (&json!(first), &json!(1)));
    assert_eq!(node_lines(&tenant, &again).await, ["first COMPLETED kept", "check SKIPPED", "last COMPLETED"]);
    assert_eq!(world.receiver.calls("/ok/first").len(), 1, "what completed is not called again");
    let kept = &nodes(&tenant, &again).await[0];
    assert_eq!(kept["keptFromExecutionId"], json!(first));
    assert_eq!(kept["output"], nodes(&tenant, &first).await[0]["output"]);
    // A rerun of a rerun still says where it came from.
    let third = rerun(&tenant, &again, json!({ "from": "node", "node": "last" })).await;
    tenant.completed(&third).await;
    assert_eq!(nodes(&tenant, &third).await[0]["keptFromExecutionId"], json!(first));
    assert_eq!(world.receiver.calls("/ok/first").len(), 1);
}

#[tokio::test]
async fn in_the_latest_version_what_changed_is_done_anew() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let graph = |message: &str, fails: bool| {
        json!({
            "a": world.receiver.node("/ok/a"),
            "b": { "kind": "LOG", "needs": "a", "with": { "message": message } },
            "c": world.receiver.after("a", "/ok/c"),
            "d": { "kind": "FAIL", "needs": ["b", "c"], "if": fails, "with": { "message": "no" } },
        })
    };
    let definition = tenant.apply("mend", graph("one", true)).await;
    let first = tenant.start(&definition).await;
    assert_eq!(tenant.ended(&first).await["status"], "FAILED");
    tenant.apply("mend", graph("two", false)).await;
    let again = rerun(&tenant, &first, json!({ "from": "failed", "version": "latest" })).await;
    assert_eq!(tenant.completed(&again).await["version"], 2);
    assert_eq!(node_lines(&tenant, &again).await, ["a COMPLETED kept", "c COMPLETED kept", "b COMPLETED", "d SKIPPED"]);
    assert_eq!((world.receiver.calls("/ok/a").len(), world.receiver.calls("/ok/c").len()), (1, 1));
}

#[tokio::test]
async fn a_rerun_that_keeps_nodes_is_accepted_once() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let graph = json!({ "a": world.receiver.node("/ok/a"), "b": world.receiver.after("a", "/ok/b") });
    let definition = tenant.apply("twice", graph).await;
    let first = tenant.start(&definition).await;
    tenant.completed(&first).await;
    let path = format!("workflow/executions/{first}/rerun");
    let body = json!({ "from": "node", "node": "b" });
    let again = async || send(tenant.api.request(Method::POST, &path).header("idempotency-key", "k").json(&body)).await;
    let one = again().await.expect(202);
    assert_eq!(again().await.expect(202)["executionId"], one["executionId"]);
    let id = text(&one["executionId"]);
    tenant.completed(&id).await;
    assert_eq!(node_lines(&tenant, &id).await, ["a COMPLETED kept", "b COMPLETED"]);
    assert_eq!((world.receiver.calls("/ok/a").len(), world.receiver.calls("/ok/b").len()), (1, 2));
    assert_eq!(world.count(&tenant, "workflow_execution").await, 2);
}

#[tokio::test]
async fn a_rerun_that_keeps_nodes_is_judged_by_its_versions_inputs() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let source = "name: judged
inputs: {n: {type: integer, required: true}, word: {type: string, default: hi}}
nodes:
  a: {kind: LOG, with: {message: a}}
  b: {kind: FAIL, needs: a, if: inputs.n > 1, with: {message: too much}}
";
    let applied = tenant.api.post("workflow/definitions/apply", json!({ "source": source })).await.expect(200);
    let body = json!({ "workflowDefinitionId": applied["definition"]["id"], "input": { "n": 2 } });
    let first = text(&tenant.api.post("workflow/executions/start", body).await.expect(202)["executionId"]);
    assert_eq!(tenant.ended(&first).await["status"], "FAILED");
    let path = format!("workflow/executions/{first}/rerun");
    let refused = tenant.api.post(&path, json!({ "from": "failed", "input": { "n": "x" } })).await;
    assert_eq!(refused.problem(422), "validation_failed", "{}", refused.text);
    let again = rerun(&tenant, &first, json!({ "from": "failed", "input": { "n": 1 } })).await;
    assert_eq!(tenant.completed(&again).await["input"], json!({ "n": 1, "word": "hi" }), "defaults are filled in");
    assert_eq!(node_lines(&tenant, &again).await, ["a COMPLETED kept", "b SKIPPED"]);
}
