//! Checks a value against its declaration.
//!
//! Invariants
//! - A message names the field and what its value must be, never the value, because an input may contain a secret.
//! - The number of reported problems is limited. Checking stops at the limit.
//! - Matching patterns, and comparing with declared values and fields, is charged to a budget. If the budget is spent,
//!   that is reported as a problem of the input, and checking stops.
//!
//! Not here: reading declarations (`declare`).

use serde_json::Value;

use super::{Format, MAX_PROBLEMS, Schema, Type};
use crate::definition::fields::unknown;
use crate::definition::problem::{Code, Problem};
use crate::expression::template::push_segment;
use crate::expression::{Budget, EvalError, type_name};

/// How many comparisons with values or names cost one step.
const COMPARED: usize = 32;

/// Fills in defaults for missing fields, in objects that exist.
pub(super) fn fill(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, inner) in &schema.fields {
                match fields.get_mut(name) {
                    Some(value) => fill(inner, value),
                    None => {
                        if let Some(default) = &inner.default {
                            fields.insert(name.clone(), default.clone());
                        }
                    }
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                items.iter_mut().for_each(|item| fill(schema, item));
            }
        }
        _ => {}
    }
}

/// Adds the problems of a value.
pub(super) fn judge(schema: &Schema, value: &Value, at: &mut String, work: &mut Budget, problems: &mut Vec<Problem>) {
    if problems.len() >= MAX_PROBLEMS || work.is_spent() {
        return;
    }
    if let Err(EvalError::Steps { .. }) = look(schema, value, at, work, problems) {
        let message =
            "takes too much work to check: send less, or simplify the pattern, enum or properties of this input";
        problems.push(Problem::new(Code::TooLarge, at.as_str(), message));
    }
}

/// Checks one value and its parts; an error if the budget is spent.
fn look(
    schema: &Schema,
    value: &Value,
    at: &mut String,
    work: &mut Budget,
    problems: &mut Vec<Problem>,
) -> Result<(), EvalError> {
    work.step(1)?;
    if !schema.types.is_empty() && !schema.types.iter().any(|kind| kind.has(value)) {
        let names: Vec<&str> = schema.types.iter().map(|kind| kind.described()).collect();
        let message = format!("must be {}, not {}", names.join(" or "), type_name(value));
        problems.push(Problem::new(Code::WrongType, at.as_str(), message));
        return Ok(());
    }
    if let Some(allowed) = &schema.allowed {
        work.step(allowed.len() / COMPARED)?;
        if !allowed.contains(value) {
            let shown: Vec<String> = allowed.iter().take(20).map(Value::to_string).collect();
            problems.push(Problem::new(Code::BadValue, at.as_str(), format!("must be one of {}", shown.join(", "))));
        }
    }
    match value {
        Value::Number(_) => number(schema, value, at, problems),
        Value::String(text) => self::text(schema, text, at, work, problems)?,
        Value::Array(items) => list(schema, items, at, work, problems),
        Value::Object(fields) => object(schema, fields, at, work, problems)?,
        Value::Null | Value::Bool(_) => {}
    }
    Ok(())
}

fn number(schema: &Schema, value: &Value, at: &str, problems: &mut Vec<Problem>) {
    let Some(number) = value.as_f64() else { return };
    let bounds = [
        (schema.minimum, "at least", number >= schema.minimum.unwrap_or(number)),
        (schema.maximum, "at most", number <= schema.maximum.unwrap_or(number)),
        (schema.exclusive_minimum, "more than", schema.exclusive_minimum.is_none_or(|bound| number > bound)),
        (schema.exclusive_maximum, "less than", schema.exclusive_maximum.is_none_or(|bound| number < bound)),
    ];
    for (bound, words, holds) in bounds {
        if let (Some(bound), false) = (bound, holds) {
            problems.push(Problem::new(Code::BadValue, at, format!("must be {words} {bound}")));
        }
    }
}

