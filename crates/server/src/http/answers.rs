//! Waits and their answers: listed, answered with a key, and tokens made for those who have none.
//!
//! Invariants
//! - What an answer brings is judged by the version that the execution runs before it is stored, also one that comes
//!   before its question.
//! - One answer a wait: whoever is second, late, or after the end is told so with 409.
//! - A token is shown by the answer that makes it, and by no other.
//!
//! What happens if the process dies: before the commit nothing was answered; after it the same request again is told
//! that somebody was first, and the run is woken by what is stored.
//!
//! Not here: answers by token (`answers::receive`), whose time is up (`asks`).

pub(super) mod receive;

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Extension, Json as Reply};
use engine::versions::Error;
use kernel::ids::{ExecutionId, NodeKey, VersionId, WorkspaceId};
use kernel::kind::wait_for_event::judge;
use kernel::signals::metrics;
use kernel::{duration, wait};
use serde_json::Value;
use store::wait::{Minted, Place, Told};
use uuid::Uuid;

use super::auth::Caller;
use super::body::{Id, Json, JsonOrNothing, Params};
use super::{Api, Code, Problem, apart, executions, page};
use crate::wire::{AnswerWait, AnsweredWait, MintToken, MintedToken, Page, Wait};

/// As long as an execution may last.
const LONGEST_TOKEN: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// What an execution and those below it wait for, or waited for, by execution, node and iteration.
#[utoipa::path(get, path = "/workflow/executions/{id}/waits", tag = "waits",
    params(("id" = ExecutionId, Path), page::Paging),
    responses((status = 200, body = Page<Wait>)))]
pub(crate) async fn list(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<ExecutionId>,
    Params(params): Params<page::Paging>,
) -> Result<Reply<Page<Wait>>, Problem> {
    let (limit, after) = params.page(page::List::Waits, place_of)?;
    executions::find(&api, &caller, id).await?;
    let found = api.store.waits_below(id, caller.workspace, after.as_ref(), limit + 1).await?;
    let cursor = |row: &store::wait::Wait| {
        let mut place = row.place.execution.0.as_bytes().to_vec();
        place.extend_from_slice(&row.place.iteration.to_be_bytes());
        place.extend_from_slice(row.place.node.as_str().as_bytes());
        page::write(page::List::Waits, &place)
    };
    Ok(Reply(page::cut(found, limit, cursor, wire)))
}

fn place_of(bytes: &[u8]) -> Option<Place> {
    let (execution, rest) = bytes.split_first_chunk::<16>()?;
    let (iteration, node) = rest.split_first_chunk::<4>()?;
    let node = NodeKey::new(&page::text_of(node)?).ok()?;
    Some(Place {
        execution: ExecutionId(Uuid::from_bytes(*execution)),
        node,
        iteration: i32::from_be_bytes(*iteration),
    })
}

/// Answers a wait. Before its node has begun the answer is kept for it.
#[utoipa::path(post, path = "/workflow/executions/{id}/answers/{node}", tag = "waits", operation_id = "answer",
    params(("id" = ExecutionId, Path), ("node" = String, Path)), request_body = AnswerWait,
    responses((status = 200, body = AnsweredWait)))]
pub(crate) async fn answer(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id((id, node)): Id<(ExecutionId, String)>,
    Json(body): Json<AnswerWait>,
) -> Result<Reply<AnsweredWait>, Problem> {
    let execution = executions::find(&api, &caller, id).await?;
    let (place, with) = wait(&api, execution.version, id, &node, body.iteration).await?;
    if execution.status.is_terminal() {
        return Err(ended(&api, &place).await?);
    }
    let data = judged(Some(execution.workspace), with, body.data).await?;
    let told = api.store.answer(&place, caller.workspace, &data, &caller.actor).await;
    let early = accepted(&api, told, "key")?;
    Ok(Reply(AnsweredWait { execution_id: id, node, iteration: place.iteration, early }))
}

/// Makes a token that answers a wait once, without a key: for a link in a message, or a callback. The answer holds it,
/// this once.
#[utoipa::path(post, path = "/workflow/executions/{id}/answers/{node}/token", tag = "waits", operation_id = "mint",
    params(("id" = ExecutionId, Path), ("node" = String, Path)), request_body = MintToken,
    responses((status = 201, body = MintedToken)))]
