//! Triggers: the rule `on: http` of a definition, and the input of the execution that a request starts.
//!
//! Invariants
//! - Templates of a rule can use the body as `inputs`, and the listed headers as `trigger.headers`, with names in lower
//!   case.
//!
//! Not here: signatures (`trigger::signature`), tokens (`store::trigger`), reading the body and enforcing the rate
//! limit (`server::http::triggers`).

pub mod signature;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::definition::fields::{CheckTime, Code, Fields, Problem, child, unreadable};
use crate::expression::Scope;
use crate::expression::template::Template;
use crate::run::failure::{Class, Failure};
use signature::Signature;

/// The largest value of `max_body_bytes`, and its default.
pub const MOST_BODY_BYTES: u32 = 1 << 20;
pub const BODY_BYTES: u32 = 256 << 10;
/// The largest value of `rate_per_minute`, and its default.
pub const MOST_RATE: u32 = 60_000;
pub const RATE: u32 = 600;
/// The default of `idempotency_header`.
pub const IDEMPOTENCY_HEADER: &str = "idempotency-key";
const MAX_HEADERS: usize = 20;
const MAX_TEXT_LEN: usize = 200;
/// Headers that a workflow can never see, because they may contain credentials of the sender.
const NEVER_TAKEN: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "forwarded"];

/// The rule `on: http` of a definition.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// Requests with the same value of this header start only one execution.
    pub idempotency_header: Option<String>,
    /// The headers that the workflow can use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    pub max_body_bytes: Option<u32>,
    pub rate_per_minute: Option<u32>,
    pub signature: Option<Signature>,
    /// The input of the execution, with templates that can use the body; the body itself if absent.
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

/// Reads `on: {http: …}` of a document.
pub(crate) fn read(value: &Value, at: &str, problems: &mut Vec<Problem>) -> Option<Rule> {
    let known = &["idempotency_header", "headers", "max_body_bytes", "rate_per_minute", "signature", "input"];
    let mut fields = Fields::open(value, at, known, CheckTime::Run, problems)?;
    let mut rule = Rule {
        idempotency_header: header(&mut fields, "idempotency_header"),
        headers: Vec::new(),
        max_body_bytes: fields.count("max_body_bytes", MOST_BODY_BYTES),
        rate_per_minute: fields.count("rate_per_minute", MOST_RATE),
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
                format!("must be the name of a header, but not one of {}", NEVER_TAKEN.join(", ")),
            )),
        }
    }
    names
}

/// The input and the trigger of the execution that a request starts. A body that is not an object becomes the field
/// `body` of an object.
pub fn input_and_trigger(
    rule: &Rule,
    id: Uuid,
    body: Value,
    headers: &BTreeMap<String, String>,
) -> Result<(Value, Value), Failure> {
    let trigger = json!({ "type": "http", "id": id, "headers": headers });
    let input = if body.is_object() { body } else { json!({ "body": body }) };
    let Some(template) = &rule.input else { return Ok((input, trigger)) };
    let scope = Scope { inputs: Arc::new(input), trigger: Arc::new(trigger.clone()), ..Scope::default() };
    let bad = |message: String| Failure::new(Class::ValidationError, message);
    let template = Template::parse(template).map_err(|_| bad("on.http.input cannot be parsed".to_owned()))?;
    let input = template.resolve(&scope).map_err(|error| bad(format!("on.http.input: {error}")))?;
    Ok((input, trigger))
}

#[cfg(test)]
mod tests;
