//! How a command ends: its exit code, and its error, reported once.
//!
//! Invariants
//! - Every way to end has its own exit code, listed in [`HELP`]. Wrong usage is always 2, wherever it is detected.
//! - An error is written to standard error: as a line of text, or with `-o json` as one object with a stable `code`.

use std::fmt;
use std::io;
use std::process::ExitCode;

use kernel::execution::Status;
use serde::Serialize;
use serde_json::Value;

use crate::client::{Format, api};
use crate::output::{self, clean};

/// The list of exit codes at the end of the program's long help.
pub(crate) const HELP: &str = "\
Exit codes:
  0    success; for run --watch, rerun --watch and watch: the execution COMPLETED
  1    an error
  2    wrong usage: arguments, settings, or an input that cannot be read
  3    the watched execution ended with another status than COMPLETED
  4    not authorised: the key is missing, wrong, or lacks the scope
  5    the wait timed out; the execution continues
  130  interrupted; the execution continues";

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

    /// The exit of a command that waited until an execution ended with this status.
    pub(crate) fn of(status: Status) -> Exit {
        if status == Status::Completed { Exit::Done } else { Exit::Ended }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// The arguments or settings cannot be used; nothing was attempted.
#[derive(Debug)]
pub(crate) struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// An error that is reported as wrong usage.
pub(crate) fn usage_error(text: impl Into<String>) -> anyhow::Error {
    Usage(text.into()).into()
}

/// The same error, reported as wrong usage.
pub(crate) fn as_usage_error(error: &anyhow::Error) -> anyhow::Error {
    usage_error(format!("{error:#}"))
}

/// The named resource does not exist, or the key may not see it.
#[derive(Debug)]
struct Missing(String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

/// The error for a resource that does not exist. With `-o json` it has the same code as the server's error,
/// `not_found`.
pub(crate) fn not_found_error(text: String) -> anyhow::Error {
    Missing(text).into()
}

/// Files that cannot be published; each problem as text, and as JSON for scripts.
#[derive(Debug)]
pub(crate) struct Rejected {
    pub(crate) lines: Vec<String>,
    pub(crate) problems: Vec<Value>,
    /// What was not done because of the problems.
    pub(crate) undone: &'static str,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.undone)
    }
}

impl std::error::Error for Rejected {}

/// The JSON of an error, for scripts.
#[derive(Debug, Serialize)]
struct ErrorReport<'a> {
    code: &'a str,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<Value>,
}

impl ErrorReport<'_> {
    fn of(error: &anyhow::Error, exit: Exit) -> anyhow::Result<ErrorReport<'_>> {
        let detail = format!("{error:#}");
        if let Some(rejected) = error.downcast_ref::<Rejected>() {
            return Ok(ErrorReport {
                code: "definition_invalid",
                detail,
                status: None,
                problems: rejected.problems.clone(),
            });
        }
        let Some(refused) = error.downcast_ref::<api::Error>() else {
            let code = match exit {
                Exit::Usage => "usage",
                _ if error.is::<Missing>() => "not_found",
                _ => "error",
            };
            return Ok(ErrorReport { code, detail, status: None, problems: Vec::new() });
        };
        let problems = refused.problems().iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
        Ok(ErrorReport { code: refused.code(), detail, status: refused.status(), problems })
    }
}

/// Reports the error of a command, if there is one, and returns its exit.
pub(crate) fn report_result(done: anyhow::Result<Exit>, format: Format) -> Exit {
    done.unwrap_or_else(|error| report(&error, format).unwrap_or(Exit::Error))
}

/// Reports an error once: its chain, every problem of a rejected document, and what to do about it.
pub(crate) fn report(error: &anyhow::Error, format: Format) -> anyhow::Result<Exit> {
    if is_closed_pipe(error) {
        return Ok(Exit::Done);
    }
    let refused = error.downcast_ref::<api::Error>();
    if refused.is_some_and(api::Error::wants_workspace) {
        let advice =
            "name the workspace with --workspace NAME or FOREBAY_WORKSPACE: a root key can access every workspace";
        return report(&usage_error(advice), format);
    }
    let exit = match refused {
        Some(refused) => refused.exit(),
        None if error.is::<Usage>() => Exit::Usage,
        None => Exit::Error,
    };
    if format == Format::Json {
        output::print_note(serde_json::to_string(&ErrorReport::of(error, exit)?)?)?;
        return Ok(exit);
    }
    if let Some(rejected) = error.downcast_ref::<Rejected>() {
        rejected.lines.iter().try_for_each(output::print_note)?;
    }
    let text = format!("{error:#}");
    output::print_note(format!("error: {}", clean(&text)))?;
    // A single problem is the whole error, except for what was being done.
    let problems = refused.map_or(&[][..], api::Error::problems).iter().map(ToString::to_string);
    for problem in problems.filter(|problem| !text.ends_with(problem.as_str())) {
        output::print_note(format!("  {}", clean(&problem)))?;
    }
    if let Some(advice) = refused.and_then(api::Error::advice) {
        output::print_note(advice)?;
    }
    Ok(exit)
}

/// Reports arguments that cannot be parsed, in clap's words: as text, or as one JSON object.
pub(crate) fn report_usage(error: &clap::Error, format: Format) -> anyhow::Result<ExitCode> {
    if format == Format::Json && error.use_stderr() {
        let text = error.to_string();
        let detail = text.trim_start_matches("error: ").trim_end().to_owned();
        let report = ErrorReport { code: "usage", detail, status: None, problems: Vec::new() };
        output::print_note(serde_json::to_string(&report)?)?;
    } else if let Err(failed) = error.print()
        && failed.kind() != io::ErrorKind::BrokenPipe
    {
        return Err(failed.into());
    }
    Ok(ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(Exit::Usage.code())))
}

/// Whether an error means that the reader of our output closed the pipe, as `head` does. That is not a failure.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let kinds = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    kinds.map(io::Error::kind).any(|kind| kind == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_an_execution_decides_the_exit_code_of_its_watcher() {
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
