//! The receiver of a call sees a secret and returns it in every encoding. The secret then appears in no table, log,
//! error, metric, trace or command output, in none of its encodings. The test runs on both engines.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use kernel::signals::spans;
use serde_json::{Value, json};
use store::testing::Database;

use crate::secrets::KEY;
use crate::support::cli::Cli;
use crate::support::collector::Collector;
use crate::support::http::send;
use crate::support::temporal::{Cluster, behind_our_back};
use crate::support::tenant::text;
use crate::support::{Receiver, Server, Tenant, until};

/// What a run is to come to, beside how its node calls out.
const RUNS: [(&str, &str, &str); 7] = [
    ("fine", "200", "COMPLETED"),
    ("bytes", "binary", "COMPLETED"),
    ("client", "400", "FAILED"),
    ("server", "500", "FAILED"),
    ("cut", "cut", "FAILED"),
    ("late", "never", "FAILED"),
    // The call comes first; then a node that breaks off with the same secret at hand.
    ("panic", "200", "FAILED"),
];

/// A secret with characters that every encoding changes, around a core that none does.
struct Canary {
    value: String,
    core: String,
}

impl Canary {
    fn new() -> Canary {
        let core = store::new_id().simple().to_string();
        Canary { value: format!("can+ary/{core}=&\"q\" z"), core }
    }

    /// The core as it is, and as hexadecimal and base64 have it wherever it stands.
    fn forms(&self) -> Vec<String> {
        let hexadecimal: String = self.core.bytes().map(|byte| format!("{byte:02x}")).collect();
        let mut forms = vec![self.core.clone(), hexadecimal];
        for shift in 0..3 {
            let shifted = [vec![0; shift], self.core.clone().into_bytes()].concat();
            let digits = STANDARD_NO_PAD.encode(&shifted);
            forms.push(digits[(shift * 8).div_ceil(6)..shifted.len() * 8 / 6].to_lowercase());
        }
        forms
    }

    #[track_caller]
    fn is_not_in(&self, what: &str, text: &str) {
        assert!(!text.is_empty(), "{what} was looked at");
        let lower = text.to_lowercase();
        for form in self.forms() {
            let Some(at) = lower.find(&form) else { continue };
            let start = (0..=at.saturating_sub(200)).rev().find(|at| lower.is_char_boundary(*at)).unwrap_or(0);
            let around: String = lower[start..].chars().take(500).collect();
            panic!("{what} holds the secret as {form}: …{around}…");
        }
    }
}

/// Sets the secret, and another that holds it in base64.
async fn set(tenant: &Tenant, canary: &Canary) {
    let basic = STANDARD_NO_PAD.encode(format!("user:{}", canary.value));
    for (name, value) in [("CANARY", &canary.value), ("BASIC", &basic)] {
        let path = format!("workspaces/{}/secrets/{name}", tenant.id);
        let reply = send(tenant.api.request(reqwest::Method::PUT, &path).json(&json!({ "value": value }))).await;
        canary.is_not_in("the answer", &reply.text);
        assert_eq!(reply.status, 200, "{}", reply.text);
    }
}

fn call(url: &str) -> Value {
    json!({
        "kind": "HTTP_REQUEST", "timeout": "1500ms", "retry": { "max_attempts": 2, "initial": "10ms" },
        "with": {
            "method": "POST", "url": url, "query": { "k": "${{ secrets.CANARY }}" },
            "headers": { "X-Key": "${{ secrets.CANARY }}", "Authorization": "Basic ${{ secrets.BASIC }}" },
            "body": { "deep": ["<${{ secrets.CANARY }}>"], "whole": "${{ secrets.CANARY }}" },
        },
    })
}

/// Runs every case to its end; answers the executions.
async fn run_all(tenant: &Tenant, receiver: &Receiver, canary: &Canary) -> Vec<String> {
    let mut ids = Vec::new();
    for (name, how, status) in RUNS {
        let mut nodes = json!({
            "call": call(&receiver.url(&format!("/echo/{how}"))),
            "say": { "kind": "LOG", "needs": "call", "with": { "message": "${{ nodes.call.output }}" } },
        });
        if name == "panic" {
            nodes["broken"] = call(&receiver.url("/echo/forebay-test-panic"));
            nodes["broken"]["needs"] = json!("say");
        }
        let body =
            json!({ "document": { "name": name, "nodes": nodes, "outputs": { "all": "${{ nodes.call.output }}" } } });
        let applied = tenant.api.post("workflow/definitions/apply", body).await.expect(200);
        let before = receiver.echo.requests().len();
        let id = tenant.start(&text(&applied["definition"]["id"])).await;
        let ended = tenant.ended(&id).await;
        assert_eq!(ended["status"], status, "{name}: {ended}");
        let observed = receiver.echo.requests()[before..].join("\n");
        check_reported(name, &observed, canary);
        canary.is_not_in(name, &ended.to_string());
        let nodes = tenant.api.get(&format!("workflow/executions/{id}/nodes")).await;
        assert!(nodes.text.contains("***"), "{name}: it is masked, not left out: {}", nodes.text);
        canary.is_not_in(name, &nodes.text);
        ids.push(id);
    }
    ids
}

