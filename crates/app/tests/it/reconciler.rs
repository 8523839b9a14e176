//! Tests runs that a remote engine lost, ended without this service, or never began.
//!
//! Invariants
//! - The reconciler asks about a run only after a delay. In these tests the delay passes only when a test lets it pass.
//!
//! Not here: the verdicts as a table (`kernel::run::reconcile`).

use serde_json::json;

use crate::support::{Scene, until};

/// Longer than any test.
const NOT_YET: &str = "engine.reconcile_after_ms=3600000";

async fn scene(mode: &str) -> Scene {
    Scene::with(mode, &[NOT_YET]).await
}

/// Makes every dispatched item two hours older.
async fn age(scene: &Scene) {
    scene.world.run_sql("UPDATE execution_queue SET dispatched_at = dispatched_at - interval '2 hours'").await;
}

async fn begun(scene: &Scene) -> String {
    scene.engine.write("hold", "");
    let id = scene.start().await;
    until("it runs", async || (scene.tenant.status(&id).await == "RUNNING").then_some(())).await;
    dispatched(scene, &id).await;
    id
}

async fn dispatched(scene: &Scene, id: &str) {
    scene.until_item(id, "is dispatched", |item| item["status"] == "DISPATCHED").await;
}

/// The engine ended it, and its worker died before it could say so.
fn closed_there(scene: &Scene, id: &str, outcome: &str) {
    scene.engine.write(&format!("runs/{id}"), outcome);
    scene.engine.remove(&format!("tasks/{id}"));
}

#[tokio::test]
async fn a_run_that_ended_there_ends_here_with_that_outcome() {
    let scene = scene("available").await;
    for (outcome, error) in
        [("COMPLETED", json!(null)), ("FAILED", json!("EXECUTION_ERROR")), ("CANCELED", json!(null))]
    {
        let id = begun(&scene).await;
        closed_there(&scene, &id, outcome);
        age(&scene).await;
        let ended = scene.tenant.ended(&id).await;
        assert_eq!((&ended["status"], &ended["error"]["type"]), (&json!(outcome), &error), "{ended}");
        assert_eq!(scene.tenant.running().await, 0, "its slot is free");
        assert_eq!(scene.engine.answers(&id), ["Started"]);
    }
}

#[tokio::test]
async fn a_run_that_the_engine_does_not_know_is_given_up_and_never_started_again() {
    let scene = scene("lost").await;
    let id = scene.start().await;
    dispatched(&scene, &id).await;
    scene.engine.mode("available");
    let other = begun(&scene).await;
    assert_eq!(scene.tenant.status(&id).await, "PENDING", "before its time nothing is asked");
    age(&scene).await;
    let ended = scene.tenant.ended(&id).await;
    assert_eq!((&ended["status"], &ended["error"]["type"]), (&json!("FAILED"), &json!("ENGINE_LOST")), "{ended}");
    assert_eq!(scene.engine.answers(&id), ["Started"]);
    assert_eq!(scene.item(&id).await["status"], "FAILED", "the dead letter has it");
    scene.engine.remove("hold");
    scene.tenant.completed(&other).await;
    scene.engine.ran_once(&other).await;
    assert_eq!(scene.check("reconciler").await, "ok");
}

#[tokio::test]
async fn a_run_that_completed_there_without_beginning_here_is_given_up() {
    let scene = scene("available").await;
    scene.engine.write("idle", "");
    let id = scene.start().await;
    dispatched(&scene, &id).await;
    closed_there(&scene, &id, "COMPLETED");
    age(&scene).await;
    let ended = scene.tenant.ended(&id).await;
    assert_eq!((&ended["status"], &ended["error"]["type"]), (&json!("FAILED"), &json!("ENGINE_LOST")), "{ended}");
}

#[tokio::test]
async fn a_run_that_no_worker_has_picked_up_is_diagnosed_and_left() {
    let scene = scene("available").await;
    scene.engine.write("idle", "");
    let id = scene.start().await;
    dispatched(&scene, &id).await;
    age(&scene).await;
    scene.until_check("reconciler", |text| text.starts_with("no worker has picked up 1 started executions")).await;
    assert_eq!(scene.item(&id).await["waiting"]["reason"], "starting");
    scene.engine.remove("idle");
    scene.tenant.completed(&id).await;
    scene.engine.ran_once(&id).await;
    scene.until_check("reconciler", |text| text == "ok").await;
}

#[tokio::test]
async fn when_much_is_unknown_at_once_nothing_is_given_up_and_readiness_says_so() {
    let mut scene = scene("lost").await;
    scene.tenant = scene.world.tenant("ENTERPRISE").await;
    scene.definition = scene.tenant.light().await;
    let all = scene.tenant.start_many(&scene.definition, 11).await;
    for id in &all {
        dispatched(&scene, id).await;
    }
    scene.engine.mode("available");
    age(&scene).await;
    let said = scene.until_check("reconciler", |text| text.starts_with("the check stopped: ")).await;
    assert!(said.starts_with("the check stopped: the engine does not know 11 runs that it accepted"), "{said}");
    for id in &all {
        assert_eq!(scene.tenant.status(id).await, "PENDING");
    }
    // The engine comes to its senses.
    for id in &all {
        scene.engine.write(&format!("runs/{id}"), "RUNNING");
        scene.engine.write(&format!("tasks/{id}"), "");
    }
    for id in &all {
        scene.tenant.completed(id).await;
    }
    scene.until_check("reconciler", |text| text == "ok").await;
}

#[tokio::test]
async fn runs_of_another_place_are_not_judged_by_this_one() {
    let scene = scene("available").await;
    let id = begun(&scene).await;
    scene.engine.write("where", "another");
    closed_there(&scene, &id, "FAILED");
    age(&scene).await;
    let said = scene.until_check("reconciler", |text| text.starts_with("the check stopped: ")).await;
    assert!(
        said.starts_with("the check stopped: runs were started at \"test\", but the engine is now \"another\""),
        "{said}"
    );
    assert_eq!(scene.tenant.status(&id).await, "RUNNING");
    scene.engine.write("where", "test");
    assert_eq!(scene.tenant.ended(&id).await["status"], "FAILED");
    scene.until_check("reconciler", |text| text == "ok").await;
}

#[tokio::test]
async fn a_cancel_asked_for_at_a_process_without_an_engine_reaches_the_run() {
    let scene = scene("available").await;
    let id = begun(&scene).await;
    let api_only = scene.world.another(&["workflow.engine.enabled=false"]).await;
    let tenant = scene.tenant.at(&api_only.base);
    tenant.api.post(&format!("workflow/executions/{id}/cancel"), json!({})).await.expect(202);
    age(&scene).await;
    assert_eq!(tenant.ended(&id).await["status"], "CANCELED");
}
