//! Tests how the Supabase client reads and changes the table: the queries of the source document as calls, which rows a
//! workspace sees, and a worker that uses only this client.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::{Value, json};

use super::{TABLE, job};
use crate::support::http::{Reply, send};
use crate::support::node::Node;
use crate::support::relay::Relay;
use crate::support::tenant::text;
use crate::support::{World, until};

/// What the calls came to, by their names.
async fn calls(world: &World, key: &str, jobs: &[String]) -> BTreeMap<String, Value> {
    let client = world.database.client().await;
    let stream = format!("SELECT stream_id::text FROM {TABLE} WHERE id = '{}'", jobs[0]);
    let stream: String = client.query_one(&stream, &[]).await.expect("a row").get(0);
    let (jobs, base) = (json!(jobs).to_string(), &world.server.base);
    let node = Node::start(
        "calls.mjs",
        &[("URL", base), ("KEY", key), ("JOBS", &jobs), ("STREAM", &stream), ("WORKER", "worker-hostname-1234")],
    );
    until("the calls are made", async || (node.count("said", "done") > 0).then_some(())).await;
    let said = node.said().into_iter().filter(|said| said["call"].is_string());
    said.map(|said| (text(&said["call"]), said)).collect()
}

fn ids(said: &Value) -> Vec<String> {
    said["data"].as_array().unwrap_or_else(|| panic!("no rows: {said}")).iter().map(|row| text(&row["id"])).collect()
}

#[tokio::test]
async fn the_documents_six_queries_work_as_calls_of_the_client() {
    let world = World::new().await;
    let tenant = world.tenant("FREE").await;
    let mut ours = Vec::new();
    for _ in 0..4 {
        ours.push(job(&world.database, Some(&tenant.id), "pending").await);
        job(&world.database, None, "pending").await;
    }
    let calls = calls(&world, tenant.api.key.as_deref().expect("a key"), &ours).await;
    let call = |name: &str| calls.get(name).unwrap_or_else(|| panic!("no call {name}"));
    for (name, status) in [("pending", 200), ("claim", 200), ("complete", 204), ("fail", 204), ("failed", 200)] {
        assert_eq!((&call(name)["status"], &call(name)["error"]), (&json!(status), &Value::Null), "{name}");
    }
    assert_eq!(ids(call("pending")), ours, "the oldest first, and nobody else's");
    let claimed = &call("claim")["data"][0];
    assert_eq!((&claimed["status"], &claimed["worker_id"]), (&json!("processing"), &json!("worker-hostname-1234")));
    assert!(claimed["claimed_at"].is_string() && claimed["event_data"] == "123", "{claimed}");
    assert_eq!((&call("lost")["data"], &call("lost")["error"]), (&json!([]), &Value::Null));
    assert_eq!(call("lost, one")["error"]["code"], "PGRST116");
    assert_eq!((&call("lost, maybe one")["data"], &call("lost, maybe one")["error"]), (&Value::Null, &Value::Null));
    assert_eq!(call("claim, one")["data"], json!({ "id": ours[1], "status": "processing", "retry_count": 0 }));
    assert_eq!(call("fail, another time")["data"], json!([]));
    assert_eq!(ids(call("failed")), [ours[1].clone()]);
    assert_eq!(call("failed")["data"][0]["retry_count"], 1);
    let history = &call("history")["data"][0];
    assert_eq!(history.as_object().expect("a row").len(), 5, "{history}");
    assert_eq!(history["status"], "completed");
    assert_eq!(call("two, one")["error"]["details"], "The result contains 2 rows");
    let (mut still, mut left) = (ids(call("still pending")), ours[2..].to_vec());
    still.sort();
    left.sort();
    assert_eq!(still, left, "an update of two rows where one was asked for is undone");
    assert_eq!(call("undone")["data"], json!([{ "status": "processing" }]));
    assert_eq!(call("bounded")["error"]["code"], "PGRST124");
    assert_eq!((&call("counted")["count"], &call("counted")["data"]), (&json!(2), &Value::Null));
    assert_eq!((ids(call("some")), &call("some")["count"]), (ours[1..3].to_vec(), &json!(4)));
    assert_eq!(call("one")["data"], json!({ "status": "completed" }));
    check_refusals(&calls);
    let states = "status = 'completed' AND result->>'orgId' = id::text OR status = 'failed' AND retry_count = 1";
    assert_eq!(world.count(&format!("{TABLE} WHERE {states}")).await, 2);
    assert_eq!(world.count(&format!("{TABLE} WHERE status = 'pending'")).await, 6);
}

