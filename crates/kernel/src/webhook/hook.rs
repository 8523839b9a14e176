//! Webhooks in: what a definition says of the address that starts it, and whether a request may.
//!
//! Invariants
//! - A rule sees the body as `inputs`, and the headers that it names as `trigger.headers`, in lower case.
//!
//! Not here: signatures (`hook::signature`), tokens (`store::webhook::hook`), reading the body and counting requests
//! (`server::http::hooks`).

pub mod signature;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::definition::fields::{Code, Fields, Problem, Stage, child, unreadable};
use crate::expression::Scope;
use crate::expression::template::Template;
use crate::run::failure::{Class, Failure};
use signature::Signature;

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
        rule.signature = signature::read(value, &at, fields.problems);
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
