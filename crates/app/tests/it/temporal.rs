//! Tests executions on a real Temporal: workers in other processes that are killed and stopped, canceled and terminated
//! executions, and a Temporal that cannot be reached.
//!
//! Not here: the results of graphs (the scenarios of `engine`, which also run on Temporal), runs that Temporal lost or
//! cannot continue (`temporal_lost`).

use kernel::signals::spans;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::signals::{TRACE, start_traced};
use crate::support::cli::Cli;
use crate::support::collector::{Collector, Span};
use crate::support::dev::Place;
use crate::support::gate::{Demands, Gate};
use crate::support::temporal::{Cluster, behind_our_back, server};
use crate::support::until;
use crate::tidy::repository::read;

/// A workflow with one call that is held until the gate opens.
async fn held(cluster: &Cluster) -> String {
    cluster.tenant.apply("held", json!({ "call": cluster.receiver.node("/hold/a") })).await
}

async fn freed(cluster: &Cluster) {
    until("its slot is free", async || (cluster.tenant.running().await == 0).then_some(())).await;
}

#[tokio::test]
async fn nobody_can_tell_from_the_api_where_it_ran_but_by_the_engines_name() {
    let cluster = Cluster::new(&[]).await;
    let (_one, _two) = (cluster.worker().await, cluster.worker().await);
    let nodes = json!({
        "first": cluster.receiver.node("/ok/a"),
        "second": cluster.receiver.after("first", "/ok/b"),
        "wait": { "kind": "DELAY", "needs": "second", "with": { "for": "20ms" } },
        "say": { "kind": "LOG", "needs": "wait", "with": { "message": "call ${{ nodes.second.output.body.call }}" } },
    });
    let definition = cluster.tenant.apply("graph", nodes).await;
    for id in cluster.tenant.start_many(&definition, 8).await {
        let ended = cluster.tenant.completed(&id).await;
        assert_eq!(ended["engine"], "temporal", "{ended}");
        let all = json!({ "first": "COMPLETED", "second": "COMPLETED", "wait": "COMPLETED", "say": "COMPLETED" });
        assert_eq!(cluster.tenant.nodes(&id).await, all);
    }
    assert_eq!(cluster.receiver.calls("/ok/b").len(), 8);
    assert_eq!((cluster.check("engine").await, cluster.check("reconciler").await), ("ok".into(), "ok".into()));
    freed(&cluster).await;
}

#[tokio::test]
async fn a_killed_worker_costs_no_attempt_and_its_node_is_performed_by_another() {
    let cluster = Cluster::new(&[]).await;
    let mut dies = cluster.worker().await;
    let id = cluster.tenant.start(&held(&cluster).await).await;
    cluster.receiver.until_called("/hold/a", 1).await;
    let _next = cluster.worker().await;
    dies.sigkill();
    cluster.receiver.until_called("/hold/a", 2).await;
    cluster.receiver.open();
    cluster.tenant.completed(&id).await;
    let nodes = cluster.tenant.api.get(&format!("workflow/executions/{id}/nodes")).await.expect(200);
    assert_eq!(nodes["items"][0]["attempt"], 1, "{nodes}");
    let tokens = cluster.receiver.calls("/hold/a");
    assert_eq!((tokens.len(), &tokens[0]), (2, &tokens[1]), "the same token");
}

#[tokio::test]
async fn a_rolling_restart_of_workers_loses_nothing_and_costs_no_attempt() {
    let cluster = Cluster::new(&[]).await;
    let old = cluster.worker().await;
    let nodes = json!({ "a": cluster.receiver.node("/slow/a"), "b": cluster.receiver.after("a", "/slow/b"),
                        "c": cluster.receiver.after("b", "/slow/c") });
    let definition = cluster.tenant.apply("slow", nodes).await;
    let ids = cluster.tenant.start_many(&definition, 12).await;
    cluster.receiver.until_called("/slow/b", 1).await;
    let _new = cluster.worker().await;
    old.signal(Signal::SIGTERM);
    for id in &ids {
        cluster.tenant.completed(id).await;
        let nodes = cluster.tenant.api.get(&format!("workflow/executions/{id}/nodes")).await.expect(200);
        let attempts: Vec<&Value> =
            nodes["items"].as_array().expect("nodes").iter().map(|node| &node["attempt"]).collect();
        assert_eq!(attempts, [1, 1, 1], "{nodes}");
    }
}