/// Checks the errors of the calls that are refused.
fn check_refusals(calls: &BTreeMap<String, Value>) {
    for (name, status, code, message) in [
        ("too early", 400, "23514", "a pending job cannot be completed: claim it first"),
        ("fifth status", 400, "23514", "violates check constraint"),
        ("no filter", 400, "21000", "UPDATE requires a WHERE clause"),
        ("with a limit", 400, "PGRST100", "an update allows no limit"),
        ("no such column", 400, "42703", "column workflow_queue_projection.nope does not exist"),
        ("no such value", 400, "22P02", "invalid input syntax for type uuid: \"nope\""),
        ("no such table", 404, "PGRST205", "Could not find the table 'public.api_key'"),
        ("no such schema", 406, "PGRST106", "Only the schema public is available"),
        ("insert", 405, "PGRST117", "Unsupported HTTP method"),
        ("delete", 405, "PGRST117", "Unsupported HTTP method"),
        ("or", 400, "PGRST100", "\"or\" is not supported"),
        ("function", 404, "PGRST125", "Invalid path"),
    ] {
        let said = &calls[name];
        assert_eq!((&said["status"], &said["error"]["code"]), (&json!(status), &json!(code)), "{said}");
        assert!(text(&said["error"]["message"]).contains(message), "{said}");
        assert_eq!(said["error"]["details"], Value::Null, "{said}");
    }
}

/// No token of ours: signed by somebody else.
const JWT: &str = "eyJhbGciOiJIUzI1NiJ9.eyJyb2xlIjoic2VydmljZV9yb2xlIn0.c2lnbmF0dXJl";

