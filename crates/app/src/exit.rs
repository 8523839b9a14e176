//! How a command ends: its exit code, and an error told once.
//!
//! Invariants
//! - Every way to end has its code, listed in [`HELP`]; what was given wrongly is 2, wherever it is noticed.
//! - An error is a line for people, or with `-o json` one object with a stable `code`; both on standard error.

use std::fmt;
use std::io;
use std::process::ExitCode;

use kernel::execution::Status;
use serde::Serialize;
use serde_json::Value;

use crate::client::{Format, api};
use crate::output::{self, clean};

/// For the end of the binary's long help.
pub(crate) const HELP: &str = "\
Exit codes:
  0    done; with run --watch, rerun --watch and watch: the execution COMPLETED
  1    an error
  2    wrong usage: arguments, settings, or an input that cannot be read
  3    the execution ended, but not COMPLETED
  4    not authorised: no key, a wrong key, or not allowed
  5    timed out waiting; the execution goes on
  130  interrupted; the execution goes on";

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Done,
    Error,
    Usage,
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
            Exit::Usage => 2,
            Exit::Ended => 3,
            Exit::Unauthorised => 4,
            Exit::TimedOut => 5,
            Exit::Interrupted => 130,
        }
    }

    /// The end of a command that waited for an execution's.
    pub(crate) fn of(status: Status) -> Exit {
        if status == Status::Completed { Exit::Done } else { Exit::Ended }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// What was given cannot be used, and nothing was tried with it.
#[derive(Debug)]
pub(crate) struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// A wrong usage, as an error.
pub(crate) fn usage(text: impl Into<String>) -> anyhow::Error {
    Usage(text.into()).into()
}

/// The same error, told as wrong usage: what it is about was given.
pub(crate) fn as_usage(error: &anyhow::Error) -> anyhow::Error {
    usage(format!("{error:#}"))
}

/// What was named is not there, as far as the key sees.
#[derive(Debug)]
struct Missing(String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

/// Something that is not there, as an error; scripts know it by the server's own code for that.
pub(crate) fn missing(text: String) -> anyhow::Error {
    Missing(text).into()
}

/// Files that cannot be published; each problem as a line, and as what scripts read.
#[derive(Debug)]
pub(crate) struct Rejected {
    pub(crate) lines: Vec<String>,
    pub(crate) problems: Vec<Value>,
    /// What was not done because of them.
    pub(crate) undone: &'static str,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.undone)
    }
}

impl std::error::Error for Rejected {}

/// An error for scripts.
#[derive(Debug, Serialize)]
struct Told<'a> {
    code: &'a str,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<Value>,
}

impl Told<'_> {
    fn of(error: &anyhow::Error, exit: Exit) -> anyhow::Result<Told<'_>> {
        let detail = format!("{error:#}");
        if let Some(rejected) = error.downcast_ref::<Rejected>() {
            return Ok(Told { code: "definition_invalid", detail, status: None, problems: rejected.problems.clone() });
        }
        let Some(refused) = error.downcast_ref::<api::Error>() else {
            let code = match exit {
                Exit::Usage => "usage",
                _ if error.is::<Missing>() => "not_found",
                _ => "error",
            };
            return Ok(Told { code, detail, status: None, problems: Vec::new() });
        };
        let problems = refused.problems().iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
        Ok(Told { code: refused.code(), detail, status: refused.status(), problems })
    }
}

/// The end of a command, once what went wrong is told.
pub(crate) fn settle(done: anyhow::Result<Exit>, format: Format) -> Exit {
    done.unwrap_or_else(|error| report(&error, format).unwrap_or(Exit::Error))
}

/// Tells an error once: its chain, every problem of a refused document, and what to do about it.
pub(crate) fn report(error: &anyhow::Error, format: Format) -> anyhow::Result<Exit> {
    if is_closed_pipe(error) {
        return Ok(Exit::Done);
    }
    let refused = error.downcast_ref::<api::Error>();
    if refused.is_some_and(api::Error::wants_workspace) {
        let advice = "say which workspace: --workspace NAME, or FOREBAY_WORKSPACE (a root key opens all of them)";
        return report(&usage(advice), format);
    }
    let exit = match refused {
        Some(refused) => refused.exit(),
        None if error.is::<Usage>() => Exit::Usage,
        None => Exit::Error,
    };
    if format == Format::Json {
        output::note(serde_json::to_string(&Told::of(error, exit)?)?)?;
        return Ok(exit);
    }
    if let Some(rejected) = error.downcast_ref::<Rejected>() {
        rejected.lines.iter().try_for_each(output::note)?;
    }
    output::note(format!("error: {}", clean(&format!("{error:#}"))))?;
    for problem in refused.map_or(&[][..], api::Error::problems) {
        output::note(format!("  {}", clean(&problem.to_string())))?;
    }
    if let Some(advice) = refused.and_then(api::Error::advice) {
        output::note(advice)?;
    }
    Ok(exit)
}

/// Tells a line of arguments that cannot be read; clap's words, whole or as one object.
pub(crate) fn refuse(error: &clap::Error, format: Format) -> anyhow::Result<ExitCode> {
    if format == Format::Json && error.use_stderr() {
        let text = error.to_string();
        let detail = text.trim_start_matches("error: ").trim_end().to_owned();
        let told = Told { code: "usage", detail, status: None, problems: Vec::new() };
        output::note(serde_json::to_string(&told)?)?;
    } else if let Err(failed) = error.print()
        && failed.kind() != io::ErrorKind::BrokenPipe
    {
        return Err(failed.into());
    }
    Ok(ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(Exit::Usage.code())))
}

/// Whoever read our output has gone, as `head` does: that is no error.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let kinds = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    kinds.map(io::Error::kind).any(|kind| kind == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(report(&gone, Format::Table).expect("nothing to write"), Exit::Done);
    }

    #[test]
    fn every_code_is_in_the_help() {
        let all =
            [Exit::Done, Exit::Error, Exit::Usage, Exit::Ended, Exit::Unauthorised, Exit::TimedOut, Exit::Interrupted];
        for exit in all {
            assert!(HELP.contains(&format!("\n  {:<3}  ", exit.code())), "{exit:?}");
        }
    }
}
