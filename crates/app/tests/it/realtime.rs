//! Tests the two ways to follow changes: the Supabase client from npm, and event streams.

mod cors;
mod hostile;
mod many;
mod restart;
mod socket;
mod streams;
mod table;

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::{Value, json};
use store::testing::Database;

use crate::support::node::Node;
use crate::support::relay::Relay;
use crate::support::tenant::text;
use crate::support::{Server, World, until};

const TABLE: &str = "workflow_queue_projection";

/// The snippet's own subscription, beside others.
fn wanted() -> String {
    let of =
        |event: &str, filter: &str| json!({ "event": event, "schema": "public", "table": TABLE, "filter": filter });
    let all = json!({
        "pending": of("INSERT", "status=eq.pending"),
        "claimed": of("UPDATE", "worker_id=gt.w1,retry_count=lt.10,status=in.(failed,\"processing\")"),
        "gone": { "event": "DELETE", "schema": "public", "table": TABLE },
    });
    all.to_string()
}

async fn watch(base: &str, key: &str, more: &[(&str, &str)]) -> Node {
    let wanted = wanted();
    let mut environment = vec![("URL", base), ("KEY", key), ("WANTED", wanted.as_str())];
    environment.extend(more);
    let node = Node::start("watch.mjs", &environment);
    subscribed(&node, 1).await;
    node
}

async fn subscribed(node: &Node, times: usize) {
    until("it is subscribed", async || (node.count("status", "SUBSCRIBED") >= times).then_some(())).await;
}

/// Inserts a job of a workspace, or of nobody; answers the row's id.
pub(crate) async fn job(database: &Database, workspace: Option<&str>, status: &str) -> String {
    let client = database.client().await;
    let event =
        "INSERT INTO domain_events (workspace_id, stream_id, stream_type, stream_version, event_type, event_data)
        VALUES ($1::text::uuid, gen_random_uuid(), 's', 1, 'nobody.is.bound', '{}') RETURNING id";
    let event: uuid::Uuid = client.query_one(event, &[&workspace]).await.expect("an event").get(0);
    let row = "INSERT INTO workflow_queue_projection (event_id, event_type, event_data, stream_id, stream_type, status)
        VALUES ($1, 'nobody.is.bound', '\"123\"', gen_random_uuid(), 's', $2) RETURNING id::text";
    // A row that begins as anything but pending is written by a rebuild alone.
    let mode = if status == "pending" { "" } else { "rebuild" };
    client.batch_execute(&format!("BEGIN; SET LOCAL forebay.projection = '{mode}'")).await.expect("a transaction");
    let id = client.query_one(row, &[&event, &status]).await.expect("a row").get(0);
    client.batch_execute("COMMIT").await.expect("a commit");
    id
}

/// How often each row was delivered under this name.
fn deliveries(node: &Node, name: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for said in node.said().iter().filter(|said| said["name"] == name) {
        let row = if said["type"] == "DELETE" { &said["old"] } else { &said["new"] };
        *counts.entry(text(&row["id"])).or_default() += 1;
    }
    counts
}

fn once(ids: &[String]) -> BTreeMap<String, usize> {
    ids.iter().map(|id| (id.clone(), 1)).collect()
}

async fn all_reported(node: &Node, name: &str, ids: &[String]) {
    until("all are delivered", async || (deliveries(node, name).len() >= ids.len()).then_some(())).await;
    assert_eq!(deliveries(node, name), once(ids), "{name}");
}

