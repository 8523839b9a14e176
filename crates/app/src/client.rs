//! The client commands: arguments in, requests out, answers shown.
//!
//! Invariants
//! - Data goes to stdout and messages to stderr; with `-o json` stdout holds the server's answer.
//! - Every way to end has its exit code, listed in [`EXIT_CODES_HELP`].
//! - A key is never shown, except the one that `workspace key` makes.
//!
//! Not here: how things are written (`output`), what crosses the wire (`server::wire`).

pub(crate) mod api;
mod connection;
mod definition;
pub(crate) mod document;
mod execution;
mod input;
pub(crate) mod profile;
mod watch;
mod workspace;

use std::io;
use std::process::ExitCode;

use kernel::execution::Status;

use crate::output::{self, clean};
pub(crate) use connection::Connection;

/// For the end of the binary's long help.
pub(crate) const EXIT_CODES_HELP: &str = "\
Exit codes:
  0    done; with run --watch and watch: the execution COMPLETED
  1    an error
  2    wrong usage
  3    the execution ended, but not COMPLETED
  4    not authorised: no key, a wrong key, or not allowed
  5    timed out waiting; the execution goes on
  130  interrupted; the execution goes on";

/// What a client can ask for.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Create, list and change workspaces, and make keys for them
    #[command(subcommand)]
    Workspace(workspace::Command),
    Validate(definition::Validate),
    Apply(definition::Apply),
    Run(Box<execution::Run>),
    Get(execution::Get),
    Watch(execution::Watch),
    Queue(execution::Queue),
    Cancel(execution::Cancel),
}

impl Command {
    /// Carries it out. What goes wrong is reported here, with all that is known of it.
    pub(crate) async fn run(self, connection: Connection) -> anyhow::Result<ExitCode> {
        let exit = match self.carry_out(&connection).await {
            Ok(exit) => exit,
            Err(error) => report(&error)?,
        };
        Ok(exit.into())
    }

    async fn carry_out(self, connection: &Connection) -> anyhow::Result<Exit> {
        match self {
            Command::Workspace(command) => command.run(&connection.open()?).await,
            Command::Validate(validate) => validate.run(connection),
            Command::Apply(apply) => apply.run(&connection.open()?).await,
            Command::Run(run) => run.run(&connection.open()?).await,
            Command::Get(get) => get.run(&connection.open()?).await,
            Command::Watch(watch) => watch.run(&connection.open()?).await,
            Command::Queue(queue) => queue.run(&connection.open()?).await,
            Command::Cancel(cancel) => cancel.run(&connection.open()?).await,
        }
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Done,
    Error,
    /// The execution ended, but not COMPLETED.
    Ended,
    Unauthorised,
    TimedOut,
    Interrupted,
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Error => 1,
            Exit::Ended => 3,
            Exit::Unauthorised => 4,
            Exit::TimedOut => 5,
            Exit::Interrupted => 130,
        }
    }

    /// The end of a command that waited for an execution's.
    fn of(status: Status) -> Exit {
        if status == Status::Completed { Exit::Done } else { Exit::Ended }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// Tells an error once: its chain, every problem of a refused document, and what to do about it.
pub(crate) fn report(error: &anyhow::Error) -> anyhow::Result<Exit> {
    if is_closed_pipe(error) {
        return Ok(Exit::Done);
    }
    output::note(format!("error: {}", clean(&format!("{error:#}"))))?;
    let Some(error) = error.downcast_ref::<api::Error>() else { return Ok(Exit::Error) };
    for problem in error.problems() {
        output::note(format!("  {}", clean(&problem.to_string())))?;
    }
    if let Some(advice) = error.advice() {
        output::note(advice)?;
    }
    Ok(error.exit())
}

/// Whoever read our output has seen enough, as `head` does: that is no error.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let kinds = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    kinds.map(io::Error::kind).any(|kind| kind == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use expect_test::{Expect, expect};

    #[derive(Debug, Parser)]
    #[command(name = "forebay", after_long_help = EXIT_CODES_HELP)]
    struct Cli {
        #[command(flatten)]
        connection: Connection,
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

    #[test]
    fn the_end_of_an_execution_is_the_end_of_its_watcher() {
        let ends = Status::ALL.map(|status| (status.name(), Exit::of(status).code()));
        assert_eq!(
            ends,
            [("PENDING", 3), ("RUNNING", 3), ("COMPLETED", 0), ("FAILED", 3), ("CANCELED", 3), ("TIMED_OUT", 3)]
        );
    }

    #[test]
    fn a_reader_that_went_away_is_no_error() {
        let gone = anyhow::Error::new(io::Error::from(io::ErrorKind::BrokenPipe)).context("show workspaces");
        assert_eq!(report(&gone).expect("nothing to write"), Exit::Done);
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
                "error: invalid value 'hello' for '<EXECUTION>': write its id, such as 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a"
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
            expect!["error: invalid value '-1' for '--limit <N|none>': write a number, or none for the tier's limit"],
        );
        refuse(
            &["forebay", "workspace", "set", "acme", "--limit", "many"],
            expect!["error: invalid value 'many' for '--limit <N|none>': write a number, or none for the tier's limit"],
        );
    }
}
