//! Tests what scripts and people see of the commands: output, messages and exit codes.

mod controls;
mod graph;
mod help;
mod lists;
mod pages;
mod profiles;
mod settings;
mod status;
mod usage;

use expect_test::{Expect, expect};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::cli::Cli;
use crate::support::process::Process;
use crate::support::server::Address;
use crate::support::tenant::text;
use crate::support::{Shared, World};

const GOOD: &str = "name: greet
inputs:
  name: {type: string, required: true}
nodes:
  known:
    kind: CONDITION
    with: {if: inputs.name == 'Ada'}
  hello:
    kind: LOG
    needs: known.true
    with: {message: 'Hello, ${{ inputs.name }}!'}
  other:
    kind: LOG
    needs: known.false
    with: {message: Who are you?}
outputs:
  said: ${{ nodes.hello.output.message }}
";
const FAILS: &str = "name: fails\nnodes:\n  stop: {kind: FAIL, with: {message: no more}}\n";
const BAD: &str = "name: bad
nodes:
  a: {kind: LOG, needs: b, with: {message: x}}
  b: {kind: LOG, needs: a, with: {mesage: x}}
  c: {kind: NO_SUCH_KIND}
";

/// A server and its root user.
async fn root(server: &Address) -> Cli {
    Cli::of(&server.base, server.root_key().expose())
}

async fn check(cli: &Cli, commands: &[&[&str]], expected: Expect) {
    let mut shown = String::new();
    for command in commands {
        shown.push_str(&cli.show(command).await);
    }
    expected.assert_eq(&shown);
}

