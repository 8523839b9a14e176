//! Secrets over the API and by commands: a secret can be set but never read. It is refused without an outer key, and
//! can be re-encrypted with another one.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::support::cli::{Cli, Output};
use crate::support::http::{Reply, send};
use crate::support::server::MORTAL;
use crate::support::temporal::Cluster;
use crate::support::tenant::text;
use crate::support::{Receiver, Server, Shared, Tenant, World, until};

/// A key for tests that need one.
pub(crate) const KEY: &str = "secrets.keys=test:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const NEXT: &str = "next:ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";

async fn set(tenant: &Tenant, name: &str, body: Value) -> Reply {
    let path = format!("workspaces/{}/secrets/{name}", tenant.id);
    send(tenant.api.request(reqwest::Method::PUT, &path).json(&body)).await
}

/// Starts a workflow that sends a secret.
async fn started(receiver: &Receiver, tenant: &Tenant) -> String {
    let node = json!({ "kind": "HTTP_REQUEST", "with": {
        "url": receiver.url("/echo/200"), "headers": { "X-Key": "${{ secrets.API_KEY }}" },
    } });
    tenant.start(&tenant.apply("send", json!({ "send": node })).await).await
}

/// A workflow that sends a secret, and what the other side received.
async fn sent(receiver: &Receiver, tenant: &Tenant) -> Result<String, Value> {
    let id = started(receiver, tenant).await;
    let ended = tenant.ended(&id).await;
    match ended["status"].as_str() {
        Some("COMPLETED") => {
            let observed = receiver.echo.requests().pop().expect("it was called");
            let key = observed.lines().find_map(|line| line.strip_prefix("x-key: ")).expect("a header");
            Ok(key.to_owned())
        }
        _ => Err(ended["error"].clone()),
    }
}

#[tokio::test]
async fn a_secret_is_set_used_replaced_and_deleted_and_never_read_back() {
    let world = Shared::new().await;
    let tenant = world.tenant("PRO").await;
    for (version, value) in [(1, "hunter2-first"), (2, "hunter2-second")] {
        let set = set(&tenant, "API_KEY", json!({ "value": value })).await;
        assert!(!set.text.contains("hunter2"), "{}", set.text);
        assert_eq!(set.expect(200)["version"], version);
        assert_eq!(sent(&world.receiver, &tenant).await, Ok(value.to_owned()));
    }
    let path = format!("workspaces/{}/secrets", tenant.id);
    let listed = tenant.api.get(&path).await;
    assert!(!listed.text.contains("hunter2"), "{}", listed.text);
    assert_eq!((&listed.body["items"][0]["name"], &listed.body["items"][0]["version"]), (&json!("API_KEY"), &json!(2)));
    assert!(text(&listed.body["items"][0]["createdBy"]).starts_with("key:"), "{}", listed.text);
    assert_eq!(tenant.api.get(&format!("{path}/API_KEY")).await.problem(405), "method_not_allowed");
    let activity = tenant.api.get("activity?limit=200").await.text;
    assert!(activity.contains("secret.set") && activity.contains("API_KEY") && !activity.contains("hunter2"));
    tenant.api.delete(&format!("{path}/API_KEY")).await.expect(204);
    assert_eq!(tenant.api.delete(&format!("{path}/API_KEY")).await.problem(404), "not_found");
    let failed = sent(&world.receiver, &tenant).await.expect_err("it is gone");
    assert_eq!(
        (&failed["type"], &failed["message"]),
        (&json!("VALIDATION_ERROR"), &json!("there is no secret API_KEY"))
    );
}

