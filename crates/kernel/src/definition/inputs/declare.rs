//! Reads the declarations of inputs.
//!
//! Invariants
//! - An unknown keyword is a problem. JSON Schema would ignore it, and the author would expect an effect.
//! - A keyword that cannot apply to the declared type is a problem, for the same reason.
//!
//! Not here: checking values (`judge`).

use serde_json::{Map, Value, json};

use super::{Format, MAX_FIELDS, MAX_PATTERN_LEN, Schema, Type, judge};
use crate::definition::fields::{CheckTime, Code, Fields, Problem, child, unknown};
use crate::expression::pattern::{Pattern, PatternError};
use crate::expression::{Budget, type_name};
use crate::ids::NodeKey;

/// How deep declarations may nest.
const MAX_NESTING: usize = 16;
/// The largest compiled pattern, in bytes.
const MAX_PATTERN_SIZE: usize = 1 << 20;
/// The largest size of all compiled patterns of one version together, in bytes.
const MAX_PATTERNS_SIZE: usize = 4 << 20;

/// Counts over all declarations of a version.
struct Read {
    fields: usize,
    /// The bytes that compiled patterns may still take.
    patterns: usize,
    /// The budget for checking the values in the declarations: `default`, `examples`, `enum`, `const`.
    work: Budget,
}

const WORDS: &[&str] = &[
    "type",
    "required",
    "default",
    "enum",
    "const",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "items",
    "minItems",
    "maxItems",
    "properties",
    "additionalProperties",
    "description",
    "title",
    "examples",
];

/// The keywords that apply only to values of one type.
const ABOUT: [(Type, &[&str]); 4] = [
    (Type::Number, &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]),
    (Type::String, &["minLength", "maxLength", "pattern", "format"]),
    (Type::Array, &["items", "minItems", "maxItems"]),
    (Type::Object, &["properties", "additionalProperties"]),
];

/// JSON Schema of a declaration. The schema is recursive: `items` and `properties` contain declarations.
pub(super) fn schema() -> Value {
    let types = Type::ALL.map(Type::name);
    let formats: Vec<&str> = Format::ALL.iter().map(|(name, _)| *name).collect();
    let own = || json!({ "$ref": "#/$defs/input" });
    let number = || json!({ "type": ["number", "null"] });
    let count = || json!({ "type": ["integer", "null"], "minimum": 0 });
    let text = || json!({ "type": ["string", "null"] });
    let words: Map<String, Value> = WORDS
        .iter()
        .map(|word| {
            let schema = match *word {
                "type" => json!({ "anyOf": [{ "enum": types },
                { "type": "array", "items": { "enum": types }, "minItems": 1 }, { "type": "null" }] }),
                "required" => json!({ "anyOf": [{ "type": "boolean" },
                { "type": "array", "items": { "type": "string" } }, { "type": "null" }] }),
                "enum" => json!({ "type": ["array", "null"], "minItems": 1 }),
                "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => number(),
                "minLength" | "maxLength" | "minItems" | "maxItems" => count(),
                "format" => json!({ "enum": formats }),
                "items" => own(),
                "properties" => json!({ "type": ["object", "null"], "additionalProperties": own() }),
                "additionalProperties" => json!({ "anyOf": [{ "type": "boolean" }, own(), { "type": "null" }] }),
                "pattern" | "description" | "title" => text(),
                "examples" => json!({ "type": ["array", "null"] }),
                _ => json!({}),
            };
            ((*word).to_owned(), schema)
        })
        .collect();
    json!({ "anyOf": [{ "enum": types }, { "type": "object", "properties": words, "additionalProperties": false }] })
}

/// Reads the fields of `inputs`. Each field declares by `required: true` that it is required.
pub(super) fn fields(inputs: &Value, problems: &mut Vec<Problem>) -> Schema {
    let mut schema = Schema::default();
    let mut read = Read { fields: 0, patterns: MAX_PATTERNS_SIZE, work: super::work() };
    for (name, declared) in inputs.as_object().into_iter().flatten() {
        let at = child("", name);
        if let Err(bad) = NodeKey::new(name) {
            problems.push(Problem::new(Code::BadName, at.as_str(), bad.to_string()).of_key());
        }
        let (field, is_required) = field(declared, &at, 1, &mut read, problems);
        if is_required {
            schema.required.push(name.clone());
        }
        schema.fields.push((name.clone(), field));
    }
    if read.fields > MAX_FIELDS {
        let message = format!("declares {} fields, more than {MAX_FIELDS}", read.fields);
        problems.push(Problem::new(Code::TooLarge, "", message));
    }
    schema
}

