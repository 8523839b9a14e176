//! `/answers/{token}`: a token answers one wait, once, without a key.
//!
//! Invariants
//! - An invalid token gets the same 404 as an address that does not exist; a used token gets 409. After too many
//!   unknown tokens from one client address, tokens get 429. No log, span, metric or response contains a token.
//! - GET changes nothing: a mail program that follows links for a preview must not answer.
//! - The token is checked before the rate limit, and the rate limit before the body.
//!
//! Not here: creating tokens (`waits`), marking them used (`store::wait`).

use std::net::IpAddr;
use std::time::Instant;

use axum::Json as Reply;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest as _, Path, Request, State};
use serde_json::Value;
use store::wait::{AnswerOutcome, Token, TokenWait};

use super::super::body::Json;
use super::super::failures::{self, Origin};
use super::super::{Api, Code, Problem, not_found};
use super::{checked_data, find_wait, is_early};
use crate::wire::{AnswerByToken, AnsweredByToken, WaitToken};

/// The largest number of requests per minute for the tokens of one execution.
const RATE: u32 = 120;

type TokenPath = Result<Path<String>, PathRejection>;

/// Describes the wait that this token answers. Changes nothing.
#[utoipa::path(get, path = "/answers/{token}", tag = "answers", security(()), params(("token" = String, Path)),
    responses((status = 200, body = WaitToken), (status = 404, description = "The token is unknown, revoked or \
         expired.")))]
pub(crate) async fn describe(
    State(api): State<Api>,
    Origin(from): Origin,
    token: TokenPath,
) -> Result<Reply<WaitToken>, Problem> {
    let (_, found, with) = open(&api, from, token).await?;
    let open = !found.used && found.status.is_none_or(kernel::wait::Status::is_open);
    Ok(Reply(WaitToken {
        workflow: found.workflow,
        node: found.key.node.to_string(),
        open,
        used: found.used,
        data: with.get("data").cloned(),
        expires_at: found.wait_expires_at.map_or(found.expires_at, |until| until.min(found.expires_at)),
    }))
}

/// Answers the wait of this token. The token works once.
#[utoipa::path(post, path = "/answers/{token}", tag = "answers", security(()), params(("token" = String, Path)),
    request_body = AnswerByToken,
    responses((status = 200, body = AnsweredByToken), (status = 404, description = "The token is unknown, revoked \
         or expired."),
        (status = 409, description = "The token was already used, or the wait already has an answer.")))]
pub(crate) async fn receive(
    State(api): State<Api>,
    Origin(from): Origin,
    token: TokenPath,
    request: Request,
) -> Result<Reply<AnsweredByToken>, Problem> {
    let (token, found, with) = open(&api, from, token).await?;
    let Json(body) = Json::<AnswerByToken>::from_request(request, &api).await?;
    if found.used {
        return Err(Problem::new(Code::Conflict, "this link was already used: it works once"));
    }
    let data = checked_data(Some(found.workspace), with, body.data).await?;
    match api.store.answer_by_token(&token, &found.key, &data).await {
        Err(store::Error::NotFound)
        | Ok(AnswerOutcome::ExecutionEnded | AnswerOutcome::NodeSettled | AnswerOutcome::NoSuchItem) => {
            Err(not_found().await)
        }
        Ok(AnswerOutcome::Expired(call)) => {
            api.run_notifier.notify(call);
            Err(not_found().await)
        }
        outcome => is_early(&api, outcome, "token").map(|_| Reply(AnsweredByToken { accepted: true })),
    }
}

/// Checks a token, and the rate limit of its execution. Returns the token, its wait, and the configuration of the wait.
async fn open(api: &Api, from: IpAddr, token: TokenPath) -> Result<(Token, TokenWait, Value), Problem> {
    let Some(token) = token.ok().and_then(|Path(text)| Token::parse(&text)) else { return Err(not_found().await) };
    let found = failures::look_up_token(api, from, token.expose(), api.store.wait_of_token(&token)).await?;
    let Some(found) = found else { return Err(not_found().await) };
    if let Err(remaining) = api.rates.take(found.key.execution.0, RATE, Instant::now()) {
        let detail = format!("the answer links of this execution take {RATE} requests per minute: try again later");
        let wait_s = u32::try_from(remaining.as_secs()).unwrap_or(60).max(1);
        return Err(Problem { retry_after_s: Some(wait_s), ..Problem::new(Code::RateLimited, detail) });
    }
    let key = &found.key;
    let (_, with) = find_wait(api, found.version, key.execution, key.node.as_str(), Some(key.iteration)).await?;
    Ok((token, found, with))
}
