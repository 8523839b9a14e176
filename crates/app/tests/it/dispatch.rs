//! Tests how items reach the engine: with and without hints, from one process to another, with the engine switched off,
//! and with several processes at once.

use serde_json::json;
use store::access::key::Secret;
use store::testing::Database;

use crate::support::{Server, World, until};

#[tokio::test]
async fn without_hints_everything_completes_by_the_poll() {
    let world = World::with(&["dispatch.notifications=false"]).await;
    let api_only = world.another(&["dispatch.notifications=false", "workflow.engine.enabled=false"]).await;
    let tenant = world.tenant("PRO").await;
    let definition = tenant.light().await;
    let mut all = tenant.start_many(&definition, 10).await;
    all.extend(tenant.at(&api_only.base).start_many(&definition, 10).await);
    for id in &all {
        tenant.completed(id).await;
    }
    assert_eq!(world.count("execution_queue").await, 0);
}

#[tokio::test]
async fn whoever_ends_an_execution_starts_the_next_without_a_poll() {
    let world = World::with(&["dispatch.poll_interval_ms=600000"]).await;
    let tenant = world.tenant("FREE").await;
    let definition = tenant.light().await;
    for id in tenant.start_many(&definition, 20).await {
        tenant.completed(&id).await;
    }
}

#[tokio::test]
async fn a_hint_reaches_another_process_without_a_poll() {
    let slow = "dispatch.poll_interval_ms=600000";
    let world = World::with(&[slow]).await;
    let api_only = world.another(&[slow, "workflow.engine.enabled=false"]).await;
    let tenant = world.tenant("FREE").await.at(&api_only.base);
    let definition = tenant.light().await;
    for _ in 0..3 {
        tenant.completed(&tenant.start(&definition).await).await;
    }
}

#[tokio::test]
async fn with_the_engine_off_items_are_accepted_and_wait_for_a_server_that_has_one() {
    let world = World::with(&["workflow.engine.enabled=false"]).await;
    let tenant = world.tenant("PRO").await;
    let all = tenant.start_many(&tenant.light().await, 3).await;
    for id in &all {
        let item = tenant.queue(id).await;
        assert_eq!((&item["status"], &item["waiting"]["reason"]), (&json!("PENDING"), &json!("engine_off")), "{item}");
    }
    let ready = world.server.anonymous().get("/readyz").await;
    let engine = ready.body["checks"]["engine"].as_str().unwrap_or_default();
    assert!(engine.starts_with("off"), "{}", ready.text);
    let _enabled = world.another(&[]).await;
    let leased = "shard_owner WHERE until > now()";
    until("the one that dispatches has every shard", async || (world.count(leased).await == 64).then_some(())).await;
    for id in &all {
        tenant.completed(id).await;
    }
}

#[tokio::test]
async fn two_servers_share_the_work_and_never_exceed_the_limit() {
    let world = World::new().await;
    let other = world.another(&[]).await;
    let tenant = world.tenant("PRO").await;
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let mut all = tenant.start_many(&held, 6).await;
    all.extend(tenant.at(&other.base).start_many(&held, 6).await);
    world.receiver.until_called("/hold/a", 5).await;
    let item = tenant.queue(&all[11]).await;
    assert_eq!((&item["waiting"]["running"], &item["waiting"]["limit"]), (&json!(5), &json!(5)), "{item}");
    assert_eq!((tenant.running().await, world.receiver.calls("/hold/a").len()), (5, 5));
    world.receiver.open();
    for id in &all {
        tenant.completed(id).await;
    }
    assert_eq!(world.receiver.calls("/hold/a").len(), 12, "each was performed once");
}

#[tokio::test]
async fn five_processes_that_start_at_once_on_an_empty_database_all_become_ready() {
    let database = Database::empty().await;
    let key = Secret::generate().expect("randomness");
    let mut servers: Vec<Server> = (0..5).map(|_| Server::spawn(&database.url, &key, &[])).collect();
    for server in &mut servers {
        server.ready().await;
    }
    let sql = "SELECT count(*) FROM migration";
    let applied: i64 = database.client().await.query_one(sql, &[]).await.expect("a history").get(0);
    let all = crate::support::migrations().len();
    assert_eq!(usize::try_from(applied).ok(), Some(all), "each migration was applied once");
    for server in &servers {
        until("all are ready", async || (server.anonymous().get("/readyz").await.status == 200).then_some(())).await;
    }
    let tenant = crate::support::Tenant::new(servers[0].api(), "PRO").await;
    let definition = tenant.light().await;
    for server in &servers {
        tenant.completed(&tenant.at(&server.base).start(&definition).await).await;
    }
}

