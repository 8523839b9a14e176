//! Event streams: which changes they send, to which keys, and that a client may reconnect and continue.

use futures_util::StreamExt;
use parking_lot::Mutex;
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;

use super::job;
use crate::support::http::Api;
use crate::support::process::{Process, forebay};
use crate::support::relay::Relay;
use crate::support::tenant::text;
use crate::support::{Shared, World, until};

/// An open stream; cut when dropped.
struct Stream {
    received: Arc<Mutex<String>>,
    /// Who comes back waits for what it missed, not for `ready`.
    back: bool,
    task: tokio::task::JoinHandle<()>,
}

/// One event.
#[derive(Clone, Debug)]
struct Event {
    name: String,
    id: String,
    data: Value,
}

impl Stream {
    async fn open(api: &Api, path: &str, after: Option<&str>) -> Stream {
        let mut request = api.request(Method::GET, path);
        if let Some(id) = after {
            request = request.header("last-event-id", id);
        }
        let response = request.send().await.expect("an answer");
        assert_eq!(response.status(), 200, "{path}");
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let received = Arc::new(Mutex::new(String::new()));
        let to = Arc::clone(&received);
        let task = tokio::spawn(async move {
            let mut bytes = response.bytes_stream();
            while let Some(Ok(chunk)) = bytes.next().await {
                to.lock().push_str(&String::from_utf8_lossy(&chunk));
            }
        });
        Stream { received, back: after.is_some(), task }
    }

    fn events(&self) -> Vec<Event> {
        let received = self.received.lock().clone();
        let whole = received.rfind("\n\n").map_or("", |end| &received[..end]);
        let field = |block: &str, name: &str| {
            let line = block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            line.unwrap_or_default().to_owned()
        };
        let read = |block: &str| Event {
            name: field(block, "event"),
            id: field(block, "id"),
            data: serde_json::from_str(&field(block, "data")).unwrap_or_default(),
        };
        let observed = |event: &Event| !(event.name.is_empty() || self.back && event.name == "ready");
        whole.split("\n\n").map(read).filter(observed).collect()
    }

