//! What evaluating may take: steps instead of a clock, bytes before they are allocated.
//!
//! Invariants
//! - Nothing is given back: the bytes taken are at least the bytes alive at any moment.
//! - Work in proportion to data is charged in proportion: a long text is many steps.
//!
//! Not here: how deep an expression may nest (`expression::convert`), how large a template's result may be
//! (`template`).

use std::borrow::Cow;

use serde_json::Value;

use super::error::EvalError;
use super::meter;

/// The steps of one evaluation, or of all of a template's.
pub const MAX_STEPS: u64 = 100_000;
/// The bytes it may allocate in all.
pub const MAX_BYTES: usize = 8 << 20;
/// The largest value that an expression may have on its own, as JSON.
pub const MAX_RESULT_BYTES: usize = 1 << 20;

/// Looking at so many bytes of text is one step.
const TEXT_STEP: usize = 256;
/// What one value takes.
pub(super) const VALUE: usize = size_of::<Value>();
/// What one entry of an object takes beside its key: the value, the key's own record, the index.
pub(super) const ENTRY: usize = VALUE + size_of::<String>() + 32;
/// What an object takes with nothing in it: room is made for a few entries at once.
pub(super) const OBJECT: usize = 3 * ENTRY;

/// What is left to be used.
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

    /// The steps that were taken.
    pub fn steps_used(&self) -> u64 {
        self.max_steps - self.steps
    }

    /// The bytes that were allocated.
    pub fn bytes_used(&self) -> usize {
        self.max_bytes - self.bytes
    }

    /// Was more asked for than there is?
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

    /// For looking through so much text once.
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

    /// Charges for a value written as JSON; its length.
    pub(super) fn weigh_json(&mut self, value: &Value) -> Result<usize, EvalError> {
        let before = self.bytes;
        let left = meter::weigh(value, before);
        self.allocate(left.map_or(usize::MAX, |left| before - left))?;
        Ok(before - self.bytes)
    }

    /// The value as one's own; a copy is paid for before it is made.
    pub(super) fn own(&mut self, value: Cow<'_, Value>) -> Result<Value, EvalError> {
        if let Cow::Borrowed(value) = value {
            self.weigh(value)?;
        }
        Ok(value.into_owned())
    }

    /// Charges for a copy of what a value holds beyond itself; stops as soon as it is too heavy.
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
