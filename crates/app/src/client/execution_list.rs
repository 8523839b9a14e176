//! `ls`: executions, newest first.
//!
//! Not here: one execution (`execution`), pages (`page`).

use jiff::Timestamp;
use kernel::execution::Status;
use server::wire;

use super::Execute;
use super::connection::Session;
use super::input;
use super::page::ListArgs;
use crate::exit::Exit;
use crate::output::{self, Cell};

/// List executions, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "\
--text matches the first 13 or more characters of an id, else a whole idempotency key, else the start of a workflow's \
name.

Examples:
  forebay ls
  forebay ls --status failed,timed_out --since 24h
  forebay ls --workflow order --workspace acme --all -o json")]
pub(crate) struct ListExecutionsArgs {
    /// Only executions with one of these statuses, separated by commas
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = read_status)]
    status: Vec<Status>,
    /// Only executions of this workflow, by name or id
    #[arg(long, value_name = "NAME|ID")]
    workflow: Option<String>,
    /// Only executions created at this time or later: 2030-01-31T09:00:00Z, or how long ago, such as 24h
    #[arg(long, value_name = "TIME", value_parser = input::read_past)]
    since: Option<Timestamp>,
    /// Only executions created before this time, written like --since
    #[arg(long, value_name = "TIME", value_parser = input::read_past)]
    until: Option<Timestamp>,
    /// Only executions that match this text
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    #[command(flatten)]
    selection: ListArgs,
}

fn read_status(text: &str) -> Result<Status, String> {
    let all = || Status::ALL.map(Status::name).join(", ");
    Status::parse(&text.to_uppercase()).ok_or_else(|| format!("write one of {}", all()))
}

impl Execute for ListExecutionsArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let status = self.status.iter().map(|status| status.name()).collect::<Vec<_>>().join(",");
        let given = [
            ("status", Some(status).filter(|status| !status.is_empty())),
            ("definition", self.workflow),
            ("createdAfter", self.since.map(|at| at.to_string())),
            ("createdBefore", self.until.map(|at| at.to_string())),
            ("text", self.text),
        ];
        let listed = self.selection.fetch(session, "workflow/executions", &given).await?;
        listed.show(session, &["EXECUTION", "WORKFLOW", "STATUS", "CREATED", "TOOK", "REASON"], row)?;
        Ok(Exit::Done)
    }
}

fn row(execution: &wire::ExecutionListItem) -> Vec<Cell> {
    let name = execution.workflow_name.clone().unwrap_or_else(|| execution.workflow_definition_id.to_string());
    let is_open = !execution.status.is_terminal();
    let canceled = execution.cancel_requested_at.filter(|_| is_open).map(|_| "cancel requested".to_owned());
    let why = execution.error.as_ref().map(output::format_failure).or(canceled);
    vec![
        Cell::new(execution.id),
        Cell::new(name),
        Cell::status(execution.status.name()),
        Cell::new(output::format_time(execution.created_at)),
        Cell::optional(execution.duration_ms.map(output::format_duration)),
        Cell::new(why.unwrap_or_default()),
    ]
}
