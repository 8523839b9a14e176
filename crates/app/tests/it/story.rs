//! Plays the main use of the service once, from an empty installation to the last execution.

use serde_json::{Value, json};

use crate::support::tenant::text;
use crate::support::{Shared, until};

#[tokio::test]
async fn a_workspace_publishes_a_workflow_and_runs_it_within_its_limit() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let document = json!({ "name": "order", "nodes": {
        "note": { "kind": "TRANSFORM", "with": { "value": "${{ inputs.order }}" } },
        "call": world.receiver.after("note", "/hold/order"),
        "say": { "kind": "LOG", "needs": "call", "with": { "message": "order ${{ nodes.note.output }}" } },
    }, "outputs": { "said": "${{ nodes.say.output.message }}" } });

    let valid = tenant.api.post("workflow/definitions/validate", json!({ "document": document })).await.expect(200);
    assert_eq!((&valid["valid"], &valid["nodes"], &valid["edges"]), (&json!(true), &json!(3), &json!(2)));
    let draft = tenant.api.post("workflow/definitions", json!({ "document": document })).await.expect(201);
    assert_eq!(draft["definition"]["status"], "DRAFT");
    let definition = text(&draft["definition"]["id"]);
    assert_eq!(tenant.try_start(&definition).await.problem(409), "definition_not_published");
    let published = tenant.api.post(&format!("workflow/definitions/{definition}/publish"), json!({})).await.expect(200);
    assert_eq!((&published["definition"]["status"], &published["version"]), (&json!("ACTIVE"), &json!(1)));

    let body = json!({ "workflowDefinitionId": definition, "workspaceId": tenant.id, "input": { "order": 7 } });
    let reply = tenant.api.post("workflow/executions/start", body).await;
    let location = reply.header("location").to_owned();
    let started = reply.expect(202);
    let first = text(&started["executionId"]);
    assert_eq!((&started["queueId"], &started["status"]), (&json!(first), &json!("PENDING")));
    assert_eq!(tenant.api.get(&location).await.expect(200)["id"], json!(first));
    world.receiver.until_called("/hold/order", 1).await;

    let second = tenant.start(&definition).await;
    let third = tenant.start(&definition).await;
    it_waits(&tenant.queue(&second).await, 1, &first);
    it_waits(&tenant.queue(&third).await, 2, &first);
    let waited = tenant.api.get(&format!("workflow/executions/{first}?wait=50ms")).await.expect(200);
    assert_eq!(waited["status"], "RUNNING", "a wait that is over returns the present status");
    assert_eq!(tenant.running().await, 1);

    let canceled = tenant.api.post(&format!("workflow/executions/{third}/cancel"), json!({})).await.expect(200);
    assert_eq!(canceled["status"], "CANCELED", "what waits is canceled immediately");
    world.receiver.open();
    let first = tenant.completed(&first).await;
    assert_eq!(first["output"], json!({ "said": "order 7" }));
    tenant.completed(&second).await;
    assert_eq!(tenant.status(&third).await, "CANCELED");
    assert_eq!(world.receiver.calls("/hold/order").len(), 2, "the third one never ran");
    reported_afterwards(&tenant, &text(&first["id"])).await;
    assert_eq!(tenant.running().await, 0);
    assert_eq!(world.count(&tenant, "execution_queue").await, 0, "no queue item is left");
}

fn it_waits(item: &Value, position: i32, held_by: &str) {
    assert_eq!((&item["status"], &item["position"]), (&json!("PENDING"), &json!(position)), "{item}");
    let message = "the workspace is full: 1 of 1 executions are running";
    assert_eq!(
        item["waiting"],
        json!({
            "reason": "workspace_full", "running": 1, "limit": 1, "heldByExecutionIds": [held_by], "message": message,
        }),
        "{item}"
    );
}

async fn reported_afterwards(tenant: &crate::support::Tenant, id: &str) {
    let all = json!({ "note": "COMPLETED", "call": "COMPLETED", "say": "COMPLETED" });
    assert_eq!(tenant.nodes(id).await, all);
    let summary = tenant.api.get(&format!("workflow/executions/{id}/summary")).await.expect(200);
    assert_eq!((&summary["status"], &summary["phase"]), (&json!("COMPLETED"), &json!("COMPLETED")));
    assert_eq!((&summary["totalNodes"], &summary["nodes"]), (&json!(3), &json!({ "COMPLETED": 3 })));
    let item = tenant.queue(id).await;
    assert_eq!((&item["status"], &item["executionStatus"]), (&json!("GONE"), &json!("COMPLETED")));
}

#[tokio::test]
async fn canceling_a_running_execution_ends_it_and_frees_its_slot() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let nodes = json!({ "call": world.receiver.node("/hold/a"), "after": world.receiver.after("call", "/count/b") });
    let definition = tenant.apply("held", nodes).await;
    let (running, waiting) = (tenant.start(&definition).await, tenant.start(&definition).await);
    world.receiver.until_called("/hold/a", 1).await;
    let path = format!("workflow/executions/{running}/cancel");
    let asked = tenant.api.post(&path, json!({})).await;
    assert!([200, 202].contains(&asked.status), "{}", asked.text);
    let ended = tenant.ended(&running).await;
    assert_eq!(ended["status"], "CANCELED", "{ended}");
    assert_eq!(tenant.nodes(&running).await, json!({ "call": "CANCELED", "after": "CANCELED" }));
    assert_eq!(tenant.api.post(&path, json!({})).await.expect(200)["status"], "CANCELED", "twice is once");
    world.receiver.open();
    tenant.completed(&waiting).await;
    assert_eq!(world.receiver.calls("/count/b").len(), 1);
    assert_eq!(tenant.running().await, 0);
}

#[tokio::test]
async fn another_start_waits_for_its_time_and_priority_goes_first() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let first = tenant.start(&held).await;
    world.receiver.until_called("/hold/a", 1).await;
    let light = tenant.light().await;
    let later = tenant.start(&light).await;
    let urgent = json!({ "workflowDefinitionId": light, "priority": 1 });
    let urgent = text(&tenant.api.post("workflow/executions/start", urgent).await.expect(202)["executionId"]);
    let delayed = json!({ "workflowDefinitionId": light, "runAt": "2100-01-01T00:00:00Z" });
    let delayed = text(&tenant.api.post("workflow/executions/start", delayed).await.expect(202)["executionId"]);
    assert_eq!(tenant.queue(&urgent).await["position"], 1);
    assert_eq!(tenant.queue(&later).await["position"], 2);
    assert_eq!(tenant.queue(&delayed).await["waiting"]["reason"], "delayed_until");
    world.receiver.open();
    for id in [&first, &urgent, &later] {
        tenant.completed(id).await;
    }
    let (urgent, later) = (tenant.execution(&urgent).await, tenant.execution(&later).await);
    assert!(text(&urgent["startedAt"]) <= text(&later["startedAt"]), "{urgent} {later}");
    assert_eq!(tenant.status(&delayed).await, "PENDING");
}

#[tokio::test]
async fn raising_a_limit_lets_what_waits_go() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let all = tenant.start_many(&held, 3).await;
    world.receiver.until_called("/hold/a", 1).await;
    let root = world.server.api();
    root.patch(&format!("workspaces/{}", tenant.id), json!({ "tier": "PRO" })).await.expect(200);
    world.receiver.until_called("/hold/a", 3).await;
    until("three run", async || (tenant.running().await == 3).then_some(())).await;
    world.receiver.open();
    for id in &all {
        tenant.completed(id).await;
    }
}
