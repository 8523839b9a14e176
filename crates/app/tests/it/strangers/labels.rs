//! Whatever a client sends, the labels of the metrics have only their fixed values.

use std::collections::{BTreeMap, BTreeSet};

use kernel::signals::{Metric, metrics};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::http::send;
use crate::support::{Tenant, World, until};

/// The values of each label of each metric.
type Labels = BTreeMap<(String, String), BTreeSet<String>>;

const PATHS: [&str; 14] = [
    "/healthz",
    "/metrics",
    "/nowhere",
    "/triggers/{}",
    "/answers/{}",
    "/api/v1/{}",
    "/api/v1/workspaces/{}",
    "/api/v1/workflow/executions/{}",
    "/api/v1/workflow/executions?status={}",
    "/api/v1/workflow/definitions/{}/versions/{}",
    "/api/v1/tasks/{}/complete",
    "/rest/v1/{}",
    "/rest/v1/workflow_queue_projection?{}=eq.{}",
    "/realtime/v1/websocket?apikey={}",
];

#[tokio::test]
async fn nothing_that_a_client_writes_becomes_a_label() {
    let world = World::with(&["metrics.sample_interval_ms=100"]).await;
    let tenant = world.tenant("ENTERPRISE").await;
    // The same shapes twice, with other words: the second round may show no value that the first did not.
    round(&world, &tenant, "quux0").await;
    let before = labels(&world).await;
    for word in ["quux1", "quux2", "quux3"] {
        round(&world, &tenant, word).await;
    }
    let after = labels(&world).await;
    assert_eq!(after, before);
    let text = world.server.anonymous().get("/metrics").await.text;
    assert!(!text.to_lowercase().contains("quux"), "{text}");
}

/// One of everything, with a word of the client's choice wherever one is taken.
async fn round(world: &World, tenant: &Tenant, word: &str) {
    strange_requests(world, tenant, word).await;
    strange_bodies(tenant, word).await;
    strange_bytes(world, word).await;
    let nodes = json!({ word: { "kind": "LOG", "with": { "message": word } } });
    let id = tenant.start(&tenant.apply(word, nodes).await).await;
    tenant.completed(&id).await;
    // Requests are counted when they end, which a client may see a moment sooner.
    until("the gauges are there", async || {
        labels(world).await.keys().any(|(name, _)| name == "forebay_queue_depth").then_some(())
    })
    .await;
}

async fn strange_requests(world: &World, tenant: &Tenant, word: &str) {
    let anonymous = world.server.anonymous();
    for path in PATHS {
        let path = path.replace("{}", word);
        for api in [&anonymous, &tenant.api] {
            for method in ["GET", "PROPFIND", "get", &word.to_uppercase(), &format!("X-{word}")] {
                let method = Method::from_bytes(method.as_bytes()).expect("a method");
                let request = api.request(method, &path).header("x-forwarded-for", word).header("user-agent", word);
                let request = request.header("origin", word).header("traceparent", word).header(word, word);
                send(request.header("content-type", word).header("host", word)).await;
            }
        }
    }
}

async fn strange_bodies(tenant: &Tenant, word: &str) {
    let api = &tenant.api;
    let document = json!({ "name": word, "nodes": { word: { "kind": word, "with": { word: word } } } });
    let bodies: [(&str, Value); 9] = [
        ("workflow/definitions/validate", json!({ "document": document })),
        ("workflow/executions/start", json!({ "workflowDefinitionId": word })),
        ("events", json!({ "type": word, "streamId": word, "data": { word: word } })),
        ("tasks/claim", json!({ "queues": [word], "workerId": word, "waitSeconds": 0 })),
        ("jobs/claim", json!({ "types": [word], "worker": word })),
        ("secrets", json!({ "name": word })),
        ("webhooks", json!({ "url": word })),
        ("schedules", json!({ "cron": word })),
        (word, json!({ word: word })),
    ];
    for (path, body) in bodies {
        api.post(path, body).await;
    }
}

/// What a client library would not send.
async fn strange_bytes(world: &World, word: &str) {
    let address = world.server.base.trim_start_matches("http://").to_owned();
    for head in
        [format!("{word} /healthz HTTP/1.1\r\n"), "GET * HTTP/1.1\r\n".to_owned(), format!("GET {word} HTTP/9.9\r\n")]
    {
        let mut socket = tokio::net::TcpStream::connect(&address).await.expect("a connection");
        let request = format!("{head}host: {word}\r\nconnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).await.expect("it is taken");
        let mut answer = Vec::new();
        let _closed = socket.read_to_end(&mut answer).await;
    }
}

/// All labels as they are exposed; each is declared.
async fn labels(world: &World) -> Labels {
    let text = world.server.anonymous().get("/metrics").await.text;
    let mut found = Labels::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, rest)) = line.split_once('{') else { continue };
        let is = |metric: &&Metric| {
            name.strip_prefix(metric.name).is_some_and(|end| ["", "_bucket", "_sum", "_count"].contains(&end))
        };
        let metric = metrics::ALL.iter().find(is).unwrap_or_else(|| panic!("not in the table: {name}"));
        for (label, value) in pairs(rest) {
            assert!(label == "le" || metric.labels.contains(&label), "{name} does not declare {label}");
            found.entry((metric.name.to_owned(), label.to_owned())).or_default().insert(value.to_owned());
        }
    }
    found
}

/// The labels of a series; none of ours has a quote in its value.
fn pairs(series: &str) -> impl Iterator<Item = (&str, &str)> {
    let inside = series.rsplit_once('}').expect("it is closed").0;
    inside.trim_end_matches('"').split("\",").map(|pair| pair.split_once("=\"").expect("a label"))
}
