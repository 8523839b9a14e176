//! Tests a remote engine that misbehaves: each answer to a start request, and what happens to the item then.
//!
//! Invariants
//! - The engine's own log decides what was started, begun and ended.
//!
//! Not here: the rules (`kernel::queue`, `kernel::queue::breaker`), an engine that lost runs (`reconciler`).

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::server::MORTAL;
use crate::support::{Scene, until};

#[tokio::test]
async fn a_start_that_is_accepted_is_dispatched_begun_and_completed_once() {
    let scene = Scene::new("available").await;
    scene.engine.write("hold", "");
    let id = scene.start().await;
    scene.until_item(&id, "is dispatched", |item| item["status"] == "DISPATCHED").await;
    until("it runs", async || (scene.tenant.status(&id).await == "RUNNING").then_some(())).await;
    let noted = "workflow_execution WHERE engine = 'test' AND engine_location = 'test'";
    assert_eq!(scene.world.count(noted).await, 1, "where it runs is noted");
    scene.engine.remove("hold");
    scene.tenant.completed(&id).await;
    scene.engine.ran_once(&id).await;
    assert_eq!(scene.engine.answers(&id), ["Started"]);
    assert_eq!(scene.tenant.running().await, 0);
}

#[tokio::test]
async fn an_item_that_is_refused_spends_an_attempt_each_time_and_fails_at_the_third() {
    let scene = Scene::new("refuses INVALID_ARGUMENT: too large").await;
    let id = scene.start().await;
    for attempt in 1..3 {
        let item = scene.until_item(&id, "is refused", |item| item["attempts"] == attempt).await;
        assert_eq!((&item["status"], &item["waiting"]["reason"]), (&json!("PENDING"), &json!("backing_off")), "{item}");
        assert_eq!(scene.tenant.running().await, 0, "it was not started, so it holds no slot");
        scene.world.run_sql("UPDATE execution_queue SET available_at = now() WHERE stage = 1").await;
    }
    let ended = scene.tenant.ended(&id).await;
    assert_eq!((&ended["status"], &ended["error"]["type"]), (&json!("FAILED"), &json!("DISPATCH_REFUSED")), "{ended}");
    assert_eq!(scene.engine.answers(&id), ["Refused"; 3]);
    assert_eq!(scene.readiness().await, "ok", "one item's fault is not the engine's");
    let dead = scene.item(&id).await;
    assert_eq!(dead["lastError"], "INVALID_ARGUMENT: too large", "{dead}");
}

#[tokio::test]
async fn a_start_whose_outcome_cannot_be_written_is_repeated_whatever_the_database_complains_of() {
    let scene = Scene::new("refuses INVALID_ARGUMENT: too large").await;
    // Not an outage: the statement itself fails, as after a migration that went wrong.
    scene
        .world
        .run_sql(
            "CREATE SEQUENCE trapped;
             CREATE FUNCTION trap() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                PERFORM nextval('forebay.trapped');
                RAISE EXCEPTION 'no such function' USING ERRCODE = 'undefined_function'; END $$;
             CREATE TRIGGER trap BEFORE UPDATE ON execution_queue FOR EACH ROW
                WHEN (OLD.status = 'CLAIMED' AND NEW.status = 'PENDING') EXECUTE FUNCTION trap()",
        )
        .await;
    let id = scene.start().await;
    scene.engine.until_asked(&id, 1).await;
    // A sequence keeps what a statement that failed took of it.
    until("the statement fails", async || (scene.world.count("trapped WHERE is_called").await > 0).then_some(())).await;
    assert_eq!(scene.item(&id).await["status"], "CLAIMED");
    scene.engine.mode("available");
    scene.world.run_sql("DROP TRIGGER trap ON execution_queue").await;
    scene.tenant.completed(&id).await;
    scene.engine.ran_once(&id).await;
}

