//! Webhooks in: what a definition says of the address that starts it, and whether a request may.
//!
//! Invariants
//! - A signature is compared in a time that tells nothing.
//! - A time is believed only if it is signed: a pattern holds it where a header for it is named.
//! - A rule sees the body as `inputs`, and the headers that it names as `trigger.headers`, in lower case.
//!
//! Not here: tokens (`store::hook`), reading the body and counting requests (`server::http::hooks`).

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::Sha256;
use uuid::Uuid;

use crate::expression::Scope;
use crate::failure::{Class, Failure};
use crate::fields::{Code, Fields, Problem, Stage, child, unreadable};
use crate::template::Template;

/// How far a signed time may be from ours, in seconds, either way.
pub const WINDOW_S: i64 = 5 * 60;
/// The longest body that may be allowed, and the one that is allowed if nothing is said.
pub const MOST_BODY_BYTES: u32 = 1 << 20;
pub const BODY_BYTES: u32 = 256 << 10;
/// Requests a minute: the most that may be allowed, and what is if nothing is said.
pub const MOST_RATE: u32 = 60_000;
pub const RATE: u32 = 600;
/// The header that makes a request one, however often it comes, unless another is named.
pub const IDEMPOTENCY_HEADER: &str = "idempotency-key";
const MAX_HEADERS: usize = 20;
const MAX_TEXT_LEN: usize = 200;
/// What carries credentials of others is not handed to a workflow.
const NEVER_TAKEN: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "forwarded"];

/// What `on: webhook` says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// A request that comes again under the same value of this header starts nothing new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_header: Option<String>,
    /// Headers that the workflow may see.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_body_bytes: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_minute: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
    /// The input of the execution, templates over the body; the body itself if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
}

/// How a request is signed: HMAC-SHA256 under a secret of the workspace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Signature {
    pub header: String,
    /// The name of the workspace's secret.
    pub secret: String,
    #[serde(default)]
    pub encoding: Encoding,
    /// What stands before the signature, such as `sha256=`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// Where the time of the request is, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_header: Option<String>,
    /// What is signed: text with `{body}`, and `{timestamp}` where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    #[default]
    Hex,
    Base64,
}

/// Why a request is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsigned {
    #[error("the request is not signed: a header of its signature is missing")]
    Missing,
    #[error("the signature does not fit the body")]
    Wrong,
    #[error("the request's time is more than five minutes from ours, or no time")]
    Stale,
}

impl Rule {
    pub fn body_bytes(&self) -> usize {
        usize::try_from(self.max_body_bytes.unwrap_or(BODY_BYTES)).unwrap_or(usize::MAX)
    }

    pub fn rate(&self) -> u32 {
        self.rate_per_minute.unwrap_or(RATE)
    }

    pub fn idempotency_header(&self) -> &str {
        self.idempotency_header.as_deref().unwrap_or(IDEMPOTENCY_HEADER)
    }
}

/// Reads `on: {webhook: …}` of a document.
pub(crate) fn read(value: &Value, at: &str, problems: &mut Vec<Problem>) -> Option<Rule> {
    let known = &["idempotency_header", "headers", "max_body_bytes", "rate_per_minute", "signature", "input"];
    let mut fields = Fields::open(value, at, known, Stage::Run, problems)?;
    let mut rule = Rule {
        idempotency_header: header(&mut fields, "idempotency_header"),
        headers: Vec::new(),
        max_body_bytes: number(&mut fields, "max_body_bytes", MOST_BODY_BYTES),
        rate_per_minute: number(&mut fields, "rate_per_minute", MOST_RATE),
        signature: None,
        input: fields.get("input").cloned(),
    };
    rule.headers = headers(&mut fields);
    if let Some(value) = fields.get("signature") {
        let at = fields.pointer("signature");
        rule.signature = signature(value, &at, fields.problems);
    }
    if let Some(Err(errors)) = rule.input.as_ref().map(Template::parse) {
        problems.extend(errors.iter().map(|(pointer, error)| unreadable(format!("{at}/input{pointer}"), error)));
    }
    Some(rule)
}

fn number(fields: &mut Fields<'_, '_>, name: &str, most: u32) -> Option<u32> {
    fields.integer(name, 1..=u64::from(most)).and_then(|number| u32::try_from(number).ok())
}

fn header(fields: &mut Fields<'_, '_>, name: &str) -> Option<String> {
    let text = fields.text(name)?;
    if !is_header(text) {
        fields.wrong(name, "must be the name of a header, such as X-Request-Id");
    }
    Some(text.to_ascii_lowercase())
}

fn is_header(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    !text.is_empty() && text.len() <= MAX_TEXT_LEN && text.chars().all(is_part)
}

fn headers(fields: &mut Fields<'_, '_>) -> Vec<String> {
    let Some(value) = fields.get("headers") else { return Vec::new() };
    let at = fields.pointer("headers");
    let Some(items) = value.as_array().filter(|items| items.len() <= MAX_HEADERS) else {
        fields.wrong("headers", format!("must be a list of at most {MAX_HEADERS} names of headers"));
        return Vec::new();
    };
    let mut names = Vec::new();
    for (place, item) in items.iter().enumerate() {
        let name = item.as_str().map(str::to_ascii_lowercase);
        match name.filter(|name| is_header(name) && !NEVER_TAKEN.contains(&name.as_str())) {
            Some(name) => names.push(name),
            None => fields.problems.push(Problem::new(
                Code::BadValue,
                child(&at, &place.to_string()),
                format!("must be the name of a header, and none of {}", NEVER_TAKEN.join(", ")),
            )),
        }
    }
    names
}