#[tokio::test]
async fn what_is_refused_is_never_repeated_in_the_answer() {
    let world = World::with(&[KEY]).await;
    let tenant = world.tenant("PRO").await;
    let long = "hunter2".repeat(10_000);
    for (name, body) in [
        ("A", json!({ "value": 48_151_623 })),
        ("A", json!({ "value": ["hunter2"] })),
        ("A", json!({ "value": { "hunter2": 1 } })),
        ("A", json!({ "value": null })),
        ("A", json!({ "value": "" })),
        ("A", json!({ "value": "hunter2\u{0}" })),
        ("A", json!({ "value": long })),
        ("A", json!({ "value": "hunter2", "vlaue": "hunter2" })),
        ("A", json!({})),
        ("A", json!(["hunter2"])),
        ("A", json!("hunter2")),
        ("1A", json!({ "value": "hunter2" })),
        ("A-B", json!({ "value": "hunter2" })),
    ] {
        let reply = set(&tenant, name, body.clone()).await;
        assert_eq!(reply.problem(422), "validation_failed", "{name} {body}");
        assert!(!reply.text.contains("hunter2") && !reply.text.contains("48151623"), "{}", reply.text);
    }
    assert_eq!(world.count("secret").await, 0);
    let log = world.server.process.stderr.all().join("\n");
    assert!(!log.contains("hunter2") && !log.contains("48151623"), "{log}");
}

#[tokio::test]
async fn a_secret_is_refused_where_it_would_be_kept_and_without_a_key() {
    let world = World::new().await;
    let tenant = world.tenant("PRO").await;
    let refused = set(&tenant, "API_KEY", json!({ "value": "hunter2" })).await;
    assert_eq!(refused.problem(409), "conflict");
    assert!(refused.text.contains("secrets.key_file"), "it says what to set: {}", refused.text);
    let secret = "${{ secrets.API_KEY }}";
    let url = format!("http://127.0.0.1/{secret}");
    for (kind, with, place) in [
        ("HTTP_REQUEST", json!({ "url": url }), "/nodes/n/with/url"),
        ("HTTP_REQUEST", json!({ "url": "http://a.example", "expect_status": secret }), "/nodes/n/with/expect_status"),
        ("LOG", json!({ "message": secret }), "/nodes/n/with/message"),
        ("TRANSFORM", json!({ "value": [secret] }), "/nodes/n/with/value/0"),
        ("CONDITION", json!({ "if": "secrets.API_KEY == 'x'" }), "/nodes/n/with/if"),
        ("FAIL", json!({ "message": secret }), "/nodes/n/with/message"),
    ] {
        let document = json!({ "name": "bad", "nodes": { "n": { "kind": kind, "with": with } } });
        let body = json!({ "document": document, "workspaceId": tenant.id });
        let reply = tenant.api.post("workflow/definitions/apply", body).await;
        assert_eq!(reply.problem(422), "definition_invalid", "{with}");
        let problems = reply.body["problems"].to_string();
        assert!(problems.contains(place) && problems.contains("secrets.API_KEY cannot be used here"), "{problems}");
    }
    // In a field that is marked for it nothing is wrong until it runs.
    let failed = sent(&world.receiver, &tenant).await.expect_err("there is none");
    assert_eq!(
        (&failed["type"], &failed["message"]),
        (&json!("VALIDATION_ERROR"), &json!("there is no secret API_KEY"))
    );
}

/// Runs a command with a text on its stdin.
async fn piped(cli: &Cli, arguments: &[&str], input: &str) -> Output {
    let mut command = tokio::process::Command::from(cli.command(arguments));
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input.as_bytes()).await.expect("written");
    drop(stdin);
    let output = child.wait_with_output().await.expect("it ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    Output { stdout: text(output.stdout), stderr: text(output.stderr), code: output.status.code().expect("not killed") }
}

