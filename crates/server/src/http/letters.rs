//! The dead letter: what failed, until somebody dismisses it.
//!
//! Not here: running it again (`rerun`).

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json as Reply};
use kernel::ids::{DefinitionId, QueueItemId, WorkspaceId};
use kernel::queue::Status;
use store::queue::dead_letter::{Letter, Which};

use super::auth::Caller;
use super::body::{Id, Params};
use super::page::list_params;
use super::{Api, Code, Problem, page};
use crate::wire::{DeadLetter, Page};

list_params! {
    pub(crate) struct List {
        /// FAILED, the one that is listed: an item that waits or runs is found by its id.
        #[param(required = true)]
        status: Option<Status>,
        /// With a root key, only those of this workspace.
        workspace_id: Option<WorkspaceId>,
        /// Only those of this definition.
        workflow_definition_id: Option<DefinitionId>,
    }
}

/// The dead letter: what failed, the newest first; a root key sees all workspaces'.
#[utoipa::path(get, path = "/workflow/queue", tag = "queue", params(List),
    responses((status = 200, body = Page<DeadLetter>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<List>,
) -> Result<Reply<Page<DeadLetter>>, Problem> {
    if params.status != Some(Status::Failed) {
        let detail = "status: FAILED is the one that is listed; an item that waits or runs is found by its id";
        return Err(Problem::new(Code::ValidationFailed, detail));
    }
    let (limit, before) = params.page(page::List::Letters, page::uuid_of)?;
    let before = before.map(QueueItemId);
    let workspace = caller.sees(params.workspace_id)?;
    let which = Which { workspace, definition: params.workflow_definition_id, before };
    let rows = api.store.letters(which, limit + 1).await?;
    let cursor = |row: &Letter| page::write(page::List::Letters, row.item.0.as_bytes());
    Ok(Reply(page::page(rows, limit, cursor, wire)))
}

/// Takes a letter away; its execution stays as the record of it.
#[utoipa::path(post, path = "/workflow/queue/{id}/dismiss", tag = "queue", params(("id" = QueueItemId, Path)),
    responses((status = 204)))]
pub(crate) async fn dismiss(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<QueueItemId>,
) -> Result<StatusCode, Problem> {
    let unknown = |error| match error {
        store::Error::NotFound => Problem::not_found("dead letter"),
        other => Problem::from(other),
    };
    let workspace = match caller.workspace {
        Some(workspace) => workspace,
        None => api.store.ticket(id).await?.ok_or_else(|| Problem::not_found("dead letter"))?.workspace,
    };
    api.store.dismiss(id, workspace, &caller.actor).await.map_err(unknown)?;
    Ok(StatusCode::NO_CONTENT)
}

fn wire(letter: Letter) -> DeadLetter {
    DeadLetter {
        queue_id: letter.item,
        execution_id: letter.item.execution(),
        workspace_id: letter.workspace,
        workflow_definition_id: letter.definition,
        workflow_name: letter.definition_name,
        execution_status: letter.execution_status,
        attempts: letter.attempts,
        last_error: letter.last_error,
        error: letter.error,
        created_at: letter.created_at,
        failed_at: letter.failed_at,
    }
}
