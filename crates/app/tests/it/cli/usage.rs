//! Wrong usage exits with code 2, whichever part of the program detects it. Errors for scripts are JSON objects.

use serde_json::Value;

use super::root;
use crate::support::Shared;
use crate::support::cli::Cli;

#[tokio::test]
async fn wrong_usage_ends_with_two() {
    let cli = Cli::new();
    cli.file("bad.toml", "[dispatch]\nbatchmax = 1\n");
    let commands: [&[&str]; 17] = [
        &["serve"],
        &["migrate"],
        &["serve", "--database-url", "nonsense"],
        &["serve", "--listen", "nonsense"],
        &["serve", "--roles", "api,typo"],
        &["serve", "--database-url", "postgresql:///x", "--roles", "dispatcher"],
        &["serve", "--database-url", "postgresql:///x", "--log", "a=b=c"],
        &["config", "--set", "nonsense"],
        &["config", "--set", "dispatch.batch_max=many"],
        &["config", "--config", "bad.toml"],
        &["dev", "--listen", "7400"],
        &["run", "hello", "--input", "{"],
        &["run", "hello", "--input", "@none.json"],
        &["run", "hello", "-i", "a=1", "-i", "a.b=2"],
        &["workspace", "ls", "--limit", "0"],
        &["ls", "--since", "yesterday"],
        &["nonsense"],
    ];
    for command in commands {
        let output = cli.run(command).await;
        assert_eq!(output.code, 2, "{command:?}: {output:?}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{command:?}: {output:?}");
    }
}

#[tokio::test]
async fn wrong_usage_names_the_flags() {
    let cli = Cli::of("http://127.0.0.1:1", "fbk_x");
    let id = "019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a";
    let table: [(&[&str], &[&str]); 5] = [
        (&["event", "append", "a.b", "--stream-type", "a", "--data", "{x"], &["--data as JSON"]),
        (&["schedule", "create", "w"], &["--cron", "--at"]),
        (
            &["schedule", "create", "w", "--at", "10m", "--overlap", "skip"],
            &["--overlap", "cannot be used with", "--at"],
        ),
        (&["schedule", "delete", id], &["confirm with --yes"]),
        (&["binding", "delete", id], &["confirm with --yes"]),
    ];
    for (command, observed) in table {
        let output = cli.run(command).await;
        assert_eq!(output.code, 2, "{command:?}: {output:?}");
        for part in observed {
            assert!(output.stderr.contains(part), "{part}: {output:?}");
        }
    }
}

#[tokio::test]
async fn errors_for_scripts_are_objects_with_a_stable_code() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let cli = root(&world.server).await;
    cli.file("bad.yaml", super::BAD);
    let nobody = Cli::of("http://127.0.0.1:1", "fbk_x");
    let tenant = Cli::of(&world.server.base, tenant.api.key.as_deref().expect("a key"));
    let id = "019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a";
    let table: [(&Cli, &[&str], i32, &str); 11] = [
        (&cli, &["get", id], 1, "not_found"),
        (&cli, &["apply", "bad.yaml"], 1, "definition_invalid"),
        (&cli, &["workspace", "create", "x", "--tier", "gold"], 1, "validation_failed"),
        (&cli, &["run", "hello"], 2, "usage"),
        (&cli, &["get"], 2, "usage"),
        (&cli, &["workspace", "get", "nobody"], 1, "not_found"),
        (&cli, &["ls", "--workspace", "nobody"], 1, "not_found"),
        (&tenant, &["workflow", "get", "nothing"], 1, "not_found"),
        (&tenant, &["workspace", "create", "x"], 4, "forbidden"),
        (&nobody, &["ls"], 1, "unreachable"),
        (&Cli::of(&world.server.base, "nonsense"), &["ls"], 4, "unauthenticated"),
    ];
    for (cli, command, exit, code) in table {
        let output = cli.run(&[command, &["-o", "json"]].concat()).await;
        let observed: Value =
            serde_json::from_str(&output.stderr).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        assert_eq!((output.code, observed["code"].as_str()), (exit, Some(code)), "{command:?}: {observed}");
        assert!(observed["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{observed}");
    }
}

#[tokio::test]
async fn the_error_for_a_root_key_without_a_workspace_names_the_flag() {
    let world = Shared::new().await;
    let cli = root(&world.server).await;
    cli.file("greet.yaml", super::GOOD);
    for command in
        [&["apply", "greet.yaml"][..], &["run", "greet"], &["ls", "--text", "greet"], &["key", "create", "x"]]
    {
        let output = cli.run(command).await;
        let observed = "error: name the workspace with --workspace NAME or FOREBAY_WORKSPACE: a root key can access every workspace\n";
        assert_eq!((output.code, output.stderr.as_str()), (2, observed), "{command:?}");
    }
}

#[tokio::test]
async fn nothing_is_published_unless_every_file_is_valid() {
    let world = Shared::new().await;
    let tenant = world.tenant("FREE").await;
    let cli = Cli::of(&world.server.base, tenant.api.key.as_deref().expect("a key"));
    for (name, text) in
        [("good.yaml", super::GOOD), ("twin.yaml", super::GOOD), ("bad.yaml", super::BAD), ("slip.yaml", "nodes: [")]
    {
        cli.file(name, text);
    }
    let output = cli.run(&["apply", "good.yaml", "none.yaml", "slip.yaml", "bad.yaml", "twin.yaml"]).await;
    assert_eq!((output.code, output.stdout.as_str()), (1, ""), "{output:?}");
    for expected in [
        "none.yaml: cannot be read: No such file",
        "--> slip.yaml:1:8",
        "--> bad.yaml:5:13",
        "^^^^^^^^^^^^",
        "twin.yaml: good.yaml has the same workflow name, greet",
    ] {
        assert!(output.stderr.contains(expected), "{expected}: {}", output.stderr);
    }
    assert_eq!(world.count(&tenant, "workflow_definition").await, 0);
    let checked = cli.run(&["validate", "none.yaml", "slip.yaml", "good.yaml"]).await;
    assert_eq!(checked.code, 2, "one cannot be read");
    assert!(
        checked.stdout.contains("none.yaml: cannot be read") && checked.stdout.contains("good.yaml: valid"),
        "{checked:?}"
    );
}
