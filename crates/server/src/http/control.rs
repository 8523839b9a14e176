//! Control: pausing, resuming and deleting workspaces and definitions, and ending executions by force.
//!
//! Invariants
//! - What is asked for twice is done once and answered alike; each change has its audit row.
//! - A tenant cannot undo what the operator decided of its workspace: that takes a root key.
//!
//! Not here: carrying a deletion through (`queue::promote`), asking an execution to end (`executions`).

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Extension, Json as Reply};
use kernel::execution::Status;
use kernel::ids::{DefinitionId, ExecutionId, WorkspaceId};
use store::queue::claim::Gate;
use store::queue::control::Terminated;

use super::auth::Caller;
use super::body::Id;
use super::{Api, Code, Problem, definitions, executions, workspaces};
use crate::queue::strays;
use crate::wire;

/// Starts nothing of a workspace any more; what runs goes on. Needs a root key.
#[utoipa::path(post, path = "/workspaces/{id}/pause", tag = "workspaces", operation_id = "pause",
    params(("id" = WorkspaceId, Path)), responses((status = 200, body = wire::Workspace)))]
pub(crate) async fn pause_workspace(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<WorkspaceId>,
) -> Result<Reply<wire::Workspace>, Problem> {
    set_workspace(&api, &caller, id, true).await
}

/// Starts what waits again, within the limit. Needs a root key.
#[utoipa::path(post, path = "/workspaces/{id}/resume", tag = "workspaces", operation_id = "resume",
    params(("id" = WorkspaceId, Path)), responses((status = 200, body = wire::Workspace)))]
pub(crate) async fn resume_workspace(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<WorkspaceId>,
) -> Result<Reply<wire::Workspace>, Problem> {
    set_workspace(&api, &caller, id, false).await
}

async fn set_workspace(
    api: &Api,
    caller: &Caller,
    id: WorkspaceId,
    paused: bool,
) -> Result<Reply<wire::Workspace>, Problem> {
    workspaces::visible(caller, id)?;
    caller.root()?;
    api.store.pause_workspace(id, paused, &caller.actor).await.map_err(workspaces::not_found)?;
    if !paused {
        api.hints.ready(id);
    }
    Ok(Reply(workspaces::wire(api.store.workspace(id).await.map_err(workspaces::not_found)?)))
}

/// Deletes a workspace: its keys stop working, what waits fails, what runs is canceled. Needs a root key.
#[utoipa::path(delete, path = "/workspaces/{id}", tag = "workspaces", operation_id = "delete",
    params(("id" = WorkspaceId, Path)), responses((status = 204)))]
pub(crate) async fn delete_workspace(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<WorkspaceId>,
) -> Result<StatusCode, Problem> {
    workspaces::visible(&caller, id)?;
    caller.root()?;
    api.store.delete_workspace(id, &caller.actor).await.map_err(workspaces::not_found)?;
    api.wakes.all.notify_waiters();
    Ok(StatusCode::NO_CONTENT)
}

/// Starts nothing of a definition any more: starts are taken and wait; what runs goes on.
#[utoipa::path(post, path = "/workflow/definitions/{id}/pause", tag = "definitions", operation_id = "pause",
    params(("id" = DefinitionId, Path)), responses((status = 200, body = wire::Definition)))]
pub(crate) async fn pause_definition(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<DefinitionId>,
) -> Result<Reply<wire::Definition>, Problem> {
    let known = set_definition(&api, &caller, id, true).await?;
    Ok(Reply(known))
}

/// Starts what waits of a definition again, within its limits.
#[utoipa::path(post, path = "/workflow/definitions/{id}/resume", tag = "definitions", operation_id = "resume",
    params(("id" = DefinitionId, Path)), responses((status = 200, body = wire::Definition)))]
pub(crate) async fn resume_definition(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<DefinitionId>,
) -> Result<Reply<wire::Definition>, Problem> {
    let known = set_definition(&api, &caller, id, false).await?;
    // What waits behind its gate, as far as it has room; each end lets more through.
    let gate = Gate { workspace: known.workspace_id, definition: id, key: None };
    api.store.open(&[gate]).await?;
    api.hints.ready(known.workspace_id);
    Ok(Reply(known))
}

async fn set_definition(
    api: &Api,
    caller: &Caller,
    id: DefinitionId,
    paused: bool,
) -> Result<wire::Definition, Problem> {
    let known = definitions::find(api, caller, id).await?;
    api.store.pause_definition(known.workspace, id, paused, &caller.actor).await.map_err(|error| match error {
        store::Error::NotFound => Problem::not_found("definition"),
        store::Error::Conflict(_) => Problem::of(Code::DefinitionNotPublished),
        other => other.into(),
    })?;
    Ok(definitions::wire(definitions::find(api, caller, id).await?))
}

/// Deletes a definition: what waits fails, what runs goes on, and its executions stay.
#[utoipa::path(delete, path = "/workflow/definitions/{id}", tag = "definitions", operation_id = "delete",
    params(("id" = DefinitionId, Path)), responses((status = 204)))]
pub(crate) async fn delete_definition(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<DefinitionId>,
) -> Result<StatusCode, Problem> {
    let known = definitions::find(&api, &caller, id).await?;
    api.store.delete_definition(known.workspace, id, &caller.actor).await.map_err(|error| match error {
        store::Error::NotFound => Problem::not_found("definition"),
        other => other.into(),
    })?;
    api.wakes.all.notify_waiters();
    Ok(StatusCode::NO_CONTENT)
}

/// Ends an execution by force: its nodes are broken off, and nothing of it is stored any more.
#[utoipa::path(post, path = "/workflow/executions/{id}/terminate", tag = "executions",
    params(("id" = ExecutionId, Path)),
    responses((status = 200, body = wire::Canceled),
    (status = 202, body = wire::Canceled, description = "It is being broken off.")))]
pub(crate) async fn terminate(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<ExecutionId>,
) -> Result<impl IntoResponse, Problem> {
    let execution = executions::find(&api, &caller, id).await?;
    let status = match api.store.terminate(id, execution.workspace, &caller.actor).await? {
        Terminated::AtOnce(ended) => {
            if ended.freed {
                api.hints.ready(ended.workspace);
            }
            api.waiters.wake(id);
            Status::Canceled
        }
        Terminated::Fenced(_) if api.engine.foreign.trouble_of(execution.engine.as_deref()).is_some() => {
            // It is fenced off, and its engine is not there to confirm that it is over.
            let ending = strays::terminated(id);
            for ended in api.store.complete(&[ending], Some(Status::Running), &caller.actor).await? {
                if ended.freed {
                    api.hints.ready(ended.workspace);
                }
            }
            api.waiters.wake(id);
            Status::Canceled
        }
        Terminated::Fenced(_) => {
            if let Some(engine) = &api.engine.told {
                engine.terminate(id);
            }
            Status::Running
        }
        Terminated::AlreadyEnded => executions::find(&api, &caller, id).await?.status,
    };
    let answer = wire::Canceled { execution_id: id, status };
    Ok((if status == Status::Running { StatusCode::ACCEPTED } else { StatusCode::OK }, Reply(answer)))
}
