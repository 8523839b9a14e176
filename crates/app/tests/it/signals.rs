//! What operators see: health, readiness, metrics. No key is needed for them.

use serde_json::json;

use crate::support::{World, until};

#[tokio::test]
async fn health_readiness_and_metrics_answer_without_a_key() {
    let world = World::new().await;
    let anonymous = world.server.anonymous();
    let health = anonymous.get("/healthz").await;
    assert_eq!((health.status, health.text.as_str()), (200, "ok\n"));
    let ready = anonymous.get("/readyz").await.expect(200);
    let checks = json!({ "database": "ok", "engine": "ok", "heartbeat": "ok" });
    assert_eq!((&ready["ready"], &ready["checks"]), (&json!(true), &checks));

    let tenant = world.tenant("FREE").await;
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let all = tenant.start_many(&held, 2).await;
    world.receiver.until_called("/hold/a", 1).await;
    let logs = &world.server.process.stderr;
    until("capacity is told of", async || logs.contain("Workspace at capacity").then_some(())).await;
    world.receiver.open();
    for id in &all {
        tenant.completed(id).await;
    }
    let gone = tenant.start(&held).await;
    tenant.completed(&gone).await;

    let reply = anonymous.get("/metrics").await;
    assert_eq!((reply.status, reply.header("content-type")), (200, "text/plain; version=0.0.4"));
    for name in [
        "queue_processing_batch_size",
        "queue_processing_duration_seconds",
        "queue_processing_runs_total",
        "queue_items_dispatched_total",
        "queue_items_at_capacity_total",
        "queue_items_enqueued_total",
        "process_heartbeat_age_seconds",
        "http_request_duration_seconds",
        "node_duration_seconds",
        "engine_runs",
        "engine_record_batch_size",
    ] {
        assert!(reply.text.contains(&format!("# TYPE {name} ")), "{name} is missing:\n{}", reply.text);
    }
    assert_eq!(value(&reply.text, "queue_items_dispatched_total"), 3.0);
    assert_eq!(value(&reply.text, "queue_items_enqueued_total"), 3.0);
    assert_eq!(value(&reply.text, "queue_items_at_capacity_total"), 1.0, "once per transition");
    assert!(!reply.text.contains(&gone), "an id is no label");
}

fn value(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find(|line| line.starts_with(&format!("{name} ")));
    let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
    value.unwrap_or_else(|| panic!("{name} has no value:\n{metrics}"))
}
