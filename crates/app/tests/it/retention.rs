//! Retention, end to end: a running service deletes what ended long ago, exactly as the retention rules require.
//!
//! Not here: the rules one by one (the tests of `store`).

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::http::send;
use crate::support::tenant::text;
use crate::support::{Tenant, World, until};

/// As short as it can be set.
const DAYS: [&str; 2] = ["retention.execution_days=1", "retention.activity_days=2"];

/// Starts an execution under a key.
async fn start(tenant: &Tenant, key: &str, body: &Value) -> String {
    let request = tenant.api.request(Method::POST, "workflow/executions/start").header("idempotency-key", key);
    text(&send(request.json(body)).await.expect(202)["executionId"])
}

/// Everything of an execution happened three days ago, but what was noted of it only then. Its id tells when
/// it was made, so it gets another, which is answered.
async fn three_days_ago(world: &World, id: &str, noted: &str) -> String {
    let then = "extract(epoch FROM now() - interval '3 days') * 1000";
    let sql = format!("SELECT lpad(to_hex(({then})::bigint), 12, '0') || right(replace('{id}', '-', ''), 20)");
    let aged: String = world.database.client().await.query_one(&sql, &[]).await.expect("an id").get(0);
    let ago = |column: &str| format!("{column} = {column} - interval '3 days'");
    let (created, started, completed) = (ago("created_at"), ago("started_at"), ago("completed_at"));
    world
        .run_sql(&format!(
            "UPDATE workflow_execution SET id = '{aged}', root = '{aged}', {created}, {started}, {completed} WHERE id = '{id}';
             UPDATE workflow_execution_node SET execution_id = '{aged}', {started}, {completed} WHERE execution_id = '{id}';
             UPDATE execution_queue SET id = '{aged}', {created} WHERE id = '{id}';
             UPDATE activity SET subject_id = '{aged}', at = at - interval '{noted}' WHERE subject_id = '{id}'"
        ))
        .await;
    aged.parse::<uuid::Uuid>().expect("an id").to_string()
}

/// Lets the time pass that a lease is kept at least, and starts a process that looks immediately.
async fn look_again(world: &World, settings: &[&str]) -> crate::support::Server {
    let first = "shedlock WHERE name = 'forebayRetention'";
    until("the first look is over", async || (world.count(first).await == 1).then_some(())).await;
    world.run_sql("UPDATE shedlock SET lock_until = locked_at WHERE name = 'forebayRetention'").await;
    world.another(settings).await
}

#[tokio::test]
async fn what_ended_long_ago_is_forgotten_and_what_a_young_key_names_is_not() {
    let world = World::with(&DAYS).await;
    let tenant = world.tenant("PRO").await;
    let light = json!({ "workflowDefinitionId": tenant.light().await });
    let fails = tenant.apply("fails", json!({ "no": { "kind": "FAIL", "with": { "message": "no" } } })).await;
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;

    let (plain, keyed) = (start(&tenant, "old", &light).await, start(&tenant, "young", &light).await);
    let (failed, young) = (tenant.start(&fails).await, start(&tenant, "today", &light).await);
    for id in [&plain, &keyed, &young] {
        tenant.completed(id).await;
    }
    assert_eq!(tenant.ended(&failed).await["status"], "FAILED");
    let running = tenant.start(&held).await;
    world.receiver.until_called("/hold/a", 1).await;

    let plain = three_days_ago(&world, &plain, "3 days").await;
    let failed = three_days_ago(&world, &failed, "1 day").await;
    let keyed = three_days_ago(&world, &keyed, "3 days").await;
    // Its key was first shown 23 hours ago, and is remembered for a day.
    world
        .run_sql(&format!(
            "UPDATE workflow_execution SET created_at = now() - interval '23 hours' WHERE id = '{keyed}'"
        ))
        .await;
    let of = |table: &str, column: &str, id: &str| format!("{table} WHERE {column} = '{id}'");
    assert_eq!(world.count(&of("workflow_execution_node", "execution_id", &plain)).await, 1);
    assert_eq!(world.count(&of("execution_queue", "id", &failed)).await, 1, "its dead letter");

    let later = look_again(&world, &DAYS).await;
    until("the old are gone", async || {
        let old = format!("workflow_execution WHERE id IN ('{plain}', '{failed}')");
        (world.count(&old).await == 0).then_some(())
    })
    .await;
    for id in [&plain, &failed] {
        assert_eq!(tenant.api.get(&format!("workflow/executions/{id}")).await.problem(404), "not_found");
        assert_eq!(world.count(&of("workflow_execution_node", "execution_id", id)).await, 0, "its nodes went along");
        assert_eq!(world.count(&of("execution_queue", "id", id)).await, 0, "its dead letter too");
    }
    until("old activity is gone", async || {
        (world.count("activity WHERE at < now() - interval '2 days'").await == 0).then_some(())
    })
    .await;
    assert!(world.count(&of("activity", "subject_id", &failed)).await > 0, "activity has an age of its own");

    assert_eq!(start(&tenant, "young", &light).await, keyed, "a key within its day names what it named");
    assert_eq!(start(&tenant, "today", &light).await, young);
    assert_ne!(start(&tenant, "old", &light).await, plain, "a deleted execution frees its key for a new start");
    assert_eq!(tenant.status(&running).await, "RUNNING", "what has not ended stays");
    world.receiver.open();
    tenant.completed(&running).await;
    drop(later);
}

#[tokio::test]
async fn executions_that_wait_in_front_hold_up_nothing_that_ended_behind_them() {
    let world = World::with(&DAYS).await;
    let tenant = world.tenant("PRO").await;
    let ended = tenant.start(&tenant.light().await).await;
    tenant.completed(&ended).await;
    // More than one pass ever looked at, a day older than the one that ended.
    let waiting = "INSERT INTO workflow_execution (id, workspace_id, workflow_definition_id, version_id, status, semantics, deadline_at)
        SELECT (lpad(to_hex((extract(epoch FROM now() - interval '4 days') * 1000)::bigint + n), 12, '0') || '70008000000000000000')::uuid,
               e.workspace_id, e.workflow_definition_id, e.version_id, 'PENDING', e.semantics, now() + interval '1 day'
          FROM workflow_execution e CROSS JOIN generate_series(1, 100500) n";
    world.run_sql(waiting).await;
    let ended = three_days_ago(&world, &ended, "3 days").await;
    let later = look_again(&world, &DAYS).await;
    until("it is deleted", async || {
        (world.count(&format!("workflow_execution WHERE id = '{ended}'")).await == 0).then_some(())
    })
    .await;
    assert_eq!(world.count("workflow_execution").await, 100_500, "what waits stays");
    drop(later);
}

#[tokio::test]
async fn a_section_that_fails_stops_no_other() {
    let world = World::with(&DAYS).await;
    let tenant = world.tenant("PRO").await;
    let ended = tenant.start(&tenant.light().await).await;
    tenant.completed(&ended).await;
    let ended = three_days_ago(&world, &ended, "3 days").await;
    world
        .run_sql(
            "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;
             CREATE TRIGGER keep BEFORE DELETE ON workflow_execution FOR EACH ROW EXECUTE FUNCTION keep()",
        )
        .await;
    let later = look_again(&world, &DAYS).await;
    until("old activity is gone", async || {
        (world.count("activity WHERE at < now() - interval '2 days'").await == 0).then_some(())
    })
    .await;
    assert_eq!(world.count(&format!("workflow_execution WHERE id = '{ended}'")).await, 1, "its deletion failed");
    drop(later);
}
