//! Plain SQL appends many events in long and short transactions, while streams open and close. Every stream receives
//! each change once, and the changes of a row in order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::Method;
use serde_json::{Value, json};
use store::connect::Client;
use tokio::sync::watch;

use crate::support::cli::Cli;
use crate::support::http::Api;
use crate::support::tenant::text;
use crate::support::{World, until};

const WRITERS: usize = 8;
const WORKERS: usize = 3;
const PATH: &str = "/api/v1/jobs/events";

/// How many events: FOREBAY_TEST_FULL=1 asks for what is promised.
fn size() -> usize {
    if std::env::var_os("FOREBAY_TEST_FULL").is_some() { 10_000 } else { 1_200 }
}

/// Numbers that look thrown and are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Appends events: one at a time, or several in a transaction that stays open a while and is sometimes given up.
async fn write(client: Client, mut dice: Dice, left: Arc<AtomicUsize>) {
    let append = "INSERT INTO domain_events (stream_id, stream_type, stream_version, event_type, event_data)
        SELECT gen_random_uuid(), 'load', 1, 'load.came', '{}' FROM generate_series(1, $1::int)";
    let take = |count: usize| {
        let taken = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(count.min(left)));
        taken.map_or(0, |before| count.min(before))
    };
    loop {
        let long = dice.roll(4) == 0;
        let count = take(if long { 1 + dice.roll(9) as usize } else { 1 });
        if count == 0 {
            return;
        }
        let rows = i32::try_from(count).expect("a few");
        if !long {
            client.execute(append, &[&rows]).await.expect("an event");
            continue;
        }
        if dice.roll(4) == 0 {
            client.batch_execute("BEGIN").await.expect("a transaction");
            client.execute(append, &[&rows]).await.expect("events");
            client.batch_execute("ROLLBACK").await.expect("given up");
        }
        client.batch_execute("BEGIN").await.expect("a transaction");
        client.execute(append, &[&rows]).await.expect("events");
        tokio::time::sleep(Duration::from_millis(dice.roll(200))).await;
        client.batch_execute("COMMIT").await.expect("a commit");
    }
}

/// Works on jobs by the document's SQL; every seventh fails.
async fn work(client: Client, name: String, mut dice: Dice) {
    let claim = "UPDATE workflow_queue_projection SET status = 'processing', worker_id = $1, claimed_at = now(), updated_at = now()
        WHERE id = (SELECT id FROM workflow_queue_projection WHERE status = 'pending' ORDER BY created_at LIMIT 1 FOR UPDATE SKIP LOCKED)
          AND status = 'pending' RETURNING id";
    let done = "UPDATE workflow_queue_projection SET status = 'completed', completed_at = now(), result = '{}', updated_at = now() WHERE id = $1";
    let failed = "UPDATE workflow_queue_projection SET status = 'failed', failed_at = now(), error_message = 'no', error_stack = '…',
        retry_count = retry_count + 1, updated_at = now() WHERE id = $1";
    loop {
        match client.query_opt(claim, &[&name]).await.expect("a claim") {
            None => tokio::time::sleep(Duration::from_millis(20)).await,
            Some(row) => {
                let end = if dice.roll(7) == 0 { failed } else { done };
                client.execute(end, &[&row.get::<_, uuid::Uuid>(0)]).await.expect("an end");
            }
        }
    }
}

/// What a consumer received: the position, the row and its status, in the order of delivery.
pub(super) type Deliveries = Vec<(String, String, String)>;

/// Reads on from `last`, on one of the servers, until it has had enough; answers where it left.
pub(super) async fn read(api: &Api, path: &str, last: &mut Option<String>, most: usize, quiet: Duration) -> Deliveries {
    let mut request = api.request(Method::GET, path);
    if let Some(id) = &last {
        request = request.header("last-event-id", id);
    }
    let response = request.send().await.expect("an answer");
    assert_eq!(response.status(), 200);
    let (mut bytes, mut text_of, mut observed) = (response.bytes_stream(), String::new(), Vec::new());
    while observed.len() < most {
        let Ok(Some(Ok(chunk))) = tokio::time::timeout(quiet, bytes.next()).await else { break };
        text_of.push_str(&String::from_utf8_lossy(&chunk));
        while observed.len() < most
            && let Some((event, rest)) = text_of.split_once("\n\n")
        {
            let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
            let (name, id) = (field("event:"), field("id:").to_owned());
            assert!(["", "ready", "job", "execution", "closed"].contains(&name), "{event}");
            let data: Value = serde_json::from_str(field("data:")).unwrap_or_default();
            match name {
                "job" => observed.push((id.clone(), text(&data["id"]), text(&data["record"]["status"]))),
                "execution" => observed.push((id.clone(), text(&data["executionId"]), text(&data["status"]))),
                _ => {}
            }
            if !id.is_empty() {
                *last = Some(id);
            }
            text_of = rest.to_owned();
        }
    }
    observed
}

