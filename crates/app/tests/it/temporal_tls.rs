//! Tests connections to a Temporal that requires TLS, a client certificate or an API key, and the error if one of them
//! is missing.
//!
//! Not here: which settings can be combined (`server::config`).

use serde_json::json;

use crate::support::gate::{Demands, Gate};
use crate::support::process::forebay;
use crate::support::temporal::{Cluster, check, until_check};
use crate::support::{Receiver, Server};

const KEY: &str = "tmprl-s3cr3t-of-a-test";

fn guarded() -> Demands {
    Demands { tls: true, certificate: true, key: Some(KEY.to_owned()), ..Demands::default() }
}

fn as_text(settings: &[String]) -> Vec<&str> {
    settings.iter().map(String::as_str).collect()
}

#[tokio::test]
async fn with_authority_certificate_and_key_executions_run_and_no_secret_is_logged() {
    let gate = Gate::start(guarded()).await;
    let sealing = "5b".repeat(32);
    let files = [
        format!("engine.temporal.api_key_file={}", gate.keep("key", &format!("{KEY}\n"))),
        format!("engine.temporal.encryption_key_file={}", gate.keep("sealing", &sealing)),
        "log.filter=debug".to_owned(),
    ];
    let settings = [gate.settings(), gate.certificate(), files.to_vec()].concat();
    let cluster = Cluster::at(&as_text(&settings)).await;
    let worker = cluster.worker_with(&["log.filter=debug"]).await;
    let definition = cluster.tenant.apply("call", json!({ "call": cluster.receiver.node("/ok/a") })).await;
    let id = cluster.tenant.start(&definition).await;
    cluster.tenant.completed(&id).await;
    assert_eq!(cluster.check("engine").await, "ok");
    assert_eq!(gate.credentials(), [format!("Bearer {KEY}")], "every call shows the key");
    assert!(gate.calls("StartWorkflowExecution") == 1 && gate.calls("PollWorkflowTaskQueue") > 0);
    for process in [&cluster.server.process, &worker] {
        for line in process.stderr.all().iter().chain(&process.stdout.all()) {
            assert!(!line.contains(KEY) && !line.contains(&sealing), "{line}");
        }
    }
}

#[tokio::test]
async fn a_refused_join_gets_the_reason() {
    let (gate, stranger) = (Gate::start(guarded()).await, Gate::start(guarded()).await);
    let key = |key: &str| vec![format!("engine.temporal.api_key={key}")];
    let other = vec![format!("engine.temporal.ca_file={}", stranger.file("ca.pem"))];
    let name = vec!["engine.temporal.server_name=another.test".to_owned()];
    let table = [
        ("another authority", [gate.settings(), other, gate.certificate(), key(KEY)].concat(), "UnknownIssuer"),
        ("another name", [gate.settings(), name, gate.certificate(), key(KEY)].concat(), "not valid for name"),
        ("no certificate", [gate.settings(), key(KEY)].concat(), "engine.temporal.client_cert_file"),
        ("another key", [gate.settings(), gate.certificate(), key("other")].concat(), "this key is not known"),
        ("no key", [gate.settings(), gate.certificate()].concat(), "this key is not known"),
    ];
    let (database, receiver) = (store::testing::Database::new().await, Receiver::start().await);
    let root = store::access::key::Secret::generate().expect("randomness");
    for (what, settings, expected) in table {
        let settings = [vec!["engine.kind=temporal".to_owned()], settings].concat();
        let settings = receiver.allowed(&as_text(&settings));
        let mut server = Server::spawn_as("api", &database.url, &root, &settings);
        server.ready().await;
        let said = until_check(&server, "engine", |said| said.starts_with("unavailable since")).await;
        assert!(said.contains(expected), "{what}: {said}");
        assert!(!said.contains(KEY), "{what}: {said}");
    }
    assert_eq!(gate.calls("StartWorkflowExecution") + stranger.calls("GetSystemInfo"), 0);
}

/// A certificate that the system's own authorities vouch for needs no file; one that they do not is refused.
#[tokio::test]
async fn without_a_file_only_the_systems_authorities_are_believed() {
    let gate = Gate::start(Demands { tls: true, ..Demands::default() }).await;
    let settings: Vec<String> =
        gate.settings().into_iter().filter(|setting| !setting.starts_with("engine.temporal.ca_file")).collect();
    let cluster = Cluster::at(&as_text(&settings)).await;
    let id = cluster.tenant.start(&cluster.tenant.light().await).await;
    let said = cluster.until_check("engine", |said| said.starts_with("unavailable since")).await;
    assert!(said.contains("UnknownIssuer"), "{said}");
    let item = cluster.tenant.queue(&id).await;
    assert_eq!((&item["waiting"]["reason"], &item["attempts"]), (&json!("engine_unavailable"), &json!(0)), "{item}");
    let api = cluster.api_only().await;
    until_check(&api, "engine", |said| said.contains("UnknownIssuer")).await;
    assert_ne!(check(&api, "engine").await, "elsewhere");
}

#[tokio::test]
async fn secrets_are_masked_and_a_file_without_one_is_named() {
    let shown = async |settings: &[&str], command: &str| {
        let mut process = forebay();
        process.arg(command).args(settings.iter().flat_map(|setting| ["--set", setting]));
        if command == "serve" {
            process.args(["--database-url", &store::testing::Database::new().await.url]);
        }
        let output = tokio::process::Command::from(process).output().await.expect("it ends");
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat()
    };
    let https = "engine.temporal.address=https://127.0.0.1:1";
    let key = format!("engine.temporal.api_key={KEY}");
    let text = shown(&[https, &key], "config").await;
    assert!(text.contains("api_key = \"***\"") && !text.contains(KEY), "{text}");
    let gate = Gate::start(Demands::default()).await;
    let empty = format!("engine.temporal.api_key_file={}", gate.keep("empty", "\n"));
    let text = shown(&["engine.kind=temporal", https, &empty], "serve").await;
    assert!(text.contains("engine.temporal.api_key_file") && text.contains("contains no secret"), "{text}");
}
