//! Tests the "Testing" sections of the source documents line by line, as far as real processes can show them. The lines
//! about the store alone are tested in `source_documents` of `store`. Where the service differs on purpose
//! (`design.md` §16), the test checks what the service does instead.
//!
//! `docs/explanation/source-documents.md` lists every statement of the documents with the test that shows it.

use serde_json::{Value, json};

use crate::support::tenant::text;
use crate::support::{Server, Shared, Tenant, World, until};

const OFF: &str = "workflow.engine.enabled=false";

/// A world whose items wait until a server with an engine is started.
async fn waiting() -> World {
    World::with(&[OFF]).await
}

/// As root sees it: a deleted workspace's key opens nothing.
async fn ended(world: &World, id: &str) -> Value {
    let root = Tenant { id: String::new(), name: String::new(), api: world.server.api() };
    root.ended(id).await
}

fn said(server: &Server, text: &str) -> usize {
    server.process.stderr.all().iter().filter(|line| line.contains(text)).count()
}

// dispatcher.md, unit tests; flow-queue-processing.md, happy path

#[tokio::test]
async fn process_queue_claims_a_batch_of_10_of_15_pending_processes_all_and_the_next_cycle_claims_5() {
    let world = waiting().await;
    let tenant = world.tenant("ENTERPRISE").await;
    let all = tenant.start_many(&tenant.light().await, 15).await;
    assert_eq!(world.count("execution_queue WHERE status = 'PENDING'").await, 15);
    let server = world.another(&["dispatch.batch_min=10", "dispatch.batch_max=10"]).await;
    for id in &all {
        tenant.completed(id).await;
    }
    assert_eq!((said(&server, "Processing 10 queue items"), said(&server, "Processing 5 queue items")), (1, 1));
    let metrics = server.anonymous().get("/metrics").await.text;
    assert!(metrics.contains("queue_items_dispatched_total 15"), "{metrics}");
    assert_eq!(world.count("execution_queue").await, 0);
}

#[tokio::test]
async fn an_empty_queue_does_nothing_and_logs_nothing() {
    let world = World::with(&["dispatch.poll_interval_ms=50"]).await;
    let seen = async || -> i64 {
        let sql = "SELECT (extract(epoch FROM max(heartbeat_at)) * 1000)::bigint FROM process";
        world.database.client().await.query_one(sql, &[]).await.expect("a heartbeat").get(0)
    };
    let (first, observed) = (seen().await, world.server.process.stderr.all().len());
    // Twenty polls at least.
    until("a second passes", async || (seen().await >= first + 1_000).then_some(())).await;
    assert_eq!(world.server.process.stderr.all()[observed..], [] as [String; 0]);
    let metrics = world.server.anonymous().get("/metrics").await.text;
    assert!(!metrics.contains("forebay_queue_processing_passes_total 0\n"), "every pass is counted: {metrics}");
    assert!(!metrics.contains("queue_processing_batch_size_count"), "and none claimed anything: {metrics}");
}

#[tokio::test]
async fn a_failing_item_does_not_stop_the_loop_nor_its_batch() {
    let world = waiting().await;
    let tenant = world.tenant("ENTERPRISE").await;
    let log = json!({ "say": { "kind": "LOG", "with": { "message": "done" } } });
    let mut started = Vec::new();
    for name in ["good", "deleted", "damaged", "fine"] {
        let definition = tenant.apply(name, log.clone()).await;
        started.push((definition.clone(), tenant.start_many(&definition, 3).await));
    }
    let (deleted, damaged) = (&started[1].0, &started[2].0);
    world.run_sql(&format!("UPDATE workflow_definition SET deleted_at = now() WHERE id = '{deleted}'")).await;
    let damage = "UPDATE workflow_definition_version SET graph = '{\"nodes\": 7}' WHERE workflow_definition_id";
    world.run_sql(&format!("{damage} = '{damaged}'")).await;
    let server = world.another(&[]).await;
    for (at, (_, executions)) in started.iter().enumerate() {
        for id in executions {
            let ended = ended(&world, id).await;
            let expected = if at == 1 || at == 2 { "FAILED" } else { "COMPLETED" };
            assert_eq!(ended["status"], expected, "{ended}");
            if at == 1 {
                assert_eq!(ended["error"]["type"], "DEFINITION_GONE", "{ended}");
            }
        }
    }
    assert!(said(&server, "Workflow definition not found") == 3, "{:?}", server.process.stderr.all());
    let item = tenant.queue(&started[1].1[0]).await;
    assert_eq!((&item["status"], item["lastError"].is_string()), (&json!("FAILED"), true), "{item}");
    assert_eq!(tenant.running().await, 0, "what failed holds no slot");
    tenant.completed(&tenant.start(&started[0].0).await).await;
}

