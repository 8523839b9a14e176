//! One queue item: its status, its position, and why it waits.
//!
//! Invariants
//! - The engine itself is asked whether a run makes progress on an external engine, so every process gives the same
//!   response. The engine is asked only some time after the dispatch, for a bounded number of runs at once, with a
//!   timeout.

use std::time::Duration;

use axum::extract::State;
use axum::{Extension, Json as Reply};
use engine::RunDescription;
use jiff::Timestamp;
use kernel::ids::QueueItemId;
use kernel::queue::Status;
use kernel::queue::explain::{self, EngineState, RunProblem};

use super::auth::Caller;
use super::body::Id;
use super::problem::no_such;
use super::{Api, ApiParts, Problem};
use crate::config::ms;
use crate::process::lease;
use crate::wire::{QueueItem, WaitingReason};

/// Reads a queue item. After the item is deleted, its status is GONE, and `executionStatus` says how its execution
/// ended.
#[utoipa::path(get, path = "/workflow/queue/{id}", tag = "queue", params(("id" = QueueItemId, Path)),
    responses((status = 200, body = QueueItem)))]
pub(crate) async fn get(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<QueueItemId>,
) -> Result<Reply<QueueItem>, Problem> {
    let execution = api.store.execution(id.execution(), caller.workspace).await.map_err(no_such("queue item"))?;
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
    if let Some(row) = api.store.queue_item(id).await? {
        let mut facts = row.facts.clone();
        facts.begun = execution.started_at.is_some();
        facts.engine = api.dispatch_state().await;
        facts.stuck = match api.engine.other_engine_runs.problem_of(execution.engine.as_deref()) {
            Some(trouble) => Some(RunProblem::NoWorker(trouble)),
            None => stuck(&api, &row).await,
        };
        item.status = facts.status;
        item.position = explain::position(&facts);
        item.waiting = explain::explain(&facts).map(|reason| WaitingReason { message: reason.message(), reason });
        item.attempts = facts.attempts;
        item.last_error = facts.last_error;
        item.claimed_at = row.claimed_at;
        item.dispatched_at = row.dispatched_at;
    }
    Ok(Reply(item))
}

impl ApiParts {
    /// The state of the engine. If only one process dispatches at a time: also whether there is such a process.
    pub(crate) async fn dispatch_state(&self) -> EngineState {
        let state = self.engine_state();
        let dispatch = &self.settings.dispatch;
        if !dispatch.exclusive || matches!(state, EngineState::Off | EngineState::Unavailable { .. }) {
            return state;
        }
        let dead_after = ms(self.settings.process.claim_lease_ms);
        match self.store.lease_holder(lease::DISPATCH, dead_after).await {
            Ok(held_by) => match lease::dispatch_problem(held_by.as_ref()) {
                Some(error) => EngineState::NoDispatcher { error },
                None => state,
            },
            Err(_) => state,
        }
    }
}

/// How long an engine may take to describe a run.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Why an external engine makes no progress with a run that was dispatched a while ago. None: it makes progress.
async fn stuck(api: &Api, row: &store::queue::QueueItem) -> Option<RunProblem> {
    let engine = api.engine.control.as_ref().filter(|engine| engine.location().is_some())?;
    let after = ms(api.settings.engine.reconcile_after_ms);
    let dispatched_at = row.dispatched_at.filter(|_| row.facts.status == Status::Dispatched)?;
    let since = Duration::try_from(Timestamp::now().duration_since(dispatched_at)).unwrap_or_default();
    if since < after {
        return None;
    }
    let description = async {
        let _permit = api.engine.describe_permits.acquire().await.ok()?;
        engine.describe(row.item.execution()).await.ok()
    };
    match tokio::time::timeout(DESCRIBE_TIMEOUT, description).await {
        Ok(Some(RunDescription::Running { stuck })) => stuck,
        _ => None,
    }
}
