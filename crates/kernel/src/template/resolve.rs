//! Puts values in the place of expressions.
//!
//! Invariants
//! - Every byte of a result is charged before it is copied.
//! - What mentions a secret is not evaluated unless secrets are at hand, and then told of.
//! - An error carries its way out: each level adds its segment to the pointer.
//!
//! Not here: reading templates (`template`).

use std::borrow::Cow;
use std::io;

use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::{Cause, MAX_RESOLVED_DEPTH, Part, ResolveError, Shape, push_segment};
use crate::expression::{Expression, Scope};

/// What stands for a secret.
const MASK: &str = "***";

/// The value of a shape, of at most `limit` bytes, and every text in it that was made with a secret.
pub(super) fn resolve(
    shape: &Shape,
    scope: &Scope,
    limit: usize,
) -> Result<(Value, Vec<Zeroizing<String>>), ResolveError> {
    let mut resolver = Resolver { scope, limit, left: limit, revealed: Vec::new() };
    let value = resolver.shape(shape, 0)?;
    Ok((value, resolver.revealed))
}

struct Resolver<'s> {
    scope: &'s Scope,
    limit: usize,
    left: usize,
    revealed: Vec<Zeroizing<String>>,
}

impl<'s> Resolver<'s> {
    /// What an expression yields, or what stands for it.
    fn view<'e>(&mut self, expression: &'e Expression) -> Result<Cow<'e, Value>, Cause>
    where
        's: 'e,
    {
        if !expression.mentions_secrets() {
            return Ok(expression.view(self.scope)?);
        }
        if self.scope.secrets.is_none() {
            return Ok(Cow::Owned(Value::String(MASK.to_owned())));
        }
        let value = expression.view(self.scope)?;
        reveal(&value, &mut self.revealed);
        Ok(value)
    }

    fn shape(&mut self, shape: &Shape, depth: usize) -> Result<Value, ResolveError> {
        match shape {
            Shape::Plain(value) => self.take(value, depth).map_err(here),
            Shape::Whole(expression) => {
                let value = self.view(expression).map_err(here)?;
                self.take(&value, depth).map_err(here)
            }
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

    fn take(&mut self, value: &Value, depth: usize) -> Result<Value, Cause> {
        self.charge_value(value)?;
        storable(value, depth)?;
        Ok(value.clone())
    }

    fn mixed(&mut self, parts: &[Part]) -> Result<Value, Cause> {
        let mut all = String::new();
        self.charge(2)?;
        for part in parts {
            match part {
                Part::Text(text) => {
                    self.charge(text.len())?;
                    all.push_str(text);
                }
                Part::Expression(expression) => {
                    let value = self.view(expression)?;
                    storable(&value, 0)?;
                    match value.as_ref() {
                        Value::Null => {}
                        Value::String(text) => {
                            self.charge(text.len())?;
                            all.push_str(text);
                        }
                        other => {
                            self.charge_value(other)?;
                            all.push_str(&other.to_string());
                        }
                    }
                }
            }
        }
        Ok(Value::String(all))
    }

    fn charge(&mut self, bytes: usize) -> Result<(), Cause> {
        self.left = self.left.checked_sub(bytes).ok_or(Cause::TooLarge { limit: self.limit })?;
        Ok(())
    }

    fn charge_value(&mut self, value: &Value) -> Result<(), Cause> {
        let mut meter = Meter { left: self.left };
        serde_json::to_writer(&mut meter, value).map_err(|_| Cause::TooLarge { limit: self.limit })?;
        self.left = meter.left;
        Ok(())
    }
}

/// Every text within a value.
fn reveal(value: &Value, revealed: &mut Vec<Zeroizing<String>>) {
    match value {
        Value::String(text) => revealed.push(Zeroizing::new(text.clone())),
        Value::Array(items) => items.iter().for_each(|item| reveal(item, revealed)),
        Value::Object(fields) => fields.values().for_each(|field| reveal(field, revealed)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Weighs a value as compact JSON without writing it, and stops as soon as it is too heavy.
struct Meter {
    left: usize,
}

impl io::Write for Meter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self.left.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn storable(value: &Value, depth: usize) -> Result<(), Cause> {
    if depth > MAX_RESOLVED_DEPTH {
        return Err(Cause::TooDeep);
    }
    match value {
        Value::String(text) if text.contains('\0') => Err(Cause::Nul),
        Value::Array(items) => items.iter().try_for_each(|item| storable(item, depth + 1)),
        Value::Object(fields) => {
            fields.iter().try_for_each(
                |(name, field)| {
                    if name.contains('\0') { Err(Cause::Nul) } else { storable(field, depth + 1) }
                },
            )
        }
        _ => Ok(()),
    }
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