#[tokio::test]
async fn workspaces_are_created_changed_and_listed() {
    let world = World::new().await;
    let commands: [&[&str]; 6] = [
        &["workspace", "create", "acme", "--tier", "pro"],
        &["workspace", "create", "acme"],
        &["workspace", "create", "other", "--tier", "gold"],
        &["workspace", "set", "acme", "--concurrency-limit", "7"],
        &["workspace", "ls"],
        &["workspace", "get", "nobody"],
    ];
    check(
        &root(&world.server).await,
        &commands,
        expect![[r#"
            $ forebay workspace create acme --tier pro
            name     acme
            id       <id>
            tier     PRO
            state    ACTIVE
            running  0 of 5 (from the tier)
            ready    0
            weight   1
            created  <time>
            ! to create a key for it: forebay key create cli --workspace acme
            $ forebay workspace create acme
            ! error: a workspace is already named "acme"; choose another name
            = 1
            $ forebay workspace create other --tier gold
            ! error: tier: unknown tier "GOLD"; use FREE, PRO or ENTERPRISE
            = 1
            $ forebay workspace set acme --concurrency-limit 7
            name     acme
            id       <id>
            tier     PRO
            state    ACTIVE
            running  0 of 7 (set for this workspace)
            ready    0
            weight   1
            created  <time>
            $ forebay workspace ls
            NAME  TIER  RUNNING  LIMIT  READY  WEIGHT  STATE   ID
            acme  PRO   0        7      0      1       ACTIVE  <id>
            $ forebay workspace get nobody
            ! error: there is no workspace nobody, or this key cannot access it; list workspaces: forebay workspace ls
            = 1
        "#]],
    )
    .await;
}

#[tokio::test]
async fn files_are_checked_published_and_run() {
    let world = Shared::new().await;
    let tenant = world.tenant("PRO").await;
    let cli = Cli::of(&world.server.base, tenant.api.key.as_deref().expect("a key"));
    for (name, text) in [("greet.yaml", GOOD), ("fails.yaml", FAILS), ("bad.yaml", BAD)] {
        cli.file(name, text);
    }
    published(&cli).await;
    let commands: [&[&str]; 3] =
        [&["run", "greet", "-i", "name=Ada", "--watch"], &["run", "fails", "--watch"], &["run", "nobody"]];
    check(
        &cli,
        &commands,
        expect![[r#"
            $ forebay run greet -i name=Ada --watch
            {
              "said": "Hello, Ada!"
            }
            ! execution <id>
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
            $ forebay run nobody
            ! error: there is no workflow nobody; list workflows: forebay workflow ls
            = 1
        "#]],
    )
    .await;
}

async fn published(cli: &Cli) {
    let commands: [&[&str]; 4] = [
        &["validate", "greet.yaml", "fails.yaml", "bad.yaml"],
        &["apply", "greet.yaml", "fails.yaml"],
        &["apply", "greet.yaml", "bad.yaml"],
        &["apply", "none.yaml"],
    ];
    check(cli, &commands, expect![[r#"
        $ forebay validate greet.yaml fails.yaml bad.yaml
        greet.yaml: valid: greet, nodes: 3, edges: 2
        fails.yaml: valid: fails, nodes: 1, edges: 0
        error[cycle]: nodes a -> b -> a form a cycle
         --> bad.yaml:3:3
          |
        3 |   a: {kind: LOG, needs: b, with: {message: x}}
          |   ^

        error[unknown_field]: unknown field mesage
         --> bad.yaml:4:35
          |
        4 |   b: {kind: LOG, needs: a, with: {mesage: x}}
          |                                   ^^^^^^ did you mean message?

        error[unknown_kind]: unknown kind NO_SUCH_KIND: use one of HTTP_REQUEST, CONDITION, SWITCH, TRANSFORM, DELAY, LOG, FAIL, EMIT_EVENT, WORKFLOW, FOR_EACH, WAIT_FOR_EVENT, TASK
         --> bad.yaml:5:13
          |
        5 |   c: {kind: NO_SUCH_KIND}
          |             ^^^^^^^^^^^^

        files: 3, valid: 2, problems: 3
        = 1
        $ forebay apply greet.yaml fails.yaml
        greet: version 1 published
        fails: version 1 published
        $ forebay apply greet.yaml bad.yaml
        ! error[cycle]: nodes a -> b -> a form a cycle
        !  --> bad.yaml:3:3
        !   |
        ! 3 |   a: {kind: LOG, needs: b, with: {message: x}}
        !   |   ^
        !
        ! error[unknown_field]: unknown field mesage
        !  --> bad.yaml:4:35
        !   |
        ! 4 |   b: {kind: LOG, needs: a, with: {mesage: x}}
        !   |                                   ^^^^^^ did you mean message?
        !
        ! error[unknown_kind]: unknown kind NO_SUCH_KIND: use one of HTTP_REQUEST, CONDITION, SWITCH, TRANSFORM, DELAY, LOG, FAIL, EMIT_EVENT, WORKFLOW, FOR_EACH, WAIT_FOR_EVENT, TASK
        !  --> bad.yaml:5:13
        !   |
        ! 5 |   c: {kind: NO_SUCH_KIND}
        !   |             ^^^^^^^^^^^^
        !
        ! error: nothing was published: every file must be valid
        = 1
        $ forebay apply none.yaml
        ! none.yaml: cannot be read: No such file or directory (os error 2)
        ! error: nothing was published: every file must be valid
        = 1
    "#]]).await;
}

#[tokio::test]
async fn a_place_in_line_and_a_cancel() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let cli = Cli::of(&world.server.base, tenant.api.key.as_deref().expect("a key"));
    let held = tenant.apply("held", json!({ "call": world.receiver.node("/hold/a") })).await;
    let running = tenant.start(&held).await;
    world.receiver.until_called("/hold/a", 1).await;
    check(
        &cli,
        &[&["run", "held", "--priority", "1", "--idempotency-key", "k"]],
        expect![[r#"
            $ forebay run held --priority 1 --idempotency-key k
            execution  <id>
            status     PENDING
            ! watch it: forebay watch <id>
            ! why it waits: forebay queue <id>
        "#]],
    )
    .await;
    let waiting = cli.json(&["run", "held", "--priority", "1", "--idempotency-key", "k"]).await;
    let waiting = text(&waiting["executionId"]);
    let shown = [&["queue", &waiting][..], &["cancel", &waiting], &["cancel", &waiting], &["queue", &waiting]];
    check(
        &cli,
        &shown,
        expect![[r#"
            $ forebay queue <id>
            queue      <id>
            status     PENDING
            execution  PENDING
            priority   1
            created    <time>
            position   1
            waiting    the workspace is full: 1 of 1 executions are running
            held by    <id>
            $ forebay cancel <id>
            <id>: CANCELED
            $ forebay cancel <id>
            <id>: CANCELED
            $ forebay queue <id>
            queue      <id>
            status     GONE
            execution  CANCELED
            priority   1
            created    <time>
        "#]],
    )
    .await;
    let mut watcher = Process::spawn("watch", cli.command(&["watch", &running]));
    crate::support::until("it watches", async || watcher.stderr.contain("RUNNING").then_some(())).await;
    watcher.signal(Signal::SIGINT);
    assert_eq!(watcher.ended().await.code(), Some(130), "interrupted");
    check(
        &cli,
        &[&["watch", &running, "--timeout", "100ms"]],
        expect![[r#"
        $ forebay watch <id> --timeout <took>
        ! <id> did not end within <took>; the execution continues
        ! watch it: forebay watch <id>
        ! cancel it: forebay cancel <id>
        = 5
    "#]],
    )
    .await;
    assert_eq!(tenant.status(&running).await, "RUNNING", "watching changes nothing");
}

#[tokio::test]
async fn json_is_what_the_server_said() {
    let world = World::new().await;
    let cli = root(&world.server).await;
    cli.file("greet.yaml", GOOD);
    let made = cli.json(&["workspace", "create", "acme", "--tier", "pro"]).await;
    let id = text(&made["id"]);
    assert_eq!(cli.json(&["workspace", "ls"]).await["items"][0]["id"], id);
    assert_eq!(cli.json(&["workspace", "get", "acme"]).await["tier"], "PRO");
    assert_eq!(cli.json(&["validate", "greet.yaml"]).await["valid"], true);
    let key = text(&cli.json(&["key", "create", "cli", "--workspace", "acme"]).await["key"]);
    let cli_of_acme = Cli::of(&world.server.base, &key);
    cli_of_acme.file("greet.yaml", GOOD);
    assert_eq!(cli_of_acme.json(&["apply", "greet.yaml"]).await["version"], 1);
    let ended = cli_of_acme.json(&["run", "greet", "-i", "name=Ada", "--watch"]).await;
    assert_eq!((&ended["status"], &ended["output"]["said"]), (&json!("COMPLETED"), &json!("Hello, Ada!")));
    let execution = text(&ended["id"]);
    assert_eq!(cli_of_acme.json(&["get", &execution]).await["id"], execution);
    assert_eq!(cli_of_acme.json(&["get", &execution, "--nodes"]).await["items"].as_array().map(Vec::len), Some(3));
    assert_eq!(cli_of_acme.json(&["watch", &execution]).await["status"], "COMPLETED");
    assert_eq!(cli_of_acme.json(&["queue", &execution]).await["status"], "GONE");
    assert_eq!(cli_of_acme.json(&["cancel", &execution]).await["status"], "COMPLETED");
}

#[tokio::test]
async fn a_client_without_access_gets_an_error_that_says_what_to_do() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let stranger = store::access::key::Secret::generate().expect("randomness");
    for (who, key, expected) in [
        (
            "no key",
            String::new(),
            expect![[r#"
                $ forebay workspace create acme
                ! error: the server needs a key, and none was given
                ! Give a key with --key or FOREBAY_KEY, or save it in a profile: forebay profile set --help
                ! With the root key that the server was started with, you can create a key: forebay key create NAME --workspace WORKSPACE
                = 4
            "#]],
        ),
        (
            "a wrong key",
            stranger.expose().to_owned(),
            expect![[r#"
                $ forebay workspace create acme
                ! error: unknown key: it expired, was revoked, or belongs to another server
                ! The server did not accept the key: it may be expired, revoked, or of another server.
                ! With the root key you can create a new key: forebay key create NAME --workspace WORKSPACE
                = 4
            "#]],
        ),
        (
            "no root key",
            tenant.api.key.clone().expect("a key"),
            expect![[r#"
            $ forebay workspace create acme
            ! error: this request needs a root key; this key belongs to a workspace
            = 4
        "#]],
        ),
    ] {
        let cli = Cli::of(&world.server.base, &key);
        let shown = cli.show(&["workspace", "create", "acme"]).await;
        assert!(shown.contains("\n= 4\n"), "{who}: {shown}");
        expected.assert_eq(&shown);
    }
    let nowhere = Cli::of("http://127.0.0.1:1", stranger.expose());
    check(
        &nowhere,
        &[&["workspace", "ls"], &["workspace", "sl"]],
        expect![[r#"
            $ forebay workspace ls
            ! error: cannot reach <server>: is Forebay running? Start it on this machine with: forebay dev
            = 1
            $ forebay workspace sl
            ! error: unrecognized subcommand 'sl'
            !
            ! Usage: forebay workspace <COMMAND>
            !
            ! For more information, try '--help'.
            = 2
        "#]],
    )
    .await;
}
