//! Webhooks: who is told of ends, what was told, and telling it again.
//!
//! Invariants
//! - A secret is shown by the answer that makes it, and by no other. A URL's path and query may hold one of the
//!   receiver's: only who may change webhooks is shown them.
//! - A URL that the guard would refuse whatever it resolves to is refused here.
//! - A workspace's key sees its own webhooks, and narrows them to its own workflows.
//!
//! Not here: telling (`crate::webhook`), what comes in (`hooks`).

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Extension, Json as Reply};
use engine::vault;
use kernel::access::Scope;
use kernel::execution;
use kernel::ids::WorkspaceId;
use kernel::webhook::{ENDS, MAX_URL_LEN, Status, secret};
use store::access::secret::Sealed;
use store::webhook::{Change, NewWebhook, delivery, secret_name};
use url::Url;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::auth::Caller;
use super::body::{Id, Json, Params};
use super::page::list_params;
use super::workspaces::not_found;
use super::{Api, Code, Problem, absent, outbound, page};
use crate::wire::{ChangeWebhook, CreateWebhook, CreatedWebhook, Delivery, Page, Rotate, Webhook};

/// For how long the secret before a rotation is good, unless said.
const OVERLAP_S: u32 = 24 * 60 * 60;
/// The longest overlap.
pub(super) const MOST_OVERLAP_S: u32 = 7 * 24 * 60 * 60;

list_params! {
    pub(crate) struct Deliveries {
        /// PENDING, SENDING, DELIVERED or FAILED.
        #[param(inline)]
        status: Option<Status>,
    }
}

/// Makes a webhook. The answer holds the secret that messages are signed with, this once.
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
        absent::definition(&api, &caller, Some(workspace), definition).await?;
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
    api.store.create_webhook(&new, &sealed, &caller.actor).await.map_err(not_found)?;
    let webhook = wire(api.store.webhook(new.id, caller.workspace).await?, &caller);
    Ok((StatusCode::CREATED, Reply(CreatedWebhook { webhook, secret: secret.to_string() })))
}

/// Webhooks; with a root key of all workspaces.
#[utoipa::path(get, path = "/webhooks", tag = "webhooks", params(page::OfWorkspace),
    responses((status = 200, body = Page<Webhook>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<page::OfWorkspace>,
) -> Result<Reply<Page<Webhook>>, Problem> {
    let (limit, after) = params.page(page::List::Webhooks, page::uuid_of)?;
    let rows = api.store.webhooks(caller.sees(params.workspace_id)?, after, limit + 1).await?;
    let cursor = |row: &store::webhook::Webhook| page::write(page::List::Webhooks, row.id.as_bytes());
    Ok(Reply(page::page(rows, limit, cursor, |row| wire(row, &caller))))
}

/// One webhook.
#[utoipa::path(get, path = "/webhooks/{id}", tag = "webhooks", params(("id" = Uuid, Path)),
    responses((status = 200, body = Webhook)))]
pub(crate) async fn get(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<Reply<Webhook>, Problem> {
    Ok(Reply(wire(api.store.webhook(id, caller.workspace).await.map_err(unknown)?, &caller)))
}

/// Changes a webhook, turns it off, or on again.
#[utoipa::path(patch, path = "/webhooks/{id}", tag = "webhooks", params(("id" = Uuid, Path)),
    request_body = ChangeWebhook,
    responses((status = 200, body = Webhook)))]
pub(crate) async fn change(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
    Json(body): Json<ChangeWebhook>,
) -> Result<Reply<Webhook>, Problem> {
    check(body.url.as_deref(), body.events.as_deref(), body.description.as_deref())?;
    if let Some(url) = &body.url {
        let known = api.store.webhook(id, caller.workspace).await.map_err(unknown)?;
        check_reach(&api, known.workspace, url).await?;
    }
    let ChangeWebhook { url, events, description, enabled } = body;
    let change = Change { url, events: events.map(distinct), description, enabled };
    api.store.change_webhook(id, caller.workspace, &change, &caller.actor).await.map_err(unknown)?;
    Ok(Reply(wire(api.store.webhook(id, caller.workspace).await.map_err(unknown)?, &caller)))
}

/// Deletes a webhook and its secret. What was still to be told is not.
#[utoipa::path(delete, path = "/webhooks/{id}", tag = "webhooks", params(("id" = Uuid, Path)),
    responses((status = 204)))]
pub(crate) async fn delete(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<StatusCode, Problem> {
    api.store.delete_webhook(id, caller.workspace, &caller.actor).await.map_err(unknown)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Another secret. Until the overlap is over, messages carry a signature of either.
#[utoipa::path(post, path = "/webhooks/{id}/rotate", tag = "webhooks", params(("id" = Uuid, Path)),
    request_body = Rotate,
    responses((status = 200, body = CreatedWebhook)))]
