//! FAIL: ends its branch with a failure and the author's message.
//!
//! Invariants
//! - The failure has the class `CONTROL_FLOW_ERROR`, so it is never retried.
//!
//! Not here: what a failure does to the graph (`run`).

use serde_json::Value;

use super::registry::Spec;
use super::schema::{any, object};
use crate::definition::Manner;
use crate::definition::fields::Fields;
use crate::run::failure::{Class, Failure};

/// The message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub message: String,
}

impl Config {
    /// The failure that the author asked for.
    pub fn failure(&self) -> Failure {
        Failure::new(Class::ControlFlowError, &self.message)
    }
}

pub(super) const FIELDS: &[&str] = &["message"];

/// The description of this kind.
pub(super) const SPEC: Spec =
    Spec { is_action: false, ..Spec::new("FAIL", Manner::Computes, "Fails its branch; it is never retried.") };

/// JSON Schema of `with`.
pub fn schema() -> Value {
    object(&["message"], &[any("message", "The message of the failure; a value that is not text is written as JSON.")])
}

pub(super) fn read(fields: &mut Fields<'_, '_>) -> Option<Config> {
    Some(Config { message: super::message(fields, "message")? })
}
