//! One queue item: where it stands, and why it waits.

use axum::extract::State;
use axum::{Extension, Json as Reply};
use kernel::explain;
use kernel::ids::QueueItemId;
use kernel::queue::Status;

use super::auth::Caller;
use super::body::Id;
use super::{Api, Problem};
use crate::wire::{QueueItem, WaitingReason};

/// The ticket if there still is one; after its end the execution answers.
#[utoipa::path(get, path = "/workflow/queue/{id}", tag = "queue", params(("id" = QueueItemId, Path)),
    responses((status = 200, body = QueueItem)))]
pub(crate) async fn get(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<QueueItemId>,
) -> Result<Reply<QueueItem>, Problem> {
    let execution = api.store.execution(id.execution(), caller.workspace).await.map_err(|error| match error {
        store::Error::NotFound => Problem::not_found("queue item"),
        other => other.into(),
    })?;
    let mut item = QueueItem {
        queue_id: id,
        execution_id: execution.id,
        workspace_id: execution.workspace,
        workflow_definition_id: execution.definition,
        status: Status::Gone,
        execution_status: execution.status,
        position: None,
        waiting: None,
        priority: execution.priority,
        attempts: 0,
        last_error: None,
        created_at: execution.created_at,
        claimed_at: None,
        dispatched_at: None,
    };
    if let Some(ticket) = api.store.ticket(id).await? {
        let mut facts = ticket.facts;
        facts.begun = execution.started_at.is_some();
        facts.engine = api.engine_state();
        facts.stuck = api.findings.stuck(execution.id);
        item.status = facts.status;
        item.position = explain::position(&facts);
        item.waiting = explain::explain(&facts).map(|reason| WaitingReason { message: reason.message(), reason });
        item.attempts = facts.attempts;
        item.last_error = facts.last_error;
        item.claimed_at = ticket.claimed_at;
        item.dispatched_at = ticket.dispatched_at;
    }
    Ok(Reply(item))
}
