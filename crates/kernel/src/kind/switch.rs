//! SWITCH: takes the branch of the first case that matches, or the branch `default`.
//!
//!     value: ${{ inputs.tier }}
//!     cases:
//!       - { equals: gold, label: fast }
//!       - { equals: [silver, bronze], label: usual }
//!       - { if: inputs.total > 1000, label: review }
//!     default: other
//!
//! Invariants
//! - Cases are tried in their order. `equals` compares `value` with a literal, or with each item of a list.
//! - `if` is an expression and never a template, so data can never become part of the expression.
//! - Without `default`, a value that matches no case fails the node with `CONTROL_FLOW_ERROR`. Otherwise every node
//!   after it would be skipped by accident.
//!
//! Not here: which values are equal, and which count as true (`expression`).

use serde_json::{Map, Value, json};

use super::condition;
use super::registry::Spec;
use super::schema::{self, any, early, object};
use crate::definition::Manner;
use crate::definition::fields::{CheckTime, Fields, child};
use crate::expression::template::{self, Survey};
use crate::expression::{Expression, Scope, is_same};
use crate::ids::Label;
use crate::run::failure::{Class, Failure};

/// The most cases of one switch.
const MAX_CASES: usize = 100;

/// The value and the cases to decide by.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub value: Value,
    pub cases: Vec<Case>,
    pub default: Option<Label>,
}

/// A branch, and the test that selects it.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub test: Test,
    pub label: Label,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// The value is one of these.
    Equals(Vec<Value>),
    If(Expression),
}

impl Config {
    /// The branch to take.
    pub fn decide(&self, scope: &Scope) -> Result<Label, Failure> {
        for case in &self.cases {
            let fits = match &case.test {
                Test::Equals(values) => is_one_of(&self.value, values)?,
                Test::If(expression) => expression.test(scope)?,
            };
            if fits {
                return Ok(case.label.clone());
            }
        }
        let none = || Failure::new(Class::ControlFlowError, "no case matches, and there is no default");
        self.default.clone().ok_or_else(none)
    }
}

fn is_one_of(value: &Value, values: &[Value]) -> Result<bool, Failure> {
    for one in values {
        if is_same(value, one)? {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) const FIELDS: &[&str] = &["value", "cases", "default"];
const CASE_FIELDS: &[&str] = &["equals", "if", "label"];

/// The description of this kind.
pub(super) const SPEC: Spec = Spec {
    labels,
    references,
    resolve,
    is_action: false,
    ..Spec::new("SWITCH", Manner::Computes, "Takes the branch of the first case that matches, or its default.")
};

/// JSON Schema of `with`.
pub fn schema() -> Value {
    let label = || json!({ "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_-]{0,63}$" });
    let mut case = object(
        &["label"],
        &[
            any("equals", "The value that selects this branch, or a list of such values."),
            early("if", "An expression; this branch is taken if it is true.", schema::condition()),
            ("label", label()),
        ],
    );
    case["oneOf"] = json!([{ "required": ["equals"] }, { "required": ["if"] }]);
    let cases = json!({ "description": "Tried in this order: each has a label, and equals (a value, or a list of \
        values) or if (an expression).", "type": "array", "minItems": 1, "maxItems": MAX_CASES, "items": case });
    object(
        &["cases"],
        &[
            any("value", "The value that `equals` compares with."),
            ("cases", cases),
            early("default", "The branch if no case matches.", label()),
        ],
    )
}

/// Every branch that the node may take.
pub(super) fn labels(with: &Value) -> Vec<String> {
    let cases = with["cases"].as_array().into_iter().flatten().map(|case| &case["label"]);
    let mut labels: Vec<String> =
        cases.chain([&with["default"]]).filter_map(Value::as_str).map(str::to_owned).collect();
    let mut seen = std::collections::BTreeSet::new();
    labels.retain(|label| seen.insert(label.clone()));
    labels
}

/// The paths that `value` and the cases use.
pub(super) fn references(with: &Value) -> Survey {
    let mut survey = template::survey(&value_alone(with));
    let cases = with["cases"].as_array().into_iter().flatten().enumerate();
    for (at, case) in cases {
        survey.add("", condition::references(&format!("/cases/{at}/if"), case.get("if")));
    }
    survey
}

/// Resolves the templates in `value`. The other fields cannot contain templates.
pub(super) fn resolve(with: &Value, scope: &Scope) -> Result<Value, Failure> {
    let resolved = super::resolve_all(&value_alone(with), scope)?;
    let mut input = with.clone();
    if let (Some(fields), Some(value)) = (input.as_object_mut(), resolved.get("value")) {
        fields.insert("value".to_owned(), value.clone());
    }
    Ok(input)
}

fn value_alone(with: &Value) -> Value {
    let value = with.get("value").map(|value| ("value".to_owned(), value.clone()));
    Value::Object(value.into_iter().collect::<Map<_, _>>())
}

pub(super) fn read(fields: &mut Fields<'_, '_>) -> Option<Config> {
    let default = label(fields, "default");
    let cases = cases(fields);
    if cases.iter().flatten().any(|case| matches!(case.test, Test::Equals(_))) && !fields.has("value") {
        fields.require("value");
    }
    Some(Config { value: fields.get("value").cloned().unwrap_or_default(), cases: cases?, default })
}

fn cases(fields: &mut Fields<'_, '_>) -> Option<Vec<Case>> {
    fields.require("cases");
    let Some(Value::Array(items)) = fields.get("cases") else {
        if fields.get("cases").is_some() {
            fields.wrong("cases", "must be a list of cases, each with a label and equals or if");
        }
        return None;
    };
    if items.is_empty() || items.len() > MAX_CASES {
        fields.wrong("cases", format!("must have 1 to {MAX_CASES} cases"));
        return None;
    }
    let at = fields.pointer("cases");
    let read = items.iter().enumerate().map(|(place, item)| {
        let at = child(&at, &place.to_string());
        Fields::open(item, &at, CASE_FIELDS, CheckTime::Run, fields.problems).and_then(|mut fields| case(&mut fields))
    });
    read.collect::<Vec<_>>().into_iter().collect()
}

fn case(fields: &mut Fields<'_, '_>) -> Option<Case> {
    fields.require("label");
    let label = label(fields, "label");
    let test = match (fields.has("equals"), fields.get("if")) {
        (true, Some(_)) => {
            fields.wrong("if", "give either equals or if, not both");
            None
        }
        (true, None) => fields.any("equals").map(|value| match value {
            Value::Array(values) => Test::Equals(values.clone()),
            one => Test::Equals(vec![one.clone()]),
        }),
        (false, Some(_)) => condition::field(fields, "if").map(Test::If),
        (false, None) => {
            fields.lacks("equals or if");
            None
        }
    };
    Some(Case { test: test?, label: label? })
}

fn label(fields: &mut Fields<'_, '_>, name: &str) -> Option<Label> {
    let text = fields.text(name)?;
    match Label::new(text) {
        Ok(label) if text == crate::definition::ERROR_LABEL => {
            fields.wrong(name, "error is the branch of a failed node: choose another word");
            Some(label)
        }
        Ok(label) => Some(label),
        Err(bad) => {
            fields.wrong(name, bad.to_string());
            None
        }
    }
}
