//! Waits: lists waits, answers a wait with a key, and creates tokens for people without a key.
//!
//! Invariants
//! - The data of an answer is checked against the version that the execution runs before it is stored. This also holds
//!   for an answer that comes before its node begins.
//! - A wait accepts one answer. A second answer, or an answer after the wait or its execution ended, gets 409.
//! - A token is shown once, in the response that creates it.
//!
//! If the process dies before the commit, the wait has no answer. If it dies after the commit, the stored answer wakes
//! the run, and a repeated request gets 409.
//!
//! Not here: answers by token (`waits::by_token`), waits that time out (`crate::wait::expire`).

pub(super) mod by_token;

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Extension, Json as Reply};
use engine::versions::Error;
use kernel::ids::{ExecutionId, NodeKey, VersionId, WorkspaceId};
use kernel::kind::wait_for_event::check_answer;
use kernel::signals::metrics;
use kernel::wait;
use serde_json::Value;
use store::wait::{AnswerOutcome, NewToken, WaitKey};
use uuid::Uuid;

use super::auth::Caller;
use super::body::{Id, Json, JsonOrNothing, Params};
use super::problem::no_such;
use super::{Api, Code, Problem, executions, offload, page};
use crate::wire::{AnswerWait, AnsweredWait, CreateWaitToken, CreatedWaitToken, Page, Wait};

/// The longest time for which a token is valid. No execution runs that long.
const LONGEST_TOKEN: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Lists the waits of an execution and of its child executions, ordered by execution, node and iteration.
#[utoipa::path(get, path = "/workflow/executions/{id}/waits", tag = "waits",
    params(("id" = ExecutionId, Path), page::PageParams),
    responses((status = 200, body = Page<Wait>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<ExecutionId>,
    Params(params): Params<page::PageParams>,
) -> Result<Reply<Page<Wait>>, Problem> {
    let (limit, after) = params.page(page::ListKind::Waits, position_of)?;
    executions::find(&api, &caller, id).await?;
    let found = api.store.waits_of_tree(id, caller.workspace, after.as_ref(), limit + 1).await?;
    let cursor = |row: &store::wait::Wait| {
        let mut position = row.key.execution.0.as_bytes().to_vec();
        position.extend_from_slice(&row.key.iteration.to_be_bytes());
        position.extend_from_slice(row.key.node.as_str().as_bytes());
        page::write(page::ListKind::Waits, &position)
    };
    Ok(Reply(page::cut(found, limit, cursor, wire)))
}

fn position_of(bytes: &[u8]) -> Option<WaitKey> {
    let (execution, rest) = bytes.split_first_chunk::<16>()?;
    let (iteration, node) = rest.split_first_chunk::<4>()?;
    let node = NodeKey::new(&page::text_of(node)?).ok()?;
    Some(WaitKey {
        execution: ExecutionId(Uuid::from_bytes(*execution)),
        node,
        iteration: i32::from_be_bytes(*iteration),
    })
}

/// Answers a wait.
///
/// If its node has not begun, the answer is kept until the node begins. A wait that already has an answer gets 409.
#[utoipa::path(post, path = "/workflow/executions/{id}/waits/{node}/answer", tag = "waits", operation_id = "answer",
    params(("id" = ExecutionId, Path), ("node" = String, Path)), request_body = AnswerWait,
    responses((status = 200, body = AnsweredWait)))]
pub(crate) async fn answer(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id((id, node)): Id<(ExecutionId, String)>,
    Json(body): Json<AnswerWait>,
) -> Result<Reply<AnsweredWait>, Problem> {
    let execution = executions::find(&api, &caller, id).await?;
    let (wait, with) = find_wait(&api, execution.version, id, &node, body.iteration).await?;
    if execution.status.is_terminal() {
        return Err(refusal_after_end(&api, &wait).await?);
    }
    let data = checked_data(Some(execution.workspace), with, body.data).await?;
    let outcome = api.store.answer(&wait, caller.workspace, &data, &caller.actor).await;
    let early = is_early(&api, outcome, "key")?;
    Ok(Reply(AnsweredWait { execution_id: id, node, iteration: wait.iteration, early }))
}

/// Creates a token that answers a wait once, without a key: for a link in a message, or for a callback.
///
/// The response is the only place where the token is shown.
#[utoipa::path(post, path = "/workflow/executions/{id}/waits/{node}/token", tag = "waits", operation_id =
     "create_token",
    params(("id" = ExecutionId, Path), ("node" = String, Path)), request_body = CreateWaitToken,
    responses((status = 201, body = CreatedWaitToken)))]
pub(crate) async fn create_token(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id((id, node)): Id<(ExecutionId, String)>,
    JsonOrNothing(body): JsonOrNothing<CreateWaitToken>,
) -> Result<impl IntoResponse, Problem> {
    let execution = executions::find(&api, &caller, id).await?;
    let (wait, with) = find_wait(&api, execution.version, id, &node, body.iteration).await?;
    refuse_events(&with)?;
    if execution.status.is_terminal() {
        return Err(refusal_after_end(&api, &wait).await?);
    }
    let lasts = match body.expires_in_seconds {
        None => LONGEST_TOKEN,
        Some(0) => {
            return Err(Problem::new(Code::ValidationFailed, "expiresInSeconds: must be greater than zero"));
        }
        Some(seconds) => Duration::from_secs(seconds).min(LONGEST_TOKEN),
    };
    let NewToken { token, expires_at } =
        api.store.create_token(&wait, caller.workspace, lasts, &caller.actor).await.map_err(no_such("wait"))?;
    let path = format!("/answers/{}", token.expose());
    let url = api.settings.http.public_url.as_deref().map(|base| format!("{}{path}", base.trim_end_matches('/')));
    let created = CreatedWaitToken { token: token.expose().to_owned(), path, url, expires_at };
    Ok((StatusCode::CREATED, Reply(created)))
}

