//! `/answers/{token}`: whoever has the token answers one wait, once.
//!
//! Invariants
//! - Whatever is wrong with a token is answered like an address that does not exist, but that it was used: 409. After
//!   too many tokens of one client that open nothing it is 429. A token is in no log, span, metric or answer.
//! - Looking changes nothing: a mail program that follows links for a preview must not answer.
//! - First the token, then the rate, then the body.
//!
//! Not here: making tokens (`answers`), using them up (`store::wait`).

use std::net::IpAddr;
use std::time::Instant;

use axum::Json as Reply;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest as _, Path, Request, State};
use serde_json::Value;
use store::wait::{Pass, Token, Told};

use super::super::body::Json;
use super::super::failures::{self, Origin};
use super::super::{Api, Code, Problem, not_found};
use super::{accepted, judged, wait};
use crate::wire::{AnswerByToken, Invitation, Thanks};

/// Requests that the tokens of one execution take in a minute.
const RATE: u32 = 120;

type Given = Result<Path<String>, PathRejection>;

/// What an answer here would answer. Looking changes nothing.
#[utoipa::path(get, path = "/answers/{token}", tag = "answers", security(()), params(("token" = String, Path)),
    responses((status = 200, body = Invitation), (status = 404, description = "There is nothing at this address.")))]
pub(crate) async fn describe(
    State(api): State<Api>,
    Origin(from): Origin,
    token: Given,
) -> Result<Reply<Invitation>, Problem> {
    let (_, pass, with) = open(&api, from, token).await?;
    let open = !pass.used && pass.status.is_none_or(kernel::wait::Status::is_open);
    Ok(Reply(Invitation {
        workflow: pass.workflow,
        node: pass.place.node.to_string(),
        open,
        used: pass.used,
        data: with.get("data").cloned(),
        expires_at: pass.wait_expires_at.map_or(pass.expires_at, |until| until.min(pass.expires_at)),
    }))
}

/// Answers the wait that this address belongs to, once.
#[utoipa::path(post, path = "/answers/{token}", tag = "answers", security(()), params(("token" = String, Path)),
    request_body = AnswerByToken,
    responses((status = 200, body = Thanks), (status = 404, description = "There is nothing at this address."),
        (status = 409, description = "It was used, or somebody else was first.")))]
pub(crate) async fn receive(
    State(api): State<Api>,
    Origin(from): Origin,
    token: Given,
    request: Request,
) -> Result<Reply<Thanks>, Problem> {
    let (token, pass, with) = open(&api, from, token).await?;
    let Json(body) = Json::<AnswerByToken>::from_request(request, &api).await?;
    if pass.used {
        return Err(Problem::new(Code::Conflict, "this link was used before"));
    }
    let data = judged(Some(pass.workspace), with, body.data).await?;
    match api.store.answer_by_token(&token, &pass.place, &data).await {
        Err(store::Error::NotFound) | Ok(Told::Over | Told::Settled | Told::Past) => Err(not_found().await),
        Ok(Told::Expired(call)) => {
            api.calls.tell(call);
            Err(not_found().await)
        }
        told => accepted(&api, told, "token").map(|_| Reply(Thanks { accepted: true })),
    }
}

/// What a token is for, and the configuration of its wait.
async fn open(api: &Api, from: IpAddr, token: Given) -> Result<(Token, Pass, Value), Problem> {
    let Some(token) = token.ok().and_then(|Path(text)| Token::parse(&text)) else { return Err(not_found().await) };
    let opened = failures::open(api, from, token.expose(), api.store.open_token(&token)).await?;
    let Some(pass) = opened else { return Err(not_found().await) };
    if let Err(rest) = api.rates.take(pass.place.execution.0, RATE, Instant::now()) {
        let problem = Problem::new(Code::RateLimited, "this address takes no more requests in this minute");
        let rest = u32::try_from(rest.as_secs()).unwrap_or(60).max(1);
        return Err(Problem { retry_after_s: Some(rest), ..problem });
    }
    let place = &pass.place;
    let (_, with) = wait(api, pass.version, place.execution, place.node.as_str(), Some(place.iteration)).await?;
    Ok((token, pass, with))
}
