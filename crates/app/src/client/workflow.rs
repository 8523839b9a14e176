//! Published workflows.
//!
//! Invariants
//! - A workflow is deleted only after the user confirmed it.
//!
//! Not here: publishing from files (`definition`).

use serde_json::json;
use server::wire;

use super::api::Answer;
use super::confirmation::Confirmation;
use super::connection::{Session, WorkspaceArg};
use super::page::ListArgs;
use super::{Connected, Execute, definition};
use crate::exit::Exit;
use crate::output::{self, Cell, StreamStyle};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum WorkflowCommand {
    Ls(Connected<ListWorkflowsArgs>),
    Get(Connected<GetWorkflowArgs>),
    Pause(Connected<PauseWorkflowArgs>),
    Resume(Connected<ResumeWorkflowArgs>),
    Delete(Connected<DeleteWorkflowArgs>),
}

/// List workflows
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay workflow ls
  forebay workflow ls --workspace acme --all")]
pub(crate) struct ListWorkflowsArgs {
    #[command(flatten)]
    selection: ListArgs,
}

/// Show a workflow and its published version
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay workflow get order --workspace acme")]
pub(crate) struct GetWorkflowArgs {
    /// The workflow, by name or id
    #[arg(value_name = "WORKFLOW")]
    workflow: String,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

/// Pause a workflow: none of its executions start; running ones continue
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Executions can still be requested: they wait until the workflow is resumed.

Example:
  forebay workflow pause order --workspace acme")]
pub(crate) struct PauseWorkflowArgs {
    /// The workflow, by name or id
    #[arg(value_name = "WORKFLOW")]
    workflow: String,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

/// Resume a paused workflow: its waiting executions start again
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay workflow resume order --workspace acme")]
pub(crate) struct ResumeWorkflowArgs {
    /// The workflow, by name or id
    #[arg(value_name = "WORKFLOW")]
    workflow: String,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

/// Delete a workflow, after asking
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Its waiting executions fail, with the deletion as their reason. Its running executions continue.

Example:
  forebay workflow delete order --workspace acme --yes")]
pub(crate) struct DeleteWorkflowArgs {
    /// The workflow, by name or id
    #[arg(value_name = "WORKFLOW")]
    workflow: String,
    #[command(flatten)]
    confirmation: Confirmation,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

commands!(WorkflowCommand: Ls, Get, Pause, Resume, Delete);

impl Execute for ListWorkflowsArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let listed = self.selection.fetch(session, "workflow/definitions", &[]).await?;
        listed.show(session, &["NAME", "STATUS", "VERSION", "CHANGED", "WORKSPACE", "ID"], row)?;
        Ok(Exit::Done)
    }
}

impl Execute for GetWorkflowArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let found = definition::find(session, &self.workflow, &self.workspace).await?;
        let answer: Answer<wire::Definition> =
            session.api.get(&format!("workflow/definitions/{}", found.id), &[]).await?;
        session.show(&answer, |workflow| card(workflow, session.stdout))?;
        Ok(Exit::Done)
    }
}

impl Execute for PauseWorkflowArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        post(session, &self.workflow, &self.workspace, "pause").await
    }
}

impl Execute for ResumeWorkflowArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        post(session, &self.workflow, &self.workspace, "resume").await
    }
}

async fn post(session: &Session, workflow: &str, workspace: &WorkspaceArg, verb: &str) -> anyhow::Result<Exit> {
    let found = definition::find(session, workflow, workspace).await?;
    let path = format!("workflow/definitions/{}/{verb}", found.id);
    let changed: Answer<wire::Definition> = session.api.post(&path, &json!({})).await?;
    session.show(&changed, |workflow| card(workflow, session.stdout))?;
    Ok(Exit::Done)
}

impl Execute for DeleteWorkflowArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let found = definition::find(session, &self.workflow, &self.workspace).await?;
        let name = output::clean(&self.workflow);
        let question = format!("Delete workflow {name}? Its waiting executions fail; its running executions continue.");
        if !self.confirmation.confirm(&question)? {
            output::print_note("nothing was deleted")?;
            return Ok(Exit::Error);
        }
        session.api.delete(&format!("workflow/definitions/{}", found.id)).await?;
        session.note(format!("{name}: deleted"))?;
        Ok(Exit::Done)
    }
}

fn row(workflow: &wire::Definition) -> Vec<Cell> {
    vec![
        Cell::new(&workflow.name),
        Cell::status(&workflow.status),
        Cell::optional(workflow.published_version),
        Cell::new(output::format_time(workflow.updated_at)),
        Cell::new(workflow.workspace_id),
        Cell::new(workflow.id),
    ]
}

fn card(workflow: &wire::Definition, style: StreamStyle) -> anyhow::Result<()> {
    let mut pairs = vec![
        ("name", Cell::new(&workflow.name)),
        ("id", Cell::new(workflow.id)),
        ("workspace", Cell::new(workflow.workspace_id)),
        ("status", Cell::status(&workflow.status)),
        ("version", Cell::optional(workflow.published_version)),
    ];
    pairs.extend(workflow.concurrency.map(|most| ("concurrency", Cell::new(most))));
    pairs.push(("changed", Cell::new(output::format_time(workflow.updated_at))));
    output::print_record(&pairs, style)
}
