//! Secrets of a workspace: sets, lists and deletes secrets. No request can read the value of a secret.
//!
//! Invariants
//! - No response contains the value of a secret, not even an error about an invalid value.
//! - If the settings have no encryption key, a request to set a secret is refused, and the error names the setting.
//!
//! Not here: encryption (`engine::vault`), the use of secrets in nodes (`engine::nodes`).

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json as Reply};
use engine::vault;
use kernel::ids::WorkspaceId;
use store::access::secret::SecretSummary;

use super::auth::Caller;
use super::body::{Id, Json, Params};
use super::problem::no_such;
use super::workspaces::visible;
use super::{Api, Code, Problem, page};
use crate::wire::{Page, Secret, SetSecret};

/// Sets a secret of a workspace: creates it, or adds a version. Later calls of nodes use the new value.
#[utoipa::path(put, path = "/workspaces/{id}/secrets/{name}", tag = "secrets",
    params(("id" = WorkspaceId, Path), ("name" = String, Path, description = "Letters, digits and _, not beginning \
         with a digit.")),
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

/// Lists the secrets of a workspace by name, without their values.
#[utoipa::path(get, path = "/workspaces/{id}/secrets", tag = "secrets",
    params(("id" = WorkspaceId, Path), page::PageParams),
    responses((status = 200, body = Page<Secret>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<WorkspaceId>,
    Params(params): Params<page::PageParams>,
) -> Result<Reply<Page<Secret>>, Problem> {
    visible(&caller, id)?;
    let (limit, after) = params.page(page::ListKind::Secrets, page::text_of)?;
    api.store.workspace(id).await.map_err(no_such("workspace"))?;
    let rows = api.store.secrets(id, after.as_deref().unwrap_or_default(), limit + 1).await?;
    let cursor = |row: &SecretSummary| page::write(page::ListKind::Secrets, row.name.as_bytes());
    Ok(Reply(page::page(rows, limit, cursor, wire)))
}

/// Deletes a secret. Nodes that use it fail from then on.
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
        vault::Error::InvalidName => Problem::new(Code::ValidationFailed, format!("name: {error}")),
        vault::Error::InvalidValue => Problem::new(Code::ValidationFailed, format!("value: {error}")),
        vault::Error::InvalidHosts => Problem::new(Code::ValidationFailed, error.to_string()),
        vault::Error::NoKey | vault::Error::SetConcurrently(_) => Problem::new(Code::Conflict, error.to_string()),
        vault::Error::Store(error) => no_such("workspace")(error),
        vault::Error::UnknownSecret(_)
        | vault::Error::UnknownKey { .. }
        | vault::Error::CannotDecrypt(_)
        | vault::Error::NoPublicUrl => {
            tracing::error!(error = &error as &dyn std::error::Error, "Secret could not be stored");
            Problem::of(Code::Internal)
        }
    }
}

fn wire(row: SecretSummary) -> Secret {
    Secret {
        name: row.name,
        version: row.version,
        created_at: row.created_at,
        updated_at: row.updated_at,
        created_by: row.created_by,
        hosts: row.hosts,
    }
}
