//! Tests the socket frame by frame: what the client sends in rare situations, and the answers that keep it connected.

use serde_json::{Value, json};

use super::{TABLE, all_reported, deliveries, job, watch};
use crate::support::node::Node;
use crate::support::tenant::text;
use crate::support::{World, until};

/// A bare socket.
struct Socket(Node);

impl Socket {
    async fn open(base: &str, key: &str) -> Socket {
        let node = Node::start("raw.mjs", &[("URL", base), ("KEY", key)]);
        until("it is open", async || (node.count("said", "open") > 0).then_some(())).await;
        Socket(node)
    }

    fn send(&self, frame: &Value) {
        self.0.0.tell(&frame.to_string());
    }

    fn join(&self, reference: &str, topic: &str, changes: Value) {
        let config = json!({ "config": { "postgres_changes": changes } });
        self.send(&json!([reference, reference, topic, "phx_join", config]));
    }

    fn frames(&self) -> Vec<Value> {
        self.0.said().into_iter().filter(|said| said["frame"].is_array()).map(|said| said["frame"].clone()).collect()
    }

    /// The frames once there are so many of this event.
    async fn received(&self, event: &str, count: usize) -> Vec<Value> {
        until(&format!("{count} {event}: {:?}", self.frames()), async || {
            let frames = self.frames();
            (frames.iter().filter(|frame| frame[3] == event).count() >= count).then_some(frames)
        })
        .await
    }

    /// Waits until everything sent before was handled, and returns all frames received.
    async fn settled(&self, reference: &str) -> Vec<Value> {
        self.send(&json!([null, reference, "phoenix", "heartbeat", {}]));
        let is_answer = |frame: &Value| frame[2] == "phoenix" && frame[1] == reference;
        until("a heartbeat is answered", async || {
            let frames = self.frames();
            frames.iter().any(is_answer).then_some(frames)
        })
        .await
    }
}

fn all() -> Value {
    json!([{ "event": "*", "schema": "public", "table": TABLE }])
}

fn changes(frames: &[Value]) -> Vec<&Value> {
    frames.iter().filter(|frame| frame[3] == "postgres_changes").collect()
}

const TOPIC: &str = "realtime:workflow-queue";

#[tokio::test]
async fn joins_and_leaves_of_a_life_that_is_over_change_nothing() {
    let world = World::new().await;
    let socket = Socket::open(&world.server.base, world.server.root_key().expose()).await;
    // Before any join, and beside what is no frame of ours.
    socket.0.0.tell("bytes [3,0,1,2]");
    socket.0.0.tell("no frame");
    let frames = socket.settled("1").await;
    assert_eq!(frames, [json!([null, "1", "phoenix", "phx_reply", { "status": "ok", "response": {} }])]);
    // Two joins back to back: the second is the one that counts.
    socket.join("6", TOPIC, all());
    socket.join("13", TOPIC, all());
    let frames = socket.received("system", 2).await;
    let shown: Vec<Value> = frames[1..].iter().map(|frame| json!([frame[0], frame[1], frame[3]])).collect();
    assert_eq!(
        json!(shown),
        json!([
            ["6", "6", "phx_reply"],
            ["6", null, "system"],
            ["6", "6", "phx_close"],
            ["13", "13", "phx_reply"],
            ["13", null, "system"]
        ])
    );
    for (join_ref, reference) in [(json!("6"), "20"), (Value::Null, "21")] {
        socket.send(&json!([join_ref, reference, TOPIC, "phx_leave", {}]));
    }
    socket.send(&json!([null, "22", "realtime:never", "phx_leave", {}]));
    socket.send(&json!(["13", "23", TOPIC, "broadcast", { "type": "broadcast" }]));
    socket.send(&json!([null, "24", "realtime:never", "presence", {}]));
    let frames = socket.settled("25").await;
    let answer = |reference: &str| frames.iter().find(|frame| frame[1] == reference).expect(reference)[4].clone();
    for reference in ["20", "21", "22"] {
        assert_eq!(answer(reference), json!({ "status": "ok", "response": {} }));
    }
    assert_eq!(answer("23")["response"]["reason"], "not supported");
    assert_eq!(answer("24")["response"]["reason"], "unmatched topic");
    let id = job(&world.database, None, "pending").await;
    let frames = socket.received("postgres_changes", 1).await;
    let observed = changes(&frames);
    assert_eq!(
        (observed.len(), &observed[0][0], &observed[0][4]["data"]["record"]["id"]),
        (1, &json!("13"), &json!(id))
    );
    // The leave that counts: nothing comes after its answer.
    socket.send(&json!(["13", "30", TOPIC, "phx_leave", {}]));
    let frames = socket.settled("31").await;
    assert_eq!(frames.iter().filter(|frame| frame[3] == "phx_close" && frame[0] == "13").count(), 1);
    socket.join("40", "realtime:other", all());
    let other = job(&world.database, None, "pending").await;
    let frames = socket.received("postgres_changes", 2).await;
    let last = changes(&frames);
    assert_eq!((&last[1][2], &last[1][4]["data"]["record"]["id"]), (&json!("realtime:other"), &json!(other)));
    assert_eq!(last.len(), 2, "and nothing to the channel that was left");
}

