//! CONDITION: takes the branch `true` or `false`.
//!
//! Invariants
//! - `if` is a bare expression; wrapped in `${{ }}` it means the same. It is never resolved as a
//!   template, so its result stays a value and cannot become an expression.
//!
//! Not here: what is true (`expression::truthy`).

use serde_json::{Value, json};

use super::registry::Spec;
use super::schema::object;
use crate::definition::Manner;
use crate::definition::fields::{Fields, Problem, unreadable};
use crate::expression::template::{Survey, Template};
use crate::expression::{Expression, ParseError, Scope};
use crate::ids::Label;
use crate::run::failure::Failure;

/// What to decide by.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub expression: Expression,
}

const FIELDS: &[&str] = &["if"];

/// What the kind says of itself.
pub(super) const SPEC: Spec = Spec {
    labels: |_| vec!["true".to_owned(), "false".to_owned()],
    references: |with| references("/if", with.get("if")),
    // Its `if` is an expression already.
    resolve: |with, _| Ok(with.clone()),
    is_action: false,
    ..Spec::new("CONDITION", Manner::Computes, "Takes the branch true or false.", schema, check)
};

/// What `with` must look like.
pub fn schema() -> Value {
    let condition = json!({ "type": ["string", "boolean"] });
    object(&["if"], &[("if", json!({ "description": "An expression that is true or false.", "anyOf": [condition] }))])
}

pub fn check(with: &Value) -> Vec<Problem> {
    super::check_with(with, FIELDS, read)
}

pub fn prepare(input: Value) -> Result<Config, Failure> {
    super::prepare_with(&input, FIELDS, read)
}

/// The branch to take.
pub fn decide(expression: &Expression, scope: &Scope) -> Result<Label, Failure> {
    let branch = if expression.test(scope)? { "true" } else { "false" };
    Ok(Label::new(branch).expect("both branches are good names"))
}

/// What a condition looks at, with where it stands; nothing if it cannot be read.
pub(super) fn references(at: &str, condition: Option<&Value>) -> Survey {
    let Some(expression) = condition.and_then(|value| parse(value).ok()) else { return Survey::default() };
    let paths = expression.references().into_iter().map(|path| (at.to_owned(), path.clone()));
    Survey { paths: paths.collect(), statuses: expression.looks_at_statuses(), ..Survey::default() }
}

fn read(fields: &mut Fields<'_, '_>) -> Option<Config> {
    fields.require("if");
    match parse(fields.get("if")?) {
        Ok(expression) => Some(Config { expression }),
        Err(error) => {
            fields.problems.push(unreadable(fields.pointer("if"), &error));
            None
        }
    }
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
                .ok_or_else(|| refuse("must be one expression: put ${{ }} around all of it or leave it out"))
        }
        Value::String(text) => Expression::parse(text),
        // YAML reads a bare `true` as a boolean.
        Value::Bool(truth) => Expression::parse(&truth.to_string()),
        _ => Err(refuse("must be an expression such as inputs.total > 10")),
    }
}
