//! What came back, within bounds, and the failure it may mean.
//!
//! Invariants
//! - No more than the allowed bytes of a body are ever held, however small it was on the wire.
//! - A body is a JSON value if it says so and is one; else text if it is UTF-8; else
//!   `{"base64": "…"}`. So nothing is lost, and nothing is guessed.
//! - Header names are in lower case; values of one name are joined by `, ` (of `set-cookie` by a
//!   new line, for a cookie may hold a comma).
//! - An excerpt is an answer whatever its length, and whatever becomes of its body: it has the status, and what else
//!   there is.
//! - Secrets of the request are taken out before anything is cut short or encoded, so that no half of one is left.
//!
//! Not here: whether a status fails a node (its kind decides), what is looked for (`mask`), what can be stored.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use kernel::run::failure::{Class, Failure};
use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde_json::{Value, json};
use url::Url;

use crate::mask::Mask;

/// How many headers an answer may have, and how long they may be together.
pub(super) const MAX_HEADERS: usize = 128;
const MAX_HEADER_BYTES: usize = 65_536;

/// How much of a body a failure quotes.
const MAX_EXCERPT_CHARS: usize = 500;
/// How long an excerpt is waited for.
const EXCERPT_WAIT: Duration = Duration::from_secs(1);

/// The answer to a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Value,
    /// Where the answer came from, after redirects.
    pub url: String,
}

/// The failure that an answer means, or none for one below 400. It quotes the body and keeps what
/// the other side said about when to come back.
pub fn failure_of(response: &Response) -> Option<Failure> {
    let url = Url::parse(&response.url).ok();
    let host = url.as_ref().and_then(Url::host_str).unwrap_or("the other side");
    let mut message = format!("{host} answered {}", response.status);
    let excerpt = excerpt(&response.body);
    if !excerpt.is_empty() {
        message = format!("{message}: {excerpt}");
    }
    Failure::from_status(response.status, message, wanted_wait(response))
}

/// How long the other side asked to wait before it is called again.
pub fn wanted_wait(response: &Response) -> Option<Duration> {
    response.headers.get("retry-after").and_then(|text| retry_after(text, Timestamp::now()))
}

/// Takes in an answer, or says which bound it broke.
pub(super) async fn read(
    mut answer: reqwest::Response,
    max_bytes: usize,
    secrets: Option<&Mask>,
) -> Result<Response, Refused> {
    let status = answer.status().as_u16();
    let url = answer.url().to_string();
    let headers = lowercased(answer.headers())?;
    let announced = answer.content_length().unwrap_or(0);
    if usize::try_from(announced).map_or(true, |announced| announced > max_bytes) {
        return Err(Refused::TooBig(max_bytes));
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        if chunk.len() > max_bytes - bytes.len() {
            return Err(Refused::TooBig(max_bytes));
        }
        bytes.extend_from_slice(&chunk);
    }
    let content_type = headers.get("content-type").map_or("", String::as_str);
    let Some(secrets) = secrets else {
        let body = body(bytes, content_type);
        return Ok(Response { status, headers, body, url });
    };
    // As values first: what is written with escapes nobody thought of is plain once it is read. Bytes that are no
    // text are to be base64, which would hide what they hold.
    let mut body = match std::str::from_utf8(&bytes) {
        Ok(_) => body(bytes, content_type),
        Err(_) => body(secrets.bytes(&bytes).unwrap_or(bytes), content_type),
    };
    secrets.value(&mut body);
    let masked = |text: String| secrets.text(&text).unwrap_or(text);
    let headers = headers.into_iter().map(|(name, value)| (masked(name), masked(value))).collect();
    Ok(Response { status, headers, body, url: masked(url) })
}

/// Takes an answer's status, when to come back, and the start of its body as text. With secrets there is no body: a cut
/// may leave half of one.
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
    // What has come by then is the excerpt.
    let _over = tokio::time::timeout(EXCERPT_WAIT, fill).await.is_err();
    Response { status, headers, body: Value::String(String::from_utf8_lossy(&bytes).into_owned()), url }
}

/// Why an answer is not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error("a body of more than {0} bytes")]
    TooBig(usize),
    #[error("more than {MAX_HEADERS} headers or {MAX_HEADER_BYTES} bytes of them")]
    TooManyHeaders,
    #[error(transparent)]
    Broken(#[from] reqwest::Error),
}

fn lowercased(headers: &HeaderMap) -> Result<BTreeMap<String, String>, Refused> {
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if headers.len() > MAX_HEADERS || bytes > MAX_HEADER_BYTES {
        return Err(Refused::TooManyHeaders);
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
        Err(error) => json!({ "base64": base64(error.as_bytes()) }),
    }
}

/// `application/json`, `text/json`, `application/problem+json` and their like.
fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence.ends_with("/json") || essence.ends_with("+json")
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |n: usize| u32::from(group.get(n).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for n in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * n) & 63) as usize];
            text.push(if n <= group.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

/// `Retry-After`: seconds, or a date that is then counted from now.
fn retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    let date = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    Some(Duration::try_from(date.duration_since(now)).unwrap_or(Duration::ZERO))
}

/// The start of a body on one line, without what would move a reader's cursor.
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

impl Refused {
    /// The failure of a call to that host; a broken connection is for the caller to explain.
    pub(super) fn failure(&self, host: &str, explain: impl FnOnce(&reqwest::Error) -> Failure) -> Failure {
        match self {
            Refused::Broken(error) => explain(error),
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
            // No number here holds it: its digits are kept.
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