/// Connects and disconnects until the number of changes is known. Then reads the changes that are left, and any beyond
/// that number.
async fn consume(apis: [Api; 2], mut dice: Dice, total: watch::Receiver<Option<usize>>, from: String) -> Deliveries {
    let (mut last, mut observed) = (Some(from), Vec::new());
    loop {
        let all = *total.borrow();
        let api = &apis[dice.roll(2) as usize];
        if let Some(all) = all {
            // Another test's transaction may hold everybody's up.
            let left = all.saturating_sub(observed.len());
            observed.extend(read(api, PATH, &mut last, left, Duration::from_secs(20)).await);
            observed.extend(read(api, PATH, &mut last, usize::MAX, Duration::from_secs(1)).await);
            return observed;
        }
        observed.extend(read(api, PATH, &mut last, 1 + dice.roll(400) as usize, Duration::from_millis(500)).await);
        tokio::time::sleep(Duration::from_millis(dice.roll(100))).await;
    }
}

/// The statuses of each row, as its facts have them.
async fn facts(client: &Client) -> BTreeMap<String, Vec<String>> {
    let sql = "SELECT stream_id::text, array_agg(event_type ORDER BY stream_version) FROM domain_events
        WHERE stream_type = 'workflow_queue' GROUP BY stream_id";
    let status = |fact: String| match fact.strip_prefix("workflow.queue.") {
        Some("pending" | "retried" | "recovered") => "pending".to_owned(),
        Some("claimed") => "processing".to_owned(),
        Some(other) => other.to_owned(),
        None => fact,
    };
    let rows = client.query(sql, &[]).await.expect("facts");
    rows.iter().map(|row| (row.get(0), row.get::<_, Vec<String>>(1).into_iter().map(status).collect())).collect()
}

/// Waits until no job is open. Slow is no failure; standing still is.
async fn all_ended(client: &Client) {
    let open = "SELECT count(*) FROM workflow_queue_projection WHERE status IN ('pending', 'processing') OR (status = 'failed' AND retry_count < 3)";
    let mut before = i64::MAX;
    loop {
        let still: i64 = client.query_one(open, &[]).await.expect("a count").get(0);
        if still == 0 {
            break;
        }
        until("fewer are open", async || {
            let now: i64 = client.query_one(open, &[]).await.expect("a count").get(0);
            (now < before || now == 0).then(|| before = now)
        })
        .await;
    }
}

#[tokio::test]
async fn consumers_that_come_and_go_see_each_change_once_in_order_per_row_and_rebuilt_equals_live() {
    let world = World::with(&["job.retry_after_ms=50"]).await;
    let other = world.another(&[]).await;
    let root = world.server.api();
    root.post("bindings", json!({ "eventType": "load.came" })).await.expect(201);
    let mut from = None;
    read(&root, PATH, &mut from, 1, Duration::from_secs(1)).await;
    let from = from.expect("a place to begin at");
    let (total, is_known) = watch::channel(None);
    let apis = [root.clone(), root.at(&other.base)];
    let consumers: Vec<_> =
        (0..3).map(|n| tokio::spawn(consume(apis.clone(), Dice(n), is_known.clone(), from.clone()))).collect();
    let left = Arc::new(AtomicUsize::new(size()));
    let mut writers = Vec::new();
    for number in 0..WRITERS {
        let client = world.database.client().await;
        writers.push(tokio::spawn(write(client, Dice(100 + number as u64), Arc::clone(&left))));
    }
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        let (client, name) = (world.database.client().await, format!("w-{number}"));
        workers.push(tokio::spawn(work(client, name, Dice(200 + number as u64))));
    }
    for writer in writers {
        writer.await.expect("a writer");
    }
    let client = world.database.client().await;
    all_ended(&client).await;
    workers.iter().for_each(tokio::task::JoinHandle::abort);
    let facts = facts(&client).await;
    assert_eq!(facts.len(), size(), "a job for each event");
    total.send(Some(facts.values().map(Vec::len).sum())).expect("consumers");
    for consumer in consumers {
        let observed = consumer.await.expect("a consumer");
        let places: BTreeSet<&String> = observed.iter().map(|(place, ..)| place).collect();
        assert_eq!(places.len(), observed.len(), "each change once");
        let mut rows: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (_, row, status) in observed {
            rows.entry(row).or_default().push(status);
        }
        assert!(rows == facts, "every row's changes, in the order of its facts");
    }
    let cli = Cli::new();
    let check = async || cli.ok(&["job", "check", "--database-url", &world.database.url]).await;
    assert_eq!(check().await, format!("{} jobs agree with the recorded events\n", size()));
    let lose = "BEGIN; SET LOCAL forebay.projection = 'rebuild'; DELETE FROM workflow_queue_projection WHERE id::text < '8'; COMMIT";
    let live = world.everything().await.remove("workflow_queue_projection");
    world.run_sql(lose).await;
    cli.ok(&["job", "rebuild", "--database-url", &world.database.url]).await;
    assert!(world.everything().await.remove("workflow_queue_projection") == live, "rebuilt equals live");
}
