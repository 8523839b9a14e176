//! Bindings: which events create a job, and which workflow runs the job.

use std::time::Duration;

use kernel::duration;
use server::wire;
use uuid::Uuid;

use super::api::Answer;
use super::confirmation::Confirmation;
use super::connection::{Session, WorkspaceArg};
use super::page::ListArgs;
use super::{Connected, Execute, definition, input};
use crate::exit::Exit;
use crate::output::{self, Cell};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum BindingCommand {
    Create(Connected<CreateBindingArgs>),
    Ls(Connected<ListBindingsArgs>),
    Get(Connected<GetBindingArgs>),
    Delete(Connected<DeleteBindingArgs>),
}

/// Create a binding from a type of events to a workflow, or to external workers
#[derive(Debug, clap::Args)]
#[command(after_help = "\
If several bindings match an event, a binding of the workspace takes precedence over one of the platform, and an exact \
type over a prefix. Without --workspace, a root key creates a binding of the platform. A workflow file can declare its \
own binding: on: {event: {type: order.placed}}.

Examples:
  forebay binding create 'order.*' --workflow order --workspace acme
  forebay binding create order.placed --workflow order --filter 'trigger.event.data.total > 100' --workspace acme
  forebay binding create invoice.due --workspace acme")]
pub(crate) struct CreateBindingArgs {
    /// The type of events: exact (order.placed), or a prefix (order.*)
    #[arg(value_name = "TYPE")]
    event_type: String,
    /// The workflow that runs the jobs [default: none, external workers claim them]
    #[arg(long, value_name = "NAME|ID")]
    workflow: Option<String>,
    /// Run only jobs whose event makes this true; the others complete as skipped
    #[arg(long, value_name = "EXPRESSION", requires = "workflow")]
    filter: Option<String>,
    /// The input of the execution, as JSON with templates over the event: text, @FILE, or - for stdin
    #[arg(long, value_name = "JSON", requires = "workflow")]
    input: Option<String>,
    /// The pattern of the workflow id in the job, such as org-bootstrap-{subdomain}
    #[arg(long, value_name = "PATTERN", requires = "workflow")]
    workflow_id: Option<String>,
    /// How long an external worker may hold a job without a heartbeat, such as 30s or 5m
    #[arg(long, value_name = "DURATION", value_parser = input::read_seconds)]
    lease: Option<u32>,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

/// List bindings
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay binding ls --workspace acme")]
pub(crate) struct ListBindingsArgs {
    #[command(flatten)]
    selection: ListArgs,
}

/// Show a binding
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay binding get 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a")]
pub(crate) struct GetBindingArgs {
    /// The binding's id, as `binding ls` shows it
    #[arg(value_parser = crate::client::input::read_id)]
    id: Uuid,
}

/// Delete a binding, after asking; its jobs are kept
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay binding delete 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --yes")]
pub(crate) struct DeleteBindingArgs {
    /// The binding's id, as `binding ls` shows it
    #[arg(value_parser = crate::client::input::read_id)]
    id: Uuid,
    #[command(flatten)]
    confirmation: Confirmation,
}

commands!(BindingCommand: Create, Ls, Get, Delete);

impl Execute for CreateBindingArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let workflow_definition_id = definition::find_id(session, self.workflow.as_deref(), &self.workspace).await?;
        let body = wire::CreateBinding {
            workspace_id: session.workspace(&self.workspace).await?,
            event_type: self.event_type,
            workflow_definition_id,
            filter: self.filter,
            input: self.input.as_deref().map(input::read).transpose()?,
            workflow_id: self.workflow_id,
            lease_seconds: self.lease,
        };
        let made: Answer<wire::Binding> = session.api.post("bindings", &body).await?;
        session.show(&made, |made| output::print_line(made.id))?;
        Ok(Exit::Done)
    }
}

impl Execute for ListBindingsArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let listed = self.selection.fetch(session, "bindings", &[]).await?;
        listed.show(session, &["TYPE", "WORKFLOW", "WORKSPACE", "FILTER", "CREATED BY", "ID"], row)?;
        Ok(Exit::Done)
    }
}

fn row(binding: &wire::Binding) -> Vec<Cell> {
    vec![
        Cell::new(&binding.event_type),
        Cell::new(workflow(binding)),
        Cell::new(workspace(binding)),
        Cell::optional(binding.filter.as_ref()),
        Cell::new(created_by(binding)),
        Cell::new(binding.id),
    ]
}

fn workflow(binding: &wire::Binding) -> &str {
    binding.workflow_name.as_deref().unwrap_or("none: external workers")
}

fn workspace(binding: &wire::Binding) -> String {
    binding.workspace_id.map_or_else(|| "all: the platform's".to_owned(), |id| id.to_string())
}

fn created_by(binding: &wire::Binding) -> &'static str {
    match (binding.built_in, binding.by_definition) {
        (true, _) => "built in",
        (_, true) => "workflow file",
        _ => "user",
    }
}

impl Execute for GetBindingArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let known: Answer<wire::Binding> = session.api.get(&format!("bindings/{}", self.id), &[]).await?;
        session.show(&known, |binding| card(binding, session))?;
        Ok(Exit::Done)
    }
}

fn card(binding: &wire::Binding, session: &Session) -> anyhow::Result<()> {
    let pairs = [
        ("id", Cell::new(binding.id)),
        ("type", Cell::new(&binding.event_type)),
        ("workspace", Cell::new(workspace(binding))),
        ("workflow", Cell::new(workflow(binding))),
        ("filter", Cell::optional(binding.filter.as_ref())),
        ("input", Cell::optional(binding.input.as_ref())),
        ("workflow id", Cell::optional(binding.workflow_id.as_ref())),
        ("lease", Cell::new(duration::format(Duration::from_secs(binding.lease_seconds.into())))),
        ("created by", Cell::new(created_by(binding))),
    ];
    output::print_record(&pairs, session.stdout)
}

impl Execute for DeleteBindingArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        if !self.confirmation.confirm(&format!("Delete binding {}? Its events no longer create jobs.", self.id))? {
            output::print_note("nothing was done")?;
            return Ok(Exit::Error);
        }
        session.api.delete(&format!("bindings/{}", self.id)).await?;
        session.note(format!("{}: deleted", self.id))?;
        Ok(Exit::Done)
    }
}
