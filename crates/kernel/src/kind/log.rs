//! LOG: writes a message to the execution's log.
//!
//! Invariants
//! - Any value can be logged: a value that is not text is written as compact JSON.
//!
//! Not here: where messages go (the engine).

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::registry::Spec;
use super::schema::{any, late, object};
use crate::definition::Manner;
use crate::definition::fields::Fields;

/// The severity of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Debug,
    #[default]
    Info,
    Warn,
    Error,
}

/// The message.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Config {
    pub level: Level,
    pub message: String,
    pub data: Option<Value>,
}

pub(super) const FIELDS: &[&str] = &["message", "level", "data"];
const LEVELS: &[(&str, Level)] =
    &[("debug", Level::Debug), ("info", Level::Info), ("warn", Level::Warn), ("error", Level::Error)];

/// The description of this kind.
pub(super) const SPEC: Spec = Spec::new("LOG", Manner::Computes, "Writes a message to the execution's log.");

/// JSON Schema of `with`.
pub fn schema() -> Value {
    let levels: Vec<&str> = LEVELS.iter().map(|(name, _)| *name).collect();
    object(
        &["message"],
        &[
            any("message", "The message; a value that is not text is written as JSON."),
            late("level", "The severity of the message; info if absent.", json!({ "enum": levels })),
            any("data", "Any value to store with the message."),
        ],
    )
}

pub(super) fn read(fields: &mut Fields<'_, '_>) -> Option<Config> {
    let level = fields.choice("level", LEVELS).unwrap_or_default();
    let message = super::message(fields, "message")?;
    Some(Config { level, message, data: fields.get("data").cloned() })
}