#[tokio::test]
async fn what_a_worker_elsewhere_sends_belongs_to_the_trace_of_the_start() {
    let cluster = Cluster::new(&[]).await;
    let _worker = cluster.worker().await;
    let nodes = json!({ "one": cluster.receiver.node("/call/a"), "two": cluster.receiver.after("one", "/call/a") });
    let id = start_traced(&cluster.tenant, &cluster.tenant.apply("calls", nodes).await).await;
    cluster.tenant.completed(&id).await;
    let sent = cluster.receiver.traces("/call/a");
    assert!(sent.len() == 2 && sent.iter().all(|sent| sent.starts_with(&format!("00-{TRACE}-"))), "{sent:?}");
}

#[tokio::test]
async fn the_spans_of_a_dispatch_to_temporal_are_those_of_the_source_documents() {
    let collector = Collector::start().await;
    let cluster = Cluster::traced(&collector.environment()).await;
    let id = cluster.tenant.start(&cluster.tenant.light().await).await;
    cluster.tenant.completed(&id).await;
    for (name, within) in [
        ("temporal:start_workflow", "step:dispatch_temporal"),
        ("db:query", "step:claim_batch"),
        ("db:query", "step:dispatch_temporal"),
        ("db:update", "step:mark_dispatched"),
        ("step:mark_dispatched", "step:process_item"),
        ("step:release_lock", "flow:queue_processing"),
    ] {
        until(&format!("{name} within {within}"), async || {
            let all = collector.spans();
            let is_below = |span: &Span| all.iter().any(|outer| outer.id == span.parent && outer.name == within);
            all.iter().any(|span| span.name == name && is_below(span)).then_some(())
        })
        .await;
    }
    let all = collector.spans();
    let started = all.iter().find(|span| span.name == spans::START_WORKFLOW.name).expect("a span");
    assert_eq!(started.fields["workflow_id"], json!({ "stringValue": format!("execution-{id}") }));
    assert_eq!(started.fields["task_queue"], json!({ "stringValue": cluster.queue() }));
}

#[tokio::test]
async fn search_attributes_that_could_not_be_asked_for_at_first_are_asked_for_again() {
    let gate = Gate::start(Demands { shy: Some("ListSearchAttributes"), ..Demands::default() }).await;
    let cluster = Cluster::at(&[&format!("engine.temporal.address=http://{}", gate.address)]).await;
    let _worker = cluster.worker().await;
    let definition = cluster.tenant.light().await;
    until("a start has them", async || {
        let id = cluster.tenant.start(&definition).await;
        cluster.tenant.completed(&id).await;
        let workflow = format!("execution-{id}");
        let there = behind_our_back(&["workflow", "describe", "--workflow-id", &workflow, "-o", "json"]).await;
        there.contains("ForebayWorkspace").then_some(())
    })
    .await;
    let asked = gate.calls("ListSearchAttributes");
    cluster.tenant.completed(&cluster.tenant.start(&definition).await).await;
    assert_eq!((asked, gate.calls("ListSearchAttributes")), (2, 2), "once more, and then never again");
}

