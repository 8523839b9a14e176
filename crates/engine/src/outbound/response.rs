//! Reads a response, within limits, and derives the failure it may mean.
//!
//! Invariants
//! - Memory never holds more of a body than the limit allows, even if the body was small before decompression.
//! - A body becomes a JSON value if its content type is JSON and it parses; else text if it is UTF-8; else `{"base64":
//!   "…"}`. Nothing is lost or guessed.
//! - Header names are in lower case. Values of one name are joined by `, `; those of `set-cookie` by a new line,
//!   because a cookie may contain a comma.
//! - An excerpt always has the status. It is a valid `Response` even if the body is incomplete or exceeds the limits.
//! - Secrets of the request are removed before anything is truncated or encoded, so that no part of a secret remains.
//!
//! Not here: whether a status fails a node (its kind decides), finding secrets (`mask`), what can be stored.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use kernel::run::failure::{Class, Failure};
use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde_json::{Value, json};
use url::Url;

use crate::mask::Mask;

/// The limits for the number of response headers and for their total size.
pub(super) const MAX_HEADERS: usize = 128;
const MAX_HEADER_BYTES: usize = 65_536;

/// How much of a body a failure quotes.
const MAX_EXCERPT_CHARS: usize = 500;
/// How long to wait for an excerpt.
const EXCERPT_WAIT: Duration = Duration::from_secs(1);

/// The response to a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Value,
    /// The URL that the response came from, after redirects.
    pub url: String,
}

/// The failure that a response means, or none for a status below 400. It quotes the body and keeps the delay that the
/// receiver asked for.
pub fn failure_of(response: &Response) -> Option<Failure> {
    let url = Url::parse(&response.url).ok();
    let host = url.as_ref().and_then(Url::host_str).unwrap_or("the receiver");
    let mut message = format!("{host} answered {}", response.status);
    let excerpt = excerpt(&response.body);
    if !excerpt.is_empty() {
        message = format!("{message}: {excerpt}");
    }
    Failure::from_status(response.status, message, wanted_wait(response))
}

/// The delay that the receiver asked for before the next call.
pub fn wanted_wait(response: &Response) -> Option<Duration> {
    response.headers.get("retry-after").and_then(|text| retry_after(text, Timestamp::now()))
}

/// Reads a response, or returns which limit it exceeded.
pub(super) async fn read(
    mut answer: reqwest::Response,
    max_bytes: usize,
    secrets: Option<&Mask>,
) -> Result<Response, ResponseError> {
    let status = answer.status().as_u16();
    let url = answer.url().to_string();
    let headers = lowercased(answer.headers())?;
    let announced = answer.content_length().unwrap_or(0);
    if usize::try_from(announced).map_or(true, |announced| announced > max_bytes) {
        return Err(ResponseError::TooBig(max_bytes));
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        if chunk.len() > max_bytes - bytes.len() {
            return Err(ResponseError::TooBig(max_bytes));
        }
        bytes.extend_from_slice(&chunk);
    }
    let content_type = headers.get("content-type").map_or("", String::as_str);
    let Some(secrets) = secrets else {
        let body = body(bytes, content_type);
        return Ok(Response { status, headers, body, url });
    };
    // Mask parsed values first: unusual escapes are gone once the body is parsed. Mask bytes that are not text before
    // base64 would hide what they contain.
    let mut body = match std::str::from_utf8(&bytes) {
        Ok(_) => body(bytes, content_type),
        Err(_) => body(secrets.bytes(&bytes).unwrap_or(bytes), content_type),
    };
    secrets.value(&mut body);
    let masked = |text: String| secrets.text(&text).unwrap_or(text);
    let headers = headers.into_iter().map(|(name, value)| (masked(name), masked(value))).collect();
    Ok(Response { status, headers, body, url: masked(url) })
}

/// Reads the status, the requested delay and the start of the body as text. If the request carries secrets, the body is
/// left out, because truncation may leave part of a secret.
pub(super) async fn excerpt_of(mut answer: reqwest::Response, max_bytes: usize, secrets: Option<&Mask>) -> Response {
    let (status, url) = (answer.status().as_u16(), answer.url().to_string());
    let wait = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let headers = wait.map(|wait| (RETRY_AFTER.as_str().to_owned(), wait.to_owned())).into_iter().collect();
    if let Some(secrets) = secrets {
        return Response { status, headers, body: Value::Null, url: secrets.text(&url).unwrap_or(url) };
    }
    let mut bytes = Vec::new();
    let fill = async {
        while let Ok(Some(chunk)) = answer.chunk().await {
            let room = max_bytes - bytes.len();
            bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() > room {
                break;
            }
        }
    };
    // The excerpt is what arrived within this time.
    let _over = tokio::time::timeout(EXCERPT_WAIT, fill).await.is_err();
    Response { status, headers, body: Value::String(String::from_utf8_lossy(&bytes).into_owned()), url }
}

/// Why a response is rejected.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResponseError {
    #[error("a body of more than {0} bytes")]
    TooBig(usize),
    #[error("more than {MAX_HEADERS} headers or {MAX_HEADER_BYTES} bytes of headers")]
    TooManyHeaders,
    #[error(transparent)]
    Broken(#[from] reqwest::Error),
}

