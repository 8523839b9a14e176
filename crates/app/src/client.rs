//! The client commands. They read arguments, send requests to a server and show its answers.
//!
//! Invariants
//! - Data goes to stdout and messages to stderr; with `-o json` stdout holds the server's answer.
//! - A bare verb (`run`, `ls`, `cancel`) is about executions. Every other resource is named first: `workspace ls`.
//! - A key is never shown, except by the command that created it.
//!
//! Not here: how text is written (`output`), how a command ends (`exit`), the bodies of requests and answers
//! (`server::wire`).

/// Implements `run` for an enum of subcommands.
macro_rules! commands {
    ($enum:ident: $($command:ident),*) => {
        impl $enum {
            pub(super) async fn run(self) -> $crate::exit::Exit {
                match self {
                    $($enum::$command(command) => command.run().await,)*
                }
            }
        }
    };
}

mod activity;
pub(crate) mod api;
mod binding;
mod bulk;
mod confirmation;
mod connection;
mod definition;
mod diff;
pub(crate) mod document;
mod end;
mod eval;
mod event;
mod execution;
mod execution_list;
mod execution_ref;
mod graph;
mod input;
mod job;
mod key;
mod logs;
mod loop_items;
mod page;
mod profile;
mod queue;
mod rerun;
mod run;
mod schedule;
mod secret;
mod task;
mod top;
mod tree;
mod trigger;
mod wait;
mod watch;
mod webhook;
mod workflow;
mod workspace;

use clap::Args;

use crate::exit::{Exit, report_result};
pub(crate) use connection::{ApiKey, Format};

/// The commands that talk to a server.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ClientCommand {
    /// Create, list, change, pause and delete workspaces
    #[command(subcommand)]
    Workspace(workspace::WorkspaceCommand),
    /// Create, list and revoke API keys
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// Set, list and delete the secrets of a workspace
    #[command(subcommand)]
    Secret(secret::SecretCommand),
    /// List, show, pause and delete published workflows
    #[command(subcommand)]
    Workflow(workflow::WorkflowCommand),
    Validate(definition::ValidateArgs),
    /// Print the JSON Schema of workflow files, for editors
    #[command(after_help = "Example:\n  forebay schema > workflow.schema.json\n\nEditors complete and check a file \
            that begins with `# yaml-language-server: $schema=workflow.schema.json`.")]
    Schema,
    Apply(Connected<definition::ApplyArgs>),
    Diff(Connected<diff::DiffArgs>),
    Graph(Box<Connected<graph::GraphArgs>>),
    Run(Box<Connected<run::RunArgs>>),
    Ls(Connected<execution_list::ListExecutionsArgs>),
    Get(Connected<execution::GetExecutionArgs>),
    Watch(Connected<execution::WatchArgs>),
    Logs(Connected<logs::LogsArgs>),
    Tree(Connected<tree::TreeArgs>),
    Eval(Connected<eval::EvalArgs>),
    Rerun(Box<Connected<rerun::RerunArgs>>),
    Cancel(Connected<end::CancelArgs>),
    Terminate(Connected<end::TerminateArgs>),
    Queue(queue::QueueArgs),
    Top(Connected<top::TopArgs>),
    Activity(Connected<activity::ListActivityArgs>),
    /// Append and list domain events
    #[command(subcommand)]
    Event(Box<event::EventCommand>),
    /// Bind types of events to workflows: each such event becomes a job
    #[command(subcommand)]
    Binding(Box<binding::BindingCommand>),
    /// List, show and retry the jobs that events created
    #[command(subcommand)]
    Job(Box<job::JobCommand>),
    /// Send messages to your systems when executions end
    #[command(subcommand)]
    Webhook(Box<webhook::WebhookCommand>),
    /// Start workflows by requests to secret addresses
    #[command(subcommand)]
    Trigger(Box<trigger::TriggerCommand>),
    /// List what executions wait for, and answer it
    #[command(subcommand)]
    Wait(Box<wait::WaitCommand>),
    /// List the tasks of executions, and perform them with your own programs
    #[command(subcommand)]
    Task(Box<task::TaskCommand>),
    /// Start workflows at given times
    #[command(subcommand)]
    Schedule(Box<schedule::ScheduleCommand>),
    /// Save servers and their keys under names
    #[command(subcommand)]
    Profile(profile::ProfileCommand),
}

