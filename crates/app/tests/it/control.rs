//! Waiting items can be paused, resumed, deleted and limited, and an item always reports why it waits.

use serde_json::{Value, json};

use crate::support::tenant::text;
use crate::support::{Shared, World, until};

/// Far enough away that only hints can be what moved anything.
const SLOW_POLL: &str = "dispatch.poll_interval_ms=60000";

#[tokio::test]
async fn a_paused_workspace_waits_says_so_and_goes_on_at_once() {
    let world = World::with(&[SLOW_POLL]).await;
    let (tenant, root) = (world.tenant("FREE").await, world.server.api());
    let definition = tenant.light().await;
    let path = format!("workspaces/{}", tenant.id);
    for _ in 0..2 {
        let paused = root.post(&format!("{path}/pause"), Value::Null).await.expect(200);
        assert_eq!(paused["paused"], true);
    }
    let id = tenant.start(&definition).await;
    let item = tenant.queue(&id).await;
    assert_eq!(
        (&item["status"], &item["waiting"]["reason"]),
        (&json!("PENDING"), &json!("workspace_paused")),
        "{item}"
    );
    assert_eq!(tenant.api.post(&format!("{path}/resume"), Value::Null).await.problem(403), "forbidden");
    assert_eq!(tenant.status(&id).await, "PENDING", "a tenant does not undo what the operator decided");
    root.post(&format!("{path}/resume"), Value::Null).await.expect(200);
    tenant.completed(&id).await;
    assert_eq!(world.count("activity WHERE action IN ('workspace.pause', 'workspace.resume')").await, 2);
}

#[tokio::test]
async fn a_paused_definition_waits_says_so_and_goes_on_at_once() {
    let world = World::with(&[SLOW_POLL]).await;
    let tenant = world.tenant("PRO").await;
    let definition = tenant.light().await;
    let path = format!("workflow/definitions/{definition}");
    let paused = tenant.api.post(&format!("{path}/pause"), Value::Null).await.expect(200);
    assert_eq!(paused["status"], "PAUSED");
    let all = tenant.start_many(&definition, 3).await;
    let item = tenant.queue(&all[0]).await;
    assert_eq!(item["waiting"]["reason"], "definition_paused", "{item}");
    let other = tenant.apply("other", json!({ "say": { "kind": "LOG", "with": { "message": "hi" } } })).await;
    tenant.completed(&tenant.start(&other).await).await;
    for _ in 0..2 {
        let resumed = tenant.api.post(&format!("{path}/resume"), Value::Null).await.expect(200);
        assert_eq!(resumed["status"], "ACTIVE");
    }
    for id in &all {
        tenant.completed(id).await;
    }
    let draft = json!({ "document": { "name": "draft", "nodes": {} } });
    let draft = text(&tenant.api.post("workflow/definitions", draft).await.expect(201)["definition"]["id"]);
    let observed = tenant.api.post(&format!("workflow/definitions/{draft}/pause"), Value::Null).await;
    assert_eq!(observed.problem(409), "definition_not_published");
}

#[tokio::test]
async fn a_deleted_definition_fails_what_waits_and_lets_what_runs_go_on() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let running = tenant.start(&held).await;
    world.receiver.until_called("/hold/a", 1).await;
    let waiting = tenant.start_many(&held, 3).await;
    let later = json!({ "workflowDefinitionId": held, "runAt": "2999-01-01T00:00:00Z" });
    let delayed = text(&tenant.api.post("workflow/executions/start", later).await.expect(202)["executionId"]);
    let keyed = json!({ "workflowDefinitionId": held, "concurrencyKey": "k" });
    let keyed = text(&tenant.api.post("workflow/executions/start", keyed).await.expect(202)["executionId"]);
    let path = format!("workflow/definitions/{held}");
    assert_eq!(tenant.api.delete(&path).await.status, 204);
    assert_eq!(tenant.api.delete(&path).await.problem(404), "not_found");
    assert_eq!(tenant.try_start(&held).await.problem(404), "not_found");
    for id in waiting.iter().chain([&delayed, &keyed]) {
        let ended = tenant.ended(id).await;
        assert_eq!(
            (&ended["status"], &ended["error"]["type"]),
            (&json!("FAILED"), &json!("DEFINITION_GONE")),
            "{ended}"
        );
    }
    assert_eq!(tenant.status(&running).await, "RUNNING");
    world.receiver.open();
    tenant.completed(&running).await;
    assert_eq!(world.count(&tenant, "activity WHERE action = 'definition.delete'").await, 1);
}

