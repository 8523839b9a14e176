//! CONDITION: takes the branch `true` or `false`.
//!
//! Invariants
//! - `if` is an expression, with or without `${{ }}` around it. It is never resolved as a template, so data can never
//!   become part of the expression.
//!
//! Not here: which values count as true (`expression::truthy`).

use serde_json::{Value, json};

use super::registry::Spec;
use super::schema::{condition, object};
use crate::definition::Manner;
use crate::definition::fields::{Fields, unreadable};
use crate::expression::template::{Survey, Template};
use crate::expression::{Expression, ParseError, Scope};
use crate::ids::Label;
use crate::run::failure::Failure;

/// The condition to decide by.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub expression: Expression,
}

pub(super) const FIELDS: &[&str] = &["if"];

/// The description of this kind.
pub(super) const SPEC: Spec = Spec {
    labels: |_| vec!["true".to_owned(), "false".to_owned()],
    references: |with| references("/if", with.get("if")),
    // `if` is an expression, so there is no template to resolve.
    resolve: |with, _| Ok(with.clone()),
    is_action: false,
    ..Spec::new("CONDITION", Manner::Computes, "Takes the branch true or false.")
};

/// JSON Schema of `with`.
pub fn schema() -> Value {
    let decides = json!({ "description": "An expression that is true or false.", "anyOf": [condition()] });
    object(&["if"], &[("if", decides)])
}

/// The branch to take.
pub fn decide(expression: &Expression, scope: &Scope) -> Result<Label, Failure> {
    let branch = if expression.test(scope)? { "true" } else { "false" };
    Ok(Label::new(branch).expect("both branches are good names"))
}

/// The paths that a condition uses, each with its pointer; empty if the condition cannot be parsed.
pub(super) fn references(at: &str, condition: Option<&Value>) -> Survey {
    let Some(expression) = condition.and_then(|value| parse(value).ok()) else { return Survey::default() };
    let paths = expression.references().into_iter().map(|path| (at.to_owned(), path.clone()));
    Survey { paths: paths.collect(), statuses: expression.uses_statuses(), ..Survey::default() }
}

pub(super) fn read(fields: &mut Fields<'_, '_>) -> Option<Config> {
    fields.require("if");
    field(fields, "if").map(|expression| Config { expression })
}

/// Reads a field that holds an expression. None if it is absent or cannot be read.
pub(crate) fn field(fields: &mut Fields<'_, '_>, name: &str) -> Option<Expression> {
    let parsed = parse(fields.get(name)?);
    parsed.map_err(|error| fields.problems.push(unreadable(fields.pointer(name), &error))).ok()
}

/// Reads a condition: an expression, bare or wrapped in `${{ }}`.
pub(crate) fn parse(value: &Value) -> Result<Expression, ParseError> {
    let refuse = |message: &str| ParseError::new(0, message);
    match value {
        Value::String(text) if text.trim_start().starts_with(['$', '{']) => {
            let template = Template::parse(&Value::String(text.trim().to_owned()));
            let template = template.map_err(|mut errors| errors.swap_remove(0).1)?;
            template
                .expression()
                .cloned()
                .ok_or_else(|| refuse("must be one expression: put ${{ }} around all of it, or omit it"))
        }
        Value::String(text) => Expression::parse(text),
        // YAML reads a bare `true` as a boolean.
        Value::Bool(truth) => Expression::parse(&truth.to_string()),
        _ => Err(refuse("must be an expression such as inputs.total > 10")),
    }
}
