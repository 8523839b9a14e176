//! TRANSFORM: its output is its resolved `value`.
//!
//! Invariants
//! - Any JSON value will do, null included; only the field itself must be there.
//!
//! Not here: how a value is computed (`template`).

use serde_json::Value;

use super::registry::Spec;
use super::schema::{any, object};
use crate::definition::Manner;
use crate::definition::fields::{Fields, Problem};
use crate::run::failure::Failure;

/// What to put out.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub value: Value,
}

const FIELDS: &[&str] = &["value"];

/// What the kind says of itself.
pub(super) const SPEC: Spec = Spec::new("TRANSFORM", Manner::Computes, "Makes a value of other values.", schema, check);

/// What `with` must look like.
pub fn schema() -> Value {
    object(&["value"], &[("value", any("The output: any JSON, with templates in any text."))])
}

pub fn check(with: &Value) -> Vec<Problem> {
    super::check_with(with, FIELDS, read)
}

/// Takes the value out of the input, as it may be large.
pub fn prepare(mut input: Value) -> Result<Config, Failure> {
    super::prepare_with(&input, FIELDS, read)?;
    let value = input.get_mut("value").map(Value::take).unwrap_or_default();
    Ok(Config { value })
}

fn read(fields: &mut Fields<'_, '_>) -> Option<()> {
    if !fields.has("value") {
        fields.require("value");
    }
    Some(())
}
