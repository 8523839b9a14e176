//! Webhooks: who is told when executions end, and what was told.
//!
//! Invariants
//! - A secret is shown by the command that makes it, alone on stdout, and by no other.

use kernel::execution::Status;
use kernel::webhook;
use server::wire;
use uuid::Uuid;

use super::api::Answer;
use super::confirm::Sure;
use super::connection::{Place, Session};
use super::page::{Paging, Selection};
use super::{Act, On, definition};
use crate::exit::Exit;
use crate::output::{self, Cell};

const KEEP: &str = "Keep this secret now: it is shown this once. Messages are verified with it (docs/webhooks.md).";

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Create(On<Create>),
    Ls(On<List>),
    Get(On<Get>),
    Set(On<Set>),
    Deliveries(On<Deliveries>),
    Retry(On<Retry>),
    Rotate(On<Rotate>),
    Rm(On<Remove>),
}

/// Have a URL told when executions end; prints the secret that messages are signed with
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each end is sent as a POST with JSON, signed as Standard Webhooks has it (headers webhook-id, webhook-timestamp, \
webhook-signature), and tried again for a day until it is answered with 2xx. The same webhook-id may come twice: take \
it once.

Examples:
  forebay webhook create https://shop.example/forebay --workspace acme
  forebay webhook create https://shop.example/failed --event FAILED,TIMED_OUT --workflow order --workspace acme")]
pub(crate) struct Create {
    /// Where messages go
    url: String,
    /// Which ends: COMPLETED, FAILED, CANCELED, TIMED_OUT [default: all]
    #[arg(long, value_name = "END,…", value_delimiter = ',', value_parser = read_end)]
    event: Vec<Status>,
    /// Of this workflow alone
    #[arg(long, value_name = "NAME|ID")]
    workflow: Option<String>,
    /// What it is for, for people
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    #[command(flatten)]
    place: Place,
}

/// List webhooks
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay webhook ls --workspace acme")]
pub(crate) struct List {
    #[command(flatten)]
    selection: Selection,
}

/// Show a webhook: where it leads, whether it is on, and since when it fails
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay webhook get 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a")]
pub(crate) struct Get {
    id: Uuid,
}

/// Change where a webhook leads and what it is told, turn it off, or on again
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A webhook that took nothing for five days is turned off by itself; `webhook get` says so.

Examples:
  forebay webhook set 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --on
  forebay webhook set 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --url https://shop.example/new --event FAILED")]
pub(crate) struct Set {
    id: Uuid,
    /// Where messages go
    #[arg(long)]
    url: Option<String>,
    /// Which ends: COMPLETED, FAILED, CANCELED, TIMED_OUT
    #[arg(long, value_name = "END,…", value_delimiter = ',', value_parser = read_end)]
    event: Vec<Status>,
    /// Turn it on
    #[arg(long, conflicts_with = "off")]
    on: bool,
    /// Turn it off: ends are not kept for it
    #[arg(long)]
    off: bool,
}

/// List what was told to a webhook, or is to be, the newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  forebay webhook deliveries 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --status FAILED")]
pub(crate) struct Deliveries {
    id: Uuid,
    /// PENDING, SENDING, DELIVERED or FAILED
    #[arg(long, value_parser = read_status)]
    status: Option<webhook::Status>,
    #[command(flatten)]
    paging: Paging,
}

/// Send a delivery again, now, whatever became of it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  forebay webhook retry 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a 019a84c2-8000-7c3a-9f00-5b1d2c3e4f5a")]
pub(crate) struct Retry {
    id: Uuid,
    /// As `webhook deliveries` shows it
    delivery: Uuid,
}

/// Replace a webhook's secret; prints the new one
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Until the overlap is over messages carry a signature of either secret, so a receiver can change at its leisure.

Example:
  forebay webhook rotate 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --overlap 3600")]
pub(crate) struct Rotate {
    id: Uuid,
    /// For how many seconds the secret before is good too [default: a day]
    #[arg(long, value_name = "SECONDS")]
    overlap: Option<u32>,
}

/// Delete a webhook, after asking: what was still to be told is not
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay webhook rm 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --yes")]
pub(crate) struct Remove {
    id: Uuid,
    #[command(flatten)]
    sure: Sure,
}

fn read_end(text: &str) -> Result<Status, String> {
    let found = Status::parse(&text.to_ascii_uppercase()).filter(|status| status.is_terminal());
    found.ok_or_else(|| format!("write one of {}", webhook::ENDS.map(Status::name).join(", ")))
}

fn read_status(text: &str) -> Result<webhook::Status, String> {
    let found = webhook::Status::parse(&text.to_ascii_uppercase());
    found.ok_or_else(|| format!("write one of {}", webhook::Status::ALL.map(webhook::Status::name).join(", ")))
}

commands!(Create, Ls, Get, Set, Deliveries, Retry, Rotate, Rm);

