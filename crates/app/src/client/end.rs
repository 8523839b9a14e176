//! `cancel` and `terminate`: end an execution.

use kernel::execution::Status;
use serde_json::json;
use server::wire;

use super::Execute;
use super::api::Answer;
use super::confirmation::Confirmation;
use super::connection::{Session, WorkspaceArg};
use super::execution::path;
use super::execution_ref::{self, ExecutionRef};
use crate::exit::Exit;
use crate::output;

/// Cancel an execution; its running nodes are stopped
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay cancel 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a
  forebay cancel @latest:order")]
pub(crate) struct CancelArgs {
    #[arg(value_name = "EXECUTION", help = execution_ref::HELP)]
    execution: ExecutionRef,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

/// Terminate an execution immediately, without waiting for its nodes
#[derive(Debug, clap::Args)]
#[command(after_help = "\
`cancel` waits until the running nodes have stopped and their results are stored. `terminate` does not wait: nothing \
more is stored for the execution. It asks for confirmation first.

Examples:
  forebay terminate 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a
  forebay terminate @latest:order --yes")]
pub(crate) struct TerminateArgs {
    #[arg(value_name = "EXECUTION", help = execution_ref::HELP)]
    execution: ExecutionRef,
    #[command(flatten)]
    confirmation: Confirmation,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

impl Execute for CancelArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let id = self.execution.find(session, &self.workspace).await?;
        let path = format!("{}/cancel", path(id));
        let canceled: Answer<wire::CanceledExecution> = session.api.post(&path, &json!({})).await?;
        session.show(&canceled, |canceled| {
            output::print_line(describe(canceled, "its running nodes are being stopped"))
        })?;
        Ok(Exit::Done)
    }
}

impl Execute for TerminateArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let id = self.execution.find(session, &self.workspace).await?;
        let known: Answer<wire::Execution> = session.api.get(&path(id), &[]).await?;
        let name = known.value.workflow_name.as_deref().map(output::clean).unwrap_or_default();
        let question = format!("Terminate {id} ({name}, {})?", known.value.status.name());
        if !self.confirmation.confirm(&question)? {
            output::print_note("nothing was done")?;
            return Ok(Exit::Error);
        }
        let path = format!("{}/terminate", path(id));
        let ended: Answer<wire::CanceledExecution> = session.api.post(&path, &json!({})).await?;
        session.show(&ended, |ended| output::print_line(describe(ended, "it is being terminated")))?;
        Ok(Exit::Done)
    }
}

fn describe(canceled: &wire::CanceledExecution, meanwhile: &str) -> String {
    let id = canceled.execution_id;
    match canceled.status {
        Status::Canceled => format!("{id}: CANCELED"),
        status if status.is_terminal() => format!("{id}: had already ended with {}", status.name()),
        status => format!("{id}: {}, {meanwhile}", status.name()),
    }
}
