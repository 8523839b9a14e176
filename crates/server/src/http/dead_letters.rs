//! Dead letters: queue items that failed and wait for a person. Lists and dismisses dead letters.
//!
//! Not here: running the execution of a dead letter again (`rerun`).

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json as Reply};
use kernel::ids::{DefinitionId, QueueItemId, WorkspaceId};
use kernel::queue::Status;
use store::queue::dead_letter::{self, DeadLetterFilter};

use super::auth::Caller;
use super::body::{Id, Params};
use super::page::list_params;
use super::problem::no_such;
use super::{Api, Code, Problem, page};
use crate::wire::{DeadLetter, Page};

list_params! {
    pub(crate) struct ListDeadLettersParams {
        /// Must be `FAILED`, because only dead letters are listed. Read any other queue item by its id.
        #[param(required = true)]
        status: Option<Status>,
        /// With a root key: list only this workspace. Default: all workspaces.
        workspace_id: Option<WorkspaceId>,
        /// List only dead letters of this definition.
        workflow_definition_id: Option<DefinitionId>,
    }
}

/// Lists dead letters: queue items that failed, the newest first. A root key sees those of all workspaces.
#[utoipa::path(get, path = "/workflow/queue", tag = "queue", params(ListDeadLettersParams),
    responses((status = 200, body = Page<DeadLetter>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<ListDeadLettersParams>,
) -> Result<Reply<Page<DeadLetter>>, Problem> {
    if params.status != Some(Status::Failed) {
        let detail = "status: must be FAILED, because only dead letters are listed; read another queue item by its id";
        return Err(Problem::new(Code::ValidationFailed, detail));
    }
    let (limit, before) = params.page(page::ListKind::DeadLetters, page::uuid_of)?;
    let before = before.map(QueueItemId);
    let workspace = caller.listed_workspace(params.workspace_id)?;
    let filter = DeadLetterFilter { workspace, definition: params.workflow_definition_id, before };
    let rows = api.store.dead_letters(filter, limit + 1).await?;
    let cursor = |row: &dead_letter::DeadLetter| page::write(page::ListKind::DeadLetters, row.item.0.as_bytes());
    Ok(Reply(page::page(rows, limit, cursor, wire)))
}

/// Dismisses a dead letter. Its execution stays readable.
#[utoipa::path(post, path = "/workflow/queue/{id}/dismiss", tag = "queue", params(("id" = QueueItemId, Path)),
    responses((status = 204)))]
pub(crate) async fn dismiss(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<QueueItemId>,
) -> Result<StatusCode, Problem> {
    let workspace = match caller.workspace {
        Some(workspace) => workspace,
        None => api.store.queue_item(id).await?.ok_or_else(|| Problem::not_found("dead letter"))?.workspace,
    };
    api.store.dismiss(id, workspace, &caller.actor).await.map_err(no_such("dead letter"))?;
    Ok(StatusCode::NO_CONTENT)
}

fn wire(dead_letter: dead_letter::DeadLetter) -> DeadLetter {
    DeadLetter {
        queue_id: dead_letter.item,
        execution_id: dead_letter.item.execution(),
        workspace_id: dead_letter.workspace,
        workflow_definition_id: dead_letter.definition,
        workflow_name: dead_letter.definition_name,
        execution_status: dead_letter.execution_status,
        attempts: dead_letter.attempts,
        last_error: dead_letter.last_error,
        error: dead_letter.error,
        created_at: dead_letter.created_at,
        failed_at: dead_letter.failed_at,
    }
}
