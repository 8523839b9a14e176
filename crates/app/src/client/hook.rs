//! Hooks: the secret addresses that start workflows.
//!
//! Invariants
//! - An address is shown by the command that makes it, alone on stdout, and by no other.

use anyhow::bail;
use server::wire;
use uuid::Uuid;

use super::api::Answer;
use super::confirm::Sure;
use super::connection::{Place, Session};
use super::page::{Paging, Selection};
use super::{Act, On, definition};
use crate::exit::Exit;
use crate::output::{self, Cell};

const KEEP: &str =
    "Keep this address secret, and keep it now: it is shown this once. Whoever knows it starts the workflow.";

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Create(On<Create>),
    Ls(On<List>),
    Rotate(On<Rotate>),
    Rm(On<Remove>),
}

/// Make the secret address of a workflow that has `on: webhook`; prints it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A workflow takes webhooks once it is published with on: {webhook: {}}. A POST to its address starts it: the body, JSON \
or a form, \
is its input. The address is never part of the file.

Examples:
  forebay hook create order --workspace acme
  curl -X POST \"$(forebay hook create order --workspace acme)\" -H 'Content-Type: application/json' -d \
  '{\"id\": \"A42\"}'")]
pub(crate) struct Create {
    #[arg(value_name = "WORKFLOW")]
    workflow: String,
    #[command(flatten)]
    place: Place,
}

/// List workflows that take webhooks
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay hook ls --workspace acme")]
pub(crate) struct List {
    #[command(flatten)]
    selection: Selection,
}

/// Replace a workflow's secret address; prints the new one
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The address before opens no more, at once: give --overlap if its sender needs time to change.

Examples:
  forebay hook rotate order --workspace acme
  forebay hook rotate order --overlap 3600 --workspace acme")]
pub(crate) struct Rotate {
    #[arg(value_name = "WORKFLOW")]
    workflow: String,
    /// For how many seconds the address before opens too [default: 0]
    #[arg(long, value_name = "SECONDS")]
    overlap: Option<u32>,
    #[command(flatten)]
    place: Place,
}

/// Revoke a workflow's secret address, after asking; it may be given another
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay hook rm order --workspace acme --yes")]
pub(crate) struct Remove {
    #[arg(value_name = "WORKFLOW")]
    workflow: String,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    sure: Sure,
}

commands!(Create, Ls, Rotate, Rm);

impl Act for Create {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let workflow_definition_id = definition::find(session, &self.workflow, &self.place).await?.id;
        let made: Answer<wire::CreatedHook> =
            session.api.post("hooks", &wire::CreateHook { workflow_definition_id }).await?;
        shown(session, &made)
    }
}

impl Act for List {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let listed = self.selection.fetch(session, "hooks", &[]).await?;
        listed.show(session, &["WORKFLOW", "BEGINS", "ROTATED", "WORKSPACE", "ID"], row)?;
        Ok(Exit::Done)
    }
}

fn row(hook: &wire::Hook) -> Vec<Cell> {
    vec![
        Cell::new(&hook.workflow_name),
        Cell::new(hook.token_prefix.as_deref().unwrap_or("no address yet")),
        Cell::maybe(hook.rotated_at.map(output::time)),
        Cell::new(hook.workspace_id),
        Cell::new(hook.id),
    ]
}

impl Act for Rotate {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let id = find(session, &self.workflow, &self.place).await?;
        let body = wire::Rotate { overlap_seconds: self.overlap };
        let made: Answer<wire::CreatedHook> = session.api.post(&format!("hooks/{id}/rotate"), &body).await?;
        shown(session, &made)
    }
}

impl Act for Remove {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let id = find(session, &self.workflow, &self.place).await?;
        let name = output::clean(&self.workflow);
        if !self.sure.confirm(&format!("Revoke the address of {name}? Its senders are refused from then on."))? {
            output::note("nothing was done")?;
            return Ok(Exit::Error);
        }
        session.api.delete(&format!("hooks/{id}")).await?;
        session.tell(format!("{name}: revoked"))?;
        Ok(Exit::Done)
    }
}

fn shown(session: &Session, made: &Answer<wire::CreatedHook>) -> anyhow::Result<Exit> {
    session.show(made, |made| output::line(output::clean(&format!("{}{}", session.api.server(), made.path))))?;
    session.tell(KEEP)?;
    Ok(Exit::Done)
}

/// The hook of a workflow.
async fn find(session: &Session, workflow: &str, place: &Place) -> anyhow::Result<Uuid> {
    let definition = definition::find(session, workflow, place).await?;
    let of = definition.workspace_id.to_string();
    let all: Vec<wire::Hook> = Paging::every().fetch(session, "hooks", &[("workspaceId", &of)]).await?.items;
    match all.iter().find(|hook| hook.workflow_definition_id == definition.id) {
        Some(hook) => Ok(hook.id),
        None => bail!("{workflow} takes no webhook: write `on: {{webhook: {{}}}}` in its file and apply it"),
    }
}
