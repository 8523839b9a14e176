//! Pausing, resuming and deleting: a workspace or a workflow.
//!
//! Invariants
//! - A deletion is asked about first, with what it does to what waits and runs.

use clap::ValueEnum;
use serde_json::json;
use server::wire;

use super::api::Answer;
use super::confirm::Sure;
use super::connection::{Place, Session};
use super::{Act, definition, workflow, workspace};
use crate::exit::Exit;
use crate::output;

/// What is paused, resumed or deleted.
#[derive(Debug, clap::Args)]
struct Target {
    /// What kind of thing it is
    #[arg(value_enum, value_name = "WHAT")]
    kind: Kind,
    /// Its name or id
    name: String,
    #[command(flatten)]
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Workspace,
    Workflow,
}

/// Let nothing more of a workspace or a workflow start; what runs goes on
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What is started meanwhile is accepted and waits. A workspace takes the root key.

Examples:
  forebay pause workspace acme
  forebay pause workflow order --workspace acme")]
pub(crate) struct Pause {
    #[command(flatten)]
    target: Target,
}

/// Let a paused workspace or workflow go on
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay resume workspace acme
  forebay resume workflow order --workspace acme")]
pub(crate) struct Resume {
    #[command(flatten)]
    target: Target,
}

/// Delete a workspace or a workflow, after asking
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What waits for a deleted one fails, with that as its reason. What runs goes on when a workflow is deleted and is \
canceled when a workspace is. A workspace takes the root key.

Examples:
  forebay delete workflow order --workspace acme
  forebay delete workspace acme --yes")]
pub(crate) struct Delete {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    sure: Sure,
}

impl Act for Pause {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        self.target.set(session, "pause").await
    }
}

impl Act for Resume {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        self.target.set(session, "resume").await
    }
}

impl Act for Delete {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let path = self.target.path(session).await?;
        let name = output::clean(&self.target.name);
        let question = match self.target.kind {
            Kind::Workspace => {
                format!(
                    "Delete workspace {name}? What waits in it fails, what runs is canceled, its keys open nothing."
                )
            }
            Kind::Workflow => format!("Delete workflow {name}? What waits for it fails; what runs goes on."),
        };
        if !self.sure.confirm(&question)? {
            output::note("nothing was done")?;
            return Ok(Exit::Error);
        }
        session.api.delete(&path).await?;
        session.tell(format!("{name}: deleted"))?;
        Ok(Exit::Done)
    }
}

impl Target {
    /// Where it is, below `/api/v1/`.
    async fn path(&self, session: &Session) -> anyhow::Result<String> {
        Ok(match self.kind {
            Kind::Workspace => format!("workspaces/{}", session.find_workspace(&self.name).await?),
            Kind::Workflow => {
                let found = definition::find(session, &self.name, &self.place).await?;
                format!("workflow/definitions/{}", found.id)
            }
        })
    }

    async fn set(&self, session: &Session, verb: &str) -> anyhow::Result<Exit> {
        let path = format!("{}/{verb}", self.path(session).await?);
        match self.kind {
            Kind::Workspace => {
                let set: Answer<wire::Workspace> = session.api.post(&path, &json!({})).await?;
                session.show(&set, |set| workspace::card(set, session.stdout))?;
            }
            Kind::Workflow => {
                let set: Answer<wire::Definition> = session.api.post(&path, &json!({})).await?;
                session.show(&set, |set| workflow::card(set, session.stdout))?;
            }
        }
        Ok(Exit::Done)
    }
}
