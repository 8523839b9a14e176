//! Executions are terminated wherever their run is, and can be rerun.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::http::send;
use crate::support::server::MORTAL;
use crate::support::tenant::text;
use crate::support::{Shared, Tenant, World, until};

async fn terminate(tenant: &Tenant, id: &str, status: u16) -> Value {
    tenant.api.post(&format!("workflow/executions/{id}/terminate"), Value::Null).await.expect(status)
}

async fn is_terminated(tenant: &Tenant, id: &str) {
    let ended = tenant.ended(id).await;
    assert_eq!((&ended["status"], &ended["error"]["type"]), (&json!("CANCELED"), &json!("TERMINATED")), "{ended}");
}

#[tokio::test]
async fn what_waits_runs_or_is_parked_is_ended_and_its_slot_goes_to_the_next() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let parks = tenant.apply("parks", json!({ "wait": { "kind": "DELAY", "with": { "for": "1h" } } })).await;
    let running = tenant.start(&held).await;
    world.receiver.until_called("/hold/a", 1).await;
    let parked = tenant.start(&parks).await;
    let waiting = tenant.start(&held).await;
    assert_eq!(terminate(&tenant, &waiting, 200).await["status"], "CANCELED");
    is_terminated(&tenant, &waiting).await;
    assert_eq!(terminate(&tenant, &running, 202).await["status"], "RUNNING");
    is_terminated(&tenant, &running).await;
    let sql = format!("workflow_execution WHERE id = '{parked}' AND status = 'RUNNING' AND owner IS NULL");
    until("the next has the slot and is parked", async || (world.count(&tenant, &sql).await == 1).then_some(())).await;
    assert_eq!(terminate(&tenant, &parked, 200).await["status"], "CANCELED");
    is_terminated(&tenant, &parked).await;
    assert_eq!(terminate(&tenant, &parked, 200).await["status"], "CANCELED", "repeatable");
    assert_eq!((tenant.running().await, world.count(&tenant, "execution_queue").await), (0, 0));
    assert_eq!(world.count(&tenant, "activity WHERE action = 'execution.terminate'").await, 3);
    let after = tenant.start(&tenant.light().await).await;
    tenant.completed(&after).await;
}

#[tokio::test]
async fn a_run_of_another_process_is_ended_by_its_owner() {
    let world = World::new().await;
    let other = world.another(&["workflow.engine.enabled=false"]).await;
    let tenant = world.tenant("FREE").await;
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let running = tenant.start(&held).await;
    world.receiver.until_called("/hold/a", 1).await;
    terminate(&tenant.at(&other.base), &running, 202).await;
    is_terminated(&tenant, &running).await;
    assert_eq!(tenant.nodes(&running).await["call"], "CANCELED");
    world.receiver.open();
    let after = tenant.start(&held).await;
    tenant.completed(&after).await;
    assert_eq!(world.receiver.calls("/hold/a").len(), 2, "the terminated call was not made again");
}

#[tokio::test]
async fn a_run_whose_owner_is_killed_is_ended_by_the_next() {
    let mut world = World::with(&MORTAL).await;
    let tenant = world.tenant("FREE").await;
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let running = tenant.start(&held).await;
    world.receiver.until_called("/hold/a", 1).await;
    let other = world.another(&["workflow.engine.enabled=false"]).await;
    world.server.process.sigkill();
    let tenant = tenant.at(&other.base);
    terminate(&tenant, &running, 202).await;
    assert_eq!(tenant.status(&running).await, "RUNNING", "no slot is freed before its owner is known to be dead");
    let next = world.another(&MORTAL).await;
    is_terminated(&tenant.at(&next.base), &running).await;
    assert_eq!(world.receiver.calls("/hold/a").len(), 1, "and it is not resumed");
}

#[tokio::test]
async fn a_rerun_is_a_new_execution_linked_to_the_old_through_the_queue() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let echo = |text: &str| json!({ "say": { "kind": "LOG", "with": { "message": text } } });
    let definition = tenant.apply("echo", echo("one ${{ inputs.x }}")).await;
    let body = json!({ "workflowDefinitionId": definition, "input": { "x": 1 }, "priority": 2 });
    let first = text(&tenant.api.post("workflow/executions/start", body).await.expect(202)["executionId"]);
    tenant.completed(&first).await;
    tenant.apply("echo", echo("two ${{ inputs.x }}")).await;
    let said = async |body: Value| {
        let reply = tenant.api.post(&format!("workflow/executions/{first}/rerun"), body).await;
        let id = text(&reply.expect(202)["executionId"]);
        let execution = tenant.completed(&id).await;
        assert_eq!((&execution["rerunOfExecutionId"], &execution["trigger"]["type"]), (&json!(first), &json!("rerun")));
        assert_eq!(execution["priority"], 2);
        let nodes = tenant.api.get(&format!("workflow/executions/{id}/nodes")).await.expect(200);
        text(&nodes["items"][0]["output"]["message"])
    };
    assert_eq!(said(json!({})).await, "one 1", "the same version and input");
    assert_eq!(said(json!({ "from": "start", "version": "latest" })).await, "two 1");
    assert_eq!(said(json!({ "input": { "x": 2 }, "version": "same" })).await, "one 2");
    assert_eq!(world.count(&tenant, "audit WHERE action = 'execution.rerun'").await, 3);
}

#[tokio::test]
async fn a_rerun_is_idempotent_and_refused_where_it_makes_no_sense() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let running = tenant.start(&held).await;
    let path = format!("workflow/executions/{running}/rerun");
    assert_eq!(tenant.api.post(&path, json!({})).await.problem(409), "conflict");
    for body in [
        json!({ "from": "node" }),
        json!({ "from": "node", "node": "a b" }),
        json!({ "from": "failed", "node": "call" }),
        json!({ "node": "call" }),
    ] {
        let reply = tenant.api.post(&path, body).await;
        assert_eq!(reply.problem(422), "validation_failed");
        assert!(reply.text.contains("node: "), "{}", reply.text);
    }
    assert_eq!(tenant.api.post(&path, json!({ "from": "nowhere" })).await.problem(422), "validation_failed");
    world.receiver.open();
    tenant.completed(&running).await;
    for (body, expected) in [
        (json!({ "from": "failed" }), "no node failed this execution"),
        (json!({ "from": "node", "node": "cal" }), "no node cal"),
    ] {
        let reply = tenant.api.post(&path, body).await;
        assert_eq!(reply.problem(422), "validation_failed");
        assert!(reply.text.contains(expected), "{}", reply.text);
    }
    let rerun = async |body: Value| {
        send(tenant.api.request(Method::POST, &path).header("idempotency-key", "again").json(&body)).await
    };
    let first = rerun(json!({})).await.expect(202);
    assert_eq!(rerun(json!({ "from": "start" })).await.expect(202)["executionId"], first["executionId"]);
    assert_eq!(rerun(json!({ "input": 1 })).await.problem(422), "idempotency_conflict");
    assert_eq!(world.count(&tenant, "workflow_execution").await, 2);
    tenant.completed(&text(&first["executionId"])).await;
    assert_eq!(tenant.api.delete(&format!("workflow/definitions/{held}")).await.status, 204);
    assert_eq!(tenant.api.post(&path, json!({})).await.problem(404), "not_found");
}
