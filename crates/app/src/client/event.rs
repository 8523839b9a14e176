//! Domain events: append, list and show them; retry or dismiss events that failed to become a job.

use serde_json::{Map, Value, json};
use server::wire;
use uuid::Uuid;

use super::api::Answer;
use super::connection::{Session, WorkspaceArg};
use super::page::ListArgs;
use super::{Connected, Execute, input};
use crate::exit::{Exit, usage_error};
use crate::output::{self, Cell};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum EventCommand {
    Append(Connected<AppendEventArgs>),
    Ls(Connected<ListEventsArgs>),
    Get(Connected<GetEventArgs>),
    Retry(Connected<RetryEventArgs>),
    Dismiss(Connected<DismissEventArgs>),
}

/// Append an event; if a binding matches its type, it creates a job
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without --workspace, a root key appends an event that belongs to no workspace: only bindings of the platform match it.

Examples:
  forebay event append order.placed --stream-type order -i total=20 --workspace acme
  forebay event append organization.bootstrap.initiated --stream-type organization -i subdomain=acme")]
pub(crate) struct AppendEventArgs {
    /// The type of the event, such as order.placed
    #[arg(value_name = "TYPE")]
    kind: String,
    /// The type of the stream, such as order
    #[arg(long, value_name = "TYPE")]
    stream_type: String,
    /// The id of the stream [default: a new id]
    #[arg(long, value_name = "ID")]
    stream: Option<Uuid>,
    /// The version that the stream must have, 0 for a new stream
    #[arg(long, value_name = "N")]
    expected_version: Option<i32>,
    /// The id of the event; an id is appended only once [default: a new id]
    #[arg(long, value_name = "ID")]
    id: Option<Uuid>,
    /// The data of the event: JSON, @FILE, or - for stdin
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
    /// One field of the data; overrides --data
    #[arg(short = 'i', long = "field", value_name = "KEY=VALUE", value_parser = input::read_field)]
    fields: Vec<input::InputField>,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

/// List events, newest first, including the status changes of jobs
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  forebay event ls --type order.placed --workspace acme\n  forebay event ls --failed"
)]
pub(crate) struct ListEventsArgs {
    /// Only events of this type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Only events of this stream; the id of a job shows its status changes
    #[arg(long, value_name = "ID")]
    stream: Option<Uuid>,
    /// Only events that failed to become a job
    #[arg(long)]
    failed: bool,
    #[command(flatten)]
    selection: ListArgs,
}

/// Show an event with its data
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay event get 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a")]
pub(crate) struct GetEventArgs {
    /// The event's id, as `event ls` shows it
    #[arg(value_parser = crate::client::input::read_id)]
    id: Uuid,
}

/// Retry an event that failed to become a job
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay event retry 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a")]
pub(crate) struct RetryEventArgs {
    /// The event's id, as `event ls` shows it
    #[arg(value_parser = crate::client::input::read_id)]
    id: Uuid,
}

/// Dismiss an event that failed to become a job: it is not retried
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay event dismiss 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a")]
pub(crate) struct DismissEventArgs {
    /// The event's id, as `event ls` shows it
    #[arg(value_parser = crate::client::input::read_id)]
    id: Uuid,
}

commands!(EventCommand: Append, Ls, Get, Retry, Dismiss);

impl Execute for AppendEventArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        if self.expected_version.is_some_and(|version| version < 0) {
            return Err(usage_error("--expected-version must be 0 or greater"));
        }
        let data = self.data.as_deref().map(|data| input::read_of("--data", data)).transpose()?;
        let data = input::overlay(data, &self.fields)?;
        let event = wire::NewEvent {
            id: Some(self.id.unwrap_or_else(store::new_id)),
            kind: self.kind,
            stream_id: self.stream.unwrap_or_else(store::new_id),
            stream_type: self.stream_type,
            expected_version: self.expected_version,
            data: Some(data.unwrap_or_else(|| Value::Object(Map::new()))),
            metadata: None,
        };
        let workspace_id = session.workspace(&self.workspace).await?;
        let body = wire::AppendEvents { workspace_id, events: vec![event] };
        let appended: Answer<wire::AppendedEvents> = session.api.post("events", &body).await?;
        session
            .show(&appended, |appended| appended.events.iter().try_for_each(|event| output::print_line(event.id)))?;
        if appended.value.events.iter().any(|event| event.bound == Some(false)) {
            let mut create = vec!["binding", "create", &body.events[0].kind, "--workflow", "WORKFLOW"];
            if let Some(workspace) = &self.workspace.workspace {
                create.extend(["--workspace", workspace]);
            }
            let create = session.hint(&create);
            session.note(format!(
                "no binding matches the type of this event, so it starts no workflow; to bind later events: {create}"
            ))?;
        }
        Ok(Exit::Done)
    }
}

impl Execute for ListEventsArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let given = [
            ("type", self.kind),
            ("streamId", self.stream.map(|id| id.to_string())),
            ("failed", self.failed.then(|| "true".to_owned())),
        ];
        let listed = self.selection.fetch(session, "events", &given).await?;
        listed.show(session, &["AT", "TYPE", "STREAM", "VERSION", "ID", "JOB", "ERROR"], row)?;
        Ok(Exit::Done)
    }
}

fn row(event: &wire::DomainEvent) -> Vec<Cell> {
    vec![
        Cell::new(output::format_time(event.created_at)),
        Cell::new(&event.kind),
        Cell::new(format!("{} {}", event.stream_type, event.stream_id)),
        Cell::optional(event.stream_version),
        Cell::new(event.id),
        Cell::optional(job(event)),
        Cell::optional(event.processing_error.as_ref()),
    ]
}

impl Execute for GetEventArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let known: Answer<wire::DomainEvent> = session.api.get(&format!("events/{}", self.id), &[]).await?;
        session.show(&known, |event| card(event, session))?;
        Ok(Exit::Done)
    }
}

fn card(event: &wire::DomainEvent, session: &Session) -> anyhow::Result<()> {
    let mut pairs = vec![
        ("event", Cell::new(event.id)),
        ("type", Cell::new(&event.kind)),
        ("stream", Cell::new(format!("{} {}", event.stream_type, event.stream_id))),
        ("version", Cell::optional(event.stream_version)),
        ("created", Cell::new(output::format_time(event.created_at))),
        ("job", Cell::optional(job(event))),
    ];
    pairs.extend(event.processing_error.as_ref().map(|error| ("error", Cell::new(error))));
    output::print_record(&pairs, session.stdout)?;
    output::print_line("data")?;
    output::print_value(&event.data)
}

/// Whether an event became a job, if that is known.
fn job(event: &wire::DomainEvent) -> Option<&'static str> {
    match (&event.processing_error, event.bound) {
        (Some(_), _) => Some("failed"),
        (None, Some(true)) => Some("created"),
        (None, Some(false)) => Some("none: unbound"),
        (None, None) => None,
    }
}

impl Execute for RetryEventArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let path = format!("events/{}/retry", self.id);
        let event: Answer<wire::DomainEvent> = session.api.post(&path, &json!({})).await?;
        session.show(&event, |_| Ok(()))?;
        match &event.value.processing_error {
            Some(error) => {
                session.note(format!("{}: processing failed again: {}", self.id, output::clean(error)))?;
                Ok(Exit::Error)
            }
            None => session.note(format!("{}: processed", self.id)).map(|()| Exit::Done),
        }
    }
}

impl Execute for DismissEventArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        session.api.post_empty(&format!("events/{}/dismiss", self.id)).await?;
        session.note(format!("{}: dismissed", self.id))?;
        Ok(Exit::Done)
    }
}