/// The other side did see it: in a header, the query, the body, and within a header's base64.
fn check_reported(name: &str, observed: &str, canary: &Canary) {
    let quoted = json!(canary.value).to_string();
    let basic = STANDARD_NO_PAD.encode(format!("user:{}", canary.value));
    for (place, expected) in [
        ("header", format!("x-key: {}", canary.value)),
        ("base64", format!("authorization: Basic {basic}")),
        ("query", format!("k=can%2Bary%2F{}%3D%26%22q%22+z", canary.core)),
        ("body", format!("\"whole\":{quoted}")),
    ] {
        assert!(observed.contains(&expected), "{name}: no {place} in {observed}");
    }
}

/// Every value of every table, as text; bytes in hexadecimal.
pub(crate) async fn dump(database: &Database) -> String {
    let client = database.client().await;
    let columns = "SELECT table_name::text, column_name::text FROM information_schema.columns WHERE table_schema IN ('forebay', 'public')";
    let columns = client.query(columns, &[]).await.expect("a catalogue");
    assert!(columns.len() > 50, "there are tables");
    let mut all = String::new();
    for column in columns {
        let (table, column): (String, String) = (column.get(0), column.get(1));
        let values = format!("SELECT string_agg(\"{column}\"::text, E'\\n') FROM \"{table}\"");
        let values: Option<String> = client.query_one(&values, &[]).await.expect("a column").get(0);
        all.push_str(&format!("== {table}.{column}\n{}\n", values.unwrap_or_default()));
    }
    all
}

async fn check_stored(database: &Database, canary: &Canary) {
    let stored = dump(database).await;
    assert!(stored.contains("== secret.value_sealed\n\\x"), "sealed secrets are there");
    canary.is_not_in("the database", &stored);
}

async fn check_commands(server: &Server, tenant: &Tenant, ids: &[String], canary: &Canary) {
    let cli = Cli::of(&server.base, tenant.api.key.as_deref().expect("a key"));
    let mut commands = vec![
        vec!["secret", "ls"],
        vec!["secret", "ls", "-o", "json"],
        vec!["ls", "-o", "json"],
        vec!["activity", "--all", "-o", "json"],
        vec!["queue", "ls", "--failed", "-o", "json"],
    ];
    for id in ids {
        commands.extend([vec!["get", id, "--nodes"], vec!["get", id, "--nodes", "-o", "json"], vec!["watch", id]]);
    }
    for command in commands {
        let output = cli.run(&command).await;
        canary.is_not_in(&format!("{command:?}"), &format!("{}{}", output.stdout, output.stderr));
    }
}

#[tokio::test]
async fn a_secret_that_was_sent_is_in_nothing_that_is_stored_or_shown() {
    let canary = Canary::new();
    let (database, collector) = (Database::new().await, Collector::start().await);
    let receiver = Receiver::start().await;
    let settings = receiver.allowed(&[KEY, "log.filter=debug"]);
    let root = store::access::key::Secret::generate().expect("randomness");
    let mut server = Server::spawn_in(&database.url, &root, &settings, &collector.environment());
    server.ready().await;
    let tenant = Tenant::new(server.api(), "PRO").await;
    set(&tenant, &canary).await;
    let ids = run_all(&tenant, &receiver, &canary).await;
    check_stored(&database, &canary).await;
    check_commands(&server, &tenant, &ids, &canary).await;
    canary.is_not_in("the metrics", &server.anonymous().get("/metrics").await.text);
    until("spans of the calls came", async || {
        let spans = collector.spans();
        (spans.iter().filter(|span| span.name == spans::RUN_NODE.name).count() >= RUNS.len()).then_some(())
    })
    .await;
    canary.is_not_in("the spans", &format!("{:?}", collector.spans()));
    server.process.signal(nix::sys::signal::Signal::SIGTERM);
    server.process.ended().await;
    let log = [server.process.stdout.all(), server.process.stderr.all()].concat().join("\n");
    assert!(log.contains("DEBUG") && log.contains("Node failed: its code panicked"), "it was logged at length");
    canary.is_not_in("the log", &log);
}

#[tokio::test]
async fn on_temporal_a_secret_that_was_sent_is_in_nothing_that_is_stored_or_shown() {
    let canary = Canary::new();
    let cluster = Cluster::new(&[KEY, "log.filter=debug"]).await;
    let worker = cluster.worker().await;
    set(&cluster.tenant, &canary).await;
    let ids = run_all(&cluster.tenant, &cluster.receiver, &canary).await;
    check_stored(&cluster.database, &canary).await;
    for id in &ids {
        let workflow = format!("execution-{id}");
        let history = behind_our_back(&["workflow", "show", "--workflow-id", &workflow, "-o", "json"]).await;
        canary.is_not_in("Temporal's history", &history);
        canary.is_not_in("Temporal's history, its payloads read", &payloads(&history));
    }
    for process in [&cluster.server.process, &worker] {
        let log = [process.stdout.all(), process.stderr.all()].concat().join("\n");
        assert!(log.contains("DEBUG"), "it was logged at length");
        canary.is_not_in("a log", &log);
    }
}

/// Every payload of a history in clear.
fn payloads(history: &str) -> String {
    fn walk(value: &Value, found: &mut String) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| match value.as_str() {
                Some(data) if name == "data" => {
                    let bytes = base64::engine::general_purpose::STANDARD.decode(data).unwrap_or_default();
                    found.push_str(&String::from_utf8_lossy(&bytes));
                }
                _ => walk(value, found),
            }),
            Value::Array(items) => items.iter().for_each(|item| walk(item, found)),
            _ => {}
        }
    }
    let mut found = String::new();
    walk(&serde_json::from_str(history).expect("a history"), &mut found);
    found
}
