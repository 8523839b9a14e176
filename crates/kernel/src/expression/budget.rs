//! The budget of an evaluation: steps instead of time, and bytes before they are allocated.
//!
//! Invariants
//! - Freed memory is not returned to the budget. So the charged bytes are never less than the bytes in use.
//! - Work that grows with the data costs steps in proportion. For example, reading a long text costs many steps.
//!
//! Not here: how deep an expression may nest (`expression::convert`), how large a template's result may be
//! (`template`).

use std::borrow::Cow;

use serde_json::Value;

use super::error::EvalError;
use super::meter;

/// The step limit of one evaluation, or of all evaluations of one template.
pub const MAX_STEPS: u64 = 100_000;
/// The byte limit for everything that an evaluation, or all evaluations of one template, allocate.
pub const MAX_BYTES: usize = 8 << 20;
/// The largest value of a single expression, in bytes of JSON.
pub const MAX_RESULT_BYTES: usize = 1 << 20;

/// Reading this many bytes of text costs one step.
const TEXT_STEP: usize = 256;
/// The bytes of one value.
pub(super) const VALUE: usize = size_of::<Value>();
/// The bytes of one entry of an object, without its key: the value, the header of the key, the index.
pub(super) const ENTRY: usize = VALUE + size_of::<String>() + 32;
/// The bytes of an empty object, which has room for a few entries.
pub(super) const OBJECT: usize = 3 * ENTRY;

/// The remaining steps and bytes.
#[derive(Clone, Debug)]
pub struct Budget {
    max_steps: u64,
    max_bytes: usize,
    steps: u64,
    bytes: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(MAX_STEPS, MAX_BYTES)
    }
}

impl Budget {
    pub fn new(max_steps: u64, max_bytes: usize) -> Self {
        Self { max_steps, max_bytes, steps: max_steps, bytes: max_bytes }
    }

    /// The steps used so far.
    pub fn steps_used(&self) -> u64 {
        self.max_steps - self.steps
    }

    /// The bytes allocated so far.
    pub fn bytes_used(&self) -> usize {
        self.max_bytes - self.bytes
    }

    /// Is the budget exceeded?
    pub(crate) fn is_spent(&self) -> bool {
        self.steps == 0
    }

    pub(crate) fn step(&mut self, count: usize) -> Result<(), EvalError> {
        match self.steps.checked_sub(count as u64) {
            Some(left) => self.steps = left,
            None => {
                self.steps = 0;
                return Err(EvalError::Steps { limit: self.max_steps });
            }
        }
        Ok(())
    }

    /// Charges for reading this many bytes of text once.
    pub(crate) fn read(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.step(bytes / TEXT_STEP)
    }

    pub(super) fn allocate(&mut self, bytes: usize) -> Result<(), EvalError> {
        match self.bytes.checked_sub(bytes) {
            Some(left) => self.bytes = left,
            None => {
                self.bytes = 0;
                return Err(EvalError::Bytes { limit: self.max_bytes });
            }
        }
        Ok(())
    }

    /// Charges for writing a value as JSON, and returns the length of the JSON.
    pub(super) fn weigh_json(&mut self, value: &Value) -> Result<usize, EvalError> {
        let before = self.bytes;
        let left = meter::weigh(value, before);
        self.allocate(left.map_or(usize::MAX, |left| before - left))?;
        Ok(before - self.bytes)
    }

    /// Converts into an owned value. A copy is charged before it is made.
    pub(super) fn own(&mut self, value: Cow<'_, Value>) -> Result<Value, EvalError> {
        if let Cow::Borrowed(value) = value {
            self.weigh(value)?;
        }
        Ok(value.into_owned())
    }

    /// Charges for a copy of the contents of a value, but not for the value itself. Stops as soon as the limit is
    /// exceeded.
    fn weigh(&mut self, value: &Value) -> Result<(), EvalError> {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
            Value::String(text) => self.allocate(text.len()),
            Value::Array(items) => {
                self.allocate(items.len() * VALUE)?;
                items.iter().try_for_each(|item| self.weigh(item))
            }
            Value::Object(fields) => {
                self.allocate(OBJECT + fields.len() * ENTRY)?;
                fields.iter().try_for_each(|(name, field)| {
                    self.allocate(name.len())?;
                    self.weigh(field)
                })
            }
        }
    }
}
