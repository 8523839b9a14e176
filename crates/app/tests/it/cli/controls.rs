//! Tests the commands that control executions: pause, resume, delete, terminate, rerun, and many starts at once.

use expect_test::expect;
use serde_json::json;

use super::{FAILS, GOOD, check, root};
use crate::support::cli::Cli;
use crate::support::tenant::text;
use crate::support::terminal::Terminal;
use crate::support::{Shared, World, until};

#[tokio::test]
async fn paused_executions_wait_until_they_are_resumed() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let root = root(&world.server).await;
    let definition = tenant.light().await;
    let workspace = tenant.name.as_str();
    let why = async |command: &[&str]| {
        root.ok(command).await;
        tenant.queue(&tenant.start(&definition).await).await["waiting"]["reason"].clone()
    };
    assert_eq!(why(&["workflow", "pause", "light", "--workspace", workspace]).await, "definition_paused");
    let listed = root.ok(&["workflow", "ls", "--workspace", workspace]).await;
    assert!(listed.contains("light  PAUSED"), "{listed}");
    root.ok(&["workflow", "resume", "light", "--workspace", workspace]).await;
    assert_eq!(why(&["workspace", "pause", workspace]).await, "workspace_paused");
    let shown = root.ok(&["workspace", "resume", workspace]).await;
    assert!(shown.contains("state    ACTIVE"), "{shown}");
    until("all have ended", async || {
        (world.count(&tenant, "workflow_execution WHERE completed_at IS NULL").await == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_undone_needs_a_confirmation() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let root = root(&world.server).await;
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let running = tenant.start(&held).await;
    world.receiver.until_called("/hold/a", 1).await;
    let workspace = tenant.name.as_str();
    let commands: [&[&str]; 3] = [
        &["terminate", &running],
        &["workflow", "delete", "held", "--workspace", workspace],
        &["workspace", "delete", workspace],
    ];
    for command in commands {
        let refused = root.run(command).await;
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.stderr.contains("There is no terminal to ask at: confirm with --yes"), "{refused:?}");
    }
    for (answer, code) in [("\n", 1), ("no\n", 1), ("y\n", 0)] {
        let mut terminal = Terminal::open(&root.command(&["terminate", &running]));
        terminal.shows(&format!("Terminate {running} (held, RUNNING)? [y/N] ")).await;
        assert_eq!(tenant.status(&running).await, "RUNNING");
        terminal.press(answer);
        assert_eq!(terminal.ended().await.code(), Some(code), "{answer:?}: {}", terminal.text());
    }
    assert_eq!(tenant.ended(&running).await["status"], "CANCELED");
    for command in &commands[1..] {
        root.ok(&[*command, &["--yes"]].concat()).await;
        assert_eq!(root.run(&[*command, &["--yes"]].concat()).await.code, 1, "it is gone");
    }
}

#[tokio::test]
async fn an_ended_execution_is_run_again_with_its_input_or_another() {
    let world = Shared::new().await;
    let tenant = world.tenant("PRO").await;
    let cli = Cli::of(&world.server.base, tenant.api.key.as_deref().expect("a key"));
    cli.file("greet.yaml", GOOD);
    cli.ok(&["apply", "greet.yaml"]).await;
    let first = cli.json(&["run", "greet", "-i", "name=Ada", "-i", "more=1", "--watch"]).await;
    let id = text(&first["id"]);
    let again = cli.json(&["rerun", &id, "--watch"]).await;
    assert_eq!((&again["output"]["said"], &again["rerunOfExecutionId"]), (&json!("Hello, Ada!"), &json!(id)));
    assert_eq!(again["input"], json!({"name": "Ada", "more": 1}));
    let other = cli.json(&["rerun", &id, "-i", "more=2", "--watch"]).await;
    assert_eq!(other["input"], json!({"name": "Ada", "more": 2}));
    let whole = cli.json(&["rerun", &id, "--input", "{\"name\": \"Bob\"}", "--watch"]).await;
    assert_eq!(whole["input"], json!({"name": "Bob"}));
    cli.file("greet.yaml", &GOOD.replace("Hello", "Good day"));
    cli.ok(&["apply", "greet.yaml"]).await;
    let said =
        async |flags: &[&str]| cli.json(&[&["rerun", &id, "--watch"], flags].concat()).await["output"]["said"].clone();
    assert_eq!((said(&[]).await, said(&["--published"]).await), (json!("Hello, Ada!"), json!("Good day, Ada!")));
}

#[tokio::test]
async fn many_are_started_from_a_file_each_answered_on_its_own() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let cli = Cli::of(&world.server.base, tenant.api.key.as_deref().expect("a key"));
    let root = root(&world.server).await;
    tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    root.ok(&["workspace", "set", &tenant.name, "--max-backlog", "2"]).await;
    cli.file("inputs.jsonl", "{\"n\": 1}\n\n{\"n\": 2}\n[3]\n{\"n\": 4}\n{\"n\": 5}\n");
    cli.file("bad.jsonl", "{\"n\": 1}\nnope\n");
    let bad = cli.run(&["run", "held", "--bulk", "bad.jsonl"]).await;
    assert_eq!((bad.code, world.count(&tenant, "workflow_execution").await), (2, 0), "{bad:?}");
    assert!(bad.stderr.contains("no execution was started, because some lines are not JSON: bad.jsonl:2: "), "{bad:?}");
    let none = cli.run(&["run", "held", "--bulk", "none.jsonl"]).await;
    assert!(none.code == 2 && none.stderr.contains("read none.jsonl: No such file"), "{none:?}");
    // Two wait at most, one may run: whether the third has room depends on whether the first has begun.
    let bulk = ["run", "held", "--bulk", "inputs.jsonl", "--idempotency-key", "k", "-o", "json"];
    let observed = cli.run(&bulk).await;
    assert_eq!(observed.code, 1, "{observed:?}");
    let lines: Vec<serde_json::Value> =
        observed.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let numbers: Vec<i64> = lines.iter().filter_map(|line| line["line"].as_i64()).collect();
    assert_eq!(numbers, [1, 3, 4, 5, 6]);
    assert_eq!(lines[0]["status"], 202);
    assert_eq!((&lines[4]["status"], &lines[4]["problem"]["code"]), (&json!(429), &json!("queue_full")));
    let started = world.count(&tenant, "workflow_execution").await;
    root.ok(&["workspace", "set", &tenant.name, "--max-backlog", "none"]).await;
    world.receiver.open();
    let again = cli.run(&["run", "held", "--bulk", "inputs.jsonl", "--idempotency-key", "k"]).await;
    assert_eq!(again.code, 0, "{again:?}");
    assert!(again.stdout.starts_with(&format!("line 1: {} ", text(&lines[0]["started"]["executionId"]))), "{again:?}");
    let counted = format!("{} started, {started} already existed, 0 refused", 5 - started);
    assert!(again.stderr.contains(&counted), "{again:?}");
    assert!(started < 5 && world.count(&tenant, "workflow_execution").await == 5, "none is started twice");
}

