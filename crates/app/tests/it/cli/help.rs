//! Tests the help texts of the commands.

use expect_test::{Expect, expect, expect_file};

use crate::support::cli::Cli;

async fn check(arguments: &[&str], expected: Expect) {
    expected.assert_eq(&Cli::new().ok(arguments).await);
}

/// The subcommands that a command's help lists; the program's own help lists them in groups.
pub(super) fn below(help: &str) -> Vec<String> {
    let is_program = help.contains("\nStart here:\n");
    let sections = help.split("\n\n").filter_map(|section| section.split_once(":\n"));
    let listed = sections.filter(|(heading, _)| match is_program {
        true => !["Options", "Exit codes"].contains(heading),
        false => *heading == "Commands",
    });
    let lines = listed.flat_map(|(_, lines)| lines.lines());
    let first = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    first.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
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
async fn the_page_of_commands_is_their_help() {
    let mut page = "# Commands\n\nWhat `--help` says of each; a test keeps it so.\n".to_owned();
    let all = all().await;
    assert!(all.len() > 35, "the commands are found: {}", all.len());
    for (command, help) in all {
        let line = [&["forebay".to_owned()], command.as_slice()].concat().join(" ");
        let help: String = help.lines().map(|line| format!("{}\n", line.trim_end())).collect();
        page.push_str(&format!("\n## `{line}`\n\n```text\n{}\n```\n", help.trim_end()));
    }
    expect_file!["../../../../../docs/reference/cli.md"].assert_eq(&page);
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
            vec!["serve", "worker", "migrate", "config", "secret rotate-keys", "job rebuild", "job check"],
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
            // `profile set` has a --server, but not the one to ask.
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
            Run workflows for many customers, each within its own concurrency limit

            Usage: forebay <COMMAND>

            Start here:
              dev         Run the whole service on this machine, with a private database and a demo
              apply       Publish workflow files: each changed workflow gets a new version
              run         Start an execution of a workflow
              watch       Watch an execution until it ends

            Workflows:
              workflow    List, show, pause and delete published workflows
              validate    Check workflow files without a server
              diff        Show the differences between two versions of a workflow
              graph       Draw the graph of a workflow, or of an execution with the status of its nodes
              eval        Evaluate an expression on the input and outputs of an execution, or on an input
              schema      Print the JSON Schema of workflow files, for editors

            Executions:
              ls          List executions, newest first
              get         Show an execution: its status, its output, or why it waits or failed
              logs        Show the messages of an execution's LOG nodes, and every failed attempt
              tree        Show the tree of an execution and its child executions
              queue       Show why an execution waits; list and dismiss dead letters
              rerun       Start a new execution like an ended one, from the start or from where it failed
              cancel      Cancel an execution; its running nodes are stopped
              terminate   Terminate an execution immediately, without waiting for its nodes

            What starts executions:
              schedule    Start workflows at given times
              trigger     Start workflows by requests to secret addresses
              event       Append and list domain events
              binding     Bind types of events to workflows: each such event becomes a job
              job         List, show and retry the jobs that events created

            Waits, tasks and webhooks:
              wait        List what executions wait for, and answer it
              task        List the tasks of executions, and perform them with your own programs
              webhook     Send messages to your systems when executions end

            Operate:
              serve       Run the service over your own PostgreSQL
              worker      Run a worker process for executions that run on Temporal
              migrate     Migrate the database to this version, then exit
              config      Print the effective settings as TOML, each with its description; secrets are masked
              top         Watch the load of the workspaces: running, waiting and failed executions
              activity    List the audit log, newest first: who did what, and to what

            Access:
              workspace   Create, list, change, pause and delete workspaces
              key         Create, list and revoke API keys
              secret      Set, list and delete the secrets of a workspace
              root-key    Print a new root key for `serve`; Forebay does not store it

            This machine:
              profile     Save servers and their keys under names
              completion  Print a completion script for your shell

            Options:
              -h, --help     Print help (see more with '--help')
              -V, --version  Print version

            Exit codes:
              0    success; for run --watch, rerun --watch and watch: the execution COMPLETED
              1    an error
              2    wrong usage: arguments, settings, or an input that cannot be read
              3    the watched execution ended with another status than COMPLETED
              4    not authorised: the key is missing, wrong, or lacks the scope
              5    the wait timed out; the execution continues
              130  interrupted; the execution continues
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