#[tokio::test]
async fn an_engine_out_of_reach_stops_claims_costs_no_attempt_and_is_found_again_by_itself() {
    let scene = Scene::new("unavailable UNAVAILABLE: connection refused").await;
    let first = scene.start().await;
    scene.engine.until_asked(&first, 1).await;
    let claimed = scene.item(&first).await;
    assert_eq!((&claimed["status"], &claimed["attempts"]), (&json!("CLAIMED"), &json!(0)), "{claimed}");
    let later: Vec<String> = scene.tenant.start_many(&scene.definition, 8).await;
    scene.engine.until_asked(&first, 3).await;
    for id in &later {
        let item = scene.item(id).await;
        assert_eq!((&item["status"], &item["attempts"]), (&json!("PENDING"), &json!(0)), "{item}");
        assert_eq!(item["waiting"]["reason"], "engine_unavailable", "{item}");
        assert!(scene.engine.answers(id).is_empty(), "nothing is sent but the probe");
    }
    let held = scene.item(&first).await;
    let message = held["waiting"]["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("the engine has been unavailable since 20"), "{held}");
    assert!(message.ends_with("UNAVAILABLE: connection refused"), "{held}");
    assert_eq!(scene.tenant.running().await, 1, "the one that was sent keeps its slot");
    let readiness = scene.readiness().await;
    assert!(readiness.starts_with("unavailable since ") && readiness.ends_with("connection refused"), "{readiness}");
    assert_ne!(scene.breaker().await, "0");

    scene.engine.mode("available");
    for id in later.iter().chain([&first]) {
        scene.tenant.completed(id).await;
        scene.engine.ran_once(id).await;
    }
    assert_eq!((scene.readiness().await.as_str(), scene.breaker().await.as_str()), ("ok", "0"));
}

#[tokio::test]
async fn a_start_whose_answer_was_lost_is_repeated_and_found_to_be_there() {
    let scene = Scene::new("ambiguous").await;
    scene.engine.write("idle", "");
    let id = scene.start().await;
    scene.engine.until_asked(&id, 2).await;
    let item = scene.item(&id).await;
    assert_eq!((&item["status"], &item["attempts"]), (&json!("CLAIMED"), &json!(0)), "{item}");
    assert_eq!((scene.readiness().await.as_str(), scene.tenant.running().await), ("ok", 1));
    scene.engine.mode("available");
    let item = scene.until_item(&id, "is dispatched", |item| item["status"] == "DISPATCHED").await;
    assert_eq!(item["waiting"]["reason"], "starting", "{item}");
    scene.engine.remove("idle");
    scene.tenant.completed(&id).await;
    scene.engine.ran_once(&id).await;
    assert_eq!(scene.engine.answers(&id).last().map(String::as_str), Some("AlreadyStarted"));
}

#[tokio::test]
async fn a_start_that_never_arrived_is_repeated_under_the_same_claim() {
    let scene = Scene::new("unsent").await;
    let id = scene.start().await;
    scene.engine.until_asked(&id, 2).await;
    let claims = "SELECT claim_id::text FROM execution_queue";
    let claim = || async {
        let row = scene.world.database.client().await.query_one(claims, &[]).await.expect("a row");
        row.get::<_, String>(0)
    };
    let before = claim().await;
    scene.engine.until_asked(&id, 3).await;
    assert_eq!(claim().await, before);
    scene.engine.mode("available");
    scene.tenant.completed(&id).await;
    scene.engine.ran_once(&id).await;
    assert_eq!(scene.engine.answers(&id).last().map(String::as_str), Some("Started"));
}

#[tokio::test]
async fn an_engine_that_does_not_answer_in_time_leaves_the_start_in_doubt() {
    let scene = Scene::with("slow", &["dispatch.start_timeout_ms=200"]).await;
    scene.engine.write("idle", "");
    let id = scene.start().await;
    scene.engine.until_asked(&id, 2).await;
    assert_eq!(scene.item(&id).await["status"], "CLAIMED");
    assert_eq!(scene.item(&id).await["attempts"], 0);
    scene.engine.mode("available");
    scene.engine.remove("idle");
    scene.tenant.completed(&id).await;
    scene.engine.ran_once(&id).await;
}

#[tokio::test]
async fn a_full_engine_is_busy_and_not_unavailable() {
    let scene = Scene::new("full").await;
    let id = scene.start().await;
    let item = scene.item(&id).await;
    assert_eq!((&item["status"], &item["waiting"]["reason"]), (&json!("PENDING"), &json!("engine_full")), "{item}");
    assert_eq!((scene.readiness().await.as_str(), scene.breaker().await.as_str()), ("full", "0"));
    assert!(scene.engine.answers(&id).is_empty());
    scene.engine.mode("available");
    scene.tenant.completed(&id).await;
    scene.engine.ran_once(&id).await;
}

#[tokio::test]
async fn a_refusal_of_a_start_in_doubt_is_believed_only_if_the_engine_does_not_know_it() {
    let scene = Scene::new("ambiguous").await;
    scene.engine.write("idle", "");
    let there = scene.start().await;
    scene.engine.until_asked(&there, 1).await;
    scene.engine.mode("unsent");
    let missing = scene.start().await;
    scene.engine.until_asked(&missing, 1).await;
    scene.engine.mode("refuses");
    let item = scene.until_item(&there, "is dispatched", |item| item["status"] == "DISPATCHED").await;
    assert_eq!(item["attempts"], 0, "{item}");
    let item = scene.until_item(&missing, "is put back", |item| item["status"] == "PENDING").await;
    assert_eq!(item["attempts"], 1, "{item}");
    scene.engine.mode("available");
    scene.engine.remove("idle");
    scene.world.run_sql("UPDATE execution_queue SET available_at = now() WHERE stage = 1").await;
    for id in [&there, &missing] {
        scene.tenant.completed(id).await;
        scene.engine.ran_once(id).await;
    }
}

/// The storage of the engine stored the run, but answered too late.
#[tokio::test]
async fn a_refusal_after_an_outage_is_not_believed_if_the_engine_knows_the_run() {
    let scene = Scene::new("hasty UNAVAILABLE: storage timed out").await;
    scene.engine.write("idle", "");
    let id = scene.start().await;
    scene.engine.until_asked(&id, 1).await;
    scene.engine.mode("refuses");
    let item = scene.until_item(&id, "is dispatched", |item| item["status"] == "DISPATCHED").await;
    assert_eq!(item["attempts"], 0, "{item}");
    scene.engine.mode("available");
    scene.engine.remove("idle");
    scene.tenant.completed(&id).await;
    scene.engine.ran_once(&id).await;
}

#[tokio::test]
async fn a_claimer_that_dies_between_the_start_and_its_answer_is_taken_over_with_the_slot_kept() {
    let mut scene = Scene::with("slow", &MORTAL).await;
    scene.engine.write("idle", "");
    let id = scene.start().await;
    scene.engine.until_asked(&id, 1).await;
    let other = scene.world.another(&[&scene.engine.setting(), MORTAL[0], MORTAL[1]]).await;
    scene.world.server.process.sigkill();
    scene.tenant = scene.tenant.at(&other.base);
    assert_eq!(scene.tenant.running().await, 1, "the slot is kept");
    scene.engine.mode("available");
    scene.engine.until_asked(&id, 2).await;
    scene.engine.remove("idle");
    scene.tenant.completed(&id).await;
    scene.engine.ran_once(&id).await;
    assert_eq!(scene.engine.answers(&id), ["Started", "AlreadyStarted"]);
}

#[tokio::test]
async fn a_cancel_reaches_a_run_of_the_engine_and_a_start_that_is_held_back() {
    let scene = Scene::new("available").await;
    scene.engine.write("hold", "");
    let running = scene.start().await;
    until("it runs", async || (scene.tenant.status(&running).await == "RUNNING").then_some(())).await;
    scene.engine.mode("unavailable");
    let held = scene.start().await;
    scene.engine.until_asked(&held, 1).await;
    for (id, status) in [(&running, 202), (&held, 200)] {
        scene.tenant.api.post(&format!("workflow/executions/{id}/cancel"), json!({})).await.expect(status);
        assert_eq!(scene.tenant.ended(id).await["status"], "CANCELED");
    }
    until("the slots are free", async || (scene.tenant.running().await == 0).then_some(())).await;
    scene.engine.mode("available");
    scene.engine.remove("hold");
    let next = scene.start().await;
    scene.tenant.completed(&next).await;
    assert!(scene.engine.logged(&format!("begin {held}")).is_empty(), "a late start performs nothing");
}

/// How long the engine is away: seconds here, minutes for whoever asks for them.
fn outage() -> Duration {
    let seconds = std::env::var("FOREBAY_TEST_OUTAGE_S").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(4))
}