#[tokio::test]
async fn commands_set_from_stdin_or_a_file_list_and_delete() {
    let world = Shared::new().await;
    let tenant = world.tenant("PRO").await;
    let cli = Cli::of(&world.server.base, tenant.api.key.as_deref().expect("a key"));
    let set = piped(&cli, &["secret", "set", "API_KEY"], "hunter2-piped\n").await;
    assert_eq!((set.code, set.stdout.as_str()), (0, "API_KEY: version 1\n"), "{set:?}");
    assert_eq!(sent(&world.receiver, &tenant).await, Ok("hunter2-piped".to_owned()), "without the end of its line");
    cli.file("key.txt", "hunter2-file");
    let set = cli.ok(&["secret", "set", "API_KEY", "--from-file", "key.txt", "--workspace", &tenant.name]).await;
    assert_eq!(set, "API_KEY: version 2\n");
    assert_eq!(sent(&world.receiver, &tenant).await, Ok("hunter2-file".to_owned()));
    let listed = cli.ok(&["secret", "ls"]).await;
    assert!(listed.contains("API_KEY") && !listed.contains("hunter2"), "{listed}");
    for refused in
        [&["secret", "set", "API_KEY", "hunter2"][..], &["secret", "delete", "API_KEY"], &["secret", "set", "a/b"]]
    {
        assert_eq!(cli.run(refused).await.code, 2, "{refused:?}");
    }
    cli.ok(&["secret", "delete", "API_KEY", "--yes"]).await;
    assert_eq!(world.count(&tenant, "secret").await, 0);
}

#[tokio::test]
async fn the_outer_key_is_changed_while_the_service_runs_and_the_old_one_dropped() {
    let mut world = World::with(&[KEY]).await;
    let tenant = world.tenant("PRO").await;
    for n in 0..250 {
        set(&tenant, &format!("S{n}"), json!({ "value": format!("value {n}") })).await.expect(200);
    }
    set(&tenant, "API_KEY", json!({ "value": "hunter2" })).await.expect(200);
    let old = KEY.strip_prefix("secrets.keys=").expect("a setting");
    let cli = Cli::new();
    cli.file("keys", &format!("{NEXT}\n{old}\n"));
    cli.file("without", &format!("{NEXT}\n"));
    let rotate = async |file: &str| {
        let setting = format!("secrets.key_file={file}");
        cli.run(&["secret", "rotate-keys", "--database-url", &world.database.url, "--set", &setting]).await
    };
    let without = rotate("without").await;
    assert!(without.code == 1 && without.stderr.contains("encrypted with the key test"), "{without:?}");
    let done = rotate("keys").await;
    assert_eq!((done.code, done.stdout.as_str()), (0, "secrets encrypted with the first key: 251\n"), "{done:?}");
    assert!(done.stderr.contains("200 secrets encrypted so far"), "{done:?}");
    assert_eq!(rotate("keys").await.stdout, "secrets encrypted with the first key: 0\n", "it may be repeated");
    assert_eq!(world.count("secret WHERE key_id <> 'next'").await, 0);
    // A server that does not know the new key lets the call wait.
    let waits = started(&world.receiver, &tenant).await;
    let logs = &world.server.process.stderr;
    until("the call waits", async || logs.contain("Call waits: its secrets cannot be decrypted").then_some(())).await;
    assert_eq!(tenant.status(&waits).await, "RUNNING");
    // A server without the old key opens what the new one sealed, and goes on with that run.
    let next = world.another(&[&format!("secrets.keys={NEXT}"), MORTAL[0], MORTAL[1]]).await;
    world.server.process.sigkill();
    let world = World { server: next, ..world };
    let tenant = tenant.at(&world.server.base);
    tenant.completed(&waits).await;
    assert_eq!(sent(&world.receiver, &tenant).await, Ok("hunter2".to_owned()));
}

