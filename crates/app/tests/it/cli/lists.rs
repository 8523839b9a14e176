//! Tests the commands that list something, and their filters.

use expect_test::{Expect, expect};
use serde_json::json;

use super::{FAILS, root};
use crate::support::cli::Cli;
use crate::support::tenant::text;
use crate::support::{Shared, World};

/// Tables as wide as what happens to be in them, with their columns two spaces apart.
async fn check(cli: &Cli, commands: &[&[&str]], expected: Expect) {
    let mut shown = String::new();
    for command in commands {
        for line in cli.show(command).await.lines() {
            let cells: Vec<&str> = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
            shown.push_str(&format!("{}\n", cells.join("  ")));
        }
    }
    expected.assert_eq(&shown);
}

/// A workspace with two workflows that ran: one well, one badly.
async fn ran() -> (Shared, Cli) {
    let world = Shared::new().await;
    let tenant = world.tenant("PRO").await;
    let cli = Cli::of(&world.server.base, tenant.api.key.as_deref().expect("a key"));
    cli.file("fails.yaml", FAILS);
    cli.ok(&["apply", "fails.yaml"]).await;
    tenant.completed(&tenant.start(&tenant.light().await).await).await;
    assert_eq!(cli.run(&["run", "fails", "--watch"]).await.code, 3);
    (world, cli)
}

