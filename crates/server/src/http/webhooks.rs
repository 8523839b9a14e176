//! Webhooks: addresses that get a message when an execution ends, and the deliveries of these messages.
//!
//! Invariants
//! - A secret is shown once, in the response that creates it. The path and the query of a URL may contain a secret of
//!   the receiver, so they are shown only to keys that may change webhooks.
//! - A URL that the outbound rules forbid whatever the IP address of its host is refused here.
//! - A key of a workspace sees the webhooks of its workspace, and may restrict them to workflows of its workspace.
//!
//! Not here: sending messages (`crate::webhook`), requests that start workflows (`triggers`).

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Extension, Json as Reply};
use engine::vault;
use kernel::access::Scope;
use kernel::execution;
use kernel::ids::WorkspaceId;
use kernel::webhook::{ENDS, Status, check_description, check_events, check_url, secret};
use store::access::secret::Sealed;
use store::webhook::{NewWebhook, WebhookChange, delivery, secret_name};
use url::Url;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::auth::Caller;
use super::body::{Id, Json, Params};
use super::page::list_params;
use super::problem::{check_field, no_such};
use super::{Api, Code, Problem, definition_lookup, outbound, page};
use crate::wire::{ChangeWebhook, CreateWebhook, CreatedWebhook, Delivery, Page, Rotate, Webhook};

/// How long the previous secret also works after a rotation, by default.
const DEFAULT_GRACE_PERIOD_S: u32 = 24 * 60 * 60;
/// The longest grace period.
pub(super) const MAX_GRACE_PERIOD_S: u32 = 7 * 24 * 60 * 60;

list_params! {
    pub(crate) struct ListDeliveriesParams {
        /// List only deliveries with this status.
        #[param(inline)]
        status: Option<Status>,
    }
}

/// Creates a webhook.
///
/// The response is the only place where the secret that signs its messages is shown.
#[utoipa::path(post, path = "/webhooks", tag = "webhooks", request_body = CreateWebhook,
    responses((status = 201, body = CreatedWebhook)))]
pub(crate) async fn create(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Json(body): Json<CreateWebhook>,
) -> Result<impl IntoResponse, Problem> {
    let workspace = caller.workspace(body.workspace_id)?;
    let events = body.events.unwrap_or_else(|| ENDS.to_vec());
    check(Some(&body.url), Some(&events), body.description.as_deref())?;
    check_reach(&api, workspace, &body.url).await?;
    if let Some(definition) = body.workflow_definition_id {
        definition_lookup::find(&api, &caller, Some(workspace), definition).await?;
    }
    let new = NewWebhook {
        id: store::new_id(),
        workspace,
        url: body.url,
        events: distinct(events),
        definition: body.workflow_definition_id,
        description: body.description,
    };
    let (secret, sealed) = sealed(&api, workspace, new.id, 1)?;
    api.store.create_webhook(&new, &sealed, &caller.actor).await.map_err(no_such("workspace"))?;
    let webhook = wire(api.store.webhook(new.id, caller.workspace).await?, &caller);
    Ok((StatusCode::CREATED, Reply(CreatedWebhook { webhook, secret: secret.to_string() })))
}

/// Lists webhooks. A root key sees those of all workspaces.
#[utoipa::path(get, path = "/webhooks", tag = "webhooks", params(page::WorkspaceListParams),
    responses((status = 200, body = Page<Webhook>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<page::WorkspaceListParams>,
) -> Result<Reply<Page<Webhook>>, Problem> {
    let (limit, after) = params.page(page::ListKind::Webhooks, page::uuid_of)?;
    let rows = api.store.webhooks(caller.listed_workspace(params.workspace_id)?, after, limit + 1).await?;
    let cursor = |row: &store::webhook::Webhook| page::write(page::ListKind::Webhooks, row.id.as_bytes());
    Ok(Reply(page::page(rows, limit, cursor, |row| wire(row, &caller))))
}

/// Reads a webhook.
#[utoipa::path(get, path = "/webhooks/{id}", tag = "webhooks", params(("id" = Uuid, Path)),
    responses((status = 200, body = Webhook)))]
