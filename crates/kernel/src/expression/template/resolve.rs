//! Replaces the expressions of a template by their values.
//!
//! Invariants
//! - Every byte of a result is charged before it is copied; all expressions of a template share one budget.
//! - If secrets must stay hidden, an expression that mentions a secret is not evaluated, and its value is `***`.
//! - An error has a pointer to its place. Each level of the template adds its segment when it returns the error.
//!
//! Not here: reading templates (`template`).

use std::borrow::Cow;

use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::{Cause, MAX_RESOLVED_DEPTH, Part, ResolveError, Shape, push_segment};
use crate::access::secret::Secrets;
use crate::expression::{Budget, Expression, Scope, meter};
use crate::storable::{self, Unstorable};

/// The text that replaces a hidden secret.
pub const HIDDEN: &str = "***";

/// Resolves a template, to at most `limit` bytes.
pub(super) struct Resolver<'s> {
    scope: &'s Scope,
    secrets: Option<&'s Secrets>,
    limit: usize,
    left: usize,
    budget: Budget,
    /// Every text that contains a secret.
    pub(super) revealed: Vec<Zeroizing<String>>,
}

impl<'s> Resolver<'s> {
    pub(super) fn new(scope: &'s Scope, secrets: Option<&'s Secrets>, limit: usize) -> Self {
        Self { scope, secrets, limit, left: limit, budget: Budget::default(), revealed: Vec::new() }
    }

    pub(super) fn shape(&mut self, shape: &Shape, depth: usize) -> Result<Value, ResolveError> {
        match shape {
            Shape::Plain(value) => self.take(Cow::Borrowed(value), depth).map_err(here),
            Shape::Whole(expression) => self.whole(expression, depth).map_err(here),
            Shape::Mixed(parts) => self.mixed(parts).map_err(here),
            Shape::List(items) => {
                self.charge(2 + items.len()).map_err(here)?;
                let items = items.iter().enumerate();
                let items = items.map(|(at, item)| self.shape(item, depth + 1).map_err(|e| inside(&at.to_string(), e)));
                items.collect::<Result<Vec<_>, _>>().map(Value::Array)
            }
            Shape::Object(fields) => {
                self.charge(2).map_err(here)?;
                let mut object = Map::new();
                for (name, field) in fields {
                    self.charge(name.len() + 4).map_err(here)?;
                    object.insert(name.clone(), self.shape(field, depth + 1).map_err(|error| inside(name, error))?);
                }
                Ok(Value::Object(object))
            }
        }
    }

    fn whole(&mut self, expression: &Expression, depth: usize) -> Result<Value, Cause> {
        if self.hides(expression) {
            return self.take(Cow::Owned(Value::from(HIDDEN)), depth);
        }
        let value = expression.reveal(self.scope, self.secrets, &mut self.budget)?;
        let value = self.take(value, depth)?;
        if expression.mentions_secrets() {
            reveal(&value, &mut self.revealed)?;
        }
        Ok(value)
    }

    fn take(&mut self, value: Cow<'_, Value>, depth: usize) -> Result<Value, Cause> {
        self.charge_value(&value)?;
        check_storable(&value, depth)?;
        Ok(value.into_owned())
    }

    fn mixed(&mut self, parts: &[Part]) -> Result<Value, Cause> {
        let mut all = String::new();
        self.charge(2)?;
        for part in parts {
            match part {
                Part::Text(text) => self.push(&mut all, text)?,
                Part::Expression(expression) if self.hides(expression) => self.push(&mut all, HIDDEN)?,
                Part::Expression(expression) => {
                    let value = expression.reveal(self.scope, self.secrets, &mut self.budget)?;
                    check_storable(&value, 0)?;
                    let start = all.len();
                    match value.as_ref() {
                        Value::Null => {}
                        Value::String(text) => self.push(&mut all, text)?,
                        other => {
                            self.charge_value(other)?;
                            all.push_str(&other.to_string());
                        }
                    }
                    if expression.mentions_secrets() {
                        reveal(&value, &mut self.revealed)?;
                        reveal(&Value::from(&all[start..]), &mut self.revealed)?;
                    }
                }
            }
        }
        Ok(Value::String(all))
    }

    fn hides(&self, expression: &Expression) -> bool {
        self.secrets.is_none() && expression.mentions_secrets()
    }

    fn push(&mut self, all: &mut String, text: &str) -> Result<(), Cause> {
        self.charge(text.len())?;
        all.push_str(text);
        Ok(())
    }

    fn charge(&mut self, bytes: usize) -> Result<(), Cause> {
        self.left = self.left.checked_sub(bytes).ok_or(Cause::TooLarge { limit: self.limit })?;
        Ok(())
    }

    fn charge_value(&mut self, value: &Value) -> Result<(), Cause> {
        self.left = meter::weigh(value, self.left).ok_or(Cause::TooLarge { limit: self.limit })?;
        Ok(())
    }
}

/// The most texts that expressions with secrets may produce. Masking searches every response for each of them.
const MAX_REVEALED: usize = 64;

/// Adds every text and number of a value that contains a secret. Booleans and null reveal no secret.
fn reveal(value: &Value, revealed: &mut Vec<Zeroizing<String>>) -> Result<(), Cause> {
    let mut note = |text: String| {
        if text.is_empty() || revealed.iter().any(|known| **known == text) {
            return Ok(());
        }
        if revealed.len() == MAX_REVEALED {
            return Err(Cause::Revealed);
        }
        revealed.push(Zeroizing::new(text));
        Ok(())
    };
    match value {
        Value::Null | Value::Bool(_) => Ok(()),
        Value::Number(number) => note(number.to_string()),
        Value::String(text) => note(text.clone()),
        Value::Array(items) => items.iter().try_for_each(|item| reveal(item, revealed)),
        Value::Object(fields) => fields.iter().try_for_each(|(name, field)| {
            reveal(&Value::from(name.as_str()), revealed)?;
            reveal(field, revealed)
        }),
    }
}

/// Checks the value of an expression at this depth of the template.
fn check_storable(value: &Value, depth: usize) -> Result<(), Cause> {
    let levels = MAX_RESOLVED_DEPTH.checked_sub(depth).ok_or(Cause::TooDeep)?;
    storable::check(value, levels).map_err(|why| match why {
        Unstorable::Nul => Cause::Nul,
        Unstorable::TooDeep => Cause::TooDeep,
    })
}

fn here(cause: Cause) -> ResolveError {
    ResolveError { pointer: String::new(), cause }
}

fn inside(segment: &str, error: ResolveError) -> ResolveError {
    let mut pointer = String::new();
    push_segment(&mut pointer, segment);
    pointer.push_str(&error.pointer);
    ResolveError { pointer, ..error }
}
