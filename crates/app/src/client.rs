//! The client commands: arguments in, requests out, answers shown.
//!
//! Invariants
//! - Data goes to stdout and messages to stderr; with `-o json` stdout holds the server's answer.
//! - What is not an execution is named: `workspace ls`, `workflow ls`, `key ls`. A bare verb is about executions,
//!   but for `pause`, `resume` and `delete`, which say of what.
//! - A key is never shown, except one that was just made.
//!
//! Not here: how things are written (`output`), how a command ends (`exit`), what crosses the wire (`server::wire`).

/// Runs each of a thing's commands.
macro_rules! commands {
    ($($command:ident),*) => {
        impl Command {
            pub(super) async fn run(self) -> $crate::exit::Exit {
                match self {
                    $(Command::$command(command) => command.run().await,)*
                }
            }
        }
    };
}

mod activity;
pub(crate) mod api;
mod binding;
mod bulk;
mod confirm;
mod connection;
mod control;
mod definition;
mod diff;
pub(crate) mod document;
mod ends;
mod eval;
mod events;
mod execution;
mod graph;
mod hook;
mod input;
mod items;
mod key;
mod list;
mod logs;
mod page;
mod profile;
mod projection;
mod queue;
mod rerun;
mod run;
mod schedule;
mod secret;
mod tasks;
mod top;
mod tree;
mod wait;
mod watch;
mod webhook;
mod which;
mod workflow;
mod workspace;

use clap::Args;

use crate::exit::{Exit, settle};
pub(crate) use connection::{Format, Secret};