/// Reads one declaration, and returns whether it has `required: true`.
fn field(value: &Value, at: &str, depth: usize, read: &mut Read, problems: &mut Vec<Problem>) -> (Schema, bool) {
    read.fields += 1;
    let mut schema = Schema::default();
    // `name: string` is short for `name: {type: string}`.
    if let Some(short) = value.as_str() {
        match Type::parse(short) {
            Some(kind) => schema.types.push(kind),
            None => problems.push(unknown_type(at.to_owned(), short, problems)),
        }
        return (schema, false);
    }
    if depth > MAX_NESTING || read.fields > MAX_FIELDS {
        if depth > MAX_NESTING {
            let message = format!("declarations nest deeper than {MAX_NESTING}");
            problems.push(Problem::new(Code::TooDeep, at, message));
        }
        return (schema, false);
    }
    let Some(mut fields) = Fields::open(value, at, WORDS, CheckTime::Run, problems) else { return (schema, false) };
    schema.types = types(&mut fields);
    limits(&mut fields, &mut schema);
    texts(&mut fields, &mut schema, &mut read.patterns);
    let is_required = required(&mut fields, &mut schema);
    misplaced(&mut fields, &schema);
    inner(&mut fields, &mut schema, depth, read);
    values(&mut fields, &mut schema, is_required, &mut read.work);
    (schema, is_required)
}

fn unknown_type(at: String, word: &str, problems: &[Problem]) -> Problem {
    unknown(Code::BadInputs, "type", at, word, Type::ALL.into_iter().map(Type::name), problems)
}

fn types(fields: &mut Fields<'_, '_>) -> Vec<Type> {
    let Some(given) = fields.each("type") else { return Vec::new() };
    if given.is_empty() {
        fields.refuse(Code::BadInputs, "type", "must name at least one type");
    }
    let mut types = Vec::new();
    for (at, word) in given {
        match (word.as_str().and_then(Type::parse), word.as_str()) {
            (Some(kind), _) => types.push(kind),
            (None, Some(word)) => {
                let problem = unknown_type(at, word, fields.problems);
                fields.problems.push(problem);
            }
            (None, None) => {
                let message = format!("must be the name of a type, not {}", type_name(word));
                fields.problems.push(Problem::new(Code::WrongType, at, message));
            }
        }
    }
    types
}

fn limits(fields: &mut Fields<'_, '_>, schema: &mut Schema) {
    schema.minimum = number(fields, "minimum");
    schema.maximum = number(fields, "maximum");
    schema.exclusive_minimum = number(fields, "exclusiveMinimum");
    schema.exclusive_maximum = number(fields, "exclusiveMaximum");
    schema.min_length = fields.integer("minLength", 0..=u64::from(u32::MAX));
    schema.max_length = fields.integer("maxLength", 0..=u64::from(u32::MAX));
    schema.min_items = fields.integer("minItems", 0..=u64::from(u32::MAX));
    schema.max_items = fields.integer("maxItems", 0..=u64::from(u32::MAX));
    let crossed = [
        ("maximum", schema.minimum.zip(schema.maximum).is_some_and(|(least, most)| least > most)),
        ("maxLength", schema.min_length.zip(schema.max_length).is_some_and(|(least, most)| least > most)),
        ("maxItems", schema.min_items.zip(schema.max_items).is_some_and(|(least, most)| least > most)),
    ];
    for (name, _) in crossed.into_iter().filter(|(_, crossed)| *crossed) {
        fields.refuse(Code::BadInputs, name, "is less than the minimum, so no value would be valid");
    }
}

fn number(fields: &mut Fields<'_, '_>, name: &str) -> Option<f64> {
    let value = fields.get(name)?;
    if !value.is_number() {
        fields.refuse(Code::WrongType, name, format!("must be a number, not {}", type_name(value)));
    }
    value.as_f64()
}

fn texts(fields: &mut Fields<'_, '_>, schema: &mut Schema, left: &mut usize) {
    for name in ["description", "title"] {
        fields.text(name);
    }
    if let Some(text) = fields.text("pattern") {
        match pattern(text, left) {
            Ok(pattern) => schema.pattern = Some(pattern),
            Err(message) => fields.refuse(Code::BadInputs, "pattern", message),
        }
    }
    schema.format = fields.choice("format", &Format::ALL);
}

/// Compiles a pattern, and subtracts its size from `left`, the bytes that are left for all patterns. A pattern that is
/// refused for its size subtracts the whole limit, because it took as much work.
fn pattern(text: &str, left: &mut usize) -> Result<Pattern, String> {
    let beside =
        || "makes the patterns of this workflow too large together: use fewer or smaller repetitions".to_owned();
    if text.len() > MAX_PATTERN_LEN {
        return Err(format!("is longer than {MAX_PATTERN_LEN} bytes"));
    }
    let limit = MAX_PATTERN_SIZE.min(*left);
    if limit == 0 {
        return Err(beside());
    }
    let pattern = Pattern::new(text, limit);
    *left -= match &pattern {
        Ok(pattern) => pattern.size().min(*left),
        Err(PatternError::TooLarge) => limit,
        Err(PatternError::Unreadable(_)) => 0,
    };
    pattern.map_err(|refused| match refused {
        PatternError::TooLarge if limit < MAX_PATTERN_SIZE => beside(),
        PatternError::TooLarge => "becomes too large when compiled: use fewer or smaller repetitions".to_owned(),
        PatternError::Unreadable(why) => format!("is not a valid pattern: {why}"),
    })
}

