//! Secrets of a workspace: set, listed by name, deleted. Nobody can read one.
//!
//! Invariants
//! - No answer holds a value, not even one that says what is wrong with it.
//! - Without a key in the settings nothing is stored, and the answer says what to set.
//!
//! Not here: sealing (`engine::vault`), using them (`engine::nodes`).

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json as Reply};
use engine::vault;
use kernel::ids::WorkspaceId;
use store::access::secret::Listed;

use super::auth::Caller;
use super::body::{Id, Json, Params};
use super::workspaces::{not_found, visible};
use super::{Api, Code, Problem, page};
use crate::wire::{Page, Secret, SetSecret};

/// Sets a secret of a workspace: its first version, or the next. Calls that begin afterwards send it.
#[utoipa::path(put, path = "/workspaces/{id}/secrets/{name}", tag = "secrets",
    params(("id" = WorkspaceId, Path), ("name" = String, Path, description = "Letters, digits and _, no digit first.")),
    request_body = SetSecret, responses((status = 200, body = Secret)))]
pub(crate) async fn set(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id((id, name)): Id<(WorkspaceId, String)>,
    Json(body): Json<SetSecret>,
) -> Result<Reply<Secret>, Problem> {
    visible(&caller, id)?;
    let set = api.vault.set(id, &name, &body.value.0, body.hosts.as_deref(), &caller.actor).await;
    set.map(|listed| Reply(wire(listed))).map_err(refused)
}

/// The secrets of a workspace by name: versions, times and who set them, never what they hold.
#[utoipa::path(get, path = "/workspaces/{id}/secrets", tag = "secrets",
    params(("id" = WorkspaceId, Path), page::Paging),
    responses((status = 200, body = Page<Secret>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<WorkspaceId>,
    Params(params): Params<page::Paging>,
) -> Result<Reply<Page<Secret>>, Problem> {
    visible(&caller, id)?;
    let (limit, after) = params.page(page::List::Secrets, page::text_of)?;
    api.store.workspace(id).await.map_err(not_found)?;
    let rows = api.store.secrets(id, after.as_deref().unwrap_or_default(), limit + 1).await?;
    let cursor = |row: &Listed| page::write(page::List::Secrets, row.name.as_bytes());
    Ok(Reply(page::page(rows, limit, cursor, wire)))
}

/// Deletes a secret: nodes that use it fail from now on.
#[utoipa::path(delete, path = "/workspaces/{id}/secrets/{name}", tag = "secrets",
    params(("id" = WorkspaceId, Path), ("name" = String, Path)), responses((status = 204)))]
pub(crate) async fn delete(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id((id, name)): Id<(WorkspaceId, String)>,
) -> Result<StatusCode, Problem> {
    visible(&caller, id)?;
    let unknown = || Problem::not_found("secret");
    if !vault::is_name(&name) {
        return Err(unknown());
    }
    match api.store.delete_secret(id, &name, &caller.actor).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(store::Error::NotFound) => Err(unknown()),
        Err(error) => Err(error.into()),
    }
}

fn refused(error: vault::Error) -> Problem {
    match error {
        vault::Error::Name => Problem::new(Code::ValidationFailed, format!("name: {error}")),
        vault::Error::Value => Problem::new(Code::ValidationFailed, format!("value: {error}")),
        vault::Error::Hosts => Problem::new(Code::ValidationFailed, error.to_string()),
        vault::Error::NoKey | vault::Error::Busy(_) => Problem::new(Code::Conflict, error.to_string()),
        vault::Error::Store(error) => not_found(error),
        vault::Error::Unknown(_)
        | vault::Error::OtherKey { .. }
        | vault::Error::Broken(_)
        | vault::Error::NoAddress => {
            tracing::error!(error = &error as &dyn std::error::Error, "A secret could not be set");
            Problem::of(Code::Internal)
        }
    }
}

fn wire(row: Listed) -> Secret {
    Secret {
        name: row.name,
        version: row.version,
        created_at: row.created_at,
        updated_at: row.updated_at,
        created_by: row.created_by,
        hosts: row.hosts,
    }
}