// flow-workflow-execution.md, configuration snapshot

#[tokio::test]
async fn retry_defaults_are_settings_and_a_version_keeps_those_it_was_published_with() {
    let world = World::with(&["retry.max_attempts=5", "retry.initial_ms=7", "retry.http_max_attempts=2"]).await;
    let tenant = world.tenant("PRO").await;
    let nodes = json!({
        "say": { "kind": "LOG", "with": { "message": "a" } },
        "call": { "kind": "HTTP_REQUEST", "needs": "say", "with": { "url": world.receiver.url("/echo/503") }, "retry": { "initial": "10ms" } },
        "own": { "kind": "LOG", "needs": "say", "with": { "message": "b" }, "retry": { "max_attempts": 1 } },
    });
    let definition = tenant.apply("retried", nodes.clone()).await;
    let retries = async |version: i32| -> Value {
        let sql =
            "SELECT jsonb_object_agg(n->>'key', (n->'retry'->>'max_attempts') || ' ' || (n->'retry'->>'initial_ms'))
             FROM workflow_definition_version v, jsonb_array_elements(v.graph->'nodes') n WHERE v.number = $1";
        world.database.client().await.query_one(sql, &[&version]).await.expect("a version").get(0)
    };
    assert_eq!(retries(1).await, json!({ "say": "5 7", "call": "2 10", "own": "1 7" }));
    let failed = tenant.ended(&tenant.start(&definition).await).await;
    assert_eq!(failed["status"], "FAILED", "{failed}");
    assert_eq!(world.receiver.echo.requests().len(), 2, "as often as the setting says");
    // Other settings hold from the next publishing on.
    let other = world.another(&["retry.http_max_attempts=4"]).await;
    assert_eq!(retries(1).await["call"], "2 10");
    tenant.at(&other.base).apply("retried", nodes).await;
    assert_eq!(retries(2).await, json!({ "say": "3 1000", "call": "4 10", "own": "1 1000" }));
}

// flow-workflow-execution.md, failure point: temporal dispatch

#[tokio::test]
async fn an_item_whose_version_row_is_gone_fails_and_its_batch_does_not() {
    let world = waiting().await;
    let tenant = world.tenant("PRO").await;
    let (gone, fine) = (tenant.apply("gone", light("a")).await, tenant.apply("fine", light("b")).await);
    let (lost, kept) = (tenant.start(&gone).await, tenant.start(&fine).await);
    // Nothing of ours deletes a version: somebody did it by hand.
    world.run_sql(&format!("DELETE FROM workflow_definition_version WHERE workflow_definition_id = '{gone}'")).await;
    let _server = world.another(&[]).await;
    let ended = tenant.ended(&lost).await;
    assert_eq!((&ended["status"], &ended["error"]["type"]), (&json!("FAILED"), &json!("DEFINITION_GONE")), "{ended}");
    let item = tenant.queue(&lost).await;
    assert_eq!((&item["status"], item["lastError"].is_string()), (&json!("FAILED"), true), "a dead letter: {item}");
    tenant.completed(&kept).await;
    assert_eq!(tenant.running().await, 0, "its slot is free");
}