impl Act for Create {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let workflow_definition_id = definition::find_id(session, self.workflow.as_deref(), &self.place).await?;
        let body = wire::CreateWebhook {
            workspace_id: session.workspace(&self.place).await?,
            url: self.url,
            events: Some(self.event).filter(|events| !events.is_empty()),
            workflow_definition_id,
            description: self.description,
        };
        let made: Answer<wire::CreatedWebhook> = session.api.post("webhooks", &body).await?;
        session.show(&made, |made| output::line(output::clean(&made.secret)))?;
        session.tell(format!("{}: made. {KEEP}", made.value.webhook.id))?;
        Ok(Exit::Done)
    }
}

impl Act for List {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let listed = self.selection.fetch(session, "webhooks", &[]).await?;
        listed.show(session, &["URL", "EVENTS", "WORKFLOW", "STATE", "ID"], row)?;
        Ok(Exit::Done)
    }
}

fn row(webhook: &wire::Webhook) -> Vec<Cell> {
    vec![
        Cell::new(&webhook.url),
        Cell::new(events(webhook)),
        Cell::new(webhook.workflow_name.as_deref().unwrap_or("any")),
        Cell::new(state(webhook)),
        Cell::new(webhook.id),
    ]
}

fn events(webhook: &wire::Webhook) -> String {
    webhook.events.iter().map(|event| event.name()).collect::<Vec<_>>().join(",")
}

fn state(webhook: &wire::Webhook) -> String {
    match (&webhook.disabled_reason, webhook.failing_since) {
        (Some(reason), _) => format!("off: {reason}"),
        (None, Some(since)) => format!("failing since {}", output::time(since)),
        (None, None) => "on".to_owned(),
    }
}

impl Act for Get {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let got: Answer<wire::Webhook> = session.api.get(&format!("webhooks/{}", self.id), &[]).await?;
        show(session, &got)
    }
}

impl Act for Set {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let body = wire::ChangeWebhook {
            url: self.url,
            events: Some(self.event).filter(|events| !events.is_empty()),
            description: None,
            enabled: (self.on || self.off).then_some(self.on),
        };
        let set: Answer<wire::Webhook> = session.api.patch(&format!("webhooks/{}", self.id), &body).await?;
        show(session, &set)
    }
}

fn show(session: &Session, webhook: &Answer<wire::Webhook>) -> anyhow::Result<Exit> {
    session.show(webhook, |webhook| {
        let pairs = [
            ("id", Cell::new(webhook.id)),
            ("url", Cell::new(&webhook.url)),
            ("events", Cell::new(events(webhook))),
            ("workflow", Cell::new(webhook.workflow_name.as_deref().unwrap_or("any"))),
            ("description", Cell::maybe(webhook.description.as_ref())),
            ("state", Cell::new(state(webhook))),
            ("secret version", Cell::new(webhook.secret_version)),
            ("made", Cell::new(output::time(webhook.created_at))),
            ("by", Cell::new(&webhook.created_by)),
        ];
        output::record(&pairs, session.stdout)
    })?;
    Ok(Exit::Done)
}

impl Act for Deliveries {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let query: Vec<(&str, &str)> = self.status.map(|status| ("status", status.name())).into_iter().collect();
        let listed = self.paging.fetch(session, &format!("webhooks/{}/deliveries", self.id), &query).await?;
        let head = ["STATUS", "EVENT", "EXECUTION", "ATTEMPTS", "ANSWER", "NEXT", "ERROR", "ID"];
        listed.show(session, &head, delivery)?;
        Ok(Exit::Done)
    }
}

fn delivery(delivery: &wire::Delivery) -> Vec<Cell> {
    vec![
        Cell::status(delivery.status.name()),
        Cell::new(delivery.event.name()),
        Cell::new(delivery.execution_id),
        Cell::new(delivery.attempts),
        Cell::maybe(delivery.last_status),
        Cell::maybe(delivery.next_attempt_at.map(output::time)),
        Cell::maybe(delivery.last_error.as_deref().map(output::clean)),
        Cell::new(delivery.id),
    ]
}

impl Act for Retry {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let path = format!("webhooks/{}/deliveries/{}/retry", self.id, self.delivery);
        let sent: Answer<wire::Delivery> = session.api.post(&path, &serde_json::json!({})).await?;
        session.show(&sent, |sent| output::line(format!("{}: is sent again", sent.id)))?;
        Ok(Exit::Done)
    }
}

impl Act for Rotate {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        let body = wire::Rotate { overlap_seconds: self.overlap };
        let made: Answer<wire::CreatedWebhook> =
            session.api.post(&format!("webhooks/{}/rotate", self.id), &body).await?;
        session.show(&made, |made| output::line(output::clean(&made.secret)))?;
        session.tell(KEEP)?;
        Ok(Exit::Done)
    }
}

impl Act for Remove {
    async fn act(self, session: &Session) -> anyhow::Result<Exit> {
        if !self.sure.confirm(&format!("Delete webhook {}? What was still to be told is not.", self.id))? {
            output::note("nothing was done")?;
            return Ok(Exit::Error);
        }
        session.api.delete(&format!("webhooks/{}", self.id)).await?;
        session.tell(format!("{}: deleted", self.id))?;
        Ok(Exit::Done)
    }
}
