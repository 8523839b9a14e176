//! What the commands say of themselves.

use expect_test::{Expect, expect, expect_file};

use crate::support::cli::Cli;

async fn check(arguments: &[&str], expected: Expect) {
    expected.assert_eq(&Cli::new().ok(arguments).await);
}

/// The commands below one, as its help lists them.
fn below(help: &str) -> Vec<String> {
    let list = help.split_once("\nCommands:\n").map(|(_, rest)| rest.split("\n\n").next().unwrap_or_default());
    let lines = list.unwrap_or_default().lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    lines.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// Every command with its help, in their order.
async fn all() -> Vec<(Vec<String>, String)> {
    let (cli, mut found) = (Cli::new(), Vec::new());
    let mut open = vec![Vec::new()];
    while let Some(command) = open.pop() {
        let arguments: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
        let help = cli.ok(&arguments).await;
        for name in below(&help).into_iter().rev() {
            open.push([command.as_slice(), &[name]].concat());
        }
        found.push((command, help));
    }
    found
}

#[tokio::test]
async fn the_page_of_commands_is_what_they_say() {
    let mut page = "# Commands\n\nWhat `--help` says of each; a test keeps it so.\n".to_owned();
    let all = all().await;
    assert!(all.len() > 35, "the commands are found: {}", all.len());
    for (command, help) in all {
        let line = [&["forebay".to_owned()], command.as_slice()].concat().join(" ");
        let help: String = help.lines().map(|line| format!("{}\n", line.trim_end())).collect();
        page.push_str(&format!("\n## `{line}`\n\n```text\n{}\n```\n", help.trim_end()));
    }
    expect_file!["../../../../../docs/cli.md"].assert_eq(&page);
}

#[tokio::test]
async fn commands_list_only_flags_that_mean_something_for_them() {
    let only_here = [
        (
            "--server",
            vec![
                "dev",
                "serve",
                "worker",
                "migrate",
                "config",
                "root-key",
                "validate",
                "schema",
                "completion",
                "profile use",
            ],
            false,
        ),
        (
            "--output",
            vec!["dev", "serve", "worker", "migrate", "config", "root-key", "schema", "completion", "profile use"],
            false,
        ),
        ("--log", vec!["dev", "serve", "worker", "config"], true),
        ("--listen", vec!["dev", "serve", "config"], true),
        (
            "--database-url",
            vec!["serve", "worker", "migrate", "config", "secrets rotate", "projection rebuild", "projection check"],
            true,
        ),
    ];
    let all = all().await;
    for (flag, commands, has) in only_here {
        for (command, help) in &all {
            let name = command.join(" ");
            // A flag of its own, not one that an example gives or a sentence names.
            let listed = help.lines().any(|line| {
                let line = line.trim_start().trim_start_matches("-o, ");
                line.strip_prefix(flag).is_some_and(|rest| rest.starts_with(' '))
            });
            let expected = has == commands.contains(&name.as_str());
            let is_leaf = below(help).is_empty();
            // `profile add` has a --server, but not the one to ask.
            if is_leaf && !name.starts_with("profile") && (has || commands.contains(&name.as_str())) {
                assert_eq!(listed, expected, "{name} lists {flag}");
            }
        }
    }
}

#[tokio::test]
async fn every_line_of_help_fits_a_terminal() {
    for (command, help) in all().await {
        let long: Vec<&str> =
            help.lines().filter(|line| line.chars().count() > 100 && !line.starts_with("  ")).collect();
        assert!(long.is_empty(), "{command:?}: {long:?}");
    }
}

#[tokio::test]
async fn the_program_explains_itself() {
    check(
        &["-h"],
        expect![[r#"
            Runs your customers' workflows, each customer within its limit, and loses nothing

            Usage: forebay <COMMAND>

            Commands:
              dev         Run everything on this machine: a database of its own, the API, the engine, a demo
              serve       Run Forebay over a PostgreSQL of your own
              worker      Do the work of executions that run on Temporal, beside other workers
              migrate     Bring the database up to this version, and stop
              config      Print the effective settings as TOML, each with its reason; secrets are masked
              secrets     Look after the keys that seal secrets
              root-key    Make a root key for `serve`, on standard output; Forebay stores it nowhere
              workspace   Create, list and change workspaces
              key         Make, list and revoke keys
              secret      Set, list and delete secrets of a workspace
              workflow    List workflows
              validate    Check workflow files without a server
              schema      Print the JSON Schema of workflow files, for editors
              apply       Publish workflow files: a new version of each that changed
              diff        Show what differs between two versions of a workflow
              graph       Draw a workflow's graph, or an execution's with how its nodes stand
              run         Start a workflow, and watch it if you like
              ls          List executions, newest first
              get         Show an execution: how it stands, what it made, why it failed
              watch       Follow an execution to its end
              logs        Show what an execution's nodes said: LOG nodes, and every attempt that failed
              tree        Show an execution with its children, and theirs
              eval        Try an expression on what an execution took and made, or on an input
              rerun       Run an ended execution again, whole or from where it failed: a new one, linked to it
              waits       List what an execution and those below it wait for, or waited for
              answer      Answer what a node of an execution waits for
              cancel      Cancel an execution, waiting or running
              terminate   End an execution by force: its nodes are broken off
              queue       Show a queue item: its place in line, why it waits, who holds what it waits for
              top         Watch the workspaces: what runs, what may, what waits and for how long
              pause       Let nothing more of a workspace or a workflow start; what runs goes on
              resume      Let a paused workspace or workflow go on
              delete      Delete a workspace or a workflow, after asking
              activity    List what was done, by whom and to what, newest first
              events      Append and list domain events
              binding     Say which events make a job, and what runs it
              projection  List, check and rebuild the jobs of events
              webhook     Tell others when executions end
              hook        Start workflows from outside, by secret addresses
              tasks       List the work that waits for your own programs, and do it
              schedule    Say when workflows start by themselves
              profile     Keep servers and their keys under names
              completion  Print a script that completes commands in your shell

            Options:
              -h, --help     Print help (see more with '--help')
              -V, --version  Print version

            Exit codes:
              0    done; with run --watch, rerun --watch and watch: the execution COMPLETED
              1    an error
              2    wrong usage: arguments, settings, or an input that cannot be read
              3    the execution ended, but not COMPLETED
              4    not authorised: no key, a wrong key, or not allowed
              5    timed out waiting; the execution goes on
              130  interrupted; the execution goes on
        "#]],
    )
    .await;
    let long = Cli::new().ok(&["--help"]).await;
    assert!(long.contains("\nExit codes:\n") && long.contains("Start with `forebay dev`"), "{long}");
}

#[tokio::test]
async fn shells_complete_commands_and_flags() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = Cli::new().ok(&["completion", shell]).await;
        assert!(script.contains("terminate") && script.contains("idempotency-key"), "{shell}");
    }
    assert_eq!(Cli::new().run(&["completion", "csh"]).await.code, 2);
}
