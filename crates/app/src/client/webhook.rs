//! Webhooks: URLs that receive a message when an execution ends, and the deliveries of these messages.
//!
//! Invariants
//! - A secret is shown only by the command that creates it, alone on stdout.

use kernel::execution::Status;
use kernel::webhook;
use server::wire;
use uuid::Uuid;

use super::api::Answer;
use super::confirmation::Confirmation;
use super::connection::{Session, WorkspaceArg};
use super::page::{ListArgs, PageArgs};
use super::{Connected, Execute, definition, input};
use crate::exit::Exit;
use crate::output::{self, Cell};

const KEEP: &str =
    "Save this secret now: it is shown only once. Receivers verify messages with it (docs/reference/webhooks.md).";

#[derive(Debug, clap::Subcommand)]
pub(crate) enum WebhookCommand {
    Create(Connected<CreateWebhookArgs>),
    Ls(Connected<ListWebhooksArgs>),
    Get(Connected<GetWebhookArgs>),
    Set(Connected<SetWebhookArgs>),
    Deliveries(Connected<ListDeliveriesArgs>),
    Retry(Connected<RetryDeliveryArgs>),
    Rotate(Connected<RotateWebhookArgs>),
    Delete(Connected<DeleteWebhookArgs>),
}

/// Create a webhook: send a message to a URL when an execution ends
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The command prints the secret that messages are signed with. Each message is a POST with JSON, signed as Standard \
Webhooks defines (headers webhook-id, webhook-timestamp, webhook-signature), and retried for a day until the answer is \
2xx. A message may arrive twice with the same webhook-id: process it once.

Examples:
  forebay webhook create https://shop.example/forebay --workspace acme
  forebay webhook create https://shop.example/failed --event FAILED,TIMED_OUT --workflow order --workspace acme")]
pub(crate) struct CreateWebhookArgs {
    /// The URL that receives messages
    url: String,
    /// The final statuses that send a message: COMPLETED, FAILED, CANCELED, TIMED_OUT [default: all]
    #[arg(long, value_name = "STATUS,…", value_delimiter = ',', value_parser = read_end)]
    event: Vec<Status>,
    /// Only for executions of this workflow
    #[arg(long, value_name = "NAME|ID")]
    workflow: Option<String>,
    /// A description for people
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    #[command(flatten)]
    workspace: WorkspaceArg,
}

/// List webhooks
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay webhook ls --workspace acme")]
pub(crate) struct ListWebhooksArgs {
    #[command(flatten)]
    selection: ListArgs,
}

/// Show a webhook: its URL, whether it is enabled, and since when it fails
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay webhook get 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a")]
pub(crate) struct GetWebhookArgs {
    /// The webhook's id, as `webhook ls` shows it
    #[arg(value_parser = crate::client::input::read_id)]
    id: Uuid,
}

/// Change the URL or the events of a webhook; disable or enable it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A webhook whose deliveries fail for five days is disabled automatically; `webhook get` shows it.

Examples:
  forebay webhook set 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --on
  forebay webhook set 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --url https://shop.example/new --event FAILED")]
pub(crate) struct SetWebhookArgs {
    /// The webhook's id, as `webhook ls` shows it
    #[arg(value_parser = crate::client::input::read_id)]
    id: Uuid,
    /// The URL that receives messages
    #[arg(long)]
    url: Option<String>,
    /// The final statuses that send a message: COMPLETED, FAILED, CANCELED, TIMED_OUT
    #[arg(long, value_name = "STATUS,…", value_delimiter = ',', value_parser = read_end)]
    event: Vec<Status>,
    /// Enable the webhook
    #[arg(long, conflicts_with = "off")]
    on: bool,
    /// Disable the webhook: it gets no messages about executions that end meanwhile
    #[arg(long)]
    off: bool,
}

/// List the deliveries of a webhook, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  forebay webhook deliveries 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --status FAILED")]
pub(crate) struct ListDeliveriesArgs {
    /// The webhook's id, as `webhook ls` shows it
    #[arg(value_parser = crate::client::input::read_id)]
    id: Uuid,
    /// Only deliveries with this status: PENDING, SENDING, DELIVERED or FAILED
    #[arg(long, value_parser = read_status)]
    status: Option<webhook::Status>,
    #[command(flatten)]
    paging: PageArgs,
}

/// Send a delivery again now, whatever its status
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  forebay webhook retry 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a 019a84c2-8000-7c3a-9f00-5b1d2c3e4f5a")]
pub(crate) struct RetryDeliveryArgs {
    /// The webhook's id, as `webhook ls` shows it
    #[arg(value_parser = crate::client::input::read_id)]
    id: Uuid,
    /// The delivery's id, as `webhook deliveries` shows it
    delivery: Uuid,
}

/// Replace the secret of a webhook; prints the new secret
#[derive(Debug, clap::Args)]
#[command(after_help = "\
During the grace period each message carries a signature of both secrets, so a receiver can switch at any time.

Example:
  forebay webhook rotate 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --grace-period 1h")]
