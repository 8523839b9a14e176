//! API keys: creates, lists and revokes keys. A key is shown once; lists show only its first characters.
//!
//! Invariants
//! - A key cannot create a key with more scopes than its own, or with a later expiry. A workspace has a limited number
//!   of keys.
//! - Revoking a key also revokes every key that was created with it, directly or through other keys.
//! - A revoked key stops working in this process immediately. Another process accepts the key until its cache entry is
//!   too old (`auth::FRESH`).

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Extension, Json as Reply};
use jiff::Timestamp;
use kernel::access::{Scopes, check_expiry};
use kernel::ids::KeyId;
use kernel::workspace::check_name;
use store::access::key::{Denied, KeyCreator, KeySummary, NewKey, Secret};

use super::auth::Caller;
use super::body::{Id, Json, Params};
use super::problem::{check_field, no_such};
use super::{Api, Code, Problem, page};
use crate::wire::{ApiKey, CreateApiKey, CreatedApiKey, Page};

/// Creates a key of a workspace. The response is the only place where the key is shown.
#[utoipa::path(post, path = "/keys", tag = "keys", request_body = CreateApiKey,
    responses((status = 201, body = CreatedApiKey)))]
pub(crate) async fn create(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Json(body): Json<CreateApiKey>,
) -> Result<impl IntoResponse, Problem> {
    let workspace_id = caller.workspace(body.workspace_id)?;
    check_field("name", Some(body.name.as_str()), check_name)?;
    check_field("expiresAt", body.expires_at, |at| check_expiry(at, Timestamp::now()))?;
    let scopes = scopes(&caller, body.scopes)?;
    api.store.workspace(workspace_id).await.map_err(no_such("workspace"))?;
    let secret = Secret::generate()?;
    let new = NewKey { workspace: Some(workspace_id), name: &body.name, scopes, expires_at: body.expires_at };
    let maker =
        KeyCreator { actor: &caller.actor, key: caller.key, max_active: api.settings.auth.max_keys_per_workspace };
    let issued = api.store.issue_key(&new, &secret, &maker).await?.map_err(denied)?;
    let created = CreatedApiKey {
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

/// Lists the keys that are not revoked, with their first characters.
#[utoipa::path(get, path = "/keys", tag = "keys", params(page::WorkspaceListParams),
    responses((status = 200, body = Page<ApiKey>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<page::WorkspaceListParams>,
) -> Result<Reply<Page<ApiKey>>, Problem> {
    let workspace = caller.listed_workspace(params.workspace_id)?;
    let (limit, after) = params.page(page::ListKind::Keys, page::uuid_of)?;
    let rows = api.store.keys(workspace, after.map(KeyId), limit + 1).await?;
    let cursor = |row: &KeySummary| page::write(page::ListKind::Keys, row.id.0.as_bytes());
    Ok(Reply(page::page(rows, limit, cursor, wire)))
}

/// Revokes a key, and every key that was created with it.
///
/// Within five seconds no process accepts them.
#[utoipa::path(post, path = "/keys/{id}/revoke", tag = "keys", params(("id" = KeyId, Path)), responses((status = 204)))]
pub(crate) async fn revoke(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<KeyId>,
) -> Result<StatusCode, Problem> {
    let revoked = api.store.revoke_key(id, caller.workspace, &caller.actor).await.map_err(no_such("key"))?;
    api.keys.forget(&revoked);
    Ok(StatusCode::NO_CONTENT)
}

fn scopes(caller: &Caller, asked: Option<Vec<kernel::access::Scope>>) -> Result<Scopes, Problem> {
    let Some(asked) = asked else { return Ok(caller.scopes) };
    let asked: Scopes = asked.into_iter().collect();
    if asked.is_empty() {
        return Err(Problem::new(Code::ValidationFailed, "scopes: must have at least one of read, run and manage"));
    }
    if !caller.scopes.covers(asked) {
        return Err(Problem::new(
            Code::Forbidden,
            "scopes: a key cannot create a key with scopes that it does not have",
        ));
    }
    Ok(asked)
}

fn denied(denied: Denied) -> Problem {
    match denied {
        Denied::CreatorInactive => Problem::new(Code::Unauthenticated, "this key was revoked or has expired"),
        Denied::Outlives { limit } => Problem::new(
            Code::ValidationFailed,
            format!("expiresAt: must not be later than {limit}, when the key that creates it expires"),
        ),
        Denied::TooMany { most } => Problem::new(
            Code::Conflict,
            format!(
                "the workspace's limit of {most} active keys is reached (auth.max_keys_per_workspace): revoke one first"
            ),
        ),
    }
}

fn wire(row: KeySummary) -> ApiKey {
    ApiKey {
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
