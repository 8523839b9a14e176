//! Waits for events: none is missed, whatever commits late and however its writer looks at the world.

use kernel::ids::{NodeKey, WorkspaceId};
use serde_json::json;
use store::ask::{Ask, Place, Standing, Told, What};
use store::taken::Hold;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::asks::{ask, brought, held};
use crate::support::{World, eventually};

/// A wait for payments.
fn wait(hold: Hold, workspace: WorkspaceId) -> Ask {
    let place = Place { execution: hold.execution, node: NodeKey::new("paid").expect("a key"), iteration: 0 };
    let what = What::Wait { event: Some("payment.made".to_owned()), matches: Some("event.data.n > 1".to_owned()) };
    Ask { place, workspace, attempt: 1, what, input: json!({}), expires_in: None }
}

async fn append(client: &Client, workspace: WorkspaceId, kind: &str, n: i32) {
    let sql = "INSERT INTO domain_events (workspace_id, stream_id, stream_type, stream_version, event_type, event_data)
               VALUES ($1, $2, 'payment', 1, $3, jsonb_build_object('n', $4::int))";
    client.execute(sql, &[&workspace.0, &Uuid::now_v7(), &kind, &n]).await.expect("an event");
}

/// What would be judged now, by its number.
async fn noted(world: &World) -> Vec<i64> {
    let candidates = world.store.candidates(100).await.expect("candidates");
    assert!(candidates.iter().all(|candidate| candidate.matches.as_deref() == Some("event.data.n > 1")));
    candidates.iter().map(|candidate| candidate.event.data["n"].as_i64().expect("a number")).collect()
}

/// Looks once more.
async fn look(world: &World) {
    world.store.look_for_events(100).await.expect("a look");
}

/// Looks until every transaction of the moment is over: other databases of the server have some too.
async fn looked(world: &World) {
    eventually("nobody looks for events any more", async || {
        look(world).await;
        world.count(LOOKING).await == 0
    })
    .await;
}

const LOOKING: &str = "workflow_execution_ask WHERE look";

#[tokio::test]
async fn an_event_is_a_candidate_of_the_waits_for_its_type_in_its_workspace_and_of_no_other() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let (_, stranger) = held(&world).await;
    append(&world.client, workspace, "payment.made", 1).await;
    assert_eq!(world.count("workflow_execution_candidate").await, 0, "nobody waits");
    ask(&world, hold, &wait(hold, workspace)).await;
    assert_eq!(noted(&world).await, [1], "what was there when it opened");
    append(&world.client, workspace, "payment.made", 2).await;
    append(&world.client, workspace, "payment.refused", 3).await;
    append(&world.client, stranger, "payment.made", 4).await;
    assert_eq!(noted(&world).await, [1, 2]);
    ask(&world, hold, &wait(hold, workspace)).await;
    assert_eq!(noted(&world).await, [1, 2], "asking again notes nothing again");
}

#[tokio::test]
async fn what_happened_before_the_execution_was_made_is_no_answer() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    append(&world.client, workspace, "payment.made", 1).await;
    let definition = world.definition(workspace, crate::support::Limits::default()).await;
    let (hold, _) = crate::asks::held_of(&world, workspace, definition).await;
    ask(&world, hold, &wait(hold, workspace)).await;
    looked(&world).await;
    assert_eq!(noted(&world).await, Vec::<i64>::new());
}

#[tokio::test]
async fn the_event_that_matched_is_the_answer_and_the_others_are_forgotten() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let wait = wait(hold, workspace);
    ask(&world, hold, &wait).await;
    for n in 1..=3 {
        append(&world.client, workspace, "payment.made", n).await;
    }
    let candidates = world.store.candidates(100).await.expect("candidates");
    world.store.drop_candidates(&[candidates[0].id]).await.expect("dropped");
    let told = world.store.answer_with_event(&wait.place, &json!({ "n": 2 })).await.expect("an answer");
    assert!(matches!(told, Told::Accepted(Some(_))), "{told:?}");
    let second = world.store.answer_with_event(&wait.place, &json!({ "n": 3 })).await.expect("an answer");
    assert_eq!(second, Told::Answered);
    assert_eq!(brought(&ask(&world, hold, &wait).await), r#"{"n":2} by event"#);
    assert_eq!(noted(&world).await, Vec::<i64>::new());
    assert_eq!(world.count("workflow_execution_candidate").await, 0);
}

#[tokio::test]
async fn an_event_whose_writer_commits_late_is_found_when_every_transaction_of_that_moment_is_over() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let (mut writer, mut other) = (world.database.client().await, world.database.client().await);
    // Both are written while nobody waits, as far as their writers can see.
    let late = writer.transaction().await.expect("a transaction");
    append(late.client(), workspace, "payment.made", 7).await;
    ask(&world, hold, &wait(hold, workspace)).await;
    look(&world).await;
    look(&world).await;
    assert_eq!(noted(&world).await, Vec::<i64>::new(), "its writer has not committed");
    assert_eq!(world.count(LOOKING).await, 1, "so the wait goes on looking");
    late.commit().await.expect("a commit");
    looked(&world).await;
    assert_eq!(noted(&world).await, [7]);
    // From now on writers see the wait, whatever else is open.
    let open = other.transaction().await.expect("a transaction");
    append(open.client(), workspace, "payment.made", 8).await;
    open.commit().await.expect("a commit");
    assert_eq!(noted(&world).await, [7, 8]);
}

#[tokio::test]
async fn an_event_whose_writer_looks_at_an_older_world_is_found_too() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let mut writer = world.database.client().await;
    let build = writer.build_transaction().isolation_level(tokio_postgres::IsolationLevel::RepeatableRead);
    let old = build.start().await.expect("a transaction");
    // Its view is of now, when nobody waits; its number is drawn when it writes.
    old.query_one("SELECT count(*) FROM workflow_execution_ask", &[]).await.expect("a view");
    ask(&world, hold, &wait(hold, workspace)).await;
    // No number of that moment is open.
    looked(&world).await;
    let sql = "INSERT INTO domain_events (workspace_id, stream_id, stream_type, stream_version, event_type, event_data, created_at)
               VALUES ($1, $2, 'payment', 1, 'payment.made', '{\"n\": 9}', clock_timestamp())";
    old.execute(sql, &[&workspace.0, &Uuid::now_v7()]).await.expect("an event");
    old.commit().await.expect("a commit");
    assert_eq!(noted(&world).await, [9]);
}

#[tokio::test]
async fn an_early_answer_needs_no_event_and_events_answer_nobody_early() {
    let world = World::new().await;
    let (hold, workspace) = held(&world).await;
    let wait = wait(hold, workspace);
    let told = world.store.answer_with_event(&wait.place, &json!(1)).await;
    assert!(matches!(told, Err(store::Error::NotFound)), "{told:?}");
    world.store.answer(&wait.place, None, &json!(1), "ada").await.expect("an answer");
    assert!(matches!(ask(&world, hold, &wait).await, Standing::Answered(_)));
    append(&world.client, workspace, "payment.made", 5).await;
    assert_eq!(world.count("workflow_execution_candidate").await, 0);
}
