//! LOG: leaves a message in the execution's record.
//!
//! Invariants
//! - Any value can be logged: what is no text is written as compact JSON.
//!
//! Not here: where messages go (the engine).

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::registry::Spec;
use super::schema::{any, late, object};
use crate::definition::Manner;
use crate::definition::fields::{Fields, Problem};
use crate::run::failure::Failure;

/// How much a message matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Debug,
    #[default]
    Info,
    Warn,
    Error,
}

/// What to record.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Config {
    pub level: Level,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

const FIELDS: &[&str] = &["message", "level", "data"];
const LEVELS: &[(&str, Level)] =
    &[("debug", Level::Debug), ("info", Level::Info), ("warn", Level::Warn), ("error", Level::Error)];

/// What the kind says of itself.
pub(super) const SPEC: Spec =
    Spec::new("LOG", Manner::Computes, "Leaves a message in the execution's record.", schema, check);

/// What `with` must look like.
pub fn schema() -> Value {
    let levels: Vec<&str> = LEVELS.iter().map(|(name, _)| *name).collect();
    object(
        &["message"],
        &[
            ("message", any("What to record; what is no text is written as JSON.")),
            ("level", late("How much it matters; info if not said.", json!({ "enum": levels }))),
            ("data", any("Anything to keep beside it.")),
        ],
    )
}

pub fn check(with: &Value) -> Vec<Problem> {
    super::check_with(with, FIELDS, read)
}

pub fn prepare(input: Value) -> Result<Config, Failure> {
    super::prepare_with(&input, FIELDS, read)
}

fn read(fields: &mut Fields<'_, '_>) -> Option<Config> {
    let level = fields.choice("level", LEVELS).unwrap_or_default();
    let message = super::message(fields, "message")?;
    Some(Config { level, message, data: fields.get("data").cloned() })
}
