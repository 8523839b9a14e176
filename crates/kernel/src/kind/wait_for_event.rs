//! WAIT_FOR_EVENT: waits for a person, a callback, or a domain event.
//!
//!     data: { approved: { type: boolean, required: true } }     # what an answer must bring
//!     on_timeout: continue                                      # or fail
//!     default: { approved: false }
//!
//!     event: order.paid                                         # instead: a domain event
//!     match: event.data.order_id == inputs.order_id
//!
//! Invariants
//! - `data` and `match` are read as they stand, so that an answer can be judged before the node has begun.
//! - There is one answer, or the time is up; never both.
//! - Whoever reads `data` behind the node finds what was declared: a `default` is judged and filled in as an answer is.
//!
//! Not here: keeping answers (`store::wait`), whose time is up (the same).

use jiff::Timestamp;
use serde_json::{Value, json};

use super::condition;
use super::registry::Spec;
use super::schema::{any, early, late, object};
use crate::definition::Manner;
use crate::definition::fields::{Code, Fields, Problem, unreadable};
use crate::definition::inputs::{self, Inputs};
use crate::event::binding::MAX_TYPE_LEN;
use crate::expression::template::{self, Survey};
use crate::expression::{Expression, Scope};
use crate::run::failure::{Class, Failure};

/// What to wait for.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The type of a domain event; an answer by a person or a program if not said.
    pub event: Option<String>,
    /// Which events of that type: an expression.
    pub matches: Option<String>,
    /// What an answer must bring; null if anything will do.
    pub data: Value,
    pub on_timeout: OnTimeout,
    /// The data that a wait goes on with whose time is up; null if nothing is said.
    pub default: Value,
}

/// What happens when the time is up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnTimeout {
    #[default]
    Fail,
    Continue,
}

const FIELDS: &[&str] = &["data", "event", "match", "on_timeout", "default"];
const ON_TIMEOUT: &[(&str, OnTimeout)] = &[("fail", OnTimeout::Fail), ("continue", OnTimeout::Continue)];

/// What the kind says of itself.
pub(super) const SPEC: Spec = Spec {
    references,
    resolve,
    retry: |profiles| profiles.work.once(),
    is_tried_once: true,
    ..Spec::new(
        "WAIT_FOR_EVENT",
        Manner::Asks,
        "Waits for a person, a callback or a domain event; the run needs no process meanwhile.",
        schema,
        check,
    )
};

/// What `with` must look like.
pub fn schema() -> Value {
    let data = json!({ "type": "object", "additionalProperties": inputs::schema() });
    object(
        &[],
        &[
            (
                "data",
                early(
                    "What an answer must bring, each field a subset of JSON Schema; anything is taken if absent.",
                    data,
                ),
            ),
            (
                "event",
                late(
                    "Instead of an answer: the type of a domain event.",
                    json!({ "type": "string", "minLength": 1, "maxLength": MAX_TYPE_LEN }),
                ),
            ),
            (
                "match",
                early(
                    "Which events of that type: an expression such as event.data.id == inputs.id.",
                    json!({ "type": ["string", "boolean"] }),
                ),
            ),
            (
                "on_timeout",
                late(
                    "What happens when the node's timeout is over: it fails, or goes on with default.",
                    json!({ "enum": ["fail", "continue"] }),
                ),
            ),
            ("default", any("The data that it goes on with then.")),
        ],
    )
}

pub fn check(with: &Value) -> Vec<Problem> {
    super::check_with(with, FIELDS, read)
}

pub fn prepare(input: Value) -> Result<Config, Failure> {
    super::prepare_with(&input, FIELDS, read)
}

/// What an answer brings, with its defaults; or all that is wrong with it. `with` is the node's own, unresolved.
pub fn judge(with: &Value, data: Option<Value>) -> Result<Value, Vec<Problem>> {
    taken(&with["data"], data)
}

fn taken(declared: &Value, data: Option<Value>) -> Result<Value, Vec<Problem>> {
    Ok(Inputs::read(declared, !declared.is_object()).apply(data)?.unwrap_or_default())
}

/// Does this event answer it? The scope has the event.
pub fn fits(matches: Option<&str>, scope: &Scope) -> Result<bool, Failure> {
    let Some(source) = matches else { return Ok(true) };
    let unreadable = |error| Failure::new(Class::ValidationError, format!("/match: {error}"));
    Ok(Expression::parse(source).map_err(unreadable)?.test(scope)?)
}

