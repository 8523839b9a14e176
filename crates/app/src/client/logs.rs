//! `logs`: the log lines and failed attempts of an execution, once or as they arrive.
//!
//! Invariants
//! - A line is shown once, however often the server is polled.
//! - With `--follow` the command stops when the execution ends. Between two polls a request waits on the server until
//!   the execution ends.
//!
//! Not here: the status changes of nodes (`watch`).

use std::collections::BTreeSet;

use kernel::kind::log::Level;
use server::wire::{Execution, LogLine, LogSource};

use super::api::Answer;
use super::connection::{Session, WorkspaceArg};
use super::execution::path;
use super::execution_ref::{self, ExecutionRef};
use super::page::PageArgs;
use super::{Execute, Format};
use crate::exit::Exit;
use crate::output::{self, clean, tone_of_status};

/// Show the messages of an execution's LOG nodes, and every failed attempt
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay logs @latest
  forebay logs @latest:order --follow
  forebay logs 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --failed -o json")]
pub(crate) struct LogsArgs {
    #[arg(value_name = "EXECUTION", help = execution_ref::HELP)]
    execution: ExecutionRef,
    /// Show new lines until the execution ends
    #[arg(short, long)]
    follow: bool,
    /// Only failed attempts
    #[arg(long)]
    failed: bool,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

impl Execute for LogsArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let id = self.execution.find(session, &self.workspace).await?;
        let failed = if self.failed { "true" } else { "false" };
        let logs = async || {
            let path = format!("{}/logs", path(id));
            PageArgs::every().fetch::<LogLine>(session, &path, &[("failed", failed)]).await
        };
        if !self.follow || session.format != Format::Table {
            let logs = logs().await?.into_answer();
            session.show(&logs, |logs| logs.items.iter().try_for_each(|line| show(session, line)))?;
            if logs.value.items.is_empty() {
                session.note("the execution has no log lines")?;
            }
            return Ok(Exit::Done);
        }
        let mut shown = BTreeSet::new();
        loop {
            let execution: Answer<Execution> = session.api.get(&path(id), &[("wait", "1s")]).await?;
            for line in logs().await?.items {
                let known = (line.node.clone(), line.iteration, line.attempt, line.source == LogSource::Log);
                if shown.insert(known) {
                    show(session, &line)?;
                }
            }
            if execution.value.status.is_terminal() {
                return Ok(Exit::Done);
            }
        }
    }
}

fn show(session: &Session, line: &LogLine) -> anyhow::Result<()> {
    let (level, status) = match line.level {
        Level::Debug => ("DEBUG", "SKIPPED"),
        Level::Info => ("INFO", "COMPLETED"),
        Level::Warn => ("WARN", "RETRYING"),
        Level::Error => ("ERROR", "FAILED"),
    };
    let level = session.stdout.paint(tone_of_status(status), &format!("{level:<5}"));
    let (source, data) = match (line.source, &line.data) {
        (LogSource::Failure, Some(error)) => (
            format!(" attempt {}: {}:", line.attempt, clean(error["type"].as_str().unwrap_or_default())),
            String::new(),
        ),
        (_, Some(data)) => (":".to_owned(), format!(" {}", clean(&data.to_string()))),
        (_, None) => (":".to_owned(), String::new()),
    };
    let item = if line.iteration > 0 { format!("[{}]", line.iteration) } else { String::new() };
    let node = format!("{}{item}", clean(&line.node));
    output::print_line(format!("{} {level} {node}{source} {}{data}", line.at, clean(&line.message)))
}