#[tokio::test]
async fn a_restore_without_the_key_file_is_reported_at_the_start_and_by_readiness_before_any_run() {
    let world = World::with(&[KEY]).await;
    let tenant = world.tenant("PRO").await;
    let ready = async |server: &Server| server.anonymous().get("/readyz").await;
    assert_eq!(ready(&world.server).await.expect(200)["checks"]["secrets"], "ok", "nothing is sealed yet");
    set(&tenant, "API_KEY", json!({ "value": "hunter2" })).await.expect(200);
    assert_eq!(ready(&world.server).await.expect(200)["checks"]["secrets"], "ok");
    // Another key, another key under the id of the old one, and no key at all.
    let same_id = NEXT.replace("next:", "test:");
    for setting in [Some(NEXT), Some(same_id.as_str()), None] {
        let settings: Vec<String> = setting.iter().map(|keys| format!("secrets.keys={keys}")).collect();
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let restored = world.another(&settings).await;
        let observed = ready(&restored).await;
        assert_eq!((observed.status, &observed.body["ready"]), (503, &json!(false)), "{}", observed.text);
        let why = text(&observed.body["checks"]["secrets"]);
        assert!(why.contains("(test)") && why.contains("secrets.key_file"), "{why}");
        let log = restored.process.stderr.all().join("\n");
        assert!(log.contains("Some secrets cannot be decrypted") && !log.contains("hunter2"), "{log}");
    }
    // The key comes back, or what it sealed goes.
    let both = format!("secrets.keys={NEXT},{}", KEY.strip_prefix("secrets.keys=").expect("a setting"));
    ready(&world.another(&[&both]).await).await.expect(200);
    let without = world.another(&[]).await;
    tenant.api.delete(&format!("workspaces/{}/secrets/API_KEY", tenant.id)).await.expect(204);
    ready(&without).await.expect(200);
    // What webhooks are signed with is sealed too.
    tenant.api.post("webhooks", json!({ "url": world.receiver.url("/call/a") })).await.expect(201);
    assert_eq!(ready(&without).await.status, 503);
}

/// Two calls that send a secret, one of them at most once.
fn sending(receiver: &Receiver) -> Value {
    let with = json!({ "url": receiver.url("/echo/200"), "headers": { "X-Key": "${{ secrets.API_KEY }}" } });
    json!({
        "start": { "kind": "LOG", "with": { "message": "start" } },
        "often": { "kind": "HTTP_REQUEST", "needs": "start", "with": with },
        "once": { "kind": "HTTP_REQUEST", "needs": "start", "with": with, "delivery": "at_most_once" },
    })
}

#[tokio::test]
async fn a_call_whose_secrets_wait_for_a_key_keeps_no_other_call_waiting() {
    let world = World::with(&[KEY, "engine.max_calls=1"]).await;
    let (tenant, other) = (world.tenant("PRO").await, world.tenant("PRO").await);
    set(&tenant, "API_KEY", json!({ "value": "hunter2" })).await.expect(200);
    world.run_sql("UPDATE secret SET key_id = 'gone'").await;
    let waits = tenant.start(&tenant.apply("send", sending(&world.receiver)).await).await;
    let logs = &world.server.process.stderr;
    until("both wait", async || {
        let warned =
            logs.all().iter().filter(|line| line.contains("Call waits: its secrets cannot be decrypted")).count();
        (warned == 2).then_some(())
    })
    .await;
    let plain = other.apply("plain", json!({ "call": world.receiver.node("/ok/a") })).await;
    other.completed(&other.start(&plain).await).await;
    assert_eq!(tenant.nodes(&waits).await["often"], "RUNNING");
    world.run_sql("UPDATE secret SET key_id = 'test'").await;
    tenant.completed(&waits).await;
    assert_eq!(world.receiver.echo.requests().len(), 2, "each was sent once");
}