#[tokio::test]
async fn the_documents_snippet_gets_every_pending_row_once_and_none_that_does_not_match() {
    let world = World::new().await;
    let root = world.server.root_key().expose();
    let tenant = world.tenant("FREE").await;
    let (two, one) =
        (watch(&world.server.base, root, &[]).await, watch(&world.server.base, root, &[("VSN", "1.0.0")]).await);
    let scoped = watch(&world.server.base, tenant.api.key.as_deref().expect("a key"), &[]).await;
    let (mut ours, mut all) = (Vec::new(), Vec::new());
    for round in 0..20 {
        let workspace = (round % 2 == 0).then_some(tenant.id.as_str());
        let id = job(&world.database, workspace, "pending").await;
        if workspace.is_some() {
            ours.push(id.clone());
        }
        all.push(id);
        job(&world.database, workspace, "failed").await;
    }
    // A transaction that writes much, beside one that stays open and commits last.
    let (late, many) = (world.database.client().await, world.database.client().await);
    let rows = |count: i32| {
        format!("INSERT INTO {TABLE} (event_id, event_type, event_data, stream_id, stream_type, error_stack)
            SELECT gen_random_uuid(), 'x', '{{}}', gen_random_uuid(), 's', repeat('x', 1000) FROM generate_series(1, {count}) RETURNING id::text")
    };
    late.batch_execute("BEGIN").await.expect("a transaction");
    let last: String = late.query_one(&rows(1), &[]).await.expect("a row").get(0);
    let bulk = many.query(&rows(500), &[]).await.expect("rows");
    all.extend(bulk.iter().map(|row| row.get::<_, String>(0)));
    all_reported(&two, "pending", &all).await;
    late.batch_execute("COMMIT").await.expect("a commit");
    all.push(last);
    for (id, worker) in [(&ours[0], "w2"), (&ours[2], "w1")] {
        let claim = format!(
            "UPDATE {TABLE} SET status = 'processing', worker_id = '{worker}', claimed_at = now() WHERE id = '{id}'"
        );
        world.run_sql(&claim).await;
    }
    let retired = "BEGIN; SET LOCAL forebay.projection = 'retention'";
    world.run_sql(&format!("{retired}; DELETE FROM {TABLE} WHERE id = '{}'; COMMIT", ours[1])).await;
    for (node, pending) in [(&two, &all), (&one, &all), (&scoped, &ours)] {
        all_reported(node, "pending", pending).await;
        all_reported(node, "claimed", &ours[..1]).await;
        all_reported(node, "gone", &ours[1..2]).await;
    }
    let said = scoped.said();
    let first = said.iter().find(|said| said["name"] == "pending").expect("a change");
    assert_eq!((&first["new"]["event_data"], &first["new"]["retry_count"]), (&json!("123"), &json!(0)), "{first}");
    let gone = said.iter().find(|said| said["name"] == "gone").expect("a change");
    assert_eq!(gone["old"], json!({ "id": ours[1] }), "of an old row its key alone");
    let logged = world.server.process.stderr.all().join("\n");
    assert!(!logged.contains(root), "the key is in no log");
}

#[tokio::test]
async fn a_subscription_survives_lost_database_sessions_without_a_gap_and_a_restart_of_the_server() {
    let mut world = World::new().await;
    let relay = Relay::to(&world.server.base).await;
    let root = world.server.root_key().clone();
    let node = watch(&relay.base, root.expose(), &[]).await;
    let mut ids = vec![job(&world.database, None, "pending").await];
    all_reported(&node, "pending", &ids).await;
    for _ in 0..3 {
        let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid()";
        world.run_sql(end).await;
        ids.push(job(&world.database, None, "pending").await);
        all_reported(&node, "pending", &ids).await;
    }
    assert_eq!(node.count("status", "SUBSCRIBED"), 1, "the feed goes on; nobody had to come back");
    world.server.process.sigkill();
    let next = Server::start_with(&world.database.url, &root, &world.receiver.allowed(&[])).await;
    relay.lead_to(&next.base);
    subscribed(&node, 2).await;
    ids.push(job(&world.database, None, "pending").await);
    all_reported(&node, "pending", &ids).await;
}

#[tokio::test]
async fn a_log_that_was_lost_makes_every_client_come_back() {
    let world = World::new().await;
    let node = watch(&world.server.base, world.server.root_key().expose(), &[]).await;
    // What a crash of the database does to unlogged tables.
    world.run_sql("TRUNCATE change_log, change_log_pruned").await;
    subscribed(&node, 2).await;
    let id = job(&world.database, None, "pending").await;
    all_reported(&node, "pending", &[id]).await;
}

#[tokio::test]
async fn what_is_not_allowed_is_refused_with_a_reason_and_a_revoked_key_ends_its_socket() {
    let world = World::new().await;
    let tenant = world.tenant("FREE").await;
    let key = tenant.api.post("keys", json!({ "name": "worker", "scopes": ["read"] })).await.expect(201);
    let refused = |config: Value| {
        let wanted = json!({ "a": config }).to_string();
        Node::start("watch.mjs", &[("URL", &world.server.base), ("KEY", &text(&key["key"])), ("WANTED", &wanted)])
    };
    for (config, reason) in [
        (
            json!({ "event": "*", "schema": "public", "table": "api_key" }),
            "public.api_key cannot be subscribed to; only",
        ),
        (
            json!({ "event": "*", "schema": "public", "table": TABLE, "filter": "retry_count=eq.abc" }),
            "\"abc\" is not of type int4",
        ),
    ] {
        let node = refused(config);
        let says = |said: &Value| said["status"] == "CHANNEL_ERROR" && text(&said["error"]).contains(reason);
        until(reason, async || node.said().iter().any(says).then_some(())).await;
    }
    let node = watch(&world.server.base, &text(&key["key"]), &[]).await;
    tenant.api.post(&format!("keys/{}/revoke", text(&key["id"])), json!({})).await;
    until("it is closed", async || (node.count("status", "CLOSED") > 0).then_some(())).await;
    job(&world.database, Some(&tenant.id), "pending").await;
    assert_eq!(deliveries(&node, "pending"), BTreeMap::new());
}

#[tokio::test]
async fn without_a_good_key_no_socket_opens() {
    let world = World::new().await;
    let api = world.server.anonymous();
    let upgrade = |query: &str| {
        let request = api.request(reqwest::Method::GET, &format!("/realtime/v1/websocket{query}"));
        let request = request.header("connection", "Upgrade").header("upgrade", "websocket");
        request.header("sec-websocket-version", "13").header("sec-websocket-key", "EVGCcZoORyboqb4pbOM1NQ==")
    };
    let root = world.server.root_key().expose();
    for (query, status) in [
        (String::new(), 401),
        ("?vsn=2.0.0".to_owned(), 401),
        ("?apikey=nonsense&vsn=2.0.0".to_owned(), 401),
        (format!("?apikey={root}&vsn=3.0.0"), 400),
        (format!("?apikey={root}&vsn=2.0.0"), 101),
        (format!("?apikey={root}"), 101),
    ] {
        let answered = upgrade(&query).send().await.expect("an answer").status().as_u16();
        assert_eq!(answered, status, "{}", query.replace(root, "KEY"));
    }
}

/// How many jobs, and how often the way is cut: FOREBAY_TEST_FULL=1 asks for what is promised.
fn size() -> (usize, usize) {
    if std::env::var_os("FOREBAY_TEST_FULL").is_some() { (10_000, 50) } else { (400, 4) }
}

#[tokio::test]
async fn a_worker_with_a_catch_up_query_loses_no_job_however_often_its_connection_is_cut() {
    let world = World::new().await;
    let relay = Relay::to(&world.server.base).await;
    let node = watch(&relay.base, world.server.root_key().expose(), &[]).await;
    let ((jobs, cuts), writer, worker) = (size(), world.database.client().await, world.database.client().await);
    let insert = format!(
        "INSERT INTO {TABLE} (event_id, event_type, event_data, stream_id, stream_type)
        VALUES (gen_random_uuid(), 'x', '{{}}', gen_random_uuid(), 's')"
    );
    let writes = tokio::spawn(async move {
        for _ in 0..jobs {
            writer.execute(&insert, &[]).await.expect("a job");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    });
    let claim = format!(
        "UPDATE {TABLE} SET status = 'processing', worker_id = 'w', claimed_at = now(), updated_at = now()
        WHERE status = 'pending' AND ($1::text IS NULL OR id = $1::text::uuid) RETURNING id"
    );
    // What the client's callbacks do: each row that is delivered, and everything that waits at each SUBSCRIBED.
    let (mut read, mut joins, mut cut, mut claimed) = (0, 0, 0, 0);
    let started = Instant::now();
    while claimed < jobs {
        let lines = node.0.stdout.all();
        for line in &lines[read..] {
            let said: Value = serde_json::from_str(line).expect("JSON");
            let id = (said["name"] == "pending").then(|| text(&said["new"]["id"]));
            let is_join = said["status"] == "SUBSCRIBED";
            joins += usize::from(is_join);
            if is_join || id.is_some() {
                claimed += worker.query(&claim, &[&id]).await.expect("a claim").len();
            }
        }
        read = lines.len();
        // Cut again as soon as it is back.
        if joins > cut && cut < cuts {
            relay.cut();
            cut += 1;
        }
        assert!(started.elapsed().as_secs() < 60 + 10 * cuts as u64, "{claimed} of {jobs} after {cut} cuts");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    writes.await.expect("a writer");
    assert_eq!((claimed, cut, world.count(&format!("{TABLE} WHERE status = 'pending'")).await), (jobs, cuts, 0));
}

#[tokio::test]
async fn a_client_that_stops_reading_is_dropped_and_delays_nobody() {
    let world = World::new().await;
    let root = world.server.root_key().expose();
    let stalled = Node::start("stall.mjs", &[("URL", &world.server.base), ("KEY", root)]);
    until("it has joined", async || (stalled.count("said", "joined") > 0).then_some(())).await;
    let node = watch(&world.server.base, root, &[]).await;
    let client = world.database.client().await;
    let rows = format!(
        "INSERT INTO {TABLE} (event_id, event_type, event_data, stream_id, stream_type, error_stack)
        SELECT gen_random_uuid(), 'x', '{{}}', gen_random_uuid(), 's', repeat('x', 200000) FROM generate_series(1, 20) RETURNING id::text"
    );
    let mut ids = Vec::new();
    for _ in 0..8 {
        ids.extend(client.query(&rows, &[]).await.expect("rows").iter().map(|row| row.get::<_, String>(0)));
        all_reported(&node, "pending", &ids).await;
    }
    let dropped = "forebay_change_subscribers_dropped_total{reason=\"slow\"} 1";
    until("it is dropped", async || {
        world.server.anonymous().get("/metrics").await.text.contains(dropped).then_some(())
    })
    .await;
    assert_eq!(node.count("status", "SUBSCRIBED"), 1, "the other one stayed");
}
