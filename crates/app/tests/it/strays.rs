//! Executions whose rows were deleted by hand, or whose engine was replaced: their slots are freed, and this is
//! reported.

use serde_json::json;

use crate::support::server::MORTAL;
use crate::support::temporal::server;
use crate::support::tenant::text;
use crate::support::{World, until};

#[tokio::test]
async fn a_deleted_execution_frees_its_slot_and_leaves_a_dead_letter() {
    let world = World::new().await;
    let tenant = world.tenant("FREE").await;
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let (lost, next) = (tenant.start(&held).await, tenant.start(&held).await);
    world.receiver.until_called("/hold/a", 1).await;
    world.run_sql(&format!("DELETE FROM workflow_execution WHERE id = '{lost}'")).await;
    until("the next one has the slot", async || (tenant.status(&next).await == "RUNNING").then_some(())).await;
    let dead_letter =
        format!("execution_queue WHERE id = '{lost}' AND status = 'FAILED' AND last_error LIKE '%missing%'");
    assert_eq!(world.count(&dead_letter).await, 1);
    assert_eq!(world.count(&format!("activity WHERE subject_id = '{lost}' AND action = 'queue_item.fail'")).await, 1);
    let observed = |text: &str| world.server.process.stderr.contain(text);
    assert!(observed("Execution row is missing") && !observed("another process owns it"));
}

#[tokio::test]
async fn a_deleted_execution_is_noticed_by_the_record_of_its_run() {
    let world = World::with(&["dispatch.poll_interval_ms=60000"]).await;
    let tenant = world.tenant("FREE").await;
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let lost = tenant.start(&held).await;
    world.receiver.until_called("/hold/a", 1).await;
    world.run_sql(&format!("DELETE FROM workflow_execution WHERE id = '{lost}'")).await;
    world.receiver.open();
    tenant.completed(&tenant.start(&held).await).await;
    assert!(world.server.process.stderr.contain("Execution row is missing"));
}

#[tokio::test]
async fn an_item_whose_execution_is_missing_at_its_start_is_a_dead_letter() {
    let world = World::with(&["workflow.engine.enabled=false"]).await;
    let tenant = world.tenant("FREE").await;
    let light = tenant.light().await;
    let lost = tenant.start(&light).await;
    world.run_sql(&format!("DELETE FROM workflow_execution WHERE id = '{lost}'")).await;
    let _enabled = world.another(&[]).await;
    tenant.completed(&tenant.start(&light).await).await;
    let audited = format!("activity WHERE subject_id = '{lost}' AND action = 'queue_item.fail'");
    until("the dead letter is audited", async || (world.count(&audited).await == 1).then_some(())).await;
    assert_eq!(world.count(&format!("execution_queue WHERE id = '{lost}' AND status = 'FAILED'")).await, 1);
}