fn lowercased(headers: &HeaderMap) -> Result<BTreeMap<String, String>, ResponseError> {
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if headers.len() > MAX_HEADERS || bytes > MAX_HEADER_BYTES {
        return Err(ResponseError::TooManyHeaders);
    }
    let mut all = BTreeMap::<String, String>::new();
    for (name, value) in headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        let separator = if name == "set-cookie" { "\n" } else { ", " };
        match all.get_mut(name.as_str()) {
            Some(earlier) => {
                earlier.push_str(separator);
                earlier.push_str(&value);
            }
            None => {
                all.insert(name.as_str().to_owned(), value.into_owned());
            }
        }
    }
    Ok(all)
}

fn body(bytes: Vec<u8>, content_type: &str) -> Value {
    if is_json(content_type)
        && let Ok(value) = kernel::exact::read(&bytes)
    {
        return value;
    }
    match String::from_utf8(bytes) {
        Ok(text) => Value::String(text),
        Err(error) => json!({ "base64": STANDARD.encode(error.as_bytes()) }),
    }
}

/// `application/json`, `text/json`, `application/problem+json` and their like.
fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence.ends_with("/json") || essence.ends_with("+json")
}

/// `Retry-After`: seconds, or a date, which is converted to a delay from now.
fn retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    let date = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    Some(Duration::try_from(date.duration_since(now)).unwrap_or(Duration::ZERO))
}

/// The start of a body on one line, without control characters.
fn excerpt(body: &Value) -> String {
    let text = match body {
        Value::String(text) => text.trim().to_owned(),
        Value::Null => String::new(),
        value => value.to_string(),
    };
    let printable = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut excerpt: String = printable.take(MAX_EXCERPT_CHARS).collect();
    if text.chars().nth(MAX_EXCERPT_CHARS).is_some() {
        excerpt.push('…');
    }
    excerpt
}

impl ResponseError {
    /// The failure of a call to that host. The caller explains a broken connection.
    pub(super) fn failure(&self, host: &str, explain: impl FnOnce(&reqwest::Error) -> Failure) -> Failure {
        match self {
            ResponseError::Broken(error) => explain(error),
            bound => Failure::new(Class::ValidationError, format!("{host} answered with {bound}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_json_or_text_or_base64() {
        for (content_type, bytes, expected) in [
            ("application/json", &b"{\"a\":1}"[..], json!({"a": 1})),
            ("application/problem+json; charset=utf-8", b"[1]", json!([1])),
            ("Application/JSON", b"null", Value::Null),
            ("application/json", b"{broken", json!("{broken")),
            ("application/json", b"", json!("")),
            // Too large for any number type here: its digits are kept as text.
            ("application/json", b"{\"id\":123456789012345678901}", json!({"id": "123456789012345678901"})),
            ("text/plain", b"{\"a\":1}", json!("{\"a\":1}")),
            ("", "é".as_bytes(), json!("é")),
            ("image/png", b"\xff", json!({"base64": "/w=="})),
            ("image/png", b"\xff\xfe", json!({"base64": "//4="})),
            ("application/json", b"\xff\xfe\xfd", json!({"base64": "//79"})),
            ("", b"\xff\xfe\xfd\x00", json!({"base64": "//79AA=="})),
        ] {
            assert_eq!(body(bytes.to_vec(), content_type), expected, "{content_type} {bytes:?}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now: Timestamp = "2015-10-21T07:27:00Z".parse().expect("a time");
        for (text, expected) in [
            ("7", Some(7)),
            (" 120 ", Some(120)),
            ("Wed, 21 Oct 2015 07:28:00 GMT", Some(60)),
            ("Wed, 21 Oct 2015 07:20:00 GMT", Some(0)),
            ("-1", None),
            ("soon", None),
            ("99999999999999", None),
        ] {
            assert_eq!(retry_after(text, now), expected.map(Duration::from_secs), "{text}");
        }
    }

    #[test]
    fn a_failure_quotes_the_start_of_the_body() {
        let response = |status, body: Value| Response {
            status,
            headers: BTreeMap::from([("retry-after".to_owned(), "7".to_owned())]),
            body,
            url: "https://a.example/x?secret".to_owned(),
        };
        assert_eq!(failure_of(&response(200, json!("fine"))), None);
        assert_eq!(failure_of(&response(304, json!(""))), None);
        let failure = failure_of(&response(429, json!({"error": "slow down"}))).expect("a failure");
        assert_eq!(failure.message, "a.example answered 429: {\"error\":\"slow down\"}");
        assert_eq!((failure.status, failure.retry_after_ms), (Some(429), Some(7_000)));
        let failure = failure_of(&response(500, json!("\u{1b}[2J".repeat(1_000)))).expect("a failure");
        assert!(!failure.message.contains('\u{1b}') && failure.message.len() < 600, "{failure:?}");
        assert_eq!(failure_of(&response(404, json!(""))).expect("a failure").message, "a.example answered 404");
    }
}
