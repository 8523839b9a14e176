//! Triggers: the secret addresses that start workflows, their tokens, and the rate limit of each trigger.
//!
//! Invariants
//! - A token is shown once, in the response that creates it.
//! - Publishing a definition with `on: http` creates its trigger. Requests here create, replace and revoke its token.
//!
//! Not here: requests to a trigger (`triggers::receive`), messages that the service sends (`webhooks`).

pub(super) mod receive;

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Extension, Json as Reply};
use store::definition::DefinitionRef;
use store::trigger::Token;
use uuid::Uuid;

use super::auth::Caller;
use super::body::{Id, Json, Params};
use super::problem::no_such;
use super::webhooks::grace_period;
use super::{Api, Code, Problem, page};
use crate::wire::{CreateTrigger, CreatedTrigger, Page, Rotate, Trigger};

/// The period in which requests are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// The largest number of triggers in memory.
const REMEMBERED: usize = 10_000;

/// The requests of each trigger in its current minute, in this process.
#[derive(Debug, Default)]
pub(crate) struct RateLimits {
    windows: Mutex<BTreeMap<Uuid, (Instant, u32)>>,
}

impl RateLimits {
    /// Counts a request. The error is how long the sender must wait.
    pub(super) fn take(&self, trigger: Uuid, most: u32, now: Instant) -> Result<(), Duration> {
        let mut windows = self.windows.lock();
        if windows.len() >= REMEMBERED {
            windows.retain(|_, (began, _)| now.duration_since(*began) < WINDOW);
        }
        let (began, count) = windows.entry(trigger).or_insert((now, 0));
        if now.duration_since(*began) >= WINDOW {
            (*began, *count) = (now, 0);
        }
        if *count >= most {
            return Err(WINDOW.saturating_sub(now.duration_since(*began)));
        }
        *count += 1;
        Ok(())
    }
}

/// Creates the token of the trigger of a workflow.
///
/// The response is the only place where the token is shown. The published version must have `on: http`.
#[utoipa::path(post, path = "/triggers", tag = "triggers", request_body = CreateTrigger,
    responses((status = 201, body = CreatedTrigger)))]
pub(crate) async fn create(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Json(body): Json<CreateTrigger>,
) -> Result<impl IntoResponse, Problem> {
    let id = body.workflow_definition_id;
    api.store.definition(DefinitionRef::Id(id), caller.workspace).await.map_err(no_such("definition"))?;
    let trigger = api.store.trigger_of_definition(id, caller.workspace).await.map_err(|error| match error {
        store::Error::NotFound => Problem::new(
            Code::Conflict,
            "this workflow has no trigger: add `on: {http: {}}` to its definition and publish it",
        ),
        other => other.into(),
    })?;
    let token = Token::generate()?;
    api.store
        .create_trigger_token(trigger.id, caller.workspace, &token, &caller.actor)
        .await
        .map_err(no_such("trigger"))?;
    Ok((StatusCode::CREATED, Reply(created(&api, &caller, trigger.id, &token).await?)))
}

/// Lists triggers. A root key sees those of all workspaces.
#[utoipa::path(get, path = "/triggers", tag = "triggers", params(page::WorkspaceListParams),
    responses((status = 200, body = Page<Trigger>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<page::WorkspaceListParams>,
) -> Result<Reply<Page<Trigger>>, Problem> {
    let (limit, after) = params.page(page::ListKind::Triggers, page::uuid_of)?;
    let rows = api.store.triggers(caller.listed_workspace(params.workspace_id)?, after, limit + 1).await?;
    let cursor = |row: &store::trigger::Trigger| page::write(page::ListKind::Triggers, row.id.as_bytes());
    Ok(Reply(page::page(rows, limit, cursor, wire)))
}

/// Reads a trigger, without its token.
#[utoipa::path(get, path = "/triggers/{id}", tag = "triggers", params(("id" = Uuid, Path)),
    responses((status = 200, body = Trigger)))]
pub(crate) async fn get(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<Reply<Trigger>, Problem> {
    Ok(Reply(wire(api.store.trigger(id, caller.workspace).await.map_err(no_such("trigger"))?)))
}

/// Replaces the token of a trigger.
///
/// The previous token stops working immediately, or after `gracePeriodSeconds`.
#[utoipa::path(post, path = "/triggers/{id}/rotate", tag = "triggers",
    params(("id" = Uuid, Path)), request_body = Rotate,
    responses((status = 200, body = CreatedTrigger)))]
pub(crate) async fn rotate(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
    Json(body): Json<Rotate>,
) -> Result<Reply<CreatedTrigger>, Problem> {
    let grace_period = grace_period(&body, 0)?;
    let token = Token::generate()?;
    api.store
        .rotate_trigger_token(id, caller.workspace, &token, grace_period, &caller.actor)
        .await
        .map_err(no_such("trigger"))?;
    Ok(Reply(created(&api, &caller, id, &token).await?))
}

/// Revokes the tokens of a trigger: its address stops working immediately.
///
/// The trigger stays, and `rotate` gives it another token.
#[utoipa::path(post, path = "/triggers/{id}/revoke", tag = "triggers",
    params(("id" = Uuid, Path)), responses((status = 204)))]
pub(crate) async fn revoke(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<StatusCode, Problem> {
    api.store
        .revoke_trigger_token(id, caller.workspace, &caller.actor)
        .await
        .map_err(no_such("trigger with a token"))?;
    Ok(StatusCode::NO_CONTENT)
}

async fn created(api: &Api, caller: &Caller, id: Uuid, token: &Token) -> Result<CreatedTrigger, Problem> {
    let trigger = wire(api.store.trigger(id, caller.workspace).await.map_err(no_such("trigger"))?);
    let path = format!("/triggers/{}", token.expose());
    Ok(CreatedTrigger { trigger, token: token.expose().to_owned(), path })
}

fn wire(trigger: store::trigger::Trigger) -> Trigger {
    Trigger {
        id: trigger.id,
        workspace_id: trigger.workspace,
        workflow_definition_id: trigger.definition,
        workflow_name: trigger.definition_name,
        token_prefix: trigger.token_prefix,
        previous_expires_at: trigger.previous_expires_at,
        rotated_at: trigger.rotated_at,
        rule: serde_json::to_value(trigger.rule).unwrap_or_default(),
        created_at: trigger.created_at,
        updated_at: trigger.updated_at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trigger_accepts_a_limited_number_of_requests_per_minute() {
        let (rates, now) = (RateLimits::default(), Instant::now());
        let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
        for _ in 0..3 {
            assert_eq!(rates.take(one, 3, now), Ok(()));
        }
        let later = now + Duration::from_secs(20);
        assert_eq!(rates.take(one, 3, later), Err(Duration::from_secs(40)));
        assert_eq!(rates.take(two, 3, later), Ok(()), "each trigger has its own minute");
        assert_eq!(rates.take(one, 3, now + WINDOW), Ok(()));
    }
}
