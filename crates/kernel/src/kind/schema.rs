//! Pieces of JSON Schema that the kinds share.
//!
//! Invariants
//! - A field may hold a template wherever its value is only judged at run time, and null is the same as absent.
//! - A schema stands alone: it refers to nothing outside it.
//!
//! Not here: what a configuration means (each kind's own file).

use serde_json::{Map, Value, json};

/// An object with these fields and no others.
pub(crate) fn object(required: &[&str], fields: &[(&str, Value)]) -> Value {
    let properties: Map<String, Value> =
        fields.iter().map(|(name, field)| ((*name).to_owned(), field.clone())).collect();
    let mut object = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    object
}

/// A field with what is said of it: what it must be, or a template, or null.
pub(crate) fn late(description: &str, schema: Value) -> Value {
    json!({ "description": description,
        "anyOf": [schema, { "type": "string", "pattern": "\\{\\{" }, { "type": "null" }] })
}

/// A field that is read as it stands: no template.
pub(crate) fn early(description: &str, schema: Value) -> Value {
    json!({ "description": description, "anyOf": [schema, { "type": "null" }] })
}

/// A field that takes any value.
pub(crate) fn any(description: &str) -> Value {
    json!({ "description": description })
}

/// A duration as people write it.
pub(crate) fn duration() -> Value {
    json!({ "type": "string", "pattern": "^\\s*([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?\\s*$",
        "minLength": 2 })
}

/// Names with a value each, or several.
pub(crate) fn named(most: usize) -> Value {
    let one = json!({ "type": ["string", "number", "boolean", "null"] });
    json!({ "type": "object", "maxProperties": most,
        "additionalProperties": { "anyOf": [one, { "type": "array", "items": one }] } })
}
