//! Pieces of JSON Schema that the kinds share.
//!
//! Invariants
//! - A field made by `late` may contain a template, because its value is checked only at run time. Null is the same as
//!   absent.
//! - A schema has no reference to another schema.
//!
//! Not here: what a configuration means (each kind's own file).

use serde_json::{Map, Value, json};

/// The name of a field, and its schema.
pub(crate) type Field = (&'static str, Value);

/// An object with these fields and no others.
pub(crate) fn object(required: &[&str], fields: &[Field]) -> Value {
    let properties: Map<String, Value> =
        fields.iter().map(|(name, field)| ((*name).to_owned(), field.clone())).collect();
    let mut object = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    object
}

/// A field that takes a value of this schema, a template, or null.
pub(crate) fn late(name: &'static str, description: &str, schema: Value) -> Field {
    let template = json!({ "type": "string", "pattern": "\\{\\{" });
    (name, json!({ "description": description, "anyOf": [schema, template, { "type": "null" }] }))
}

/// A field that takes a value of this schema, or null. It cannot contain a template.
pub(crate) fn early(name: &'static str, description: &str, schema: Value) -> Field {
    (name, json!({ "description": description, "anyOf": [schema, { "type": "null" }] }))
}

/// A field that takes one of these values.
pub(crate) fn one_of(name: &'static str, description: &str, values: &[&str]) -> Field {
    early(name, description, json!({ "enum": values }))
}

/// A field that takes any value.
pub(crate) fn any(name: &'static str, description: &str) -> Field {
    (name, json!({ "description": description }))
}

pub(crate) fn text() -> Value {
    json!({ "type": "string" })
}

pub(crate) fn boolean() -> Value {
    json!({ "type": "boolean" })
}

/// A text of 1 to `most` characters.
pub(crate) fn line(most: usize) -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": most })
}

/// A whole number from 1 to `most`.
pub(crate) fn count(most: u32) -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": most })
}

/// An expression that is true or false. YAML reads a bare `true` as a boolean.
pub(crate) fn condition() -> Value {
    json!({ "type": ["string", "boolean"] })
}

/// A duration as text, such as 1m30s.
pub(crate) fn duration() -> Value {
    json!({ "type": "string", "pattern": "^\\s*([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?\\s*$",
        "minLength": 2 })
}

/// An object of at most `most` names, each with one value or a list of values.
pub(crate) fn named(most: usize) -> Value {
    let one = json!({ "type": ["string", "number", "boolean", "null"] });
    json!({ "type": "object", "maxProperties": most,
        "additionalProperties": { "anyOf": [one, { "type": "array", "items": one }] } })
}
