//! Many starts in one request, each answered as if it had come alone.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::{Extension, Json as Reply};
use store::queue::enqueue::Start;

use super::auth::Caller;
use super::body::{self, Json};
use super::{Api, Code, Problem, starts};
use crate::wire::{BulkItem, BulkStart, BulkStarted, StartExecution, Started};

/// The most starts of one request.
const MOST: usize = 1_000;
/// How long `/999` is.
const PLACE: usize = 4;

/// Starts up to a thousand, each answered on its own, in order.
///
/// With an idempotency key an item's own is `{key}/{index}`, from 0: repeating the request after a lost answer
/// starts nothing twice.
#[utoipa::path(post, path = "/workflow/executions/bulk", tag = "executions", operation_id = "bulk",
    request_body = BulkStart,
    params(("Idempotency-Key" = Option<String>, Header,
    description = "The same key with the same items starts each once.", min_length = 1, max_length = 196)),
    responses((status = 200, body = BulkStarted)))]
pub(crate) async fn start(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Json(body): Json<BulkStart>,
) -> Result<Reply<BulkStarted>, Problem> {
    if body.items.is_empty() || body.items.len() > MOST {
        return Err(Problem::new(Code::ValidationFailed, "items: 1 to 1000 starts"));
    }
    let key = starts::key(&headers)?;
    if key.is_some_and(|key| key.len() > starts::LONGEST_KEY - PLACE) {
        let detail = format!("Idempotency-Key: at most {} characters for a bulk", starts::LONGEST_KEY - PLACE);
        return Err(Problem::new(Code::ValidationFailed, detail));
    }
    let trace = starts::trace(&headers);
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
    // Each that was read has an answer; an item without one would be a fault of ours.
    let missing = || Err(Problem::of(Code::Internal));
    let items = read.into_iter().map(|read| item(read.and_then(|_| answers.next().unwrap_or_else(missing))));
    Ok(Reply(BulkStarted { items: items.collect() }))
}

fn item(answer: Result<Started, Problem>) -> BulkItem {
    match answer {
        Ok(started) => BulkItem { status: 202, started: Some(started), problem: None },
        Err(problem) => {
            let problem = problem.body();
            BulkItem { status: problem.status, started: None, problem: Some(problem) }
        }
    }
}
