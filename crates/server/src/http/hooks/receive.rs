//! `POST /hooks/{token}`: a request from outside starts a workflow.
//!
//! Invariants
//! - Whatever is wrong with a token is answered like an address that does not exist, or 429 after too many such tokens
//!   of one client. A token is in no log, span, metric or answer.
//! - First the token, then the rate, then the body, then its signature, and only then what it says.
//! - A header that is read and cannot be, or that came twice, refuses the request: taken for absent, it would start a
//!   workflow again.
//! - What is accepted goes through the same queue and is judged by the same rules as any other start.
//! - If something signed tells a replay, only that is the request's idempotency key. A header that nobody signed counts
//!   only without it.
//!
//! What happens if the process dies: before the commit nothing was started; after it the sender's next try with the
//! same signed id, signature or idempotency header finds the execution. The same request twice without any of them is
//! two starts.
//!
//! Not here: what a rule says, and whether a signature fits (`kernel::webhook::hook`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Instant;

use axum::Json as Reply;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use engine::vault;
use jiff::Timestamp;
use kernel::access::Scope;
use kernel::ids::ExecutionId;
use kernel::signals::metrics;
use kernel::webhook::hook::decide;
use kernel::webhook::hook::signature::{Given, Signature, Unsigned, verify};
use serde_json::{Map, Value, json};
use store::queue::enqueue::Start;
use store::webhook::hook::{Opened, Token};
use url::form_urlencoded;
use uuid::Uuid;

use super::super::auth::Caller;
use super::super::failures::{self, Origin};
use super::super::{Api, Code, Problem, body, not_found, starts};
use crate::wire::Started;

/// Starts the workflow that this address belongs to. The body is its input: JSON, a form, or text as `{"body": …}`.
#[utoipa::path(post, path = "/hooks/{token}", tag = "hooks", security(()), params(("token" = String, Path)),
    request_body(content = serde_json::Value, content_type = "application/json", example = json!({ "order": "A42" })),
    responses((status = 202, body = Started), (status = 404, description = "There is nothing at this address.")))]
pub(crate) async fn receive(
    State(api): State<Api>,
    Origin(from): Origin,
    token: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<(StatusCode, Reply<Started>), Problem> {
    let count = |outcome: &'static str| {
        ::metrics::counter!(metrics::HOOK_REQUESTS.name, "outcome" => outcome).increment(1);
    };
    let Some(hook) = open(&api, from, token.ok().and_then(|Path(text)| Token::parse(&text))).await? else {
        count("unknown");
        return Err(not_found().await);
    };
    let taken = take(&api, &hook, request).await;
    count(match &taken {
        Ok(started) if started.repeated => "repeated",
        Ok(_) => "accepted",
        Err(_) => "refused",
    });
    taken.map(|started| (StatusCode::ACCEPTED, Reply(started)))
}

async fn open(api: &Api, from: IpAddr, token: Option<Token>) -> Result<Option<Opened>, Problem> {
    let Some(token) = token else { return Ok(None) };
    failures::open(api, from, token.expose(), api.store.open_hook(&token)).await
}

