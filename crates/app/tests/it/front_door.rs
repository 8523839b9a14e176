//! Tests what clients without a key can reach: the headers of every response, failed authentication, root keys, and
//! the addresses that a process listens on.

use nix::sys::signal::Signal;
use reqwest::Method;
use serde_json::json;
use store::access::key::Secret;
use store::testing::Database;

use crate::support::http::{Api, begin};
use crate::support::process::{Process, forebay};
use crate::support::{Shared, World, until};

#[tokio::test]
async fn every_answer_forbids_storing_it_and_guessing_its_type() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let (keyed, anonymous) = (&tenant.api, world.server.anonymous());
    let table = "/rest/v1/workflow_queue_projection";
    let stream = begin(keyed.request(Method::GET, "workflow/executions/events")).await;
    for (what, reply) in [
        ("a success", keyed.get("workspaces").await),
        ("a creation", keyed.post("keys", json!({ "name": "k" })).await),
        ("nothing there", keyed.get("nothing").await),
        ("outside of everything", anonymous.get("/nothing").await),
        ("another method", keyed.delete("workspaces").await),
        ("no key", anonymous.get("workspaces").await),
        ("a bad body", keyed.post("keys", json!([])).await),
        ("alive", anonymous.get("/healthz").await),
        ("ready", anonymous.get("/readyz").await),
        ("metrics", anonymous.get("/metrics").await),
        ("the description", anonymous.get("/api/openapi.json").await),
        ("the table", keyed.get(table).await),
        ("the table, refused", anonymous.get(table).await),
        ("a trigger", anonymous.post("/triggers/none", json!({})).await),
        ("a socket, refused", anonymous.get("/realtime/v1/websocket").await),
        ("a stream", stream),
    ] {
        assert_eq!(reply.header("x-content-type-options"), "nosniff", "{what}: {}", reply.status);
        assert_eq!(reply.header("cache-control"), "no-store", "{what}: {}", reply.status);
    }
}

