//! Hooks: the addresses that start workflows, their tokens, and how many requests each takes.
//!
//! Invariants
//! - A token is shown by the answer that makes it, and by no other.
//! - A hook is made by publishing `on: webhook`; requests only make, replace and revoke its token.
//!
//! Not here: taking a request (`hooks::receive`), what goes out (`webhooks`).

pub(super) mod receive;

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Extension, Json as Reply};
use store::definition::Which;
use store::webhook::hook::Token;
use uuid::Uuid;

use super::auth::Caller;
use super::body::{Id, Json, Params};
use super::webhooks::overlap;
use super::{Api, Code, Problem, page};
use crate::wire::{CreateHook, CreatedHook, Hook, Page, Rotate};

/// What requests are counted in.
const WINDOW: Duration = Duration::from_secs(60);
/// The most hooks remembered at once.
const REMEMBERED: usize = 10_000;

/// How many requests each hook took in its current minute, in this process.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    windows: Mutex<BTreeMap<Uuid, (Instant, u32)>>,
}

impl Rates {
    /// Counts a request, or says how long to wait.
    pub(super) fn take(&self, hook: Uuid, most: u32, now: Instant) -> Result<(), Duration> {
        let mut windows = self.windows.lock();
        if windows.len() >= REMEMBERED {
            windows.retain(|_, (began, _)| now.duration_since(*began) < WINDOW);
        }
        let (began, count) = windows.entry(hook).or_insert((now, 0));
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

/// Makes the token of a workflow's hook. The answer holds it, this once.
#[utoipa::path(post, path = "/hooks", tag = "hooks", request_body = CreateHook,
    responses((status = 201, body = CreatedHook)))]
pub(crate) async fn create(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Json(body): Json<CreateHook>,
) -> Result<impl IntoResponse, Problem> {
    let id = body.workflow_definition_id;
    api.store.definition(Which::Id(id), caller.workspace).await.map_err(|error| match error {
        store::Error::NotFound => Problem::not_found("definition"),
        other => other.into(),
    })?;
    let hook = api.store.hook_of(id, caller.workspace).await.map_err(|error| match error {
        store::Error::NotFound => {
            Problem::new(Code::Conflict, "this workflow takes no webhook: write `on: {webhook: {}}` and publish it")
        }
        other => other.into(),
    })?;
    let token = Token::generate()?;
    api.store.give_token(hook.id, caller.workspace, &token, &caller.actor).await.map_err(unknown)?;
    Ok((StatusCode::CREATED, Reply(created(&api, &caller, hook.id, &token).await?)))
}

/// Hooks; with a root key of all workspaces.
#[utoipa::path(get, path = "/hooks", tag = "hooks", params(page::OfWorkspace),
    responses((status = 200, body = Page<Hook>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<page::OfWorkspace>,
) -> Result<Reply<Page<Hook>>, Problem> {
    let (limit, after) = params.page(page::List::Hooks, page::uuid_of)?;
    let rows = api.store.hooks(caller.sees(params.workspace_id)?, after, limit + 1).await?;
    let cursor = |row: &store::webhook::hook::Hook| page::write(page::List::Hooks, row.id.as_bytes());
    Ok(Reply(page::page(rows, limit, cursor, wire)))
}

/// One hook, without its token.
#[utoipa::path(get, path = "/hooks/{id}", tag = "hooks", params(("id" = Uuid, Path)),
    responses((status = 200, body = Hook)))]
pub(crate) async fn get(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<Reply<Hook>, Problem> {
    Ok(Reply(wire(api.store.hook(id, caller.workspace).await.map_err(unknown)?)))
}

/// Another token. The one before opens no more, or for as long as the overlap says.
#[utoipa::path(post, path = "/hooks/{id}/rotate", tag = "hooks", params(("id" = Uuid, Path)), request_body = Rotate,
    responses((status = 200, body = CreatedHook)))]
pub(crate) async fn rotate(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
    Json(body): Json<Rotate>,
) -> Result<Reply<CreatedHook>, Problem> {
    let overlap = overlap(&body, 0)?;
    let token = Token::generate()?;
    api.store.rotate_token(id, caller.workspace, &token, overlap, &caller.actor).await.map_err(unknown)?;
    Ok(Reply(created(&api, &caller, id, &token).await?))
}

/// Revokes a hook's tokens, at once. The hook stays, and may be given another.
#[utoipa::path(delete, path = "/hooks/{id}", tag = "hooks", params(("id" = Uuid, Path)), responses((status = 204)))]
pub(crate) async fn revoke(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<Uuid>,
) -> Result<StatusCode, Problem> {
    api.store.revoke_token(id, caller.workspace, &caller.actor).await.map_err(|error| match error {
        store::Error::NotFound => Problem::not_found("hook with a token"),
        other => other.into(),
    })?;
    Ok(StatusCode::NO_CONTENT)
}

async fn created(api: &Api, caller: &Caller, id: Uuid, token: &Token) -> Result<CreatedHook, Problem> {
    let hook = wire(api.store.hook(id, caller.workspace).await.map_err(unknown)?);
    let path = format!("/hooks/{}", token.expose());
    Ok(CreatedHook { hook, token: token.expose().to_owned(), path })
}

fn unknown(error: store::Error) -> Problem {
    match error {
        store::Error::NotFound => Problem::not_found("hook"),
        other => other.into(),
    }
}

fn wire(hook: store::webhook::hook::Hook) -> Hook {
    Hook {
        id: hook.id,
        workspace_id: hook.workspace,
        workflow_definition_id: hook.definition,
        workflow_name: hook.definition_name,
        token_prefix: hook.token_prefix,
        previous_until: hook.previous_until,
        rotated_at: hook.rotated_at,
        rule: serde_json::to_value(hook.rule).unwrap_or_default(),
        created_at: hook.created_at,
        updated_at: hook.updated_at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_taken_a_minute_of_each_hook() {
        let (rates, now) = (Rates::default(), Instant::now());
        let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
        for _ in 0..3 {
            assert_eq!(rates.take(one, 3, now), Ok(()));
        }
        let later = now + Duration::from_secs(20);
        assert_eq!(rates.take(one, 3, later), Err(Duration::from_secs(40)));
        assert_eq!(rates.take(two, 3, later), Ok(()), "another's minute is its own");
        assert_eq!(rates.take(one, 3, now + WINDOW), Ok(()));
    }
}
