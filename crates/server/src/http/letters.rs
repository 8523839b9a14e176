//! The dead letter: what failed, until somebody dismisses it.
//!
//! Not here: running it again (`rerun`).

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json as Reply};
use kernel::ids::{DefinitionId, QueueItemId, WorkspaceId};
use kernel::queue::Status;
use serde::Deserialize;
use store::letter::{Letter, Which};

use super::auth::Caller;
use super::body::{Id, Params};
use super::{Api, Code, Problem};
use crate::wire::{DeadLetter, Page};

/// The most items of one page.
const PAGE: i64 = 100;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct List {
    status: Option<Status>,
    workspace_id: Option<WorkspaceId>,
    workflow_definition_id: Option<DefinitionId>,
    after: Option<QueueItemId>,
    limit: Option<i64>,
}

/// Dead letters, the newest first; a root key sees all workspaces'.
pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<List>,
) -> Result<Reply<Page<DeadLetter>>, Problem> {
    if params.status != Some(Status::Failed) {
        let detail = "status: FAILED is the one that is listed; an item that waits or runs is found by its id";
        return Err(Problem::new(Code::ValidationFailed, detail));
    }
    let workspace = match (caller.workspace, params.workspace_id) {
        (None, None) => None,
        (_, named) => Some(caller.workspace(named)?),
    };
    let which = Which { workspace, definition: params.workflow_definition_id, before: params.after };
    let limit = params.limit.unwrap_or(PAGE).clamp(1, PAGE);
    let items: Vec<DeadLetter> = api.store.letters(which, limit).await?.into_iter().map(wire).collect();
    let full = i64::try_from(items.len()).is_ok_and(|count| count == limit);
    let next = items.last().filter(|_| full).map(|last| last.queue_id.to_string());
    Ok(Reply(Page { items, next_cursor: next }))
}

/// Takes a letter away; its execution stays as the record of it.
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