/// Asks for the pending rows, or for their claim, of which nothing is kept.
async fn pending(world: &World, apikey: Option<&str>, bearer: Option<&str>, claim: bool) -> Reply {
    let (api, path) = (world.server.anonymous(), format!("/rest/v1/{TABLE}?select=id&status=eq.pending"));
    let mut request = match claim {
        false => api.request(Method::GET, &path),
        true => api
            .request(Method::PATCH, &path)
            .header("prefer", "return=representation, tx=rollback")
            .json(&json!({ "status": "processing", "worker_id": "w" })),
    };
    if let Some(key) = apikey {
        request = request.header("apikey", key);
    }
    if let Some(key) = bearer {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    send(request).await
}

#[tokio::test]
async fn a_key_sees_and_changes_its_own_rows_and_needs_the_scope() {
    let world = World::new().await;
    let (ours, theirs) = (world.tenant("FREE").await, world.tenant("FREE").await);
    for owner in [Some(ours.id.as_str()), Some(theirs.id.as_str()), None] {
        job(&world.database, owner, "pending").await;
    }
    let scoped = async |scopes: &[&str]| {
        let made = ours.api.post("keys", json!({ "name": "k", "scopes": scopes })).await.expect(201);
        text(&made["key"])
    };
    let (read, run, both) = (scoped(&["read"]).await, scoped(&["run"]).await, scoped(&["read", "run"]).await);
    let (root, own) = (world.server.root_key().expose(), ours.api.key.as_deref().expect("a key"));
    let other = theirs.api.key.as_deref().expect("a key");
    let (unknown, forbidden) = (Err((401, "PGRST301")), Err((403, "42501")));
    for (apikey, bearer, claim, is) in [
        (Some(root), Some(root), false, Ok(3)),
        (Some(root), None, true, Ok(3)),
        (None, Some(own), false, Ok(1)),
        (Some(own), Some(own), true, Ok(1)),
        // Another key for the bearer narrows, and never widens.
        (Some(root), Some(own), false, Ok(1)),
        (Some(own), Some(root), false, unknown),
        (Some(own), Some(other), false, unknown),
        (Some(&*read), None, false, Ok(1)),
        (Some(&*read), None, true, forbidden),
        (Some(&*read), Some(own), true, forbidden),
        // Rows that come back are read, so `run` alone does not suffice, in either place.
        (Some(&*run), None, true, forbidden),
        (Some(&*run), Some(own), true, forbidden),
        (Some(own), Some(&*run), true, forbidden),
        (Some(&*both), None, true, Ok(1)),
        (Some(&*run), None, false, forbidden),
        (None, None, false, unknown),
        (None, None, true, unknown),
        (Some("nonsense"), Some(own), false, unknown),
        (Some(own), Some("nonsense"), false, unknown),
        (Some(own), Some(JWT), false, unknown),
    ] {
        let reply = pending(&world, apikey, bearer, claim).await;
        let what = format!("{} {}", reply.status, reply.text);
        match is {
            Ok(count) => assert_eq!(reply.body.as_array().map(Vec::len), Some(count), "{what}"),
            Err((status, code)) => assert_eq!((reply.status, &reply.body["code"]), (status, &json!(code)), "{what}"),
        }
        assert!(!reply.text.contains(root) && !reply.text.contains(own), "no key is shown");
    }
    let unread = world.server.anonymous().request(Method::PATCH, &format!("/rest/v1/{TABLE}?status=eq.pending"));
    let unread = unread.header("prefer", "tx=rollback").header("apikey", &run);
    let unread = unread.json(&json!({ "status": "processing", "worker_id": "w" }));
    let reply = send(unread).await;
    assert_eq!((reply.status, reply.text.as_str()), (204, ""), "run changes rows, and receives none");
    let refused = pending(&world, Some(own), Some(JWT), false).await;
    assert_eq!(refused.body["message"], "JSON Web Tokens are not accepted: send an API key (fbk_…)");
    assert_eq!(world.count(&format!("{TABLE} WHERE status = 'pending'")).await, 3, "nothing was changed");
}

#[tokio::test]
async fn a_claim_with_a_number_is_not_ended_by_a_client_that_has_none_to_show() {
    let world = World::new().await;
    let tenant = world.tenant("FREE").await;
    let id = job(&world.database, Some(&tenant.id), "pending").await;
    let held = tenant.api.post("jobs/claim", json!({ "workerId": "api" })).await.expect(200);
    assert_eq!(held["items"][0]["job"]["id"], json!(id));
    let path = format!("/rest/v1/{TABLE}?id=eq.{id}");
    let reply = tenant.api.patch(&path, json!({ "status": "completed" })).await;
    assert_eq!((reply.status, &reply.body["code"]), (400, &json!("23514")), "{}", reply.text);
    assert!(text(&reply.body["message"]).contains("only the holder of its claim can end it"), "{}", reply.text);
    // Nor one made here by another: its time is what a late worker cannot know.
    let claim = json!({ "status": "processing", "worker_id": "w" });
    let mine = job(&world.database, Some(&tenant.id), "pending").await;
    tenant.api.patch(&format!("/rest/v1/{TABLE}?id=eq.{mine}"), claim).await.expect(204);
    let late = format!("/rest/v1/{TABLE}?id=eq.{mine}&worker_id=eq.w&claimed_at=eq.2026-01-05T12%3A00%3A00Z");
    tenant.api.patch(&late, json!({ "status": "completed" })).await.expect(204);
    assert_eq!(world.count(&format!("{TABLE} WHERE status = 'processing'")).await, 2, "both are held still");
}

#[tokio::test]
async fn workers_made_of_the_client_alone_end_every_job_once() {
    let world = World::with(&["job.retry_after_ms=1000"]).await;
    let tenant = world.tenant("FREE").await;
    let key = tenant.api.key.clone().expect("a key");
    let relay = Relay::to(&world.server.base).await;
    let worker = |name: &str, base: &str| Node::start("worker.mjs", &[("URL", base), ("KEY", &key), ("WORKER", name)]);
    let workers = [worker("one", &relay.base), worker("two", &world.server.base)];
    let follow = |node: &Node| node.count("status", "SUBSCRIBED") > 0;
    until("both follow", async || workers.iter().all(follow).then_some(())).await;
    let (jobs, writer) = (120, world.database.client().await);
    let events = format!(
        "WITH e AS (INSERT INTO domain_events (workspace_id, stream_id, stream_type, stream_version, event_type, event_data)
            VALUES ('{}', gen_random_uuid(), 's', 1, 'nobody.is.bound', '{{}}') RETURNING id)
        INSERT INTO {TABLE} (event_id, event_type, event_data, stream_id, stream_type)
        SELECT id, 'nobody.is.bound', to_jsonb($1::text), gen_random_uuid(), 's' FROM e",
        tenant.id
    );
    for number in 0..jobs {
        writer.execute(&events, &[&(if number % 20 == 0 { "bad" } else { "good" })]).await.expect("a job");
        if number % 30 == 29 {
            relay.cut();
        }
    }
    // A bad one is tried three times and stays failed.
    let open = format!("{TABLE} WHERE status IN ('pending', 'processing') OR status = 'failed' AND retry_count < 3");
    until("all are ended", async || (world.count(&open).await == 0).then_some(())).await;
    assert_eq!(world.count(&format!("{TABLE} WHERE status = 'failed'")).await, jobs / 20);
    let facts =
        async |fact: &str| world.count(&format!("domain_events WHERE event_type = 'workflow.queue.{fact}'")).await;
    assert_eq!(facts("completed").await, jobs - jobs / 20);
    assert_eq!(facts("claimed").await, facts("completed").await + facts("failed").await, "no job ran twice");
    assert_eq!(facts("recovered").await, 0);
    let by = |name: &str| format!("{TABLE} WHERE worker_id = '{name}'");
    assert!(world.count(&by("one")).await > 0 && world.count(&by("two")).await > 0, "both had work");
}
