//! `queue`: one queue item and why it waits; the dead letters.
//!
//! Invariants
//! - A waiting item is shown with the reason why it waits, and with the executions that hold the slot or the
//!   concurrency key that it needs.

use anyhow::Context;
use kernel::ids::{ExecutionId, QueueItemId};
use kernel::queue::explain::Waiting;
use server::wire;

use super::api::Answer;
use super::connection::{Session, WorkspaceArg};
use super::execution_ref::{self, ExecutionRef};
use super::page::ListArgs;
use super::{Connected, Execute, definition};
use crate::exit::{Exit, usage_error};
use crate::output::{self, Cell, StreamStyle};

/// Show why an execution waits; list and dismiss dead letters
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  forebay queue @latest
  forebay queue 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a
  forebay queue ls --failed --workspace acme"
)]
pub(crate) struct QueueArgs {
    #[command(subcommand)]
    more: Option<QueueCommand>,
    #[command(flatten)]
    item: Connected<GetQueueItemArgs>,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum QueueCommand {
    Ls(Connected<ListDeadLettersArgs>),
    Dismiss(Connected<DismissDeadLetterArgs>),
}

/// The queue item of one execution.
#[derive(Debug, clap::Args)]
pub(crate) struct GetQueueItemArgs {
    // Required, except by the subcommands.
    #[arg(required = true, value_name = "EXECUTION", help = execution_ref::HELP)]
    execution: Option<ExecutionRef>,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

/// List dead letters: failed queue items that nobody has dismissed
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "forebay queue ls --failed [OPTIONS]",
    after_help = "\
Examples:
  forebay queue ls --failed
  forebay queue ls --failed --workflow order --workspace acme"
)]
pub(crate) struct ListDeadLettersArgs {
    /// List failed items, which is required; `forebay ls --status pending` lists executions that wait
    #[arg(long)]
    failed: bool,
    /// Only dead letters of this workflow, by name or id
    #[arg(long, value_name = "NAME|ID")]
    workflow: Option<String>,
    #[command(flatten)]
    selection: ListArgs,
}

/// Dismiss a dead letter; its execution is kept
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay queue dismiss 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a")]
pub(crate) struct DismissDeadLetterArgs {
    #[arg(value_name = "EXECUTION", help = execution_ref::HELP)]
    execution: ExecutionRef,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

impl QueueArgs {
    pub(super) async fn run(self) -> Exit {
        match self.more {
            Some(QueueCommand::Ls(dead_letters)) => dead_letters.run().await,
            Some(QueueCommand::Dismiss(dismiss)) => dismiss.run().await,
            None => self.item.run().await,
        }
    }
}

impl Execute for GetQueueItemArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let execution = self.execution.context("an execution is required")?;
        let id = execution.find(session, &self.workspace).await?;
        let item: Answer<wire::QueueItem> = session.api.get(&path(id.queue_item()), &[]).await?;
        session.show(&item, |item| card(item, session.stdout))?;
        Ok(Exit::Done)
    }
}

impl Execute for ListDeadLettersArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        if !self.failed {
            let waiting = session.hint(&["ls", "--status", "pending"]);
            let text = format!("give --failed to list dead letters; executions that wait are listed by: {waiting}");
            return Err(usage_error(text));
        }
        let definition = definition::find_id(session, self.workflow.as_deref(), &self.selection.workspace).await?;
        let given =
            [("status", Some("FAILED".to_owned())), ("workflowDefinitionId", definition.map(|id| id.to_string()))];
        let dead_letters = self.selection.fetch(session, "workflow/queue", &given).await?;
        dead_letters.show(session, &["EXECUTION", "WORKFLOW", "STATUS", "FAILED", "REASON"], row)?;
        Ok(Exit::Done)
    }
}

impl Execute for DismissDeadLetterArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let id = self.execution.find(session, &self.workspace).await?;
        session.api.post_empty(&format!("{}/dismiss", path(id.queue_item()))).await?;
        session.note(format!("{id}: dismissed"))?;
        Ok(Exit::Done)
    }
}

fn path(item: QueueItemId) -> String {
    format!("workflow/queue/{item}")
}

/// Why an item waits: its position, the reason, and the executions that hold what it needs.
pub(super) fn describe_waiting(item: &wire::QueueItem) -> Vec<(&'static str, Cell)> {
    let mut pairs = Vec::new();
    pairs.extend(item.position.map(|position| ("position", Cell::new(output::format_count(position)))));
    if let Some(waiting) = &item.waiting {
        pairs.push(("waiting", Cell::new(&waiting.message)));
        pairs.extend(holders(&waiting.reason).iter().map(|id| ("held by", Cell::new(id))));
    }
    pairs
}

fn holders(reason: &Waiting) -> &[ExecutionId] {
    match reason {
        Waiting::KeyFull { held_by, .. }
        | Waiting::DefinitionFull { held_by, .. }
        | Waiting::WorkspaceFull { held_by, .. } => held_by,
        _ => &[],
    }
}

fn card(item: &wire::QueueItem, style: StreamStyle) -> anyhow::Result<()> {
    let mut pairs = vec![
        ("queue", Cell::new(item.queue_id)),
        ("status", Cell::status(item.status.name())),
        ("execution", Cell::status(item.execution_status.name())),
        ("priority", Cell::new(item.priority)),
        ("created", Cell::new(output::format_time(item.created_at))),
    ];
    pairs.extend(describe_waiting(item));
    pairs.extend((item.attempts > 0).then(|| ("attempts", Cell::new(item.attempts))));
    pairs.extend(item.last_error.as_ref().map(|error| ("last error", Cell::new(error))));
    output::print_record(&pairs, style)
}

fn row(dead_letter: &wire::DeadLetter) -> Vec<Cell> {
    let name = dead_letter.workflow_name.clone().unwrap_or_else(|| dead_letter.workflow_definition_id.to_string());
    let why = dead_letter.error.as_ref().map(output::format_failure).or_else(|| dead_letter.last_error.clone());
    vec![
        Cell::new(dead_letter.execution_id),
        Cell::new(name),
        dead_letter.execution_status.map_or_else(|| Cell::optional(None::<&str>), |status| Cell::status(status.name())),
        Cell::optional(dead_letter.failed_at.map(output::format_time)),
        Cell::new(why.unwrap_or_default()),
    ]
}