fn text(
    schema: &Schema,
    text: &str,
    at: &str,
    work: &mut Budget,
    problems: &mut Vec<Problem>,
) -> Result<(), EvalError> {
    work.read(text.len())?;
    let length = text.chars().count() as u64;
    let mut refuse = |message: String| problems.push(Problem::new(Code::BadValue, at, message));
    if let Some(least) = schema.min_length.filter(|least| length < *least) {
        refuse(format!("must have at least {least} characters"));
    }
    if let Some(most) = schema.max_length.filter(|most| length > *most) {
        refuse(format!("must have at most {most} characters"));
    }
    if let Some(pattern) = &schema.pattern
        && !pattern.is_match(text, work)?
    {
        refuse(format!("must match {pattern}"));
    }
    if let Some(format) = schema.format.filter(|format| !format.has(text)) {
        let name = Format::ALL.iter().find(|(_, known)| *known == format).map_or("", |(name, _)| name);
        refuse(format!("must be a {name}"));
    }
    Ok(())
}

fn list(schema: &Schema, items: &[Value], at: &mut String, work: &mut Budget, problems: &mut Vec<Problem>) {
    let count = items.len() as u64;
    if let Some(least) = schema.min_items.filter(|least| count < *least) {
        problems.push(Problem::new(Code::BadValue, at.as_str(), format!("must have at least {least} items")));
    }
    if let Some(most) = schema.max_items.filter(|most| count > *most) {
        problems.push(Problem::new(Code::BadValue, at.as_str(), format!("must have at most {most} items")));
    }
    if let Some(schema) = &schema.items {
        for (place, item) in items.iter().enumerate() {
            below(at, &place.to_string(), |at| judge(schema, item, at, work, problems));
        }
    }
}

fn object(
    schema: &Schema,
    fields: &serde_json::Map<String, Value>,
    at: &mut String,
    work: &mut Budget,
    problems: &mut Vec<Problem>,
) -> Result<(), EvalError> {
    work.step(fields.len().saturating_mul(schema.fields.len()) / COMPARED)?;
    for name in schema.required.iter().filter(|name| !fields.contains_key(*name)) {
        problems.push(Problem::new(Code::MissingField, at.as_str(), format!("{name} is missing")));
    }
    for (name, value) in fields {
        let declared = schema.fields.iter().find(|(known, _)| known == name).map(|(_, schema)| schema);
        match declared.or(schema.others.as_deref()) {
            Some(schema) => below(at, name, |at| judge(schema, value, at, work, problems)),
            None if schema.closed && problems.len() < MAX_PROBLEMS => {
                let known = schema.fields.iter().map(|(name, _)| name.as_str());
                let mut pointer = at.clone();
                push_segment(&mut pointer, name);
                problems.push(unknown(Code::UnknownField, "input", pointer, name, known, problems));
            }
            None => {}
        }
    }
    Ok(())
}

fn below(at: &mut String, segment: &str, then: impl FnOnce(&mut String)) {
    let length = at.len();
    push_segment(at, segment);
    then(at);
    at.truncate(length);
}

impl Format {
    fn has(self, text: &str) -> bool {
        match self {
            Format::DateTime => text.parse::<jiff::Timestamp>().is_ok(),
            Format::Date => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
            Format::Uri => is_uri(text),
            Format::Email => is_email(text),
            Format::Uuid => text.len() == 36 && text.parse::<uuid::Uuid>().is_ok(),
        }
    }
}

/// A scheme followed by text, without spaces.
fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let head = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
    let tail = scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    head && tail && !rest.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control())
}

/// One `@` between a name and a domain.
fn is_email(text: &str) -> bool {
    let Some((name, domain)) = text.rsplit_once('@') else { return false };
    let is_word =
        |text: &str| !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '@');
    is_word(name) && is_word(domain) && !domain.starts_with('.') && !domain.ends_with('.') && text.len() <= 254
}

impl Schema {
    /// Does it allow values of this type?
    pub(super) fn takes(&self, kind: Type) -> bool {
        self.types.is_empty()
            || self.types.iter().any(|own| *own == kind || (kind == Type::Number && *own == Type::Integer))
    }
}
