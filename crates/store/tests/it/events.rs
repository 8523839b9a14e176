//! Events are appended once and in order. The writer's own transaction creates their jobs, by the bindings of the
//! workspace.

use kernel::event::binding::Rule;
use kernel::ids::WorkspaceId;
use serde_json::{Value, json};
use store::event::{EventFilter, NewEvent};
use store::workspace::NewWorkspace;
use store::{Error, new_id};
use uuid::Uuid;

use crate::support::{World, race};

const BOOTSTRAP: &str = "organization.bootstrap.initiated";

pub(crate) fn rule(event_type: &str) -> Rule {
    Rule { event_type: event_type.to_owned(), filter: None, input: None, workflow_id: None, lease_s: None }
}

pub(crate) fn event(event_type: &str) -> NewEvent {
    NewEvent {
        id: new_id(),
        derived: false,
        workspace: None,
        stream_id: new_id(),
        stream_type: "organization".to_owned(),
        expected: None,
        event_type: event_type.to_owned(),
        data: json!({ "subdomain": "acme" }),
        metadata: json!({}),
    }
}

async fn bound(world: &World, event: &NewEvent) -> Option<Uuid> {
    world.get("SELECT (SELECT j.binding_id FROM workflow_queue_projection p JOIN workflow_queue_job j USING (id) WHERE p.event_id = $1)", &[&event.id]).await
}

#[tokio::test]
async fn an_event_of_plain_sql_makes_one_job_in_its_own_transaction() {
    let world = World::new().await;
    world.store.bind(None, None, &rule(BOOTSTRAP), "test").await.expect("a binding");
    let mut client = world.database.client().await;
    let insert = "INSERT INTO domain_events (stream_id, stream_type, stream_version, event_type, event_data)
                  VALUES (gen_random_uuid(), 'organization', 1, $1, '{\"subdomain\": \"acme\"}') RETURNING id";
    let transaction = client.transaction().await.expect("a transaction");
    transaction.query_one(insert, &[&BOOTSTRAP]).await.expect("an event");
    let inside: i64 =
        transaction.query_one("SELECT count(*) FROM workflow_queue_projection", &[]).await.expect("a count").get(0);
    assert_eq!(
        (inside, world.count("workflow_queue_projection").await),
        (1, 0),
        "there for its writer, not yet for others"
    );
    transaction.rollback().await.expect("rolled back");
    assert_eq!(world.count("workflow_queue_projection").await + world.count("domain_events").await, 0);

    let id: Uuid = world.client.query_one(insert, &[&BOOTSTRAP]).await.expect("an event").get(0);
    world.client.query_one(insert, &[&"organization.renamed"]).await.expect("an event without a binding");
    let row: String = world
        .get("SELECT concat_ws(' ', status, event_type, event_data, stream_type, retry_count) FROM workflow_queue_projection WHERE event_id = $1", &[&id])
        .await;
    assert_eq!(row, format!("pending {BOOTSTRAP} {{\"subdomain\": \"acme\"}} organization 0"));
    assert_eq!(world.count("workflow_queue_projection").await, 1);
    let facts: String = world
        .get("SELECT string_agg(event_type || ' ' || stream_version, ', ') FROM domain_events WHERE stream_type = 'workflow_queue'", &[])
        .await;
    assert_eq!(facts, "workflow.queue.pending 1", "and its fact makes no job of its own");
}

