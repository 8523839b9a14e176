//! API keys: made here, shown once, listed by how they begin, revoked.
//!
//! Invariants
//! - No key makes one with more scopes than its own, nor one that works longer. A workspace has a bounded number.
//! - A key is revoked together with every key that it made, and that those made.
//! - A revoked key stops working here at once, elsewhere as soon as it is looked up again (`auth::FRESH`).

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Extension, Json as Reply};
use jiff::Timestamp;
use kernel::access::Scopes;
use kernel::ids::KeyId;
use store::access::key::{Denied, Listed, Maker, NewKey, Secret};

use super::auth::Caller;
use super::body::{Id, Json, Params};
use super::workspaces::{check_name, not_found};
use super::{Api, Code, Problem, page};
use crate::wire::{CreateKey, CreatedKey, Key, Page};

/// The year 9999 in seconds: later times cannot be written.
const LATEST: i64 = 253_370_764_800;

/// Makes a key of a workspace. The answer is the only place where the key itself is ever shown.
#[utoipa::path(post, path = "/keys", tag = "keys", request_body = CreateKey,
    responses((status = 201, body = CreatedKey)))]
pub(crate) async fn create(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Json(body): Json<CreateKey>,
) -> Result<impl IntoResponse, Problem> {
    let workspace_id = caller.workspace(body.workspace_id)?;
    check_name(&body.name)?;
    check_expiry(body.expires_at)?;
    let scopes = scopes(&caller, body.scopes)?;
    api.store.workspace(workspace_id).await.map_err(not_found)?;
    let secret = Secret::generate()?;
    let new = NewKey { workspace: Some(workspace_id), name: &body.name, scopes, expires_at: body.expires_at };
    let maker = Maker { actor: &caller.actor, key: caller.key, max_live: api.settings.auth.max_keys_per_workspace };
    let issued = api.store.issue_key(&new, &secret, &maker).await?.map_err(denied)?;
    let created = CreatedKey {
        id: issued.id,
        name: body.name,
        workspace_id,
        scopes: scopes.list(),
        created_by: caller.actor,
        expires_at: issued.expires_at,
        key: secret.expose().to_owned(),
    };
    Ok((StatusCode::CREATED, Reply(created)))
}

/// The keys that were not revoked, by how they begin.
#[utoipa::path(get, path = "/keys", tag = "keys", params(page::OfWorkspace),
    responses((status = 200, body = Page<Key>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<page::OfWorkspace>,
) -> Result<Reply<Page<Key>>, Problem> {
    let workspace = caller.sees(params.workspace_id)?;
    let (limit, after) = params.page(page::List::Keys, page::uuid_of)?;
    let rows = api.store.keys(workspace, after.map(KeyId), limit + 1).await?;
    let cursor = |row: &Listed| page::write(page::List::Keys, row.id.0.as_bytes());
    Ok(Reply(page::page(rows, limit, cursor, wire)))
}

/// Revokes a key, and every key that was made with it: within five seconds no process takes them any more.
#[utoipa::path(delete, path = "/keys/{id}", tag = "keys", params(("id" = KeyId, Path)), responses((status = 204)))]
pub(crate) async fn revoke(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<KeyId>,
) -> Result<StatusCode, Problem> {
    let revoked = api.store.revoke_key(id, caller.workspace, &caller.actor).await.map_err(|error| match error {
        store::Error::NotFound => Problem::not_found("key"),
        other => other.into(),
    })?;
    api.keys.forget(&revoked);
    Ok(StatusCode::NO_CONTENT)
}

fn scopes(caller: &Caller, asked: Option<Vec<kernel::access::Scope>>) -> Result<Scopes, Problem> {
    let Some(asked) = asked else { return Ok(caller.scopes) };
    let asked: Scopes = asked.into_iter().collect();
    if asked.is_empty() {
        return Err(Problem::new(Code::ValidationFailed, "scopes: one at least of read, run and manage"));
    }
    if !caller.scopes.cover(asked) {
        return Err(Problem::new(Code::Forbidden, "a key cannot give scopes that it has not itself"));
    }
    Ok(asked)
}

fn denied(denied: Denied) -> Problem {
    match denied {
        Denied::MakerGone => Problem::new(Code::Unauthenticated, "this key was revoked or has expired"),
        Denied::Outlives { limit } => Problem::new(
            Code::ValidationFailed,
            format!("expiresAt: a key works no longer than the one that makes it, which expires at {limit}"),
        ),
        Denied::TooMany { most } => Problem::new(
            Code::Conflict,
            format!("this workspace has {most} keys that work (auth.max_keys_per_workspace): revoke one first"),
        ),
    }
}

fn check_expiry(at: Option<Timestamp>) -> Result<(), Problem> {
    match at {
        Some(at) if at <= Timestamp::now() || at.as_second() >= LATEST => {
            Err(Problem::new(Code::ValidationFailed, "expiresAt: a time to come, before the year 9999"))
        }
        _ => Ok(()),
    }
}

fn wire(row: Listed) -> Key {
    Key {
        id: row.id,
        name: row.name,
        workspace_id: row.workspace,
        prefix: row.prefix,
        scopes: row.scopes.list(),
        created_at: row.created_at,
        created_by: row.created_by,
        expires_at: row.expires_at,
        last_used_at: row.last_used_at,
    }
}