async fn take(api: &Api, hook: &Opened, request: Request) -> Result<Started, Problem> {
    if let Err(wait) = api.rates.take(hook.id, hook.rule.rate(), Instant::now()) {
        let problem = Problem::new(Code::RateLimited, "this address takes no more requests in this minute");
        let wait = u32::try_from(wait.as_secs()).unwrap_or(60).max(1);
        return Err(Problem { retry_after_s: Some(wait), ..problem });
    }
    let headers = request.headers().clone();
    let limit = hook.rule.body_bytes().min(api.settings.http.max_body_bytes);
    let late = || Problem::new(Code::Malformed, "the body did not come in time");
    let bytes = tokio::time::timeout(api.timeout() / 2, body::bytes(request, limit)).await.map_err(|_| late())??;
    let replay = match &hook.rule.signature {
        Some(signature) => believe(api, hook, signature, &headers, &bytes).await?,
        None => None,
    };
    let content = read(&headers, &bytes)?;
    let key = key(hook.id, hook.rule.idempotency_header(), replay, &headers)?;
    let shown = headers_of(&hook.rule.headers, &headers)?;
    let idempotency = starts::idempotency(key, &json!({ "body": content, "headers": shown }))?;
    let (input, trigger) = decide(&hook.rule, hook.id, content, &shown)
        .map_err(|failure| Problem::new(Code::ValidationFailed, failure.message))?;
    let start = Start {
        execution: ExecutionId(store::new_id()),
        workspace: hook.workspace,
        definition: hook.definition,
        input: Some(input),
        priority: Default::default(),
        run_at: None,
        concurrency_key: None,
        idempotency,
        trigger,
        trace: starts::trace(&headers),
        version: None,
        rerun_of: None,
    };
    let caller = Caller {
        actor: format!("hook:{}", hook.id),
        key: None,
        workspace: Some(hook.workspace),
        scopes: [Scope::Run].into_iter().collect(),
    };
    starts::accept(api, &caller, vec![start]).await?.pop().unwrap_or_else(|| Err(Problem::of(Code::Internal)))
}

/// Goes on with a request that is signed as the rule says; answers what tells a replay of it, if anything signed does.
async fn believe(
    api: &Api,
    hook: &Opened,
    signature: &Signature,
    headers: &HeaderMap,
    bytes: &[u8],
) -> Result<Option<String>, Problem> {
    let name = BTreeSet::from([signature.secret.clone()]);
    let secrets = match api.vault.open(hook.workspace, &name).await {
        Ok(secrets) => secrets,
        Err(vault::Error::Store(error)) => return Err(error.into()),
        Err(error) => {
            tracing::warn!(hook = %hook.id, error = %error, "The secret of a hook's signature cannot be opened");
            let problem = Problem::new(Code::Unavailable, "the secret that signs these requests is not set here");
            return Err(Problem { retry_after_s: Some(60), ..problem });
        }
    };
    let secret = secrets.get(&signature.secret).unwrap_or_default();
    let named = |name: &Option<String>| name.as_ref().map_or(Ok(None), |name| text(headers, name));
    let given = Given {
        signature: text(headers, &signature.header)?,
        timestamp: named(&signature.timestamp_header)?,
        id: named(&signature.id_header)?,
    };
    verify(signature, secret.as_bytes(), given, bytes, Timestamp::now().as_second()).map_err(
        |unsigned| match unsigned {
            Unsigned::Secret => {
                tracing::warn!(hook = %hook.id, "The secret of a hook's signature is not base64");
                let problem = Problem::new(Code::Unavailable, unsigned.to_string());
                Problem { retry_after_s: Some(60), ..problem }
            }
            Unsigned::Missing | Unsigned::Wrong | Unsigned::Stale => {
                Problem::new(Code::Unauthenticated, unsigned.to_string())
            }
        },
    )
}

/// The body as a value.
fn read(headers: &HeaderMap, bytes: &[u8]) -> Result<Value, Problem> {
    if bytes.is_empty() {
        return Ok(json!({}));
    }
    if body::is_json(headers) {
        return body::value_from_outside(bytes);
    }
    let essence = body::essence(headers);
    let value = match essence.as_str() {
        "application/x-www-form-urlencoded" => form(bytes),
        kind if kind.is_empty() || kind.starts_with("text/") => {
            let not_text = |_| Problem::new(Code::Malformed, "the body is not text in UTF-8");
            Value::String(std::str::from_utf8(bytes).map_err(not_text)?.to_owned())
        }
        _ => return Err(Problem::new(Code::UnsupportedMediaType, "send JSON, a form, or text")),
    };
    if !engine::nodes::is_storable(&value) {
        return Err(Problem::new(Code::ValidationFailed, "the body holds a NUL character, which cannot be stored"));
    }
    Ok(value)
}

