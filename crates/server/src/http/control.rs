//! Control: pausing, resuming and deleting workspaces and definitions, and ending executions by force.
//!
//! Invariants
//! - The same request sent twice changes the state once and gets the same response twice. Each change is in the
//!   activity log.
//! - Only a root key pauses, resumes or deletes a workspace, so a tenant cannot undo a decision of the operator.
//!
//! Not here: completing a deletion (`queue::promote`), canceling an execution (`executions`).

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Extension, Json as Reply};
use kernel::execution::Status;
use kernel::ids::{DefinitionId, ExecutionId, WorkspaceId};
use store::queue::claim::BlockingLimit;
use store::queue::control::Terminated;

use super::auth::Caller;
use super::body::Id;
use super::problem::no_such;
use super::{Api, Code, Problem, definitions, executions, workspaces};
use crate::queue::strays;
use crate::wire;

/// Pauses a workspace: no execution starts; running ones continue. Needs a root key.
#[utoipa::path(post, path = "/workspaces/{id}/pause", tag = "workspaces", operation_id = "pause",
    params(("id" = WorkspaceId, Path)), responses((status = 200, body = wire::Workspace)))]
pub(crate) async fn pause_workspace(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<WorkspaceId>,
) -> Result<Reply<wire::Workspace>, Problem> {
    set_workspace(&api, &caller, id, true).await
}

/// Resumes a workspace: waiting executions start again, within its limit. Needs a root key.
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
    caller.require_root()?;
    api.store.pause_workspace(id, paused, &caller.actor).await.map_err(no_such("workspace"))?;
    if !paused {
        api.notifier.notify_ready(id);
    }
    Ok(Reply(workspaces::wire(api.store.workspace(id).await.map_err(no_such("workspace"))?)))
}

/// Deletes a workspace. Needs a root key.
///
/// Its keys stop working, waiting executions fail, and running ones are canceled.
#[utoipa::path(delete, path = "/workspaces/{id}", tag = "workspaces", operation_id = "delete",
    params(("id" = WorkspaceId, Path)), responses((status = 204)))]
pub(crate) async fn delete_workspace(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<WorkspaceId>,
) -> Result<StatusCode, Problem> {
    workspaces::visible(&caller, id)?;
    caller.require_root()?;
    api.store.delete_workspace(id, &caller.actor).await.map_err(no_such("workspace"))?;
    api.wakeups.all.notify_waiters();
    Ok(StatusCode::NO_CONTENT)
}

/// Pauses a definition: starts are accepted and wait; running executions continue.
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

/// Resumes a definition: its waiting executions start again, within its limits.
#[utoipa::path(post, path = "/workflow/definitions/{id}/resume", tag = "definitions", operation_id = "resume",
    params(("id" = DefinitionId, Path)), responses((status = 200, body = wire::Definition)))]
pub(crate) async fn resume_definition(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<DefinitionId>,
) -> Result<Reply<wire::Definition>, Problem> {
    let known = set_definition(&api, &caller, id, false).await?;
    // Unblocks as many waiting items as the limit of the definition allows. Each execution that ends unblocks another.
    let limit = BlockingLimit { workspace: known.workspace_id, definition: id, key: None };
    api.store.unblock(&[limit]).await?;
    api.notifier.notify_ready(known.workspace_id);
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

/// Deletes a definition. Its waiting executions fail, running ones continue, and all of them stay readable.
#[utoipa::path(delete, path = "/workflow/definitions/{id}", tag = "definitions", operation_id = "delete",
    params(("id" = DefinitionId, Path)), responses((status = 204)))]
pub(crate) async fn delete_definition(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<DefinitionId>,
) -> Result<StatusCode, Problem> {
    let known = definitions::find(&api, &caller, id).await?;
    api.store.delete_definition(known.workspace, id, &caller.actor).await.map_err(no_such("definition"))?;
    api.wakeups.all.notify_waiters();
    Ok(StatusCode::NO_CONTENT)
}

/// Terminates an execution: stops its nodes without waiting for them, and discards their results.
#[utoipa::path(post, path = "/workflow/executions/{id}/terminate", tag = "executions",
    params(("id" = ExecutionId, Path)),
    responses((status = 200, body = wire::CanceledExecution),
    (status = 202, body = wire::CanceledExecution, description = "The execution is running and is being terminated.")))]
pub(crate) async fn terminate(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<ExecutionId>,
) -> Result<impl IntoResponse, Problem> {
    let execution = executions::find(&api, &caller, id).await?;
    let status = match api.store.terminate(id, execution.workspace, &caller.actor).await? {
        Terminated::AtOnce(ended) => {
            if ended.freed {
                api.notifier.notify_ready(ended.workspace);
            }
            api.waiters.wake(id);
            Status::Canceled
        }
        Terminated::Fenced(_) if api.engine.other_engine_runs.problem_of(execution.engine.as_deref()).is_some() => {
            // This process has no connection to the engine of the execution, so it cannot wait until the run ended.
            // The run can store no more results, so the execution ends without a confirmation.
            let ending = strays::terminated_ending(id);
            for ended in api.store.complete(&[ending], Some(Status::Running), &caller.actor).await? {
                if ended.freed {
                    api.notifier.notify_ready(ended.workspace);
                }
            }
            api.waiters.wake(id);
            Status::Canceled
        }
        Terminated::Fenced(_) => {
            if let Some(engine) = &api.engine.control {
                engine.terminate(id);
            }
            Status::Running
        }
        Terminated::AlreadyEnded => executions::find(&api, &caller, id).await?.status,
    };
    let answer = wire::CanceledExecution { execution_id: id, status };
    Ok((if status == Status::Running { StatusCode::ACCEPTED } else { StatusCode::OK }, Reply(answer)))
}