pub(crate) async fn mint(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id((id, node)): Id<(ExecutionId, String)>,
    JsonOrNothing(body): JsonOrNothing<MintToken>,
) -> Result<impl IntoResponse, Problem> {
    let execution = executions::find(&api, &caller, id).await?;
    let (place, with) = wait(&api, execution.version, id, &node, body.iteration).await?;
    refuse_events(&with)?;
    if execution.status.is_terminal() {
        return Err(ended(&api, &place).await?);
    }
    let lasts = match body.expires_in.as_deref().map(duration::parse) {
        None => LONGEST_TOKEN,
        Some(Ok(lasts)) if !lasts.is_zero() => lasts.min(LONGEST_TOKEN),
        Some(Ok(_)) => return Err(Problem::new(Code::ValidationFailed, "expiresIn: must be longer than nothing")),
        Some(Err(error)) => return Err(Problem::new(Code::ValidationFailed, format!("expiresIn: {error}"))),
    };
    let Minted { token, expires_at } =
        api.store.mint_token(&place, caller.workspace, lasts, &caller.actor).await.map_err(unknown)?;
    let path = format!("/answers/{}", token.expose());
    let url = api.settings.http.public_url.as_deref().map(|base| format!("{}{path}", base.trim_end_matches('/')));
    let minted = MintedToken { token: token.expose().to_owned(), path, url, expires_at };
    Ok((StatusCode::CREATED, Reply(minted)))
}

/// The place of a wait of this version, and its configuration as it stands there.
async fn wait(
    api: &Api,
    version: VersionId,
    execution: ExecutionId,
    node: &str,
    iteration: Option<i32>,
) -> Result<(Place, Value), Problem> {
    let version = api.versions.get(&api.store, version).await.map_err(|error| match error {
        Error::Store(error) => error.into(),
        // What cannot be run waits for nothing.
        Error::Missing(_) | Error::Invalid { .. } => Problem::not_found("wait"),
    })?;
    let (nodes, iteration) = (&version.definition.nodes, iteration.unwrap_or(0));
    let found = nodes.iter().find(|found| found.key.as_str() == node);
    let Some((found, with)) = found.and_then(|found| Some((found, wait::wait(found, iteration)?))) else {
        return Err(Problem::new(Code::NotFound, wait::no_wait(nodes, node, iteration)));
    };
    Ok((Place { execution, node: found.key.clone(), iteration }, with.clone()))
}

/// Why a wait of an execution that has ended takes nothing: it was answered before, or nobody did in time.
async fn ended(api: &Api, place: &Place) -> Result<Problem, Problem> {
    // The first behind the place before it.
    let before = (place.node.as_str(), place.iteration - 1);
    let next = api.store.waits(place.execution, None, Some(before), 1).await?.pop();
    let status = next.filter(|wait| wait.place == *place).map(|wait| wait.status);
    Ok(match status {
        Some(wait::Status::Answered | wait::Status::Taken) => answered(),
        _ => over(),
    })
}

/// The answer as it is stored.
async fn judged(workspace: Option<WorkspaceId>, with: Value, data: Option<Value>) -> Result<Value, Problem> {
    refuse_events(&with)?;
    let judged = apart::run(workspace, move || judge(&with, data)).await?;
    judged.map_err(|problems| {
        let first = problems.first().map(ToString::to_string).unwrap_or_default();
        let problems = problems.into_iter().map(|problem| problem.below("/data")).collect();
        Problem { problems, ..Problem::new(Code::ValidationFailed, format!("data: {first}")) }
    })
}

/// An event answers such a wait, and nobody in its place.
fn refuse_events(with: &Value) -> Result<(), Problem> {
    match with.get("event") {
        None => Ok(()),
        Some(_) => Err(Problem::new(Code::Conflict, "this wait waits for a domain event: append one instead")),
    }
}

/// Whether an accepted answer came early; whoever waits for it is told.
fn accepted(api: &Api, told: Result<Told, store::Error>, by: &'static str) -> Result<bool, Problem> {
    let conflict = |detail: &str| Err(Problem::new(Code::Conflict, detail));
    let early = match told.map_err(unknown)? {
        Told::Accepted(call) => {
            api.calls.tell(call);
            false
        }
        Told::Early => true,
        Told::Answered => return Err(answered()),
        Told::Used => return conflict("this link was used before"),
        Told::Expired(call) => {
            api.calls.tell(call);
            return conflict("its time was up before this answer came");
        }
        Told::Over => return Err(over()),
        Told::Settled => {
            return conflict("this node is over: it ended, was skipped, or was kept from another execution");
        }
        Told::Past => return Err(Problem::new(Code::NotFound, "this loop's list has no such item")),
    };
    ::metrics::counter!(metrics::ANSWERS.name, "by" => by).increment(1);
    Ok(early)
}

fn answered() -> Problem {
    Problem::new(Code::Conflict, "this wait was answered before")
}

fn over() -> Problem {
    Problem::new(Code::Conflict, "the execution has ended")
}

fn unknown(error: store::Error) -> Problem {
    match error {
        store::Error::NotFound => Problem::not_found("wait"),
        other => other.into(),
    }
}

fn wire(wait: store::wait::Wait) -> Wait {
    Wait {
        execution_id: wait.place.execution,
        node: wait.place.node.to_string(),
        iteration: wait.place.iteration,
        status: wait.status,
        event: wait.event,
        matches: wait.matches,
        input: wait.input,
        opened_at: wait.opened_at,
        expires_at: wait.expires_at,
        answered_by: wait.answered_by,
        answered_at: wait.answered_at,
    }
}
