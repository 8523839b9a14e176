//! Runs that Temporal lost, ended by itself or cannot continue are found and reported everywhere, and their slots are
//! freed. Also tests a Temporal that is killed and restarted.
//!
//! Not here: the verdicts (`kernel::run::reconcile`), the same cases with the test engine (`reconciler`).

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::cli::Cli;
use crate::support::gate::{Demands, Gate};
use crate::support::temporal::{Cluster, Own, behind_our_back, until_check};
use crate::support::tenant::text;
use crate::support::{Server, until};

async fn held(cluster: &Cluster) -> String {
    let definition = cluster.tenant.apply("held", json!({ "call": cluster.receiver.node("/hold/a") })).await;
    let before = cluster.receiver.calls("/hold/a").len();
    let id = cluster.tenant.start(&definition).await;
    cluster.receiver.until_called("/hold/a", before + 1).await;
    id
}

fn workflow(id: &str) -> String {
    format!("execution-{id}")
}

#[tokio::test]
async fn a_run_deleted_behind_our_back_is_given_up_and_its_slot_freed_when_nothing_of_it_runs() {
    let cluster = Cluster::new(&["engine.temporal.heartbeat_ms=3000"]).await;
    let _worker = cluster.worker().await;
    let id = held(&cluster).await;
    behind_our_back(&["workflow", "delete", "--yes", "--workflow-id", &workflow(&id)]).await;
    let deleted = Instant::now();
    let ended = cluster.tenant.ended(&id).await;
    assert_eq!((&ended["status"], &ended["error"]["type"]), (&json!("FAILED"), &json!("ENGINE_LOST")), "{ended}");
    assert!(deleted.elapsed() >= Duration::from_secs(3), "its worker may perform the call for as long as a heartbeat");
    until("its slot is free", async || (cluster.tenant.running().await == 0).then_some(())).await;
    cluster.receiver.open();
    assert_eq!(cluster.receiver.calls("/hold/a").len(), 1, "it is not started again");
}

/// Somebody else began its workflow, with a time of its own.
#[tokio::test]
async fn a_run_timed_out_behind_our_back_is_recorded_so_and_its_slot_freed() {
    let cluster = Cluster::new(&[]).await;
    let workspace = format!("workspaces/{}", cluster.tenant.id);
    cluster.server.api().post(&format!("{workspace}/pause"), Value::Null).await.expect(200);
    let id = cluster.tenant.start(&cluster.tenant.light().await).await;
    let name = workflow(&id);
    let start = ["workflow", "start", "--type", "WorkflowOrchestration", "--task-queue", cluster.queue()];
    behind_our_back(&[&start[..], &["--workflow-id", &name, "--execution-timeout", "2s"]].concat()).await;
    cluster.server.api().post(&format!("{workspace}/resume"), Value::Null).await.expect(200);
    let ended = cluster.tenant.ended(&id).await;
    assert_eq!(
        (&ended["status"], &ended["error"]["type"]),
        (&json!("TIMED_OUT"), &json!("DEADLINE_PASSED")),
        "{ended}"
    );
    until("its slot is free", async || (cluster.tenant.running().await == 0).then_some(())).await;
}

/// P6, at the times that nobody changed: whatever of `FAST` and of the cluster's own has to do with it is set back.
#[tokio::test]
async fn as_shipped_a_slot_is_free_within_a_minute_of_an_end_behind_our_back() {
    let shipped = server::config::Settings::default();
    let settings = [
        format!("engine.temporal.heartbeat_ms={}", shipped.engine.temporal.heartbeat_ms),
        format!("engine.temporal.local_activity_below_ms={}", shipped.engine.temporal.local_activity_below_ms),
        format!("engine.reconcile_after_ms={}", shipped.engine.reconcile_after_ms),
        format!("dispatch.poll_interval_ms={}", shipped.dispatch.poll_interval_ms),
    ];
    let cluster = Cluster::new(&settings.each_ref().map(String::as_str)).await;
    let _worker = cluster.worker().await;
    let (terminated, deleted) = (held(&cluster).await, held(&cluster).await);
    behind_our_back(&["workflow", "terminate", "--workflow-id", &workflow(&terminated), "--reason", "a test"]).await;
    behind_our_back(&["workflow", "delete", "--yes", "--workflow-id", &workflow(&deleted)]).await;
    let since = Instant::now();
    until("both slots are free", async || (cluster.tenant.running().await == 0).then_some(())).await;
    assert!(since.elapsed() < Duration::from_secs(60), "a slot is held after a minute");
    assert_eq!(cluster.tenant.status(&terminated).await, "CANCELED");
    assert_eq!(cluster.tenant.status(&deleted).await, "FAILED");
}

