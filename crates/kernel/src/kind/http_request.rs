//! HTTP_REQUEST: one call over the network.
//!
//! Invariants
//! - No header can contain a line break: names are tokens, and values hold no control characters.
//! - At most one of `body`, `form` and `text`.
//! - The size of the response is limited before the call is made.
//!
//! Not here: making the call, and which addresses may be called (the engine).

use serde_json::{Map, Value, json};

use super::registry::Spec;
use super::schema::{any, late, named, object, text};
use crate::definition::Manner;
use crate::definition::fields::{Code, Fields, Problem, child};
use crate::expression::type_name;
use crate::names::names;

/// The default and the highest limit for the size of a response.
pub const DEFAULT_RESPONSE_BYTES: u64 = 1 << 20;
pub const MAX_RESPONSE_BYTES: u64 = 10 << 20;
/// The longest URL, and the most headers, query parameters and form fields, each.
pub const MAX_URL_LEN: usize = 8_192;
pub const MAX_PAIRS: usize = 200;

names! {
    /// The methods that may be used.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Method {
        #[default]
        Get = "GET",
        Head = "HEAD",
        Post = "POST",
        Put = "PUT",
        Patch = "PATCH",
        Delete = "DELETE",
        Options = "OPTIONS",
    }
}

/// The body of the request.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Body {
    #[default]
    Empty,
    Json(Value),
    Form(Vec<(String, String)>),
    Text(String),
}

/// The call to make.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub method: Method,
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub query: Vec<(String, String)>,
    pub body: Body,
    /// The statuses that are not a failure; empty means all below 400.
    pub expect_status: Vec<u16>,
    pub max_response_bytes: u64,
}

impl Config {
    /// Does the author expect a response with this status?
    pub fn accepts(&self, status: u16) -> bool {
        if self.expect_status.is_empty() { status < 400 } else { self.expect_status.contains(&status) }
    }
}

pub(super) const FIELDS: &[&str] =
    &["method", "url", "headers", "query", "body", "form", "text", "expect_status", "max_response_bytes"];

/// The description of this kind.
pub(super) const SPEC: Spec = Spec {
    secret_fields: &["headers", "query", "body", "form", "text"],
    retry: |profiles| profiles.http,
    may_be_at_most_once: true,
    ..Spec::new("HTTP_REQUEST", Manner::Calls, "Makes one HTTP call and keeps its status, headers and body.")
};

/// JSON Schema of `with`.
pub fn schema() -> Value {
    let methods = Method::ALL.map(Method::name);
    let status = json!({ "type": "integer", "minimum": 100, "maximum": 599 });
    let url = json!({ "type": "string", "pattern": "^[Hh][Tt][Tt][Pp][Ss]?://[^/?#]", "maxLength": MAX_URL_LEN });
    let url = json!({ "description": "The URL, with http:// or https://.",
        "anyOf": [url, { "type": "string", "pattern": "\\{\\{" }] });
    let bytes = json!({ "type": "integer", "minimum": 1, "maximum": MAX_RESPONSE_BYTES });
    let statuses =
        json!({ "anyOf": [status, { "type": "array", "items": status, "minItems": 1, "maxItems": MAX_PAIRS }] });
    object(
        &["url"],
        &[
            late("method", "GET if absent.", json!({ "enum": methods })),
            ("url", url),
            late(
                "headers",
                "Header names with their values; null omits a header, a list repeats it.",
                named(MAX_PAIRS),
            ),
            late("query", "Query parameters, added to those of the url.", named(MAX_PAIRS)),
            any("body", "Sent as JSON."),
            late("form", "The body as a form.", named(MAX_PAIRS)),
            late("text", "Sent as it is.", text()),
            late("expect_status", "The statuses that are not a failure; all below 400 if absent.", statuses),
            late("max_response_bytes", "The largest response that is read; 1 MiB if absent.", bytes),
        ],
    )
}

pub(super) fn read(fields: &mut Fields<'_, '_>) -> Option<Config> {
    let method = fields.choice("method", &Method::ALL.map(|method| (method.name(), method))).unwrap_or_default();
    let url = url(fields);
    let headers = pairs(fields, "headers");
    for (name, value) in &headers {
        header(fields, name, value);
    }
    let query = pairs(fields, "query");
    let body = body(fields);
    let expect_status = expect_status(fields);
    let max = fields.integer("max_response_bytes", 1..=MAX_RESPONSE_BYTES).unwrap_or(DEFAULT_RESPONSE_BYTES);
    Some(Config { method, url: url?, headers, query, body, expect_status, max_response_bytes: max })
}

