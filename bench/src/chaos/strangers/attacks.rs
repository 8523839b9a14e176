//! The attacks, in order. To add one, add a line to `ALL` and a function that sends it once.
//!
//! Invariants
//! - An attack is limited to what one customer, or a person without a key, can send from one machine: up to a few
//!   hundred clients at a steady rate, not a flood of packets.
//! - An attack function returns whether it reached another workspace. Most cannot.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::ground::Ground;
use super::{borders, sockets};

/// One attack.
pub(super) struct Attack {
    pub(super) name: &'static str,
    /// How many clients send it at the same time.
    pub(super) strangers: usize,
    /// The pause of each client between two shots.
    pub(super) every: Duration,
    pub(super) shot: fn(Arc<Ground>, usize) -> BoxFuture<'static, bool>,
}

macro_rules! attacks {
    ($($name:literal: $strangers:literal every $every:literal ms $shot:path;)*) => {
        pub(super) const ALL: &[Attack] = &[$(Attack {
            name: $name,
            strangers: $strangers,
            every: Duration::from_millis($every),
            shot: |ground, n| Box::pin($shot(ground, n)),
        }),*];
    };
}

attacks! {
    "strange methods": 8 every 5 ms strange_methods;
    "half requests": 400 every 100 ms sockets::half_request;
    "long heads": 200 every 200 ms sockets::long_head;
    "slow bodies": 200 every 100 ms sockets::slow_body;
    "answers never read": 20 every 500 ms sockets::never_read;
    "patterns": 8 every 20 ms patterns;
    "documents": 4 every 50 ms documents;
    "inputs": 4 every 50 ms inputs;
    "large pages": 4 every 50 ms large_pages;
    "large rows followed": 4 every 50 ms large_rows;
    "wrong keys": 16 every 10 ms wrong_keys;
    "keys and streams": 8 every 50 ms keys_and_streams;
    "self starters": 2 every 1000 ms self_starters;
    "forbidden calls": 4 every 50 ms forbidden_calls;
    "borders": 2 every 10 ms borders::borders;
}

/// The attack that detects a guard which lets workflows reach forbidden addresses.
pub(super) const OPEN_OUTBOUND: &str = "forbidden calls";

/// A pattern that needs more states than any automaton has.
const SLOW: &str = "(?:a?){250}a{250}";

fn nearly() -> Vec<String> {
    (0..500).map(|n| format!("{}b{n}", "a".repeat(240))).collect()
}

async fn strange_methods(ground: Arc<Ground>, _n: usize) -> bool {
    let word = Uuid::new_v4().simple().to_string();
    let method = reqwest::Method::from_bytes(format!("M{}", &word[..12]).as_bytes()).unwrap_or_default();
    let request = ground.stranger.request(method, ground.url(&format!("/healthz/{word}"))).header("user-agent", &word);
    let _answer = request.send().await;
    false
}

async fn patterns(ground: Arc<Ground>, _n: usize) -> bool {
    let expression = format!("inputs.texts.filter(t, t.matches('{SLOW}'))");
    let body = json!({ "expression": expression, "input": { "texts": nearly() } });
    let _answer = ground.post(&ground.read_key, "workflow/expressions/evaluate", &body).await;
    false
}

async fn documents(ground: Arc<Ground>, _n: usize) -> bool {
    let field = |n: usize| (format!("f{n}"), json!({ "type": "string", "pattern": format!("\\w{{{}}}", 30 + n % 10) }));
    let inputs: Map<String, Value> = (0..300).map(field).collect();
    let node = |n: usize| {
        let needs = if n == 0 { json!([]) } else { json!([format!("n{}", n - 1)]) };
        let node = json!({ "kind": "LOG", "needs": needs, "with": { "message": "${{ inputs.f1 }}" } });
        (format!("n{n}"), node)
    };
    let nodes: Map<String, Value> = (0..400).map(node).collect();
    let body = json!({ "document": { "name": "large", "inputs": inputs, "nodes": nodes } });
    let _answer = ground.post(&ground.read_key, "workflow/definitions/validate", &body).await;
    false
}

