//! `POST /triggers/{token}`: a request from outside starts a workflow.
//!
//! Invariants
//! - An invalid token gets the same 404 as an address that does not exist, or 429 after too many invalid tokens from
//!   one client. No log, span, metric or response contains a token.
//! - The checks come in this order: token, rate limit, body, signature, content.
//! - A request with a repeated or unreadable header is refused. If the header were ignored, a repeated request could
//!   start a workflow twice.
//! - An accepted request is handled like any start request: same queue, same rules for the input.
//! - If a signed value identifies a replay, only that value is the idempotency key of the request. An unsigned header
//!   is the key only if there is no such value.
//!
//! If the process dies before the commit, nothing was started. If it dies after the commit, the sender's next try with
//! the same signed id, signature or idempotency header finds the execution. Without any of these, a repeated request
//! starts a second execution.
//!
//! Not here: reading a rule and checking a signature (`kernel::trigger`).

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
use kernel::storable;
use kernel::trigger::input_and_trigger;
use kernel::trigger::signature::{Given, Signature, SignatureError, verify};
use serde_json::{Map, Value, json};
use store::queue::enqueue::Start;
use store::trigger::{ActiveTrigger, Token};
use url::form_urlencoded;
use uuid::Uuid;

use super::super::auth::Caller;
use super::super::failures::{self, Origin};
use super::super::{Api, Code, Problem, body, not_found, starts};
use crate::wire::StartedExecution;

/// Starts the workflow of this trigger.
///
/// The body is the input: JSON, a form, or text as `{"body": …}`.
#[utoipa::path(post, path = "/triggers/{token}", tag = "triggers", security(()), params(("token" = String, Path)),
    request_body(content = serde_json::Value, content_type = "application/json", example = json!({ "order": "A42" })),
    responses((status = 202, body = StartedExecution), (status = 404, description = "The token is unknown or \
         revoked.")))]
pub(crate) async fn receive(
    State(api): State<Api>,
    Origin(from): Origin,
    token: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<(StatusCode, Reply<StartedExecution>), Problem> {
    let count = |outcome: &'static str| {
        ::metrics::counter!(metrics::TRIGGER_REQUESTS.name, "outcome" => outcome).increment(1);
    };
    let Some(trigger) = find_trigger(&api, from, token.ok().and_then(|Path(text)| Token::parse(&text))).await? else {
        count("unknown");
        return Err(not_found().await);
    };
    let started = start(&api, &trigger, request).await;
    count(match &started {
        Ok(started) if started.repeated => "repeated",
        Ok(_) => "accepted",
        Err(_) => "refused",
    });
    started.map(|started| (StatusCode::ACCEPTED, Reply(started)))
}

async fn find_trigger(api: &Api, from: IpAddr, token: Option<Token>) -> Result<Option<ActiveTrigger>, Problem> {
    let Some(token) = token else { return Ok(None) };
    failures::look_up_token(api, from, token.expose(), api.store.trigger_of_token(&token)).await
}

async fn start(api: &Api, trigger: &ActiveTrigger, request: Request) -> Result<StartedExecution, Problem> {
    if let Err(wait) = api.rates.take(trigger.id, trigger.rule.rate(), Instant::now()) {
        let rate = trigger.rule.rate();
        let detail = format!("this trigger takes {rate} requests per minute: wait, then send the request again");
        let wait = u32::try_from(wait.as_secs()).unwrap_or(60).max(1);
        return Err(Problem { retry_after_s: Some(wait), ..Problem::new(Code::RateLimited, detail) });
    }
    let headers = request.headers().clone();
    let limit = trigger.rule.body_bytes().min(api.settings.http.max_body_bytes);
    let late = || Problem::new(Code::Malformed, "the body did not arrive in time: send the request again");
    let bytes = tokio::time::timeout(api.timeout() / 2, body::bytes(request, limit)).await.map_err(|_| late())??;
    let replay = match &trigger.rule.signature {
        Some(signature) => verify_signature(api, trigger, signature, &headers, &bytes).await?,
        None => None,
    };
    let content = read(&headers, &bytes)?;
    let key = key(trigger.id, trigger.rule.idempotency_header(), replay, &headers)?;
    let shown = headers_of(&trigger.rule.headers, &headers)?;
    let idempotency = starts::idempotency(key, &json!({ "body": content, "headers": shown }))?;
    let (input, trigger_data) = input_and_trigger(&trigger.rule, trigger.id, content, &shown)
        .map_err(|failure| Problem::new(Code::ValidationFailed, failure.message))?;
    let start = Start {
        execution: ExecutionId(store::new_id()),
        workspace: trigger.workspace,
        definition: trigger.definition,
        input: Some(input),
        priority: Default::default(),
        run_at: None,
        concurrency_key: None,
        idempotency,
        trigger: trigger_data,
        trace: starts::trace_parent(&headers),
        version: None,
        rerun_of: None,
    };
    let caller = Caller {
        actor: format!("trigger:{}", trigger.id),
        key: None,
        workspace: Some(trigger.workspace),
        scopes: [Scope::Run].into_iter().collect(),
    };
    starts::accept(api, &caller, vec![start]).await?.pop().unwrap_or_else(|| Err(Problem::of(Code::Internal)))
}