    /// Waits for so many events, and answers them.
    async fn received(&self, count: usize) -> Vec<Event> {
        until("events come", async || Some(self.events()).filter(|events| events.len() >= count)).await
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test]
async fn a_stream_of_executions_and_of_the_queue_tells_each_step_of_ones_own() {
    let world = Shared::new().await;
    let (tenant, stranger) = (world.tenant("FREE").await, world.tenant("FREE").await);
    let executions = Stream::open(&tenant.api, "/api/v1/workflow/executions/events", None).await;
    let queue = Stream::open(&tenant.api, "/api/v1/workflow/queue/events", None).await;
    let theirs = Stream::open(&stranger.api, "/api/v1/workflow/executions/events", None).await;
    executions.received(1).await;
    queue.received(1).await;
    theirs.received(1).await;
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let id = tenant.start(&held).await;
    world.receiver.until_called("/hold/a", 1).await;
    let one = Stream::open(&tenant.api, &format!("/api/v1/workflow/executions/{id}/events"), None).await;
    one.received(1).await;
    world.receiver.open();
    tenant.completed(&id).await;
    let statuses = |events: &[Event]| {
        events
            .iter()
            .map(|event| format!("{} {}", event.name, event.data["status"].as_str().unwrap_or("-")))
            .collect::<Vec<_>>()
    };
    let received = executions.received(4).await;
    assert_eq!(statuses(&received), ["ready -", "execution PENDING", "execution RUNNING", "execution COMPLETED"]);
    assert!(
        received[1..].iter().all(|event| event.data["executionId"] == id && event.data["workspaceId"] == tenant.id)
    );
    assert_eq!(statuses(&queue.received(4).await), ["ready -", "queue PENDING", "queue DISPATCHED", "queue GONE"]);
    // Opened late: what was not settled then, because another transaction is open, is delivered too.
    let late = until("it ends", async || {
        let observed = statuses(&one.events()).into_iter().filter(|observed| observed != "nodes -").collect::<Vec<_>>();
        Some(observed).filter(|observed| observed.last().is_some_and(|last| last == "execution COMPLETED"))
    })
    .await;
    assert_eq!(late[..2], ["ready -", "execution RUNNING"], "the present status comes first");
    assert!(statuses(&received)[1..].ends_with(&late[2..]), "{late:?}");
    assert_eq!(statuses(&theirs.events()), ["ready -"]);
    let foreign = stranger.api.get(&format!("/api/v1/workflow/executions/{id}/events")).await;
    assert_eq!(foreign.problem(404), "not_found");
}

#[tokio::test]
async fn an_executions_own_stream_tells_when_its_nodes_move_and_watching_follows_it() {
    let world = World::new().await;
    let tenant = world.tenant("FREE").await;
    let relay = Relay::to(&world.server.base).await;
    let nodes = json!({ "first": world.receiver.node("/hold/a"), "second": world.receiver.after("first", "/slow/b") });
    let held = tenant.apply("two", nodes).await;
    let id = tenant.start(&held).await;
    world.receiver.until_called("/hold/a", 1).await;
    let one = Stream::open(&tenant.api, &format!("/api/v1/workflow/executions/{id}/events"), None).await;
    one.received(1).await;
    let key = tenant.api.key.clone().expect("a key");
    let mut command = forebay();
    command.args(["watch", &id, "--server", &relay.base]).env("FOREBAY_KEY", key);
    let mut watcher = Process::spawn("watch", command);
    let followed = "forebay_change_subscribers{transport=\"sse\"} 2";
    let metrics = async || world.server.anonymous().get("/metrics").await.text;
    until("it follows", async || metrics().await.contains(followed).then_some(())).await;
    // Its way is cut: it comes back, and goes on.
    relay.cut();
    until("it is gone", async || (!metrics().await.contains(followed)).then_some(())).await;
    until("it follows again", async || metrics().await.contains(followed).then_some(())).await;
    world.receiver.open();
    assert_eq!(watcher.ended().await.code(), Some(0));
    let mut names: Vec<String> = one.received(4).await.into_iter().map(|event| event.name).collect();
    names.dedup();
    assert_eq!(names, ["ready", "execution", "nodes", "execution"]);
}

#[tokio::test]
async fn a_subscriber_that_returns_with_its_last_id_gets_every_change_once() {
    let world = World::new().await;
    let other = world.another(&[]).await;
    let tenant = world.tenant("FREE").await;
    let path = "/api/v1/jobs/events";
    let (mut received, mut wrote): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    let first = Stream::open(&tenant.api, path, None).await;
    let mut last = first.received(1).await[0].id.clone();
    drop(first);
    for round in 0..12 {
        // Away: what is written now is found in the log. On either process.
        for _ in 0..3 {
            wrote.push(job(&world.database, Some(&tenant.id), "pending").await);
            job(&world.database, None, "pending").await;
        }
        let api = if round % 2 == 0 { tenant.api.clone() } else { tenant.api.at(&other.base) };
        let stream = Stream::open(&api, path, Some(&last)).await;
        wrote.push(job(&world.database, Some(&tenant.id), "pending").await);
        // Sometimes the client leaves before it has received all.
        let events = stream.received(if round % 3 == 0 { 2 } else { wrote.len() - received.len() }).await;
        received.extend(events.iter().map(|event| text(&event.data["id"])));
        last = events.last().expect("an event").id.clone();
    }
    let rest = Stream::open(&tenant.api, path, Some(&last)).await;
    if received.len() < wrote.len() {
        received.extend(rest.received(wrote.len() - received.len()).await.iter().map(|event| text(&event.data["id"])));
    }
    assert_eq!(received, wrote);
}

#[tokio::test]
async fn a_subscriber_that_returns_too_late_must_reload_and_a_revoked_key_ends_its_stream() {
    let world = World::new().await;
    let tenant = world.tenant("FREE").await;
    let path = "/api/v1/jobs/events";
    let key = tenant.api.post("keys", json!({ "name": "worker", "scopes": ["read"] })).await.expect(201);
    let api = tenant.api.with_key(&text(&key["key"]));
    let first = Stream::open(&api, path, None).await;
    job(&world.database, Some(&tenant.id), "pending").await;
    let last = first.received(2).await[1].id.clone();
    job(&world.database, Some(&tenant.id), "pending").await;
    first.received(3).await;
    // As if minutes had passed.
    world.run_sql("WITH d AS (DELETE FROM change_log RETURNING xid) UPDATE change_log_pruned SET pruned_xid = (SELECT xid FROM d ORDER BY xid DESC LIMIT 1)").await;
    let late = Stream::open(&api, path, Some(&last)).await;
    assert_eq!(late.received(1).await[0].name, "reset");
    job(&world.database, Some(&tenant.id), "pending").await;
    assert_eq!(late.received(2).await[1].name, "job");
    let nonsense = api.request(Method::GET, path).header("last-event-id", "nonsense");
    assert_eq!(nonsense.send().await.expect("an answer").status(), 400);
    tenant.api.post(&format!("keys/{}/revoke", text(&key["id"])), json!({})).await;
    let closed = |stream: &Stream| stream.events().last().is_some_and(|event| event.name == "closed");
    until("they end, however much there is to tell", async || {
        job(&world.database, Some(&tenant.id), "pending").await;
        (closed(&late) && closed(&first)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_workspace_has_so_many_streams_and_no_more_whatever_keys_it_has() {
    let world = World::with(&["http.max_streams_per_workspace=1"]).await;
    let tenant = world.tenant("FREE").await;
    let path = "/api/v1/jobs/events";
    let first = Stream::open(&tenant.api, path, None).await;
    first.received(1).await;
    let second = text(&tenant.api.post("keys", json!({ "name": "second" })).await.expect(201)["key"]);
    for api in [&tenant.api, &tenant.api.with_key(&second)] {
        assert_eq!(api.get(path).await.problem(429), "rate_limited");
    }
    Stream::open(&world.tenant("FREE").await.api, path, None).await.received(1).await;
    drop(first);
    until("there is room again", async || {
        let answered = tenant.api.request(Method::GET, path).send().await.expect("an answer").status();
        (answered == 200).then_some(())
    })
    .await;
}