fn url(fields: &mut Fields<'_, '_>) -> Option<String> {
    fields.require("url");
    let url = fields.text("url")?;
    let lower = url.get(..8.min(url.len())).unwrap_or_default().to_ascii_lowercase();
    let host =
        ["https://", "http://"].iter().find(|scheme| lower.starts_with(**scheme)).map(|scheme| &url[scheme.len()..]);
    let wrong = match host {
        // If a template produced the URL, the engine's address guard checks it and reports the problem.
        _ if fields.is_final() && url.len() <= MAX_URL_LEN => return Some(url.to_owned()),
        None => "must start with http:// or https://",
        Some(host) if host.is_empty() || host.starts_with(['/', '?', '#']) => "names no host",
        Some(_) if url.chars().any(|c| c.is_control() || c == ' ') => "holds a space or a control character",
        Some(_) if url.len() > MAX_URL_LEN => "is longer than 8192 bytes",
        Some(_) => return Some(url.to_owned()),
    };
    fields.wrong("url", wrong);
    None
}

/// Names with their values: text, a number or a boolean. Null omits the name, a list repeats it.
fn pairs(fields: &mut Fields<'_, '_>, name: &str) -> Vec<(String, String)> {
    let Some(map) = fields.object(name) else { return Vec::new() };
    let mut all = Vec::new();
    for (key, value) in map {
        let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        for value in values {
            match value {
                Value::Null => {}
                Value::String(_) if fields.is_late(value) => {}
                Value::String(text) => all.push((key.clone(), text.clone())),
                Value::Bool(_) | Value::Number(_) => all.push((key.clone(), value.to_string())),
                Value::Array(_) | Value::Object(_) => {
                    let pointer = child(&fields.pointer(name), key);
                    let message = format!("must be text, a number or a boolean, not {}", type_name(value));
                    fields.problems.push(Problem::new(Code::WrongType, pointer, message));
                }
            }
        }
    }
    if map.len().max(all.len()) > MAX_PAIRS {
        fields.refuse(Code::TooLarge, name, format!("has more than {MAX_PAIRS} entries"));
    }
    names(fields, name, map);
    all
}

/// Names are never templates, so they are checked even if their value is not known yet.
fn names(fields: &mut Fields<'_, '_>, name: &str, map: &Map<String, Value>) {
    if name != "headers" {
        return;
    }
    for key in map.keys() {
        let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        let message = if key.is_empty() || !key.chars().all(token) {
            "is not a header name"
        } else if FRAMING.iter().any(|framing| key.eq_ignore_ascii_case(framing)) {
            "is set by the service and cannot be given"
        } else {
            continue;
        };
        let pointer = child(&fields.pointer(name), key);
        fields.problems.push(Problem::new(Code::BadName, pointer, message).of_key());
    }
}

/// Headers that define where a message ends: with a wrong one, a body could be read as another request.
const FRAMING: [&str; 7] =
    ["connection", "content-length", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"];

fn header(fields: &mut Fields<'_, '_>, name: &str, value: &str) {
    if value.chars().any(|c| c.is_control() && c != '\t') {
        let pointer = child(&fields.pointer("headers"), name);
        let message = "holds a line break or another control character";
        fields.problems.push(Problem::new(Code::BadValue, pointer, message));
    }
}

fn body(fields: &mut Fields<'_, '_>) -> Body {
    let given: Vec<&str> = ["body", "form", "text"].into_iter().filter(|name| fields.get(name).is_some()).collect();
    if let [_, second, ..] = given.as_slice() {
        fields.wrong(second, "give only one of body, form and text");
    }
    if let Some(value) = fields.get("body") {
        return Body::Json(value.clone());
    }
    if fields.get("form").is_some() {
        return Body::Form(pairs(fields, "form"));
    }
    fields.text("text").map_or(Body::Empty, |text| Body::Text(text.to_owned()))
}

fn expect_status(fields: &mut Fields<'_, '_>) -> Vec<u16> {
    let Some(value) = fields.value("expect_status") else { return Vec::new() };
    let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    let late = values.iter().any(|value| fields.is_late(value));
    let status = |value: &Value| value.as_u64().and_then(|status| u16::try_from(status).ok());
    let all: Option<Vec<u16>> =
        values.iter().map(|value| status(value).filter(|status| (100..=599).contains(status))).collect();
    match all {
        Some(all) if !all.is_empty() && all.len() <= MAX_PAIRS => all,
        _ if late => Vec::new(),
        _ => {
            fields.wrong("expect_status", "must be a status from 100 to 599 or a list of them");
            Vec::new()
        }
    }
}
