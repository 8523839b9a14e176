//! Events of several workspaces: an id or a stream that one workspace chooses does not affect another workspace.

use kernel::ids::WorkspaceId;
use serde_json::{Value, json};
use store::event::{EventFilter, NewEvent};
use store::job::projector::JobStartOutcome;
use store::{Error, new_id};
use uuid::Uuid;

use crate::events::{event, rule};
use crate::jobs::{begins, is_rebuilt_alike, start};
use crate::support::{World, race};

/// The same id and stream for every owner, with data of its own.
fn shared(owners: &[Option<WorkspaceId>]) -> Vec<NewEvent> {
    let like = NewEvent { expected: Some(0), ..event("order.placed") };
    let of = |owner: &Option<WorkspaceId>| NewEvent { workspace: *owner, data: json!({ "of": owner }), ..like.clone() };
    owners.iter().map(of).collect()
}

#[tokio::test]
async fn ids_and_streams_of_events_belong_to_one_workspace() {
    let world = World::new().await;
    let (one, two) = (world.workspace("PRO").await, world.workspace("PRO").await);
    let events = shared(&[Some(one), Some(two), None]);
    for event in &events {
        let outcome =
            world.store.append(std::slice::from_ref(event)).await.expect("another workspace's event does not matter");
        assert_eq!((outcome[0].added, outcome[0].version, outcome[0].id), (true, 1, event.id));
    }
    let more = NewEvent { id: new_id(), expected: Some(1), ..events[1].clone() };
    world.store.append(&[more]).await.expect("the second of its own stream");
    let again = world.store.append(&events[..1]).await.expect("the same");
    assert_eq!((again[0].added, again[0].version), (false, 1));
    let late = NewEvent { id: new_id(), ..events[0].clone() };
    let Err(Error::Conflict(why)) = world.store.append(&[late]).await else { panic!("a conflict") };
    assert_eq!(why, "event 0: its stream is at version 1, not 0");
    for owner in [one, two] {
        let stored = world.store.event(events[0].id, Some(owner)).await.expect("its own");
        assert_eq!((stored.workspace, &stored.event.data), (Some(owner), &json!({ "of": owner })));
    }
    let asked = world.store.event(events[0].id, None).await;
    assert!(matches!(&asked, Err(Error::Conflict(why)) if why.contains("several workspaces")), "{asked:?}");
    let all =
        world.store.events(&EventFilter { stream_id: Some(events[0].stream_id), ..EventFilter::default() }, 10).await;
    assert_eq!(all.expect("a list").rows.len(), 4);
}

#[tokio::test]
async fn writers_of_several_workspaces_to_one_stream_id_do_not_conflict() {
    let world = World::new().await;
    let (one, two) = (world.workspace("PRO").await, world.workspace("PRO").await);
    let stream = new_id();
    race(&world.store, 4, |racer, store| async move {
        let owner = if racer % 2 == 0 { one } else { two };
        for _ in 0..10 {
            let next = NewEvent { stream_id: stream, workspace: Some(owner), ..event("order.placed") };
            store.append(std::slice::from_ref(&next)).await.expect("an append");
        }
    })
    .await;
    for owner in [one, two] {
        let line: String = world
            .get(
                "SELECT count(*) || ' ' || max(stream_version) FROM domain_events WHERE workspace_id = $1",
                &[&owner.0],
            )
            .await;
        assert_eq!(line, "20 20");
    }
}