#[tokio::test]
async fn an_outage_under_load_loses_doubles_fails_and_attempts_nothing() {
    let scene = Scene::new("available").await;
    let other = scene.another().await;
    let tenants = [scene.tenant.clone(), scene.tenant.at(&other.base)];
    let mut all = Vec::new();
    for tenant in &tenants {
        all.extend(tenant.start_many(&scene.definition, 10).await);
    }
    scene.engine.mode("unavailable UNAVAILABLE: it is away");
    let began = Instant::now();
    while began.elapsed() < outage() {
        for tenant in &tenants {
            all.push(tenant.start(&scene.definition).await);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // Each process reports only the failures that it met itself; a process that could claim nothing has met none.
    let observed =
        [scene.readiness().await, other.anonymous().get("/readyz").await.expect(200)["checks"]["engine"].to_string()];
    assert!(observed.iter().any(|observed| observed.contains("unavailable since ")), "{observed:?}");
    scene.engine.mode("available");
    for id in &all {
        scene.tenant.completed(id).await;
    }
    for id in &all {
        scene.engine.ran_once(id).await;
        let accepted = scene.engine.answers(id).into_iter().filter(|answer| answer == "Started").count();
        assert_eq!(accepted, 1, "{id} was accepted once");
    }
    assert_eq!(scene.world.count("execution_queue").await, 0);
    assert_eq!(scene.world.count("workflow_execution WHERE status <> 'COMPLETED'").await, 0);
    assert_eq!(scene.world.count("activity WHERE action = 'queue_item.fail'").await, 0);
}

#[tokio::test]
async fn however_many_claims_there_are_so_many_starts_are_under_way_and_so_many_are_claimed_ahead() {
    let scene = Scene::with("slow", &["dispatch.parallel_starts=1", "dispatch.start_timeout_ms=4000"]).await;
    // Nobody performs what the engine accepted: what is claimed stays so.
    scene.engine.write("idle", "");
    scene.world.run_sql("UPDATE workspace SET limit_override = 20").await;
    let all = scene.tenant.start_many(&scene.definition, 20).await;
    let claimed = async || scene.world.count("execution_queue WHERE status = 'CLAIMED'").await;
    let ahead = until("more than half of the line is taken", async || Some(claimed().await).filter(|n| *n > 4)).await;
    assert_eq!(scene.engine.logged("start").len(), 1, "one is sent, whatever is claimed");
    assert!(ahead <= 8, "{ahead} are claimed ahead of one start");
    scene.engine.mode("available");
    scene.engine.remove("idle");
    for id in &all {
        scene.tenant.completed(id).await;
        scene.engine.ran_once(id).await;
    }
}