/// The fields of a form; one that comes more than once is a list.
fn form(bytes: &[u8]) -> Value {
    let mut fields = Map::new();
    for (name, value) in form_urlencoded::parse(bytes) {
        let value = Value::String(value.into_owned());
        match fields.get_mut(name.as_ref()) {
            None => drop(fields.insert(name.into_owned(), value)),
            Some(Value::Array(values)) => values.push(value),
            Some(one) => *one = json!([one.take(), value]),
        }
    }
    Value::Object(fields)
}

/// The idempotency key of a request: `hook/{id}/id/…` or `hook/{id}/mac/…` if something signed tells a replay, else
/// `hook/{id}/key/…` from the header `name`. That header is not signed: a replay could change it.
fn key(hook: Uuid, name: &str, replay: Option<String>, headers: &HeaderMap) -> Result<Option<String>, Problem> {
    if let Some(replay) = replay {
        return Ok(Some(format!("hook/{hook}/{replay}")));
    }
    let given = text(headers, name)?.map(str::trim);
    if given.is_some_and(|key| key.is_empty() || key.len() > starts::LONGEST_KEY) {
        return Err(Problem::new(Code::ValidationFailed, format!("{name}: 1 to 200 printable characters")));
    }
    Ok(given.map(|key| format!("hook/{hook}/key/{key}")))
}

/// The headers that the workflow may see.
fn headers_of(names: &[String], headers: &HeaderMap) -> Result<BTreeMap<String, String>, Problem> {
    let mut shown = BTreeMap::new();
    for name in names {
        let Some(value) = headers.get(name) else { continue };
        let unreadable = |_| Problem::new(Code::ValidationFailed, format!("{name}: the header is not text in UTF-8"));
        shown.insert(name.clone(), std::str::from_utf8(value.as_bytes()).map_err(unreadable)?.to_owned());
    }
    Ok(shown)
}

/// A header that must be one and readable if it is there.
fn text<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, Problem> {
    starts::only(headers, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderValue, header};

    fn body(kind: &str, bytes: &[u8]) -> Result<Value, u16> {
        let mut headers = HeaderMap::new();
        if !kind.is_empty() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_str(kind).expect("a value"));
        }
        read(&headers, bytes).map_err(|problem| problem.code.describe().1.as_u16())
    }

    #[test]
    fn a_body_is_json_or_a_form_or_text() {
        for (kind, bytes, expected) in [
            ("application/json", r#"{"a": 1}"#, Ok(json!({ "a": 1 }))),
            ("application/vnd.github+json", "[1]", Ok(json!([1]))),
            ("application/json", r#"{"a": 1, "a": 2}"#, Err(400)),
            ("application/json", "", Ok(json!({}))),
            ("application/x-www-form-urlencoded", "a=1&b=x+y&a=%32", Ok(json!({ "a": ["1", "2"], "b": "x y" }))),
            ("text/plain; charset=utf-8", "hello", Ok(json!("hello"))),
            ("", "hello", Ok(json!("hello"))),
            ("text/plain", "a\0b", Err(422)),
            ("multipart/form-data", "x", Err(415)),
            ("application/octet-stream", "x", Err(415)),
        ] {
            assert_eq!(body(kind, bytes.as_bytes()), expected, "{kind} {bytes}");
        }
        assert_eq!(body("text/plain", b"\xff"), Err(400));
    }

    #[test]
    fn a_signed_replay_goes_before_an_unsigned_header_and_every_key_is_reserved() {
        let hook: Uuid = "019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a".parse().expect("an id");
        let mut headers = HeaderMap::new();
        headers.insert("idempotency-key", HeaderValue::from_static("mac/ab"));
        let derived = |replay: Option<&str>| {
            let key = key(hook, "idempotency-key", replay.map(str::to_owned), &headers);
            key.map_err(|problem| problem.code).expect("readable").expect("a key")
        };
        for (replay, expected) in [(Some("id/m1"), "id/m1"), (Some("mac/ab"), "mac/ab"), (None, "key/mac/ab")] {
            let derived = derived(replay);
            assert_eq!(derived, format!("hook/{hook}/{expected}"));
            assert!(kernel::queue::idempotency::is_reserved(&derived), "{derived}");
        }
    }
}