#[tokio::test]
async fn a_start_that_comes_while_a_full_workspace_is_being_asked_waits_for_no_poll() {
    let world = World::with(&["dispatch.poll_interval_ms=600000"]).await;
    let tenant = world.tenant("PRO").await;
    let long = tenant.apply("long", json!({ "d": { "kind": "DELAY", "with": { "for": "1h" } } })).await;
    let light = tenant.light().await;
    tenant.start_many(&long, 6).await;
    until("it is full", async || (world.count("execution_queue WHERE stage = 5").await == 5).then_some(())).await;
    // The claim that the raised limit brings takes long enough for another start to come meanwhile.
    world
        .run_sql(
            "CREATE FUNCTION nap() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1); RETURN NEW; END';
             CREATE TRIGGER nap BEFORE UPDATE ON execution_queue FOR EACH ROW
               WHEN (NEW.stage = 5 AND OLD.stage = 0) EXECUTE FUNCTION nap()",
        )
        .await;
    world.server.api().patch(&format!("workspaces/{}", tenant.id), json!({ "limit": 10 })).await;
    let asking = "pg_stat_activity WHERE wait_event = 'PgSleep'";
    until("it is being asked", async || (world.count(asking).await > 0).then_some(())).await;
    tenant.completed(&tenant.start(&light).await).await;
}

#[tokio::test]
async fn a_waiting_start_is_dispatched_when_another_process_frees_the_slot() {
    let world = World::with(&["dispatch.poll_interval_ms=600000"]).await;
    let tenant = world.tenant("FREE").await;
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let light = tenant.light().await;
    let first = tenant.start(&held).await;
    world.receiver.until_called("/hold/a", 1).await;
    // Found full: it is not asked again for a moment.
    let second = tenant.start(&light).await;
    let asked = format!(
        "pg_stat_activity WHERE datname = current_database() AND query LIKE '%forebay\\_r1.claim(%'
          AND query_start > (SELECT created_at FROM workflow_execution WHERE id = '{second}')"
    );
    until("it is found full", async || (world.count(&asked).await > 0).then_some(())).await;
    // Ended by somebody who tells nobody.
    let end = "SELECT forebay_r1.complete(ARRAY['ID'::uuid], ARRAY['CANCELED'], ARRAY[NULL::jsonb], ARRAY[NULL::jsonb],
                                    ARRAY[NULL::uuid], NULL, 'test')";
    world.run_sql(&end.replace("ID", &first)).await;
    let third = tenant.start(&light).await;
    tenant.completed(&second).await;
    tenant.completed(&third).await;
}

#[tokio::test]
async fn a_workspace_whose_items_cannot_be_claimed_keeps_no_other_waiting() {
    let world = World::with(&["dispatch.poll_interval_ms=200"]).await;
    let broken = world.tenant("PRO").await;
    let shard = |id: &str| u8::from_str_radix(&id[id.len() - 2..], 16).expect("an id ends in hex") & 63;
    let mut beside = world.tenant("PRO").await;
    while shard(&beside.id) != shard(&broken.id) {
        beside = world.tenant("PRO").await;
    }
    let elsewhere = world.tenant("PRO").await;
    let bad = broken.light().await;
    // A claim that meets an item of this workspace fails as a whole.
    let trap = "CREATE FUNCTION trap() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                    RAISE EXCEPTION 'not to be claimed' USING ERRCODE = 'data_exception'; END $$;
                CREATE TRIGGER trap BEFORE UPDATE ON execution_queue FOR EACH ROW
                    WHEN (NEW.workspace_id = 'ID' AND OLD.stage = 0 AND NEW.stage = 5) EXECUTE FUNCTION trap()";
    world.run_sql(&trap.replace("ID", &broken.id)).await;
    let stuck = broken.start_many(&bad, 3).await;
    for healthy in [&beside, &elsewhere] {
        for id in healthy.start_many(&healthy.light().await, 20).await {
            healthy.completed(&id).await;
        }
    }
    world.run_sql("DROP TRIGGER trap ON execution_queue").await;
    for id in &stuck {
        broken.completed(id).await;
    }
}