fn signature(value: &Value, at: &str, problems: &mut Vec<Problem>) -> Option<Signature> {
    let known = &["header", "secret", "encoding", "prefix", "timestamp_header", "signed"];
    let mut fields = Fields::open(value, at, known, Stage::Run, problems)?;
    fields.require("header");
    fields.require("secret");
    let (name, secret) = (header(&mut fields, "header"), fields.text("secret"));
    if secret.is_some_and(|name| name.is_empty() || name.len() > 128 || !name.chars().all(is_secret_name)) {
        fields.wrong("secret", "must be the name of a secret of the workspace: letters, digits and _");
    }
    let encoding = fields.choice("encoding", &[("hex", Encoding::Hex), ("base64", Encoding::Base64)]);
    let prefix = fields.text("prefix").unwrap_or_default().to_owned();
    let timestamp_header = header(&mut fields, "timestamp_header");
    let signed = fields.text("signed").map(str::to_owned);
    if prefix.len() > MAX_TEXT_LEN || signed.as_ref().is_some_and(|signed| signed.len() > MAX_TEXT_LEN) {
        fields.wrong("signed", format!("prefix and signed are at most {MAX_TEXT_LEN} bytes"));
    }
    if let Some(pattern) = &signed {
        let times = pattern.matches("{timestamp}").count();
        if pattern.matches("{body}").count() != 1 || times != usize::from(timestamp_header.is_some()) {
            fields.wrong("signed", "must hold {body} once, and {timestamp} once if timestamp_header is given");
        } else if let Some(other) = other_placeholder(pattern) {
            fields
                .wrong("signed", format!("{other} is nothing that is filled in: only {{body}} and {{timestamp}} are"));
        }
    }
    Some(Signature {
        header: name?,
        secret: secret?.to_owned(),
        encoding: encoding.unwrap_or_default(),
        prefix,
        timestamp_header,
        signed,
    })
}

/// The first `{…}` that is neither the body nor the time.
fn other_placeholder(pattern: &str) -> Option<&str> {
    let mut rest = pattern;
    while let Some(open) = rest.find('{') {
        let close = rest[open..].find('}').map_or(rest.len(), |close| open + close + 1);
        let found = &rest[open..close];
        if found != "{body}" && found != "{timestamp}" {
            return Some(found);
        }
        rest = &rest[close..];
    }
    None
}

fn is_secret_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Is a request believed? `given` and `timestamp` are its headers as they came, `now_s` is our time.
pub fn verify(
    signature: &Signature,
    secret: &[u8],
    given: Option<&str>,
    timestamp: Option<&str>,
    body: &[u8],
    now_s: i64,
) -> Result<(), Unsigned> {
    let given = given.ok_or(Unsigned::Missing)?.trim();
    let timestamp = match &signature.timestamp_header {
        None => "",
        Some(_) => timestamp.ok_or(Unsigned::Missing)?.trim(),
    };
    let mac = expected(signature, secret, timestamp, body);
    let encoded = given.strip_prefix(&signature.prefix).ok_or(Unsigned::Wrong)?;
    let decoded = match signature.encoding {
        Encoding::Hex => unhex(encoded),
        Encoding::Base64 => STANDARD.decode(encoded).ok(),
    };
    mac.verify_slice(&decoded.ok_or(Unsigned::Wrong)?).map_err(|_| Unsigned::Wrong)?;
    // Judged last: before it is known to be signed, a time means nothing.
    if signature.timestamp_header.is_some() {
        let at: i64 = timestamp.parse().map_err(|_| Unsigned::Stale)?;
        if now_s.saturating_sub(at).saturating_abs() > WINDOW_S {
            return Err(Unsigned::Stale);
        }
    }
    Ok(())
}

fn expected(signature: &Signature, secret: &[u8], timestamp: &str, body: &[u8]) -> Hmac<Sha256> {
    let usual = if signature.timestamp_header.is_some() { "{timestamp}.{body}" } else { "{body}" };
    let pattern = signature.signed.as_deref().unwrap_or(usual);
    let (before, after) = pattern.split_once("{body}").unwrap_or(("", ""));
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key of any length will do");
    mac.update(before.replace("{timestamp}", timestamp).as_bytes());
    mac.update(body);
    mac.update(after.replace("{timestamp}", timestamp).as_bytes());
    mac
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

/// What a request starts: the input and the trigger. A body that is no object is an object's `body`.
pub fn decide(
    rule: &Rule,
    hook: Uuid,
    body: Value,
    headers: &BTreeMap<String, String>,
) -> Result<(Value, Value), Failure> {
    let trigger = json!({ "type": "webhook", "hook": hook, "headers": headers });
    let input = if body.is_object() { body } else { json!({ "body": body }) };
    let Some(template) = &rule.input else { return Ok((input, trigger)) };
    let scope = Scope { inputs: Arc::new(input), trigger: Arc::new(trigger.clone()), ..Scope::default() };
    let bad = |message: String| Failure::new(Class::ValidationError, message);
    let template = Template::parse(template).map_err(|_| bad("on.webhook.input cannot be read".to_owned()))?;
    let input = template.resolve(&scope).map_err(|error| bad(format!("on.webhook.input: {error}")))?;
    Ok((input, trigger))
}

#[cfg(test)]
mod tests;