#[tokio::test]
async fn a_failed_fold_is_stored_on_its_event_and_can_be_retried_or_dismissed() {
    let world = World::new().await;
    world.store.bind(None, None, &rule("order.*"), "test").await.expect("a binding");
    let refuse =
        "ALTER TABLE workflow_queue_projection ADD CONSTRAINT nothing_new CHECK (event_data ->> 'bad' IS NULL)";
    world.client.batch_execute(refuse).await.expect("a constraint");
    let bad = NewEvent { data: json!({ "bad": true }), ..event("order.placed") };
    let good = event("order.placed");
    world.store.append(&[bad.clone(), good.clone()]).await.expect("both are kept");
    assert!(bound(&world, &good).await.is_some(), "the other has its job");
    let failed =
        world.store.events(&EventFilter { failed: true, ..EventFilter::default() }, 10).await.expect("a list").rows;
    assert_eq!(failed.iter().map(|stored| stored.event.id).collect::<Vec<_>>(), [bad.id]);
    let trouble = failed[0].failure.clone().expect("its error").0;
    assert!(trouble.starts_with("23514: ") && trouble.contains("nothing_new"), "{trouble}");

    assert!(!world.store.retry_event(bad.id, None, "test").await.expect("a retry"), "the cause is still there");
    world
        .client
        .batch_execute("ALTER TABLE workflow_queue_projection DROP CONSTRAINT nothing_new")
        .await
        .expect("none");
    assert!(world.store.retry_event(bad.id, None, "test").await.expect("a retry"));
    assert!(
        bound(&world, &bad).await.is_some() && world.store.event(bad.id, None).await.expect("it").failure.is_none()
    );
    assert!(matches!(world.store.retry_event(bad.id, None, "test").await, Err(Error::Conflict(_))), "nothing to retry");

    world.client.batch_execute(refuse).await.expect_err("the bad row is there");
    world.client.batch_execute(&format!("{refuse} NOT VALID")).await.expect("a constraint");
    let bad = NewEvent { id: new_id(), stream_id: new_id(), ..bad };
    world.store.append(std::slice::from_ref(&bad)).await.expect("kept");
    world.store.dismiss_event(bad.id, None, "test").await.expect("dismissed");
    assert!(matches!(world.store.dismiss_event(bad.id, None, "test").await, Err(Error::Conflict(_))));
    assert!(matches!(world.store.dismiss_event(new_id(), None, "test").await, Err(Error::NotFound)));
    assert_eq!(bound(&world, &bad).await, None);
    let audit = "activity WHERE action IN ('event.retry', 'event.dismiss')";
    assert_eq!(world.count(audit).await, 3);
}

#[tokio::test]
async fn a_transient_error_rolls_the_append_back_and_the_writer_repeats_it() {
    let world = World::new().await;
    world.store.bind(None, None, &rule("order.*"), "test").await.expect("a binding");
    let placed = event("order.placed");
    let mut client = world.database.client().await;
    let lock = client.transaction().await.expect("a transaction");
    lock.batch_execute("LOCK TABLE workflow_queue_job IN SHARE MODE").await.expect("a lock");
    let refused = world.store.append(std::slice::from_ref(&placed)).await.expect_err("the lock is held");
    assert!(refused.is_lock_timeout(), "{refused:?}");
    assert_eq!(world.count("domain_events").await, 0, "nothing is stored");
    lock.rollback().await.expect("released");
    let outcome = world.store.append(std::slice::from_ref(&placed)).await.expect("the same again");
    assert!(outcome[0].added && bound(&world, &placed).await.is_some());
}

/// Makes every new job fail with this error.
async fn fail_with(world: &World, state: &str) {
    let make = format!(
        "CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN RAISE EXCEPTION 'made to fail' USING ERRCODE = '{state}'; END $$;
         CREATE OR REPLACE TRIGGER fail BEFORE INSERT ON workflow_queue_job FOR EACH ROW EXECUTE FUNCTION fail()"
    );
    world.client.batch_execute(&make).await.expect("a trigger");
}

