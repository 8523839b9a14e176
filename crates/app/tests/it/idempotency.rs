//! A start request with an idempotency key creates one execution, however often and by however many clients it is sent.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::http::{Reply, send};
use crate::support::tenant::text;
use crate::support::{Shared, Tenant, until};

async fn start(tenant: &Tenant, key: &str, body: &Value) -> Reply {
    let request = tenant.api.request(Method::POST, "workflow/executions/start").header("idempotency-key", key);
    send(request.json(body)).await
}

#[tokio::test]
async fn the_same_key_and_body_is_the_same_execution_and_another_body_is_refused() {
    let world = Shared::new().await;
    let (tenant, other) = (world.tenant("FREE").await, world.tenant("FREE").await);
    let definition = tenant.light().await;
    let body = json!({ "workflowDefinitionId": definition, "input": { "a": 1, "b": [2] } });
    let reply = start(&tenant, "k", &body).await;
    let location = reply.header("location").to_owned();
    let first = reply.expect(202);
    let same = json!({ "input": { "b": [2], "a": 1 }, "workflowDefinitionId": definition });
    let again = start(&tenant, "k", &same).await;
    assert_eq!(again.header("location"), location);
    assert_eq!(again.expect(202)["executionId"], first["executionId"], "in any order of fields");
    tenant.completed(&text(&first["executionId"])).await;
    let late = start(&tenant, "k", &body).await.expect(202);
    assert_eq!((&late["executionId"], &late["status"]), (&first["executionId"], &json!("COMPLETED")));
    let different = json!({ "workflowDefinitionId": definition, "input": { "a": 2 } });
    assert_eq!(start(&tenant, "k", &different).await.problem(422), "idempotency_conflict");
    let fresh = start(&tenant, "k2", &body).await.expect(202);
    assert_ne!(fresh["executionId"], first["executionId"]);
    let theirs = json!({ "workflowDefinitionId": other.light().await });
    start(&other, "k", &theirs).await.expect(202);
    let stored = (world.count(&tenant, "workflow_execution").await, world.count(&other, "workflow_execution").await);
    assert_eq!(stored, (2, 1), "keys belong to their workspace");
    for key in ["", " ", &"k".repeat(201), "ü"] {
        assert_eq!(start(&tenant, key, &body).await.problem(422), "validation_failed", "{key:?}");
    }
}

#[tokio::test]
async fn twenty_at_once_with_one_key_start_one_execution() {
    let world = Shared::new().await;
    let tenant = world.tenant("PRO").await;
    let definition = tenant.apply("count", json!({ "call": world.receiver.node("/count/a") })).await;
    let body = json!({ "workflowDefinitionId": definition });
    let all: Vec<_> = (0..20)
        .map(|_| {
            let (tenant, body) = (tenant.clone(), body.clone());
            tokio::spawn(async move { start(&tenant, "one", &body).await })
        })
        .collect();
    let mut ids = Vec::new();
    for one in all {
        ids.push(text(&one.await.expect("no panic").expect(202)["executionId"]));
    }
    ids.dedup();
    assert_eq!(ids.len(), 1, "{ids:?}");
    tenant.completed(&ids[0]).await;
    assert_eq!((world.count(&tenant, "workflow_execution").await, world.receiver.calls("/count/a").len()), (1, 1));
}

#[tokio::test]
async fn a_key_that_the_service_derives_cannot_be_taken_by_a_client() {
    let world = Shared::new().await;
    let tenant = world.tenant("PRO").await;
    let light = tenant.light().await;
    let detached = json!({ "start": { "kind": "WORKFLOW", "with": { "workflow": "light", "detached": true } } });
    let parent = tenant.start(&tenant.apply("parent", detached).await).await;
    tenant.completed(&parent).await;
    tenant.api.post("bindings", json!({ "eventType": "x.y", "workflowDefinitionId": light })).await.expect(201);
    let event = json!({ "type": "x.y", "streamId": parent, "streamType": "s" });
    tenant.api.post("events", json!({ "events": [event] })).await.expect(200);
    let times = json!({ "workflowDefinitionId": light, "cron": "*/10 * * * * *" });
    let schedule = text(&tenant.api.post("schedules", times).await.expect(201)["id"]);
    let keys = "SELECT DISTINCT ON (split_part(idempotency_key, ':', 1), left(idempotency_key, 5)) idempotency_key
        FROM workflow_execution WHERE idempotency_key IS NOT NULL AND workspace_id::text = $1";
    let client = world.database.client().await;
    let derived: Vec<String> = until("a node, an event and a schedule have started it", async || {
        let rows = client.query(keys, &[&tenant.id]).await.expect("keys");
        let keys: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        ["node/", "event:", "schedule:"]
            .iter()
            .all(|prefix| keys.iter().any(|key| key.starts_with(prefix)))
            .then_some(keys)
    })
    .await;
    let trigger = format!("trigger/{schedule}/delivery-1");
    for key in derived.iter().chain([&trigger]) {
        let reply = start(&tenant, key, &json!({ "workflowDefinitionId": light })).await;
        assert_eq!(reply.problem(422), "validation_failed", "{key}");
        assert!(reply.text.contains("Idempotency-Key"), "{key}: {}", reply.text);
        let call = format!("SELECT forebay.enqueue('{}', '{light}', idempotency_key => '{key}')", tenant.id);
        let error = client.execute(&call, &[]).await.expect_err("refused");
        assert_eq!(error.code().map(|code| code.code()), Some("23514"), "{key}: {error:?}");
    }
    for key in ["trigger/mine/1", "event:42/1", "schedule:daily/1"] {
        start(&tenant, key, &json!({ "workflowDefinitionId": light })).await.expect(202);
    }
}