fn light(message: &str) -> Value {
    json!({ "say": { "kind": "LOG", "with": { "message": message } } })
}

// flow-workflow-execution.md, failure point: queue enqueue

#[tokio::test]
async fn a_definition_of_another_workspace_is_403_to_who_sees_both_and_404_to_who_does_not() {
    let world = Shared::new().await;
    let (ours, theirs) = (world.tenant("PRO").await, world.tenant("PRO").await);
    let (definition, root) = (theirs.light().await, world.server.api());
    let start = json!({ "workflowDefinitionId": definition, "workspaceId": ours.id });
    let nowhere = json!({ "workflowDefinitionId": store::new_id(), "workspaceId": ours.id });
    let with = |more: Value| {
        let mut body = start.clone();
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        body
    };
    for (path, body) in [
        ("workflow/executions/start", start.clone()),
        ("schedules", with(json!({ "cron": "0 0 * * *" }))),
        ("bindings", with(json!({ "eventType": "a.b" }))),
        ("webhooks", with(json!({ "url": "https://x.example" }))),
    ] {
        let refused = root.post(path, body.clone()).await;
        assert_eq!(refused.problem(403), "workspace_mismatch", "{path}");
        assert!(text(&refused.body["detail"]).contains(&theirs.id), "{path}: {}", refused.text);
        let hidden = ours.api.post(path, body).await;
        assert_eq!(hidden.problem(404), "not_found", "{path}: {}", hidden.text);
        assert!(!hidden.text.contains(&theirs.id), "{}", hidden.text);
    }
    assert_eq!(root.post("workflow/executions/start", nowhere.clone()).await.problem(404), "not_found");
    let bulk = json!({ "items": [start, nowhere] });
    let observed = root.post("workflow/executions/bulk", bulk.clone()).await.expect(200);
    let statuses = |observed: &Value| (observed["items"][0]["status"].clone(), observed["items"][1]["status"].clone());
    assert_eq!(statuses(&observed), (json!(403), json!(404)), "{observed}");
    let observed = ours.api.post("workflow/executions/bulk", bulk).await.expect(200);
    assert_eq!(statuses(&observed), (json!(404), json!(404)), "{observed}");
    assert_eq!(world.count(&ours, "workflow_execution").await, 0);
}

// dispatcher.md, integration tests; flow-queue-processing.md, failure injection

#[tokio::test]
async fn a_crash_while_items_are_claimed_is_recovered_and_costs_no_attempt() {
    let world = waiting().await;
    let tenant = world.tenant("FREE").await;
    let definition = tenant.light().await;
    let (claimed, behind) = (tenant.start(&definition).await, tenant.start(&definition).await);
    // What a claimer leaves that dies between its claim and the start.
    let dead = store::new_id();
    world
        .run_sql(&format!(
            "INSERT INTO process (id, host, pid, roles, version, release) VALUES ('{dead}', 'h', 1, '{{dispatcher}}', '0', 1);
             UPDATE execution_queue SET status = 'CLAIMED', stage = 5,
                    claim_number = nextval('forebay.claim_number'), claim_id = '{dead}', claimed_by = '{dead}',
                    claimed_at = now() WHERE id = '{claimed}'"
        ))
        .await;
    let item = tenant.queue(&claimed).await;
    assert_eq!((&item["status"], &item["waiting"]["reason"]), (&json!("CLAIMED"), &json!("starting")), "{item}");
    let server = world.another(&[]).await;
    tenant.completed(&claimed).await;
    tenant.completed(&behind).await;
    // The recovery is logged when the pass is over, which may be after what it recovered has ended.
    until("the recovery is logged", async || (said(&server, "Recovered 1 stale queue items") == 1).then_some(())).await;
    let metrics = server.anonymous().get("/metrics").await.text;
    assert!(metrics.contains("queue_stale_recovery_count 1"), "{metrics}");
    let (first, second) = (tenant.execution(&claimed).await, tenant.execution(&behind).await);
    assert!(
        text(&first["completedAt"]) <= text(&second["startedAt"]),
        "no other execution ever had its slot: {first} {second}"
    );
}

