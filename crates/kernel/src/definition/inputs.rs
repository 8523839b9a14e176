//! The declared inputs of a definition: the field `inputs`, with a subset of JSON Schema for each input.
//!
//!     inputs ──check──▶ problems, at publishing
//!     inputs ──Inputs::read──▶ Inputs ──apply(input)──▶ the input with its defaults, or problems, at each start
//!
//! Invariants
//! - Publishing and starting check values with the same code. At publishing, a default, example or `enum` value that
//!   its own declaration does not allow is a problem.
//! - All problems of an input are reported at once, each with a pointer into the input. No message repeats a value.
//! - A declaration that an older build accepted and this build cannot read allows every value. So a published version
//!   can always be started.
//! - Work is bounded: every comparison and match is charged to one budget, and the number of problems is limited.
//!
//! Not here: which keys may start executions (`server::http::starts`). A start by SQL is not checked, because
//! PostgreSQL cannot call this code.

mod declare;
mod judge;

use serde_json::{Map, Value};

use crate::definition::problem::{Code, Problem};
use crate::expression::pattern::Pattern;
use crate::expression::{Budget, meter};
use crate::names::names;

/// The most fields that may be declared, in all.
pub const MAX_FIELDS: usize = 500;
/// The longest pattern.
pub const MAX_PATTERN_LEN: usize = 500;
/// The step limit for checking one input, or the declarations of one version. `expression::Budget` defines a step.
const MAX_STEPS: u64 = 200_000;
/// The step limit for `apply_cheaply`.
const CHEAP_STEPS: u64 = 1_000;
/// The largest input for `apply_cheaply`, in bytes of JSON.
const SMALL_INPUT: usize = 32 << 10;
/// The most problems of one input that are reported.
const MAX_PROBLEMS: usize = 100;

names! {
    /// The types of a declaration.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Type {
        String = "string",
        Number = "number",
        Integer = "integer",
        Boolean = "boolean",
        Object = "object",
        Array = "array",
        Null = "null",
    }
}

impl Type {
    /// The type in a message, in the words of `type_name`.
    fn described(self) -> &'static str {
        match self {
            Type::String => "text",
            Type::Number => "a number",
            Type::Integer => "a whole number",
            Type::Boolean => "a boolean",
            Type::Object => "an object",
            Type::Array => "a list",
            Type::Null => "null",
        }
    }

    fn has(self, value: &Value) -> bool {
        match self {
            Type::Null => value.is_null(),
            Type::Boolean => value.is_boolean(),
            // As in JSON Schema, 5.0 is an integer.
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

/// The format of a text.
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

/// The declaration of one value.
#[derive(Clone, Debug, Default)]
struct Schema {
    /// The allowed types; empty if every type is allowed.
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
    /// `additionalProperties: false`: fields that are not declared are refused.
    closed: bool,
    /// The declaration of fields that are not declared by name.
    others: Option<Box<Schema>>,
    default: Option<Value>,
}

/// The inputs that a version declares.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// `None` if the author declared no inputs. Then every input is allowed.
    declared: Option<Schema>,
}

/// The budget for checking.
fn work() -> Budget {
    Budget::new(MAX_STEPS, 0)
}

/// The problems of the declarations, with pointers from `inputs`.
pub fn check(inputs: &Value) -> Vec<Problem> {
    let mut problems = Vec::new();
    declare::fields(inputs, &mut problems);
    problems
}

/// JSON Schema of one declaration. The schema of a document contains it as `#/$defs/input`.
pub fn schema() -> Value {
    declare::schema()
}

impl Inputs {
    /// Reads the declarations of a version. `additional` means that inputs which are not declared are allowed.
    pub fn read(inputs: &Value, additional: bool) -> Inputs {
        if !inputs.is_object() && additional {
            return Inputs::default();
        }
        let mut schema = declare::fields(inputs, &mut Vec::new());
        schema.closed = !additional;
        Inputs { declared: Some(schema) }
    }

    /// Is every input allowed?
    pub fn takes_anything(&self) -> bool {
        self.declared.is_none()
    }

    /// The same as [`Inputs::apply`], with a small budget. Returns `None` if the check could take long.
    pub fn apply_cheaply(&self, input: &Option<Value>) -> Option<Result<Option<Value>, Vec<Problem>>> {
        let small = input.as_ref().is_none_or(|input| meter::weigh(input, SMALL_INPUT).is_some());
        if self.takes_anything() || !small {
            return self.takes_anything().then(|| Ok(input.clone()));
        }
        let mut work = Budget::new(CHEAP_STEPS, 0);
        let applied = self.apply_within(input.clone(), &mut work);
        (!work.is_spent()).then_some(applied)
    }

    /// Returns the input with its defaults filled in, or all problems of the input.
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
