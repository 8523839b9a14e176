//! Running an execution again: a new one, linked to the old, through the queue like any other.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::IntoResponse;
use axum::{Extension, Json as Reply};
use kernel::ids::ExecutionId;
use kernel::queue::Priority;
use serde_json::json;
use store::enqueue::Start;

use super::auth::Caller;
use super::body::{Id, Json};
use super::{Api, Code, Problem, executions, starts};
use crate::wire::{Rerun, RerunFrom, RerunVersion, Started};

/// Starts an ended execution anew, with its input or another, in its version or the published one.
#[utoipa::path(post, path = "/workflow/executions/{id}/rerun", tag = "executions", request_body = Rerun,
    params(("id" = ExecutionId, Path), ("Idempotency-Key" = Option<String>, Header, description = "The same key with the same body starts once.", min_length = 1, max_length = 200)),
    responses((status = 202, body = Started, headers(("Location" = String, description = "The new execution's address.")))))]
pub(crate) async fn rerun(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<ExecutionId>,
    headers: HeaderMap,
    Json(body): Json<Rerun>,
) -> Result<impl IntoResponse, Problem> {
    if body.from != RerunFrom::Start {
        let detail = "from: only \"start\" for now; going on from a failed or a chosen node comes with a later version";
        return Err(Problem::new(Code::ValidationFailed, detail));
    }
    let old = executions::find(&api, &caller, id).await?;
    if !old.status.is_terminal() {
        return Err(Problem::new(Code::Conflict, "it has not ended yet: cancel or terminate it first"));
    }
    let key = starts::key(&headers)?.map(str::to_owned);
    let start = Start {
        execution: ExecutionId(store::new_id()),
        workspace: old.workspace,
        definition: old.definition,
        idempotency: starts::idempotency(key, &json!({ "rerun": id, "body": body }))?,
        input: body.input.or(old.input),
        priority: Priority::new(old.priority).unwrap_or_default(),
        run_at: None,
        concurrency_key: old.concurrency_key,
        trigger: json!({ "type": "rerun", "of": id, "actor": caller.actor }),
        trace: starts::trace(&headers),
        version: (body.version == RerunVersion::Same).then_some(old.version),
        rerun_of: Some(id),
    };
    let answer = starts::accept(&api, &caller, vec![start]).await?.pop();
    let started: Started = answer.unwrap_or_else(|| Err(Problem::of(Code::Internal)))?;
    let location = format!("/api/v1/workflow/executions/{}", started.execution_id);
    let headers: [(HeaderName, String); 1] = [(header::LOCATION, location)];
    Ok((StatusCode::ACCEPTED, headers, Reply(started)))
}