#[tokio::test]
async fn only_a_permanent_error_is_stored_on_an_event() {
    let world = World::new().await;
    world.store.bind(None, None, &rule("order.*"), "test").await.expect("a binding");
    for state in ["08006", "25006", "40001", "40P01", "53100", "53200", "53300", "55P03", "57014", "57P01", "58030"] {
        fail_with(&world, state).await;
        let error = world.store.append(&[event("order.placed")]).await.expect_err(state);
        assert!(error.is_unavailable(), "{state}: {error:?}");
    }
    assert_eq!(world.count("domain_events").await, 0);
    for state in ["22003", "23514", "42501", "54000", "P0001", "XX000"] {
        fail_with(&world, state).await;
        let kept = event("order.placed");
        world.store.append(std::slice::from_ref(&kept)).await.expect(state);
        let trouble = world.store.event(kept.id, None).await.expect("it").failure.expect("its error").0;
        assert_eq!(trouble, format!("{state}: made to fail"));
        assert!(!world.store.retry_event(kept.id, None, "test").await.expect("a retry"));
        // A manual retry that meets a transient error reports it, and changes nothing.
        fail_with(&world, "55P03").await;
        assert!(world.store.retry_event(kept.id, None, "test").await.expect_err("transient").is_unavailable());
        assert_eq!(world.store.event(kept.id, None).await.expect("it").failure.expect("its error").0, trouble);
    }
    assert_eq!(world.store.fold_events(100).await.expect("a pass"), 0, "none of these is transient");
}

#[tokio::test]
async fn stored_transient_errors_are_folded_again_once_and_in_turn() {
    let world = World::new().await;
    let stuck: Vec<NewEvent> = (0..4).map(|_| event("order.placed")).collect();
    let ids: Vec<Uuid> = stuck.iter().map(|event| event.id).collect();
    world.store.append(&stuck).await.expect("not bound yet");
    world.store.bind(None, None, &rule("order.*"), "test").await.expect("a binding");
    // As an older build left them; the last with an error of its own.
    let leave = "UPDATE domain_events SET processing_error = $2 || ': canceling statement due to lock timeout',
                        processing_failed_at = now() - make_interval(secs => 10 - $3::int) WHERE id = $1";
    for (at, state) in ["55P03", "40P01", "53100", "23514"].iter().enumerate() {
        world.run_sql(leave, &[&ids[at], state, &i32::try_from(at).expect("small")]).await;
    }
    fail_with(&world, "55P03").await;
    assert_eq!(world.store.fold_events(100).await.expect("a pass"), 0);
    let order: Vec<Uuid> = world
        .get("SELECT array_agg(id ORDER BY processing_failed_at) FROM domain_events WHERE processing_error NOT LIKE '23%'", &[])
        .await;
    assert_eq!(order, [ids[1], ids[2], ids[0]], "the first went to the end, and the pass ended with it");
    world.client.batch_execute("DROP TRIGGER fail ON workflow_queue_job").await.expect("no trigger");
    race(&world.store, 4, |_, store| async move {
        store.fold_events(100).await.expect("a pass");
    })
    .await;
    while world.store.fold_events(1).await.expect("a pass") > 0 {}
    assert_eq!(world.count("workflow_queue_projection").await, 3);
    let left =
        world.store.events(&EventFilter { failed: true, ..EventFilter::default() }, 10).await.expect("a list").rows;
    assert_eq!(left.iter().map(|stored| stored.event.id).collect::<Vec<_>>(), [ids[3]]);
}

#[tokio::test]
async fn an_append_is_repeatable_by_id_and_checks_the_expected_version() {
    let world = World::new().await;
    let first = NewEvent { expected: Some(0), ..event("order.placed") };
    let second = NewEvent { id: new_id(), expected: Some(1), event_type: "order.paid".to_owned(), ..first.clone() };
    let both = [first.clone(), second.clone()];
    let outcome = world.store.append(&both).await.expect("an append");
    assert_eq!(outcome.iter().map(|one| (one.added, one.version)).collect::<Vec<_>>(), [(true, 1), (true, 2)]);
    let again = world.store.append(&both).await.expect("the same");
    assert_eq!(again.iter().map(|one| (one.added, one.version)).collect::<Vec<_>>(), [(false, 1), (false, 2)]);
    assert_eq!((again[0].sequence, again[1].created_at), (outcome[0].sequence, outcome[1].created_at));

    let late = NewEvent { id: new_id(), expected: Some(1), ..first.clone() };
    let other = event("order.placed");
    let Err(Error::Conflict(why)) = world.store.append(&[other.clone(), late]).await else { panic!("a conflict") };
    assert_eq!(why, "event 1: its stream is at version 2, not 1");
    assert!(matches!(world.store.event(other.id, None).await, Err(Error::NotFound)), "all or nothing");
    let changed = NewEvent { data: json!({}), ..first };
    let Err(Error::Conflict(why)) = world.store.append(&[changed]).await else { panic!("a conflict") };
    assert_eq!(why, "event 0: this id was already used with other content");
}