#[tokio::test]
async fn a_deleted_workspace_fails_what_waits_cancels_what_runs_and_its_key_opens_nothing() {
    let world = Shared::new().await;
    let (tenant, root) = (world.tenant("FREE").await, world.server.api());
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let running = tenant.start(&held).await;
    world.receiver.until_called("/hold/a", 1).await;
    let waiting = tenant.start_many(&held, 3).await;
    let path = format!("workspaces/{}", tenant.id);
    assert_eq!(tenant.api.delete(&path).await.problem(403), "forbidden");
    assert_eq!(root.delete(&path).await.status, 204);
    assert_eq!(root.delete(&path).await.problem(404), "not_found");
    let ended = async |id: &str| {
        until("it ends", async || {
            let execution = root.get(&format!("workflow/executions/{id}")).await.expect(200);
            (!execution["completedAt"].is_null()).then_some(execution)
        })
        .await
    };
    for id in &waiting {
        let ended = ended(id).await;
        assert_eq!(
            (&ended["status"], &ended["error"]["type"]),
            (&json!("FAILED"), &json!("WORKSPACE_GONE")),
            "{ended}"
        );
    }
    assert_eq!(ended(&running).await["status"], "CANCELED");
    until("the key opens nothing", async || (tenant.api.get("workspaces").await.status == 401).then_some(())).await;
    assert_eq!(world.count(&tenant, "execution_queue WHERE stage = 5").await, 0, "no slot is kept");
}

#[tokio::test]
async fn a_full_backlog_refuses_and_takes_again_when_there_is_room() {
    let world = World::with(&["queue.max_backlog=4"]).await;
    let (tenant, root) = (world.tenant("FREE").await, world.server.api());
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let path = format!("workspaces/{}", tenant.id);
    let bounded = root.patch(&path, json!({ "maxBacklog": 2 })).await.expect(200);
    assert_eq!(bounded["maxBacklog"], 2);
    tenant.start(&held).await;
    world.receiver.until_called("/hold/a", 1).await;
    tenant.start_many(&held, 2).await;
    let refused = tenant.try_start(&held).await;
    assert_eq!((refused.problem(429), refused.header("retry-after")), ("queue_full", "1"));
    assert_eq!(world.count("workflow_execution").await, 3, "what was refused is not stored");
    root.patch(&path, json!({ "maxBacklog": null })).await.expect(200);
    tenant.start_many(&held, 2).await;
    assert_eq!(tenant.try_start(&held).await.problem(429), "queue_full", "the service's own limit");
    assert_eq!(root.patch(&path, json!({ "maxBacklog": -1 })).await.problem(422), "validation_failed");
    world.receiver.open();
    until("there is room again", async || (tenant.try_start(&held).await.status == 202).then_some(())).await;
}

#[tokio::test]
async fn an_item_says_who_holds_what_it_waits_for() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let running = tenant.start(&held).await;
    world.receiver.until_called("/hold/a", 1).await;
    let item = tenant.queue(&tenant.start(&held).await).await;
    assert_eq!(item["waiting"]["reason"], "workspace_full", "{item}");
    assert_eq!(item["waiting"]["heldByExecutionIds"], json!([running]), "{item}");
}

#[tokio::test]
async fn a_workspace_has_a_bounded_number_of_requests_that_wait_whatever_keys_it_has() {
    let world = World::with(&["http.max_waits_per_workspace=2"]).await;
    let (tenant, other) = (world.tenant("FREE").await, world.tenant("FREE").await);
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let id = tenant.start(&held).await;
    world.receiver.until_called("/hold/a", 1).await;
    let path = format!("workflow/executions/{id}?wait=30s");
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let (api, path) = (tenant.api.clone(), path.clone());
            // It may itself be the one too many, while the others come and go.
            let wait = async move || {
                let reply = api.get(&path).await;
                (reply.status != 429).then_some(reply)
            };
            tokio::spawn(async move { until("its turn to wait", wait).await })
        })
        .collect();
    let short = format!("workflow/executions/{id}?wait=10ms");
    let refused = until("both wait", async || {
        let reply = tenant.api.get(&short).await;
        (reply.status == 429).then_some(reply)
    })
    .await;
    assert_eq!((refused.problem(429), refused.header("retry-after")), ("rate_limited", "1"));
    let second = tenant.api.post("keys", json!({ "name": "second" })).await.expect(201);
    let second = tenant.api.with_key(&text(&second["key"]));
    assert_eq!(second.get(&short).await.problem(429), "rate_limited", "another key is the same workspace");
    assert_eq!(tenant.status(&id).await, "RUNNING", "who does not wait is answered");
    let theirs = other.start(&other.light().await).await;
    other.completed(&theirs).await;
    world.receiver.open();
    for reply in waiting {
        assert_eq!(reply.await.expect("no panic").expect(200)["status"], "COMPLETED");
    }
    tenant.completed(&id).await;
}