#[tokio::test]
async fn failed_authentication_is_counted_logged_with_its_address_and_limited() {
    let world = World::with(&["auth.max_failures_per_address=5"]).await;
    let tenant = world.tenant("FREE").await;
    tenant.api.get("workspaces").await.expect(200);
    let bad = |_| tenant.api.with_key(Secret::generate().expect("randomness").expose());
    for api in (0..4).map(bad) {
        assert_eq!(api.get("workspaces").await.problem(401), "unauthenticated");
    }
    tenant.api.with_key("nonsense").get("workspaces").await.problem(401);
    let limited = bad(0).get("workspaces").await;
    assert_eq!(limited.problem(429), "rate_limited");
    assert!((1..=60).contains(&limited.header("retry-after").parse::<u32>().expect("seconds")), "{limited:?}");
    let table = bad(0).get("/rest/v1/workflow_queue_projection").await;
    assert_eq!(table.status, 429, "the other doors are the same: {}", table.text);
    let table = tenant.api.with_key("nonsense").get("/rest/v1/workflow_queue_projection").await;
    assert_eq!(table.status, 429, "for what is no key too: {}", table.text);
    world.server.anonymous().get("workspaces").await.problem(401);
    tenant.api.get("workspaces").await.expect(200);
    world.server.api().get("workspaces").await.expect(200);
    let metrics = world.server.anonymous().get("/metrics").await.text;
    for (reason, count) in [("unknown", 4), ("malformed", 1), ("rate_limited", 3), ("missing", 1)] {
        let line = format!("forebay_authentication_failures_total{{reason=\"{reason}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    let lines: Vec<String> = world.server.process.stderr.all();
    let observed: Vec<&String> = lines.iter().filter(|line| line.contains("Authentication failed")).collect();
    assert_eq!(observed.len(), 1, "one line, not seven: {observed:?}");
    assert!(observed[0].contains("127.0.0.1"), "{observed:?}");
    assert!(!lines.iter().any(|line| line.contains("fbk_")), "no key is logged");
}

/// A server whose root keys are in a file.
fn with_file(database: &Database, file: &std::path::Path) -> Process {
    let mut command = forebay();
    command.args(["serve", "--database-url", &database.url, "--listen", "127.0.0.1:0", "--set"]);
    command.arg(format!("auth.root_key_file={}", file.display()));
    Process::spawn("serve", command)
}

#[tokio::test]
async fn root_keys_are_changed_in_their_file_while_the_service_runs() {
    let (database, home) = (Database::new().await, tempfile::tempdir().expect("a directory"));
    let file = home.path().join("root-keys");
    let keys: Vec<Secret> = (0..3).map(|_| Secret::generate().expect("randomness")).collect();
    let write = |text: String| std::fs::write(&file, text).expect("a file");
    write(format!("# two at once\n{}\n\n{}\n", keys[0].expose(), keys[1].expose()));
    let mut process = with_file(&database, &file);
    let base = process.says("Forebay listens on ").await;
    let api = |key: usize| Api::new(&base, Some(keys[key].expose()));
    let opens = async |key: usize, status: u16| {
        until("the keys of the file are in force", async || {
            (api(key).get("workspaces").await.status == status).then_some(())
        })
        .await;
    };
    opens(0, 200).await;
    opens(1, 200).await;
    opens(2, 401).await;
    write(format!("{}\n{}\n", keys[1].expose(), keys[2].expose()));
    opens(2, 200).await;
    opens(0, 401).await;
    opens(1, 200).await;
    write("nonsense\n".to_owned());
    until("the log says so", async || process.stderr.contain("root_key_file").then_some(())).await;
    opens(2, 200).await;
    let said = process.stderr.all();
    assert!(!said.iter().any(|line| keys.iter().any(|key| line.contains(key.expose()))), "{said:?}");
    process.signal(Signal::SIGTERM);
    process.ended().await;
    let mut refused = with_file(&database, &file);
    assert_eq!(refused.ended().await.code(), Some(2));
    assert!(refused.stderr.contain("line 1 is not a root key"), "{:?}", refused.stderr.all());
}

#[tokio::test]
async fn serve_refuses_to_listen_beyond_loopback_without_a_root_key() {
    let database = Database::new().await;
    let serve = |address: &str| {
        let mut command = forebay();
        command.args(["serve", "--database-url", &database.url, "--listen", address]);
        Process::spawn("serve", command)
    };
    let mut refused = serve("0.0.0.0:0");
    assert_eq!(refused.ended().await.code(), Some(2));
    let said = refused.stderr.all().join("\n");
    assert!(said.contains("auth.root_key") && said.contains("127.0.0.1"), "{said}");
    serve("127.0.0.1:0").says("ready").await;
    let mut stored = forebay();
    stored.args(["serve", "--database-url", &database.url, "--listen", "0.0.0.0:0"]);
    stored.env("FOREBAY_AUTH_ROOT_KEY", Secret::generate().expect("randomness").expose());
    Process::spawn("serve", stored).says("ready").await;
}

#[tokio::test]
async fn metrics_and_readiness_have_an_address_of_their_own_if_one_is_set() {
    let database = Database::new().await;
    let mut command = forebay();
    command.args(["serve", "--database-url", &database.url, "--listen", "127.0.0.1:0"]);
    command.args(["--set", "http.admin_listen=127.0.0.1:0"]);
    let mut process = Process::spawn("serve", command);
    let public = Api::new(&process.says("Forebay listens on ").await, None);
    let admin = Api::new(&process.says("Metrics and readiness are on ").await, None);
    for path in ["/healthz", "/readyz", "/metrics"] {
        let reply = admin.get(path).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text);
        let expected = if path == "/healthz" { 200 } else { 404 };
        assert_eq!(public.get(path).await.status, expected, "{path}");
    }
    assert_eq!(admin.get("workspaces").await.problem(404), "not_found");
    assert_eq!(public.get("workspaces").await.problem(401), "unauthenticated");
}