/// Verifies the signature of a request. Returns the signed value that identifies a replay, if there is one.
async fn verify_signature(
    api: &Api,
    trigger: &ActiveTrigger,
    signature: &Signature,
    headers: &HeaderMap,
    bytes: &[u8],
) -> Result<Option<String>, Problem> {
    let name = BTreeSet::from([signature.secret.clone()]);
    let secrets = match api.vault.open(trigger.workspace, &name).await {
        Ok(secrets) => secrets,
        Err(vault::Error::Store(error)) => return Err(error.into()),
        Err(error) => {
            tracing::warn!(
                trigger_id = %trigger.id,
                error = %error,
                "Trigger request refused: the secret of its signature cannot be decrypted; check secrets.key_file"
            );
            let problem = Problem::new(
                Code::Unavailable,
                "the service cannot read the secret that verifies these requests; its operator must set it",
            );
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
    verify(signature, secret.as_bytes(), given, bytes, Timestamp::now().as_second()).map_err(|error| match error {
        SignatureError::Secret => {
            tracing::warn!(
                trigger_id = %trigger.id,
                "Trigger request refused: the secret of its signature is not base64"
            );
            let problem = Problem::new(Code::Unavailable, error.to_string());
            Problem { retry_after_s: Some(60), ..problem }
        }
        SignatureError::Missing | SignatureError::Wrong | SignatureError::Stale => {
            Problem::new(Code::Unauthenticated, error.to_string())
        }
    })
}

/// Reads the body as a value.
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
            let not_text = |_| Problem::new(Code::Malformed, "the body is not UTF-8 text");
            Value::String(std::str::from_utf8(bytes).map_err(not_text)?.to_owned())
        }
        _ => {
            return Err(Problem::new(
                Code::UnsupportedMediaType,
                "the body must be JSON, a form, or text: set its content-type",
            ));
        }
    };
    if storable::has_nul(&value) {
        return Err(Problem::new(
            Code::ValidationFailed,
            "the body contains a NUL character, which cannot be stored: remove it",
        ));
    }
    Ok(value)
}

/// The fields of a form. A repeated field becomes a list.
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

/// The idempotency key of a request: `trigger/{id}/id/…` or `trigger/{id}/mac/…` if a signed value identifies a replay.
/// Otherwise `trigger/{id}/key/…` from the header `name`, which is not signed: a replay could change it.
fn key(trigger: Uuid, name: &str, replay: Option<String>, headers: &HeaderMap) -> Result<Option<String>, Problem> {
    if let Some(replay) = replay {
        return Ok(Some(format!("trigger/{trigger}/{replay}")));
    }
    let given = text(headers, name)?.map(str::trim);
    if given.is_some_and(|key| key.is_empty() || key.len() > starts::LONGEST_KEY) {
        return Err(Problem::new(Code::ValidationFailed, format!("{name}: must have 1 to 200 printable characters")));
    }
    Ok(given.map(|key| format!("trigger/{trigger}/key/{key}")))
}

/// The headers that the workflow may see.
fn headers_of(names: &[String], headers: &HeaderMap) -> Result<BTreeMap<String, String>, Problem> {
    let mut shown = BTreeMap::new();
    for name in names {
        let Some(value) = headers.get(name) else { continue };
        let unreadable = |_| Problem::new(Code::ValidationFailed, format!("{name}: the header is not UTF-8 text"));
        shown.insert(name.clone(), std::str::from_utf8(value.as_bytes()).map_err(unreadable)?.to_owned());
    }
    Ok(shown)
}

/// An optional header. It must not be repeated and must be readable.
fn text<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, Problem> {
    starts::single_header(headers, name)
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
        let trigger: Uuid = "019a84c2-7d1e-7c3a-9f00-5b1d2c3e4f5a".parse().expect("an id");
        let mut headers = HeaderMap::new();
        headers.insert("idempotency-key", HeaderValue::from_static("mac/ab"));
        let derived = |replay: Option<&str>| {
            let key = key(trigger, "idempotency-key", replay.map(str::to_owned), &headers);
            key.map_err(|problem| problem.code).expect("readable").expect("a key")
        };
        for (replay, expected) in [(Some("id/m1"), "id/m1"), (Some("mac/ab"), "mac/ab"), (None, "key/mac/ab")] {
            let derived = derived(replay);
            assert_eq!(derived, format!("trigger/{trigger}/{expected}"));
            assert!(kernel::queue::idempotency::is_reserved(&derived), "{derived}");
        }
    }
}