#[tokio::test]
async fn a_cancel_reaches_temporal_and_the_call_in_flight() {
    let cluster = Cluster::new(&[]).await;
    let _worker = cluster.worker().await;
    let id = cluster.tenant.start(&held(&cluster).await).await;
    cluster.receiver.until_called("/hold/a", 1).await;
    cluster.tenant.api.post(&format!("workflow/executions/{id}/cancel"), Value::Null).await.expect(202);
    let ended = cluster.tenant.ended(&id).await;
    assert_eq!((&ended["status"], &ended["error"]), (&json!("CANCELED"), &Value::Null), "{ended}");
    assert_eq!(cluster.tenant.nodes(&id).await["call"], "CANCELED");
    freed(&cluster).await;
    let there = behind_our_back(&["workflow", "describe", "--workflow-id", &format!("execution-{id}")]).await;
    assert!(there.to_uppercase().contains("CANCELED"), "{there}");
}

#[tokio::test]
async fn a_forced_end_is_fenced_terminated_there_and_frees_the_slot() {
    let cluster = Cluster::new(&[]).await;
    let _worker = cluster.worker().await;
    let id = cluster.tenant.start(&held(&cluster).await).await;
    cluster.receiver.until_called("/hold/a", 1).await;
    cluster.tenant.api.post(&format!("workflow/executions/{id}/terminate"), Value::Null).await.expect(202);
    let ended = cluster.tenant.ended(&id).await;
    assert_eq!((&ended["status"], &ended["error"]["type"]), (&json!("CANCELED"), &json!("TERMINATED")), "{ended}");
    freed(&cluster).await;
    cluster.receiver.open();
    let after = cluster.tenant.start(&held(&cluster).await).await;
    cluster.tenant.completed(&after).await;
    assert_eq!(cluster.receiver.calls("/hold/a").len(), 2, "the terminated call was not made again");
}

#[tokio::test]
async fn what_is_terminated_behind_our_back_is_found_recorded_and_its_slot_freed() {
    let cluster = Cluster::new(&[]).await;
    let _worker = cluster.worker().await;
    let id = cluster.tenant.start(&held(&cluster).await).await;
    cluster.receiver.until_called("/hold/a", 1).await;
    let workflow = format!("execution-{id}");
    behind_our_back(&["workflow", "terminate", "--workflow-id", &workflow, "--reason", "a test"]).await;
    let ended = cluster.tenant.ended(&id).await;
    assert_eq!((&ended["status"], &ended["error"]["type"]), (&json!("CANCELED"), &json!("TERMINATED")), "{ended}");
    freed(&cluster).await;
    assert_eq!(cluster.tenant.nodes(&id).await["call"], "CANCELED");
}

#[tokio::test]
async fn an_engine_out_of_reach_opens_the_breaker_and_costs_no_attempt() {
    let cluster = Cluster::new(&[]).await;
    let _worker = cluster.worker().await;
    let definition = cluster.tenant.light().await;
    let before = cluster.tenant.start(&definition).await;
    cluster.tenant.completed(&before).await;
    cluster.way.cut();
    let ids = cluster.tenant.start_many(&definition, 3).await;
    let observed = cluster.until_check("engine", |observed| observed.starts_with("unavailable since")).await;
    assert!(observed.contains("Temporal"), "{observed}");
    let waits = until("it says why", async || {
        let item = cluster.tenant.queue(&ids[0]).await;
        (item["waiting"]["reason"] == "engine_unavailable").then_some(item)
    })
    .await;
    assert_eq!(waits["attempts"], 0, "{waits}");
    cluster.way.mend();
    for id in &ids {
        cluster.tenant.completed(id).await;
    }
    assert_eq!(cluster.until_check("engine", |observed| observed == "ok").await, "ok");
}

#[tokio::test]
async fn roles_are_split_only_where_workers_are_elsewhere() {
    let database = store::testing::Database::new().await;
    let mut command = crate::support::process::forebay();
    command.args(["worker", "--database-url", &database.url]);
    let output = tokio::process::Command::from(command).output().await.expect("it ends");
    let observed = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && observed.contains("engine.kind"), "{observed}");
}

