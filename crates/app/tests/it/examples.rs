//! Runs every workflow in `examples/` whose head comment states how it ends, against a real HTTP server.
//!
//! In a head, `input:` is the input of the execution (`BASE` is the server), and `secret:` a secret that is set first.
//! `answer:` names a waiting node and its answer, and `worker:` a queue that `worker.py` serves. `ends:` is the status
//! with the output, or with the type and message of the failure. `nodes:` is the status of each node, and `unanswered:`
//! how the execution ends if nobody answers.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use reqwest::header::AUTHORIZATION;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::secrets::KEY;
use crate::support::http::send;
use crate::support::tenant::text;
use crate::support::{Server, Tenant};

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
const TOKEN: &str = "crm-token-of-the-examples";

/// How often each path was called, by method and path.
type Calls = Arc<Mutex<BTreeMap<String, u32>>>;

async fn listen() -> SocketAddr {
    let router = Router::new().fallback(answer).with_state(Calls::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

async fn answer(State(calls): State<Calls>, request: Request) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let key = format!("{method} {path}");
    let count = {
        let mut calls = calls.lock();
        let count = calls.entry(key.clone()).or_default();
        *count += 1;
        *count
    };
    let known = request.headers().get(AUTHORIZATION).is_some_and(|given| given == &format!("Bearer {TOKEN}"));
    let later = |status: StatusCode| (status, [("retry-after", "0")], Json(Value::Null)).into_response();
    match key.as_str() {
        "GET /orders/A42" => Json(json!({ "id": "A42", "customer": "C7", "total": 1250 })).into_response(),
        "GET /customers/C7" => Json(json!({ "name": "Ann Lee", "email": "ann@example.test" })).into_response(),
        "POST /exports" => (StatusCode::ACCEPTED, Json(json!({ "id": "E1" }))).into_response(),
        "GET /exports/E1" if count < 3 => later(StatusCode::ACCEPTED),
        "GET /exports/E1" => {
            ([("x-attempt", count.to_string())], Json(json!({ "file": "/files/E1.csv" }))).into_response()
        }
        "GET /files/E1.csv" => "a;1\nb;2\nc;3\n".into_response(),
        "POST /flights" => (StatusCode::CREATED, Json(json!({ "ref": "F7" }))).into_response(),
        "POST /hotels" => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        "DELETE /flights/F7" => StatusCode::NO_CONTENT.into_response(),
        "GET /tickets/T1" => Json(json!({ "topic": "Refund", "text": "Where is my money?" })).into_response(),
        "GET /contacts" | "PUT /contacts" if !known => StatusCode::UNAUTHORIZED.into_response(),
        "GET /contacts" if count == 1 => later(StatusCode::TOO_MANY_REQUESTS),
        "PUT /contacts" if count < 3 => later(StatusCode::SERVICE_UNAVAILABLE),
        "GET /contacts" => {
            let contact = |name: &str| json!({ "email": format!("{name}@example.test") });
            Json(json!({ "contacts": [contact("ann"), contact("bo"), contact("cy")] })).into_response()
        }
        "GET /sales" => Json(json!([
            { "name": "pen", "price": 1.5, "count": 7 },
            { "name": "ink", "price": 25, "count": 5 },
            { "name": "pad", "price": 5, "count": -1 },
        ]))
        .into_response(),
        "POST /mails" => StatusCode::ACCEPTED.into_response(),
        "POST /subscribers/gone/messages" => StatusCode::GONE.into_response(),
        _ if method == Method::POST || method == Method::PATCH || method == Method::PUT => {
            Json(json!({ "ok": true })).into_response()
        }
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

/// An example that says how it ends.
struct Example {
    name: String,
    source: String,
}

impl Example {
    fn all() -> Vec<Example> {
        let files = std::fs::read_dir(DIRECTORY).expect("examples").map(|file| file.expect("a file").path());
        let read = |path: PathBuf| Example {
            name: path.file_name().expect("a name").to_string_lossy().into_owned(),
            source: std::fs::read_to_string(&path).expect("readable"),
        };
        files.map(read).filter(|example| example.said("ends").is_some()).collect()
    }

    /// What its head says under a word.
    fn said(&self, word: &str) -> Option<&str> {
        self.source.lines().find_map(|line| line.strip_prefix(&format!("# {word}: ")))
    }

    /// Starts it, once it is published as `source`.
    async fn start(&self, tenant: &Tenant, address: SocketAddr, source: &str) -> String {
        let applied = tenant.api.post("workflow/definitions/apply", json!({ "source": source })).await.expect(200);
        let input = self.said("input").unwrap_or("null").replace("BASE", &format!("http://{address}"));
        let input: Value = serde_json::from_str(&input).expect("an input");
        let body = json!({ "workflowDefinitionId": applied["definition"]["id"], "input": input });
        text(&tenant.api.post("workflow/executions/start", body).await.expect(202)["executionId"])
    }

    fn judge(&self, ended: &Value, ends: &str) {
        let name = &self.name;
        let (status, rest) = ends.split_once(' ').expect("a status, and more");
        assert_eq!(ended["status"], status, "{name}: {ended}");
        match status {
            "FAILED" => {
                let error = &ended["error"];
                assert_eq!(format!("{} {}", text(&error["type"]), text(&error["message"])), rest, "{name}");
            }
            _ => assert_eq!(ended["output"], serde_json::from_str::<Value>(rest).expect("an output"), "{name}"),
        }
    }
}

async fn answer_it(tenant: &Tenant, id: &str, words: &str) {
    let (node, data) = words.split_once(' ').expect("a node and its data");
    let body = json!({ "data": serde_json::from_str::<Value>(data).expect("data") });
    let observed = tenant.api.post(&format!("workflow/executions/{id}/waits/{node}/answer"), body).await;
    assert!(observed.status < 300, "{}", observed.text);
}

#[tokio::test]
async fn every_example_ends_as_its_head_says() {
    let address = listen().await;
    let database = store::testing::Database::new().await;
    let server = Server::start(&database.url, &[format!("outbound.allow={address}"), KEY.to_owned()]).await;
    let tenant = Tenant::new(server.api(), "PRO").await;
    let examples = Example::all();
    assert!(examples.len() >= 12, "only {} examples say how they end", examples.len());
    for Example { source, .. } in &examples {
        tenant.api.post("workflow/definitions/apply", json!({ "source": source })).await.expect(200);
    }
    for example in &examples {
        let name = &example.name;
        if let Some(name) = example.said("secret") {
            let path = format!("workspaces/{}/secrets/{name}", tenant.id);
            let set = send(tenant.api.request(Method::PUT, &path).json(&json!({ "value": TOKEN }))).await;
            assert!(set.status < 300, "{name}: {}", set.text);
        }
        let worker = example.said("worker").map(|queue| worker(&tenant, queue));
        let id = example.start(&tenant, address, &example.source).await;
        if let Some(words) = example.said("answer") {
            answer_it(&tenant, &id, words).await;
        }
        example.judge(&tenant.ended(&id).await, example.said("ends").expect("how it ends"));
        drop(worker);
        let nodes = tenant.api.get(&format!("workflow/executions/{id}/nodes")).await.expect(200);
        let mut lines: Vec<String> = nodes["items"].as_array().expect("nodes").iter().map(line).collect();
        let mut expected: Vec<&str> = example.said("nodes").expect("its nodes").split(", ").collect();
        lines.sort_unstable();
        expected.sort_unstable();
        assert_eq!(lines, expected, "{name}");
    }
}

#[tokio::test]
async fn an_example_that_waits_goes_on_when_nobody_answers() {
    let address = listen().await;
    let database = store::testing::Database::new().await;
    let server = Server::start(&database.url, &[format!("outbound.allow={address}"), KEY.to_owned()]).await;
    let tenant = Tenant::new(server.api(), "PRO").await;
    let mut tried = 0;
    for example in Example::all() {
        let Some(ends) = example.said("unanswered") else { continue };
        let source = example.source.replace("timeout: 2d", "timeout: 1s");
        assert_ne!(source, example.source, "{}: there is a wait to shorten", example.name);
        let id = example.start(&tenant, address, &source).await;
        example.judge(&tenant.ended(&id).await, ends);
        tried += 1;
    }
    assert!(tried > 0, "an example waits");
}

/// `worker.py`, until it is dropped.
fn worker(tenant: &Tenant, queue: &str) -> Worker {
    let mut command = std::process::Command::new("python3");
    command.arg(format!("{DIRECTORY}/worker.py")).arg(queue);
    command.env("FOREBAY_SERVER", &tenant.api.base).env("FOREBAY_KEY", tenant.api.key.as_deref().expect("a key"));
    Worker(command.spawn().expect("python3 runs the worker"))
}

struct Worker(std::process::Child);

impl Drop for Worker {
    fn drop(&mut self) {
        self.0.kill().expect("it can be stopped");
        self.0.wait().expect("it is gone");
    }
}

fn line(node: &Value) -> String {
    let attempt = node["attempt"].as_i64().filter(|attempt| *attempt > 1);
    let attempt = attempt.map(|attempt| format!(" at attempt {attempt}")).unwrap_or_default();
    format!("{} {}{attempt}", text(&node["node"]), text(&node["status"]))
}
