//! The queue: one item and why it waits, and the dead letter.
//!
//! Invariants
//! - An item says what holds it back, and who holds that.

use anyhow::Context;
use kernel::ids::{ExecutionId, QueueItemId};
use kernel::queue::explain::Waiting;
use server::wire;

use super::api::Answer;
use super::connection::{Place, Session};
use super::page::Selection;
use super::which::{self, Which};
use super::{Act, On, definition};
use crate::exit::Exit;
use crate::output::{self, Cell, Look};

/// Show a queue item: its place in line, why it waits, who holds what it waits for
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
pub(crate) struct Command {
    #[command(subcommand)]
    more: Option<More>,
    #[command(flatten)]
    item: On<Item>,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum More {
    Ls(On<Letters>),
    Dismiss(On<Dismiss>),
}

/// One item.
#[derive(Debug, clap::Args)]
pub(crate) struct Item {
    // Required but for the commands below, which do not take it.
    #[arg(required = true, value_name = "EXECUTION", help = which::HELP)]
    execution: Option<Which>,
    #[command(flatten)]
    place: Place,
}

/// List the dead letter: what failed, until it is dismissed
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay queue ls --failed
  forebay queue ls --failed --workflow order --workspace acme")]
pub(crate) struct Letters {
    /// Those that failed; the others are found by their execution
    #[arg(long, required = true)]
    failed: bool,
    /// Only those of this workflow, by name or id
    #[arg(long, value_name = "NAME|ID")]
    workflow: Option<String>,
    #[command(flatten)]
    selection: Selection,
}

/// Take a dead letter away; its execution stays as the record
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay queue dismiss 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a")]
pub(crate) struct Dismiss {
    #[arg(value_name = "EXECUTION", help = which::HELP)]
    execution: Which,
    #[command(flatten)]
    place: Place,
}

impl Command {
    pub(super) async fn run(self) -> Exit {
        match self.more {
            Some(More::Ls(letters)) => letters.run().await,
            Some(More::Dismiss(dismiss)) => dismiss.run().await,
            None => self.item.run().await,
        }
    }
}

impl Act for Item {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let which = self.execution.context("an execution is required")?;
        let id = which.find(session, &self.place).await?;
        let item: Answer<wire::QueueItem> = session.api.get(&path(id.queue_item()), &[]).await?;
        session.show(&item, |item| ticket(item, session.stdout))?;
        Ok(Exit::Done)
    }
}

impl Act for Letters {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let definition = definition::find_id(session, self.workflow.as_deref(), &self.selection.place).await?;
        let given = [
            ("status", self.failed.then(|| "FAILED".to_owned())),
            ("workflowDefinitionId", definition.map(|id| id.to_string())),
        ];
        let letters = self.selection.fetch(session, "workflow/queue", &given).await?;
        letters.show(session, &["EXECUTION", "WORKFLOW", "STATUS", "FAILED", "WHY"], row)?;
        Ok(Exit::Done)
    }
}

impl Act for Dismiss {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let id = self.execution.find(session, &self.place).await?;
        session.api.order(&format!("{}/dismiss", path(id.queue_item()))).await?;
        session.tell(format!("{id}: dismissed"))?;
        Ok(Exit::Done)
    }
}

fn path(item: QueueItemId) -> String {
    format!("workflow/queue/{item}")
}

/// Why an item waits: its place, the reason, and who holds what it waits for.
pub(super) fn why(item: &wire::QueueItem) -> Vec<(&'static str, Cell)> {
    let mut pairs = Vec::new();
    pairs.extend(item.position.map(|position| ("position", Cell::new(output::count(position)))));
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

fn ticket(item: &wire::QueueItem, look: Look) -> anyhow::Result<()> {
    let mut pairs = vec![
        ("queue", Cell::new(item.queue_id)),
        ("status", Cell::status(item.status.name())),
        ("execution", Cell::status(item.execution_status.name())),
        ("priority", Cell::new(item.priority)),
        ("created", Cell::new(output::time(item.created_at))),
    ];
    pairs.extend(why(item));
    pairs.extend((item.attempts > 0).then(|| ("attempts", Cell::new(item.attempts))));
    pairs.extend(item.last_error.as_ref().map(|error| ("last error", Cell::new(error))));
    output::record(&pairs, look)
}

fn row(letter: &wire::DeadLetter) -> Vec<Cell> {
    let name = letter.workflow_name.clone().unwrap_or_else(|| letter.workflow_definition_id.to_string());
    let why = letter.error.as_ref().map(output::failure).or_else(|| letter.last_error.clone());
    vec![
        Cell::new(letter.execution_id),
        Cell::new(name),
        letter.execution_status.map_or_else(|| Cell::maybe(None::<&str>), |status| Cell::status(status.name())),
        Cell::maybe(letter.failed_at.map(output::time)),
        Cell::new(why.unwrap_or_default()),
    ]
}
