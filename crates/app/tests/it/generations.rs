//! Workflows that start themselves, directly or through events, stop at the limit of generations.

use serde_json::json;

use crate::support::{World, until};

#[tokio::test]
async fn a_workflow_that_starts_itself_ends_by_itself() {
    let world = World::with(&["workflow.max_generations=3"]).await;
    let tenant = world.tenant("PRO").await;
    let own = json!({ "start": { "kind": "WORKFLOW", "with": { "workflow": "again", "detached": true } } });
    // One that its parent waits for is of its parent's generation, and carries it on.
    let nodes = json!({ "below": { "kind": "WORKFLOW", "with": { "workflow": "starter" } } });
    tenant.apply("starter", own).await;
    let again = tenant.apply("again", nodes).await;
    tenant.start(&again).await;
    let ended = "workflow_execution WHERE parent IS NULL AND status IN ('COMPLETED', 'FAILED')";
    until("the last generation has ended", async || (world.count(ended).await == 4).then_some(())).await;
    let last = "workflow_execution WHERE parent IS NULL AND status = 'FAILED' AND trigger ->> 'generation' = '3'
        AND error ->> 'type' = 'GENERATION_LIMIT' AND error ->> 'message' LIKE '%workflow.max_generations%'";
    assert_eq!(world.count(last).await, 1, "it says why");
    assert_eq!(world.count("workflow_execution WHERE parent IS NULL").await, 4, "and nothing follows");
}

#[tokio::test]
async fn a_loop_of_events_and_workflows_ends_by_itself() {
    let world = World::with(&["workflow.max_generations=2", "job.retry_after_ms=100"]).await;
    let tenant = world.tenant("PRO").await;
    // An author cannot begin again at 0.
    let emit =
        json!({ "type": "loop.turned", "stream_type": "loop", "data": {}, "metadata": { "forebay_generation": 0 } });
    let turn = tenant.apply("turn", json!({ "emit": { "kind": "EMIT_EVENT", "with": emit } })).await;
    let binding = json!({ "eventType": "loop.turned", "workflowDefinitionId": turn });
    tenant.api.post("bindings", binding).await.expect(201);
    tenant.start(&turn).await;
    let given_up = "workflow_queue_projection WHERE status = 'failed' AND error_message LIKE '%GENERATION_LIMIT%'";
    until("the loop has ended", async || (world.count(given_up).await == 1).then_some(())).await;
    let completed = "workflow_execution WHERE status = 'COMPLETED'";
    until("what was started has ended", async || (world.count(completed).await == 3).then_some(())).await;
    assert_eq!(world.count("workflow_execution").await, 3);
    assert_eq!(world.count("domain_events WHERE event_type = 'loop.turned'").await, 3, "the last event is kept");
}

#[tokio::test]
async fn an_event_from_outside_has_no_generation_whatever_its_metadata_says() {
    let world = World::with(&["workflow.max_generations=2"]).await;
    let tenant = world.tenant("PRO").await;
    let light = tenant.light().await;
    tenant.api.post("bindings", json!({ "eventType": "x.y", "workflowDefinitionId": light })).await.expect(201);
    let event = json!({
        "type": "x.y", "streamId": light, "streamType": "s", "metadata": { "forebay_generation": 99, "by": "shop" },
    });
    tenant.api.post("events", json!({ "events": [event] })).await.expect(200);
    let completed = "workflow_execution WHERE status = 'COMPLETED'";
    until("the event has started it", async || (world.count(completed).await == 1).then_some(())).await;
    let stored = "domain_events WHERE event_metadata ->> 'by' = 'shop' AND NOT event_metadata ? 'forebay_generation'";
    assert_eq!(world.count(stored).await, 1, "the rest is kept");
}