#[tokio::test]
async fn a_missing_queue_item_is_reported_when_its_execution_ends() {
    let world = World::new().await;
    let tenant = world.tenant("FREE").await;
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let id = tenant.start(&held).await;
    world.receiver.until_called("/hold/a", 1).await;
    world.run_sql(&format!("DELETE FROM execution_queue WHERE id = '{id}'")).await;
    world.receiver.open();
    tenant.completed(&id).await;
    until("the missing item is logged", async || {
        world.server.process.stderr.contain("Execution ended, but it had no queue item").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_run_of_a_replaced_engine_is_reported_and_terminating_it_frees_its_slot() {
    let world = World::with(&["engine.temporal.address=http://127.0.0.1:9"]).await;
    let tenant = world.tenant("FREE").await;
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let id = tenant.start(&held).await;
    world.receiver.until_called("/hold/a", 1).await;
    // As a run on Temporal looks: its owner is no process.
    let sql = format!(
        "UPDATE workflow_execution SET engine = 'temporal', engine_location = 'elsewhere', owner = gen_random_uuid(), \
                       owner_epoch = owner_epoch + 1 WHERE id = '{id}'"
    );
    world.run_sql(&sql).await;
    until("readiness tells", async || {
        let ready = world.server.anonymous().get("/readyz").await;
        let observed = ready.body["checks"]["other engine"].as_str().unwrap_or_default().to_owned();
        (observed.contains("executions that still run on the engine temporal: 1")
            && observed.contains("cannot be reached"))
        .then_some(())
    })
    .await;
    let item = tenant.queue(&id).await;
    assert!(text(&item["waiting"]["message"]).contains("now uses the engine embedded"), "{item}");
    let ended = tenant.api.post(&format!("workflow/executions/{id}/terminate"), json!({})).await.expect(200);
    assert_eq!(ended["status"], "CANCELED");
    assert_eq!(world.count("execution_queue WHERE stage = 5").await, 0);
}

#[tokio::test]
async fn a_run_of_the_embedded_engine_goes_on_after_the_engine_was_changed_to_temporal() {
    let mut world = World::with(&MORTAL).await;
    let tenant = world.tenant("FREE").await;
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let id = tenant.start(&held).await;
    world.receiver.until_called("/hold/a", 1).await;
    world.server.process.sigkill();
    let address = format!("engine.temporal.address={}", server());
    let changed = world.another(&["engine.kind=temporal", &address, MORTAL[0], MORTAL[1]]).await;
    world.receiver.open();
    assert_eq!(tenant.at(&changed.base).completed(&id).await["engine"], "embedded");
}

#[tokio::test]
async fn a_slow_poll_delays_neither_the_end_of_a_deleted_run_nor_its_slot() {
    let world = World::with(&["dispatch.poll_interval_ms=600000"]).await;
    let tenant = world.tenant("FREE").await;
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let (lost, stray) = (tenant.start(&held).await, tenant.start(&held).await);
    world.receiver.until_called("/hold/a", 1).await;
    // The second waits for a slot and is given one by hand, so no process holds it: only the loop of strays finds it.
    let sql = format!(
        "UPDATE execution_queue SET status = 'DISPATCHED', stage = 5,
                claim_number = nextval('forebay.claim_number'), claim_id = gen_random_uuid(),
                claimed_by = gen_random_uuid(), claimed_at = now(), dispatched_at = now() WHERE id = '{stray}';
         DELETE FROM workflow_execution WHERE id IN ('{lost}', '{stray}')"
    );
    world.run_sql(&sql).await;
    for (id, actor) in [(&lost, "engine"), (&stray, "strays")] {
        let audited =
            format!("activity WHERE subject_id = '{id}' AND action = 'queue_item.fail' AND actor = '{actor}'");
        until("its slot is free", async || (world.count(&audited).await == 1).then_some(())).await;
    }
}

#[tokio::test]
async fn a_stray_that_cannot_be_ended_keeps_no_other_slot_taken() {
    let world = World::with(&["engine.temporal.address=http://127.0.0.1:9"]).await;
    let tenant = world.tenant("PRO").await;
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let (first, second) = (tenant.start(&held).await, tenant.start(&held).await);
    world.receiver.until_called("/hold/a", 2).await;
    let sql = format!(
        "ALTER TABLE workflow_execution ADD CONSTRAINT stays CHECK (id <> '{first}' OR status = 'RUNNING');
         UPDATE workflow_execution SET engine = 'temporal', engine_location = 'elsewhere', owner = gen_random_uuid(),
                owner_epoch = owner_epoch + 1, terminate_requested_at = now()"
    );
    world.run_sql(&sql).await;
    until("the second ends", async || (tenant.status(&second).await == "CANCELED").then_some(())).await;
    assert_eq!(tenant.status(&first).await, "RUNNING");
}

#[tokio::test]
async fn a_lost_execution_that_cannot_be_ended_keeps_no_other_slot_taken() {
    let world = World::with(&["dispatch.poll_interval_ms=600000"]).await;
    let tenant = world.tenant("FREE").await;
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    tenant.start(&held).await;
    world.receiver.until_called("/hold/a", 1).await;
    // These wait for a slot and are given one by hand, so no process holds them: only the loop of strays finds them.
    let (first, second) = (tenant.start(&held).await, tenant.start(&held).await);
    let sql = format!(
        "ALTER TABLE execution_queue ADD CONSTRAINT stays CHECK (id <> '{first}' OR status <> 'FAILED');
         UPDATE execution_queue SET status = 'DISPATCHED', stage = 5,
                claim_number = nextval('forebay.claim_number'), claim_id = gen_random_uuid(),
                claimed_by = gen_random_uuid(), claimed_at = now(), dispatched_at = now() WHERE id IN ('{first}', '{second}');
         DELETE FROM workflow_execution WHERE id IN ('{first}', '{second}')"
    );
    world.run_sql(&sql).await;
    let freed = format!("execution_queue WHERE id = '{second}' AND status = 'FAILED'");
    until("the second is freed", async || (world.count(&freed).await == 1).then_some(())).await;
    assert_eq!(world.count(&format!("execution_queue WHERE id = '{first}' AND status = 'DISPATCHED'")).await, 1);
    let logs = &world.server.process.stderr;
    until("the failed pass is logged", async || logs.contain("Background loop failed").then_some(())).await;
}

#[tokio::test]
async fn a_full_process_that_cannot_count_orphans_drops_a_deleted_run_all_the_same() {
    let world = World::with(&["engine.max_runs=1"]).await;
    let tenant = world.tenant("PRO").await;
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let lost = tenant.start(&held).await;
    world.receiver.until_called("/hold/a", 1).await;
    // Only the count needs it.
    world.run_sql("ALTER TABLE workflow_execution RENAME COLUMN semantics TO semantics_gone").await;
    until("the count fails", async || world.server.process.stderr.contain("Background loop failed").then_some(()))
        .await;
    world.run_sql(&format!("DELETE FROM workflow_execution WHERE id = '{lost}'")).await;
    let ended = format!("execution_queue WHERE id = '{lost}' AND status = 'FAILED'");
    until("it is a dead letter", async || (world.count(&ended).await == 1).then_some(())).await;
    let by_its_process = format!("activity WHERE subject_id = '{lost}' AND actor = 'engine'");
    assert_eq!(world.count(&by_its_process).await, 1, "and not by the look for strays");
}
