//! WAIT_FOR_EVENT: waits for a person, a callback, or a domain event.
//!
//!     data: { approved: { type: boolean, required: true } }     # the fields of an answer
//!     on_timeout: continue                                      # or fail
//!     default: { approved: false }
//!
//!     event: order.paid                                         # instead: a domain event
//!     match: event.data.order_id == inputs.order_id
//!
//! Invariants
//! - `data` and `match` cannot contain templates. So an answer can be checked before the node has begun.
//! - A wait either gets one answer or expires; never both.
//! - The output's `data` always has the declared fields: a `default` is checked and filled in like an answer.
//!
//! Not here: storing answers and expiring waits (`store::wait`).

use jiff::Timestamp;
use serde_json::{Value, json};

use super::condition;
use super::registry::Spec;
use super::schema::{self, any, early, late, line, object};
use crate::definition::Manner;
use crate::definition::fields::{Code, Fields, Problem};
use crate::definition::inputs::{self, Inputs};
use crate::event::binding::MAX_TYPE_LEN;
use crate::expression::template::{self, Survey};
use crate::expression::{Expression, Scope};
use crate::run::failure::{Class, Failure};

/// The answer or event to wait for.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The type of a domain event; `None` if the node waits for an answer from a person or a program.
    pub event: Option<String>,
    /// An expression that selects events of that type.
    pub matches: Option<String>,
    /// The declared fields of an answer; null if any data is allowed.
    pub data: Value,
    pub on_timeout: OnTimeout,
    /// The data of the output after a timeout; null if not set.
    pub default: Value,
}

/// What happens when the wait expires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnTimeout {
    #[default]
    Fail,
    Continue,
}

pub(super) const FIELDS: &[&str] = &["data", "event", "match", "on_timeout", "default"];
const ON_TIMEOUT: &[(&str, OnTimeout)] = &[("fail", OnTimeout::Fail), ("continue", OnTimeout::Continue)];

/// The description of this kind.
pub(super) const SPEC: Spec = Spec {
    references,
    resolve,
    retry: |profiles| profiles.work.once(),
    is_tried_once: true,
    ..Spec::new(
        "WAIT_FOR_EVENT",
        Manner::WaitsForAnswer,
        "Waits for a person, a callback or a domain event; the run needs no process meanwhile.",
    )
};

/// JSON Schema of `with`.
pub fn schema() -> Value {
    let data = json!({ "type": "object", "additionalProperties": inputs::schema() });
    object(
        &[],
        &[
            early(
                "data",
                "The fields of an answer, each a subset of JSON Schema; any data is accepted if absent.",
                data,
            ),
            late("event", "Waits for a domain event of this type instead of an answer.", line(MAX_TYPE_LEN)),
            early(
                "match",
                "An expression that selects events of that type, such as event.data.id == inputs.id.",
                schema::condition(),
            ),
            late(
                "on_timeout",
                "What happens when the node's timeout ends: the node fails, or continues with `default`.",
                json!({ "enum": ["fail", "continue"] }),
            ),
            any("default", "The data of the output if the wait expires and continues."),
        ],
    )
}

/// Checks an answer and fills in its defaults, or returns all problems. `with` is the node's configuration before its
/// templates are resolved.
pub fn check_answer(with: &Value, data: Option<Value>) -> Result<Value, Vec<Problem>> {
    filled(&with["data"], data)
}

fn filled(declared: &Value, data: Option<Value>) -> Result<Value, Vec<Problem>> {
    Ok(Inputs::read(declared, !declared.is_object()).apply(data)?.unwrap_or_default())
}

/// Does the event in the scope match the expression? Without an expression, every event matches.
pub fn fits(matches: Option<&str>, scope: &Scope) -> Result<bool, Failure> {
    let Some(source) = matches else { return Ok(true) };
    let unreadable = |error| Failure::new(Class::ValidationError, format!("/match: {error}"));
    Ok(Expression::parse(source).map_err(unreadable)?.test(scope)?)
}

impl Config {
    /// The output of the node after an answer.
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

    /// The result of the node when the wait expires.
    pub fn expired(&self) -> Result<Value, Failure> {
        match self.on_timeout {
            OnTimeout::Continue => Ok(json!({ "timed_out": true, "data": self.checked_default()? })),
            OnTimeout::Fail => Err(Failure::new(Class::Timeout, "no answer arrived in time")),
        }
    }

    fn checked_default(&self) -> Result<Value, Failure> {
        if self.default.is_null() {
            return Ok(Value::Null);
        }
        filled(&self.data, Some(self.default.clone())).map_err(|problems| {
            let all: Vec<String> = problems.into_iter().map(|problem| problem.below("/default").to_string()).collect();
            Failure::new(Class::ValidationError, all.join("; "))
        })
    }
}

/// The paths that the templates and the `match` use.
pub(super) fn references(with: &Value) -> Survey {
    let mut survey = template::survey(&templates(with));
    survey.add("", condition::references("/match", with.get("match")));
    survey
}

/// The node's input: templates are resolved, and `data` and `match` are unchanged.
pub(super) fn resolve(with: &Value, scope: &Scope) -> Result<Value, Failure> {
    let mut input = super::resolve_all(&templates(with), scope)?;
    for name in ["data", "match"] {
        if let (Some(value), Some(input)) = (with.get(name), input.as_object_mut()) {
            input.insert(name.to_owned(), value.clone());
        }
    }
    Ok(input)
}

/// The configuration without `data` and `match`, which cannot contain templates.
fn templates(with: &Value) -> Value {
    super::without(with, &["data", "match"])
}

pub(super) fn read(fields: &mut Fields<'_, '_>) -> Option<Config> {
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
    let matches = condition::field(fields, "match").map(|expression| expression.source().to_owned());
    if matches.is_some() && fields.get("event").is_none() {
        fields.wrong("match", "the field `event` is missing: set it to the type of the event to wait for");
    }
    let on_timeout = fields.choice("on_timeout", ON_TIMEOUT).unwrap_or_default();
    let default = fields.get("default").cloned().unwrap_or_default();
    if !fields.is_final() {
        check_default(fields, &data, &default);
    }
    Some(Config { event, matches, data, on_timeout, default })
}

/// Checks `default` when the version is published, if it contains no template.
fn check_default(fields: &mut Fields<'_, '_>, data: &Value, default: &Value) {
    if default.is_null() {
        return;
    }
    if matches!(fields.get("on_timeout").map(Value::as_str), None | Some(Some("fail"))) {
        fields
            .wrong("default", "is used only with on_timeout: continue; otherwise the node fails when its timeout ends");
    }
    // If the declarations in `data` are invalid, they are reported as problems themselves.
    if is_literal(default) && inputs::check(data).is_empty() {
        let at = fields.pointer("default");
        let found = filled(data, Some(default.clone())).err().unwrap_or_default();
        // The document's structure is valid: the author chose a wrong value, so the code is `BadValue`.
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
