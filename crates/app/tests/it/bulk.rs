//! Many starts in one request: each start has its own result, in the order of the request, and happens only once.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::http::{Reply, send};
use crate::support::tenant::text;
use crate::support::{Shared, Tenant};

async fn bulk(tenant: &Tenant, key: Option<&str>, items: &[Value]) -> Reply {
    let mut request = tenant.api.request(Method::POST, "workflow/executions/bulk");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    send(request.json(&json!({ "items": items }))).await
}

fn items(reply: Reply) -> Vec<Value> {
    reply.expect(200)["items"].as_array().expect("answers").clone()
}

#[tokio::test]
async fn each_item_has_its_own_answer_and_a_bad_one_spoils_no_other() {
    let world = Shared::new().await;
    let (tenant, other) = (world.tenant("PRO").await, world.tenant("PRO").await);
    let (good, theirs) = (tenant.light().await, other.light().await);
    let start = |definition: &str| json!({ "workflowDefinitionId": definition });
    let all = [
        start(&good),
        json!({ "workflowDefinitionId": good, "typo": 1 }),
        json!({ "workflowDefinitionId": good, "concurrencyKey": "" }),
        start(&theirs),
        json!({ "workflowDefinitionId": good, "workspaceId": other.id }),
        json!("nonsense"),
        json!({ "workflowDefinitionId": good, "input": { "n": 7 } }),
    ];
    let observed = items(bulk(&tenant, None, &all).await);
    let codes: Vec<(u64, &str)> = observed
        .iter()
        .map(|item| (item["status"].as_u64().expect("a status"), item["problem"]["code"].as_str().unwrap_or("")))
        .collect();
    let invalid = (422, "validation_failed");
    assert_eq!(
        codes,
        [(202, ""), invalid, invalid, (404, "not_found"), (403, "workspace_mismatch"), invalid, (202, "")]
    );
    tenant.completed(&text(&observed[0]["started"]["executionId"])).await;
    let last = tenant.completed(&text(&observed[6]["started"]["executionId"])).await;
    assert_eq!(last["input"], json!({ "n": 7 }));
    let stored = (world.count(&tenant, "workflow_execution").await, world.count(&other, "workflow_execution").await);
    assert_eq!(stored, (2, 0));
}

#[tokio::test]
async fn a_thousand_are_started_and_the_same_request_again_starts_none() {
    let world = Shared::new().await;
    let tenant = world.tenant("ENTERPRISE").await;
    let definition = tenant.light().await;
    let all: Vec<Value> =
        (0..1_000).map(|n| json!({ "workflowDefinitionId": definition, "input": { "n": n } })).collect();
    let first = items(bulk(&tenant, Some("k"), &all).await);
    assert!(first.iter().all(|item| item["status"] == 202), "all are accepted");
    let again = items(bulk(&tenant, Some("k"), &all).await);
    let id = |item: &Value| text(&item["started"]["executionId"]);
    assert!(first.iter().zip(&again).all(|(first, again)| id(first) == id(again)), "and known again");
    assert_eq!(world.count(&tenant, "workflow_execution").await, 1_000);
    let item = tenant.completed(&id(&first[417])).await;
    assert_eq!(item["input"], json!({ "n": 417 }), "answers are in the order of the items");
    let mut other = all[..2].to_vec();
    other[1]["input"] = json!("another");
    let observed = items(bulk(&tenant, Some("k"), &other).await);
    assert_eq!(
        (&observed[0]["status"], &observed[1]["problem"]["code"]),
        (&json!(202), &json!("idempotency_conflict"))
    );
    let single = tenant.api.request(Method::POST, "workflow/executions/start").header("idempotency-key", "k/0");
    assert_eq!(text(&send(single.json(&all[0])).await.expect(202)["executionId"]), id(&first[0]), "its key is k/0");
    let long = "k".repeat(200);
    assert_eq!(bulk(&tenant, Some(&long), &all[..1]).await.problem(422), "validation_failed");
}

#[tokio::test]
async fn too_many_or_none_are_refused_and_a_limit_is_each_items_own() {
    let world = Shared::new().await;
    let (tenant, root) = (world.tenant("FREE").await, world.server.api());
    let definition = tenant.light().await;
    let start = json!({ "workflowDefinitionId": definition });
    assert_eq!(bulk(&tenant, None, &vec![start.clone(); 1_001]).await.problem(422), "validation_failed");
    assert_eq!(bulk(&tenant, None, &[]).await.problem(422), "validation_failed");
    let path = format!("workspaces/{}", tenant.id);
    root.post(&format!("{path}/pause"), Value::Null).await.expect(200);
    root.patch(&path, json!({ "maxBacklog": 2 })).await.expect(200);
    let observed = items(bulk(&tenant, None, &vec![start; 4]).await);
    let codes: Vec<&Value> = observed.iter().map(|item| &item["status"]).collect();
    assert_eq!(codes, [202, 202, 429, 429]);
    assert_eq!(observed[3]["problem"]["code"], "queue_full");
    assert_eq!(world.count(&tenant, "workflow_execution").await, 2);
}
