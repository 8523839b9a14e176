//! HTTP_REQUEST: one call over the network.
//!
//! Invariants
//! - Nothing that is sent as a head can break a line: names are tokens, values hold no control
//!   characters.
//! - At most one of `body`, `form` and `text`.
//! - How much of an answer is kept is bounded before the call is made.
//!
//! Not here: making the call, and which addresses may be called (the engine).

use serde_json::{Map, Value, json};
use zeroize::Zeroize;

use super::registry::Spec;
use super::schema::{any, late, named, object};
use crate::definition::Manner;
use crate::definition::fields::{Code, Fields, Problem, child};
use crate::expression::type_name;
use crate::run::failure::Failure;

/// How much of an answer is read unless the author says otherwise, and the most that may be asked for.
pub const DEFAULT_RESPONSE_BYTES: u64 = 1 << 20;
pub const MAX_RESPONSE_BYTES: u64 = 10 << 20;
/// The longest URL, and the most headers, query parameters and form fields, each.
pub const MAX_URL_LEN: usize = 8_192;
pub const MAX_PAIRS: usize = 200;

/// The methods that may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    #[default]
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
    Options,
}

impl Method {
    const ALL: [(&'static str, Method); 7] = [
        ("GET", Method::Get),
        ("HEAD", Method::Head),
        ("POST", Method::Post),
        ("PUT", Method::Put),
        ("PATCH", Method::Patch),
        ("DELETE", Method::Delete),
        ("OPTIONS", Method::Options),
    ];

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(_, method)| *method == self).map_or("GET", |(name, _)| name)
    }
}

/// What is sent along.
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
    /// The statuses that are no failure; empty means all below 400.
    pub expect_status: Vec<u16>,
    pub max_response_bytes: u64,
}

impl Config {
    /// Is an answer with this status what the author expects?
    pub fn accepts(&self, status: u16) -> bool {
        if self.expect_status.is_empty() { status < 400 } else { self.expect_status.contains(&status) }
    }
}

const FIELDS: &[&str] =
    &["method", "url", "headers", "query", "body", "form", "text", "expect_status", "max_response_bytes"];

/// What the kind says of itself.
pub(super) const SPEC: Spec = Spec {
    secret_fields: &["headers", "query", "body", "form", "text"],
    retry: |profiles| profiles.http,
    ..Spec::new(
        "HTTP_REQUEST",
        Manner::Calls,
        "Makes one HTTP call and keeps its status, headers and body.",
        schema,
        check,
    )
};

/// What `with` must look like.
pub fn schema() -> Value {
    let methods: Vec<&str> = Method::ALL.iter().map(|(name, _)| *name).collect();
    let status = json!({ "type": "integer", "minimum": 100, "maximum": 599 });
    let url = json!({ "type": "string", "pattern": "^[Hh][Tt][Tt][Pp][Ss]?://[^/?#]", "maxLength": MAX_URL_LEN });
    let bytes = json!({ "type": "integer", "minimum": 1, "maximum": MAX_RESPONSE_BYTES });
    let statuses =
        json!({ "anyOf": [status, { "type": "array", "items": status, "minItems": 1, "maxItems": MAX_PAIRS }] });
    object(
        &["url"],
        &[
            ("method", late("GET if not said.", json!({ "enum": methods }))),
            (
                "url",
                json!({ "description": "Where to, with http:// or https://.",
                    "anyOf": [url, { "type": "string", "pattern": "\\{\\{" }] }),
            ),
            ("headers", late("Names with a value each; null leaves one out, a list repeats it.", named(MAX_PAIRS))),
            ("query", late("Query parameters, added to those of the url.", named(MAX_PAIRS))),
            ("body", any("Sent as JSON.")),
            ("form", late("Sent as a form.", named(MAX_PAIRS))),
            ("text", late("Sent as it is.", json!({ "type": "string" }))),
            ("expect_status", late("The statuses that are no failure; all below 400 if not said.", statuses)),
            ("max_response_bytes", late("How much of the answer is read; 1 MiB if not said.", bytes)),
        ],
    )
}

pub fn check(with: &Value) -> Vec<Problem> {
    super::check_with(with, FIELDS, read)
}

/// The input may hold secrets: it is wiped.
pub fn prepare(mut input: Value) -> Result<Config, Failure> {
    let config = super::prepare_with(&input, FIELDS, read);
    wipe(&mut input);
    config
}

fn wipe(value: &mut Value) {
    match value {
        Value::String(text) => text.zeroize(),
        Value::Array(items) => items.iter_mut().for_each(wipe),
        Value::Object(fields) => fields.values_mut().for_each(wipe),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn read(fields: &mut Fields<'_, '_>) -> Option<Config> {
    let method = fields.choice("method", &Method::ALL).unwrap_or_default();
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
        // What a template made of it is the guard's to refuse, which says so in its own words.
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

/// Names with a value each: text, a number or a boolean; null leaves the name out, a list repeats it.
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

/// Names are never templates, so even those whose value is not known yet are checked.
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

/// Headers that say where a message ends: a wrong one would let a body pass for another request.
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