/// A workflow whose inputs take long to validate, and whose node takes long to compute.
async fn inputs(ground: Arc<Ground>, n: usize) -> bool {
    let schema = json!({ "texts": { "type": "array", "items": { "type": "string", "pattern": SLOW } } });
    let value = format!("${{{{ vars.texts.filter(t, t.matches('{SLOW}')) }}}}");
    let nodes = json!({ "it": { "kind": "TRANSFORM", "with": { "value": value } } });
    let judged = n.is_multiple_of(2);
    let (name, declared) = if judged { ("judged", schema) } else { ("computes", json!({})) };
    let texts: Vec<String> = nearly().into_iter().take(100).collect();
    let document = json!({ "name": name, "inputs": declared, "vars": { "texts": texts }, "nodes": nodes });
    let applied = ground.post(&ground.own.key, "workflow/definitions/apply", &json!({ "document": document })).await;
    let Ok((_, applied)) = applied else { return false };
    let input = if judged { json!({ "texts": nearly() }) } else { json!({}) };
    let start = json!({ "workflowDefinitionId": applied["definition"]["id"], "input": input });
    let _answer = ground.post(&ground.own.key, "workflow/executions/start", &start).await;
    false
}

async fn large_pages(ground: Arc<Ground>, _n: usize) -> bool {
    let _page = ground.get(&ground.own.key, "events?limit=200").await;
    false
}

/// Subscribes to the changes of its own workspace, and stores large rows there.
async fn large_rows(ground: Arc<Ground>, n: usize) -> bool {
    if n == 0 {
        let url = ground.url("/api/v1/workflow/executions/events");
        let Ok(mut follows) = ground.stranger.get(url).bearer_auth(&ground.own.key).send().await else { return false };
        while let Ok(Some(_)) = follows.chunk().await {}
        return false;
    }
    let event = json!({ "type": "stranger.large", "streamId": Uuid::new_v4(), "streamType": "stranger",
        "data": { "text": "x".repeat(100_000) } });
    let _answer = ground.post(&ground.own.key, "events", &json!({ "events": [event] })).await;
    false
}

async fn wrong_keys(ground: Arc<Ground>, _n: usize) -> bool {
    let key = format!("fbk_{}", Uuid::new_v4().simple());
    matches!(ground.get(&key, "workflow/executions").await, Ok((200, _)))
}

/// As many keys as possible, each with its own streams.
async fn keys_and_streams(ground: Arc<Ground>, n: usize) -> bool {
    let made = ground.post(&ground.own.key, "keys", &json!({ "name": format!("k{n}"), "scopes": ["read"] })).await;
    let Ok((_, made)) = made else { return false };
    let Some(key) = made["key"].as_str() else { return false };
    let url = ground.url("/api/v1/workflow/executions/events");
    let stream = ground.stranger.get(url).bearer_auth(key).send();
    if let Ok(mut stream) = stream.await {
        let _first = tokio::time::timeout(Duration::from_secs(2), stream.chunk()).await;
    }
    false
}

/// A workflow that starts itself again and again.
async fn self_starters(ground: Arc<Ground>, n: usize) -> bool {
    let name = format!("again{n}");
    let nodes = json!({ "again": { "kind": "WORKFLOW", "with": { "workflow": name, "detached": true, "input": {} } } });
    let definition = json!({ "document": { "name": name, "nodes": nodes } });
    let applied = ground.post(&ground.own.key, "workflow/definitions/apply", &definition);
    let Ok((_, applied)) = applied.await else { return false };
    let start = json!({ "workflowDefinitionId": applied["definition"]["id"] });
    let _answer = ground.post(&ground.own.key, "workflow/executions/start", &start).await;
    false
}

/// Ways to write an address of this machine.
const HOSTS: [&str; 9] = [
    "127.0.0.1",
    "127.0.0.2",
    "localhost",
    "2130706433",
    "0x7f.1",
    "0177.0.0.1",
    "0.0.0.0",
    "[::1]",
    "[::ffff:127.0.0.1]",
];

/// A workflow that calls a forbidden address, and a webhook to it.
async fn forbidden_calls(ground: Arc<Ground>, n: usize) -> bool {
    let at = usize::from(Uuid::new_v4().as_bytes()[0]) % HOSTS.len();
    let base = format!("http://{}:{}", HOSTS[at], ground.canary_port);
    let node = json!({ "kind": "HTTP_REQUEST", "with": { "url": format!("{base}/hit") } });
    let document = json!({ "name": format!("forbidden{n}-{at}"), "nodes": { "call": node } });
    let applied = ground.post(&ground.own.key, "workflow/definitions/apply", &json!({ "document": document })).await;
    if let Ok((_, applied)) = applied {
        let start = json!({ "workflowDefinitionId": applied["definition"]["id"] });
        let _answer = ground.post(&ground.own.key, "workflow/executions/start", &start).await;
    }
    let _answer = ground.post(&ground.own.key, "webhooks", &json!({ "url": format!("{base}/hook") })).await;
    false
}