pub(crate) struct RotateWebhookArgs {
    /// The webhook's id, as `webhook ls` shows it
    #[arg(value_parser = crate::client::input::read_id)]
    id: Uuid,
    /// How long the old secret stays valid, such as 1h; 0s ends it immediately [default: 1d]
    #[arg(long, value_name = "DURATION", value_parser = input::read_seconds)]
    grace_period: Option<u32>,
}

/// Delete a webhook, after asking; messages that were not yet sent are dropped
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  forebay webhook delete 019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a --yes")]
pub(crate) struct DeleteWebhookArgs {
    /// The webhook's id, as `webhook ls` shows it
    #[arg(value_parser = crate::client::input::read_id)]
    id: Uuid,
    #[command(flatten)]
    confirmation: Confirmation,
}

fn read_end(text: &str) -> Result<Status, String> {
    let found = Status::parse(&text.to_ascii_uppercase()).filter(|status| status.is_terminal());
    found.ok_or_else(|| format!("write one of {}", webhook::ENDS.map(Status::name).join(", ")))
}

fn read_status(text: &str) -> Result<webhook::Status, String> {
    let found = webhook::Status::parse(&text.to_ascii_uppercase());
    found.ok_or_else(|| format!("write one of {}", webhook::Status::ALL.map(webhook::Status::name).join(", ")))
}

commands!(WebhookCommand: Create, Ls, Get, Set, Deliveries, Retry, Rotate, Delete);

impl Execute for CreateWebhookArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let workflow_definition_id = definition::find_id(session, self.workflow.as_deref(), &self.workspace).await?;
        let body = wire::CreateWebhook {
            workspace_id: session.workspace(&self.workspace).await?,
            url: self.url,
            events: Some(self.event).filter(|events| !events.is_empty()),
            workflow_definition_id,
            description: self.description,
        };
        let made: Answer<wire::CreatedWebhook> = session.api.post("webhooks", &body).await?;
        session.show(&made, |made| output::print_line(output::clean(&made.secret)))?;
        session.note(format!("{}: created. {KEEP}", made.value.webhook.id))?;
        Ok(Exit::Done)
    }
}

impl Execute for ListWebhooksArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
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
    match (&webhook.disabled_reason, webhook.failing_since_at) {
        (Some(reason), _) => format!("off: {reason}"),
        (None, Some(since)) => format!("failing since {}", output::format_time(since)),
        (None, None) => "on".to_owned(),
    }
}

impl Execute for GetWebhookArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let got: Answer<wire::Webhook> = session.api.get(&format!("webhooks/{}", self.id), &[]).await?;
        show(session, &got)
    }
}

impl Execute for SetWebhookArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let body = wire::ChangeWebhook {
            url: self.url,
            events: Some(self.event).filter(|events| !events.is_empty()).map(Some),
            description: None,
            enabled: (self.on || self.off).then_some(Some(self.on)),
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
            ("description", Cell::optional(webhook.description.as_ref())),
            ("state", Cell::new(state(webhook))),
            ("secret version", Cell::new(webhook.secret_version)),
            ("created", Cell::new(output::format_time(webhook.created_at))),
            ("created by", Cell::new(&webhook.created_by)),
        ];
        output::print_record(&pairs, session.stdout)
    })?;
    Ok(Exit::Done)
}

impl Execute for ListDeliveriesArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let query: Vec<(&str, &str)> = self.status.map(|status| ("status", status.name())).into_iter().collect();
        let listed = self.paging.fetch(session, &format!("webhooks/{}/deliveries", self.id), &query).await?;
        let head = ["STATUS", "EVENT", "EXECUTION", "ATTEMPTS", "HTTP STATUS", "NEXT ATTEMPT", "ERROR", "ID"];
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
        Cell::optional(delivery.last_status),
        Cell::optional(delivery.next_attempt_at.map(output::format_time)),
        Cell::optional(delivery.last_error.as_deref().map(output::clean)),
        Cell::new(delivery.id),
    ]
}

impl Execute for RetryDeliveryArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let path = format!("webhooks/{}/deliveries/{}/retry", self.id, self.delivery);
        let sent: Answer<wire::Delivery> = session.api.post(&path, &serde_json::json!({})).await?;
        session.show(&sent, |sent| output::print_line(format!("{}: queued for another delivery", sent.id)))?;
        Ok(Exit::Done)
    }
}

impl Execute for RotateWebhookArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        let body = wire::Rotate { grace_period_seconds: self.grace_period };
        let made: Answer<wire::CreatedWebhook> =
            session.api.post(&format!("webhooks/{}/rotate", self.id), &body).await?;
        session.show(&made, |made| output::print_line(output::clean(&made.secret)))?;
        session.note(KEEP)?;
        Ok(Exit::Done)
    }
}

impl Execute for DeleteWebhookArgs {
    async fn execute(self, session: &Session) -> anyhow::Result<Exit> {
        if !self
            .confirmation
            .confirm(&format!("Delete webhook {}? Messages that were not yet sent are dropped.", self.id))?
        {
            output::print_note("nothing was done")?;
            return Ok(Exit::Error);
        }
        session.api.delete(&format!("webhooks/{}", self.id)).await?;
        session.note(format!("{}: deleted", self.id))?;
        Ok(Exit::Done)
    }
}