#[tokio::test]
async fn runs_that_go_on_cost_a_question_for_all_of_them_and_few_of_their_own() {
    let gate = Gate::start(Demands::default()).await;
    let address = format!("engine.temporal.address=http://{}", gate.address);
    let cluster = Cluster::at(&[&address]).await;
    let _worker = cluster.worker().await;
    let limit = json!({ "limit": 80 });
    cluster.server.api().patch(&format!("workspaces/{}", cluster.tenant.id), limit).await.expect(200);
    let wait = json!({ "wait": { "kind": "DELAY", "with": { "for": "1h" } } });
    let definition = cluster.tenant.apply("wait", wait).await;
    let ids = cluster.tenant.start_many(&definition, 60).await;
    for id in &ids {
        until("it runs", async || (cluster.tenant.status(id).await == "RUNNING").then_some(())).await;
    }
    // Older than a second, all of them are looked at.
    let young = "SELECT count(*) FROM workflow_execution WHERE started_at > now() - interval '1500 milliseconds'";
    let client = cluster.database.client().await;
    let count = async || client.query_one(young, &[]).await.expect("a count").get::<_, i64>(0);
    until("none is young", async || (count().await == 0).then_some(())).await;
    let (lists, described) = (gate.calls("ListWorkflowExecutions"), gate.calls("DescribeWorkflowExecution"));
    until("six passes", async || (gate.calls("ListWorkflowExecutions") >= lists + 6).then_some(())).await;
    let passes = gate.calls("ListWorkflowExecutions") - lists + 1;
    let described = gate.calls("DescribeWorkflowExecution") - described;
    assert!(described <= passes * 20 + 20, "{described} in {passes} passes: one of three at a time");
    assert!(described >= (passes - 2) * 20, "{described} in {passes} passes: each in its turn");
    behind_our_back(&["workflow", "terminate", "--workflow-id", &workflow(&ids[41]), "--reason", "a test"]).await;
    assert_eq!(cluster.tenant.ended(&ids[41]).await["status"], "CANCELED", "and one that ended is found among them");
    assert_eq!(cluster.tenant.running().await, 59);
}

#[tokio::test]
async fn every_process_reports_a_task_queue_that_nobody_polls() {
    let cluster = Cluster::new(&[]).await;
    let api = cluster.api_only().await;
    let id = cluster.tenant.start(&cluster.tenant.light().await).await;
    let expected = format!("no worker polls task queue {}", cluster.queue());
    until_check(&api, "engine", |said| said.contains(&expected)).await;
    cluster.until_check("reconciler", |said| said.contains("no worker has picked up")).await;
    for tenant in [&cluster.tenant, &cluster.tenant.at(&api.base)] {
        let item = until("it is explained", async || {
            Some(tenant.queue(&id).await).filter(|item| item["waiting"]["reason"] == "no_worker")
        })
        .await;
        assert!(text(&item["waiting"]["message"]).contains(&expected), "{item}");
    }
    let metrics = cluster.server.anonymous().get("/metrics").await.text;
    assert!(metrics.contains("forebay_engine_runs_stuck{reason=\"no_worker\"} 1"), "{metrics}");
    let _worker = cluster.worker().await;
    cluster.tenant.completed(&id).await;
    until_check(&api, "engine", |said| said == "elsewhere").await;
    cluster.until_check("reconciler", |said| said == "ok").await;
}

