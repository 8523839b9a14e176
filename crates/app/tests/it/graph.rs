//! Graphs over HTTP: every format has its content type. A graph is drawn without statuses for a workflow, and with the
//! statuses of the nodes for an execution.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::Shared;
use crate::support::http::{Reply, send};
use crate::support::tenant::{Tenant, text};

const FORMATS: [(&str, &str, &str); 5] = [
    ("json", "application/json", "{\"name\":\"orders\""),
    ("svg", "image/svg+xml", "<svg xmlns=\"http://www.w3.org/2000/svg\""),
    ("mermaid", "text/plain; charset=utf-8", "flowchart TD\n"),
    ("dot", "text/vnd.graphviz; charset=utf-8", "digraph \"orders\" {\n"),
    ("text", "text/plain; charset=utf-8", ""),
];

/// A decision that always goes one way, and a failure that the graph goes on from.
fn nodes() -> Value {
    let log = |needs: &str| json!({ "kind": "LOG", "needs": needs, "with": { "message": "m" } });
    json!({
        "order": { "kind": "TRANSFORM", "with": { "value": 1 }, "description": "<script>alert(1)</script>" },
        "is_large": { "kind": "CONDITION", "needs": "order", "with": { "if": "nodes.order.output > 1000" } },
        "review": log("is_large.true"),
        "charge": { "kind": "FAIL", "needs": "is_large.false", "on_error": "continue", "with": { "message": "no" } },
        "apologise": log("charge.error"),
    })
}

async fn graph(tenant: &Tenant, of: &str, query: &str) -> Reply {
    tenant.api.get(&format!("workflow/{of}/graph?{query}")).await
}

#[tokio::test]
async fn a_definition_is_drawn_in_every_form_before_any_run() {
    let world = Shared::new().await;
    let tenant = world.tenant("PRO").await;
    let of = format!("definitions/{}", tenant.apply("orders", nodes()).await);
    for (format, kind, start) in FORMATS {
        let reply = graph(&tenant, &of, &format!("format={format}")).await;
        assert_eq!((reply.status, reply.header("content-type")), (200, kind), "{}", reply.text);
        assert_eq!(reply.header("x-content-type-options"), "nosniff");
        assert!(reply.text.starts_with(start), "{}", reply.text);
        assert!(reply.text.contains("apologise"), "{}", reply.text);
        let has_status = ["✓", "\"status\":", "data-status=\""].iter().any(|sign| reply.text.contains(sign));
        assert!(!has_status, "{}", reply.text);
    }
    let svg = graph(&tenant, &of, "format=svg").await;
    let policy = svg.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-") && policy.ends_with("sandbox"), "{policy}");
    assert!(!svg.text.contains("<script"), "{}", svg.text);
    assert!(svg.text.contains("&lt;script&gt;"), "{}", svg.text);
    let plain = graph(&tenant, &of, "").await.expect(200);
    assert_eq!(plain["nodes"].as_array().expect("nodes").len(), 5);
    let asked = tenant.api.request(Method::GET, &format!("workflow/{of}/graph")).header("accept", "image/svg+xml");
    assert_eq!(send(asked).await.text, svg.text);
}

#[tokio::test]
async fn an_execution_is_drawn_with_how_its_nodes_stand() {
    let world = Shared::new().await;
    let tenant = world.tenant("PRO").await;
    let definition = tenant.apply("orders", nodes()).await;
    let execution = tenant.start(&definition).await;
    tenant.completed(&execution).await;
    // Another version since then changes nothing: the execution's own is drawn.
    tenant.apply("orders", json!({ "other": { "kind": "LOG", "with": { "message": "m" } } })).await;
    let of = format!("executions/{execution}");
    let drawn = graph(&tenant, &of, "").await.expect(200);
    let items = |name: &str| drawn[name].as_array().expect("a list").clone();
    let nodes: Vec<String> =
        items("nodes").iter().map(|node| format!("{} {}", text(&node["key"]), text(&node["status"]))).collect();
    assert_eq!(
        nodes,
        ["order COMPLETED", "is_large COMPLETED", "review SKIPPED", "charge FAILED", "apologise COMPLETED"]
    );
    assert_eq!(items("nodes")[1]["took"], "false");
    let edges: Vec<String> =
        items("edges").iter().map(|edge| format!("{} {}", text(&edge["to"]), edge["taken"])).collect();
    assert_eq!(edges, ["is_large true", "review false", "charge true", "apologise true"]);
    for (format, kind, start) in FORMATS {
        let reply = graph(&tenant, &of, &format!("format={format}")).await;
        assert_eq!((reply.status, reply.header("content-type")), (200, kind), "{}", reply.text);
        assert!(reply.text.starts_with(start), "{}", reply.text);
        for word in ["COMPLETED", "SKIPPED", "FAILED"] {
            assert!(reply.text.contains(word), "{format}: {word}\n{}", reply.text);
        }
    }
    let svg = graph(&tenant, &of, "format=svg").await.text;
    assert!(svg.contains("id=\"node-review\" class=\"node\" href=\"#node-review\" data-status=\"SKIPPED\""), "{svg}");
    // Nothing of it has begun: it is drawn all the same.
    world.server.api().post(&format!("workspaces/{}/pause", tenant.id), json!({})).await.expect(200);
    let waiting = tenant.start(&definition).await;
    let drawn = graph(&tenant, &format!("executions/{waiting}"), "").await.expect(200);
    assert_eq!((&drawn["nodes"][0]["status"], &drawn["nodes"][0]["key"]), (&json!("PENDING"), &json!("other")));
}

#[tokio::test]
async fn a_version_may_be_chosen_and_what_is_not_there_is_said() {
    let world = Shared::new().await;
    let tenant = world.tenant("PRO").await;
    let id = tenant.apply("orders", nodes()).await;
    tenant.apply("orders", json!({ "other": { "kind": "LOG", "with": { "message": "m" } } })).await;
    let draft = json!({ "document": { "nodes": { "third": { "kind": "LOG", "with": { "message": "m" } } } } });
    tenant.api.post(&format!("workflow/definitions/{id}/versions"), draft).await.expect(201);
    let of = format!("definitions/{id}");
    for (query, first) in [("version=1", "order"), ("version=2", "other"), ("version=3", "third"), ("", "other")] {
        let drawn = graph(&tenant, &of, query).await.expect(200);
        assert_eq!(drawn["nodes"][0]["key"], first, "{query}");
        assert_eq!(drawn["name"], "orders");
    }
    assert_eq!(graph(&tenant, &of, "version=4").await.problem(404), "not_found");
    assert_eq!(graph(&tenant, &of, "format=png").await.problem(400), "validation_failed");
    assert_eq!(graph(&tenant, &of, "version=x").await.problem(400), "validation_failed");
    assert_eq!(graph(&tenant, &of, "colour=red").await.problem(400), "validation_failed");
    // A definition that was never published is drawn as its draft.
    let body =
        json!({ "document": { "name": "draft", "nodes": { "only": { "kind": "LOG", "with": { "message": "m" } } } } });
    let made = tenant.api.post("workflow/definitions", body).await.expect(201);
    let drawn = graph(&tenant, &format!("definitions/{}", text(&made["definition"]["id"])), "").await.expect(200);
    assert_eq!(drawn["nodes"][0]["key"], "only");
}