/// What a client can ask for.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Create, list and change workspaces
    #[command(subcommand)]
    Workspace(workspace::Command),
    /// Make, list and revoke keys
    #[command(subcommand)]
    Key(key::Command),
    /// Set, list and delete secrets of a workspace
    #[command(subcommand)]
    Secret(secret::Command),
    /// List workflows
    #[command(subcommand)]
    Workflow(workflow::Command),
    Validate(definition::Validate),
    /// Print the JSON Schema of workflow files, for editors
    #[command(after_help = "Example:\n  forebay schema > workflow.schema.json\n\nA file that begins with `# \
            yaml-language-server: $schema=workflow.schema.json` is completed and checked while you type.")]
    Schema,
    Apply(On<definition::Apply>),
    Diff(On<diff::Compare>),
    Graph(Box<On<graph::Graph>>),
    Run(Box<On<run::Run>>),
    Ls(On<list::List>),
    Get(On<execution::Get>),
    Watch(On<execution::Watch>),
    Logs(On<logs::ShowLogs>),
    Tree(On<tree::Tree>),
    Eval(On<eval::Eval>),
    Rerun(Box<On<rerun::Rerun>>),
    Waits(On<wait::Waits>),
    Answer(On<wait::AnswerWait>),
    Cancel(On<ends::Cancel>),
    Terminate(On<ends::Terminate>),
    Queue(queue::Command),
    Top(On<top::Top>),
    Pause(On<control::Pause>),
    Resume(On<control::Resume>),
    Delete(On<control::Delete>),
    Activity(On<activity::List>),
    /// Append and list domain events
    #[command(subcommand)]
    Events(Box<events::Command>),
    /// Say which events make a job, and what runs it
    #[command(subcommand)]
    Binding(Box<binding::Command>),
    /// List, check and rebuild the jobs of events
    #[command(subcommand)]
    Projection(Box<projection::Command>),
    /// Tell others when executions end
    #[command(subcommand)]
    Webhook(Box<webhook::Command>),
    /// Start workflows from outside, by secret addresses
    #[command(subcommand)]
    Hook(Box<hook::Command>),
    /// List the work that waits for your own programs, and do it
    #[command(subcommand)]
    Tasks(Box<tasks::Command>),
    /// Say when workflows start by themselves
    #[command(subcommand)]
    Schedule(Box<schedule::Command>),
    /// Keep servers and their keys under names
    #[command(subcommand)]
    Profile(profile::Command),
}

impl Command {
    /// Carries it out. What goes wrong is told here, with all that is known of it.
    pub(crate) async fn run(self) -> Exit {
        match self {
            Command::Workspace(command) => command.run().await,
            Command::Key(command) => command.run().await,
            Command::Secret(command) => command.run().await,
            Command::Workflow(command) => command.run().await,
            Command::Validate(validate) => validate.run(),
            Command::Schema => settle(definition::schema(), Format::Table),
            Command::Apply(apply) => apply.run().await,
            Command::Diff(compare) => compare.run().await,
            Command::Graph(graph) => graph::run(graph).await,
            Command::Run(run) => run.run().await,
            Command::Ls(list) => list.run().await,
            Command::Get(get) => get.run().await,
            Command::Watch(watch) => watch.run().await,
            Command::Logs(logs) => logs.run().await,
            Command::Tree(tree) => tree.run().await,
            Command::Eval(eval) => eval.run().await,
            Command::Rerun(rerun) => rerun.run().await,
            Command::Waits(waits) => waits.run().await,
            Command::Answer(answer) => answer.run().await,
            Command::Cancel(cancel) => cancel.run().await,
            Command::Terminate(terminate) => terminate.run().await,
            Command::Queue(command) => command.run().await,
            Command::Top(top) => top.run().await,
            Command::Pause(pause) => pause.run().await,
            Command::Resume(resume) => resume.run().await,
            Command::Delete(delete) => delete.run().await,
            Command::Activity(list) => list.run().await,
            Command::Events(command) => command.run().await,
            Command::Binding(command) => command.run().await,
            Command::Projection(command) => command.run().await,
            Command::Webhook(command) => command.run().await,
            Command::Hook(command) => command.run().await,
            Command::Tasks(command) => command.run().await,
            Command::Schedule(command) => command.run().await,
            Command::Profile(command) => command.run(),
        }
    }
}

/// What a command does with a server.
pub(crate) trait Act {
    async fn act(self, session: &connection::Session) -> anyhow::Result<Exit>;
}

// A command that asks a server. No comment of its own: help shows the command's, which is flattened last.
#[derive(Debug, Args)]
pub(crate) struct On<T: Args> {
    #[command(flatten)]
    connection: connection::Connection,
    #[command(flatten)]
    command: T,
}

impl<T: Args + Act> On<T> {
    pub(crate) async fn run(self) -> Exit {
        let format = self.connection.format();
        let done = match self.connection.open() {
            Ok(session) => self.command.act(&session).await,
            Err(error) => Err(error),
        };
        settle(done, format)
    }
}

/// Do these arguments ask for JSON? For the case that the rest of them cannot be read.
pub(crate) fn wanted(arguments: &[String]) -> Format {
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
        command: Command,
    }

    #[test]
    fn the_arguments_hang_together() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn every_command_teaches_by_example() {
        fn walk(command: &clap::Command) {
            assert!(command.get_about().is_some(), "{} says what it does", command.get_name());
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
                "error: invalid value '9' for '--priority <N>': priority 9 is outside 1 to 5 (1 goes first, 3 is usual)"
            ],
        );
        refuse(
            &["forebay", "run", "hello", "--timeout", "5"],
            expect![
                "error: invalid value '5' for '--timeout <DURATION>': lacks a unit: write s for seconds or ms for milliseconds behind the number"
            ],
        );
        refuse(
            &["forebay", "run", "hello", "--timeout", "5s"],
            expect!["error: the following required arguments were not provided:"],
        );
        refuse(
            &["forebay", "run", "hello", "-i", "name"],
            expect!["error: invalid value 'name' for '--set <KEY=VALUE>': write key=value"],
        );
        refuse(
            &["forebay", "get", "hello"],
            expect![
                "error: invalid value 'hello' for '<EXECUTION>': write its id, such as 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a, or @latest, or @latest:WORKFLOW"
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
            &["forebay", "workspace", "set", "acme", "--limit", "-1"],
            expect![
                "error: invalid value '-1' for '--limit <N|none>': write a number, or none for what stands without it"
            ],
        );
        refuse(
            &["forebay", "workspace", "set", "acme", "--limit", "many"],
            expect![
                "error: invalid value 'many' for '--limit <N|none>': write a number, or none for what stands without it"
            ],
        );
    }
}