#[tokio::test]
async fn database_connections_lost_again_and_again_lose_no_item_and_repeat_none() {
    let world = World::new().await;
    let tenant = world.tenant("PRO").await;
    let definition = tenant.apply("count", json!({ "call": world.receiver.node("/count/a") })).await;
    let all = tenant.start_many(&definition, 40).await;
    let admin = world.database.client().await;
    let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                WHERE datname = current_database() AND application_name = 'forebay'";
    for done in [5, 10, 15, 20, 25] {
        world.receiver.until_called("/count/a", done).await;
        admin.query_one(sql, &[]).await.expect("a superuser");
    }
    for id in &all {
        let path = format!("workflow/executions/{id}?wait=1s");
        let ended = until(&format!("{id} ends"), async || {
            let reply = tenant.api.get(&path).await;
            let status = reply.body["status"].as_str().unwrap_or_default().to_owned();
            (reply.status == 200 && status != "PENDING" && status != "RUNNING").then_some(status)
        })
        .await;
        assert_eq!(ended, "COMPLETED");
    }
    assert_eq!(world.receiver.calls("/count/a").len(), 40, "each was performed once");
    assert_eq!(tenant.running().await, 0);
}

// flow-queue-processing.md, edge cases; queue-processor.md

#[tokio::test]
async fn a_workspace_deleted_meanwhile_fails_its_items_and_nobody_elses() {
    let world = waiting().await;
    let (gone, stays) = (world.tenant("PRO").await, world.tenant("PRO").await);
    let dead = gone.start_many(&gone.light().await, 2).await;
    let fine = stays.start(&stays.light().await).await;
    world.run_sql(&format!("UPDATE workspace SET deleted_at = now() WHERE id = '{}'", gone.id)).await;
    let server = world.another(&[]).await;
    for id in &dead {
        let ended = ended(&world, id).await;
        assert_eq!(
            (&ended["status"], &ended["error"]["type"]),
            (&json!("FAILED"), &json!("WORKSPACE_GONE")),
            "{ended}"
        );
    }
    stays.completed(&fine).await;
    assert_eq!(said(&server, "Workspace not found"), 2, "{:?}", server.process.stderr.all());
    assert_eq!(world.count("activity WHERE action = 'queue_item.fail'").await, 2);
}

#[tokio::test]
async fn an_execution_is_there_from_the_start_on_and_runs_with_its_own_input_and_version() {
    let world = World::new().await;
    let tenant = world.tenant("FREE").await;
    let definition = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let body = json!({ "workflowDefinitionId": definition, "input": { "order": 7 } });
    let id = text(&tenant.api.post("workflow/executions/start", body).await.expect(202)["executionId"]);
    world.receiver.until_called("/hold/a", 1).await;
    // Deleted or changed meanwhile: the running one keeps what it started with.
    tenant.apply("held", json!({ "call": world.receiver.node("/count/never") })).await;
    world.run_sql(&format!("UPDATE workflow_definition SET deleted_at = now() WHERE id = '{definition}'")).await;
    let running = tenant.execution(&id).await;
    assert_eq!((&running["status"], &running["input"]), (&json!("RUNNING"), &json!({ "order": 7 })), "{running}");
    assert_eq!((&running["version"], &running["engine"]), (&json!(1), &json!("embedded")), "{running}");
    assert_eq!(tenant.queue(&id).await["status"], "DISPATCHED");
    world.receiver.open();
    tenant.completed(&id).await;
    assert_eq!(world.receiver.calls("/count/never").len(), 0);
    assert_eq!(tenant.try_start(&definition).await.problem(404), "not_found");
}
