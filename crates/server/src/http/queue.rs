//! One queue item: where it stands, and why it waits.
//!
//! Invariants
//! - Whether an engine elsewhere goes on with a run is asked of that engine itself, so that every process tells the
//!   same; not before its time, of a bounded number at once, and an answer that does not come is not waited for.

use std::time::Duration;

use axum::extract::State;
use axum::{Extension, Json as Reply};
use engine::Described;
use jiff::Timestamp;
use kernel::ids::QueueItemId;
use kernel::queue::Status;
use kernel::queue::explain::{self, EngineState, Stuck};

use store::queue::Ticket;

use super::auth::Caller;
use super::body::Id;
use super::{Api, ApiParts, Problem};
use crate::config::ms;
use crate::process::lease;
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
        let mut facts = ticket.facts.clone();
        facts.begun = execution.started_at.is_some();
        facts.engine = api.dispatch_state().await;
        facts.stuck = match api.engine.foreign.trouble_of(execution.engine.as_deref()) {
            Some(trouble) => Some(Stuck::Idle(trouble)),
            None => stuck(&api, &ticket).await,
        };
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

impl ApiParts {
    /// What the engine can do; and, with one dispatcher at a time, whether there is one.
    pub(crate) async fn dispatch_state(&self) -> EngineState {
        let state = self.engine_state();
        let dispatch = &self.settings.dispatch;
        if !dispatch.exclusive || matches!(state, EngineState::Off | EngineState::Unavailable { .. }) {
            return state;
        }
        let dead_after = ms(self.settings.process.claims_after_ms);
        match self.store.lease_holder(lease::DISPATCH, dead_after).await {
            Ok(held_by) => match lease::trouble(held_by.as_ref()) {
                Some(error) => EngineState::NoDispatcher { error },
                None => state,
            },
            Err(_) => state,
        }
    }
}

/// How long an engine may take to say how a run is doing.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// Why an engine elsewhere does not go on with a run that it was handed a while ago, if it does not.
async fn stuck(api: &Api, ticket: &Ticket) -> Option<Stuck> {
    let engine = api.engine.told.as_ref().filter(|engine| engine.place().is_some())?;
    let after = ms(api.settings.engine.reconcile_after_ms);
    let handed_over = ticket.dispatched_at.filter(|_| ticket.facts.status == Status::Dispatched)?;
    let since = Duration::try_from(Timestamp::now().duration_since(handed_over)).unwrap_or_default();
    if since < after {
        return None;
    }
    let asked = async {
        let _turn = api.engine.asked.acquire().await.ok()?;
        engine.describe(ticket.item.execution()).await.ok()
    };
    match tokio::time::timeout(ANSWERS_WITHIN, asked).await {
        Ok(Some(Described::Running { stuck })) => stuck,
        _ => None,
    }
}
