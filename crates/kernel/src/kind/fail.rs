//! FAIL: ends its branch with a failure of the author's own words.
//!
//! Invariants
//! - The failure is a CONTROL_FLOW_ERROR, so it is never tried again.
//!
//! Not here: what a failure does to the graph (`run`).

use serde_json::Value;

use super::registry::Spec;
use super::schema::{any, object};
use crate::definition::Manner;
use crate::definition::fields::{Fields, Problem};
use crate::run::failure::{Class, Failure};

/// What to say.
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

const FIELDS: &[&str] = &["message"];

/// What the kind says of itself.
pub(super) const SPEC: Spec = Spec {
    is_action: false,
    ..Spec::new("FAIL", Manner::Computes, "Fails its branch, and is never tried again.", schema, check)
};

/// What `with` must look like.
pub fn schema() -> Value {
    object(&["message"], &[("message", any("Why it fails; what is no text is written as JSON."))])
}

pub fn check(with: &Value) -> Vec<Problem> {
    super::check_with(with, FIELDS, read)
}

pub fn prepare(input: Value) -> Result<Config, Failure> {
    super::prepare_with(&input, FIELDS, read)
}

fn read(fields: &mut Fields<'_, '_>) -> Option<Config> {
    Some(Config { message: super::message(fields, "message")? })
}
