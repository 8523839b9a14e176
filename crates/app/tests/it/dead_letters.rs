//! Dead letters over HTTP are listed in pages, rerun and dismissed.

use serde_json::{Value, json};

use crate::support::tenant::text;
use crate::support::{Shared, World};

#[tokio::test]
async fn dead_letters_are_listed_in_pages_run_again_and_dismissed() {
    let world = World::new().await;
    let (tenant, other, root) = (world.tenant("PRO").await, world.tenant("PRO").await, world.server.api());
    let broken = json!({ "stop": { "kind": "FAIL", "with": { "message": "no" } } });
    let (one, two) = (tenant.apply("one", broken.clone()).await, tenant.apply("two", broken.clone()).await);
    let theirs = other.apply("theirs", broken).await;
    let mut all = tenant.start_many(&one, 3).await;
    all.extend(tenant.start_many(&two, 1).await);
    for id in &all {
        assert_eq!(tenant.ended(id).await["status"], "FAILED");
    }
    other.ended(&other.start(&theirs).await).await;
    all.reverse();
    let ids = |page: &Value| -> Vec<String> {
        page["items"].as_array().expect("a page").iter().map(|item| text(&item["queueId"])).collect()
    };
    let letters = tenant.api.get("workflow/queue?status=FAILED").await.expect(200);
    assert_eq!(ids(&letters), all);
    let letter = &letters["items"][0];
    assert_eq!((&letter["lastError"], &letter["workflowName"]), (&json!("no"), &json!("two")), "{letter}");
    let first = tenant.api.get("workflow/queue?status=FAILED&limit=3").await.expect(200);
    let rest = format!("workflow/queue?status=FAILED&limit=3&cursor={}", text(&first["nextCursor"]));
    let rest = tenant.api.get(&rest).await.expect(200);
    assert_eq!((ids(&first), ids(&rest)), (all[..3].to_vec(), all[3..].to_vec()));
    let whole = tenant.api.get("workflow/queue?status=FAILED&limit=4").await.expect(200);
    assert!(whole["nextCursor"].is_null(), "a full page that is the last says so: {whole}");
    assert!(rest["nextCursor"].is_null(), "{rest}");
    let by = |more: &str| format!("workflow/queue?status=FAILED&{more}");
    assert_eq!(ids(&tenant.api.get(&by(&format!("workflowDefinitionId={one}"))).await.expect(200)), all[1..]);
    assert_eq!(ids(&root.get("workflow/queue?status=FAILED").await.expect(200)).len(), 5);
    let of = by(&format!("workspaceId={}", tenant.id));
    assert_eq!(ids(&root.get(&of).await.expect(200)), all);
    assert_eq!(other.api.get(&of).await.problem(403), "workspace_mismatch");
    let foreign = tenant.api.get("workflow/executions?limit=1").await.expect(200);
    let foreign = by(&format!("cursor={}", text(&foreign["nextCursor"])));
    for path in ["workflow/queue", "workflow/queue?status=PENDING", &by("limit=0"), &by("limit=201"), &foreign] {
        assert_eq!(tenant.api.get(path).await.problem(422), "validation_failed", "{path}");
    }
    let again = tenant.api.post(&format!("workflow/executions/{}/rerun", all[0]), json!({})).await.expect(202);
    assert_eq!(tenant.ended(&text(&again["executionId"])).await["rerunOfExecutionId"], json!(all[0]));
    let dismiss = format!("workflow/queue/{}/dismiss", all[0]);
    assert_eq!(other.api.post(&dismiss, Value::Null).await.problem(404), "not_found");
    assert_eq!(tenant.api.post(&dismiss, Value::Null).await.status, 204);
    assert_eq!(tenant.api.post(&dismiss, Value::Null).await.problem(404), "not_found");
    assert_eq!(root.post(&format!("workflow/queue/{}/dismiss", all[1]), Value::Null).await.status, 204);
    assert_eq!(tenant.queue(&all[0]).await["status"], "GONE");
    assert_eq!(tenant.status(&all[0]).await, "FAILED", "the record stays");
}

#[tokio::test]
async fn only_failed_items_can_be_dismissed() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    for id in tenant.start_many(&held, 2).await {
        let reply = tenant.api.post(&format!("workflow/queue/{id}/dismiss"), Value::Null).await;
        assert_eq!(reply.problem(409), "conflict");
    }
    assert_eq!(world.count(&tenant, "execution_queue").await, 2);
}