/// The key of a wait in this version, and its configuration as the author wrote it.
async fn find_wait(
    api: &Api,
    version: VersionId,
    execution: ExecutionId,
    node: &str,
    iteration: Option<i32>,
) -> Result<(WaitKey, Value), Problem> {
    let version = api.versions.get(&api.store, version).await.map_err(|error| match error {
        Error::Store(error) => error.into(),
        // A version that cannot be read has no waits.
        Error::Missing(_) | Error::Invalid { .. } => Problem::not_found("wait"),
    })?;
    let (nodes, iteration) = (&version.definition.nodes, iteration.unwrap_or(0));
    let found = nodes.iter().find(|found| found.key.as_str() == node);
    let Some((found, with)) = found.and_then(|found| Some((found, wait::config_of(found, iteration)?))) else {
        return Err(Problem::new(Code::NotFound, wait::explain_no_wait(nodes, node, iteration)));
    };
    Ok((WaitKey { execution, node: found.key.clone(), iteration }, with.clone()))
}

/// Why a wait of an ended execution accepts no answer: it has an answer already, or the execution ended without one.
async fn refusal_after_end(api: &Api, key: &WaitKey) -> Result<Problem, Problem> {
    // Reads this wait as the first of a page that begins after the previous iteration.
    let before = (key.node.as_str(), key.iteration - 1);
    let next = api.store.waits(key.execution, None, Some(before), 1).await?.pop();
    let status = next.filter(|wait| wait.key == *key).map(|wait| wait.status);
    Ok(match status {
        Some(wait::Status::Answered | wait::Status::Received) => already_answered(),
        _ => execution_ended(),
    })
}

/// Checks the data of an answer against the fields that the node declares. Returns the data in the form that is stored.
async fn checked_data(workspace: Option<WorkspaceId>, with: Value, data: Option<Value>) -> Result<Value, Problem> {
    refuse_events(&with)?;
    let checked = offload::run(workspace, move || check_answer(&with, data)).await?;
    checked.map_err(|problems| {
        let first = problems.first().map(ToString::to_string).unwrap_or_default();
        let problems = problems.into_iter().map(|problem| problem.below("/data")).collect();
        Problem { problems, ..Problem::new(Code::ValidationFailed, format!("data: {first}")) }
    })
}

/// Refuses a wait for a domain event: only an event answers it.
fn refuse_events(with: &Value) -> Result<(), Problem> {
    match with.get("event") {
        None => Ok(()),
        Some(_) => Err(Problem::new(
            Code::Conflict,
            "this wait is answered by a domain event: append a matching event with POST /api/v1/events",
        )),
    }
}

/// Returns whether an accepted answer came before its node began, and notifies the run that waits for the answer.
fn is_early(api: &Api, outcome: Result<AnswerOutcome, store::Error>, by: &'static str) -> Result<bool, Problem> {
    let conflict = |detail: &str| Err(Problem::new(Code::Conflict, detail));
    let early = match outcome.map_err(no_such("wait"))? {
        AnswerOutcome::Accepted(call) => {
            api.run_notifier.notify(call);
            false
        }
        AnswerOutcome::Early => true,
        AnswerOutcome::AlreadyAnswered => return Err(already_answered()),
        AnswerOutcome::TokenUsed => return conflict("this link was already used: it works once"),
        AnswerOutcome::Expired(call) => {
            api.run_notifier.notify(call);
            return conflict("this wait has expired: it takes no answer");
        }
        AnswerOutcome::ExecutionEnded => return Err(execution_ended()),
        AnswerOutcome::NodeSettled => {
            return conflict(
                "this node takes no answer: it ended, was skipped, or kept its output from another execution",
            );
        }
        AnswerOutcome::NoSuchItem => {
            return Err(Problem::new(Code::NotFound, "the list of this loop has no item with this iteration number"));
        }
    };
    ::metrics::counter!(metrics::ANSWERS.name, "source" => by).increment(1);
    Ok(early)
}

fn already_answered() -> Problem {
    Problem::new(Code::Conflict, "this wait already has an answer")
}

fn execution_ended() -> Problem {
    Problem::new(Code::Conflict, "the execution has ended: its waits take no answers")
}

fn wire(wait: store::wait::Wait) -> Wait {
    Wait {
        execution_id: wait.key.execution,
        node: wait.key.node.to_string(),
        iteration: wait.key.iteration,
        status: wait.status,
        event_type: wait.event,
        matches: wait.matches,
        input: wait.input,
        opened_at: wait.opened_at,
        expires_at: wait.expires_at,
        answered_by: wait.answered_by,
        answered_at: wait.answered_at,
    }
}