#[tokio::test]
async fn every_process_reports_tasks_that_keep_failing() {
    let (old, new) = ("0a".repeat(32), "0b".repeat(32));
    let cluster = Cluster::new(&[&format!("engine.temporal.encryption_key={old}")]).await;
    let api = cluster.api_only().await;
    let lacks = cluster.worker_with(&[&format!("engine.temporal.encryption_key={new}")]).await;
    let id = cluster.tenant.start(&cluster.tenant.light().await).await;
    for tenant in [&cluster.tenant, &cluster.tenant.at(&api.base)] {
        let item = until("it is explained", async || {
            Some(tenant.queue(&id).await).filter(|item| item["waiting"]["reason"] == "stuck")
        })
        .await;
        let message = text(&item["waiting"]["message"]);
        assert!(message.contains("workflow task failed") && message.contains("not configured"), "{message}");
    }
    let shown = Cli::of(&api.base, api.root_key().expose()).ok(&["queue", &id]).await;
    assert!(shown.contains("workflow task failed"), "{shown}");
    cluster.until_check("reconciler", |said| said.contains("make no progress")).await;
    until_check(&api, "engine", |said| said.contains("make no progress")).await;
    let metrics = cluster.server.anonymous().get("/metrics").await.text;
    assert!(metrics.contains("forebay_engine_runs_stuck{reason=\"worker_failing\"} 1"), "{metrics}");
    drop(lacks);
    let _has = cluster.worker_with(&[&format!("engine.temporal.encryption_key={new},{old}")]).await;
    cluster.tenant.completed(&id).await;
    cluster.until_check("reconciler", |said| said == "ok").await;
}

#[tokio::test]
async fn a_temporal_that_is_killed_and_comes_back_costs_time_and_nothing_else() {
    let mut temporal = Own::start().await;
    let address = format!("engine.temporal.address=http://127.0.0.1:{}", temporal.port);
    let cluster = Cluster::at(&[&address]).await;
    let _worker = cluster.worker().await;
    let running = held(&cluster).await;
    temporal.sigkill();
    let waiting = cluster.tenant.start_many(&cluster.tenant.light().await, 3).await;
    let said = cluster.until_check("engine", |said| said.starts_with("unavailable since")).await;
    assert!(said.contains("Temporal"), "{said}");
    let item = until("it says why", async || {
        Some(cluster.tenant.queue(&waiting[0]).await).filter(|item| item["waiting"]["reason"] == "engine_unavailable")
    })
    .await;
    assert_eq!(item["attempts"], 0, "{item}");
    assert_eq!(breaker(&cluster.server).await, "2");
    cluster.receiver.open();
    temporal.come_back().await;
    for id in waiting.iter().chain([&running]) {
        let ended = cluster.tenant.completed(id).await;
        let nodes = cluster.tenant.api.get(&format!("workflow/executions/{id}/nodes")).await.expect(200);
        assert_eq!(nodes["items"][0]["attempt"], 1, "{ended} {nodes}");
    }
    cluster.until_check("engine", |said| said == "ok").await;
    assert_eq!((breaker(&cluster.server).await.as_str(), cluster.tenant.running().await), ("0", 0));
    let started = "SELECT count(*) FROM execution_queue WHERE attempt_count > 0 OR status = 'FAILED'";
    let row = cluster.database.client().await.query_one(started, &[]).await.expect("a count");
    assert_eq!(row.get::<_, i64>(0), 0, "no attempt was spent and nothing failed");
}

async fn breaker(server: &Server) -> String {
    let metrics = server.anonymous().get("/metrics").await.text;
    let state = metrics.lines().find_map(|line| line.strip_prefix("forebay_engine_breaker_state "));
    state.unwrap_or("none").to_owned()
}
