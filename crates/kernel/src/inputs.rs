//! What a start must bring: `inputs` of a definition, a subset of JSON Schema per field.
//!
//!     inputs ──check──▶ problems, at publishing
//!     inputs ──Inputs::read──▶ Inputs ──apply(input)──▶ the input with its defaults, or problems, at each start
//!
//! Invariants
//! - A declaration and a value are judged by one reader: a default, an example or an enum that its own declaration
//!   refuses is a problem at publishing.
//! - All problems of an input are told at once, each with a pointer into it, and no message repeats a value.
//! - A declaration that an older build took and this one cannot read asks for nothing: what is published can be started.
//! - Work is bounded: patterns are linear and small, problems are counted.
//!
//! Not here: who may start (`server::http::starts`); a start by SQL is not judged, as PostgreSQL cannot ask here.

mod declare;
mod judge;

use regex::Regex;
use serde_json::{Map, Value};

use crate::problem::{Code, Problem};

/// The most fields that may be declared, in all.
pub const MAX_FIELDS: usize = 500;
/// The longest pattern.
pub const MAX_PATTERN_LEN: usize = 500;
/// The most problems of one input that are told.
const MAX_TOLD: usize = 100;

/// The types that may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Null,
    Boolean,
    Integer,
    Number,
    String,
    Array,
    Object,
}

impl Type {
    const ALL: [(&'static str, Type); 7] = [
        ("string", Type::String),
        ("number", Type::Number),
        ("integer", Type::Integer),
        ("boolean", Type::Boolean),
        ("object", Type::Object),
        ("array", Type::Array),
        ("null", Type::Null),
    ];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    fn has(self, value: &Value) -> bool {
        match self {
            Type::Null => value.is_null(),
            Type::Boolean => value.is_boolean(),
            // As JSON Schema counts: 5.0 is an integer.
            Type::Integer => {
                value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
            }
            Type::Number => value.is_number(),
            Type::String => value.is_string(),
            Type::Array => value.is_array(),
            Type::Object => value.is_object(),
        }
    }
}

/// What a text must look like, beyond being text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    DateTime,
    Date,
    Uri,
    Email,
    Uuid,
}

impl Format {
    const ALL: [(&'static str, Format); 5] = [
        ("date-time", Format::DateTime),
        ("date", Format::Date),
        ("uri", Format::Uri),
        ("email", Format::Email),
        ("uuid", Format::Uuid),
    ];
}

/// What one value must be.
#[derive(Clone, Debug, Default)]
struct Schema {
    /// Any of these; empty for all.
    types: Vec<Type>,
    allowed: Option<Vec<Value>>,
    minimum: Option<f64>,
    maximum: Option<f64>,
    exclusive_minimum: Option<f64>,
    exclusive_maximum: Option<f64>,
    min_length: Option<u64>,
    max_length: Option<u64>,
    pattern: Option<Regex>,
    format: Option<Format>,
    items: Option<Box<Schema>>,
    min_items: Option<u64>,
    max_items: Option<u64>,
    fields: Vec<(String, Schema)>,
    required: Vec<String>,
    /// `additionalProperties: false`
    closed: bool,
    /// What other fields must be.
    others: Option<Box<Schema>>,
    default: Option<Value>,
}

/// What the starts of one version must bring.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// Nothing if the author declared nothing: then anything is taken.
    declared: Option<Schema>,
}

/// What is wrong with the declarations, with pointers from `inputs`.
pub fn check(inputs: &Value) -> Vec<Problem> {
    let mut problems = Vec::new();
    declare::fields(inputs, &mut problems);
    problems
}

/// JSON Schema of one declaration; it is `#/$defs/input` of a document's.
pub fn schema() -> Value {
    declare::schema()
}

impl Inputs {
    /// Reads what a version declares; `additional` says whether other inputs are taken.
    pub fn read(inputs: &Value, additional: bool) -> Inputs {
        if !inputs.is_object() && additional {
            return Inputs::default();
        }
        let mut schema = declare::fields(inputs, &mut Vec::new());
        schema.closed = !additional;
        Inputs { declared: Some(schema) }
    }

    /// Would any input do?
    pub fn takes_anything(&self) -> bool {
        self.declared.is_none()
    }

    /// The input with its defaults filled in, or all that is wrong with it.
    pub fn apply(&self, input: Option<Value>) -> Result<Option<Value>, Vec<Problem>> {
        let Some(schema) = &self.declared else { return Ok(input) };
        let mut input = input.unwrap_or(Value::Null);
        if input.is_null() {
            input = Value::Object(Map::new());
        }
        if !input.is_object() {
            let message = "must be an object, as the workflow declares its inputs";
            return Err(vec![Problem::new(Code::WrongType, "", message)]);
        }
        judge::fill(schema, &mut input);
        let mut problems = Vec::new();
        judge::judge(schema, &input, &mut String::new(), &mut problems);
        if problems.is_empty() { Ok(Some(input)) } else { Err(problems) }
    }
}

#[cfg(test)]
mod tests;