/// What the page tells to type, typed; only what is this test's own (database, addresses, task queue) is exchanged.
#[tokio::test]
async fn the_walk_through_works_as_it_is_written() {
    let database = store::testing::Database::new().await;
    let cli = Cli::new();
    std::fs::create_dir_all(cli.home().join("target/debug")).expect("a directory");
    let program = cli.home().join("target/debug/forebay");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_forebay"), program).expect("a link");
    let page = read("docs/reference/temporal.md");
    let blocks: Vec<&str> = page.split("\n```sh\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks[0].starts_with("temporal server start-dev"), "the tests have one");
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port").port();
    let script = blocks[1..]
        .concat()
        .replace("postgresql://forebay:change-me@localhost/forebay", &format!("'{}'", database.url))
        .replace("http://127.0.0.1:7233", &server())
        .replace("127.0.0.1:7400", &format!("127.0.0.1:{port}"));
    let script = format!(
        "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null' EXIT\n\
         export FOREBAY_ENGINE_TEMPORAL_TASK_QUEUE=test-{}\n{script}",
        store::new_id()
    );
    let mut command = tokio::process::Command::new("bash");
    command.arg("-c").arg(&script).env_clear().current_dir(cli.home()).env("HOME", cli.home()).kill_on_drop(true);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let output = command.output().await.expect("bash");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}\n{out}\n{err}");
    assert!(out.contains("step 8"), "{out}\n{err}");
    let sql = "SELECT count(*) FILTER (WHERE e.status = 'COMPLETED'), count(*) FILTER (WHERE n.attempt > 1)
                 FROM workflow_execution e LEFT JOIN workflow_execution_node n ON n.execution_id = e.id AND n.attempt > 1";
    let row = database.client().await.query_one(sql, &[]).await.expect("counts");
    assert!(row.get::<_, i64>(0) >= 2 && row.get::<_, i64>(1) == 0, "the kill cost no attempt");
}

/// Where nothing answers, `dev` starts a server of its own, which ends with it however it ends; where one does, it is
/// used.
#[tokio::test]
async fn dev_runs_on_a_temporal_that_is_there_or_on_one_of_its_own() {
    let place = Place::new();
    let program = format!("FOREBAY_TEMPORAL_BIN={}", std::env::var("FOREBAY_TEST_TEMPORAL_BIN").expect("./dev/test"));
    let nowhere = "engine.temporal.address=http://127.0.0.1:1";
    let mut dev = place.start_in(&[&program], &["--engine", "temporal", "--ephemeral", "--set", nowhere]).await;
    let said = dev.process.stdout.all();
    let ui = said.iter().find_map(|line| line.strip_prefix("Temporal's UI: ")).expect("an address");
    assert!(reqwest::get(ui).await.expect("it answers").status().is_success());
    let hello = place.user.ok(&["run", "hello", "--workspace", "demo-pro", "-i", "name=Ada", "--watch"]).await;
    assert!(hello.contains("Hello, Ada!"), "{hello}");
    let shown = place.user.ok(&["get", "@latest:hello", "--workspace", "demo-pro", "-o", "json"]).await;
    assert!(shown.contains("\"temporal\""), "{shown}");
    dev.process.sigkill();
    until("its server is gone with it", async || reqwest::get(ui).await.is_err().then_some(())).await;

    let queue = format!("engine.temporal.task_queue=test-{}", store::new_id());
    let there = format!("engine.temporal.address={}", server());
    let flags = ["--engine", "temporal", "--ephemeral", "--set", &there, "--set", &queue];
    let dev = place.start_in(&[], &flags).await;
    assert!(dev.process.stderr.contain("using the Temporal server at"), "{:?}", dev.process.stderr.all());
    let hello = place.user.ok(&["run", "hello", "--workspace", "demo-pro", "-i", "name=Bo", "--watch"]).await;
    assert!(hello.contains("Hello, Bo!"), "{hello}");
}
