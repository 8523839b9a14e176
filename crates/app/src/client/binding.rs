//! Bindings: which events make a job, and what runs it.

use server::wire;
use uuid::Uuid;

use super::api::Answer;
use super::confirm::Sure;
use super::connection::{Place, Session};
use super::page::Selection;
use super::{Act, On, definition, input};
use crate::exit::Exit;
use crate::output::{self, Cell};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Create(On<Create>),
    Ls(On<List>),
    Delete(On<Delete>),
}

/// Bind a type of events to a workflow, or to external workers only
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Of several bindings the nearest holds: the workspace's own before the platform's, an exact type before a prefix. \
Without \
--workspace, a root key binds for the whole platform. A workflow file binds by itself: on: \
{event: {type: order.placed}}.

Examples:
  forebay binding create 'order.*' --workflow order --workspace acme
  forebay binding create order.placed --workflow order --filter 'trigger.event.data.total > 100' --workspace acme
  forebay binding create invoice.due --workspace acme")]
pub(crate) struct Create {
    /// Exact, or a prefix: order.*
    #[arg(value_name = "TYPE")]
    event_type: String,
    /// What runs its jobs [default: external workers only]
    #[arg(long, value_name = "NAME|ID")]
    workflow: Option<String>,
    /// Run only events for which this is true; the others' jobs are completed as skipped
    #[arg(long, value_name = "EXPRESSION", requires = "workflow")]
    filter: Option<String>,
    /// The input, as JSON with templates over the event: text, @FILE, or - for stdin
    #[arg(long, value_name = "JSON", requires = "workflow")]
    input: Option<String>,
    /// What the job's workflow is called, such as org-bootstrap-{subdomain}
    #[arg(long, value_name = "PATTERN", requires = "workflow")]
    workflow_id: Option<String>,
    /// How many seconds an external worker may be silent
    #[arg(long, value_name = "SECONDS")]
    lease: Option<u32>,
    #[command(flatten)]
    place: Place,
}

/// List bindings
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay binding ls --workspace acme")]
pub(crate) struct List {
    #[command(flatten)]
    selection: Selection,
}

/// Take a binding away, after asking; jobs that it made stay
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay binding delete 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --yes")]
pub(crate) struct Delete {
    id: Uuid,
    #[command(flatten)]
    sure: Sure,
}

commands!(Create, Ls, Delete);

impl Act for Create {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let workflow_definition_id = definition::find_id(session, self.workflow.as_deref(), &self.place).await?;
        let body = wire::CreateBinding {
            workspace_id: session.workspace(&self.place).await?,
            event_type: self.event_type,
            workflow_definition_id,
            filter: self.filter,
            input: self.input.as_deref().map(input::read).transpose()?,
            workflow_id: self.workflow_id,
            lease_seconds: self.lease,
        };
        let made: Answer<wire::Binding> = session.api.post("bindings", &body).await?;
        session.show(&made, |made| output::line(made.id))?;
        Ok(Exit::Done)
    }
}

impl Act for List {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let listed = self.selection.fetch(session, "bindings", &[]).await?;
        listed.show(session, &["TYPE", "WORKFLOW", "WORKSPACE", "FILTER", "FROM", "ID"], row)?;
        Ok(Exit::Done)
    }
}

fn row(binding: &wire::Binding) -> Vec<Cell> {
    vec![
        Cell::new(&binding.event_type),
        Cell::new(binding.workflow_name.as_deref().unwrap_or("none: external workers")),
        Cell::new(binding.workspace_id.map_or_else(|| "all: the platform's".to_owned(), |id| id.to_string())),
        Cell::maybe(binding.filter.as_ref()),
        Cell::new(match (binding.built_in, binding.by_definition) {
            (true, _) => "built in",
            (_, true) => "the workflow",
            _ => "a person",
        }),
        Cell::new(binding.id),
    ]
}

impl Act for Delete {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        if !self.sure.confirm(&format!("Delete binding {}? Its events make no job any more.", self.id))? {
            output::note("nothing was done")?;
            return Ok(Exit::Error);
        }
        session.api.delete(&format!("bindings/{}", self.id)).await?;
        session.tell(format!("{}: deleted", self.id))?;
        Ok(Exit::Done)
    }
}
