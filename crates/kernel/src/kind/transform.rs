//! TRANSFORM: its output is its resolved `value`.
//!
//! Invariants
//! - Any JSON value is allowed, also null, but the field `value` must exist.
//!
//! Not here: how a value is computed (`template`).

use serde_json::Value;

use super::registry::Spec;
use super::schema::{any, object};
use crate::definition::Manner;
use crate::definition::fields::Fields;

/// The output.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub value: Value,
}

pub(super) const FIELDS: &[&str] = &["value"];

/// The description of this kind.
pub(super) const SPEC: Spec = Spec::new("TRANSFORM", Manner::Computes, "Computes a value from other values.");

/// JSON Schema of `with`.
pub fn schema() -> Value {
    object(&["value"], &[any("value", "The output: any JSON, with templates in any text.")])
}

pub(super) fn read(fields: &mut Fields<'_, '_>) -> Option<Config> {
    if !fields.has("value") {
        fields.require("value");
    }
    Some(Config { value: fields.any("value")?.clone() })
}
