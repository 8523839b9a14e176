//! Triggers: the secret addresses that start workflows.
//!
//! Invariants
//! - Only the command that creates an address shows it, alone on stdout.

use anyhow::bail;
use server::wire;
use uuid::Uuid;

use super::api::Answer;
use super::confirmation::Confirmation;
use super::connection::{Session, WorkspaceArg};
use super::page::{ListArgs, PageArgs};
use super::{Connected, Execute, definition, input};
use crate::exit::Exit;
use crate::output::{self, Cell};

const KEEP: &str =
    "Keep this address secret, and keep it now: it is shown only once. Anybody who knows it can start the workflow.";

#[derive(Debug, clap::Subcommand)]
pub(crate) enum TriggerCommand {
    Create(Connected<CreateTriggerArgs>),
    Ls(Connected<ListTriggersArgs>),
    Get(Connected<GetTriggerArgs>),
    Rotate(Connected<RotateTriggerArgs>),
    Revoke(Connected<RevokeTriggerArgs>),
}

/// Create the secret address of a workflow that has `on: http`, and print it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The workflow must be published with on: {http: {}}. A POST to the address starts the workflow; the body, JSON or a \
form, is its input. The address is not part of the file.

Examples:
  forebay trigger create order --workspace acme
  curl -X POST \"$(forebay trigger create order --workspace acme)\" -H 'Content-Type: application/json' -d \
  '{\"id\": \"A42\"}'")]
pub(crate) struct CreateTriggerArgs {
    #[arg(value_name = "WORKFLOW")]
    workflow: String,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

/// List the triggers of a workspace
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay trigger ls --workspace acme")]
pub(crate) struct ListTriggersArgs {
    #[command(flatten)]
    selection: ListArgs,
}

/// Show a trigger, without its secret address
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay trigger get 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a")]
pub(crate) struct GetTriggerArgs {
    /// The trigger's id, as `trigger ls` shows it
    #[arg(value_parser = crate::client::input::read_id)]
    id: Uuid,
}

/// Replace the secret address of a workflow, and print the new one
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The old address stops working immediately. With --grace-period it works for that time, so that its sender can change.

Examples:
  forebay trigger rotate order --workspace acme
  forebay trigger rotate order --grace-period 1h --workspace acme")]
pub(crate) struct RotateTriggerArgs {
    #[arg(value_name = "WORKFLOW")]
    workflow: String,
    /// How long the old address works too, such as 1h [default: 0s]
    #[arg(long, value_name = "DURATION", value_parser = input::read_seconds)]
    grace_period: Option<u32>,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

/// Revoke the secret address of a workflow, after asking; the trigger can get a new one
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay trigger revoke order --workspace acme --yes")]
pub(crate) struct RevokeTriggerArgs {
    #[arg(value_name = "WORKFLOW")]
    workflow: String,
    #[command(flatten)]
    workspace: WorkspaceArg,
    #[command(flatten)]
    confirmation: Confirmation,
}

commands!(TriggerCommand: Create, Ls, Get, Rotate, Revoke);

impl Execute for CreateTriggerArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let workflow_definition_id = definition::find(session, &self.workflow, &self.workspace).await?.id;
        let made: Answer<wire::CreatedTrigger> =
            session.api.post("triggers", &wire::CreateTrigger { workflow_definition_id }).await?;
        shown(session, &made)
    }
}

impl Execute for ListTriggersArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let listed = self.selection.fetch(session, "triggers", &[]).await?;
        listed.show(session, &["WORKFLOW", "PREFIX", "ROTATED", "WORKSPACE", "ID"], row)?;
        Ok(Exit::Done)
    }
}

fn row(trigger: &wire::Trigger) -> Vec<Cell> {
    vec![
        Cell::new(&trigger.workflow_name),
        Cell::new(prefix(trigger)),
        Cell::optional(trigger.rotated_at.map(output::format_time)),
        Cell::new(trigger.workspace_id),
        Cell::new(trigger.id),
    ]
}

/// The first characters of the token.
fn prefix(trigger: &wire::Trigger) -> &str {
    trigger.token_prefix.as_deref().unwrap_or("no address yet")
}

impl Execute for GetTriggerArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let known: Answer<wire::Trigger> = session.api.get(&format!("triggers/{}", self.id), &[]).await?;
        session.show(&known, |trigger| card(trigger, session))?;
        Ok(Exit::Done)
    }
}

fn card(trigger: &wire::Trigger, session: &Session) -> anyhow::Result<()> {
    let pairs = [
        ("id", Cell::new(trigger.id)),
        ("workflow", Cell::new(&trigger.workflow_name)),
        ("workspace", Cell::new(trigger.workspace_id)),
        ("prefix", Cell::new(prefix(trigger))),
        ("rotated", Cell::optional(trigger.rotated_at.map(output::format_time))),
        ("old address expires", Cell::optional(trigger.previous_expires_at.map(output::format_time))),
        ("rule", Cell::new(&trigger.rule)),
        ("created", Cell::new(output::format_time(trigger.created_at))),
    ];
    output::print_record(&pairs, session.stdout)
}

impl Execute for RotateTriggerArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let id = find(session, &self.workflow, &self.workspace).await?;
        let body = wire::Rotate { grace_period_seconds: self.grace_period };
        let made: Answer<wire::CreatedTrigger> = session.api.post(&format!("triggers/{id}/rotate"), &body).await?;
        shown(session, &made)
    }
}

impl Execute for RevokeTriggerArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let id = find(session, &self.workflow, &self.workspace).await?;
        let name = output::clean(&self.workflow);
        if !self
            .confirmation
            .confirm(&format!("Revoke the address of {name}? Its senders are refused from then on."))?
        {
            output::print_note("nothing was done")?;
            return Ok(Exit::Error);
        }
        session.api.post_empty(&format!("triggers/{id}/revoke")).await?;
        session.note(format!("{name}: address revoked"))?;
        Ok(Exit::Done)
    }
}

fn shown(session: &Session, made: &Answer<wire::CreatedTrigger>) -> anyhow::Result<Exit> {
    session.show(made, |made| output::print_line(output::clean(&format!("{}{}", session.api.server(), made.path))))?;
    session.note(KEEP)?;
    Ok(Exit::Done)
}

/// The trigger of a workflow.
async fn find(session: &Session, workflow: &str, workspace: &WorkspaceArg) -> anyhow::Result<Uuid> {
    let definition = definition::find(session, workflow, workspace).await?;
    let of = definition.workspace_id.to_string();
    let all: Vec<wire::Trigger> = PageArgs::every().fetch(session, "triggers", &[("workspaceId", &of)]).await?.items;
    match all.iter().find(|trigger| trigger.workflow_definition_id == definition.id) {
        Some(trigger) => Ok(trigger.id),
        None => bail!("{workflow} has no trigger: write `on: {{http: {{}}}}` in its file and apply it"),
    }
}