#[tokio::test]
async fn the_workspaces_are_watched_until_q() {
    let world = World::new().await;
    let tenant = world.tenant("FREE").await;
    let root = root(&world.server).await;
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    tenant.start(&held).await;
    world.receiver.until_called("/hold/a", 1).await;
    let shown = root.ok(&["top"]).await;
    let row = |text: &str| -> Vec<String> {
        let line = text.lines().find(|line| line.contains(&tenant.name)).unwrap_or_default();
        line.split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(row(&shown)[1..], ["FREE", "FULL", "1", "1", "0", "-", "0", "0"], "{shown}");
    let mut terminal = Terminal::open(&root.command(&["top", "--every", "200ms", "--no-color"]));
    terminal.shows(&tenant.name).await;
    tenant.start(&held).await;
    terminal.shows("FULL   1        1      1        ").await;
    assert!(terminal.text().starts_with("\u{1b}[?1049h"), "a screen of its own");
    terminal.press("xq");
    assert_eq!(terminal.ended().await.code(), Some(0));
    terminal.shows("\u{1b}[?1049l").await;
    let json = root.json(&["top"]).await;
    assert_eq!(
        (&json["items"][0]["running"]["count"], &json["items"][0]["waiting"]["ready"]["count"]),
        (&json!(1), &json!(1))
    );
    let mut interrupted = Terminal::open(&root.command(&["top"]));
    interrupted.shows("q quits").await;
    interrupted.press("\u{3}");
    assert_eq!(interrupted.ended().await.code(), Some(130));
    assert_eq!(root.run(&["top", "--every", "1ms"]).await.code, 2);
}

#[tokio::test]
async fn failures_are_reported_once_and_messages_are_seen() {
    let world = Shared::new().await;
    let tenant = world.tenant("PRO").await;
    let cli = Cli::of(&world.server.base, tenant.api.key.as_deref().expect("a key"));
    cli.file("greet.yaml", GOOD);
    cli.file("fails.yaml", FAILS);
    cli.ok(&["apply", "greet.yaml", "fails.yaml"]).await;
    cli.ok(&["run", "greet", "-i", "name=Ada", "--watch"]).await;
    let nodes = cli.ok(&["get", "@latest", "--nodes"]).await;
    assert!(nodes.lines().any(|line| line.starts_with("hello") && line.ends_with("Hello, Ada!")), "{nodes}");
    let commands: [&[&str]; 2] = [&["watch", "@latest"], &["run", "fails", "--watch"]];
    check(
        &cli,
        &commands,
        expect![[r#"
            $ forebay watch @latest
            {
              "said": "Hello, Ada!"
            }
            ! <tag>  COMPLETED  known  CONDITION  <took>  took true
            ! <tag>  SKIPPED    other  LOG
            ! <tag>  COMPLETED  hello  LOG  <took>  Hello, Ada!
            ! <tag>  COMPLETED in <took>
            $ forebay run fails --watch
            ! execution <id>
            ! <tag>  FAILED     stop  FAIL  <took>  CONTROL_FLOW_ERROR: no more
            ! <tag>  FAILED in <took>: node stop failed
            ! why: forebay logs <id>
            ! rerun: forebay rerun <id> --from failed
            = 3
        "#]],
    )
    .await;
}
