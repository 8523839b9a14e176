//! Workflows as the server knows them.
//!
//! Not here: publishing from files (`definition`), pausing and deleting (`control`).

use server::wire;

use super::api::Answer;
use super::connection::{Place, Session};
use super::page::Selection;
use super::{Act, On, definition};
use crate::exit::Exit;
use crate::output::{self, Cell, Look};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Ls(On<List>),
    Get(On<Get>),
}

/// List workflows
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay workflow ls
  forebay workflow ls --workspace acme --all")]
pub(crate) struct List {
    #[command(flatten)]
    selection: Selection,
}

/// Show a workflow and which version is published
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay workflow get order --workspace acme")]
pub(crate) struct Get {
    /// The workflow, by name or id
    #[arg(value_name = "WORKFLOW")]
    workflow: String,
    #[command(flatten)]
    place: Place,
}

commands!(Ls, Get);

impl Act for List {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let listed = self.selection.fetch(session, "workflow/definitions", &[]).await?;
        listed.show(session, &["NAME", "STATUS", "VERSION", "CHANGED", "WORKSPACE", "ID"], row)?;
        Ok(Exit::Done)
    }
}

impl Act for Get {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let found = definition::find(session, &self.workflow, &self.place).await?;
        let answer: Answer<wire::Definition> =
            session.api.get(&format!("workflow/definitions/{}", found.id), &[]).await?;
        session.show(&answer, |workflow| card(workflow, session.stdout))?;
        Ok(Exit::Done)
    }
}

fn row(workflow: &wire::Definition) -> Vec<Cell> {
    vec![
        Cell::new(&workflow.name),
        Cell::status(&workflow.status),
        Cell::maybe(workflow.published_version),
        Cell::new(output::time(workflow.updated_at)),
        Cell::new(workflow.workspace_id),
        Cell::new(workflow.id),
    ]
}

pub(super) fn card(workflow: &wire::Definition, look: Look) -> anyhow::Result<()> {
    let mut pairs = vec![
        ("name", Cell::new(&workflow.name)),
        ("id", Cell::new(workflow.id)),
        ("workspace", Cell::new(workflow.workspace_id)),
        ("status", Cell::status(&workflow.status)),
        ("version", Cell::maybe(workflow.published_version)),
    ];
    pairs.extend(workflow.concurrency.map(|most| ("at once", Cell::new(most))));
    pairs.push(("changed", Cell::new(output::time(workflow.updated_at))));
    output::record(&pairs, look)
}