/// Reads `required`. It is `true` for a required field, or the list of the required fields of an object.
fn required(fields: &mut Fields<'_, '_>, schema: &mut Schema) -> bool {
    match fields.get("required") {
        None => false,
        Some(Value::Bool(truth)) => *truth,
        Some(Value::Array(names)) if names.iter().all(Value::is_string) => {
            schema.required = names.iter().filter_map(Value::as_str).map(str::to_owned).collect();
            if !schema.takes(Type::Object) {
                let message = "must be true or false here: only an object can have a list of required fields";
                fields.refuse(Code::BadInputs, "required", message);
            }
            false
        }
        Some(other) => {
            let message = format!("must be true or false, or a list of an object's fields, not {}", type_name(other));
            fields.refuse(Code::WrongType, "required", message);
            false
        }
    }
}

/// Reports keywords that apply to no value of the declared types.
fn misplaced(fields: &mut Fields<'_, '_>, schema: &Schema) {
    for (kind, words) in ABOUT {
        for name in words.iter().filter(|_| !schema.takes(kind)) {
            if fields.get(name).is_some() {
                let message =
                    format!("applies only to values of type {}, which this declaration does not allow", kind.name());
                let problem = Problem::new(Code::BadInputs, fields.pointer(name), message).of_key();
                fields.problems.push(problem);
            }
        }
    }
}

/// Reads the inner declarations: of a list's items, of an object's fields, and of its undeclared fields.
fn inner(fields: &mut Fields<'_, '_>, schema: &mut Schema, depth: usize, read: &mut Read) {
    if let Some(items) = fields.get("items") {
        let at = fields.pointer("items");
        schema.items = Some(Box::new(field(items, &at, depth + 1, read, fields.problems).0));
    }
    let at = fields.pointer("properties");
    for (name, value) in fields.object("properties").into_iter().flatten() {
        let (inner, is_required) = field(value, &child(&at, name), depth + 1, read, fields.problems);
        if is_required && !schema.required.contains(name) {
            schema.required.push(name.clone());
        }
        schema.fields.push((name.clone(), inner));
    }
    match fields.get("additionalProperties") {
        None => {}
        Some(Value::Bool(open)) => schema.closed = !open,
        Some(other) => {
            let at = fields.pointer("additionalProperties");
            schema.others = Some(Box::new(field(other, &at, depth + 1, read, fields.problems).0));
        }
    }
}

/// Reads `enum`, `const`, `default` and `examples`. Each value in them must be valid by the rest of the declaration.
fn values(fields: &mut Fields<'_, '_>, schema: &mut Schema, is_required: bool, work: &mut Budget) {
    match fields.get("enum") {
        None => {}
        Some(Value::Array(list)) if !list.is_empty() => {
            fit(fields, "enum", list, true, schema, work);
            schema.allowed = Some(list.clone());
        }
        Some(_) => fields.refuse(Code::BadInputs, "enum", "must be a list with at least one value"),
    }
    if let Some(only) = fields.get("const") {
        fit(fields, "const", std::slice::from_ref(only), false, schema, work);
        schema.allowed = Some(vec![only.clone()]);
    }
    if let Some(default) = fields.get("default") {
        fit(fields, "default", std::slice::from_ref(default), false, schema, work);
        if is_required {
            fields.refuse(
                Code::BadInputs,
                "default",
                "a required input cannot have a default, because it is never missing",
            );
        }
        schema.default = Some(default.clone());
    }
    match fields.get("examples") {
        None => {}
        Some(Value::Array(list)) => fit(fields, "examples", list, true, schema, work),
        Some(other) => {
            fields.refuse(Code::WrongType, "examples", format!("must be a list, not {}", type_name(other)));
        }
    }
}

/// Reports each of these values that the declaration itself does not allow.
fn fit(fields: &mut Fields<'_, '_>, name: &str, values: &[Value], is_list: bool, schema: &Schema, work: &mut Budget) {
    let at = fields.pointer(name);
    for (place, value) in values.iter().enumerate() {
        let at = if is_list { child(&at, &place.to_string()) } else { at.clone() };
        let mut found = Vec::new();
        judge::judge(schema, value, &mut String::new(), work, &mut found);
        let found = found.into_iter().map(|found| Problem { code: Code::BadInputs, ..found }.below(&at));
        fields.problems.extend(found);
    }
}