pub(crate) async fn get(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<Reply<Webhook>, Problem> {
    Ok(Reply(wire(api.store.webhook(id, caller.workspace).await.map_err(no_such("webhook"))?, &caller)))
}

/// Changes the given fields of a webhook, or turns it off or on.
///
/// An omitted field keeps its value; null resets it. `url` cannot be null.
#[utoipa::path(patch, path = "/webhooks/{id}", tag = "webhooks", params(("id" = Uuid, Path)),
    request_body = ChangeWebhook,
    responses((status = 200, body = Webhook)))]
pub(crate) async fn change(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
    Json(body): Json<ChangeWebhook>,
) -> Result<Reply<Webhook>, Problem> {
    let ChangeWebhook { url, events, description, enabled } = body;
    let events = events.map(|events| events.unwrap_or_else(|| ENDS.to_vec()));
    check(url.as_deref(), events.as_deref(), description.as_ref().and_then(Option::as_deref))?;
    if let Some(url) = &url {
        let known = api.store.webhook(id, caller.workspace).await.map_err(no_such("webhook"))?;
        check_reach(&api, known.workspace, url).await?;
    }
    let enabled = enabled.map(|enabled| enabled.unwrap_or(true));
    let change = WebhookChange { url, events: events.map(distinct), description, enabled };
    api.store.change_webhook(id, caller.workspace, &change, &caller.actor).await.map_err(no_such("webhook"))?;
    Ok(Reply(wire(api.store.webhook(id, caller.workspace).await.map_err(no_such("webhook"))?, &caller)))
}

/// Deletes a webhook and its secret. Pending messages are not sent.
#[utoipa::path(delete, path = "/webhooks/{id}", tag = "webhooks", params(("id" = Uuid, Path)),
    responses((status = 204)))]
pub(crate) async fn delete(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<StatusCode, Problem> {
    api.store.delete_webhook(id, caller.workspace, &caller.actor).await.map_err(no_such("webhook"))?;
    Ok(StatusCode::NO_CONTENT)
}

/// Replaces the secret of a webhook.
///
/// During the grace period, messages are signed with both secrets.
#[utoipa::path(post, path = "/webhooks/{id}/rotate", tag = "webhooks", params(("id" = Uuid, Path)),
    request_body = Rotate,
    responses((status = 200, body = CreatedWebhook)))]
pub(crate) async fn rotate(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
    Json(body): Json<Rotate>,
) -> Result<Reply<CreatedWebhook>, Problem> {
    let grace_period = grace_period(&body, DEFAULT_GRACE_PERIOD_S)?;
    let known = api.store.webhook(id, caller.workspace).await.map_err(no_such("webhook"))?;
    let (secret, sealed) = sealed(&api, known.workspace, id, known.secret_version.saturating_add(1))?;
    api.store.rotate_webhook(id, &sealed, grace_period, &caller.actor).await.map_err(no_such("webhook"))?;
    let webhook = wire(api.store.webhook(id, caller.workspace).await.map_err(no_such("webhook"))?, &caller);
    Ok(Reply(CreatedWebhook { webhook, secret: secret.to_string() }))
}

/// Lists the deliveries of a webhook, the newest first.
#[utoipa::path(get, path = "/webhooks/{id}/deliveries", tag = "webhooks",
    params(("id" = Uuid, Path), ListDeliveriesParams),
    responses((status = 200, body = Page<Delivery>)))]
pub(crate) async fn deliveries(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
    Params(params): Params<ListDeliveriesParams>,
) -> Result<Reply<Page<Delivery>>, Problem> {
    let place = |bytes: &[u8]| page::time_cursor_of(bytes, Uuid::from_bytes);
    let (limit, before) = params.page(page::ListKind::Deliveries, place)?;
    api.store.webhook(id, caller.workspace).await.map_err(no_such("webhook"))?;
    let rows = api.store.deliveries(id, params.status, before, limit + 1).await?;
    let cursor = |row: &delivery::Delivery| {
        page::write(page::ListKind::Deliveries, &page::timed(row.created_at, *row.id.as_bytes()))
    };
    Ok(Reply(page::page(rows, limit, cursor, delivery_wire)))
}

/// Sends a delivery again now, whatever its status. It keeps its id.
#[utoipa::path(post, path = "/webhooks/{id}/deliveries/{deliveryId}/retry", tag = "webhooks",
    params(("id" = Uuid, Path), ("deliveryId" = Uuid, Path)), responses((status = 202, body = Delivery)))]