#[tokio::test]
async fn executions_are_listed_by_status_workflow_time_and_text() {
    let (_world, cli) = ran().await;
    let commands: [&[&str]; 5] = [
        &["ls"],
        &["ls", "--status", "failed,timed_out", "--since", "1h"],
        &["ls", "--workflow", "light", "--until", "1h"],
        &["ls", "--text", "lig", "--limit", "1"],
        &["ls", "--status", "broken"],
    ];
    check(&cli, &commands, expect![[r#"
        $ forebay ls
        EXECUTION  WORKFLOW  STATUS  CREATED  TOOK  REASON
        <id>  fails  FAILED  <time>  <took>  node stop: CONTROL_FLOW_ERROR: no more
        <id>  light  COMPLETED  <time>  <took>
        $ forebay ls --status failed,timed_out --since 1h
        EXECUTION  WORKFLOW  STATUS  CREATED  TOOK  REASON
        <id>  fails  FAILED  <time>  <took>  node stop: CONTROL_FLOW_ERROR: no more
        $ forebay ls --workflow light --until 1h
        EXECUTION  WORKFLOW  STATUS  CREATED  TOOK  REASON
        $ forebay ls --text lig --limit 1
        EXECUTION  WORKFLOW  STATUS  CREATED  TOOK  REASON
        <id>  light  COMPLETED  <time>  <took>
        $ forebay ls --status broken
        ! error: invalid value 'broken' for '--status <STATUS>': write one of PENDING, RUNNING, COMPLETED, FAILED, CANCELED, TIMED_OUT
        !
        ! For more information, try '--help'.
        = 2
    "#]]).await;
    let first = cli.json(&["ls", "--limit", "1"]).await;
    let next = text(&first["nextCursor"]);
    let rest = cli.json(&["ls", "--cursor", &next]).await;
    assert_eq!(
        (first["items"][0]["workflowName"].as_str(), rest["items"][0]["workflowName"].as_str()),
        (Some("fails"), Some("light"))
    );
    assert!(
        cli.run(&["ls", "--limit", "1"])
            .await
            .stderr
            .contains(&format!("There are more items: add --all, or --cursor {next}"))
    );
}

#[tokio::test]
async fn every_page_of_a_list_is_one_list() {
    let world = World::new().await;
    world
        .run_sql("INSERT INTO workspace (id, name, tier) SELECT gen_random_uuid(), 'many-' || lpad(n::text, 3, '0'), 'FREE' FROM generate_series(1, 250) n")
        .await;
    let root = root(&world.server).await;
    let all = root.json(&["workspace", "ls", "--all"]).await;
    let names: Vec<String> = all["items"].as_array().expect("a list").iter().map(|item| text(&item["name"])).collect();
    assert_eq!(names.iter().filter(|name| name.starts_with("many-")).count(), 250);
    assert!(names.is_sorted() && all["nextCursor"].is_null());
    let some = root.json(&["workspace", "ls", "--limit", "210"]).await;
    assert_eq!(some["items"].as_array().map(Vec::len), Some(210));
    assert!(some["nextCursor"].is_string());
    assert_eq!(root.ok(&["workspace", "ls", "--all"]).await.lines().count(), names.len() + 1);
    assert_eq!(root.run(&["workspace", "ls", "--limit", "0"]).await.code, 2);
}

#[tokio::test]
async fn workflows_keys_and_the_audit_log_are_listed() {
    let (world, cli) = ran().await;
    let tenant = world.tenant("PRO").await;
    let commands: [&[&str]; 4] = [
        &["workflow", "ls"],
        &["workflow", "get", "light"],
        &["activity", "--actor", "engine", "--since", "1h"],
        &["activity", "--until", "1h"],
    ];
    check(&cli, &commands, expect![[r#"
        $ forebay workflow ls
        NAME  STATUS  VERSION  CHANGED  WORKSPACE  ID
        fails  ACTIVE  1  <time>  <id>  <id>
        light  ACTIVE  1  <time>  <id>  <id>
        $ forebay workflow get light
        name  light
        id  <id>
        workspace  <id>
        status  ACTIVE
        version  1
        changed  <time>
        $ forebay activity --actor engine --since 1h
        AT  ACTOR  ACTION  SUBJECT  ID  DETAIL
        <time>  engine  queue_item.fail  queue_item  <id>  {"node":"stop","type":"CONTROL_FLOW_ERROR","message":"no more"}
        $ forebay activity --until 1h
        AT  ACTOR  ACTION  SUBJECT  ID  DETAIL
    "#]]).await;
    let root = root(&world.server).await;
    let made = root
        .json(&["key", "create", "dash", "--workspace", &tenant.name, "--scope", "read,run", "--expires", "90d"])
        .await;
    assert_eq!(made["scopes"], json!(["read", "run"]));
    let plain = root.ok(&["key", "create", "ci", "--workspace", &tenant.name]).await;
    assert!(plain.starts_with("fbk_") && plain.lines().count() == 1, "the key alone");
    let narrow = Cli::of(&world.server.base, &text(&made["key"]));
    narrow.file("fails.yaml", FAILS);
    assert_eq!(narrow.run(&["apply", "fails.yaml"]).await.code, 4, "it may not publish");
    let listed = root.ok(&["key", "ls", "--workspace", &tenant.name]).await;
    let line = listed.lines().find(|line| line.starts_with("dash ")).expect("it is listed");
    assert!(line.contains(" read,run ") && !listed.contains(&text(&made["key"])), "{listed}");
    let begins = text(&made["key"])[..12].to_owned();
    assert!(root.run(&["key", "revoke", &begins, "--yes"]).await.stderr.ends_with(": revoked\n"));
    assert_eq!(root.run(&["key", "revoke", &begins, "--yes"]).await.code, 1, "twice is once");
    assert_eq!(root.run(&["key", "create", "x", "--scope", "all"]).await.code, 2);
    assert!(root.run(&["key", "create", "x"]).await.stderr.contains("name the workspace with --workspace NAME"));
}

#[tokio::test]
async fn the_dead_letter_is_listed_and_dismissed() {
    let (_world, cli) = ran().await;
    let commands: [&[&str]; 5] = [
        &["queue", "ls", "--failed"],
        &["queue", "ls", "--failed", "--workflow", "light"],
        &["queue", "ls"],
        &["queue", "dismiss", "@latest:fails"],
        &["queue", "ls", "--failed", "-o", "json"],
    ];
    check(
        &cli,
        &commands,
        expect![[r#"
            $ forebay queue ls --failed
            EXECUTION  WORKFLOW  STATUS  FAILED  REASON
            <id>  fails  FAILED  <time>  node stop: CONTROL_FLOW_ERROR: no more
            $ forebay queue ls --failed --workflow light
            EXECUTION  WORKFLOW  STATUS  FAILED  REASON
            $ forebay queue ls
            ! error: give --failed to list dead letters; executions that wait are listed by: forebay ls --status pending
            = 2
            $ forebay queue dismiss @latest:fails
            ! <id>: dismissed
            $ forebay queue ls --failed -o json
            {"items":[]}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn with_a_root_key_the_newest_execution_is_that_of_a_workspace_that_is_named() {
    let world = Shared::new().await;
    let (mine, theirs) = (world.tenant("FREE").await, world.tenant("FREE").await);
    let root = root(&world.server).await;
    let held = json!({ "wait": { "kind": "DELAY", "with": { "for": "1h" } } });
    let own = mine.start(&mine.apply("held", held.clone()).await).await;
    let newest = theirs.start(&theirs.apply("held", held).await).await;
    let uses: [&[&str]; 13] = [
        &["cancel", "@latest"],
        &["cancel", "@latest:held"],
        &["terminate", "@latest", "--yes"],
        &["rerun", "@latest"],
        &["queue", "dismiss", "@latest"],
        &["wait", "answer", "@latest", "approve"],
        &["get", "@latest"],
        &["watch", "@latest"],
        &["logs", "@latest"],
        &["queue", "@latest"],
        &["tree", "@latest"],
        &["graph", "@latest"],
        &["wait", "ls", "@latest"],
    ];
    for command in uses {
        let refused = root.run(command).await;
        assert!(refused.code != 0, "{command:?}: {refused:?}");
        assert!(refused.stderr.contains("name the workspace with --workspace NAME"), "{command:?}: {refused:?}");
    }
    let evaluated = root.run(&["eval", "1 + 1", "--execution", "@latest"]).await;
    assert!(evaluated.stderr.contains("name the workspace with --workspace NAME"), "{evaluated:?}");
    root.ok(&["cancel", "@latest", "--workspace", &mine.name]).await;
    assert_eq!(mine.ended(&own).await["status"], "CANCELED");
    let theirs = theirs.execution(&newest).await;
    assert!(theirs["completedAt"].is_null(), "the newer one of another workspace was not touched: {theirs}");
}

#[tokio::test]
async fn the_newest_execution_has_a_name() {
    let (_world, cli) = ran().await;
    let of = async |which: &str| text(&cli.json(&["get", which]).await["workflowName"]);
    assert_eq!((of("@latest").await.as_str(), of("@latest:light").await.as_str()), ("fails", "light"));
    assert_eq!(cli.run(&["watch", "@latest"]).await.code, 3);
    assert_eq!(cli.json(&["queue", "@latest:light"]).await["status"], "GONE");
    let unknown = cli.run(&["get", "@latest:nobody"]).await;
    assert_eq!((unknown.code, unknown.stderr.as_str()), (1, "error: @latest:nobody: there is no execution yet\n"));
}
