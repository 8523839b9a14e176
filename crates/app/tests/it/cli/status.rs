//! Tests what commands show about an execution while it waits and while it runs.

use expect_test::expect;
use serde_json::json;

use super::check;
use crate::support::cli::Cli;
use crate::support::process::Process;
use crate::support::terminal::Terminal;
use crate::support::{Shared, until};

#[tokio::test]
async fn a_waiting_execution_shows_its_reason_and_a_running_one_its_nodes() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let cli = Cli::of(&world.server.base, tenant.api.key.as_deref().expect("a key"));
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let running = tenant.start(&held).await;
    world.receiver.until_called("/hold/a", 1).await;
    let waiting = tenant.start(&held).await;
    let commands: [&[&str]; 3] = [&["get", &waiting], &["queue", &waiting], &["get", &running]];
    check(
        &cli,
        &commands,
        expect![[r#"
        $ forebay get <id>
        execution  <id>
        workflow   held, version 1
        status     PENDING
        position   1
        waiting    the workspace is full: 1 of 1 executions are running
        held by    <id>
        created    <time>
        $ forebay queue <id>
        queue      <id>
        status     PENDING
        execution  PENDING
        priority   3
        created    <time>
        position   1
        waiting    the workspace is full: 1 of 1 executions are running
        held by    <id>
        $ forebay get <id>
        execution  <id>
        workflow   held, version 1
        status     RUNNING
        running    call (HTTP_REQUEST)
        created    <time>
        started    <time>
    "#]],
    )
    .await;
}

#[tokio::test]
async fn on_a_terminal_the_wait_is_shown_until_nodes_run() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let cli = Cli::of(&world.server.base, tenant.api.key.as_deref().expect("a key"));
    let nodes = json!({ "call": world.receiver.node("/hold/a"), "say": { "kind": "LOG", "needs": "call", "with": { "message": "all is well" } } });
    let held = tenant.apply("held", nodes).await;
    tenant.start(&held).await;
    world.receiver.until_called("/hold/a", 1).await;
    let mut terminal = Terminal::open(&cli.command(&["run", "held", "--watch", "--no-color"]));
    terminal.shows("waiting: the workspace is full: 1 of 1 executions are running").await;
    world.receiver.open();
    assert_eq!(terminal.ended().await.code(), Some(0));
    let text = terminal.text();
    let last_wait = text.rfind("waiting: ").expect("it waited");
    assert!(text.find("COMPLETED  call").is_some_and(|at| at > last_wait), "{text}");
    assert!(text.contains("all is well"), "{text}");
}

#[tokio::test]
async fn two_watchers_are_distinguished() {
    let world = Shared::new().await;
    let tenant = world.tenant("PRO").await;
    let cli = Cli::of(&world.server.base, tenant.api.key.as_deref().expect("a key"));
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let ids = tenant.start_many(&held, 2).await;
    world.receiver.until_called("/hold/a", 2).await;
    let mut watchers: Vec<Process> =
        ids.iter().map(|id| Process::spawn("watch", cli.command(&["watch", id]))).collect();
    for (id, watcher) in ids.iter().zip(&watchers) {
        let line = format!("{}  RUNNING    call", &id[30..]);
        until("it watches", async || watcher.stderr.contain(&line).then_some(())).await;
    }
    world.receiver.open();
    for (id, watcher) in ids.iter().zip(&mut watchers) {
        assert!(watcher.ended().await.success());
        let lines = watcher.stderr.all();
        assert!(lines.iter().all(|line| line.starts_with(&id[30..])), "{lines:?}");
    }
}