pub(crate) async fn retry(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id((id, delivery)): Id<(Uuid, Uuid)>,
) -> Result<impl IntoResponse, Problem> {
    let webhook = api.store.webhook(id, caller.workspace).await.map_err(no_such("webhook"))?;
    if webhook.disabled.is_some() {
        return Err(Problem::new(Code::Conflict, "this webhook is off: turn it on first (enabled: true)"));
    }
    api.store.retry_delivery(id, webhook.workspace, delivery, &caller.actor).await.map_err(no_such("delivery"))?;
    api.wakeups.deliveries.notify_one();
    let row = api.store.delivery(id, delivery).await.map_err(no_such("delivery"))?;
    Ok((StatusCode::ACCEPTED, Reply(delivery_wire(row))))
}

/// A new secret, in plain text and encrypted.
fn sealed(api: &Api, workspace: WorkspaceId, id: Uuid, version: i32) -> Result<(Zeroizing<String>, Sealed), Problem> {
    let mut random = Zeroizing::new([0_u8; 32]);
    getrandom::fill(&mut *random).map_err(|_| Problem::of(Code::Internal))?;
    let secret = Zeroizing::new(secret(&random));
    let sealed = api.vault.seal(workspace, &secret_name(id), version, &secret).map_err(|error| match error {
        vault::Error::NoKey => Problem::new(Code::Conflict, error.to_string()),
        _ => Problem::of(Code::Internal),
    })?;
    Ok((secret, sealed))
}

/// How long the previous secret or token also works after a rotation.
pub(super) fn grace_period(body: &Rotate, default: u32) -> Result<Duration, Problem> {
    match body.grace_period_seconds.unwrap_or(default) {
        seconds if seconds <= MAX_GRACE_PERIOD_S => Ok(Duration::from_secs(u64::from(seconds))),
        _ => Err(Problem::new(
            Code::ValidationFailed,
            format!("gracePeriodSeconds: must be between 0 and {MAX_GRACE_PERIOD_S}"),
        )),
    }
}

/// Refuses a URL that the outbound rules forbid: otherwise every delivery would fail.
async fn check_reach(api: &Api, workspace: WorkspaceId, url: &str) -> Result<(), Problem> {
    match outbound::refusal(api, workspace, url).await? {
        Some(why) => Err(Problem::new(Code::ValidationFailed, format!("url: {why}"))),
        None => Ok(()),
    }
}

fn check(url: Option<&str>, events: Option<&[execution::Status]>, description: Option<&str>) -> Result<(), Problem> {
    check_field("url", url, check_url)?;
    check_field("events", events, check_events)?;
    check_field("description", description, check_description)
}

fn distinct(mut events: Vec<execution::Status>) -> Vec<execution::Status> {
    events.sort_unstable();
    events.dedup();
    events
}

/// Scheme and host of a URL.
fn origin(url: &str) -> String {
    Url::parse(url).map(|url| url.origin().ascii_serialization()).unwrap_or_default()
}

fn wire(webhook: store::webhook::Webhook, caller: &Caller) -> Webhook {
    let manages = caller.scopes.allows(Scope::Manage);
    let (disabled_at, disabled_reason) = webhook.disabled.unzip();
    Webhook {
        id: webhook.id,
        workspace_id: webhook.workspace,
        url: if manages { webhook.url } else { origin(&webhook.url) },
        events: webhook.events,
        workflow_definition_id: webhook.definition,
        workflow_name: webhook.definition_name,
        description: webhook.description,
        enabled: disabled_at.is_none(),
        disabled_reason,
        disabled_at,
        failing_since_at: webhook.failing_since,
        secret_version: webhook.secret_version,
        created_at: webhook.created_at,
        updated_at: webhook.updated_at,
        created_by: webhook.created_by,
    }
}

fn delivery_wire(delivery: delivery::Delivery) -> Delivery {
    Delivery {
        id: delivery.id,
        webhook_id: delivery.webhook,
        execution_id: delivery.execution,
        event: delivery.event,
        status: delivery.status,
        attempts: delivery.attempts,
        next_attempt_at: delivery.due_at,
        last_status: delivery.last_status,
        last_error: delivery.last_error,
        created_at: delivery.created_at,
        ended_at: delivery.ended_at,
    }
}