pub(crate) async fn rotate(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
    Json(body): Json<Rotate>,
) -> Result<Reply<CreatedWebhook>, Problem> {
    let overlap = overlap(&body, OVERLAP_S)?;
    let known = api.store.webhook(id, caller.workspace).await.map_err(unknown)?;
    let (secret, sealed) = sealed(&api, known.workspace, id, known.secret_version.saturating_add(1))?;
    api.store.rotate_webhook(id, &sealed, overlap, &caller.actor).await.map_err(unknown)?;
    let webhook = wire(api.store.webhook(id, caller.workspace).await.map_err(unknown)?, &caller);
    Ok(Reply(CreatedWebhook { webhook, secret: secret.to_string() }))
}

/// What was told to a webhook, or is to be, the newest first.
#[utoipa::path(get, path = "/webhooks/{id}/deliveries", tag = "webhooks", params(("id" = Uuid, Path), Deliveries),
    responses((status = 200, body = Page<Delivery>)))]
pub(crate) async fn deliveries(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
    Params(params): Params<Deliveries>,
) -> Result<Reply<Page<Delivery>>, Problem> {
    let place = |bytes: &[u8]| page::place_of(bytes, Uuid::from_bytes);
    let (limit, before) = params.page(page::List::Deliveries, place)?;
    api.store.webhook(id, caller.workspace).await.map_err(unknown)?;
    let rows = api.store.deliveries(id, params.status, before, limit + 1).await?;
    let cursor = |row: &delivery::Delivery| {
        page::write(page::List::Deliveries, &page::timed(row.created_at, *row.id.as_bytes()))
    };
    Ok(Reply(page::page(rows, limit, cursor, delivery_wire)))
}

/// Sends a delivery again, now, whatever became of it; it keeps its id.
#[utoipa::path(post, path = "/webhooks/{id}/deliveries/{deliveryId}/retry", tag = "webhooks",
    params(("id" = Uuid, Path), ("deliveryId" = Uuid, Path)), responses((status = 202, body = Delivery)))]
pub(crate) async fn retry(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id((id, delivery)): Id<(Uuid, Uuid)>,
) -> Result<impl IntoResponse, Problem> {
    let webhook = api.store.webhook(id, caller.workspace).await.map_err(unknown)?;
    if webhook.disabled.is_some() {
        return Err(Problem::new(Code::Conflict, "this webhook is off: turn it on first"));
    }
    let unknown = |error| match error {
        store::Error::NotFound => Problem::not_found("delivery"),
        other => other.into(),
    };
    api.store.retry_delivery(id, webhook.workspace, delivery, &caller.actor).await.map_err(unknown)?;
    api.wakes.deliveries.notify_one();
    let row = api.store.delivery(id, delivery).await.map_err(unknown)?;
    Ok((StatusCode::ACCEPTED, Reply(delivery_wire(row))))
}

/// A new secret in clear, and sealed.
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

/// For how long what was before a rotation is good.
pub(super) fn overlap(body: &Rotate, usual: u32) -> Result<Duration, Problem> {
    match body.overlap_seconds.unwrap_or(usual) {
        seconds if seconds <= MOST_OVERLAP_S => Ok(Duration::from_secs(u64::from(seconds))),
        _ => Err(Problem::new(Code::ValidationFailed, format!("overlapSeconds: 0 to {MOST_OVERLAP_S}"))),
    }
}

/// Every message to what may not be called would be refused: better now than in the deliveries.
async fn check_reach(api: &Api, workspace: WorkspaceId, url: &str) -> Result<(), Problem> {
    match outbound::refusal(api, workspace, url).await? {
        Some(why) => Err(Problem::new(Code::ValidationFailed, format!("url: {why}"))),
        None => Ok(()),
    }
}

fn check(url: Option<&str>, events: Option<&[execution::Status]>, description: Option<&str>) -> Result<(), Problem> {
    let wrong = |message: String| Err(Problem::new(Code::ValidationFailed, message));
    if let Some(url) = url {
        let schemed = url.starts_with("https://") || url.starts_with("http://");
        if !schemed || url.len() > MAX_URL_LEN || url.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return wrong(format!("url: write https://…, of at most {MAX_URL_LEN} bytes"));
        }
    }
    if events.is_some_and(|events| events.is_empty() || !events.iter().all(|event| event.is_terminal())) {
        return wrong("events: some of COMPLETED, FAILED, CANCELED, TIMED_OUT".to_owned());
    }
    if description.is_some_and(|text| text.chars().count() > 500) {
        return wrong("description: at most 500 characters".to_owned());
    }
    Ok(())
}

fn distinct(mut events: Vec<execution::Status>) -> Vec<execution::Status> {
    events.sort_unstable();
    events.dedup();
    events
}

fn unknown(error: store::Error) -> Problem {
    match error {
        store::Error::NotFound => Problem::not_found("webhook"),
        other => other.into(),
    }
}

/// Scheme and host of a URL.
fn origin(url: &str) -> String {
    Url::parse(url).map(|url| url.origin().ascii_serialization()).unwrap_or_default()
}

fn wire(webhook: store::webhook::Webhook, caller: &Caller) -> Webhook {
    let manages = caller.scopes.allow(Scope::Manage);
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
        failing_since: webhook.failing_since,
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
