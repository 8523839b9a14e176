//! Finds the value of a path.
//!
//! Invariants
//! - Values are borrowed from the scope. Only a node's status and a secret are copied, because the scope does not store
//!   them as JSON values.
//! - A missing value is null, and a field of null is null.

use std::borrow::Cow;

use serde_json::Value;

use super::{NULL, Walk};
use crate::expression::ast::{PathLookup, Start};
use crate::expression::error::EvalError;
use crate::expression::path::{Part, Segment};
use crate::expression::type_name;

impl<'s> Walk<'s, '_> {
    fn start(&self, start: &Start) -> Result<Cow<'s, Value>, EvalError> {
        Ok(Cow::Borrowed(match start {
            Start::Inputs => &*self.scope.inputs,
            Start::Trigger => &*self.scope.trigger,
            Start::Vars => &*self.scope.vars,
            Start::Item => &*self.scope.item,
            Start::Index => &self.scope.index,
            Start::Event => &*self.scope.event,
            Start::Execution => &self.scope.execution,
            Start::Workspace => &self.scope.workspace,
            Start::Nowhere => &NULL,
            Start::Node(key, part) => match (self.scope.nodes.get(key), part) {
                (None, _) => &NULL,
                (Some(node), Part::Output) => &*node.output,
                (Some(node), Part::Error) => &*node.error,
                (Some(node), Part::Status) => return Ok(Cow::Owned(Value::String(node.status.clone()))),
            },
            Start::Secret(name) => {
                let clear = self.secrets.ok_or(EvalError::NoSecrets)?.get(name);
                let clear = clear.ok_or_else(|| EvalError::NoSecret(name.clone()))?;
                return Ok(Cow::Owned(Value::String(clear.to_owned())));
            }
        }))
    }

    pub(super) fn find(&mut self, place: &PathLookup) -> Result<Cow<'s, Value>, EvalError> {
        let path = &self.paths[place.path];
        let start = self.start(&place.start)?;
        if let Cow::Owned(Value::String(text)) = &start {
            self.budget.allocate(text.len())?;
        }
        path.segments[place.skip..].iter().try_fold(start, |value, segment| {
            take(value, segment).map_err(|error| match error {
                EvalError::NotSelectable { segment, found, .. } => {
                    EvalError::NotSelectable { path: path.to_string(), segment, found }
                }
                other => other,
            })
        })
    }

    pub(super) fn has_path(&mut self, place: &PathLookup) -> Result<bool, EvalError> {
        if let (Start::Secret(name), Some(secrets)) = (&place.start, self.secrets) {
            return Ok(secrets.get(name).is_some());
        }
        let path = &self.paths[place.path];
        let start = self.start(&place.start)?;
        let [way @ .., Segment::Field(last)] = &path.segments[place.skip..] else { return Ok(!start.is_null()) };
        let of = way.iter().try_fold(start, take)?;
        has(&of, last, &path.to_string())
    }
}

/// The value of one segment of a path. A part of an owned value is moved out of it instead of copied.
pub(super) fn take<'e>(value: Cow<'e, Value>, segment: &Segment) -> Result<Cow<'e, Value>, EvalError> {
    Ok(match (value, segment) {
        (Cow::Borrowed(Value::Object(fields)), Segment::Field(name)) => {
            Cow::Borrowed(fields.get(name).unwrap_or(&NULL))
        }
        (Cow::Borrowed(Value::Array(items)), Segment::Index(at)) => Cow::Borrowed(items.get(*at).unwrap_or(&NULL)),
        (Cow::Owned(Value::Object(mut fields)), Segment::Field(name)) => {
            Cow::Owned(fields.get_mut(name).map(Value::take).unwrap_or_default())
        }
        (Cow::Owned(Value::Array(mut items)), Segment::Index(at)) => {
            Cow::Owned(items.get_mut(*at).map(Value::take).unwrap_or_default())
        }
        (value, _) if value.is_null() => Cow::Borrowed(&NULL),
        (value, segment) => {
            let found = type_name(&value);
            return Err(EvalError::NotSelectable { path: String::new(), segment: segment.to_string(), found });
        }
    })
}

pub(super) fn has(of: &Value, field: &str, path: &str) -> Result<bool, EvalError> {
    match of {
        Value::Object(fields) => Ok(fields.contains_key(field)),
        Value::Null => Ok(false),
        other => {
            let segment = format!("field {field}");
            Err(EvalError::NotSelectable { path: path.to_owned(), segment, found: type_name(other) })
        }
    }
}
