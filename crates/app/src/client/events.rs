//! Domain events: appended, listed, and what became of handling them.

use serde_json::{Map, Value, json};
use server::wire;
use uuid::Uuid;

use super::api::Answer;
use super::connection::{Place, Session};
use super::page::Selection;
use super::{Act, On, input};
use crate::exit::{Exit, usage};
use crate::output::{self, Cell};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Append(On<Append>),
    Ls(On<List>),
    Retry(On<Retry>),
    Dismiss(On<Dismiss>),
}

/// Append an event; if its type is bound, it makes a job
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without --workspace, a root key appends an event of no workspace: the platform's bindings hold for it.

Examples:
  forebay events append order.placed --stream-type order -i total=20 --workspace acme
  forebay events append organization.bootstrap.initiated --stream-type organization -i subdomain=acme")]
pub(crate) struct Append {
    /// What happened, such as order.placed
    #[arg(value_name = "TYPE")]
    kind: String,
    /// What sort of thing it happened to, such as order
    #[arg(long, value_name = "TYPE")]
    stream_type: String,
    /// Which one it happened to [default: a new one]
    #[arg(long, value_name = "ID")]
    stream: Option<Uuid>,
    /// The version its stream must be at, 0 for a new one
    #[arg(long, value_name = "N")]
    expected_version: Option<i32>,
    /// Its id: the same event again is appended once [default: a new one]
    #[arg(long, value_name = "ID")]
    id: Option<Uuid>,
    /// Its data, as JSON: text, @FILE, or - for stdin
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
    /// One field of its data, over --data
    #[arg(short = 'i', long = "set", value_name = "KEY=VALUE", value_parser = input::read_setting)]
    set: Vec<input::Setting>,
    #[command(flatten)]
    place: Place,
}

/// List events, newest first, the steps of jobs among them
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  forebay events ls --type order.placed --workspace acme\n  forebay events ls --failed"
)]
pub(crate) struct List {
    /// Only this type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Only what happened to this; a job's id shows its steps
    #[arg(long, value_name = "ID")]
    stream: Option<Uuid>,
    /// Only those whose handling failed
    #[arg(long)]
    failed: bool,
    #[command(flatten)]
    selection: Selection,
}

/// Handle an event again whose handling failed
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay events retry 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a")]
pub(crate) struct Retry {
    id: Uuid,
}

/// Let go of an event whose handling failed
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay events dismiss 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a")]
pub(crate) struct Dismiss {
    id: Uuid,
}

commands!(Append, Ls, Retry, Dismiss);

impl Act for Append {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        if self.expected_version.is_some_and(|version| version < 0) {
            return Err(usage("--expected-version: 0 or more"));
        }
        let data = self.data.as_deref().map(|data| input::read_of("--data", data)).transpose()?;
        let data = input::overlay(data, &self.set)?;
        let event = wire::NewEvent {
            id: Some(self.id.unwrap_or_else(store::new_id)),
            kind: self.kind,
            stream_id: self.stream.unwrap_or_else(store::new_id),
            stream_type: self.stream_type,
            expected_version: self.expected_version,
            data: Some(data.unwrap_or_else(|| Value::Object(Map::new()))),
            metadata: None,
        };
        let workspace_id = session.workspace(&self.place).await?;
        let body = wire::AppendEvents { workspace_id, events: vec![event] };
        let appended: Answer<wire::AppendedEvents> = session.api.post("events", &body).await?;
        session.show(&appended, |appended| appended.events.iter().try_for_each(|event| output::line(event.id)))?;
        if appended.value.events.iter().any(|event| event.bound == Some(false)) {
            let mut create = vec!["binding", "create", &body.events[0].kind, "--workflow", "WORKFLOW"];
            if let Some(workspace) = &self.place.workspace {
                create.extend(["--workspace", workspace]);
            }
            let create = session.hint(&create);
            session.tell(format!(
                "no binding is for its type, so it starts no workflow; to start one with the next: {create}"
            ))?;
        }
        Ok(Exit::Done)
    }
}

impl Act for List {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
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
        Cell::new(output::time(event.created_at)),
        Cell::new(&event.kind),
        Cell::new(format!("{} {}", event.stream_type, event.stream_id)),
        Cell::maybe(event.stream_version),
        Cell::new(event.id),
        Cell::maybe(match (&event.processing_error, event.bound) {
            (Some(_), _) => Some("not made"),
            (None, Some(true)) => Some("made"),
            (None, Some(false)) => Some("none: unbound"),
            (None, None) => None,
        }),
        Cell::maybe(event.processing_error.as_ref()),
    ]
}

impl Act for Retry {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let path = format!("events/{}/retry", self.id);
        let event: Answer<wire::DomainEvent> = session.api.post(&path, &json!({})).await?;
        session.show(&event, |_| Ok(()))?;
        match &event.value.processing_error {
            Some(error) => {
                session.tell(format!("it failed again: {}", output::clean(error)))?;
                Ok(Exit::Error)
            }
            None => session.tell(format!("{}: handled", self.id)).map(|()| Exit::Done),
        }
    }
}

impl Act for Dismiss {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        session.api.order(&format!("events/{}/dismiss", self.id)).await?;
        session.tell(format!("{}: dismissed", self.id))?;
        Ok(Exit::Done)
    }
}