#[tokio::test]
async fn concurrent_appends_to_one_stream_are_serialized_even_beside_plain_sql() {
    let world = World::new().await;
    let stream = new_id();
    let client = std::sync::Arc::new(world.database.client().await);
    race(&world.store, 6, |racer, store| {
        let client = std::sync::Arc::clone(&client);
        async move {
            for _ in 0..10 {
                if racer == 0 {
                    // A writer that does not know Forebay; if another writer is first it tries again, as it would
                    // anyway.
                    while client
                        .execute(
                            "INSERT INTO domain_events (stream_id, stream_type, stream_version, event_type, event_data)
                             SELECT $1, 'organization', coalesce(max(stream_version), 0) + 1, 'sql', '{}' FROM domain_events WHERE stream_id = $1",
                            &[&stream],
                        )
                        .await
                        .is_err()
                    {}
                } else {
                    let next = NewEvent { stream_id: stream, ..event("order.placed") };
                    while let Err(error) = store.append(std::slice::from_ref(&next)).await {
                        assert!(matches!(error, Error::Conflict(_)), "{error:?}");
                    }
                }
            }
        }
    })
    .await;
    let line: String = world
        .get("SELECT count(*) || ' ' || max(stream_version) FROM domain_events WHERE stream_id = $1", &[&stream])
        .await;
    assert_eq!(line, "60 60");
}

#[tokio::test]
async fn events_cannot_be_changed_and_only_the_queue_writes_its_stream() {
    let world = World::new().await;
    let kept = event("order.placed");
    world.store.append(std::slice::from_ref(&kept)).await.expect("an append");
    for (sql, why) in [
        ("UPDATE domain_events SET event_data = '{}'", "cannot be changed"),
        ("DELETE FROM domain_events", "cannot be changed"),
        ("TRUNCATE domain_events", "cannot be changed"),
        (
            "INSERT INTO domain_events (stream_id, stream_type, stream_version, event_type, event_data)
             VALUES (gen_random_uuid(), 'workflow_queue', 1, 'workflow.queue.pending', '{}')",
            "reserved for the queue",
        ),
    ] {
        let error = world.client.batch_execute(sql).await.expect_err(sql);
        let message = error.as_db_error().expect("an error of the database").message().to_owned();
        assert!(message.contains(why), "{sql}: {message}");
    }
    let forged = NewEvent { stream_type: "workflow_queue".to_owned(), ..event("workflow.queue.pending") };
    assert!(world.store.append(&[forged]).await.expect_err("refused").refused_by("own_stream"));
}

#[tokio::test]
async fn the_most_specific_binding_applies_and_an_event_has_at_most_one() {
    let world = World::new().await;
    let (workspace, other) = (world.workspace("PRO").await, world.workspace("PRO").await);
    let gone = WorkspaceId(new_id());
    let mut bindings = Vec::new();
    for (of, event_type) in [
        (None, "order.*"),
        (None, "order.line.*"),
        (None, "order.paid"),
        (Some(workspace), "order.*"),
        (Some(workspace), "order.paid"),
    ] {
        bindings.push(world.store.bind(of, None, &rule(event_type), "test").await.expect("a binding"));
    }
    let twice = world.store.bind(None, None, &rule("order.*"), "test").await;
    assert!(matches!(twice, Err(Error::Conflict(_))), "{twice:?}");
    for (of, event_type, expected) in [
        (None, "order.placed", Some(0)),
        (None, "order.line.added", Some(1)),
        (None, "order.paid", Some(2)),
        (None, "order", None),
        (None, "orders.placed", None),
        (Some(workspace), "order.line.added", Some(3)),
        (Some(workspace), "order.paid", Some(4)),
        (Some(other), "order.paid", Some(2)),
        (Some(gone), "order.placed", Some(0)),
    ] {
        let event = NewEvent { workspace: of, ..event(event_type) };
        world.store.append(std::slice::from_ref(&event)).await.expect("an append");
        assert_eq!(bound(&world, &event).await, expected.map(|at: usize| bindings[at]), "{of:?} {event_type}");
    }
    world.run_sql("UPDATE workspace SET deleted_at = now() WHERE id = $1", &[&workspace.0]).await;
    let event = NewEvent { workspace: Some(workspace), ..event("order.paid") };
    world.store.append(std::slice::from_ref(&event)).await.expect("an append");
    assert_eq!(
        bound(&world, &event).await,
        Some(bindings[2]),
        "without the deleted workspace's binding, the platform's applies"
    );
}

