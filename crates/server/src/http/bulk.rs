//! Starts many executions in one request. Each item gets the result that a request for this item alone would get.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::{Extension, Json as Reply};
use store::queue::enqueue::Start;

use super::auth::Caller;
use super::body::{self, Json};
use super::{Api, Code, Problem, starts};
use crate::wire::{BulkStartExecutions, BulkStartResult, BulkStartedExecutions, StartExecution, StartedExecution};

/// The largest number of starts of one request.
const MOST: usize = 1_000;
/// The length of the longest suffix `/999`.
const SUFFIX_LEN: usize = 4;

/// Starts up to 1,000 executions. Each item gets its own result, in order.
///
/// With an `Idempotency-Key`, the key of each item is `{key}/{index}`, from 0. After a lost response the same request
/// can be sent again: no execution starts twice.
#[utoipa::path(post, path = "/workflow/executions/bulk", tag = "executions", operation_id = "bulk",
    request_body = BulkStartExecutions,
    params(("Idempotency-Key" = Option<String>, Header,
    description = "Requests with the same key and the same items start each item once.", min_length = 1, max_length
         = 196)),
    responses((status = 200, body = BulkStartedExecutions)))]
pub(crate) async fn start(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Json(body): Json<BulkStartExecutions>,
) -> Result<Reply<BulkStartedExecutions>, Problem> {
    if body.items.is_empty() || body.items.len() > MOST {
        return Err(Problem::new(Code::ValidationFailed, "items: must have 1 to 1000 starts"));
    }
    let key = starts::read_idempotency_key(&headers)?;
    if key.is_some_and(|key| key.len() > starts::LONGEST_KEY - SUFFIX_LEN) {
        let detail = format!(
            "Idempotency-Key: must have at most {} characters for a bulk start",
            starts::LONGEST_KEY - SUFFIX_LEN
        );
        return Err(Problem::new(Code::ValidationFailed, detail));
    }
    let trace = starts::trace_parent(&headers);
    let read: Vec<Result<Start, Problem>> = body
        .items
        .into_iter()
        .enumerate()
        .map(|(index, item)| {
            let item: StartExecution = body::typed(item)?;
            starts::read(&caller, item, key.map(|key| format!("{key}/{index}")), trace)
        })
        .collect();
    let good: Vec<Start> = read.iter().filter_map(|read| read.as_ref().ok().cloned()).collect();
    let mut answers = starts::accept(&api, &caller, good).await?.into_iter();
    // Every item that was read has a result. A missing result is a bug.
    let missing = || Err(Problem::of(Code::Internal));
    let items = read.into_iter().map(|read| item(read.and_then(|_| answers.next().unwrap_or_else(missing))));
    Ok(Reply(BulkStartedExecutions { items: items.collect() }))
}

fn item(answer: Result<StartedExecution, Problem>) -> BulkStartResult {
    match answer {
        Ok(started) => BulkStartResult { status: 202, started: Some(started), problem: None },
        Err(problem) => {
            let problem = problem.body();
            BulkStartResult { status: problem.status, started: None, problem: Some(problem) }
        }
    }
}
