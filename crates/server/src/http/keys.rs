//! API keys: made here, shown once.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Extension, Json as Reply};
use store::key::Secret;

use super::auth::Caller;
use super::body::Json;
use super::workspaces::{check_name, not_found};
use super::{Api, Problem};
use crate::wire::{CreateKey, CreatedKey};

pub(crate) async fn create(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Json(body): Json<CreateKey>,
) -> Result<impl IntoResponse, Problem> {
    let workspace_id = caller.workspace(body.workspace_id)?;
    check_name(&body.name)?;
    api.store.workspace(workspace_id).await.map_err(not_found)?;
    let secret = Secret::generate()?;
    let id = api.store.create_key(Some(workspace_id), &body.name, &secret, &caller.actor).await?;
    let created = CreatedKey { id, name: body.name, workspace_id, key: secret.expose().to_owned() };
    Ok((StatusCode::CREATED, Reply(created)))
}