#[tokio::test]
async fn a_token_replaces_the_key_narrows_and_never_widens() {
    let world = World::new().await;
    let (root, tenant) = (world.server.root_key().expose().to_owned(), world.tenant("FREE").await);
    let own = tenant.api.key.clone().expect("a key");
    let spare = text(&tenant.api.post("keys", json!({ "name": "s", "scopes": ["read"] })).await.expect(201)["key"]);
    let blind = text(&tenant.api.post("keys", json!({ "name": "b", "scopes": ["run"] })).await.expect(201)["key"]);
    let stranger = world.tenant("FREE").await.api.key.expect("a key");
    let socket = Socket::open(&world.server.base, &root).await;
    socket.join("6", TOPIC, all());
    socket.received("system", 1).await;
    let token = |socket: &Socket, token: Value| {
        socket.send(&json!(["6", "7", TOPIC, "access_token", { "access_token": token }]))
    };
    // The same, none, and one for a join that is over: nothing.
    token(&socket, json!(root));
    token(&socket, Value::Null);
    socket.send(&json!(["5", "7", TOPIC, "access_token", { "access_token": "nonsense" }]));
    let nobodys = job(&world.database, None, "pending").await;
    assert_eq!(changes(&socket.received("postgres_changes", 1).await)[0][4]["data"]["record"]["id"], json!(nobodys));
    // A workspace's: from the next change on only that workspace's rows.
    token(&socket, json!(own));
    socket.settled("8").await;
    job(&world.database, None, "pending").await;
    let ours = job(&world.database, Some(&tenant.id), "pending").await;
    let frames = socket.received("postgres_changes", 2).await;
    assert_eq!(changes(&frames)[1][4]["data"]["record"]["id"], json!(ours));
    // On a workspace's socket: what is good, and what ends the channel for good.
    let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJyb2xlIjoic2VydmljZV9yb2xlIn0.c2lnbmF0dXJl";
    let (invalid, foreign) =
        ("Token has expired or is invalid", "JSON Web Tokens are not accepted: send an API key (fbk_…)");
    for (shown, message) in [
        (&*spare, None),
        (&*root, Some(invalid)),
        (&*stranger, Some(invalid)),
        (&*blind, Some(invalid)),
        ("nonsense", Some(invalid)),
        (jwt, Some(foreign)),
    ] {
        let socket = Socket::open(&world.server.base, &own).await;
        socket.join("6", TOPIC, all());
        socket.received("system", 1).await;
        token(&socket, json!(shown));
        let frames = socket.settled("9").await;
        let system: Vec<_> = frames.iter().filter(|frame| frame[3] == "system").map(|frame| &frame[4]).collect();
        let closed = frames.iter().find(|frame| frame[3] == "phx_close");
        assert_eq!(system.get(1).map(|said| text(&said["message"])).as_deref(), message);
        assert_eq!(closed.map(|frame| json!([frame[0], frame[1]])), message.map(|_| json!(["6", "6"])));
        // And so in a join.
        let config = json!({ "config": { "postgres_changes": all() }, "access_token": shown });
        socket.send(&json!(["60", "60", TOPIC, "phx_join", config]));
        let frames = socket.settled("61").await;
        let reply = frames.iter().find(|frame| frame[1] == "60" && frame[3] == "phx_reply").expect("an answer");
        assert_eq!(reply[4]["response"]["reason"].as_str(), message, "{reply}");
    }
}