impl ClientCommand {
    /// Runs the command. An error is reported here, once.
    pub(crate) async fn run(self) -> Exit {
        match self {
            ClientCommand::Workspace(command) => command.run().await,
            ClientCommand::Key(command) => command.run().await,
            ClientCommand::Secret(command) => command.run().await,
            ClientCommand::Workflow(command) => command.run().await,
            ClientCommand::Validate(validate) => validate.run(),
            ClientCommand::Schema => report_result(definition::schema(), Format::Table),
            ClientCommand::Apply(apply) => apply.run().await,
            ClientCommand::Diff(compare) => compare.run().await,
            ClientCommand::Graph(graph) => graph::run(graph).await,
            ClientCommand::Run(run) => run.run().await,
            ClientCommand::Ls(list) => list.run().await,
            ClientCommand::Get(get) => get.run().await,
            ClientCommand::Watch(watch) => watch.run().await,
            ClientCommand::Logs(logs) => logs.run().await,
            ClientCommand::Tree(tree) => tree.run().await,
            ClientCommand::Eval(eval) => eval.run().await,
            ClientCommand::Rerun(rerun) => rerun.run().await,
            ClientCommand::Cancel(cancel) => cancel.run().await,
            ClientCommand::Terminate(terminate) => terminate.run().await,
            ClientCommand::Queue(command) => command.run().await,
            ClientCommand::Top(top) => top.run().await,
            ClientCommand::Activity(list) => list.run().await,
            ClientCommand::Event(command) => command.run().await,
            ClientCommand::Binding(command) => command.run().await,
            ClientCommand::Job(command) => command.run().await,
            ClientCommand::Webhook(command) => command.run().await,
            ClientCommand::Trigger(command) => command.run().await,
            ClientCommand::Wait(command) => command.run().await,
            ClientCommand::Task(command) => command.run().await,
            ClientCommand::Schedule(command) => command.run().await,
            ClientCommand::Profile(command) => command.run(),
        }
    }
}

/// A command that runs against a server.
pub(crate) trait Execute {
    async fn execute(self, session: &connection::Session) -> anyhow::Result<Exit>;
}

// A command with the arguments to reach a server. This is not a doc comment, because clap would show a doc comment in
// the help of every command.
#[derive(Debug, Args)]
pub(crate) struct Connected<T: Args> {
    #[command(flatten)]
    connection: connection::Connection,
    #[command(flatten)]
    command: T,
}

impl<T: Args + Execute> Connected<T> {
    pub(crate) async fn run(self) -> Exit {
        let format = self.connection.format();
        let done = match self.connection.open() {
            Ok(session) => self.command.execute(&session).await,
            Err(error) => Err(error),
        };
        report_result(done, format)
    }
}

/// The output format that the arguments request. Used to report arguments that clap cannot parse.
pub(crate) fn requested_format(arguments: &[String]) -> Format {
    let is_json = |pair: &[String]| {
        matches!(pair,
        [flag, format] if ["-o", "--output"].contains(&flag.as_str()) && format == "json")
    };
    let joined = |word: &String| ["-ojson", "-o=json", "--output=json"].contains(&word.as_str());
    if arguments.windows(2).any(is_json) || arguments.iter().any(joined) { Format::Json } else { Format::Table }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use expect_test::{Expect, expect};

    #[derive(Debug, Parser)]
    #[command(name = "forebay")]
    struct Cli {
        #[command(subcommand)]
        command: ClientCommand,
    }

    #[test]
    fn the_arguments_are_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        fn walk(command: &clap::Command) {
            assert!(command.get_about().is_some(), "{} has a description", command.get_name());
            if command.has_subcommands() {
                command.get_subcommands().for_each(walk);
            } else {
                let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("forebay "), "{} has an example", command.get_name());
            }
        }
        <Cli as clap::CommandFactory>::command().get_subcommands().for_each(walk);
    }

    fn refuse(arguments: &[&str], expected: Expect) {
        let error = Cli::try_parse_from(arguments).expect_err("a usage error");
        assert_eq!(error.exit_code(), 2);
        let text = error.to_string();
        expected.assert_eq(text.lines().next().unwrap_or_default());
    }

    #[test]
    fn wrong_usage_is_refused_with_what_to_write() {
        let id = "019a0000-0000-7000-8000-000000000000";
        refuse(
            &["forebay", "run", "hello", "--priority", "9"],
            expect![
                "error: invalid value '9' for '--priority <N>': priority 9 is outside 1 to 5 (1 goes first, 3 is the default)"
            ],
        );
        refuse(
            &["forebay", "run", "hello", "--timeout", "5"],
            expect![
                "error: invalid value '5' for '--timeout <DURATION>': has no unit: write s for seconds or ms for milliseconds after the number"
            ],
        );
        refuse(
            &["forebay", "run", "hello", "--timeout", "5s"],
            expect!["error: the following required arguments were not provided:"],
        );
        refuse(
            &["forebay", "run", "hello", "-i", "name"],
            expect!["error: invalid value 'name' for '--field <KEY=VALUE>': write key=value"],
        );
        refuse(
            &["forebay", "get", "hello"],
            expect![
                "error: invalid value 'hello' for '<EXECUTION>': write an execution id such as 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a, @latest, or @latest:WORKFLOW"
            ],
        );
        refuse(
            &["forebay", "get", id, "--server", "127.0.0.1:7400"],
            expect![
                "error: invalid value '127.0.0.1:7400' for '--server <URL>': write an address such as http://127.0.0.1:7400"
            ],
        );
        refuse(
            &["forebay", "workspace", "set", "acme"],
            expect!["error: the following required arguments were not provided:"],
        );
        refuse(
            &["forebay", "workspace", "set", "acme", "--concurrency-limit", "-1"],
            expect![
                "error: invalid value '-1' for '--concurrency-limit <N|none>': write a number of 0 or more, or none for the default"
            ],
        );
        refuse(
            &["forebay", "workspace", "set", "acme", "--concurrency-limit", "many"],
            expect![
                "error: invalid value 'many' for '--concurrency-limit <N|none>': write a number of 0 or more, or none for the default"
            ],
        );
    }
}