fn graph(on: &Value) -> Value {
    json!({ "nodes": [], "edges": [], "on": on })
}

#[tokio::test]
async fn the_binding_of_a_definition_follows_its_published_version() {
    let world = World::new().await;
    let workspace = world.workspace("PRO").await;
    let publish = async |of: WorkspaceId, name: &str, on: &Value| {
        let version =
            store::definition::NewVersion { graph: graph(on), ..crate::support::new_version(Default::default()) };
        let known = world.store.definition(store::definition::DefinitionRef::Name(name), Some(of)).await;
        let (id, stored) = match known {
            Ok(known) => (known.id, world.store.add_version(of, known.id, &version, "test").await.expect("a version")),
            Err(_) => world.store.create_definition(of, name, &version, "test").await.expect("a definition"),
        };
        world.store.publish(of, id, stored.id, &version, "test").await.map(|_| id)
    };
    let id =
        publish(workspace, "a", &json!({ "event": { "type": "order.placed", "lease_s": 60 } })).await.expect("bound");
    let bindings = world.store.bindings(Some(workspace), None, 10).await.expect("a list");
    assert_eq!(bindings.len(), 1);
    assert_eq!(
        (bindings[0].definition, bindings[0].rule.lease_s, bindings[0].by_definition),
        (Some(id), Some(60), true)
    );
    let refused = world.store.unbind(bindings[0].id, Some(workspace), "test").await;
    assert!(matches!(refused, Err(Error::Conflict(_))), "it belongs to the definition");

    let taken = publish(workspace, "b", &json!({ "event": { "type": "order.placed" } })).await;
    assert!(matches!(taken, Err(Error::Conflict(_))), "{taken:?}");
    publish(workspace, "a", &json!({ "event": { "type": "order.paid" } })).await.expect("bound again");
    let types: Vec<String> = world
        .store
        .bindings(None, None, 10)
        .await
        .expect("a list")
        .into_iter()
        .filter(|one| !one.built_in)
        .map(|one| one.rule.event_type)
        .collect();
    assert_eq!(types, ["order.paid"]);
    publish(workspace, "a", &json!({})).await.expect("bound to nothing");
    assert_eq!(world.count("event_binding").await, 0);

    let platform = WorkspaceId(new_id());
    let new = NewWorkspace {
        id: platform,
        name: "platform".to_owned(),
        tier: "PRO".to_owned(),
        limit_override: None,
        weight: 1,
        max_backlog: None,
    };
    world.store.create_workspace(&new, "test").await.expect("a workspace");
    let id = publish(platform, "bootstrap", &json!({ "event": { "type": BOOTSTRAP } })).await.expect("bound");
    let bindings = world.store.bindings(None, None, 10).await.expect("a list");
    let bound = bindings.iter().find(|one| one.definition == Some(id)).expect("bound");
    assert_eq!(bound.workspace, None, "for everybody");
    world.store.delete_definition(platform, id, "test").await.expect("deleted");
    assert_eq!(world.count("event_binding").await, 0, "it is deleted with its definition");
}