impl Config {
    /// What the node completes with when the answer is there.
    pub fn answered(&self, answer: Value, by: &str, at: Timestamp) -> Value {
        let mut output = json!({ "timed_out": false, "by": by, "at": at.to_string() });
        if self.event.is_some() {
            output["data"] = answer["data"].clone();
            output["event"] = answer;
        } else {
            output["data"] = answer;
        }
        output
    }

    /// What becomes of the node when the time is up.
    pub fn expired(&self) -> Result<Value, Failure> {
        match self.on_timeout {
            OnTimeout::Continue => Ok(json!({ "timed_out": true, "data": self.judged_default()? })),
            OnTimeout::Fail => Err(Failure::new(Class::Timeout, "nobody answered in time")),
        }
    }

    fn judged_default(&self) -> Result<Value, Failure> {
        if self.default.is_null() {
            return Ok(Value::Null);
        }
        taken(&self.data, Some(self.default.clone())).map_err(|problems| {
            let all: Vec<String> = problems.into_iter().map(|problem| problem.below("/default").to_string()).collect();
            Failure::new(Class::ValidationError, all.join("; "))
        })
    }
}

/// What it looks at: its templates, and its `match`.
pub(super) fn references(with: &Value) -> Survey {
    let mut survey = template::survey(&templates(with));
    let matches = condition::references("/match", with.get("match"));
    survey.paths.extend(matches.paths);
    survey.statuses |= matches.statuses;
    survey
}

/// Its input: templates resolved, the rest as it stands.
pub(super) fn resolve(with: &Value, scope: &Scope) -> Result<Value, Failure> {
    let mut input = super::resolve_all(&templates(with), scope)?;
    for name in ["data", "match"] {
        if let (Some(value), Some(input)) = (with.get(name), input.as_object_mut()) {
            input.insert(name.to_owned(), value.clone());
        }
    }
    Ok(input)
}

/// The part of the configuration that holds templates.
fn templates(with: &Value) -> Value {
    super::without(with, &["data", "match"])
}

fn read(fields: &mut Fields<'_, '_>) -> Option<Config> {
    let data = fields.get("data").cloned().unwrap_or_default();
    if !data.is_null() {
        let at = fields.pointer("data");
        let found = inputs::check(&data).into_iter();
        fields.problems.extend(found.map(|found| found.below(&at)));
    }
    let event = fields.text("event").map(str::to_owned);
    if event.as_ref().is_some_and(|name| name.is_empty() || name.len() > MAX_TYPE_LEN) {
        fields.wrong("event", format!("must be 1 to {MAX_TYPE_LEN} bytes long"));
    }
    if fields.get("event").is_some() && fields.get("data").is_some() {
        fields.wrong("data", "give either data or event, not both");
    }
    let matches = match fields.get("match").map(condition::parse) {
        None => None,
        Some(Ok(expression)) => Some(expression.source().to_owned()),
        Some(Err(error)) => {
            fields.problems.push(unreadable(fields.pointer("match"), &error));
            None
        }
    };
    if matches.is_some() && fields.get("event").is_none() {
        fields.wrong("match", "is for an event: name its type in event");
    }
    let on_timeout = fields.choice("on_timeout", ON_TIMEOUT).unwrap_or_default();
    let default = fields.get("default").cloned().unwrap_or_default();
    if !fields.is_final() {
        check_default(fields, &data, &default);
    }
    Some(Config { event, matches, data, on_timeout, default })
}

/// What can be told of a default before it is needed.
fn check_default(fields: &mut Fields<'_, '_>, data: &Value, default: &Value) {
    if default.is_null() {
        return;
    }
    if matches!(fields.get("on_timeout").map(Value::as_str), None | Some(Some("fail"))) {
        fields.wrong("default", "is for on_timeout: continue; without it the node fails when its time is up");
    }
    // What is declared wrongly asks for nothing, and is a problem of its own.
    if is_literal(default) && inputs::check(data).is_empty() {
        let at = fields.pointer("default");
        let found = taken(data, Some(default.clone())).err().unwrap_or_default();
        // A document's shape is right: what is wrong is what its author declared.
        fields.problems.extend(found.into_iter().map(|found| Problem { code: Code::BadValue, ..found.below(&at) }));
    }
}

fn is_literal(value: &Value) -> bool {
    match value {
        Value::String(text) => !template::is_templated(text),
        Value::Array(items) => items.iter().all(is_literal),
        Value::Object(fields) => fields.values().all(is_literal),
        _ => true,
    }
}