#[tokio::test]
async fn bad_keys_in_joins_and_refreshes_are_counted_and_limited_by_address() {
    let world = World::with(&["auth.max_failures_per_address=4"]).await;
    let tenant = world.tenant("FREE").await;
    let socket = Socket::open(&world.server.base, tenant.api.key.as_deref().expect("a key")).await;
    let bad = || json!(store::access::key::Secret::generate().expect("randomness").expose());
    let join = async |reference: &str, token: Value| -> Option<String> {
        let config = json!({ "config": { "postgres_changes": all() }, "access_token": token });
        socket.send(&json!([reference, reference, TOPIC, "phx_join", config]));
        let frames = socket.settled(&format!("after {reference}")).await;
        let reply = frames.iter().find(|frame| frame[1] == reference && frame[3] == "phx_reply").expect("an answer");
        reply[4]["response"]["reason"].as_str().map(str::to_owned)
    };
    for reference in ["1", "2"] {
        assert_eq!(join(reference, bad()).await.as_deref(), Some("Token has expired or is invalid"));
    }
    for reference in ["3", "4"] {
        assert_eq!(join(reference, Value::Null).await, None);
        socket.send(&json!([reference, "9", TOPIC, "access_token", { "access_token": bad() }]));
        let frames = socket.settled(&format!("expelled {reference}")).await;
        assert!(frames.iter().any(|frame| frame[0] == reference && frame[3] == "phx_close"), "{frames:?}");
    }
    let limited = join("5", bad()).await.expect("a refusal");
    assert!(limited.starts_with("too many requests with invalid keys"), "{limited}");
    // The socket's own key is known, and what it opened stays whatever else is shown.
    assert_eq!(join("6", Value::Null).await, None);
    socket.send(&json!(["6", "9", TOPIC, "access_token", { "access_token": bad() }]));
    let frames = socket.settled("kept").await;
    assert!(!frames.iter().any(|frame| frame[0] == "6" && frame[3] == "phx_close"), "{frames:?}");
    let metrics = world.server.anonymous().get("/metrics").await.text;
    for (reason, count) in [("unknown", 4), ("rate_limited", 2)] {
        let line = format!("forebay_authentication_failures_total{{reason=\"{reason}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
}

#[tokio::test]
async fn the_client_refreshes_its_token() {
    let world = World::new().await;
    let (root, tenant) = (world.server.root_key().expose().to_owned(), world.tenant("FREE").await);
    let node = watch(&world.server.base, &root, &[]).await;
    let first = job(&world.database, None, "pending").await;
    all_reported(&node, "pending", &[first]).await;
    node.0.tell(tenant.api.key.as_deref().expect("a key"));
    // That the next row of nobody is not delivered shows that the token was accepted.
    until("the token is taken", async || {
        let hidden = job(&world.database, None, "pending").await;
        let shown = job(&world.database, Some(&tenant.id), "pending").await;
        until("our row is delivered", async || deliveries(&node, "pending").contains_key(&shown).then_some(())).await;
        (!deliveries(&node, "pending").contains_key(&hidden)).then_some(())
    })
    .await;
    assert_eq!(node.count("status", "SUBSCRIBED"), 1, "the channel stayed");
    node.0.tell("nonsense");
    until("it is closed", async || (node.count("status", "CLOSED") > 0).then_some(())).await;
}

#[tokio::test]
async fn each_binding_gets_its_columns_of_every_change_as_it_was_written() {
    let world = World::new().await;
    let socket = Socket::open(&world.server.base, world.server.root_key().expose()).await;
    let of = |event: &str, filter: &str, select: Value| json!({ "event": event, "schema": "public", "table": TABLE, "filter": filter, "select": select });
    let wanted = json!([
        of("INSERT", "status=eq.pending", json!(["id", "status"])),
        of("UPDATE", "worker_id=in.(\"a,b\",c)", json!(["id", "worker_id"])),
        of("*", "worker_id=in.(\"a,b\",c)", json!(["id", "worker_id"])),
        of("UPDATE", "worker_id=in.(a,b)", Value::Null),
        of("UPDATE", "", Value::Null),
    ]);
    socket.join("6", TOPIC, wanted);
    socket.received("system", 1).await;
    // Inserted and claimed in one transaction: delivered as two changes, each as it was.
    let client = world.database.client().await;
    client.batch_execute("BEGIN").await.expect("a transaction");
    let row = format!(
        "INSERT INTO {TABLE} (event_id, event_type, event_data, stream_id, stream_type)
        VALUES (gen_random_uuid(), 'x', '{{}}', gen_random_uuid(), 's') RETURNING id::text"
    );
    let id: String = client.query_one(&row, &[]).await.expect("a row").get(0);
    let claim = format!("UPDATE {TABLE} SET status = 'processing', worker_id = 'a,b' WHERE id = '{id}'; COMMIT");
    client.batch_execute(&claim).await.expect("a claim");
    let frames = socket.received("postgres_changes", 3).await;
    let observed: Vec<(Value, Value, Value)> = changes(&frames)
        .into_iter()
        .map(|frame| (frame[4]["ids"].clone(), frame[4]["data"]["type"].clone(), frame[4]["data"]["record"].clone()))
        .collect();
    assert_eq!(observed[0], (json!([1]), json!("INSERT"), json!({ "id": id, "status": "pending" })));
    assert_eq!(observed[1], (json!([2, 3]), json!("UPDATE"), json!({ "id": id, "worker_id": "a,b" })));
    assert_eq!((&observed[2].0, &observed[2].2["status"]), (&json!([5]), &json!("processing")));
    assert_eq!(observed[2].2.as_object().map(|row| row.len()), Some(19));
    let columns = &changes(&frames)[1][4]["data"]["columns"];
    assert_eq!(*columns, json!([{ "name": "id", "type": "uuid" }, { "name": "worker_id", "type": "text" }]));
}

#[tokio::test]
async fn what_commits_while_a_join_is_answered_comes_after_the_answer_and_once() {
    let world = World::new().await;
    let root = world.server.root_key().expose().to_owned();
    let socket = Socket::open(&world.server.base, &root).await;
    let writer = world.database.client().await;
    let row = format!(
        "INSERT INTO {TABLE} (event_id, event_type, event_data, stream_id, stream_type)
        VALUES (gen_random_uuid(), 'x', '{{}}', gen_random_uuid(), 's') RETURNING id::text"
    );
    let mut written: Vec<String> = Vec::new();
    // Each join is under way while rows are committed one by one.
    for join in 0..8 {
        socket.join(&format!("{join}"), &format!("realtime:{join}"), all());
        for _ in 0..15 {
            written.push(writer.query_one(&row, &[]).await.expect("a row").get(0));
        }
        socket.received("system", join + 1).await;
    }
    written.push(writer.query_one(&row, &[]).await.expect("a row").get(0));
    let last = json!(written.last());
    let is_last = |frame: &&Value| frame[4]["data"]["record"]["id"] == last;
    until("all are delivered", async || (socket.frames().iter().filter(is_last).count() == 8).then_some(())).await;
    let frames = socket.frames();
    for join in 0..8 {
        let topic = format!("realtime:{join}");
        let mine: Vec<&Value> = frames.iter().filter(|frame| frame[2] == topic.as_str()).collect();
        assert_eq!((&mine[0][3], &mine[1][3]), (&json!("phx_reply"), &json!("system")), "the answer comes first");
        let ids: Vec<String> = mine[2..].iter().map(|frame| text(&frame[4]["data"]["record"]["id"])).collect();
        // One after the other: what it receives is all that was written from some moment on, in order, each once.
        assert!(written.ends_with(&ids), "{topic}");
        let after = written.len() - 15 * (join + 1);
        assert!(ids.len() >= after, "{topic}: {} of at least {after} after its answer", ids.len());
    }
}
