//! Ending an execution: asked for, or by force.

use kernel::execution::Status;
use serde_json::json;
use server::wire;

use super::Act;
use super::api::Answer;
use super::confirm::Sure;
use super::connection::{Place, Session};
use super::execution::path;
use super::which::{self, Which};
use crate::exit::Exit;
use crate::output;

/// Cancel an execution, waiting or running
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay cancel 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a
  forebay cancel @latest:order")]
pub(crate) struct Cancel {
    #[arg(value_name = "EXECUTION", help = which::HELP)]
    execution: Which,
    #[command(flatten)]
    place: Place,
}

/// End an execution by force: its nodes are broken off
#[derive(Debug, clap::Args)]
#[command(after_help = "\
`cancel` lets what runs come to a stored end first; this does not, and nothing more of it is stored. It asks before it \
does so.

Examples:
  forebay terminate 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a
  forebay terminate @latest:order --yes")]
pub(crate) struct Terminate {
    #[arg(value_name = "EXECUTION", help = which::HELP)]
    execution: Which,
    #[command(flatten)]
    sure: Sure,
    #[command(flatten)]
    place: Place,
}

impl Act for Cancel {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let id = self.execution.find(session, &self.place).await?;
        let path = format!("{}/cancel", path(id));
        let canceled: Answer<wire::Canceled> = session.api.post(&path, &json!({})).await?;
        session.show(&canceled, |canceled| output::line(told(canceled, "its nodes are being stopped")))?;
        Ok(Exit::Done)
    }
}

impl Act for Terminate {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let id = self.execution.find(session, &self.place).await?;
        let known: Answer<wire::Execution> = session.api.get(&path(id), &[]).await?;
        let name = known.value.workflow_name.as_deref().map(output::clean).unwrap_or_default();
        let question = format!("Terminate {id} ({name}, {})?", known.value.status.name());
        if !self.sure.confirm(&question)? {
            output::note("nothing was done")?;
            return Ok(Exit::Error);
        }
        let path = format!("{}/terminate", path(id));
        let ended: Answer<wire::Canceled> = session.api.post(&path, &json!({})).await?;
        session.show(&ended, |ended| output::line(told(ended, "it is being broken off")))?;
        Ok(Exit::Done)
    }
}

fn told(canceled: &wire::Canceled, meanwhile: &str) -> String {
    let id = canceled.execution_id;
    match canceled.status {
        Status::Canceled => format!("{id}: CANCELED"),
        status if status.is_terminal() => format!("{id}: had ended already, {}", status.name()),
        status => format!("{id}: {}, {meanwhile}", status.name()),
    }
}