#[tokio::test]
async fn on_temporal_a_call_whose_secrets_wait_for_a_key_keeps_no_other_call_waiting() {
    let cluster = Cluster::new(&[KEY, "engine.max_calls=1"]).await;
    let worker = cluster.worker().await;
    let (tenant, other) = (&cluster.tenant, Tenant::new(cluster.server.api(), "PRO").await);
    set(tenant, "API_KEY", json!({ "value": "hunter2" })).await.expect(200);
    let run_sql = async |sql: &str| cluster.database.client().await.batch_execute(sql).await.expect("a statement");
    run_sql("UPDATE secret SET key_id = 'gone'").await;
    let waits = tenant.start(&tenant.apply("send", sending(&cluster.receiver)).await).await;
    until("one waits", async || worker.stderr.contain("Call waits: its secrets cannot be decrypted").then_some(()))
        .await;
    let plain = other.apply("plain", json!({ "call": cluster.receiver.node("/ok/a") })).await;
    other.completed(&other.start(&plain).await).await;
    run_sql("UPDATE secret SET key_id = 'test'").await;
    tenant.completed(&waits).await;
    assert_eq!(cluster.receiver.echo.requests().len(), 2, "each was sent once");
    let nodes = tenant.api.get(&format!("workflow/executions/{waits}/nodes")).await.expect(200);
    let nodes = nodes["items"].as_array().expect("a list");
    assert!(nodes.iter().all(|node| node["attempt"] == 1), "it is no attempt: {nodes:?}");
}

#[tokio::test]
async fn keys_that_cannot_be_used_stop_the_start_and_are_not_shown() {
    let cli = Cli::new();
    cli.file("bad", "k:aHVudGVyMg==\n");
    cli.file("none", "# nothing\n");
    for (settings, problem) in [
        (&["secrets.key_file=bad"][..], "secrets.key_file: key 1 is not 32 bytes in base64"),
        (&["secrets.key_file=none"], "secrets.key_file: contains no key"),
        (&["secrets.key_file=missing"], "secrets.key_file: cannot read missing"),
        (&["secrets.keys=aHVudGVyMg"], "secrets.keys: key 1 has no id"),
        (
            &["secrets.keys=a:b", "secrets.key_file=bad"],
            "secrets.key_file: cannot be set together with secrets.keys: remove one",
        ),
    ] {
        let mut arguments = vec!["secret", "rotate-keys", "--database-url", "postgresql:///none"];
        settings.iter().for_each(|setting| arguments.extend(["--set", setting]));
        let output = cli.run(&arguments).await;
        assert_eq!(output.code, 2, "{output:?}");
        assert!(output.stderr.contains(problem) && !output.stderr.contains("aHVudGVyMg"), "{output:?}");
    }
}

#[tokio::test]
async fn a_secret_that_is_bound_to_hosts_goes_nowhere_else() {
    let world = World::with(&[KEY]).await;
    let tenant = world.tenant("PRO").await;
    let here = set(&tenant, "API_KEY", json!({ "value": "hunter2-bound", "hosts": ["127.0.0.1"] })).await;
    assert_eq!(here.expect(200)["hosts"], json!(["127.0.0.1"]));
    assert_eq!(sent(&world.receiver, &tenant).await, Ok("hunter2-bound".to_owned()));
    let calls = world.receiver.echo.requests().len();
    set(&tenant, "API_KEY", json!({ "value": "hunter2-bound", "hosts": ["api.example.com"] })).await.expect(200);
    // Another value does not widen where it goes.
    let kept = set(&tenant, "API_KEY", json!({ "value": "hunter2-again" })).await.expect(200);
    assert_eq!(kept["hosts"], json!(["api.example.com"]));
    let failed = sent(&world.receiver, &tenant).await.expect_err("another host");
    assert_eq!(failed["type"], "SECURITY_ERROR", "{failed}");
    let message = text(&failed["message"]);
    assert!(message.contains("secret API_KEY may be sent to api.example.com only"), "{message}");
    assert!(!message.contains("hunter2"), "{message}");
    assert_eq!(world.receiver.echo.requests().len(), calls, "nothing was sent");
    let any = set(&tenant, "API_KEY", json!({ "value": "hunter2-free", "hosts": [] })).await.expect(200);
    assert!(any.get("hosts").is_none(), "{any}");
    assert_eq!(sent(&world.receiver, &tenant).await, Ok("hunter2-free".to_owned()));
    let refused = set(&tenant, "API_KEY", json!({ "value": "x", "hosts": ["*.example.com"] })).await;
    assert_eq!(refused.problem(422), "validation_failed");
}