#[tokio::test]
async fn events_that_share_an_id_have_a_job_and_an_execution_each() {
    let world = World::new().await;
    let (platform, definition) = world.tenant("ENTERPRISE").await;
    let (one, two) = (world.workspace("PRO").await, world.workspace("PRO").await);
    world.store.bind(None, Some(definition), &rule("order.*"), "test").await.expect("for the whole platform");
    // The last belongs to a workspace that does not exist yet.
    let events = shared(&[Some(one), Some(two), None, Some(WorkspaceId(new_id()))]);
    world.store.append(&events).await.expect("an append");
    let mut due: Vec<Value> =
        world.store.due_jobs(10).await.expect("due").into_iter().map(|due| due.event.data).collect();
    due.sort_by_key(ToString::to_string);
    let mut expected: Vec<Value> = events.iter().map(|event| event.data.clone()).collect();
    expected.sort_by_key(ToString::to_string);
    assert_eq!(due, expected);
    let logged: i64 = world
        .get(
            "SELECT count(*) FROM change_log l WHERE l.topic = 'job' AND l.op = 'INSERT'
                AND l.workspaces[1] IS NOT DISTINCT FROM nullif(l.record -> 'event_data' ->> 'of', '')::uuid",
            &[],
        )
        .await;
    assert_eq!(logged, 4, "each change is logged for its own workspace");
    let begun = world.store.begin_jobs(&begins(&world.store, start).await, "host-1", None).await.expect("begun");
    assert!(begun.iter().all(|begun| matches!(begun, JobStartOutcome::Started(_))), "{begun:?}");
    assert_eq!(world.count(&format!("workflow_execution WHERE workspace_id = '{platform}'")).await, 4);
    is_rebuilt_alike(&world).await;
    // A lost row is rebuilt with the payload of its own event.
    let lose = "BEGIN; SET LOCAL forebay.projection = 'rebuild'; DELETE FROM workflow_queue_projection;
                DELETE FROM workflow_queue_job; COMMIT";
    world.client.batch_execute(lose).await.expect("lost");
    world.store.rebuild_jobs().await.expect("a rebuild");
    let wrong = "workflow_queue_projection p JOIN workflow_queue_job j USING (id)
        WHERE p.event_data ->> 'of' IS DISTINCT FROM j.event_workspace_id::text";
    assert_eq!((world.count("workflow_queue_job").await, world.count(wrong).await), (4, 0));
    let again = NewEvent { data: json!({ "of": one }), ..events[0].clone() };
    assert!(!world.store.append(&[again]).await.expect("the same")[0].added);
    assert_eq!(world.count("workflow_queue_projection").await, 4);
}

#[tokio::test]
async fn a_derived_id_follows_from_its_seed_and_a_secret() {
    let world = World::new().await;
    let (one, two) = (world.workspace("PRO").await, world.workspace("PRO").await);
    let derived = NewEvent { derived: true, workspace: Some(one), ..event("order.placed") };
    let first = world.store.append(std::slice::from_ref(&derived)).await.expect("an append")[0];
    let again = world.store.append(std::slice::from_ref(&derived)).await.expect("the same")[0];
    assert_eq!((first.added, again.added, again.id), (true, false, first.id));
    assert_eq!((first.id.get_version_num(), first.id.get_variant()), (8, uuid::Variant::RFC4122));
    let known: Vec<Uuid> = vec![derived.id, one.0, Uuid::new_v5(&derived.id, one.0.as_bytes())];
    assert!(!known.contains(&first.id), "nobody can compute it");
    let other = NewEvent { workspace: Some(two), ..derived.clone() };
    assert_ne!(world.store.append(&[other]).await.expect("an append")[0].id, first.id);
    // Using the seed as an id, in the same workspace or another, changes nothing.
    let taken = NewEvent { derived: false, data: json!({ "taken": true }), ..derived.clone() };
    world.store.append(&[taken]).await.expect("an id like any other");
    assert_eq!(world.store.append(&[derived]).await.expect("the same")[0].id, first.id);
    world.run_sql("UPDATE event_secret SET secret = sha256(secret)", &[]).await;
    let elsewhere = NewEvent { derived: true, workspace: Some(one), id: known[0], ..event("order.placed") };
    assert_ne!(
        world.store.append(&[elsewhere]).await.expect("an append")[0].id,
        first.id,
        "another database, another id"
    );
}
