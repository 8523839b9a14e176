//! Tests how an execution and its workflow are inspected: log lines, expressions, and differences between versions.

use serde_json::{Value, json};

use crate::support::Shared;
use crate::support::tenant::text;

#[tokio::test]
async fn log_lines_and_failed_attempts_can_be_read() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let retry = json!({ "max_attempts": 2, "initial": "1ms", "max": "1ms" });
    let graph = json!({
        "hello": { "kind": "LOG", "with": { "message": "hi ${{ inputs.name }}", "level": "warn", "data": { "n": 1 } } },
        "call": { "kind": "HTTP_REQUEST", "needs": "hello", "retry": retry, "with": { "url": world.receiver.url("/ok/a"), "expect_status": 201 } },
        "never": { "kind": "LOG", "needs": "call", "with": { "message": "no" } },
    });
    let definition = tenant.apply("talk", graph).await;
    let body = json!({ "workflowDefinitionId": definition, "input": { "name": "Ann" } });
    let id = text(&tenant.api.post("workflow/executions/start", body).await.expect(202)["executionId"]);
    let ended = tenant.ended(&id).await;
    let error = &ended["error"];
    assert_eq!(
        (&ended["status"], &error["node"], &error["type"]),
        (&json!("FAILED"), &json!("call"), &json!("EXECUTION_ERROR"))
    );
    let attempts = error["attempts"].as_array().expect("attempts");
    let observed = |one: &Value| (one["attempt"].clone(), one["at"].is_string(), one["error"]["status"].clone());
    assert_eq!(
        attempts.iter().map(observed).collect::<Vec<_>>(),
        [(json!(1), true, json!(200)), (json!(2), true, json!(200))]
    );
    let path = format!("workflow/executions/{id}/logs");
    let logs = tenant.api.get(&path).await.expect(200);
    let line = |line: &Value| {
        format!("{} {} {} {}", text(&line["source"]), text(&line["level"]), text(&line["node"]), line["attempt"])
    };
    let lines: Vec<String> = logs["items"].as_array().expect("lines").iter().map(line).collect();
    assert_eq!(lines, ["log warn hello 1", "failure error call 1", "failure error call 2"]);
    assert_eq!((&logs["items"][0]["message"], &logs["items"][0]["data"]), (&json!("hi Ann"), &json!({ "n": 1 })));
    assert_eq!(logs["items"][1]["data"]["type"], "EXECUTION_ERROR");
    let failed = tenant.api.get(&format!("{path}?failed=true")).await.expect(200);
    assert_eq!(failed["items"].as_array().map(Vec::len), Some(2));
    assert_eq!(tenant.api.get(&format!("{path}?faild=true")).await.problem(400), "validation_failed");
}

#[tokio::test]
async fn expressions_are_evaluated_on_an_execution_or_an_input() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let graph = json!({
        "call": world.receiver.node("/ok/a"),
        "after": { "kind": "LOG", "needs": "call", "if": "inputs.never", "with": { "message": "no" } },
    });
    let definition = tenant.apply("looked-at", graph).await;
    let body = json!({ "workflowDefinitionId": definition, "input": { "n": 3 } });
    let id = text(&tenant.api.post("workflow/executions/start", body).await.expect(202)["executionId"]);
    tenant.completed(&id).await;
    let evaluate = async |body: Value| tenant.api.post("workflow/expressions/evaluate", body).await;
    for (expression, value, kind) in [
        ("nodes.call.output.status == 200", json!(true), "a boolean"),
        ("nodes.after.status", json!("SKIPPED"), "text"),
        ("n is ${{ inputs.n }} of ${{ execution.workflow }}", json!("n is 3 of looked-at"), "text"),
        ("${{ inputs.n }}", json!(3), "a number"),
        ("nodes.call.output.body", json!({ "call": 1 }), "an object"),
    ] {
        let expected = evaluate(json!({ "expression": expression, "executionId": id })).await.expect(200);
        assert_eq!(expected, json!({ "value": value, "type": kind }), "{expression}");
    }
    let expected =
        evaluate(json!({ "expression": "inputs.n", "executionId": id, "input": { "n": 4 } })).await.expect(200);
    assert_eq!(expected["value"], 4, "another input than it had");
    assert_eq!(evaluate(json!({ "expression": "inputs.n", "input": { "n": 5 } })).await.expect(200)["value"], 5);
    for (expression, expected) in [
        ("inputs.n >", "at offset"),
        ("nodes.cal.output", "the execution has no node cal: use one of call, after"),
        ("somewhere.x", "unknown root somewhere"),
        ("inputs.n.deep", "cannot read field deep of a number"),
    ] {
        let reply = evaluate(json!({ "expression": expression, "executionId": id })).await;
        assert_eq!(reply.problem(422), "validation_failed", "{expression}");
        assert!(reply.text.contains(expected), "{expression}: {}", reply.text);
    }
    let reply = evaluate(json!({ "expression": "nodes.call.output" })).await;
    assert!(reply.problem(422) == "validation_failed" && reply.text.contains("executionId"), "{}", reply.text);
    let stranger = world.tenant("FREE").await;
    let body = json!({ "expression": "inputs.n", "executionId": id });
    assert_eq!(stranger.api.post("workflow/expressions/evaluate", body).await.problem(404), "not_found");
}

#[tokio::test]
async fn two_versions_are_compared_and_one_is_read_whole() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let source = |message: &str| format!("name: talk\nnodes:\n  say: {{kind: LOG, with: {{message: {message}}}}}\n");
    let apply = async |message: &str| {
        let body = json!({ "source": source(message) });
        tenant.api.post("workflow/definitions/apply", body).await.expect(200)
    };
    let id = text(&apply("one").await["definition"]["id"]);
    apply("two").await;
    let path = format!("workflow/definitions/{id}/versions");
    let first = tenant.api.get(&format!("{path}/1")).await.expect(200);
    assert_eq!((&first["version"], &first["source"]), (&json!(1), &json!(source("one"))));
    assert_eq!(first["graph"]["nodes"][0]["with"]["message"], "one");
    let change = json!({ "pointer": "/nodes/say/with/message", "before": "one", "after": "two" });
    let diff = tenant.api.get(&format!("{path}/1/diff")).await.expect(200);
    assert_eq!(diff, json!({ "from": 1, "to": 2, "changes": [change] }));
    assert_eq!(tenant.api.get(&format!("{path}/2/diff?to=2")).await.expect(200)["changes"], json!([]));
    for bad in ["3", "0", "x", "3/diff", "1/diff?to=9"] {
        assert_eq!(tenant.api.get(&format!("{path}/{bad}")).await.problem(404), "not_found", "{bad}");
    }
}
