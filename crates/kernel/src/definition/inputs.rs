//! What a start must bring: `inputs` of a definition, a subset of JSON Schema per field.
//!
//!     inputs ──check──▶ problems, at publishing
//!     inputs ──Inputs::read──▶ Inputs ──apply(input)──▶ the input with its defaults, or problems, at each start
//!
//! Invariants
//! - A declaration and a value are judged by one reader: a default, an example or an enum that its own declaration
//!   refuses is a problem at publishing.
//! - All problems of an input are told at once, each with a pointer into it, and no message repeats a value.
//! - A declaration that an older build took and this one cannot read asks for nothing: what is published can be
//!   started.
//! - Work is bounded: all that is compared and matched is charged to one budget, problems are counted.
//!
//! Not here: who may start (`server::http::starts`); a start by SQL is not judged, as PostgreSQL cannot ask here.

mod declare;
mod judge;

use serde_json::{Map, Value};

use crate::definition::problem::{Code, Problem};
use crate::expression::pattern::Pattern;
use crate::expression::{Budget, meter};

/// The most fields that may be declared, in all.
pub const MAX_FIELDS: usize = 500;
/// The longest pattern.
pub const MAX_PATTERN_LEN: usize = 500;
/// The steps of judging one input, or all that one version declares: see `expression::Budget`.
const MAX_STEPS: u64 = 200_000;
/// The steps that are taken at once, where the caller has other things to do.
const CHEAP_STEPS: u64 = 1_000;
/// The largest input that is judged at once, as JSON.
const SMALL_INPUT: usize = 32 << 10;
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
    pattern: Option<Pattern>,
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

/// What judging may take.
fn work() -> Budget {
    Budget::new(MAX_STEPS, 0)
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

    /// [`Inputs::apply`], unless that takes more than a moment.
    pub fn apply_cheaply(&self, input: &Option<Value>) -> Option<Result<Option<Value>, Vec<Problem>>> {
        let small = input.as_ref().is_none_or(|input| meter::weigh(input, SMALL_INPUT).is_some());
        if self.takes_anything() || !small {
            return self.takes_anything().then(|| Ok(input.clone()));
        }
        let mut work = Budget::new(CHEAP_STEPS, 0);
        let applied = self.apply_within(input.clone(), &mut work);
        (!work.is_spent()).then_some(applied)
    }

    /// The input with its defaults filled in, or all that is wrong with it.
    pub fn apply(&self, input: Option<Value>) -> Result<Option<Value>, Vec<Problem>> {
        self.apply_within(input, &mut work())
    }

    fn apply_within(&self, input: Option<Value>, work: &mut Budget) -> Result<Option<Value>, Vec<Problem>> {
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
        judge::judge(schema, &input, &mut String::new(), work, &mut problems);
        if problems.is_empty() { Ok(Some(input)) } else { Err(problems) }
    }
}

#[cfg(test)]
mod tests;
